// What a release on trial says, for a message: the end of its log, and the beginning of a bad answer. Each is quoted, on one line.

import type { Readable } from 'node:stream'
import { lineOf } from '../../words/said.ts'
import type { Started } from '../started.ts'

const [WORDS_MAX, BODY_MAX, BODY_MS] = [300, 200, 1000]

/** `, saying "…"`: the end of its output; empty if it wrote nothing. */
export function lastWords({ said }: Started): string {
  const words = quoted(said())
  return words === null ? '' : `, saying ${words}`
}

/** The same behind an answer, which says something of its own. */
export function logEnd({ said }: Started): string {
  const words = quoted(said())
  return words === null ? '' : `, and its log ends with ${words}`
}

/** ` "…"`: how an answer's body begins; empty if that is no text, or does not come. */
export async function bodyBegin(body: Readable): Promise<string> {
  const pieces: Buffer[] = []
  const late = setTimeout(() => body.destroy(), BODY_MS)
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      pieces.push(piece)
      if (Buffer.concat(pieces).length >= BODY_MAX) break
    }
  } catch {
    // what has come is told
  } finally {
    clearTimeout(late)
  }
  const text = Buffer.concat(pieces)
    .subarray(0, BODY_MAX)
    .toString()
    .replace(/\uFFFD$/, '') // cut within a character
  const words = /[^\P{C}\s]|\uFFFD/u.test(text) ? null : quoted(text)
  return words === null ? '' : ` ${words}`
}

function quoted(text: string): string | null {
  const words = lineOf(text.split('\n'))?.slice(0, WORDS_MAX)
  return words === undefined ? null : JSON.stringify(words)
}
