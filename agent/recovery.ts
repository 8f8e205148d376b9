// The start of a process without a predecessor: it clears up after an interrupted process, and completes a probation that no
// predecessor watches. It holds the lock during a probation, which is an operation in flight.
// Must hold: the service serves, whatever it finds; a start that finds nothing loads nothing.

import { lstatSync, readdirSync, statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isLeftover } from './disk/disk.ts'
import { foldersOf, type ManagedInstall } from './disk/managed-install.ts'
import { lacksReserve } from './disk/reserve.ts'
import { beginsProbation, isIdle } from './disk/journal.ts'
import { markPath, updateDirectory } from './disk/places.ts'
import type { Lock } from './disk/lock.ts'
import { EXIT, reasonOf } from './words/errors.ts'
import type { Life, Serving } from './life.ts'
import type { Settings } from './settings.ts'
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

/** The process that proves itself. */
interface Alone {
  settings: Settings
  serving: Serving
  life: Life
}

/**
 * Commits the probation after `probationMs`, once this process is well; `isProved`: at once, since its conductor found it well. If it is not
 * well within `readyMs`, the release has failed. If the service is stopping by then, the next start continues the probation.
 */
export async function proveAlone(
  install: ManagedInstall,
  { probation, lock }: OpenProbation,
  { settings, serving, life }: Alone,
  isProved = false,
): Promise<void> {
  const { to, sha256, operationId } = probation
  const { probationMs, readyMs } = settings.update
  const endsInFailure = () => {
    if (!life.isStopping()) process.exitCode ||= EXIT.unexpected
  }
  try {
    const { failProbation, illnessAlone, noteTag, privateServer, settleProbation, sweep } = await loadEnding(lock)
    {
      await using _lock = lock
      if (!isProved) {
        process.on('exit', endsInFailure) // an application that ends with 0 was not stopped on purpose
        await beginProbation(install, probationMs)
        await sleep(probationMs)
      }
      const own = () => privateServer(serving.listeners, settings)
      const why = isProved ? null : await illnessAlone(own, { ...settings, ...settings.update }, life.isStopping)
      const state = await install.journal.read()
      if (life.isStopping() || state.probation?.operationId !== operationId) return
      if (why === null) {
        await settleProbation(install)
        await sweep(install)
      } else if (await failProbation(install, `it was not well within ${readyMs} ms: ${why}`, readyMs)) {
        await life.stop(`a failed probation: ${why}`, EXIT.unexpected)
      }
    }
    await noteTag(install, { tag: to, sha256 }) // without the lock: it may have to read the whole executable
  } catch (cause) {
    install.log({ event: 'warning', message: `ending the probation of ${to}: ${reasonOf(cause)}` })
  } finally {
    process.off('exit', endsInFailure)
  }
}

/** Loads all code that ends a probation, while this release's files certainly exist. Releases the lock if that fails. */
async function loadEnding(lock: Lock) {
  try {
    const [ending, { noteTag }, { illnessAlone }, { privateServer }] = await Promise.all([
      import('./update/ending.ts'),
      import('./update/installed.ts'),
      import('./handover/give/probe.ts'),
      import('./handover/private.ts'),
      import('./handover/give/farewell.ts'),
    ])
    return { ...ending, noteTag, illnessAlone, privateServer }
  } catch (cause) {
    await lock.release()
    throw cause
  }
}

/** Notes that the release on probation serves from now on. Never throws: a failed write is no reason to end the probation. */
export async function beginProbation(install: ManagedInstall, probationMs: number): Promise<void> {
  try {
    await install.journal.change((state) => beginsProbation(state, probationMs))
  } catch (cause) {
    install.log({ event: 'warning', message: `writing the start of the probation: ${reasonOf(cause)}` })
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
