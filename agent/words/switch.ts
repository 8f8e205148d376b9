// How a release replaces another, and how long nobody was served the last time. Pure.

import { blameless } from './blame.ts'
import type { BatonError } from './errors.ts'

export const SWITCHES = ['one-at-a-time', 'together'] as const
/**
 * How a release replaces another. `one-at-a-time`: no two processes of the application ever live at once, and clients wait for the
 * moment between them. `together`: both serve for a while, and nobody waits.
 */
export type Switch = (typeof SWITCHES)[number]

/** How another release would replace the one that serves, as far as that one decides it. */
export interface NextSwitch {
  /** what the release that serves asks for; if one of the two asks for `one-at-a-time`, it is that */
  kind: Switch
  /** milliseconds that nobody was served in the last switch one at a time; null: not known */
  expectedMs: number | null
  /** a switch one at a time that is expected to take longer is refused */
  holdMs: number
}

/** Pure. What both releases ask for, taken together; null: not known. */
export function switchOf(one: Switch | null, other: Switch | null): Switch | null {
  if (one === 'one-at-a-time' || other === 'one-at-a-time') return 'one-at-a-time'
  return one === null || other === null ? null : 'together'
}

/** How long nobody was served in the last switch one at a time, in milliseconds; null: not known. `history`: newest first. */
export function lastPause(
  history: readonly { outcome: string | null; handover: { pauseMs?: number } | null }[],
): number | null {
  // one that was put back says more about the release that failed than about the next one
  const isDone = (outcome: string | null) => outcome === 'updated' || outcome === 'rolled_back'
  const last = history.find(({ outcome, handover }) => isDone(outcome) && handover?.pauseMs !== undefined)
  return last?.handover?.pauseMs ?? null
}

/** Why a switch one at a time is refused before anything stops; null: it is not. */
export function pauseFault(expectedMs: number | null, holdMs: number): BatonError | null {
  if (expectedMs === null || expectedMs <= holdMs) return null
  return blameless('refused', `clients would have to wait about ${expectedMs} ms, and \`holdMs\` allows ${holdMs}`, {
    hint: 'raise `update.holdMs` in the configuration and restart, or stop the service, upgrade it and start it again when nobody is there',
  })
}
