// The nouns of an update: operation, stage, outcome, instance. Pure: no effects, no imports but words.
// Every process that answers `GET /admin/update/status` speaks in these, before, during and after a switch.

import type { ErrorCode } from './errors.ts'

/** What an operation goes through, in this order. A rollback has `swap` and `restart` only. */
export const STAGES = ['check', 'download', 'verify', 'swap', 'restart'] as const
export type Stage = (typeof STAGES)[number]

export const OUTCOMES = ['updated', 'up_to_date', 'rolled_back', 'reverted', 'failed'] as const
/** How an operation ended. `reverted`: the successor failed and the predecessor serves again. */
export type Outcome = (typeof OUTCOMES)[number]

export type Kind = 'update' | 'rollback'

/** Bytes of the compressed asset. `totalBytes` is what the release announces. */
export interface Progress {
  bytes: number
  totalBytes: number
}

/** What is lost or cut in a handover, counted by the predecessor; both are 0 in a good one. */
export interface HandoverReport {
  /** connections given to the successor without being closed */
  moved: number
  /** connections that were still open at the drain deadline and were cut */
  cut: number
  /** milliseconds from the start of the restart stage until the successor accepted connections */
  switchMs: number
}

export interface Operation {
  id: string
  kind: Kind
  /** tag that was running when the operation began */
  from: string
  /** tag asked for; null until the check stage has resolved `latest` */
  to: string | null
  stage: Stage
  progress: Progress | null
  /** ISO 8601, UTC */
  startedAt: string
  finishedAt: string | null
  outcome: Outcome | null
  error: { code: ErrorCode; message: string } | null
  /** filled in by the restart stage */
  handover: HandoverReport | null
}

/** One process of the service. The panel believes a switch only when `id` has changed. */
export interface Instance {
  id: string
  pid: number
  version: string
  startedAt: string
}

/** A successor that has not proved itself yet; on disk until commit or revert. */
export interface Probation {
  operationId: string
  kind: Kind
  from: string
  to: string
  /** ISO 8601, UTC */
  since: string
  /** how often the service has ended in failure since, counted by the rescue */
  failures: number
}

/** A release that failed here: `latest` skips it, naming it explicitly allows it. */
export interface BadRelease {
  tag: string
  reason: string
  at: string
}

/** Body of `GET /admin/update/status`. */
export interface Status {
  state: 'idle' | 'in_flight'
  operation: Operation | null
  instance: Instance
  /** tag of `<executable>.backup`, null where there is none */
  backup: string | null
  /** newest first, at most HISTORY_MAX */
  history: Operation[]
}

/** Body of `POST /admin/update/check`. */
export interface VersionReport {
  installed: string | null
  running: string
  latest: string | null
  updateAvailable: boolean
  release: { tag: string; notes: string; publishedAt: string | null; sizeBytes: number } | null
  checkedAt: string
  /** why `latest` is null */
  problem: { code: ErrorCode; message: string } | null
}

export const HISTORY_MAX = 50
