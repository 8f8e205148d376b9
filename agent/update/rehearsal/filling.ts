// Foresees that a release fills the disk in a rehearsal, so that it is ended before the service is refused a write. Pure.
// It takes part of a second to end a release, and in that time a release can write hundreds of megabytes. So what counts is not only how
// much is free, but also how fast it has become less.

/** the time over which the speed is measured: a migration may write a little very fast */
const WINDOW_MS = 250
/** in this time a release must have ended and stopped writing */
const REACTION_MS = 600

/** Returns a function that gets the room at a look (bytes, see `roomIn`) and says whether there would soon be none. */
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
