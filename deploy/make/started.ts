// A program that is started once to look at it, in a process group of its own: a trial start of the build, or of `init`.
// Must hold: whatever the program does, it is ended with what it has started, at the latest at the end of the scope.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { TRIAL } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { httpStatusOf } from '../lib/http.ts'
import { cleanEnvironment } from '../lib/passed.ts'

export const START_MS = 60_000
/** A second look comes so much later: some drivers open their database only when it is asked. A build takes half a minute. */
export const LOOK_AGAIN_MS = 1000
const STOP_MS = 10_000
const SAID_MAX_CHARS = 2000

export interface Started extends AsyncDisposable {
  pid: number
  /** the end of its output */
  said(): string
  /** how it ended; null while it lives */
  ended(): string | null
  /** SIGTERM, and SIGKILL to what is left after ten seconds */
  end(): Promise<void>
}

/** What an install gives, and nothing of the developer's: a variable of theirs would hide that the host lacks it. */
export function trialEnvironment(stateDirectory: string): NodeJS.ProcessEnv {
  const own = { HOME: stateDirectory, STATE_DIRECTORY: stateDirectory, [TRIAL]: '1' }
  return { ...cleanEnvironment(process.env), ...own }
}

export function startProgram(
  command: readonly [string, ...string[]],
  { cwd, env }: { cwd: string; env: NodeJS.ProcessEnv },
): Started {
  const [file, ...args] = command
  const child = spawn(file, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let said = ''
  let ended: string | null = null
  child.once('error', (error) => (ended = error.message))
  child.once('exit', (code, signal) => (ended = signal === null ? `exit code ${code}` : signal))
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-SAID_MAX_CHARS)))
  // a signal that ends this command waits for no scope
  const kill = () => signalGroup(child, 'SIGKILL')
  process.once('exit', kill)
  let ending: Promise<void> | null = null
  const end = () => (ending ??= endProgram(child, () => ended !== null).finally(() => void process.off('exit', kill)))
  return { pid: child.pid ?? 0, said: () => said.trim(), ended: () => ended, end, [Symbol.asyncDispose]: end }
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
  const how = started.ended() ?? `no end within ${mostMs / 1000} s`
  if (how === 'exit code 0') return
  throw new BatonError(
    'verify_failed',
    `running \`${command.join(' ')}\`: expected exit code 0, got ${how}; it said: ${started.said() || 'nothing'}`,
  )
}

async function endProgram(child: ChildProcess, hasEnded: () => boolean): Promise<void> {
  const gone = hasEnded() ? Promise.resolve() : once(child, 'exit')
  signalGroup(child, 'SIGTERM')
  await Promise.race([gone, sleep(STOP_MS, undefined, { ref: false })])
  signalGroup(child, 'SIGKILL')
}

function signalGroup({ pid }: ChildProcess, name: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, name)
  } catch {
    return // nobody is left
  }
}

/** The HTTP status; or a text that says why there is none. `mustBeWell`: only a 2xx will do. */
export async function answerOf(
  url: string,
  mustBeWell: boolean,
  { ended }: Pick<Started, 'ended'>,
): Promise<number | string> {
  const deadline = performance.now() + START_MS
  let last = 'no answer'
  while (performance.now() < deadline) {
    const why = ended()
    if (why !== null) return `it ended with ${why}`
    try {
      const status = await httpStatusOf(url, 3000)
      if (status < 300 || (!mustBeWell && status < 500)) return status
      last = `${url} answers ${status}`
    } catch (error) {
      last = reasonOf(error)
    }
    await sleep(50)
  }
  return `expected an answer from ${url} within ${START_MS / 1000} s, got ${last}`
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return typeof address === 'object' && address !== null ? address.port : 0
}
