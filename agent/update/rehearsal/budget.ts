// How large a database, how much time and how much of the disk a rehearsal may take. The time of a migration depends on the disk and the
// rows, so it is bounded by how long the same disk took to copy the same rows. Pure.

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

/** the time over which the speed is measured: a migration may write a little very fast */
const WINDOW_MS = 250
/** in this time a release must have ended and stopped writing */
const REACTION_MS = 600

/**
 * Foresees that a release fills the disk, so that it is ended before the service is refused a write. In the part of a second that its end
 * takes it can write hundreds of megabytes, so it counts too how fast the room has become less. Returns a function that gets the room at a
 * look (bytes, see `roomIn`) and says whether there would soon be none.
 */
export function foreseeFull(): (room: number, nowMs?: number) => boolean {
  const looks: { room: number; at: number }[] = []
  return (room, nowMs = performance.now()) => {
    looks.push({ room, at: nowMs })
    while ((looks[1]?.at ?? Infinity) <= nowMs - WINDOW_MS) looks.shift()
    const [first = { room, at: nowMs }] = looks
    const perMs = Math.max(0, first.room - room) / Math.max(WINDOW_MS, nowMs - first.at)
    return room < perMs * REACTION_MS
  }
}
