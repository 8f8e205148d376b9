// Tells the operator's program what happened: it is started with the report as JSON on its standard input. What it does not take is
// tried again, later and later, and over a restart.
// Must hold: nobody waits for it but the schedule itself, at most LETTER_TIME_MS a report; whatever it starts ends with it; nothing that it
// writes is believed. Power cut: a report is told once more, never not at all.

import { spawn } from 'node:child_process'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JournalState } from '../../disk/journal.ts'
import { endGroup, signalAll, startedWith } from '../../sockets/process.ts'
import { reasonOf } from '../../words/errors.ts'
import { plainOf } from '../../words/said.ts'
import { type Operation } from '../../words/state.ts'
import { reportOf } from '../../words/report.ts'
import { type Letter, LETTER_MAX, type Remembered } from './memory.ts'
import type { Waiting } from './say.ts'

/** how long a program may take for one report */
export const LETTER_TIME_MS = 30_000
/** looks for what it has left behind */
const [SWEEPS_MAX, SWEEP_EVERY_MS] = [20, 25]
/** the pauses between the tries; after the last one the report is given up */
const AGAIN_MS = [60_000, 300_000, 1_800_000, 7_200_000, 43_200_000]
const [SAID_MAX, TOLD_AT_ONCE] = [300, 5]
/** in the environment of the program, so that what it starts is found, wherever it hides */
const MARK = 'BATON_OUTCOME'

/** Adds what has ended and what waits for a person, and was not told yet. Pure. */
export function withNews(
  memory: Remembered,
  { history }: JournalState,
  { service, running, waiting }: { service: string; running: string; waiting: readonly Waiting[] },
  now: number,
): Remembered {
  const last = history.findIndex(({ id }) => id === memory.told)
  // an install that has just been given a program is not told its past
  const news = memory.told === null ? [] : history.slice(0, last === -1 ? TOLD_AT_ONCE : last).slice(0, TOLD_AT_ONCE)
  const common = { service, host: hostname(), running, waits: waiting.map(({ says }) => says) }
  const letter = (event: object): Letter => ({ text: fitted({ ...event, ...common }), tries: 0, at: now })
  const keys = waiting.map(({ key }) => key)
  const isNew = keys.some((key) => !memory.toldWaits.includes(key))
  return {
    ...memory,
    told: history[0]?.id ?? memory.told ?? '',
    toldWaits: keys,
    letters: [
      ...memory.letters,
      ...news
        .toReversed()
        .map((one: Operation) => letter({ event: 'outcome', report: reportOf(one), at: one.finishedAt })),
      ...(isNew && news.length === 0 ? [letter({ event: 'waits' })] : []),
    ],
  }
}

/** As JSON. What its sentences quote, such as the last words of a release, may be long: then each of them is cut. */
function fitted(letter: object): string {
  const cutAt = (most: number) =>
    JSON.stringify(letter, (_, value: unknown) => (typeof value === 'string' ? value.slice(0, most) : value))
  return [Infinity, 1000].map(cutAt).find((text) => text.length <= LETTER_MAX) ?? cutAt(100)
}

export interface Sending {
  now: () => number
  /** aborts when this process ends; the report is then told by the next one */
  leaving: AbortSignal
  /** called with the memory after each report */
  kept: (memory: Remembered) => Promise<void>
  /** for one report; default LETTER_TIME_MS */
  timeMs?: number
}

/** Sends what is due, one after the other. */
export async function sendLetters(
  memory: Remembered,
  program: readonly string[],
  { now, leaving, kept, timeMs = LETTER_TIME_MS }: Sending,
): Promise<Remembered> {
  let left = memory
  for (const due of memory.letters.filter(({ at }) => at <= now()).slice(0, TOLD_AT_ONCE)) {
    if (leaving.aborted) return left
    const fault = await run(program, due.text, leaving, timeMs)
    if (leaving.aborted) return left // told again by the next process
    const others = left.letters.filter((one) => one !== due)
    const pause = AGAIN_MS[due.tries]
    if (fault === null) left = { ...left, letters: others, hookProblem: null }
    else if (pause === undefined) left = { ...left, letters: others, hookProblem: `${fault}; it was given up` }
    else {
      const again = { ...due, tries: due.tries + 1, at: now() + pause }
      left = { ...left, letters: [...others, again], hookProblem: fault }
    }
    await kept(left)
  }
  return left
}

let count = 0

/** Why the program did not take the report; null: it did. */
async function run(
  [file = '', ...args]: readonly string[],
  text: string,
  leaving: AbortSignal,
  timeMs: number,
): Promise<string | null> {
  const mark = `${process.pid}-${++count}`
  const { PATH = '/usr/local/bin:/usr/bin:/bin', LANG = 'C.UTF-8', HOME = '/' } = process.env
  const ended = Promise.withResolvers<string | null>()
  const child = spawn(file, args, {
    cwd: '/',
    env: { PATH, LANG, HOME, [MARK]: mark },
    stdio: ['pipe', 'ignore', 'pipe'],
    detached: true, // a group of its own, to end it with whatever it has started
  })
  let said = ''
  child.once('error', (cause) => ended.resolve(`it does not start: ${reasonOf(cause)}`))
  // not `close`: what it has started may hold its streams for ever
  child.once('exit', (code, signal) =>
    ended.resolve(code === 0 ? null : `it ended with ${signal ?? `exit code ${code}`}`),
  )
  child.stderr?.setEncoding('utf8').on('data', (more: string) => (said = (said + more).slice(-SAID_MAX)))
  for (const stream of [child.stdin, child.stderr]) stream?.on('error', () => {}) // it need not read
  child.stdin?.end(text)
  const timer = setTimeout(() => ended.resolve(`it did not end within ${timeMs / 1000} s`), timeMs)
  const leave = () => ended.resolve('the service ends')
  const sweep = () => {
    const left = startedWith(`${MARK}=${mark}`)
    signalAll(left, 'SIGKILL')
    return left.length
  }
  const end = () => {
    endGroup(child)
    sweep()
  }
  leaving.addEventListener('abort', leave, { once: true })
  process.once('exit', end)
  const fault = await ended.promise
  clearTimeout(timer)
  leaving.removeEventListener('abort', leave)
  process.removeListener('exit', end)
  end()
  // one that has just been forked, or loads a program at this moment, is not seen at the first look
  for (let round = 0; round < SWEEPS_MAX; round++) {
    await sleep(SWEEP_EVERY_MS)
    if (sweep() === 0 && round > 0) break
  }
  const words = plainOf(said)
  return fault === null || words === '' ? fault : `${fault}, saying ${JSON.stringify(words)}`
}
