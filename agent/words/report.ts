// The result of an operation in one form, for a person, the panel, `--json` and a fleet. Pure.

import type { Rehearsal } from './rehearsal.ts'
import type {
  Durations,
  HandoverReport,
  Kind,
  MadeCopy,
  Operation,
  Outcome,
  StartProgress,
  StateMoved,
  Unproven,
} from './state.ts'

/** `reportOf` makes it. */
export interface OperationReport extends Omit<HandoverReport, 'switchMs' | 'pauseMs'> {
  id: string
  kind: Kind
  from: string
  to: string | null
  /** null while in flight */
  outcome: Outcome | null
  error: Operation['error']
  durations: Durations
  bytes: number
  /** null if nothing was handed over, for instance because no service was running */
  switchMs: number | null
  /** see HandoverReport; null if nobody had to wait */
  pauseMs: number | null
  /** see Operation; null if there was none */
  trial: Rehearsal | null
  /** see Operation; null: the database was not exchanged */
  stateMoved: StateMoved | null
  /** see Operation; absent: none */
  copies?: MadeCopy[]
  /** ISO 8601, UTC: earliest end of the current probation; null if there is none */
  unprovenUntil: string | null
  /** see Operation */
  by?: 'schedule'
}

/** Pure. `unproven`: the current probation, see `Status`. */
export function reportOf(operation: Operation, unproven: Unproven | null = null): OperationReport {
  const { id, kind, from, to, outcome, error, durations, bytes, handover, by, copies } = operation
  const { trial = null, stateMoved = null } = operation
  const { switchMs = null, pauseMs = null, ...counts } = handover ?? { ...NO_HANDOVER, switchMs: null }
  const unprovenUntil = outcome === null ? (unproven?.until ?? null) : null
  const what = { id, kind, from, to, outcome, error, durations, bytes }
  const known = { ...what, ...counts, switchMs, pauseMs, trial, stateMoved, unprovenUntil }
  return { ...known, ...(copies === undefined ? {} : { copies }), ...(by === undefined ? {} : { by }) }
}

export const NO_HANDOVER: Readonly<HandoverReport> = {
  moved: 0,
  carried: 0,
  takenBack: 0,
  ended: 0,
  cut: 0,
  switchMs: 0,
}

/** One line: `copying rows (40 %)`. Pure. */
export function formatProgress({ text, done, total }: StartProgress): string {
  return done === undefined || !total ? text : `${text} (${Math.min(100, Math.floor((100 * done) / total))} %)`
}
