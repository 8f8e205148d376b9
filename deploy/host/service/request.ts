// What is asked for, and how it ended. Plain data, which passes between root's process and the service's.

import type { BatonError, Kind, OperationReport, Outcome } from '../../../agent/words.ts'

export interface Operate {
  kind: Kind
  /** update: a tag, or null for the latest release; rollback: a tag, or null for the backup executable */
  tag: string | null
  /** for the lock: `install.sh upgrade` */
  who: string
  lockTimeoutMs: number
  healthTimeoutMs: number
  /** must answer 2xx too, asked from probation on */
  healthUrl: string | null
}

/** How it ended; expected endings are values. */
export interface Operated {
  outcome: Outcome
  from: string
  to: string | null
  /** null where there was nothing to do */
  report: OperationReport | null
  error: { code: BatonError['code']; message: string; hint: string | null } | null
}
