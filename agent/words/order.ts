// How a release replaces another. Pure.

export const ORDERS = ['stop-first', 'start-first'] as const
/**
 * How a release replaces another. `stop-first`: no two processes of the application ever live at once, and clients wait for the
 * moment between them. `start-first`: both serve for a while, and nobody waits.
 */
export type Order = (typeof ORDERS)[number]

/** How the next release would replace the one that serves, as far as the latter decides. */
export interface NextSwitch {
  /** what the release that serves asks for; if one of the two asks for `stop-first`, it is that */
  order: Order
  /** milliseconds that nobody would be served in a stop-first switch, as the last ones have shown (`lastPause`); null: not known */
  expectedMs: number | null
  /** a stop-first switch that is expected to take longer is refused */
  maxPauseMs: number
  /** milliseconds that the new release may take until it serves; absent: the one that serves is older than this */
  readyMs?: number
}

/** Pure. What both releases ask for; null: not known. */
export function orderOf(one: Order | null, other: Order | null): Order | null {
  if (one === 'stop-first' || other === 'stop-first') return 'stop-first'
  return one === null || other === null ? null : 'start-first'
}
