// The request for an operation, and its result. Plain data, which passes between root's process and its worker.

import type { Allowed, BatonError, Kind, OperationReport, Outcome } from '../../../agent/words.ts'

export interface Operate extends Allowed {
  kind: Kind
  /** update: a tag, or null for the latest release; rollback: a tag, or null for the backup executable */
  tag: string | null
  /** a dry run of an update: with the rehearsal */
  rehearse: boolean
  /** holder of the lock, as others see it: `shop upgrade` */
  who: string
  lockTimeoutMs: number
  healthTimeoutMs: number
  /** must answer 2xx too, asked from probation on */
  healthUrl: string | null
  /** a rollback: see AllowedBack */
  bad?: string
}

/** How an operation ended; an expected failure is a value here, not an exception. */
export interface Operated {
  outcome: Outcome
  from: string
  to: string | null
  /** null if there was nothing to do */
  report: OperationReport | null
  error: { code: BatonError['code']; message: string; hint: string | null } | null
  /** newer releases that were passed over because they failed here */
  skipped?: string[]
}

/** The tags in place before an operation. */
export interface Standing {
  current: string
  backup: string | null
}
