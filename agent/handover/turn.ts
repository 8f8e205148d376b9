// Work that only one process may do while two live: a scheduler, a bot, a consumer of a queue. The process that has the turn does it.
// The turn passes to the new process at half the probation, and comes back if that process fails.
// Must hold: the old process's `stop` has settled, or is out of time, before the new one's `start` is called.

import { reasonOf } from '../words/errors.ts'
import { TRIAL } from '../words/wire.ts'
import { inTime } from '../words/in-time.ts'

/**
 * `only`: no other process of the service lives. `old`, `new`: two live, in a start-first switch. `trial`: this process was started
 * only to be tried, at the end of a build or on a copy of the data.
 */
export type ProcessRole = 'only' | 'old' | 'new' | 'trial'

type Act = () => void | Promise<void>

export interface Turn {
  /** Registers work: `start` is called when this process gets the turn, `stop` when it loses the turn or ends. */
  singleton(name: string, start: Act, stop: Act): void
  /** Gives this process the turn. Never rejects. */
  take(): Promise<void>
  /** Takes the turn away. Resolves when all work has stopped, or after `stopMs` for all of it together. Never rejects. */
  pass(): Promise<void>
}

/** for a work whose turn to stop comes when the time of all is up */
const STOP_LEAST_MS = 100

/** Calls an author's function and waits for it at most `ms`. Never rejects. */
export async function bounded(act: Act, ms: number, failed: (why: string) => void): Promise<void> {
  try {
    await inTime(ms, (async () => act())(), () => new Error(`it did not settle within ${ms} ms`))
  } catch (cause) {
    failed(reasonOf(cause))
  }
}

/** Whether this process was started only to be tried: at the end of a build, or on a copy of the data. */
export function isTrial(): boolean {
  return process.env[TRIAL] !== undefined
}

export function makeTurn(stopMs: number, warn: (message: string) => void): Turn {
  const works: { name: string; start: Act; stop: Act }[] = []
  const isTried = isTrial()
  let isOurs = false
  let last: Promise<void> = Promise.resolve()
  const call = (name: string, what: string, act: Act, ms = stopMs) =>
    bounded(act, ms, (why) => warn(`\`${what}\` of \`${name}\`: ${why}`))
  // one after the other: the turn may come back while `pass` still runs
  const queue = (act: () => Promise<void>): Promise<void> => (last = last.then(act))
  return {
    singleton: (name, start, stop) => {
      works.push({ name, start, stop })
      if (isOurs) void queue(() => call(name, 'start', start))
    },
    take: () =>
      queue(async () => {
        if (isOurs || isTried) return
        isOurs = true
        for (const { name, start } of works) await call(name, 'start', start)
      }),
    pass: () =>
      queue(async () => {
        if (!isOurs) return
        isOurs = false
        const until = performance.now() + stopMs
        for (const { name, stop } of works.toReversed())
          await call(name, 'stop', stop, Math.max(STOP_LEAST_MS, until - performance.now()))
      }),
  }
}
