// The result of an operation in one form, for a person, the panel, `--json` and a fleet. Pure.

import type { Rehearsal } from './rehearsal.ts'
import type { HandoverReport, Operation, StartProgress, StateMoved, OnProbation } from './state.ts'

/** characters of `AllowedBack.bad` */
export const BAD_REASON_MAX = 500

type OfOperation =
  | 'id'
  | 'kind'
  | 'from'
  | 'to'
  | 'outcome'
  | 'error'
  | 'durations'
  | 'bytes'
  | 'copies'
  | 'cutWork'
  | 'by'
  | 'bad'

/** `reportOf` makes it. */
export interface OperationReport extends Pick<Operation, OfOperation>, Omit<HandoverReport, 'switchMs' | 'pauseMs'> {
  /** null if nothing was handed over, for instance because no service was running */
  switchMs: number | null
  /** see HandoverReport; null if nobody had to wait */
  pauseMs: number | null
  /** see Operation; null if there was none */
  trial: Rehearsal | null
  /** see Operation; null: the database was not exchanged */
  stateMoved: StateMoved | null
  /** ISO 8601, UTC: earliest end of the current probation; null if there is none */
  probationUntil: string | null
}

/** Pure. `probation`: the current one, see `Status`. */
export function reportOf(operation: Operation, probation: OnProbation | null = null): OperationReport {
  const { id, kind, from, to, outcome, error, durations, bytes, handover, by, bad, copies, cutWork } = operation
  const { trial = null, stateMoved = null } = operation
  const { switchMs = null, pauseMs = null, ...counts } = handover ?? { ...NO_HANDOVER, switchMs: null }
  const probationUntil = outcome === null ? (probation?.until ?? null) : null
  const what = { id, kind, from, to, outcome, error, durations, bytes }
  const known = { ...what, ...counts, switchMs, pauseMs, trial, stateMoved, probationUntil }
  return { ...known, ...(copies && { copies }), ...(cutWork && { cutWork }), ...(by && { by }), ...(bad && { bad }) }
}

export const NO_HANDOVER: Readonly<HandoverReport> = {
  moved: 0,
  carried: 0,
  returned: 0,
  ended: 0,
  cut: 0,
  switchMs: 0,
}

/** One line: `copying rows (40%)`. Pure. */
export function formatProgress({ text, done, total }: StartProgress): string {
  return done === undefined || !total ? text : `${text} (${Math.min(100, Math.floor((100 * done) / total))}%)`
}
