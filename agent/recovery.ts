// The start of a process without a predecessor: it clears up after an interrupted process. A probation that no predecessor watches is
// completed by serving-later.ts, under the lock that this file has taken, since a probation is an operation in flight.
// Must hold: the service serves, whatever it finds; a start that finds nothing loads nothing.

import { lstatSync, readdirSync, statSync } from 'node:fs'
import { isIdle } from './disk/journal-text.ts'
import type { Lock } from './disk/lock.ts'
import { foldersOf, isLeftover, journalPath, markPath, updateDirectory } from './disk/places.ts'
import { lacksReserve } from './disk/reserve.ts'
import type { OwnInstall } from './managed.ts'
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
  own: OwnInstall,
  waitMs: number,
  waits: () => void = () => {},
): Promise<OpenProbation | null> {
  try {
    if (await isClean(own)) return null
    const loaded = Promise.all([import('./disk/lock.ts'), import('./update/ending.ts'), own.open()])
    const [{ takeLock }, { recover }, install] = await loaded
    const lock = await takeLock(install.disk, install.stateDirectory, 'the service, which is starting', {
      waitMs,
      waits,
    })
    let probation: Probation | null = null
    try {
      probation = await recover(install)
    } finally {
      if (probation === null) await lock.release()
    }
    return probation === null ? null : { probation, lock }
  } catch (cause) {
    // The command that starts this service may hold the lock. That command clears up itself.
    own.log({ event: 'warning', message: `could not clean up after an interrupted operation: ${reasonOf(cause)}` })
    return null
  }
}

/** Whether no interrupted process has left anything. Reads only the journal and the names of files; does not try the lock. */
async function isClean({ places, stateDirectory }: OwnInstall): Promise<boolean> {
  const { partial, former, aside, backup, executable } = places
  if (!isIdle(journalPath(stateDirectory))) return false
  if (foldersOf({ places, stateDirectory }).some((folder) => look(() => readdirSync(folder))?.some(isLeftover)))
    return false
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
