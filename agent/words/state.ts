// The types of an update: operation, stage, outcome, instance. Pure: no effects.
// Every process that answers `GET /admin/update/status` uses them, before, during and after a switch.

import type { Blame } from './blame.ts'
import { BatonError, type ErrorCode } from './errors.ts'
import type { ExpectedPause } from './pause.ts'
import type { Rehearsal } from './rehearsal.ts'
import type { Mode, PolicyFile, PolicyInForce } from './schedule.ts'
import type { NextSwitch } from './order.ts'
import type { Wait } from './waits.ts'

/** The stages of an operation, in order. A rollback has `swap` and `restart` only. */
export const STAGES = ['check', 'download', 'verify', 'swap', 'restart'] as const
export type Stage = (typeof STAGES)[number]

export const OUTCOMES = ['updated', 'up_to_date', 'rolled_back', 'reverted', 'failed', 'cancelled'] as const
/** How an operation ended. `reverted`: the successor failed and the predecessor serves again. `cancelled`: nothing has changed. */
export type Outcome = (typeof OUTCOMES)[number]

/** Pure: whether the operation has done what was asked for, so that the release that it leads to is in place. */
export function isDone(outcome: Outcome | null): boolean {
  return outcome === 'updated' || outcome === 'rolled_back'
}

export type Kind = 'update' | 'rollback'

/** What a person allows beside an update or a rollback. */
export interface Allowed {
  /** a release with no way back */
  allowIrreversible: boolean
  /** also puts the newest snapshot that the release has left in the place of the database */
  restoreState: boolean
  /** without waiting for work that the application has under way */
  now: boolean
}

/** What a person says of a rollback. */
export interface AllowedBack extends Omit<Allowed, 'allowIrreversible'> {
  /** why the release that it leaves is bad here, 1 to BAD_REASON_MAX characters: `latest` then passes over it. Absent: it is not */
  bad?: string
}

/** Bytes that are downloaded. `totalBytes`: of the compressed asset, or of the delta that is taken instead, as the release announces it. */
export interface Progress {
  bytes: number
  totalBytes: number
}

/**
 * Milliseconds that each stage took. A stage that has not begun or has not ended is absent. `wait`: before `swap`, for the application's work;
 * no stage has that time.
 */
export type Durations = Partial<Record<Stage | 'wait', number>>

/** What happened to the connections in a handover, counted by the predecessor; `cut` is 0 in a good one. */
export interface HandoverReport {
  /** connections given to the successor without being closed */
  moved: number
  /** how many of those were in the middle of something: a WebSocket, a stream, a half-read request */
  carried: number
  /** connections that came back from a successor that was reverted */
  returned: number
  /**
   * connections that were ended as their kind foresees, so that their clients come back: WebSockets by a close frame with 1012,
   * and, unless the author has registered them, server-sent events and answers of `longLivedPaths`
   */
  ended: number
  /** other connections that were closed: still open at the drain deadline, or impossible to carry */
  cut: number
  /** why connections that the author has registered (`carry`) were cut or ended, each reason once; absent if none was */
  reasons?: string[]
  /** milliseconds from the start of the restart stage until the successor accepted connections */
  switchMs: number
  /**
   * Milliseconds in which nobody was served; of several such times the longest. Stop-first: from the end of reading to the new process's
   * `ready`, or until the old one read again; a new process that hung in probation is a part of the second. Start-first: from the last answer
   * of a new process that hung until the old one had everything back. Absent: nobody had to wait.
   */
  pauseMs?: number
  /** each of these times, in their order; absent: none, or the release is older than this */
  pausesMs?: number[]
  /** Stop-first: the part of `pauseMs` in which the new process started, a migration included. Absent: the release is older than this */
  startMs?: number
  /** Stop-first: the author's hooks took as long as `stopMs` allows, so `pauseMs` is made of that limit. Absent: they did not. */
  limitHit?: true
  /**
   * Stop-first: no release started behind the sockets that were held for it, so they were let go, and clients were refused until one
   * listened again. Absent: they were not.
   */
  letGo?: true
}

/** What a release says of the long work of its start, such as a migration. `at`: ISO 8601, UTC */
export type StartProgress = {
  tag: string
  at: string
  text: string
  done?: number
  total?: number
}

