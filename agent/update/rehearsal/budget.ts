// What a rehearsal may cost, wherever it takes place. How long a migration takes depends on the disk and on the rows, so that its time
// comes from what copying the same rows took there. Pure.

/** `auto` rehearses with a database of at most so many bytes. */
export const AUTO_MAX_BYTES = 1024 ** 3

/** A start may take a minute, and as long as so many copies took; all of it three starts, and what is around them. */
const [START_MS, START_COPIES, START_MAX_MS, AROUND_MS] = [60_000, 30, 1_500_000, 60_000]

/** Milliseconds until a release must be healthy on a copy that took `copyMs`. */
export function startMsAfter(copyMs: number): number {
  return Math.min(START_MAX_MS, START_MS + START_COPIES * copyMs)
}

/** Milliseconds of a rehearsal as a whole: the present release, the candidate and the present one again, each in `startMs`. */
export function wholeMsOf(startMs: number): number {
  return 3 * startMs + AROUND_MS
}
