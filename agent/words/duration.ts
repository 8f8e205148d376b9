// How a time is written in settings and flags: `30s`, `5m`, `2h`. Pure.

/** `0`, or a whole number of at most six digits and its unit. */
export type Duration = '0' | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

export const DURATION_FORM = 'a time such as 30s, 5m or 2h'
export const DAY_MS = 86_400_000
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: DAY_MS }

/** Milliseconds; NaN: the value is no time. */
export function msOf(value: unknown): number {
  if (value === '0') return 0
  const [, count = '', unit = ''] = /^(\d{1,6})(ms|s|m|h|d)$/.exec(typeof value === 'string' ? value : '') ?? []
  return count === '' ? Number.NaN : Number(count) * (UNIT_MS[unit] ?? 0)
}

/** The shortest form that `msOf` reads. `ms`: whole. */
export function durationText(ms: number): Duration {
  const [unit = 'ms', size = 1] = Object.entries(UNIT_MS).findLast(([, one]) => ms >= one && ms % one === 0) ?? []
  return ms === 0 ? '0' : (`${ms / size}${unit}` as Duration)
}

/** For a message: the bounds of a time. */
export function durationBounds(least: number, most: number): string {
  return least === 0 ? `at most ${durationText(most)}` : `${durationText(least)} to ${durationText(most)}`
}
