// Makes the facts that `next.ts` decides by from the memory and the journal. Pure.

import type { JournalState } from '../../disk/journal.ts'
import { isDone, type Operation, type TrustReport } from '../../words/state.ts'
import { compareTags, type Tag } from '../../words/release.ts'
import type { Wait } from '../../words/waits.ts'
import { LEFT } from './ask.ts'
import type { ScheduleFacts } from './next.ts'
import type { Remembered } from './memory.ts'

/** how long an update counts for: without an earlier one, at least, and at most */
const [TOOK_MS, TOOK_MIN_MS, TOOK_MAX_MS] = [600_000, 60_000, 6 * 3_600_000]

type Seen = Pick<ScheduleFacts, 'running' | 'isInFlight' | 'asks' | 'left' | 'tookMs'>

export function factsOf({ memory, ...seen }: Seen & { memory: Remembered }): ScheduleFacts {
  const { id, offer, asked, attempt, failures, wasReverted } = memory
  const { problem, at: askedAt, next: askAt } = asked
  return { ...seen, id, offer, problem, askedAt, askAt, lastAt: attempt?.at ?? null, failures, wasReverted }
}

/** Tags that a rollback has left here and that no person has asked for again since. `history`: newest first. */
export function leftIn(history: readonly Operation[]): Tag[] {
  const isReturn = (one: Operation, tag: Tag) => one.by === undefined && isDone(one.outcome) && one.to === tag
  return history.flatMap(({ outcome, from }, at) =>
    outcome === 'rolled_back' && !history.slice(0, at).some((one) => isReturn(one, from)) ? [from] : [],
  )
}

interface NewerKnown {
  running: Tag
  journal: Pick<JournalState, 'history' | 'bad'>
  memory: Pick<Remembered, 'passed'>
  trust: Pick<TrustReport, 'yanked'>
}

/**
 * The newest release that this host has left or that failed here; null: there is none. Leaves out releases of which the feed's last
 * answer says more.
 */
export function leftBehind({ running, journal: { history, bad }, memory, trust }: NewerKnown): Wait | null {
  const told = [...memory.passed, ...trust.yanked].map(({ tag }) => tag)
  const isNews = (tag: string) => compareTags(tag, running) > 0 && !told.includes(tag)
  const known = [
    // of one that is both, the failure is the later: after it the release was not in place
    ...bad.map(({ tag }) => ({ code: 'failed_here' as const, tag, why: 'it failed here' })),
    ...leftIn(history).map((tag) => ({ code: 'left' as const, tag, why: LEFT })),
  ].filter(({ tag }) => isNews(tag))
  const newestFirst = known.toSorted((one, other) => compareTags(other.tag, one.tag))
  const [newest] = newestFirst
  if (newest === undefined) return null
  const others = newestFirst.filter(({ tag }) => tag !== newest.tag).slice(0, 1)
  const says = [newest, ...others].map(({ tag, why }) => `${tag} is newer, but ${why}`).join('; ')
  return { code: newest.code, says, tag: newest.tag }
}

/** Milliseconds that the last good update took, from check to commit. `history`: newest first. */
export function tookMsOf(history: readonly Operation[]): number {
  const last = history.find(({ outcome, kind }) => outcome === 'updated' && kind === 'update')
  if (last === undefined) return TOOK_MS
  const { check = 0, download = 0, verify = 0, swap = 0, restart = 0 } = last.durations
  return Math.min(TOOK_MAX_MS, Math.max(TOOK_MIN_MS, check + download + verify + swap + restart))
}
