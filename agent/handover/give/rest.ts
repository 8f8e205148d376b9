// Before anything is swapped: waits for the work that the author has said is under way.
// Must hold: nothing has changed when this resolves or rejects, so the operation can be cancelled throughout.

import { setTimeout as sleep } from 'node:timers/promises'
import { blameless } from '../../words/blame.ts'
import type { Busy } from '../../words/bounds.ts'
import { durationText } from '../../words/duration.ts'
import type { Operation } from '../../words/state.ts'
import type { Work, Works } from '../works.ts'

const LOOK_MS = 50
/** how much of the work that a switch has ended is named in its operation */
const NAMED_MAX = 20
/** an automatic update that has given up this often ends the work the next time */
const GIVES_UP_MAX = 5

export interface RestOptions {
  works: Pick<Works, 'hold' | 'underWay' | 'giveUp'>
  busyMaxMs: number
  /** what becomes of work that does not end in time */
  busy: Busy
  /** whether a person goes on without waiting */
  isNow(): boolean
  /** told what is ended */
  warn(message: string): void
}

/** Throws busy if the work does not end in time and `busy` is `give-up`. */
export async function restFirst(options: RestOptions, operation: Operation, signal: AbortSignal): Promise<void> {
  const { works, busyMaxMs, busy, isNow, warn } = options
  works.hold()
  const until = performance.now() + busyMaxMs
  try {
    for (let left = works.underWay(); left.length > 0; left = works.underWay()) {
      const what = named(left)
      const isLate = performance.now() > until
      if (isLate && busy === 'give-up' && !isNow())
        throw blameless(
          'busy',
          `the application's work did not finish within ${durationText(busyMaxMs)} (\`busyMax\`): ${what}`,
        )
      if (isLate || isNow()) {
        warn(`the switch interrupts the application's unfinished work: ${what}`)
        operation.cutWork = left.slice(0, NAMED_MAX).map(({ reason }) => reason)
        return works.giveUp()
      }
      operation.waits = [{ code: 'work', says: `waiting for ${what}`, count: left.length, why: what }]
      await sleep(LOOK_MS, undefined, { signal })
    }
  } finally {
    delete operation.waits
  }
}

/** What becomes of work and of requests that do not end: as an author or the operator says, else it depends on who waits for the switch. */
export function busyOf(
  said: Busy | null,
  { by, kind, to }: Pick<Operation, 'by' | 'kind' | 'to'>,
  history: readonly Operation[],
): Busy {
  if (kind === 'rollback') return 'cut'
  if (said !== null) return said
  if (by !== 'schedule') return 'cut'
  const gaveUp = history.filter((one) => one.by === 'schedule' && one.to === to && one.error?.code === 'busy')
  return gaveUp.length >= GIVES_UP_MAX ? 'cut' : 'give-up'
}

function named(left: readonly Work[]): string {
  const [oldest] = left
  if (oldest === undefined) return 'nothing'
  const since = durationText(Math.ceil((performance.now() - oldest.sinceMs) / 1000) * 1000)
  const more = left.length > 1 ? `, and ${left.length - 1} more` : ''
  return `"${oldest.reason}", under way for ${since}${more}`
}
