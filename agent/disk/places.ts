// The paths of Baton's files. Those of an executable are all in one directory, so that every change is a rename within one file
// system; the rest are in the state directory.

import { basename, dirname, join } from 'node:path'
import { nodeCrypto } from '../words/later.ts'

export interface Places {
  directory: string
  executable: string
  /** the executable that a rollback restores */
  backup: string
  /** download in progress */
  partial: string
  /** the earlier backup while an update is on probation: a revert restores it too */
  former: string
  /** one of the two executables that a rollback is exchanging */
  aside: string
}

export function placesOf(executable: string): Places {
  const directory = dirname(executable)
  const name = basename(executable)
  return {
    directory,
    executable,
    backup: `${executable}.backup`,
    partial: join(directory, `.${name}.partial`),
    former: join(directory, `.${name}.former`),
    aside: join(directory, `.${name}.aside`),
  }
}

/** root keeps the receipt and the command of each service here, in a folder of the service's name */
export const SYSTEM_DIRECTORY = '/usr/local/lib'

export function systemReceiptPath(service: string): string {
  return join(SYSTEM_DIRECTORY, service, 'receipt.json')
}

export function receiptPath(executable: string): string {
  return join(dirname(executable), 'receipt.json')
}

export function updateDirectory(stateDirectory: string): string {
  return join(stateDirectory, 'update')
}

export function journalPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'journal.json')
}

/** What a release on probation has written last before it ended, where no other process heard it: see `handover/last-words.ts`. */
export function lastWordsPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'last-words.json')
}

/** See `handover/progress.ts`. */
export function progressPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'progress.json')
}

/** See `state-mark.ts`. */
export function markPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'state.json')
}

/** See `owed.ts`. */
export function owedPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'owed.json')
}

export function snapshotDirectory(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'snapshots')
}

/** Keeps the databases that gave way to a snapshot. */
export function asideDirectory(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'aside')
}

/** The folders in which an operation makes temporary files. */
export function foldersOf({ places, stateDirectory }: { places: Places; stateDirectory: string }): string[] {
  const kept = updateDirectory(stateDirectory)
  return [places.directory, kept, snapshotDirectory(stateDirectory), asideDirectory(stateDirectory)]
}

/** A new hidden name in the same directory. It has this process's pid, so that `clearTemporaries` spares files in progress. */
export function temporaryName(path: string): string {
  const writer = process.pid.toString(16).padStart(6, '0')
  return join(dirname(path), `.${basename(path)}.${writer}${nodeCrypto().randomBytes(3).toString('hex')}.tmp`)
}

/** Whether `temporaryName` made `name`: a process has left the file behind, or is writing it. */
export function isLeftover(name: string): boolean {
  return /^\..+\.[0-9a-f]{12}\.tmp$/.test(name)
}
