// The newest release, for an install that cannot update itself: its 501 tells it. Asked behind the answers, never before them.
// Must hold: however often a stranger asks, the feed is asked once in a while; a feed that is down changes no answer.

import { type Anchor, latestFor } from '../words/release.ts'

const AGAIN_MS = 300_000

export interface Watched {
  /** null: there is none */
  feed: string | null
  service: string
  trust: Anchor | null
}

/** Gives what was heard last; null until then, and without a feed. The first call asks. */
export function latestOf({ feed: setting, service, trust }: Watched): () => string | null {
  if (setting === null) return () => null
  let heard: string | null = null
  let askedAt = -AGAIN_MS
  const ask = async (): Promise<void> => {
    const { openFeed } = await import('./feed/open.ts')
    await using feed = openFeed(setting, { service, stateDirectory: null, trust })
    heard = latestFor(await feed.latest(() => false), null)?.tag ?? null
  }
  return () => {
    if (performance.now() - askedAt >= AGAIN_MS) {
      askedAt = performance.now()
      void ask().catch(() => {}) // what was heard before may still be so
    }
    return heard
  }
}
