// Ends an operation. The process that carried it out calls this, or the successor that passed its probation, or the next start. Must
// hold: an interrupted operation gets an outcome; a release on probation is proved or put back, never forgotten.

import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { sweepBy } from '../disk/copy-database.ts'
import { exists } from '../disk/disk.ts'
import { forgetLastWords } from '../disk/kept-words.ts'
import { imageOf, type ManagedInstall } from '../disk/managed-install.ts'
import { finishOperation, type JournalState } from '../disk/journal.ts'
import { readMark } from '../disk/state-mark.ts'
import { foldersOf, isLeftover, updateDirectory } from '../disk/places.ts'
import { ownCommand } from './own-command.ts'
import { keepReserve } from '../disk/reserve.ts'
import { startTimeOf } from '../sockets/process.ts'
import { hasSupervisor } from '../sockets/systemd.ts'
import { isDone, type Operation, type Probation } from '../words/state.ts'
import { sweepUnpacked, unpackedHome } from '../disk/sweep.ts'
import { reasonOf } from '../words/errors.ts'
import { decide, type Decision, type Situation } from './decide.ts'
import { inPlaceOf } from './installed.ts'
import { installedTag } from './version.ts'
import { dropMark, giveOwnData, movedIn, tellMoved } from './own-data.ts'
import { clearCage } from './rehearsal/rehearse.ts'
import { clearLeftovers, finishExchange, hasBackup } from './steps/swap.ts'

/**
 * Call it under the lock, when no predecessor lives. Closes the operation that an interrupted process left open, and clears its
 * leftovers. Resolves to the probation that this process has to pass, or null.
 */
export async function recover(install: ManagedInstall): Promise<Probation | null> {
  const state = await install.journal.read()
  const { operation, probation } = state
  await clearTemporaries(install)
  void clearCage(install) // may take as long as systemd does: do not wait
  await keepReserve(install.disk, updateDirectory(install.stateDirectory))
  await finishExchange(install.disk, install.places)
  if (operation !== null && operation.outcome === null) {
    const decided = await decideFor(install, 'start', state)
    if (decided.outcome === null) return probation
    await close(install, decided, 'its process has ended')
    return null
  }
  await clearLeftovers(install.disk, install.places)
  await noteMoved(install, operation)
  return null
}

/** Adds an exchange of the database to an operation that has ended: after a rescue, this release takes its data back only now. */
async function noteMoved(install: ManagedInstall, operation: Operation | null): Promise<void> {
  const moved = operation === null ? null : await movedIn(install, operation)
  if (moved !== null) await install.journal.change((state) => tellMoved(state, operation?.id, moved))
  await dropMark(install)
}

/** The release has passed its probation: commits the operation that is still open. */
export async function settleProbation(install: ManagedInstall): Promise<void> {
  await install.disk.remove(install.places.former)
  const { outcome } = await decideFor(install, 'operation', await install.journal.read())
  if (outcome === null) throw new Error(`${install.current} is not the release on probation`)
  const operation = await writeEnd(install, (now) => {
    // The predecessor wrote how long the restart took. If it could not, this process's own uptime stands in.
    if (now.operation !== null) now.operation.durations.restart ??= Math.round(performance.now())
    finishOperation(now, { outcome, error: null })
  })
  forgetLastWords()
  if (operation !== null) sayFinished(install, operation, null)
}

export function sayFinished({ log }: ManagedInstall, operation: Operation, error: Operation['error']): void {
  const { id, kind, outcome, to } = operation
  const [code, message] = [error?.code ?? null, error?.message ?? null]
  log({ event: 'finished', id, kind, outcome: outcome ?? 'updated', to, code, message })
}

/**
 * The release on probation, which serves alone, has failed: it was not well in the `hadMs` that it had. True: this process has to end in
 * failure, so that the rescue counts that, and puts the other release back. False: nobody would start it again, or there is no other one.
 * Then it serves on, and the operation has failed.
 */
export async function failProbation(install: ManagedInstall, why: string, hadMs: number): Promise<boolean> {
  const hasOther = await hasBackup(install.places)
  const isRescued = hasSupervisor() && hasOther
  await install.journal.change(({ probation }) => {
    if (probation === null) return
    const { to, from } = probation
    const rest = hasOther
      ? `nothing supervises the service, so run \`${ownCommand('rollback')}\` to put ${from} back`
      : 'there is no backup of the executable'
    const message = isRescued ? why : `${to} keeps serving, but has not proved itself: ${why}; ${rest}`
    probation.failed = { code: 'probation_failed', message, isBlameless: false, hadMs }
  })
  if (!isRescued) await closeInterrupted(install)
  return isRescued
}

/** For the next operation: ends one that no process is at any more. */
export async function closeInterrupted(install: ManagedInstall): Promise<void> {
  await finishExchange(install.disk, install.places)
  const decided = await decideFor(install, 'next', await install.journal.read())
  await close(install, decided, 'the next operation found it unfinished')
}

