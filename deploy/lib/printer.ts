// What the commands write to a terminal. Much of it comes from outside: from logs, health checks, feeds, and names of files.
// Must hold: no such text moves the cursor, sets a title or a colour, or hides what is beside it; and no part of an error can be
// taken for a line of the command's own.

import { stripVTControlCharacters } from 'node:util'
import { type ErrorCode, EXIT, MEANINGS } from '../../agent/words.ts'
import { remedyOf } from './remedies.ts'

/** Fit for a terminal. Lines stay lines. */
export function printable(text: string): string {
  return stripVTControlCharacters(text).replaceAll(/[^\P{C}\n\p{Cn}\p{Co}]|[\p{Zl}\p{Zp}]/gu, ' ')
}

/** The same on one line, with its blanks. */
export function printableLine(text: string): string {
  return printable(text).replaceAll('\n', ' ')
}

export function printLine(line: string, to: Pick<NodeJS.WriteStream, 'write'> = process.stdout): void {
  to.write(`${printable(line)}\n`)
}

/** For programs: they read the same value, and a terminal gets nothing that steers it. */
export function printJson(value: unknown, to: Pick<NodeJS.WriteStream, 'write'> = process.stdout): void {
  const units = (text: string) => text.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  const text = JSON.stringify(value) // which escapes what is below a blank itself
  to.write(`${text.replaceAll(/[\u007F-\u009F\p{Cf}\p{Zl}\p{Zp}]/gu, (found) => units(found).join(''))}\n`)
}

/** codes of many causes, of which the message says all that there is to say */
const SELF_EXPLAINED: readonly ErrorCode[] = ['refused', 'cancelled', 'unexpected']

/** The hint, or what its code asks for, then where more about the code is. Each further line of a text is set in. */
export function printError(
  { message, hint, code }: { message: string; hint: string | null; code?: ErrorCode },
  to: Pick<NodeJS.WriteStream, 'write'> = process.stderr,
): void {
  const remedy = code === undefined ? null : remedyOf(code)
  const lines = [
    ['error', message],
    ['hint', hint ?? remedy],
    ['code', code === undefined || !hasMore(code) ? null : `${code} (\`help ${code}\` explains it)`],
  ] as const
  for (const [word, text] of lines)
    if (text !== null) printLine(`${word}: ${text.trimEnd().replaceAll('\n', '\n  ')}`, to)
}

function hasMore(code: ErrorCode): boolean {
  return MEANINGS[code].exit !== EXIT.usage && !SELF_EXPLAINED.includes(code)
}
