// Chooses the latest release: the highest version that can be used, whatever the order of the feed. All feeds share this rule.
// Must hold: the answer reports a newer release that is published but cannot be used. A mirror can damage that release without any
// key; if the host then called itself up to date, it would stay behind unnoticed.

import { BatonError } from '../../words/errors.ts'
import type { ReleaseChannel } from '../../words/feed-choice.ts'
import { compareTags } from '../../words/release.ts'
import { isBarred, isPrerelease } from '../../words/which-release.ts'
import type { Listing, Newest, Skip, Tag } from '../../words/release.ts'
import { newestFirst } from '../trust/usable.ts'
import type { Judgement } from '../trust/usable.ts'

/** Called for each release that is newer than the chosen one and was passed over, with the reason. */
export type OnPassedOver = (tag: Tag, why: string) => void

/** how many unusable releases to examine before giving up: a feed with this many is broken */
const CANDIDATES_MAX = 8
/** how many usable releases may be skipped: each costs requests for its texts */
const SKIPPED_MAX = 24

/** Whether the channel has the release. On a release that is none by its tag, the feed's own mark says that it is not for everybody yet. */
export function isIn(
  channel: ReleaseChannel,
  { tag, draft, prerelease }: Pick<Listing, 'tag' | 'draft' | 'prerelease'>,
): boolean {
  return !draft && (isPrerelease(tag) ? channel === 'beta' : !prerelease)
}

/**
 * A yanked release is no problem if an older one can be used: the maintainer has signed the yank. If no older one can be
 * used, it is a problem: a service that finds no release at all must not report that it is up to date.
 */
export async function newestUsable<Listed extends Pick<Listing, 'tag' | 'draft' | 'prerelease'>>(
  listed: readonly Listed[],
  skip: Skip,
  judge: (listing: Listed) => Promise<Judgement>,
  onPassedOver: OnPassedOver,
  channel: ReleaseChannel,
): Promise<Required<Newest>> {
  const published = newestFirst(listed.filter((one) => isIn(channel, one)))
  let beyond: Required<Newest>['beyond'] = null
  const yanked: string[] = []
  const unusable: string[] = []
  let skipped = 0
  for (const listing of published) {
    const { tag } = listing
    if (skip.isOut?.(tag) === true) continue
    if (unusable.length === CANDIDATES_MAX) break
    if (skipped === SKIPPED_MAX) {
      unusable.push(`${skipped} releases were skipped, and older ones such as ${tag} were not checked`)
      break
    }
    const verdict = await judge(listing)
    if ('release' in verdict) {
      const { release } = verdict
      if (release.from !== undefined && isBarred(release, skip.from ?? null)) {
        onPassedOver(tag, `it can be installed only on top of ${release.from} or later`)
        beyond ??= { tag, from: release.from }
        continue
      }
      if (!skip(release)) return { release, problem: problemOf(unusable), beyond }
      onPassedOver(tag, 'it failed here before')
      skipped++
      continue
    }
    onPassedOver(tag, verdict.why)
    const reasons = verdict.yanked === true ? yanked : unusable
    reasons.push(`${tag} cannot be used: ${verdict.why}`)
  }
  return { release: null, problem: problemOf([...unusable, ...yanked]), beyond }
}

/** The whole answer: a release that this host is too old for is a problem, unless there is another one on the way to it. */
export function withBarrier(found: Required<Newest>, from: Tag | null): Newest {
  const { release, problem, beyond } = found
  if (beyond === null) return { release, problem }
  if (from === null || (release !== null && compareTags(release.tag, from) > 0)) return found
  const message = `${beyond.tag} can be installed only on top of ${beyond.from} or later, but this host runs ${from}, and the feed has no usable release in between`
  const hint = `ask the publisher for an intermediate release, such as ${beyond.from}`
  return { release, problem: problem ?? new BatonError('release_unusable', message, { hint }) }
}

function problemOf([newest, ...others]: readonly string[]): BatonError | null {
  if (newest === undefined) return null
  const more =
    others.length === 0
      ? ''
      : ` (${others.length} other release${others.length === 1 ? '' : 's'} cannot be used either)`
  return new BatonError('release_unusable', `${newest}${more}`)
}
