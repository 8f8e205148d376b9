// The last resort: both processes have died, and the supervisor restarts a release on probation again and again. The *backup*
// executable, which is known to work, runs this after each failed stop of the service. At the second failure of the release on
// probation it puts the backup back. It needs nothing from the new executable.

import { exists, makeDisk } from '../disk/disk.ts'
import { finishOperation, makeJournal } from '../disk/journal.ts'
import { takeLock } from '../disk/lock.ts'
import { placesOf } from '../disk/places.ts'
import type { Receipt } from '../disk/receipt.ts'
import { clearLeftovers, exchange, undoSwap } from './steps/swap.ts'
import { installedTag } from './version.ts'

export const FAILURES_ALLOWED = 1

export type Rescue =
  | { did: 'nothing'; why: string }
  | { did: 'counted'; failures: number }
  | { did: 'reverted'; from: string; to: string }

/**
 * Counts one failure of the release on probation. At the second failure it puts the previous executable back. The caller
 * starts the service again. `failed` false (a wanted stop) changes nothing. Throws BatonError locked if an operation is in
 * flight: the operation itself handles the failure.
 */
export async function rescue(
  receipt: Receipt,
  { failed, reason }: { failed: boolean; reason: string },
): Promise<Rescue> {
  if (!failed) return { did: 'nothing', why: 'the service was stopped, it did not fail' }
  const disk = makeDisk()
  await using _lock = await takeLock(disk, receipt.stateDirectory, 'the rescue', { waitMs: 2000 })
  const journal = makeJournal(disk, receipt.stateDirectory)
  const places = placesOf(receipt.executable)
  const { probation } = await journal.read()
  if (probation === null) return { did: 'nothing', why: 'no release is on probation' }
  if (!(await exists(places.backup)))
    return { did: 'nothing', why: `there is no backup executable at ${places.backup}` }
  // Another executable is in place: the update was killed before it put the new one there, so the release on probation has not failed.
  const installed = await installedTag(places.executable).catch(() => probation.to)
  if (installed !== probation.to) return { did: 'nothing', why: `${installed} is installed, not ${probation.to}` }
  if (probation.failures < FAILURES_ALLOWED) {
    const state = await journal.change((now) => void (now.probation !== null && now.probation.failures++))
    return { did: 'counted', failures: state.probation?.failures ?? 0 }
  }
  if (probation.kind === 'update') await undoSwap(disk, places)
  else await exchange(disk, places)
  await clearLeftovers(disk, places)
  const message = `${probation.to} failed ${probation.failures + 1} times in probation: ${reason}`
  await journal.change((now) =>
    finishOperation(now, { outcome: 'reverted', error: { code: 'probation_failed', message }, to: probation.to }),
  )
  return { did: 'reverted', from: probation.to, to: probation.from }
}
