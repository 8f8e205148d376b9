// Makes one line of a message from the last lines that a release wrote. An application wrote them, so they are bounded and stripped
// of control characters. Pure.

import { stripVTControlCharacters } from 'node:util'

/** how many lines are kept, and characters of one */
export const [LINES_MAX, LINE_MAX] = [10, 200]

/** characters of all lines in a message */
const TOLD_MAX = 1000

/** what Baton logs in every start, so that it says nothing about a failure */
const EVERY_START = /\bbaton: (?:warning: updates are not signed|serving v|also listening on )/

/**
 * One line for a message. It begins at the last line that names an error; if none does, it is the last lines. Null: no line says
 * anything.
 */
export function lineOf(lines: readonly unknown[]): string | null {
  const all = lines.map(String).filter((line) => tells(line) && !EVERY_START.test(line))
  // an indented line belongs to an error above it, such as its cause
  const from = all.findLastIndex((line) => /^(?=\S).*error(?: \[\w+\])?:/i.test(line))
  const plain = (line: string) => plainOf(line).slice(0, LINE_MAX)
  if (from !== -1) return bounded(all.slice(from, from + LINES_MAX).map(plain)).join(' | ')
  const last = bounded(all.slice(-LINES_MAX).map(plain).toReversed()).toReversed()
  return last.length === 0 ? null : last.join(' | ')
}

/** As many of the lines as have room in a message. */
function bounded(lines: readonly string[]): string[] {
  let length = 0
  return lines.filter((line) => (length += line.length) <= TOLD_MAX)
}

/** Whether a line is worth keeping. Not a stack frame, which would take the room of the error, nor an object's brackets. */
export function tells(line: string): boolean {
  return !/^\s*at |^Node\.js v/.test(line) && /[\p{L}\p{N}]/u.test(line)
}

/** `a, b and 3 more`: at most `most` of the names. */
export function formatNames(names: readonly string[], most: number, between = ', '): string {
  const shown = names.slice(0, most).join(between)
  return names.length > most ? `${shown} and ${names.length - most} more` : shown
}

/** Fit for a terminal, on one line. */
export function plainOf(text: string): string {
  return stripVTControlCharacters(text)
    .replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
}
