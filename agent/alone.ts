// A probation that a process stands without a predecessor: after a power cut, after a start from the command line, or when
// the predecessor died before it could commit. Whoever has it holds the lock: it is an operation in flight.

import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from './words/errors.ts'
import { type Lock, takeLock } from './disk/lock.ts'
import { noteTag } from './update/installed.ts'
import type { ManagedInstall } from './disk/install.ts'
import { recover, settleProbation } from './recovery.ts'
import type { Probation } from './words/state.ts'

/** A probation to stand, with the lock that belongs to it. */
export interface OpenProbation {
  probation: Probation
  lock: Lock
}

/** Clears up after an interrupted process; the probation that this start has to stand, or null. Never throws: the service serves. */
export async function recoverUnderLock(install: ManagedInstall, waitMs = 500): Promise<OpenProbation | null> {
  try {
    const lock = await takeLock(install.disk, install.stateDirectory, 'the starting service', { waitMs })
    let probation: Probation | null = null
    try {
      probation = await recover(install)
    } finally {
      if (probation === null) await lock.release()
    }
    return probation === null ? null : { probation, lock }
  } catch (cause) {
    // a command line that starts this service holds the lock, and clears up itself
    install.log({ event: 'warning', message: `not clearing up: ${reasonOf(cause)}` })
    return null
  }
}

/** Commits it when it has lasted `probationMs`, unless the service is stopping by then: the next start goes on with it. */
export async function proveAlone(
  install: ManagedInstall,
  { probation, lock }: OpenProbation,
  probationMs: number,
  isStopping: () => boolean,
): Promise<void> {
  const { to, sha256, operationId } = probation
  try {
    {
      await using _lock = lock
      if (probationMs > 0) await beginProbation(install, probationMs)
      await sleep(probationMs)
      const state = await install.journal.read()
      if (isStopping() || state.probation?.operationId !== operationId) return
      await settleProbation(install)
    }
    await noteTag(install, { tag: to, sha256 }) // without the lock: it may have to read the whole executable
  } catch (cause) {
    install.log({ event: 'warning', message: `ending the probation of ${to}: ${reasonOf(cause)}` })
  }
}

/** From now on the release on probation serves. Never throws: what the status tells of it is no reason to end it. */
export async function beginProbation(install: ManagedInstall, probationMs: number): Promise<void> {
  const since = new Date()
  const until = new Date(since.getTime() + probationMs)
  try {
    await install.journal.change(({ probation }) => {
      if (probation === null) return
      Object.assign(probation, { since: since.toISOString(), until: until.toISOString() })
    })
  } catch (cause) {
    install.log({ event: 'warning', message: `writing the start of the probation: ${reasonOf(cause)}` })
  }
}
