// The live tail of the logs: every row once, in order, to whoever follows it, as it is stored; by this process or by the other
// one of a handover, whose rows are found by looking. A follower's place is one number, so it is carried over a switch.
// Must hold: no row is left out, given twice or out of order, whichever process a follower or a writer is in.

import type { LogRow, Store } from './store.ts'

export interface Tail {
  /** Gives `push` every row after `place.after`, which moves with it. Returns the end of it. */
  follow(place: Place, push: (rows: LogRow[]) => void): () => void
  /** Something was stored by this process: look now. */
  stored(): void
  /** the newest row; where a new follower begins */
  newest(): number
  stop(): void
}

export interface Place {
  /** id of the last row that was given */
  after: number
}

export const FOLLOWERS_MAX = 1000
const LOOK_EVERY_MS = 100
/** at once; who is further behind gets the next ones at the next look */
const ROWS_MAX = 500

export function createTail(store: Pick<Store, 'logs' | 'logsAfter'>): Tail {
  const followers = new Map<Place, (rows: LogRow[]) => void>()
  let timer: NodeJS.Timeout | null = null
  let isLooking = false

  const look = () => {
    isLooking = false
    // one question for all who are at the same place; as a rule that is everybody
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
