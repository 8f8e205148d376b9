// Runs a part of a test in a separate process, so that it shares no event loop with what it measures. The part is a file that
// starts something; the test calls the functions of that by name, without arguments.

import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

type Answering = { [Verb in string]: () => unknown }
export type Remote<T> = {
  [Verb in keyof T]: T[Verb] extends () => infer Answer ? () => Promise<Awaited<Answer>> : never
} & AsyncDisposable

interface Call {
  verb: string
  options?: unknown
}
type Said = { value: unknown } | { error: string }
const [START, FLAG] = ['start', '--remote']

/** Starts the module at `url`, which calls `answer`; ends it with the scope. `prefix`: before the command, such as `['nsenter', …]`. */
export async function spawnRemote<T>(
  url: string,
  options: unknown,
  prefix: readonly string[] = [],
): Promise<Remote<T>> {
  const own = [process.execPath, '--disable-warning=ExperimentalWarning', ...process.execArgv, fileURLToPath(url), FLAG]
  const [command = '', ...args] = [...prefix, ...own]
  const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const exited = new Promise<never>((_, reject) => {
    child.once('error', reject)
    child.once('exit', (code, signal) => reject(new Error(`the process of ${url} ended with ${signal ?? code}`)))
  })
  exited.catch(() => {})
  let last: Promise<unknown> = Promise.resolve()
  const ask = (call: Call): Promise<unknown> => {
    const answer = last.then(async () => {
      const said = new Promise<Said>((resolve) => child.once('message', resolve))
      child.send(call)
      const heard = await Promise.race([said, exited])
      if ('error' in heard) throw new Error(heard.error)
      return heard.value
    })
    last = answer.catch(() => {})
    return answer
  }
  await ask({ verb: START, options })
  const dispose = async () => {
    child.kill('SIGKILL')
    await exited.catch(() => {})
  }
  return new Proxy({} as Remote<T>, {
    get: (_, verb) =>
      verb === Symbol.asyncDispose ? dispose : verb === 'then' ? undefined : () => ask({ verb: String(verb) }),
  })
}

/** Answers the calls of `spawnRemote`, if that started this process. */
export function answer<O, T extends object>(url: string, start: (options: O) => Promise<T>): void {
  if (process.argv[2] !== FLAG || process.argv[1] !== fileURLToPath(url)) return
  let started: Answering | null = null
  process.on('disconnect', () => process.exit(0))
  process.on('message', ({ verb, options }: Call) => {
    const act = async () => {
      if (verb !== START) return await started?.[verb]?.()
      started = (await start(options as O)) as unknown as Answering
      return null
    }
    void act().then(
      (value) => process.send?.({ value } satisfies Said),
      (error: unknown) =>
        process.send?.({ error: error instanceof Error ? (error.stack ?? '') : String(error) } satisfies Said),
    )
  })
}
