// Chooses the latest release: the highest version that can be used, whatever the order of the feed. All feeds share this rule.
// Must hold: the answer reports a newer release that is published but cannot be used. A mirror can damage that release without any
// key; if the host then called itself up to date, it would stay behind unnoticed.

import { BatonError } from '../../words/errors.ts'
import type { Listing, Newest, Skip, Tag } from '../../words/release.ts'
import { newestFirst } from '../trust/usable.ts'
import type { Judgement } from '../trust/usable.ts'

/** Called for each release that is newer than the chosen one and was passed over, with the reason. */
export type OnPassedOver = (tag: Tag, why: string) => void

/** how many unusable releases to examine before giving up: a feed with this many is broken */
const CANDIDATES_MAX = 8
/** how many usable releases may be skipped: each costs requests for its texts */
const SKIPPED_MAX = 24

/**
 * A yanked release is no problem if an older one can be used: the maintainer has signed the yank. If no older one can be
 * used, it is a problem: a service that finds no release at all must not report that it is up to date.
 */
export async function newestUsable<Listed extends Pick<Listing, 'tag' | 'draft' | 'prerelease'>>(
  listed: readonly Listed[],
  skip: Skip,
  judge: (listing: Listed) => Promise<Judgement>,
  onPassedOver: OnPassedOver,
): Promise<Newest> {
  const published = newestFirst(listed.filter(({ draft, prerelease }) => !draft && !prerelease))
  const yanked: string[] = []
  const unusable: string[] = []
  let skipped = 0
  for (const listing of published) {
    const { tag } = listing
    if (skip.isOut?.(tag) === true) continue
    if (unusable.length === CANDIDATES_MAX) break
    if (skipped === SKIPPED_MAX) {
      unusable.push(`${skipped} releases were passed over, and older ones such as ${tag} were not looked at`)
      break
    }
    const verdict = await judge(listing)
    if ('release' in verdict) {
      const { release } = verdict
      if (!skip(release)) return { release, problem: problemOf(unusable) }
      onPassedOver(tag, 'it failed here before')
      skipped++
      continue
    }
    onPassedOver(tag, verdict.why)
    const reasons = verdict.yanked === true ? yanked : unusable
    reasons.push(`${tag} cannot be used: ${verdict.why}`)
  }
  return { release: null, problem: problemOf([...unusable, ...yanked]) }
}

function problemOf([newest, ...others]: readonly string[]): BatonError | null {
  if (newest === undefined) return null
  const more = others.length === 0 ? '' : ` (nor can ${others.length} other${others.length === 1 ? '' : 's'})`
  return new BatonError('release_unusable', `${newest}${more}`)
}
