// How large a database and how much time a rehearsal may take. The time of a migration depends on the disk and the rows, so it is
// bounded by how long the same disk took to copy the same rows. Pure.

/** With `auto`, a larger database is not rehearsed with. */
export const AUTO_MAX_BYTES = 1024 ** 3

/** A start may take START_MS plus the time of START_COPIES copies; a rehearsal three starts plus AROUND_MS. */
const [START_MS, START_COPIES, START_MAX_MS, AROUND_MS] = [60_000, 30, 1_500_000, 60_000]

/** Milliseconds until a release must be healthy on a copy that took `copyMs`. `readyMs`: what the switch would give it; never less. */
export function startMsAfter(copyMs: number, readyMs: number): number {
  return Math.max(readyMs, Math.min(START_MAX_MS, START_MS + START_COPIES * copyMs))
}

/** Milliseconds of a rehearsal as a whole: the present release, the candidate and the present one again, each in `startMs`. */
export function wholeMsOf(startMs: number): number {
  return 3 * startMs + AROUND_MS
}
