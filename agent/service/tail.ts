// The live tail of the logs: gives each follower every row once, in order, as it is stored. Finds rows of the other process of a
// handover by polling. A follower's place is one number, so a switch can carry it over.
// Must hold: no row is left out, given twice or out of order, even if the follower and the writer are in different processes.

import type { LogRow, Store } from './store.ts'

export interface Tail {
  /** Gives `push` every row after `place.after`, and moves `place.after` on. Returns how to stop. */
  follow(place: Place, push: (rows: LogRow[]) => void): () => void
  /** Call it when this process has stored a row: looks for rows now. */
  stored(): void
  /** id of the newest row, after which a new follower begins; 0 if there is none */
  newest(): number
  stop(): void
}

export interface Place {
  /** id of the last row that was given */
  after: number
}

export const FOLLOWERS_MAX = 1000
const LOOK_EVERY_MS = 100
/** per look; a follower that is further behind gets more rows at the next look */
const ROWS_MAX = 500

export function createTail(store: Pick<Store, 'logs' | 'logsAfter'>): Tail {
  const followers = new Map<Place, (rows: LogRow[]) => void>()
  let timer: NodeJS.Timeout | null = null
  let isLooking = false

  const look = () => {
    isLooking = false
    // one query for all followers at the same place: usually all of them
    const answers = new Map<number, LogRow[]>()
    for (const [place, push] of followers) {
      let rows = answers.get(place.after)
      if (rows === undefined) answers.set(place.after, (rows = store.logsAfter(place.after, ROWS_MAX)))
      const last = rows.at(-1)
      if (last === undefined) continue
      place.after = last.id
      push(rows)
    }
  }
  const soon = () => {
    if (isLooking || followers.size === 0) return
    isLooking = true
    setImmediate(look)
  }
  const stop = () => {
    if (timer !== null) clearInterval(timer)
    timer = null
  }
  return {
    follow: (place, push) => {
      followers.set(place, push)
      timer ??= setInterval(look, LOOK_EVERY_MS)
      soon()
      return () => {
        followers.delete(place)
        if (followers.size === 0) stop()
      }
    },
    stored: soon,
    newest: () => store.logs(1, null)[0]?.id ?? 0,
    stop: () => {
      followers.clear()
      stop()
    },
  }
}
