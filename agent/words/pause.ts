// How long nobody is served in a switch one at a time: the last time, and what is too long. Pure.

import { blameless } from './blame.ts'
import type { BatonError } from './errors.ts'

/**
 * How long nobody was served in the last switch one at a time, in milliseconds; null: not known. `history`: newest first. A switch in
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

/** Why a switch one at a time is refused before anything stops; null: it is not. */
export function pauseFault(expectedMs: number | null, holdMs: number): BatonError | null {
  if (expectedMs === null || expectedMs <= holdMs) return null
  return blameless('refused', `clients would have to wait about ${expectedMs} ms, and \`holdMs\` allows ${holdMs}`, {
    hint: 'raise `update.holdMs` in the configuration and restart, or `rollback` first, or stop the service, upgrade it and start it again when nobody is there',
  })
}
