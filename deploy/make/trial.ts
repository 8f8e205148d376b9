// What a trial start of the build, or of `init`, gives a program, and what it asks it.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Protocol } from '../../agent/first.ts'
import { signalAll, type Started, startedWith, startProgram, TRIAL } from '../../agent/install.ts'
import { BatonError, howEnded, reasonOf, untilWell } from '../../agent/words.ts'
import { statusHere } from '../lib/http.ts'
import { cleanEnvironment } from '../lib/passed.ts'

export const START_MS = 60_000
const STOP_MS = 10_000
/** A second look comes so much later: much is opened only when an application has settled. */
export const LOOK_AGAIN_MS = 5000

/** no application has it: if it answers 2xx, so does every path */
export const NO_PATH = '/baton-asks-for-what-is-not-there'

/** What an install gives, and nothing of the developer's: a variable of theirs would hide that the host lacks it. */
export function trialEnvironment(stateDirectory: string): NodeJS.ProcessEnv {
  const own = { HOME: stateDirectory, STATE_DIRECTORY: stateDirectory, [TRIAL]: '1' }
  return { ...cleanEnvironment(process.env), ...own }
}

/**
 * Ends, at the end of the scope, every process with `text` in its environment: a switch starts each process in a group of its own. If this
 * process has to exit before, they are killed.
 */
export function endingAllWith(text: string): AsyncDisposable {
  const kill = () => signalAll(startedWith(text), 'SIGKILL')
  process.once('exit', kill)
  return {
    async [Symbol.asyncDispose]() {
      signalAll(startedWith(text), 'SIGTERM')
      await untilWell(() => Promise.resolve(startedWith(text).length === 0 ? null : 'not yet'), STOP_MS)
      kill()
      process.off('exit', kill)
    },
  }
}

/** Runs a program to its end. Throws BatonError verify_failed unless that is exit code 0, within `mostMs`. */
export async function runToEnd(
  command: readonly [string, ...string[]],
  at: { cwd: string; env: NodeJS.ProcessEnv },
  mostMs: number,
): Promise<void> {
  await using started = startProgram(command, at)
  const deadline = performance.now() + mostMs
  while (started.ended() === null && performance.now() < deadline) await sleep(20)
  const ended = started.ended()
  if (ended === howEnded(0, null)) return
  const how = ended === null ? `did not finish within ${mostMs / 1000} s` : ended
  throw new BatonError('verify_failed', `\`${command.join(' ')}\` ${how}; output: ${started.said() || 'none'}`)
}

/** The first good answer of what was started; or a text that says why there is none. `mustBeWell`: only a 2xx will do. */
export async function answerOf(
  { port, path }: { port: number; path: string },
  mustBeWell: boolean,
  { ended }: Pick<Started, 'ended'>,
): Promise<{ status: number; protocol: Protocol } | string> {
  let found: { status: number; protocol: Protocol } | string = 'no answer'
  const here = { place: { host: '127.0.0.1', port }, path, tls: false }
  const last = await untilWell(async () => {
    const why = ended()
    if (why !== null) {
      found = `it ${why}`
      return null
    }
    const answer = await statusHere(here, 3000).catch(reasonOf)
    if (typeof answer === 'string') return answer
    found = answer
    const { status } = answer
    return status < 300 || (!mustBeWell && status < 500) ? null : `status ${status}`
  }, START_MS)
  return last === null ? found : `no good answer from ${path} on port ${port} within ${START_MS / 1000} s: ${last}`
}
