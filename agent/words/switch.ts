// How a release replaces another. Pure.

export const SWITCHES = ['one-at-a-time', 'together'] as const
/**
 * How a release replaces another. `one-at-a-time`: no two processes of the application ever live at once, and clients wait for the
 * moment between them. `together`: both serve for a while, and nobody waits.
 */
export type Switch = (typeof SWITCHES)[number]

/** How the next release would replace the one that serves, as far as the latter decides. */
export interface NextSwitch {
  /** what the release that serves asks for; if one of the two asks for `one-at-a-time`, it is that */
  kind: Switch
  /** milliseconds that nobody was served in the last switch one at a time; null: not known */
  expectedMs: number | null
  /** a switch one at a time that is expected to take longer is refused */
  holdMs: number
  /** milliseconds that the new release may take until it serves; absent: the one that serves is older than this */
  readyMs?: number
}

/** Pure. What both releases ask for, taken together; null: not known. */
export function switchOf(one: Switch | null, other: Switch | null): Switch | null {
  if (one === 'one-at-a-time' || other === 'one-at-a-time') return 'one-at-a-time'
  return one === null || other === null ? null : 'together'
}
