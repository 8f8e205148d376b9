// Runs a program and waits for its end: the one place where this code asks something of a program.
// Must hold: it is over a moment after `timeMs` at the latest, whatever the program and what it has started do; it keeps no more of
// the output than `answer` and `said` allow; a program in its own group does not outlive this process.

import type { Readable } from 'node:stream'
import { spawn, type Spawned } from './spawn.ts'

export interface Bounds {
  timeMs: number
  /**
   * where the answer comes from, and how long it may be: a longer one ends the program. Without it nobody listens. `line` gets each line
   * as it comes; then that is a line's bound, and the answer is what remains after the last
   */
  answer?: { fd: 1 | 3; max: number; line?: (text: string) => void }
  /** how much it may write to descriptor 3 beside its answer on its stdout; more ends it */
  besideMax?: number
  /** how many characters of its stderr to keep */
  said: { first: number } | { last: number }
}

export interface Surroundings {
  cwd?: string
  env: NodeJS.ProcessEnv
  /** written to its standard input, which is empty without it */
  input?: string
  /** ends the program on abort */
  signal?: AbortSignal | undefined
  /**
   * `own`: a process group of its own, which is killed at the end with all that is left of it; `own, left`: which is killed only if
   * the program must be ended. `shared`: the terminal's Ctrl-C reaches it, and it gets SIGTERM first.
   */
  group: 'own' | 'own, left' | 'shared'
}

export interface Ran {
  /** both null: it could not even be killed in time */
  code: number | null
  signal: NodeJS.Signals | null
  /** why this process has ended it */
  stopped: 'late' | 'too much' | 'called off' | null
  answer: string
  /** what it wrote to descriptor 3 beside its answer */
  beside: string
  said: string
}

/** how long a program may take to end after SIGTERM */
const KILL_MS = 5000
/** how long to wait for what is still in the pipes: a process that has left the group may keep them open */
const PIPES_MS = 500

/** Rejects with the error of the kernel if the program cannot be started, else never. */
export async function runBounded(command: readonly string[], about: Surroundings & Bounds): Promise<Ran> {
  const { cwd, env, input, signal, group, timeMs, answer, besideMax } = about
  const [file = '', ...args] = command
  const ran: Ran = { code: null, signal: null, stopped: null, answer: '', beside: '', said: '' }
  const over = Promise.withResolvers<void>()
  const hasThird = answer?.fd === 3 || besideMax !== undefined
  const [out, third] = [answer?.fd === 1 ? 'pipe' : 'ignore', hasThird ? ['pipe' as const] : []] as const
  const child = spawn(file, args, {
    ...(cwd === undefined ? {} : { cwd }),
    env,
    stdio: [input === undefined ? 'ignore' : 'pipe', out, 'pipe', ...third],
    detached: group !== 'shared',
  })
  child.on('error', over.reject) // if no descriptor is left, Node starts nothing and there are no streams
  if (child.pid === undefined) await over.promise

  const timers: NodeJS.Timeout[] = []
  const after = (ms: number, then: () => void) => void timers.push(setTimeout(then, ms))
  const stop = (why: NonNullable<Ran['stopped']>) => {
    if (ran.stopped !== null) return
    ran.stopped = why
    if (group === 'shared') child.kill('SIGTERM')
    else killGroup(child)
    after(group === 'shared' ? KILL_MS : 0, () => {
      child.kill('SIGKILL')
      after(PIPES_MS, over.resolve)
    })
  }
  child.once('exit', (code, by) => {
    Object.assign(ran, { code, signal: by })
    if (group === 'own') killGroup(child)
    after(PIPES_MS, () => setImmediate(over.resolve)) // once more after what has come meanwhile is read
  })
  child.once('close', () => over.resolve())
  listen(child.stdio[2] as Readable, (text) => {
    const said = ran.said + text
    ran.said = 'first' in about.said ? said.slice(0, about.said.first) : said.slice(-about.said.last)
  })
  const tooMuch = () => stop('too much')
  if (answer !== undefined) gather(child, answer, ran, 'answer', tooMuch)
  if (besideMax !== undefined) gather(child, { fd: 3, max: besideMax }, ran, 'beside', tooMuch)
  if (input !== undefined) child.stdio[0]?.on('error', () => {}).end(input) // it need not read
  const leave = () => stop('called off')
  if (group !== 'shared') outlives(child)
  after(timeMs, () => stop('late'))
  if (signal?.aborted === true) leave()
  signal?.addEventListener('abort', leave, { once: true })
  try {
    await over.promise
    return ran
  } finally {
    for (const timer of timers) clearTimeout(timer)
    signal?.removeEventListener('abort', leave)
    living.delete(child)
    for (const stream of child.stdio) stream?.destroy()
  }
}

function gather(
  child: Spawned,
  { fd, max, line }: NonNullable<Bounds['answer']>,
  ran: Ran,
  into: 'answer' | 'beside',
  tooMuch: () => void,
): void {
  listen(child.stdio[fd] as Readable, (text) => {
    const heard = ran[into] + text
    const lines = line === undefined ? [heard] : heard.split('\n')
    ran[into] = (lines.pop() ?? '').slice(0, max + 1)
    for (const one of lines) line?.(one)
    if (ran[into].length > max) tooMuch()
  })
}

function listen(stream: Readable, add: (text: string) => void): void {
  stream
    .on('error', () => {})
    .setEncoding('utf8')
    .on('data', add)
}

const living = new Set<Spawned>()
let isWatched = false

/** Ends it when this process ends. */
function outlives(child: Spawned): void {
  living.add(child)
  if (isWatched) return
  isWatched = true
  process.once('exit', () => living.forEach(killGroup))
}

function killGroup({ pid }: Spawned): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    return // nothing is left of it
  }
}
