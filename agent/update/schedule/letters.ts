// Reports to the operator's program (`update.onOutcome`): starts it with the report as JSON on its standard input. If the program fails,
// tries again after longer and longer pauses, after a restart too.
// Must hold: only the schedule waits for the program, at most LETTER_TIME_MS a report; every process that the program starts ends with
// it; its output is only shown. Power cut: a report may be sent twice, but is not lost.

import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JournalState } from '../../disk/journal.ts'
import { type Ran, runBounded } from '../../sockets/bounded.ts'
import { signalAll, startedWith } from '../../sockets/process.ts'
import { reasonOf } from '../../words/errors.ts'
import { plainOf } from '../../words/said.ts'
import type { Operation } from '../../words/state.ts'
import { reportOf } from '../../words/report.ts'
import { type Letter, LETTER_MAX, type Remembered } from './memory.ts'
import type { Waiting } from './say.ts'

/** how long a program may take for one report */
export const LETTER_TIME_MS = 30_000
/** how often to look for processes that it has left behind */
const [SWEEPS_MAX, SWEEP_EVERY_MS] = [20, 25]
/** the pauses between the tries; a report that fails after the last one is dropped */
const AGAIN_MS = [60_000, 300_000, 1_800_000, 7_200_000, 43_200_000]
const [SAID_MAX, SENT_AT_ONCE] = [300, 5]
/** after an operation the next look comes within a minute; twice that */
const NOTICED_MS = 120_000
/** variable in the environment of the program: marks every process that it starts, even in another process group */
const MARK = 'BATON_OUTCOME'

/** Adds a letter for each operation that has ended since the last letter, and one for new things that wait for a person. Pure. */
export function withNews(
  memory: Remembered,
  { history }: JournalState,
  { service, running, waiting }: { service: string; running: string; waiting: readonly Waiting[] },
  now: number,
): Remembered {
  const last = history.findIndex(({ id }) => id === memory.told)
  // to a program that was just configured send nothing about the past, but what may have ended before this noticed the program
  const isRecent = ({ finishedAt }: Operation) => now - Date.parse(finishedAt ?? '') < NOTICED_MS
  const news = memory.told === null ? history.filter(isRecent) : history.slice(0, last === -1 ? history.length : last)
  const common = { service, host: hostname(), running, waits: waiting.map(({ key: _, ...wait }) => wait) }
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

/** The letter as JSON. If it is too long, cuts each of its texts: they may quote a release's last lines. */
function fitted(letter: object): string {
  const cutAt = (most: number) =>
    JSON.stringify(letter, (_, value: unknown) => (typeof value === 'string' ? value.slice(0, most) : value))
  return [Infinity, 1000].map(cutAt).find((text) => text.length <= LETTER_MAX) ?? cutAt(100)
}

export interface Sending {
  now: () => number
  /** aborts when this process ends; the next process sends the report again */
  leaving: AbortSignal
  /** called with the memory after each report */
  kept: (memory: Remembered) => Promise<void>
  /** for one report; default LETTER_TIME_MS */
  timeMs?: number
}

/** Sends the letters that are due, one after the other. */
export async function sendLetters(
  memory: Remembered,
  program: readonly string[],
  { now, leaving, kept, timeMs = LETTER_TIME_MS }: Sending,
): Promise<Remembered> {
  let left = memory
  for (const due of memory.letters.filter(({ at }) => at <= now()).slice(0, SENT_AT_ONCE)) {
    if (leaving.aborted) return left
    const fault = await tellProgram(program, due.text, leaving, timeMs)
    if (leaving.aborted) return left // the next process sends it again
    const others = left.letters.filter((one) => one !== due)
    const pause = AGAIN_MS[due.tries]
    if (fault === null) left = { ...left, letters: others, hookProblem: null }
    else if (pause === undefined) left = { ...left, letters: others, hookProblem: `${fault}; the report was dropped` }
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
async function tellProgram(
  program: readonly string[],
  text: string,
  leaving: AbortSignal,
  timeMs: number,
): Promise<string | null> {
  const mark = `${process.pid}-${++count}`
  const { PATH = '/usr/local/bin:/usr/bin:/bin', LANG = 'C.UTF-8', HOME = '/' } = process.env
  const sweep = () => {
    const left = startedWith(`${MARK}=${mark}`)
    signalAll(left, 'SIGKILL')
    return left.length
  }
  process.once('exit', sweep)
  const ran = await runBounded(program, {
    cwd: '/',
    env: { PATH, LANG, HOME, [MARK]: mark },
    input: text,
    timeMs,
    said: { last: SAID_MAX },
    signal: leaving,
    group: 'own',
  }).catch((cause: unknown) => `it did not start: ${reasonOf(cause)}`)
  process.removeListener('exit', sweep)
  // the first look does not see a process that was just forked or is loading its program: look again
  sweep()
  for (let round = 0; round < SWEEPS_MAX; round++) {
    await sleep(SWEEP_EVERY_MS)
    if (sweep() === 0 && round > 0) break
  }
  if (typeof ran === 'string') return ran
  const fault = faultOf(ran, timeMs)
  const words = plainOf(ran.said)
  return fault === null || words === '' ? fault : `${fault}, saying ${JSON.stringify(words)}`
}

function faultOf({ stopped, code, signal }: Ran, timeMs: number): string | null {
  if (stopped === 'called off') return 'the service is stopping'
  if (stopped !== null) return `it did not finish within ${timeMs / 1000} s`
  return code === 0 ? null : `it failed with ${signal ?? `exit code ${code}`}`
}
