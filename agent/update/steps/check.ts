// Stage 1, check: is there a release to move to? Changes nothing anywhere.

import { compareTags, latestFor, parseTag } from '../../words/release.ts'
import type { Feed, Skip, Tag } from '../../words/release.ts'
import type { Steps } from '../story.ts'
import { within } from './within.ts'

export interface CheckOptions {
  feed: Feed
  /** tag that runs now */
  current: () => Tag
  /** releases that failed here: never the latest, but allowed where they are named */
  skip: Skip
}

/**
 * By name any other release will do, an older one too: somebody wants it. As the latest only a newer one: a mirror that is
 * out of date must not take anybody back. One that keeps the newest back must not make anybody believe that there is none.
 */
export function makeCheck({ feed, current, skip }: CheckOptions): Steps['check'] {
  return async (tag, signal) => {
    if (tag !== null && parseTag(tag) === current()) return null
    try {
      if (tag !== null) return await feed.byTag(tag, signal)
      const newest = await feed.latest(skip, signal)
      const release = latestFor(newest, current())
      if (release === null && newest.problem !== null) throw newest.problem
      return release !== null && compareTags(release.tag, current()) > 0 ? release : null
    } catch (error) {
      throw within(error, 'check_failed', `checking ${feed.description}`)
    }
  }
}
