// The start of a process without a predecessor: it clears up after an interrupted process. A probation that no predecessor watches is
// completed by serving-later.ts, under the lock that this file has taken, since a probation is an operation in flight.
// Must hold: the service serves, whatever it finds; a start that finds nothing loads nothing.

import { lstatSync, readdirSync, statSync } from 'node:fs'
import { isLeftover } from './disk/disk.ts'
import { foldersOf, type ManagedInstall } from './disk/managed-install.ts'
import { lacksReserve } from './disk/reserve.ts'
import { isIdle } from './disk/journal.ts'
import { markPath, updateDirectory } from './disk/places.ts'
import type { Lock } from './disk/lock.ts'
import { reasonOf } from './words/errors.ts'
import type { Probation } from './words/state.ts'

/** A probation to complete, with its lock. */
export interface OpenProbation {
  probation: Probation
  lock: Lock
}

/**
 * Clears up after an interrupted process. Returns the probation that this start has to complete, or null.
 * Never throws, so that the service serves. `waits`: called once another process has the lock.
 */
export async function recoverUnderLock(
  install: ManagedInstall,
  waitMs: number,
  waits: () => void = () => {},
): Promise<OpenProbation | null> {
  try {
    if (await isClean(install)) return null
    const [{ takeLock }, { recover }] = await Promise.all([import('./disk/lock.ts'), import('./update/ending.ts')])
    const lock = await takeLock(install.disk, install.stateDirectory, 'the starting service', { waitMs, waits })
    let probation: Probation | null = null
    try {
      probation = await recover(install)
    } finally {
      if (probation === null) await lock.release()
    }
    return probation === null ? null : { probation, lock }
  } catch (cause) {
    // The command that starts this service may hold the lock. That command clears up itself.
    install.log({ event: 'warning', message: `not clearing up: ${reasonOf(cause)}` })
    return null
  }
}

/** Whether no interrupted process has left anything. Reads only the journal and the names of files; does not try the lock. */
async function isClean(install: ManagedInstall): Promise<boolean> {
  const { journal, places, stateDirectory } = install
  const { partial, former, aside, backup, executable } = places
  if (!isIdle(journal.path)) return false
  if (foldersOf(install).some((folder) => look(() => readdirSync(folder))?.some(isLeftover))) return false
  if ([partial, former, aside, markPath(stateDirectory)].some((path) => look(() => lstatSync(path)))) return false
  const [old, own] = [look(() => statSync(backup)), look(() => statSync(executable))]
  if (old !== null && old.ino === own?.ino && old.dev === own.dev) return false
  return !(await lacksReserve(updateDirectory(stateDirectory)))
}

function look<T>(read: () => T): T | null {
  try {
    return read()
  } catch {
    return null
  }
}
