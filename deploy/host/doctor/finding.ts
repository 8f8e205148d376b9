// What a check finds. Pure.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, type ErrorCode } from '../../../agent/words.ts'
import type { Level } from '../../lib/level.ts'
import type { Layout } from '../place/layout.ts'

export interface Finding {
  check: string
  level: Level
  message: string
  hint: string | null
  /** decides the exit code of a problem */
  code: ErrorCode
}

/** The install to check, or the one that is going to be made. */
export interface Subject {
  layout: Layout
  /** null before a first install */
  receipt: Receipt | null
  /** null: none was named yet */
  feed: string | null
  /** bytes of the executable that is going to be put in place, unless the feed says another size */
  executableBytes: number
  /** bytes that it unpacks; 0: none */
  unpackedBytes: number
  withUnit: boolean
  /** directories that root is going to make, or to give to the service: the service's user need not be able to write there yet */
  given: readonly string[]
}

/** A row of a table: what a look has found, or nothing that is wrong. */
export type Wrong = Finding | false | null | undefined

/** What is wrong of the rows; `well` if nothing is. */
export function wrongOf(rows: readonly Wrong[], well: Finding | null): Finding[] {
  const wrong = rows.filter((row) => row !== false && row !== null && row !== undefined)
  return wrong.length > 0 || well === null ? wrong : [well]
}

export function ok(check: string, message: string): Finding {
  return { check, level: 'ok', message, hint: null, code: 'unexpected' }
}

export function warning(check: string, message: string, hint: string | null = null): Finding {
  return { check, level: 'warning', message, hint, code: 'unexpected' }
}

export function unknownSetting(name: string, expected: readonly string[], configPath: string): Finding {
  const message = `unknown setting \`${name}\` in ${configPath}`
  return warning('configuration', message, `expected one of ${expected.join(', ')}`)
}

export function problem(
  check: string,
  message: string,
  hint: string | null = null,
  code: ErrorCode = 'refused',
): Finding {
  return { check, level: 'problem', message, hint, code }
}

/** The first problem as an error, or null. */
export function worstOf(findings: readonly Finding[]): BatonError | null {
  const worst = findings.find(({ level }) => level === 'problem')
  if (worst === undefined) return null
  return new BatonError(worst.code, worst.message, worst.hint === null ? {} : { hint: worst.hint })
}
