// "Latest": the highest version that can be used, whatever the order of the feed. The rule is one for all feeds.

import { BatonError } from '../errors.ts'
import type { Listing, Release, Skip, Tag } from '../release.ts'
import { newestFirst } from '../trust/verdict.ts'
import type { Verdict } from '../trust/verdict.ts'

/** Told of each release that is newer than the one chosen and was passed over, with the reason. */
export type OnPassedOver = (tag: Tag, why: string) => void

/** releases that are looked into before we give up: a feed with more broken ones in a row is broken */
const CANDIDATES_MAX = 8
/** usable ones that may be skipped: each costs the requests for its papers */
const SKIPPED_MAX = 24

/**
 * Null where the feed has nothing published besides what is to be skipped. Throws release_unusable where something is and none of
 * it can be used: a service whose assets are never found must not be told that it is up to date.
 */
export async function newestUsable<Listed extends Pick<Listing, 'tag' | 'draft' | 'prerelease'>>(
  listed: readonly Listed[],
  skip: Skip,
  judge: (listing: Listed) => Promise<Verdict>,
  onPassedOver: OnPassedOver,
): Promise<Release | null> {
  const published = newestFirst(listed).filter(({ draft, prerelease }) => !draft && !prerelease)
  const reasons: string[] = []
  let skipped = 0
  for (const listing of published) {
    if (reasons.length === CANDIDATES_MAX || skipped === SKIPPED_MAX) break
    const verdict = await judge(listing)
    if ('release' in verdict) {
      if (!skip(verdict.release)) return verdict.release
      onPassedOver(listing.tag, 'it failed here before')
      skipped++
      continue
    }
    onPassedOver(listing.tag, verdict.why)
    reasons.push(`${listing.tag} cannot be used: ${verdict.why}`)
  }
  const [newest] = reasons
  if (newest === undefined) return null
  const others = reasons.length > 1 ? ` (nor can ${reasons.length - 1} older ones)` : ''
  throw new BatonError('release_unusable', `${newest}${others}`)
}
