// The notes of the releases that an update skips: an update from v1.0.0 to v1.3.0 also brings what v1.1.0 and v1.2.0 brought.

import type { ReleaseChannel } from '../../words/feed-choice.ts'
import { compareTags } from '../../words/release.ts'
import type { Listing, Tag } from '../../words/release.ts'
import type { ReleaseNotes } from '../../words/state.ts'
import { newestFirst } from '../trust/usable.ts'
import { isIn } from './newest.ts'
import type { Judgement } from '../trust/usable.ts'

export const BETWEEN_MAX = 10

/** Newest first, at most BETWEEN_MAX. Leaves out a release that cannot be read: the update does not install it. */
export async function notesBetween<Listed extends Pick<Listing, 'tag' | 'draft' | 'prerelease'>>(
  listed: readonly Listed[],
  { after, before }: { after: Tag; before: Tag },
  judge: (listing: Listed) => Promise<Judgement | { release: ReleaseNotes }>,
  channel: ReleaseChannel,
): Promise<ReleaseNotes[]> {
  const wanted = newestFirst(listed).filter(
    (one) => isIn(channel, one) && compareTags(one.tag, after) > 0 && compareTags(one.tag, before) < 0,
  )
  const read = await Promise.all(
    wanted.slice(0, BETWEEN_MAX).map(async (listing) => {
      const verdict = await judge(listing).catch(() => null)
      return verdict !== null && 'release' in verdict ? [notesOf(verdict.release)] : []
    }),
  )
  return read.flat()
}

/** The part of a release that people read. */
export function notesOf({ tag, notes, publishedAt, url }: ReleaseNotes): ReleaseNotes {
  return { tag, notes, publishedAt, url }
}