/** `why`: for the message of an operation that has not succeeded. */
async function close(install: ManagedInstall, { outcome, data, blame }: Decision, why: string): Promise<void> {
  await clearLeftovers(install.disk, install.places)
  if (data === 'give') await giveOwnData(install)
  const ended = await writeEnd(install, (now) =>
    finishOperation(now, { outcome, error: isDone(outcome) ? null : errorOf(now, why), blame }),
  )
  install.log({
    event: 'recovered',
    message: `operation ${ended?.id ?? ''} has ended and is recorded as ${ended?.outcome ?? 'interrupted'}`,
  })
}

/** Resolves to the operation as it ended, with the exchange of the database that it has made. */
async function writeEnd(install: ManagedInstall, end: (now: JournalState) => void): Promise<Operation | null> {
  const { operation } = await install.journal.read()
  const moved = operation === null ? null : await movedIn(install, operation)
  const state = await install.journal.change((now) => {
    end(now)
    tellMoved(now, now.operation?.id, moved)
  })
  await dropMark(install)
  return state.operation
}

function errorOf({ operation, probation }: JournalState, why: string): Operation['error'] {
  const { code, message } = probation?.failed ?? {
    code: 'interrupted' as const,
    message: `interrupted during the ${operation?.stage ?? 'check'} stage: ${why}`,
  }
  return { code, message }
}

/** What is to become of the operation in the journal. */
async function decideFor(
  install: ManagedInstall,
  asks: Situation['asks'],
  { operation, probation }: Pick<JournalState, 'operation' | 'probation'>,
): Promise<Decision> {
  const { places, stateDirectory, current, serves } = install
  const { from = '', to = null } = probation ?? operation ?? {}
  const inPlace = await inPlaceOf(places, current, { from, to, sha256: probation?.sha256 ?? null })
  const isProved = asks === 'operation'
  return decide({
    asks,
    kind: probation?.kind ?? operation?.kind ?? 'update',
    stage: operation?.stage ?? 'check',
    failed: isProved ? null : (probation?.failed ?? null),
    failures: probation?.failures ?? null,
    inPlace,
    hasBackup: await hasBackup(places),
    hasMark: readMark(stateDirectory) !== null,
    alive: isProved ? 'proved' : !serves ? 'nobody' : inPlace === 'new' ? 'new' : 'old',
  })
}

/** Removes temporary files and folders that a killed process has left beside the executable and in the update directory. */
export async function clearTemporaries(
  install: Pick<ManagedInstall, 'disk' | 'places' | 'stateDirectory'>,
): Promise<void> {
  for (const folder of foldersOf(install)) {
    const entries = await readdir(folder).catch(() => [])
    for (const path of entries.filter(isLeftover).map((entry) => join(folder, entry)))
      if (!(await isBeingWritten(path))) await install.disk.removeFolder(path) // also a file
  }
}

/** Whether the process whose pid is in the name lives and is older than the file: in a container every process in turn has the pid 1. */
async function isBeingWritten(temporary: string): Promise<boolean> {
  const ticks = startTimeOf(Number.parseInt(temporary.slice(-PID_AT, 6 - PID_AT), 16))
  if (ticks === null) return false
  const [uptime = '0'] = (await readFile('/proc/uptime', 'utf8')).split(' ')
  const startedAt = Date.now() - (Number(uptime) - Number(ticks) / TICKS_A_SECOND) * 1000
  return ((await stat(temporary).catch(() => null))?.mtimeMs ?? Infinity) >= startedAt
}

/** where the pid begins, from the end of a name of `temporaryName` */
const PID_AT = '0123456789ab.tmp'.length
/** the unit of times in /proc, on every kernel: proc(5) */
const TICKS_A_SECOND = 100

/** Removes the folders that releases have unpacked and no release needs. Never throws: what is left only takes room. */
export async function sweep(install: ManagedInstall): Promise<void> {
  const { disk, service, places, serves, log } = install
  try {
    // At most two folders are those of the executable and of the backup: nothing to remove, so start no process to find out.
    if ((await readdir(unpackedHome(places.executable, service)).catch(() => [])).length <= 2) return
    const keep = [await installedTag(places.executable)]
    if (await exists(places.backup)) keep.push(await installedTag(places.backup))
    const kept = serves
      ? await sweepBy(await imageOf(install), { service, executable: places.executable, keep })
      : await sweepUnpacked(disk, service, places, keep)
    for (const path of kept) {
      const message = `the folder of an unused release is kept because the application wrote ${path} into it: use \`environment\` in baton.config.json to tell the application where to keep its data`
      log({ event: 'warning', message })
    }
  } catch (cause) {
    log({
      event: 'warning',
      message: `could not remove unpacked releases that are no longer needed: ${reasonOf(cause)}`,
    })
  }
}
