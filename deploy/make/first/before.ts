// Runs what an author's start script ran before the application, such as a migration: `before` of baton.config.json. One command after
// the other, each a file of the application that runs as under `node`, in the release's folder.
// Must hold: the application begins only if all of them have ended with 0, and none outlives this process. What they write is part of
// this process's output, so that the last lines reach whoever started it.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { BEFORE, HOLDER, INHERITANCE } from '../../../agent/first.ts'

/** How a file of the application is run. */
export interface FileRunner {
  /** the application's own */
  folder: string
  command(file: string): [string, ...string[]]
}

/** what is still in a pipe when a command has ended: a process that it has left behind may keep the pipe open for ever */
const REST_MS = 1000
/** none of these is meant for a command: it is no successor, and tells no supervisor anything */
const OURS = [INHERITANCE, HOLDER, 'NOTIFY_SOCKET', 'LISTEN_FDS', 'LISTEN_PID', 'LISTEN_FDNAMES']

/** Calls `then` when all have ended well. Else this process ends with 1, and its last line says which command failed, and how. */
export function runBefore(commands: readonly (readonly string[])[], program: FileRunner, then: () => void): void {
  const run = async () => {
    for (const [file = '', ...words] of commands) {
      const how = await ended(program, file, words)
      if (how === null) continue
      process.stderr.write(
        `baton: \`${[file, ...words].join(' ')}\`, which runs before the application, failed with ${how}\n`,
      )
      process.exit(1)
    }
    setImmediate(then) // what the application throws is its own, and no rejection of this function's
  }
  void run()
}

/** Resolves to how it has ended; null: well. */
async function ended({ folder, command }: FileRunner, file: string, words: readonly string[]): Promise<string | null> {
  const [executable, ...args] = command(file)
  const env: NodeJS.ProcessEnv = { ...process.env, [BEFORE]: String(process.pid) }
  for (const name of OURS) delete env[name]
  const child = spawn(executable, [...args, ...words], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  child.stdout.on('data', (text: Buffer) => void process.stdout.write(text))
  child.stderr.on('data', (text: Buffer) => void process.stderr.write(text))
  let isStopped = false
  const stop = () => {
    isStopped = true
    child.kill()
  }
  process.on('SIGTERM', stop)
  const closed = once(child, 'close')
  const [code, signal] = (await once(child, 'exit').catch((cause: unknown) => [String(cause), null])) as [
    number | string,
    string | null,
  ]
  await Promise.race([closed.catch(() => {}), sleep(REST_MS)])
  process.off('SIGTERM', stop)
  if (isStopped) process.kill(process.pid, 'SIGTERM') // as the application would end that has not begun yet
  if (code === 0) return null
  return signal === null ? (typeof code === 'string' ? code : `exit code ${code}`) : signal
}
