// Decides what the service does by itself now: nothing, ask the feed, or update; when it looks next; and what it waits for. Pure.
// Must hold: an update only while the hours are open, once in an opening, and only to a release that does not wait for a person;
// unless the mode is `off`, there is always a time at which it looks again.

import { compareTags } from '../../words/release.ts'
import type { Tag } from '../../words/release.ts'
import type { Mode, RolloutStep } from '../../words/schedule.ts'
import { feedProblem, type Wait } from '../../words/waits.ts'
import { openings, type Opening } from './hours.ts'
import { rankOf, turnIn } from './rank.ts'
import { formatAge, count, type Policy } from './policy.ts'

/** A release that the feed has and that is newer than what runs. Times are epoch milliseconds. */
export interface Offered {
  tag: Tag
  /** of its asset, hex */
  sha256: string
  /** null: the feed does not say. Then `seenAt` counts, as it does if this time is in the future */
  publishedAt: number | null
  seenAt: number
  /** null: for all hosts at once */
  rollout: RolloutStep[] | null
  /** its publisher has signed that it mends a hole: no minimum age keeps it */
  security?: true
  /** room that it needs on the disk of the executable */
  bytes: number
  /** why it is tried again although it has failed here, one clause; absent: it has not */
  again?: string
}

export interface ScheduleFacts {
  running: Tag
  /** see `rankOf` */
  id: string
  /** the newest release that the policy could let the service install by itself; null: none */
  offer: Offered | null
  /** why the offer waits for a person; null: it does not */
  asks: Wait | null
  /** see `leftBehind` */
  left: Wait | null
  /** why the feed gave no usable answer; null: it did */
  problem: string | null
  /** when the feed has answered last; null: it has not yet */
  askedAt: number | null
  /** when the feed is asked next */
  askAt: number
  isInFlight: boolean
  /** when the last attempt by itself began, how many failed since the last success, and whether the last one was reverted */
  lastAt: number | null
  failures: number
  wasReverted: boolean
  /** how long an update takes */
  tookMs: number
}

/** What to do, and what it waits for. */
export interface Next extends Wait {
  do: 'nothing' | 'ask' | 'update'
  /** when to look again, epoch milliseconds; null: never */
  at: number | null
}

const HOUR_MS = 3_600_000
/** the wait after a failure and after a revert; it doubles with each failure, up to BACKOFF_MAX_MS */
const [FAILED_MS, REVERTED_MS, BACKOFF_MAX_MS] = [HOUR_MS, 24 * HOUR_MS, 28 * 24 * HOUR_MS]
const CURRENT: Wait = { code: 'current', says: 'there is no newer release' }
/** nothing is known of newer releases */
const NOT_ASKED: Wait = { code: 'not_asked', says: 'no automatic check has run yet' }
/** while an operation is running */
const BUSY_MS = 60_000

export function next(policy: Policy, facts: ScheduleFacts, now: number): Next {
  const { offer, askAt, running } = facts
  if (policy.mode === 'off') return { do: 'nothing', at: null, code: 'off', says: 'automatic updates are off' }
  if (facts.isInFlight) return { do: 'nothing', at: now + BUSY_MS, code: 'in_flight', says: 'an operation is running' }
  if (now >= askAt) return { do: 'ask', at: now, code: 'asks_feed', says: 'asking the feed' }
  const looks = (wait: Wait): Next => ({ do: 'nothing', at: askAt, ...wait })
  const { problem } = facts
  if (problem !== null) return looks(feedProblem(problem))
  if (offer === null || compareTags(offer.tag, running) <= 0) return looks(idleWait(facts))
  if (facts.asks !== null) return looks(facts.asks)
  const { at, why } = earliest(policy, facts, offer, now)
  if (at === Infinity) return looks(why)
  return goes(policy, facts, offer, { at, why }, now)
}

function idleWait({ left, askedAt }: ScheduleFacts): Wait {
  if (askedAt !== null) return left ?? CURRENT
  return left === null ? NOT_ASKED : { ...left, says: `${left.says}; ${NOT_ASKED.says}` }
}

/** Whether the mode lets the service go from `from` to `to` by itself. */
export function isWithin(mode: Mode, from: Tag, to: Tag): boolean {
  const [one, other] = [from, to].map((tag) => tag.slice(1).split('.'))
  if (mode === 'patch') return one?.[0] === other?.[0] && one?.[1] === other?.[1]
  if (mode === 'minor') return one?.[0] === other?.[0]
  return mode === 'all'
}

interface Moment {
  at: number
  why: Wait
}

