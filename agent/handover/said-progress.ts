// What a migration prints of how far it is counts as `progress()`, whatever language it is written in. The first code of a release hears it,
// where it keeps the last words too.

import { plainOf } from '../words/said.ts'
import { progress } from './progress.ts'

/** `baton: 40%`, or `baton: 40% copying rows` */
const SAID = /^baton: *(\d{1,3})(?:\.\d+)? ?%(.*)$/

/** Takes the last of these lines that says how far it is. */
export function hearProgress(lines: readonly string[]): void {
  const last = lines.map((line) => line.trimEnd()).findLast((line) => SAID.test(line))
  const [, percent, text = ''] = SAID.exec(last ?? '') ?? []
  if (percent !== undefined) progress(plainOf(text) || 'starting', Math.min(100, Number(percent)), 100)
}
