// How long nobody is served in a stop-first switch: the last time, the next time, and what is too long. Pure.

import { blameless } from './blame.ts'
import { durationText } from './duration.ts'
import type { BatonError } from './errors.ts'
import type { Rehearsal } from './rehearsal.ts'

/** What the last stop-first switches tell about the next one. */
export interface LastPause {
  /** how long nobody would be served, in milliseconds */
  pauseMs: number
  /** the part of it that is not the start of a release; 0: not known */
  restMs: number
  /** by one switch alone: nothing tells its release's migration, which does not come again, from a usual start */
  shownBy: 'first-switch' | 'last-switch'
}

/**
 * Null: not known. `history`: newest first. A release's start may have had a migration, which belongs to that release alone: of the last two
 * starts the shorter counts. A switch in which a hook used up its time limit says how long the limit is, not how long the next switch takes: it
 * counts only if the one before did too.
 */
export function lastPause(history: readonly PastSwitch[]): LastPause | null {
  // a switch that was reverted says more about the release that failed than about the next one
  const isDone = (outcome: string | null) => outcome === 'updated' || outcome === 'rolled_back'
  const [last, before] = history.flatMap(({ outcome, handover }) => {
    const { pauseMs, startMs = pauseMs, limitHit = false } = handover ?? {}
    return isDone(outcome) && pauseMs !== undefined && startMs !== undefined ? [{ pauseMs, startMs, limitHit }] : []
  })
  const counts = last?.limitHit === true && before?.limitHit !== true ? before : last
  if (last === undefined || counts === undefined) return null
  const restMs = counts.pauseMs - counts.startMs
  const pauseMs = restMs + Math.min(last.startMs, before?.startMs ?? last.startMs)
  return { pauseMs, restMs, shownBy: before === undefined ? 'first-switch' : 'last-switch' }
}

interface PastSwitch {
  outcome: string | null
  handover: { pauseMs?: number; startMs?: number; limitHit?: boolean } | null
}

/** How long nobody is expected to be served. */
export interface ExpectedPause {
  expectedMs: number
  /** what has shown it: the last switches, or a trial of this very release on a copy of the data */
  shownBy: LastPause['shownBy'] | 'trial'
}

/**
 * What the next stop-first switch is expected to take; null: not known. A rehearsal has measured how long the release takes to start, its
 * migration included, and how long a copy takes; a release with no way back copies the database before it starts. Clients wait for both, and
 * for what is not the start: the stop of the old process.
 */
export function expectedPause(last: LastPause | null, rehearsal: Measured | null): ExpectedPause | null {
  const { verdict = 'untried', migrationMs = null, copyMs = null } = rehearsal ?? {}
  if (migrationMs !== null) {
    const triedMs = migrationMs + (verdict === 'irreversible' ? (copyMs ?? 0) : 0)
    return { expectedMs: triedMs + (last?.restMs ?? 0), shownBy: 'trial' }
  }
  return last === null ? null : { expectedMs: last.pauseMs, shownBy: last.shownBy }
}

type Measured = Pick<Rehearsal, 'verdict' | 'migrationMs' | 'copyMs'>

export const SHOWN_BY: Readonly<Record<ExpectedPause['shownBy'], string>> = {
  'first-switch': 'as in the only completed switch so far',
  'last-switch': 'as in recent switches',
  trial: 'as in the trial on a copy of the data',
}

const WHEN_NOBODY = 'stop the service when nobody is using it, upgrade it and start it again'

/** Why a stop-first switch is refused before anything stops; null: it is not. One switch alone is no reason. */
export function pauseFault(expected: ExpectedPause | null, maxPauseMs: number): BatonError | null {
  if (expected === null || expected.expectedMs <= maxPauseMs || expected.shownBy === 'first-switch') return null
  const { expectedMs, shownBy } = expected
  const [how, way] =
    shownBy === 'trial'
      ? [` (${SHOWN_BY.trial})`, '']
      : ['', 'run `rollback`, which measures this wait again, and then upgrade; or ']
  return blameless(
    'refused',
    `clients would have to wait about ${expectedMs} ms${how}, but \`maxPause\` allows ${durationText(maxPauseMs)}`,
    {
      hint: `raise \`update.maxPause\` in the configuration and restart; or ${way}${WHEN_NOBODY}`,
    },
  )
}
