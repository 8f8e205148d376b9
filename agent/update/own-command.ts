// What a person types for an operator's command of this release.

import { basename } from 'node:path'
import { ownExecutable, ownRelease } from '../own.ts'

/** The arguments of an operator's command in this release: `upgrade`, or `baton upgrade`. */
export function ownWords(words: string): string {
  return ownRelease().commands === 'baton' ? `baton ${words}` : words
}

/** What a person types for an operator's command of this release: `shop upgrade`, or `shop baton upgrade`. */
export function ownCommand(words: string): string {
  const { service, kind } = ownRelease()
  // the reference service has no record of its release: its command is its file
  const path = kind === 'source' ? (ownExecutable() ?? 'install.sh') : service
  return `${basename(path).replace(/\.backup$/, '')} ${ownWords(words)}`
}
