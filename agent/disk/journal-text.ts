// What every start asks of the journal: whether it is whole, and whether an operation is in flight. The rest is in journal.ts, which a start
// loads only to clear up.

import { readFileSync, statSync } from 'node:fs'
import { isObject, parsedJson } from '../words/untrusted.ts'

export const JOURNAL_MAX_BYTES = 4 * 1024 * 1024

/** The members of a journal; null: the text is damaged. */
export function wholeJournal(text: string): Record<string, unknown> | null {
  const state = parsedJson(text)
  if (!isObject(state)) return null
  const { format, history, bad, operation, probation } = state
  const isWhole = format === 1 && [history, bad].every(Array.isArray)
  return isWhole && operation !== undefined && probation !== undefined ? state : null
}

/**
 * Whether the journal at `path` has no operation in flight. True if there is no journal, false if it is damaged; throws if it cannot be
 * read. A synchronous read is the faster one.
 */
export function isIdle(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found === undefined) return true
  const isJournal = found.isFile() && found.size <= JOURNAL_MAX_BYTES
  const operation = isJournal ? wholeJournal(readFileSync(path, 'utf8'))?.['operation'] : undefined
  return operation === null || (isObject(operation) && operation['outcome'] !== null)
}
