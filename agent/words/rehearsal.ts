// A rehearsal: a release is started on a copy of the data before anything changes, and then the present release is started on the
// data that it left. Types and texts. Pure.

import { blameless } from './blame.ts'
import type { RehearseMode } from './bounds.ts'
import type { BatonError } from './errors.ts'

export const VERDICTS = ['reversible', 'irreversible', 'unproven', 'untried'] as const
/**
 * What a rehearsal says about the way back. `reversible`: the present release works on the data that the new one has changed. `irreversible`:
 * it does not. `unproven`: it starts there, but nothing shows that it works. `untried`: there was no rehearsal.
 */
export type Verdict = (typeof VERDICTS)[number]

/** Why a verdict is what it is, for programs, and for a page in another language. */
export const TRIAL_CODES = [
  // untried
  'never',
  'supervisor',
  'state_directory',
  'old_units',
  'database_outside',
  'database_size',
  'journal_mode',
  'no_room',
  'not_started',
  'not_finished',
  'running_fails',
  'no_scratch',
  'scratch_failed',
  'images',
  'trial_failed',
  // irreversible
  'rows_lost',
  'cannot_start',
  'cannot_work',
  // unproven
  'own_trial',
  'data_differs',
  'write_not_tested',
  // reversible
  'reads_and_writes',
] as const
export type TrialCode = (typeof TRIAL_CODES)[number]

export interface Rehearsal {
  verdict: Verdict
  /** absent: an older kit made the trial */
  code?: TrialCode
  /** why, as one clause without a full stop; for `untried` what keeps a rehearsal from taking place */
  reason: string
  /** what to do about it, one sentence; absent if there is nothing to do */
  hint?: string
  /** other databases of the service, which a way back with the data leaves as they are; absent: there are none */
  others?: string[]
  /** rows in all tables of the copy, before the migration; null: not counted */
  rows: number | null
  /** milliseconds that the copy took; null: none was made */
  copyMs: number | null
  /** milliseconds from the start of the new release to its first good answer; null: it was not started */
  migrationMs: number | null
  /** milliseconds of the rehearsal as a whole */
  tookMs: number
  /** ISO time of the rehearsal, if it was an earlier one, whose result counts again; absent: it belongs to this operation */
  triedAt?: string
}

/** Why there was no rehearsal. */
export type Untried = Pick<Rehearsal, 'code' | 'reason' | 'hint'>

/** A request that a release must answer on the copy. */
export interface RehearseRequest {
  /** default GET */
  method?: string
  /** such as `/notes` */
  path: string
  /** sent as JSON; absent: none */
  body?: unknown
  headers?: Record<string, string>
  /** the status that is expected; absent: any 2xx */
  status?: number
}

/** What an author says about rehearsals in `baton.config.json`. */
export interface Rehearse {
  mode?: RehearseMode
  /** at least one of them should write */
  requests?: RehearseRequest[]
  /** SQL that runs on the copy before a release starts there: it frees leases and locks of the live service */
  prepare?: string
  /** files and folders besides the database, relative to the state directory, that the copy needs */
  files?: string[]
  /** the author's word that the release before this one can work on what this one's migration leaves behind */
  reversible?: boolean
}

/** A rehearsal for one release on one schema, kept so that it is not repeated. */
export interface TriedRelease {
  /** of the release's asset, hex */
  sha256: string
  to: string
  /** the tag that was running */
  from: string
  /** `PRAGMA user_version` of the database at that time */
  schema: number | null
  trial: Rehearsal
  /** ISO time; absent: an older kit wrote the entry */
  at?: string
}

/** The data grow: what was shown of them longer ago than this is shown anew. A person who allows what was refused answers sooner. */
const COUNTS_FOR_MS = 86_400_000

/** Pure: what was shown lately of this release on this schema, or null. */
export function triedBefore(
  tried: readonly TriedRelease[],
  asked: Pick<TriedRelease, 'sha256' | 'from' | 'schema'>,
  now: number,
): Rehearsal | null {
  const same = (one: TriedRelease) =>
    one.sha256 === asked.sha256 && one.from === asked.from && one.schema === asked.schema
  const { trial, at = '' } = tried.find(same) ?? {}
  return trial !== undefined && Math.abs(now - Date.parse(at)) < COUNTS_FOR_MS ? { ...trial, triedAt: at } : null
}

/** What a verdict says of the way back. */
export const WAY_BACK: Readonly<Record<Exclude<Verdict, 'untried'>, string>> = {
  reversible: 'can be rolled back',
  irreversible: 'cannot be rolled back',
  unproven: 'rollback not verified',
}

/** One line for a person. */
export function formatRehearsal({ verdict, reason, rows, tookMs, triedAt }: Rehearsal): string {
  if (verdict === 'untried') return formatUntried(reason)
  const data = `your data${rows === null ? '' : ` (${formatRows(rows)})`}`
  const tried =
    triedAt === undefined ? `tried on a copy of ${data}` : `tried earlier on a copy of ${data}, at ${triedAt},`
  return `${tried} in ${formatSeconds(tookMs)}: ${WAY_BACK[verdict]}${verdict === 'reversible' ? '' : `: ${reason}`}`
}

export function formatUntried(reason: string): string {
  return `not tried on a copy of your data: ${reason}`
}

/** The refusal of a release with no way back if no person has allowed it. `to`: its tag. */
export function irreversibleFault(to: string, { reason }: Rehearsal): BatonError {
  return blameless('irreversible', `${to} would change the data irreversibly: ${reason}; nothing has changed`, {
    hint: 'to allow it, use `upgrade --allow-irreversible`, `{"allowIrreversible": true}`, or the checkbox in the panel',
  })
}

function formatRows(rows: number): string {
  if (rows === 1) return '1 row'
  return rows < 1e6 ? `${rows} rows` : `${(rows / 1e6).toFixed(1)} million rows`
}

function formatSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
