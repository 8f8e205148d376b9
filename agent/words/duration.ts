// How a time is written in settings and flags: `30s`, `5m`, `2h`. Pure.

/** `0`, or a whole number of at most six digits and its unit. */
export type Duration = '0' | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

/** of `0`, or a count and its unit */
export const DURATION_PATTERN = /^(?:0|(\d{1,6})(ms|s|m|h|d))$/
export const DAY_MS = 86_400_000
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: DAY_MS }

/** Milliseconds; NaN: the value is no time. */
export function msOf(value: unknown): number {
  const [whole, count = '0', unit = ''] = DURATION_PATTERN.exec(typeof value === 'string' ? value : '') ?? []
  return whole === undefined ? Number.NaN : Number(count) * (UNIT_MS[unit] ?? 0)
}

/** The shortest form that `msOf` reads. `ms`: whole. */
export function durationText(ms: number): Duration {
  const [unit = 'ms', size = 1] = Object.entries(UNIT_MS).findLast(([, one]) => ms >= one && ms % one === 0) ?? []
  return ms === 0 ? '0' : (`${ms / size}${unit}` as Duration)
}

/** What was expected instead of `value`; null: it is a time within the bounds. */
export function durationFault(value: unknown, [least, most]: readonly [least: number, most: number]): string | null {
  const ms = msOf(value) // NaN is within no bounds
  return ms >= least && ms <= most ? null : durationForm(least, most)
}

/** For a message: `a duration with a unit (30s to 2h)`. Its bounds show how a time is written. */
export function durationForm(least: number, most: number): string {
  return `a duration with a unit (${durationBounds(least, most)})`
}

/** For a message: the bounds of a time. */
export function durationBounds(least: number, most: number): string {
  return least === 0 ? `at most ${durationText(most)}` : `${durationText(least)} to ${durationText(most)}`
}
