// The program that these commands are inside of: an executable, or a script and the Node that runs it.

import { isSea } from 'node:sea'
import { ownExecutable } from '../../../agent/install.ts'

/** Absolute path of the file that an install puts in place. */
export function ownFile(): string {
  return ownExecutable() ?? process.execPath
}

/** There is no file to install: the commands run from a clone. */
export function isFromSource(): boolean {
  return ownExecutable() === null
}

/** The Node of a script; null where the executable brings its own. */
export function ownNode(): string | null {
  return isSea() || isFromSource() ? null : process.execPath
}