/** A copy that an operation has made. */
export type MadeCopy = { name: string; bytes: number; ms: number }

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
  /** `hint`: what to do next, one sentence; absent if there is nothing to say */
  error: { code: ErrorCode; message: string; hint?: string } | null
  /** sha256 of the asset as the feed published it, hex; null until the check stage, and if it is not known */
  sha256: string | null
  durations: Durations
  /** bytes received, including those that were fetched again */
  bytes: number
  /** filled in by the restart stage */
  handover: HandoverReport | null
  /** in the restart stage: what the new release says that its start is doing; absent: it says nothing */
  starting?: StartProgress
  /** stop-first: what the switch has waited for; absent: it did not have to wait */
  waits?: Wait[]
  /** what trying the release on a copy of the data has shown; absent: not tried yet, or the service keeps no database */
  trial?: Rehearsal
  /** the database was exchanged for a snapshot; absent: it was not */
  stateMoved?: StateMoved
  /** copies of data that are not in SQLite, which it has made in `update/snapshots/`; absent: none */
  copies?: MadeCopy[]
  /** the reasons of the application's work, at most 20, that it waited for no longer: it ends with its process; absent: none */
  cutWork?: string[]
  /** the service began it by itself, by its operator's rules; absent: a person asked for it */
  by?: 'schedule'
  /** a rollback: why the release that it leaves is bad here; absent: nobody says so */
  bad?: string
}

/** Paths. `aside`: where the database that gave way was put. */
export interface StateMoved {
  restored: string
  aside: string
  /** how many rows lie aside that are not in `restored`: they were written since; null: not counted. Older releases left it out */
  rows?: number | null
}

/** One clause: what clients have written since, and where it lies. Pure. */
export function formatLeft({ aside, rows = null }: StateMoved): string {
  const added = rows === null ? '' : `, with ${rows === 1 ? '1 new row' : `${rows || 'no'} new rows`},`
  return `what clients have written since then${added} is in ${aside}`
}

/** The reason of an operation's aborted signal. The operation then ends as `cancelled`, with nothing changed. */
export function cancellation(who: string): BatonError {
  return new BatonError('cancelled', `cancelled ${who}; nothing has changed`)
}

/** One process of the service. The panel believes a switch only when `id` has changed. */
export interface Instance {
  id: string
  pid: number
  version: string
  startedAt: string
}

/** A successor that has not proved itself yet. Its record stays on disk until commit or revert. */
export interface Probation {
  operationId: string
  kind: Kind
  from: string
  to: string
  /** ISO 8601, UTC: when it began to serve; until then, when it was put in place */
  since: string
  /** ISO 8601, UTC: earliest time of its commit; null until it serves */
  until: string | null
  /** sha256 of the executable on probation, hex; null if not known */
  sha256: string | null
  /** how often the service has ended in failure since then, counted by the rescue */
  failures: number
  /** why the holder put the previous release back, which then ends the operation; or why the one on probation ended itself; absent: neither */
  failed?: Blame & { code: ErrorCode; message: string }
}

/** A probation in progress: `tag` serves and has not proved itself. ISO 8601, UTC; `until` is its earliest end. */
export interface OnProbation {
  tag: string
  since: string
  until: string
}

/**
 * A release that failed here. `latest` skips it; naming it explicitly allows it. Only these bytes are bad: the same tag with
 * another sum is another release.
 */
export interface BadRelease {
  tag: string
  /** sha256 of the asset, hex; null if not known, then the tag alone counts */
  sha256: string | null
  reason: string
  /** of the error; absent: whoever rolled back marked it, or an older kit did */
  code?: ErrorCode
  at: string
  /** it was late, with these milliseconds to become ready; absent: that is not why it failed */
  hadMs?: number
}

/** Pure: the failures that count where a release has `readyMs` to become ready. One that was late with less time may be tried again. */
export function stillBad(bad: readonly BadRelease[], readyMs: number): BadRelease[] {
  return bad.filter(({ hadMs = Infinity }) => hadMs >= readyMs)
}

/** Pure: why a release that was late here is tried again, one clause; null: it has not failed here, or still counts as bad. */
export function whyAgain(bad: readonly BadRelease[], tag: string, sha256: string, readyMs: number): string | null {
  const { hadMs = Infinity } = badEntry(bad, tag, sha256) ?? {}
  if (hadMs >= readyMs) return null
  return `it was not ready within ${formatSeconds(hadMs)} last time; the limit is now ${formatSeconds(readyMs)}`
}

function formatSeconds(ms: number): string {
  return `${Math.round(ms / 100) / 10} s`
}

/** Pure: the entry that marks `release` as bad here, or null. `sha256` null: not known. */
export function badEntry(bad: readonly BadRelease[], tag: string, sha256: string | null): BadRelease | null {
  const same = (entry: BadRelease) => entry.sha256 === null || sha256 === null || entry.sha256 === sha256
  return bad.find((entry) => entry.tag === tag && same(entry)) ?? null
}

/** A release that `latest` passes over because it failed here. */
export interface Skipped {
  tag: string
  sha256: string | null
  /** what happened to it here, one sentence */
  why: string
  /** of the error; absent: whoever rolled back marked it, or an older kit did */
  code?: ErrorCode
  /** ISO 8601, UTC */
  at: string
}

