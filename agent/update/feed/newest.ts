// "Latest": the highest version that can be used, whatever the order of the feed. The rule is one for all feeds.
// Must never break: a newer release that is published and cannot be used is told. A mirror that damages it needs no key for that,
// and a host that called itself up to date would stay where it is, unnoticed.

import { BatonError } from '../../words/errors.ts'
import type { Listing, Newest, Skip, Tag } from '../../words/release.ts'
import { newestFirst } from '../trust/verdict.ts'
import type { Judgement } from '../trust/verdict.ts'

/** Told of each release that is newer than the one chosen and was passed over, with the reason. */
export type OnPassedOver = (tag: Tag, why: string) => void

/** releases that are looked into before we give up: a feed with more broken ones in a row is broken */
const CANDIDATES_MAX = 8
/** usable ones that may be skipped: each costs the requests for its papers */
const SKIPPED_MAX = 24

/**
 * A release that its maintainer has withdrawn is no problem where an older one can be used: whoever signs has said so. Where none
 * can, it is one: a service that finds no release at all must not be told that it is up to date.
 */
export async function newestUsable<Listed extends Pick<Listing, 'tag' | 'draft' | 'prerelease'>>(
  listed: readonly Listed[],
  skip: Skip,
  judge: (listing: Listed) => Promise<Judgement>,
  onPassedOver: OnPassedOver,
): Promise<Newest> {
  const published = newestFirst(listed).filter(({ draft, prerelease }) => !draft && !prerelease)
  const withdrawn: string[] = []
  const unusable: string[] = []
  let skipped = 0
  for (const listing of published) {
    const { tag } = listing
    if (unusable.length === CANDIDATES_MAX || skipped === SKIPPED_MAX) break
    const verdict = await judge(listing)
    if ('release' in verdict) {
      const { release } = verdict
      if (!skip(release)) return { release, problem: problemOf(unusable) }
      onPassedOver(tag, 'it failed here before')
      skipped++
      continue
    }
    onPassedOver(tag, verdict.why)
    const reasons = verdict.withdrawn === true ? withdrawn : unusable
    reasons.push(`${tag} cannot be used: ${verdict.why}`)
  }
  return { release: null, problem: problemOf([...unusable, ...withdrawn]) }
}

function problemOf([newest, ...others]: readonly string[]): BatonError | null {
  if (newest === undefined) return null
  const more = others.length === 0 ? '' : ` (nor can ${others.length} other${others.length === 1 ? '' : 's'})`
  return new BatonError('release_unusable', `${newest}${more}`)
}
