// The last resort: both processes have died, and the supervisor restarts a release on probation again and again. The *backup*
// executable, which is known to work, runs this after each failed stop of the service. At the second failure of the release on
// probation it puts the backup back. It needs nothing from the new executable.

import { type Disk, makeDisk, readSmall } from '../disk/disk.ts'
import { finishOperation, makeJournal } from '../disk/journal.ts'
import { takeLock } from '../disk/lock.ts'
import { lastWordsPath, placesOf } from '../disk/places.ts'
import type { Receipt } from '../disk/receipt.ts'
import { readMark } from '../disk/state-mark.ts'
import { blameOf, lateBy, orHindered } from '../words/blame.ts'
import { BatonError } from '../words/errors.ts'
import { lineOf } from '../words/said.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'
import { afterPrinting } from '../words/wrote.ts'
import { decide } from './decide.ts'
import { inPlaceOf } from './installed.ts'
import { clearLeftovers, hasBackup, takeBack } from './steps/swap.ts'
import { installedTag } from './version.ts'

const WORDS_MAX_BYTES = 64 * 1024

/** How the service ended. */
export interface RescueFor {
  /** false: it was stopped on purpose */
  failed: boolean
  reason: string
  /** milliseconds that its start had, if the supervisor has ended it for want of an answer; absent: that is not why it ended */
  hadMs?: number
}

export type Rescue =
  | { did: 'nothing'; why: string }
  | { did: 'counted'; failures: number }
  | { did: 'reverted'; from: string; to: string }

/**
 * Counts one failure of the release on probation. At the second failure it puts the previous executable back. The caller
 * starts the service again. `failed` false (a wanted stop) changes nothing. Throws BatonError locked if an operation is in
 * flight: the operation itself handles the failure.
 */
export async function rescue(receipt: Receipt, { failed, reason, hadMs }: RescueFor): Promise<Rescue> {
  const disk = makeDisk()
  const last = await takeLastWords(disk, receipt)
  if (!failed) return { did: 'nothing', why: 'the service did not fail: it was stopped' }
  await using _lock = await takeLock(disk, receipt.stateDirectory, 'the rescue', { waitMs: 2000 })
  const journal = makeJournal(disk, receipt.stateDirectory)
  const places = placesOf(receipt.executable)
  const { operation, probation } = await journal.read()
  if (probation === null) return { did: 'nothing', why: 'no release is on probation' }
  const { from, to, kind, failures, failed: how = { message: reason, hadMs } } = probation
  const said = afterPrinting(how === probation.failed ? null : last.said)
  const message = `${to} failed ${failures === 0 ? 'once' : `${failures + 1} times`} during probation: ${how.message}${said}`
  const failure = orHindered(
    how.hadMs === undefined
      ? new BatonError('probation_failed', message)
      : lateBy('probation_failed', message, how.hadMs),
    to,
    { ...last, how: how.message },
  )
  const installed = await installedTag(places.executable).catch(() => to)
  const hasOther = await hasBackup(places)
  const inPlace = await inPlaceOf(places, installed, probation)
  const {
    outcome,
    disk: back,
    blame,
  } = decide({
    asks: 'rescue',
    kind,
    stage: operation?.stage ?? 'restart',
    failed: { code: failure.code, ...blameOf(failure) },
    failures,
    inPlace,
    hasBackup: hasOther,
    hasMark: readMark(receipt.stateDirectory) !== null,
    alive: 'nobody',
  })
  if (outcome === null) {
    if (!hasOther) return { did: 'nothing', why: `there is no backup of the executable at ${places.backup}` }
    // the update was killed before it put the new executable there, so the release on probation has not failed
    if (inPlace === 'old' || inPlace === 'other')
      return {
        did: 'nothing',
        why: installed === to ? `the previous build of ${to} is installed` : `${installed} is installed, not ${to}`,
      }
    const state = await journal.change(({ probation: counted }) => {
      if (counted === null) return
      counted.failures++
      delete counted.failed // another start may fail in another way
    })
    return { did: 'counted', failures: state.probation?.failures ?? 0 }
  }
  await takeBack(disk, places, back)
  await clearLeftovers(disk, places)
  const { code, message: told } = failure
  await journal.change((now) => finishOperation(now, { outcome, error: { code, message: told }, to, blame }))
  return { did: 'reverted', from: to, to: from }
}

/** What the process that has ended wrote last, and removes it: see `handover/last-words.ts`. */
async function takeLastWords(
  disk: Disk,
  { stateDirectory }: Receipt,
): Promise<{ said: string | null; isOwnLock: boolean }> {
  const path = lastWordsPath(stateDirectory)
  const text = await readSmall(path, WORDS_MAX_BYTES).catch(() => null)
  await disk.remove(path).catch(() => {})
  const value = text === null ? null : parsedJson(text)
  const last = isObject(value) && isObject(value['body']) ? value['body'] : {}
  const { lines, isOwnLock } = last
  return { said: Array.isArray(lines) ? lineOf(lines) : null, isOwnLock: isOwnLock === true }
}
