// The report of the performer in the cage, and its reader. A release has run in the same folder, so the reader checks every member.

import { isCount, isObject } from '../../words/untrusted.ts'

/**
 * The steps of the performer. If the performer is killed, the report shows the step that it was in.
 * `full`: it ended, as the disk filled.
 * `no-room`: it could not begin, since there is no file system of limited size for it.
 */
export const PHASES = ['begun', 'no-room', 'present', 'candidate', 'present-again', 'done', 'full'] as const
export type Phase = (typeof PHASES)[number]

/** How a release did on the copy. */
export interface Run {
  /** milliseconds until its first good answer; null: there was none */
  ms: number | null
  /** why it does not serve, with its last words; null: it serves */
  failure: string | null
  /** it was not healthy in these milliseconds; absent: that is not why it failed */
  lateMs?: number
  /** the first of the author's requests that it did not answer as expected; null: none */
  refused: string | null
  /** how many of the author's requests were sent, and how many of them write */
  requests: number
  writes: number
}

export interface Report {
  phase: Phase
  /** in all tables, before the migration; null: not counted */
  rows: number | null
  present: Run | null
  candidate: Run | null
  presentAgain: Run | null
  /** what is wrong with the database after the migration, and was not before; null: nothing */
  damage: string | null
  /** a table that has lost rows in the migration; null: none */
  lost: string | null
  /** why the present release may not understand the new schema; null: columns and tables were added, or nothing has changed */
  difference: string | null
  /** rows that were there before and have other values after the migration; null: none but those that the present release changes itself */
  changed: string | null
  /** databases beside the one that goes back, by their paths in the state directory */
  others: readonly string[]
  /** the candidate's author declares that the release before can work on its data */
  reversible: boolean
}

const [TEXT_MAX, NAME_MAX, NAMES_MAX] = [1000, 100, 8]

/** Never throws: a member that is not valid counts as missing. */
export function readReportOf(value: Record<string, unknown>): Report {
  const phase = PHASES.find((one) => one === value['phase']) ?? 'begun'
  return {
    phase,
    rows: countOr(value['rows']),
    present: runOf(value['present']),
    candidate: runOf(value['candidate']),
    presentAgain: runOf(value['presentAgain']),
    damage: textOr(value['damage']),
    lost: textOr(value['lost']),
    difference: textOr(value['difference']),
    changed: textOr(value['changed']),
    others: namesOf(value['others']),
    reversible: value['reversible'] === true,
  }
}

function runOf(value: unknown): Run | null {
  if (!isObject(value)) return null
  const ms = countOr(value['ms'])
  return {
    ms,
    failure: textOr(value['failure']) ?? (ms === null ? 'it did not answer' : null),
    ...(isCount(value['lateMs']) && { lateMs: value['lateMs'] }),
    refused: textOr(value['refused']),
    requests: countOr(value['requests']) ?? 0,
    writes: countOr(value['writes']) ?? 0,
  }
}

function namesOf(value: unknown): string[] {
  return Array.isArray(value) ? value.slice(0, NAMES_MAX).flatMap((one) => textOr(one)?.slice(0, NAME_MAX) ?? []) : []
}

function countOr(value: unknown): number | null {
  return isCount(value) ? value : null
}

/** Without control characters: it goes into logs and onto terminals. */
function textOr(value: unknown): string | null {
  return typeof value === 'string' ? value.replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ').slice(0, TEXT_MAX) : null
}
