// Starts a program only to try it, in its own process group: a release in the cage of a rehearsal, or the build's trial start. Must
// hold: at the end of the scope at the latest, the program and its whole group are ended.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { howEnded } from '../words/ended.ts'

const STOP_MS = 10_000
const SAID_MAX_CHARS = 4000

export interface Started extends AsyncDisposable {
  pid: number
  /** the end of its output */
  said(): string
  /** how it ended, see `howEnded`; null while it lives */
  ended(): string | null
  /** SIGTERM, and SIGKILL to what is left after ten seconds */
  end(): Promise<void>
}

export function startProgram(
  command: readonly [string, ...string[]],
  { cwd, env }: { cwd: string; env: NodeJS.ProcessEnv },
): Started {
  const [file, ...args] = command
  const child = spawn(file, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let said = ''
  let ended: string | null = null
  child.once('error', (error) => (ended = `did not start: ${error.message}`))
  child.once('exit', (code, signal) => (ended = howEnded(code, signal)))
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-SAID_MAX_CHARS)))
  // a signal may end this command without the end of a scope
  const kill = () => signalGroup(child, 'SIGKILL')
  process.once('exit', kill)
  let ending: Promise<void> | null = null
  const end = () => (ending ??= endProgram(child, () => ended !== null).finally(() => void process.off('exit', kill)))
  return { pid: child.pid ?? 0, said: () => said.trim(), ended: () => ended, end, [Symbol.asyncDispose]: end }
}

async function endProgram(child: ChildProcess, hasEnded: () => boolean): Promise<void> {
  const gone = hasEnded() ? Promise.resolve() : once(child, 'exit')
  signalGroup(child, 'SIGTERM')
  await Promise.race([gone, sleep(STOP_MS, undefined, { ref: false })])
  signalGroup(child, 'SIGKILL')
  await Promise.race([gone, sleep(STOP_MS, undefined, { ref: false })])
}

function signalGroup({ pid }: ChildProcess, name: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, name)
  } catch {
    return // no process is left
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return typeof address === 'object' && address !== null ? address.port : 0
}