/** What this executable knows about its feed so far. Answered without a request. */
export interface TrustReport {
  /** false: built without a root, so anyone who can write to the feed decides what runs here */
  signed: boolean
  /** the metadata files that were verified last */
  metadata: { role: 'root' | 'targets' | 'snapshot' | 'timestamp'; version: number; expiresAt: string }[]
  /** releases that the maintainer has yanked */
  yanked: { tag: string; why: string }[]
  /** what expires first, soon or already, or why the feed cannot be opened; null: neither */
  warning: { code: 'expiring' | 'expired' | 'unusable'; message: string } | null
}

/** What the service did by itself. */
export interface OwnDeed {
  id: string
  from: string
  to: string | null
  outcome: Outcome
  /** ISO 8601, UTC */
  at: string
  /** milliseconds that nobody was served; null: nobody had to wait */
  pauseMs: number | null
  error: { code: ErrorCode; message: string } | null
}

/** What the service does by itself, did, and waits for. */
export interface ScheduleReport {
  mode: Mode
  /** the mode that the operator's configuration allows at most */
  most: Mode
  policy: PolicyInForce
  /** ISO 8601, UTC, a whole minute: when it acts or looks next; null: never */
  next: string | null
  /** what it waits for */
  now: Wait
  /** ISO 8601, UTC: when the feed has answered the schedule last; null: it has not yet */
  askedAt: string | null
  /** ISO 8601, UTC: the service begins no update by itself before this time; a person may. Null: there is no hold, or it is over */
  pausedUntil: string | null
  /** what waits for a person */
  waits: Wait[]
  /** operations since a person last asked for one here, newest first, at most five */
  since: OwnDeed[]
}

/** Body of `GET` and `POST /admin/update/policy`. */
export interface PolicyReport {
  /** the operator's, which the panel can only tighten; empty if nothing is said, or if it is not understood */
  limits: PolicyFile
  /** what the panel has written */
  own: PolicyFile
  /** what is wrong with the policy or what it runs, one sentence each; a wrong `update.onOutcome` stops only the report */
  faults: string[]
  schedule: ScheduleReport
}

/** Body of `GET /admin/update/status`. */
export interface Status {
  state: 'idle' | 'in_flight'
  operation: Operation | null
  instance: Instance
  /** tag of `<executable>.backup`, null if there is none */
  backup: string | null
  /** the release that serves and has not proved itself yet; null if none is on probation */
  probation: OnProbation | null
  /** how the next switch would go; absent: this release is older than the choice */
  switch?: NextSwitch
  trust: TrustReport
  /** what it does by itself; absent: this release is older than that */
  schedule?: ScheduleReport
  /** newest first, at most HISTORY_MAX */
  history: Operation[]
  /** the copies of the database that are kept, newest first, at most COPIES_MAX; absent: this release is older than that */
  copies?: StateCopy[]
}

export const COPIES_MAX = 20

/** A copy of the database that an update has left. `state back TAG` takes the newest snapshot of that release. */
export interface StateCopy {
  /** for `state restore` */
  name: string
  /** `aside`: the database that was there when a snapshot was taken back */
  kind: 'snapshot' | 'aside'
  /** what a command has copied, or the folders that `snapshot` names; absent: the database */
  of?: 'dump' | 'folders'
  /** the release that it belongs to */
  tag: string
  /** ISO 8601, UTC */
  at: string
  bytes: number
}

/** A release's notes for people. */
export interface ReleaseNotes {
  tag: string
  /** Markdown, written by the publisher */
  notes: string
  /** ISO 8601; null if the feed does not say */
  publishedAt: string | null
  /** the page of the release, https; null if the feed has none */
  url: string | null
}

/** A release that this host is too old for: `from` is the oldest that it takes. */
export interface Beyond {
  tag: string
  from: string
}

/** Body of `POST /admin/update/check`. */
export interface VersionReport {
  installed: string | null
  running: string
  latest: string | null
  updateAvailable: boolean
  release: (ReleaseNotes & { sizeBytes: number; schema: number | null }) | null
  /** the releases between `running` and `latest`, newest first, at most ten */
  between: ReleaseNotes[]
  /**
   * the database that an update snapshots, and its schema number (`PRAGMA user_version`); null if there is none or it cannot be
   * read
   */
  database: { name: string; schema: number | null } | null
  /** releases newer than `running` that are skipped because they failed here; newest first */
  skipped: Skipped[]
  /** a newer release takes hosts only from `from` on: `latest` is the way to it; absent: there is none */
  beyond?: Beyond
  /** how long clients would wait for `latest` in a stop-first switch; absent: not known */
  pause?: ExpectedPause
  trust: TrustReport
  checkedAt: string
  /** why `latest` is null, or why a newer published release cannot be used */
  problem: { code: ErrorCode; message: string } | null
}

export const HISTORY_MAX = 50