type Dated = Pick<Offered, 'tag' | 'publishedAt' | 'seenAt' | 'rollout' | 'security'>

/** When the minimum age has passed and the publisher's steps include this host; Infinity: no step includes it yet. */
export function freeAt(policy: Pick<Policy, 'minAgeMs'>, id: string, offered: Dated, now: number): number {
  return Math.max(...keptBy(policy, id, offered, now).map(({ at }) => at))
}

function keptBy({ minAgeMs }: Pick<Policy, 'minAgeMs'>, id: string, offered: Dated, now: number): Moment[] {
  const { tag, publishedAt, seenAt, rollout, security } = offered
  const born = publishedAt !== null && publishedAt <= now ? publishedAt : seenAt
  const turn = rollout === null ? -Infinity : turnIn(rollout, rankOf(id, tag))
  return [
    {
      at: security === true ? -Infinity : born + minAgeMs,
      why: {
        code: 'young',
        says: `${tag} must be at least ${formatAge(minAgeMs)} old`,
        tag,
        hours: minAgeMs / HOUR_MS,
      },
    },
    {
      at: turn ?? Infinity,
      why: {
        code: 'staged',
        says: `${tag} is being rolled out in steps, and it is not this host's turn yet`,
        tag,
      },
    },
  ]
}

/** The earliest time of the update apart from the hours, and what determines it. */
function earliest(policy: Policy, facts: ScheduleFacts, offer: Offered, now: number): Moment {
  const moments: Moment[] = [
    ...keptBy(policy, facts.id, offer, now),
    { at: policy.pauseUntil ?? -Infinity, why: { code: 'paused', says: 'updates are paused' } },
    {
      at: againAt(facts),
      why: {
        code: 'failures',
        says: `the last ${facts.failures === 1 ? 'attempt' : count(facts.failures, 'attempt')} failed`,
        count: facts.failures,
        tag: offer.tag,
      },
    },
  ]
  return moments.reduce((late, one) => (one.at > late.at ? one : late))
}

function againAt({ lastAt, failures, wasReverted }: ScheduleFacts): number {
  if (lastAt === null || failures === 0) return -Infinity
  const first = wasReverted ? REVERTED_MS : FAILED_MS
  return lastAt + Math.min(BACKOFF_MAX_MS, first * 2 ** Math.min(failures - 1, 20))
}

function goes(policy: Policy, facts: ScheduleFacts, offer: Offered, since: Moment, now: number): Next {
  const { tag, again } = offer
  const own = rankOf(facts.id, `${tag} jitter`)
  for (const opening of openings(policy.hours, Math.max(now, since.at))) {
    const at = startIn(opening, since.at, own * policy.jitterMs, facts)
    if (at === null) continue
    const open = Math.max(now, at)
    if (open > latestIn(opening, facts)) continue
    if (at <= now) return { do: 'update', at: now, code: 'goes_now', says: `${tag} is being installed`, tag }
    const late: Wait[] = again === undefined ? [] : [{ code: 'again', says: again, tag, why: again }]
    const because = since.at > now ? [since.why, ...late] : late
    const says = [`${tag} will be installed automatically`, because.map((one) => one.says).join('; ')]
      .filter(Boolean)
      .join(': ')
    return { do: 'nothing', at, code: 'goes', says, tag, because }
  }
  const says = `${tag} will never be installed automatically: the hours allowed by the configuration and by the panel do not overlap`
  return { do: 'nothing', at: facts.askAt, code: 'never_open', says, tag }
}

/** When the update begins in this opening; null: not in this one. */
function startIn(opening: Opening, since: number, jitterMs: number, facts: ScheduleFacts): number | null {
  const { start, end } = opening
  const isTaken = facts.lastAt !== null && facts.lastAt >= start && facts.lastAt < end && end !== Infinity
  if (isTaken) return null
  const last = latestIn(opening, facts)
  const from = Math.max(start, since)
  if (from > last) return null
  if (from === -Infinity) return from
  // The jitter must not move an update out of the opening. It may do so for a release that becomes free in the middle of an opening.
  const at = from + (end === Infinity ? jitterMs : Math.min(jitterMs, Math.max(0, last - start) * 0.9))
  return at > last ? null : Math.floor(at)
}

/** The latest start: the update should end within the hours, and begins in their first half if it takes longer than half of them. */
function latestIn({ start, end }: Opening, { tookMs }: ScheduleFacts): number {
  return end === Infinity ? Infinity : end - Math.min(tookMs, (end - start) / 2)
}
