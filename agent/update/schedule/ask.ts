// Asks the feed which release the service could install by itself. Reads only; the operation asks again, by tag, before it begins.

import { needsOfAsset } from '../../disk/room.ts'
import { reasonOf } from '../../words/errors.ts'
import { compareTags, type Feed, type Release, type Skip, type Tag } from '../../words/release.ts'
import { badEntry, type BadRelease, stillBad, whyAgain } from '../../words/state.ts'
import { isTime } from '../../words/untrusted.ts'
import { forPerson, type Wait } from '../../words/waits.ts'
import { askAgainAt, type Remembered } from './memory.ts'
import { freeAt, isWithin, type Offered } from './next.ts'
import type { Policy } from './policy.ts'

/** how long the feed may take for an answer, as a whole */
const PATIENCE_MS = 120_000
/** why the service does not install a release by itself that a person has left by a rollback */
export const LEFT = 'it was rolled back here'
const [PROBLEM_MAX, PASSED_MAX] = [300, 5]

export interface FeedAsking {
  running: Tag
  policy: Policy
  /** all of them, with those that were late */
  bad: readonly BadRelease[]
  /** milliseconds that a release may take until it serves */
  readyMs: number
  /** see `leftIn` */
  left: readonly Tag[]
}

/** The memory with the answer. Never throws: notes a feed that does not answer as a problem. */
export async function askFeed(
  feed: Pick<Feed, 'latest'>,
  memory: Remembered,
  asking: FeedAsking,
  now: number,
): Promise<Remembered> {
  const { id, asked } = memory
  const { running, policy } = asking
  const passed: Remembered['passed'] = []
  let soonest: { at: number; offer: Offered } | null = null
  const looked = (release: Release): boolean => {
    const { tag } = release
    if (compareTags(tag, running) <= 0) return false
    const why = whyPassed(release, memory, asking)
    if (why !== null) {
      if (why !== 'skipped' && passed.length < PASSED_MAX) passed.push({ tag, why })
      return true
    }
    if (policy.mode === 'notify') return false
    // pass over a release that is too young, or whose step does not include this host yet: an older one may be installed now
    const offer = offerOf(release, memory, asking, now)
    const at = freeAt(policy, id, offer, now)
    if (at <= now) return false
    if (soonest === null || at < soonest.at) soonest = { at, offer }
    return true
  }
  // once there are enough reports about releases beyond the mode, skip such releases without a request
  const isOut = (tag: Tag): boolean =>
    policy.mode !== 'notify' &&
    passed.length === PASSED_MAX &&
    compareTags(tag, running) > 0 &&
    !isWithin(policy.mode, running, tag)
  const skip: Skip = Object.assign(looked, { isOut, from: running })
  try {
    const { release, problem } = await feed.latest(skip, AbortSignal.timeout(PATIENCE_MS))
    const isStep = release !== null && compareTags(release.tag, running) > 0
    const later = (soonest as { offer: Offered } | null)?.offer ?? null
    const offer = isStep ? offerOf(release, memory, asking, now) : later
    const why = offer !== null ? null : (problem?.message.slice(0, PROBLEM_MAX) ?? null)
    return { ...memory, offer, passed, asked: { at: now, next: askAgainAt(id, 0, now), problem: why, failures: 0 } }
  } catch (cause) {
    const failures = asked.failures + 1
    const problem = reasonOf(cause).slice(0, PROBLEM_MAX)
    return { ...memory, asked: { ...asked, next: askAgainAt(id, failures, now), problem, failures } }
  }
}

/** Why to pass over a release, so that an older one may be chosen; null: choose it. `skipped`: the operator's wish, which nobody reports. */
function whyPassed(
  { tag, asset }: Release,
  { never }: Remembered,
  { running, policy, bad, readyMs, left }: FeedAsking,
): Wait | 'skipped' | null {
  if (policy.skip.includes(tag)) return 'skipped'
  const failed = badEntry(stillBad(bad, readyMs), tag, asset.sha256)
  if (failed !== null) return forPerson('failed', tag, `it failed here: ${failed.reason}`, { why: failed.reason })
  if (policy.mode === 'notify') return null
  if (left.includes(tag)) return forPerson('went_back', tag, LEFT)
  const again = never.find((one) => one.sha256 === asset.sha256 && (one.from ?? running) === running)
  if (again !== undefined) return again.why
  const { mode } = policy
  return isWithin(mode, running, tag)
    ? null
    : forPerson('beyond', tag, `the policy allows updates only up to ${mode} releases`, { mode })
}

function offerOf(
  { tag, asset, publishedAt, rollout, security }: Release,
  { offer }: Remembered,
  { bad, readyMs }: FeedAsking,
  now: number,
): Offered {
  const published = isTime(publishedAt) ? Date.parse(publishedAt) : null
  const seenAt = offer?.sha256 === asset.sha256 ? offer.seenAt : now
  const bytes = needsOfAsset('', asset).reduce((sum, need) => sum + need.bytes, 0)
  const again = whyAgain(bad, tag, asset.sha256, readyMs)
  const urgent = security === true ? { security } : {}
  const known = {
    tag,
    sha256: asset.sha256,
    publishedAt: published,
    seenAt,
    rollout: rollout ?? null,
    bytes,
    ...urgent,
  }
  return again === null ? known : { ...known, again }
}
