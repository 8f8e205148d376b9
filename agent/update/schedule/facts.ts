// Makes the facts that `next.ts` decides by from the memory and the journal. Pure.

import type { Operation } from '../../words/state.ts'
import type { Tag } from '../../words/release.ts'
import type { ScheduleFacts } from './next.ts'
import type { Remembered } from './memory.ts'

/** how long an update counts for: without an earlier one, at least, and at most */
const [TOOK_MS, TOOK_MIN_MS, TOOK_MAX_MS] = [600_000, 60_000, 6 * 3_600_000]

export interface FactsSeen {
  memory: Remembered
  running: Tag
  isInFlight: boolean
  /** see ScheduleFacts */
  asks: string | null
  tookMs: number
}

export function factsOf({ memory, running, isInFlight, asks, tookMs }: FactsSeen): ScheduleFacts {
  const { id, offer, asked, attempt, failures, wasReverted } = memory
  return {
    running,
    id,
    offer,
    asks,
    problem: asked.problem,
    askAt: asked.next,
    isInFlight,
    lastAt: attempt?.at ?? null,
    failures,
    wasReverted,
    tookMs,
  }
}

/** Tags that a rollback has left here and that no person has asked for again since. `history`: newest first. */
export function leftIn(history: readonly Operation[]): Tag[] {
  const isReturn = (one: Operation, tag: Tag) => one.by === undefined && one.outcome === 'updated' && one.to === tag
  return history.flatMap(({ outcome, from }, at) =>
    outcome === 'rolled_back' && !history.slice(0, at).some((one) => isReturn(one, from)) ? [from] : [],
  )
}

/** Milliseconds that the last good update took, from check to commit. `history`: newest first. */
export function tookMsOf(history: readonly Operation[]): number {
  const last = history.find(({ outcome, kind }) => outcome === 'updated' && kind === 'update')
  if (last === undefined) return TOOK_MS
  const { check = 0, download = 0, verify = 0, swap = 0, restart = 0 } = last.durations
  return Math.min(TOOK_MAX_MS, Math.max(TOOK_MIN_MS, check + download + verify + swap + restart))
}
