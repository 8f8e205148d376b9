// The program that contains these commands: an executable, or a script and the Node that runs it.

import { getAsset, isSea } from 'node:sea'
import { ownExecutable, ownRelease } from '../../../agent/install.ts'

/** Absolute path of this program's own file, which an install copies. From a clone it is Node's, and nothing installs that. */
export function ownFile(): string {
  return ownExecutable() ?? process.execPath
}

/** Whether the commands run from a clone, which has no file to install. */
export function isFromSource(): boolean {
  return ownExecutable() === null
}

/** Bytes that this executable unpacks before it starts; 0: none. */
export function ownUnpackedBytes(): number {
  if (!isSea() || ownRelease().kind !== 'app') return 0
  const { archive } = JSON.parse(getAsset('release', 'utf8')) as {
    archive?: { sizeBytes: number; unpackedBytes?: number }
  }
  return archive?.unpackedBytes ?? archive?.sizeBytes ?? 0
}

/** Absolute path of the Node that runs a script; null if the executable brings its own, and in a clone. */
export function ownNode(): string | null {
  return isSea() || isFromSource() ? null : process.execPath
}
