// The newest release, for an install that cannot update itself: its 501 answer names that release. Asks the feed in the background:
// no answer waits for it. Must hold: asks the feed at most once in AGAIN_MS, however often strangers ask this service; a feed that is
// down does not change the answer.

import type { FeedChoice } from '../words/feed-choice.ts'
import { type Anchor, latestFor, type Tag } from '../words/release.ts'

const AGAIN_MS = 300_000

export interface Watched {
  /** the release that runs: what may follow it is the latest, as a check of a managed install says it */
  tag: Tag
  /** null: there is no feed */
  feed: FeedChoice['feed'] | null
  choice: Omit<FeedChoice, 'feed'>
  service: string
  trust: Anchor | null
}

/** The returned function gives the newest known tag: null before the first answer and without a feed. Its first call asks. */
export function latestOf({ tag, feed: setting, choice, service, trust }: Watched): () => string | null {
  if (setting === null) return () => null
  let heard: string | null = null
  let askedAt = -AGAIN_MS
  const ask = async (): Promise<void> => {
    const { openFeed } = await import('./feed/open.ts')
    await using feed = openFeed({ ...choice, feed: setting }, { service, stateDirectory: null, trust })
    heard = latestFor(await feed.latest(Object.assign(() => false, { from: tag })), tag)?.tag ?? null
  }
  return () => {
    if (performance.now() - askedAt >= AGAIN_MS) {
      askedAt = performance.now()
      void ask().catch(() => {}) // keep the last answer: it may still be right
    }
    return heard
  }
}
