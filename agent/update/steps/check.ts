// Stage 1, check: is there a release to move to? Changes nothing anywhere.

import { compareTags, latestFor, parseTag } from '../../words/release.ts'
import type { Feed, Release, Skip, Tag } from '../../words/release.ts'
import type { Steps } from '../story.ts'
import { within } from '../rethrow.ts'

export interface CheckOptions {
  feed: Feed
  /** the tag that runs now */
  current: () => Tag
  /** releases that failed here: never chosen as the latest, but allowed by name */
  skip: Skip
}

/**
 * A release that is named may be older: the operator asked for it. `latest` is only ever newer: an outdated mirror must not take a
 * service back, and a mirror that withholds the newest release must not make a service report that it is up to date.
 */
export function makeCheck({ feed, current, skip }: CheckOptions): Steps['check'] {
  return async (tag, signal) => {
    if (tag !== null && parseTag(tag) === current()) return null
    try {
      if (tag !== null) return await feed.byTag(tag, signal)
      const newest = await feed.latest(
        Object.assign((release: Release) => skip(release), { from: current() }),
        signal,
      )
      const release = latestFor(newest, current())
      if (release === null && newest.problem !== null) throw newest.problem
      return release !== null && compareTags(release.tag, current()) > 0 ? release : null
    } catch (error) {
      throw within(error, 'check_failed', `checking ${feed.description}`)
    }
  }
}
