// How long nobody is served in a stop-first switch: the last time, the next time, and what is too long. Pure.

import { blameless } from './blame.ts'
import { durationText } from './duration.ts'
import type { BatonError } from './errors.ts'
import type { Rehearsal } from './rehearsal.ts'

/**
 * How long nobody was served in the last stop-first switch, in milliseconds; null: not known. `history`: newest first. A switch in
 * which a hook used up its time limit says how long the limit is, not how long the next switch takes: it counts only if the one before
 * did too.
 */
export function lastPause(history: readonly PastSwitch[]): number | null {
  // a switch that was reverted says more about the release that failed than about the next one
  const isDone = (outcome: string | null) => outcome === 'updated' || outcome === 'rolled_back'
  const [last, before] = history.flatMap(({ outcome, handover }) =>
    isDone(outcome) && handover?.pauseMs !== undefined ? [handover] : [],
  )
  const counts = last?.limitHit === true && before?.limitHit !== true ? before : last
  return counts?.pauseMs ?? null
}

interface PastSwitch {
  outcome: string | null
  handover: { pauseMs?: number; limitHit?: boolean } | null
}

/** How long nobody is expected to be served. */
export interface ExpectedPause {
  expectedMs: number
  /** what has shown it: the last switch, or a trial of this very release on a copy of the data */
  shownBy: 'last-switch' | 'trial'
}

/**
 * What the next stop-first switch is expected to take; null: not known. `lastMs`: see `lastPause`. A rehearsal has measured how long the
 * release takes to start, its migration included, and how long a copy takes; a release with no way back copies the database before it
 * starts. Clients wait for both.
 */
export function expectedPause(lastMs: number | null, rehearsal: Measured | null): ExpectedPause | null {
  const { verdict = 'untried', migrationMs = null, copyMs = null } = rehearsal ?? {}
  const triedMs = migrationMs === null ? null : migrationMs + (verdict === 'irreversible' ? (copyMs ?? 0) : 0)
  if (triedMs !== null && triedMs > (lastMs ?? -1)) return { expectedMs: triedMs, shownBy: 'trial' }
  return lastMs === null ? null : { expectedMs: lastMs, shownBy: 'last-switch' }
}

type Measured = Pick<Rehearsal, 'verdict' | 'migrationMs' | 'copyMs'>

export const SHOWN_BY: Readonly<Record<ExpectedPause['shownBy'], string>> = {
  'last-switch': 'as in the last switch',
  trial: 'as in the trial on a copy of the data',
}

const WHEN_NOBODY = 'stop the service, upgrade it and start it again when nobody is there'
const WAYS: Readonly<Record<ExpectedPause['shownBy'], string>> = {
  'last-switch': `\`rollback\` first, or ${WHEN_NOBODY}`,
  trial: WHEN_NOBODY,
}

/** Why a stop-first switch is refused before anything stops; null: it is not. */
export function pauseFault(expected: ExpectedPause | null, maxPauseMs: number): BatonError | null {
  if (expected === null || expected.expectedMs <= maxPauseMs) return null
  const { expectedMs, shownBy } = expected
  const how = shownBy === 'trial' ? ` (${SHOWN_BY.trial})` : ''
  return blameless(
    'refused',
    `clients would have to wait about ${expectedMs} ms${how}, and \`maxPause\` allows ${durationText(maxPauseMs)}`,
    {
      hint: `raise \`update.maxPause\` in the configuration and restart, or ${WAYS[shownBy]}`,
    },
  )
}
