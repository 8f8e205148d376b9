// Answers about the service: its status and its versions. Reads the journal, the files and the feed; changes nothing.

import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { schemaOf } from '../disk/copy-database.ts'
import { asBatonError, BatonError } from '../words/errors.ts'
import { exists } from '../disk/disk.ts'
import { journalPath } from '../disk/places.ts'
import { readProgress } from '../disk/read-progress.ts'
import { downloadBytes } from './chosen-delta.ts'
import { notesOf } from './feed/notes.ts'
import { imageOf, type ManagedInstall } from '../disk/managed-install.ts'
import type { Running } from './operation.ts'
import { compareTags, latestFor, type Skip } from '../words/release.ts'
import {
  badEntry,
  COPIES_MAX,
  type Instance,
  type Operation,
  type Probation,
  type Status,
  stillBad,
  type VersionReport,
} from '../words/state.ts'
import { keptCopies } from './kept-copies.ts'
import { expectedPause, lastPause } from '../words/pause.ts'
import type { NextSwitch } from '../words/order.ts'
import { knownRehearsal } from './rehearsal/rehearse.ts'
import { scheduleReport } from './schedule/say.ts'
import { installedTag } from './version.ts'

const LOOK_EVERY_MS = 100

/** `installed` is the file on disk, `running` this process, `latest` the feed's newest. All three may differ. */
export async function versionReport(install: ManagedInstall, instance: Instance): Promise<VersionReport> {
  const database = databaseOf(install)
  const installed = await installedTag(install.places.executable).catch(() => null)
  const report: Omit<VersionReport, 'trust' | 'database'> = {
    installed,
    running: instance.version,
    latest: null,
    updateAvailable: false,
    release: null,
    between: [],
    skipped: [],
    checkedAt: new Date().toISOString(),
    problem: null,
  }
  try {
    const { bad: all, history } = await install.journal.read()
    const bad = stillBad(all, install.readyMs)
    const failed: Skip = ({ tag, asset }) => {
      const entry = badEntry(bad, tag, asset.sha256)
      if (entry === null) return false
      const newer = compareTags(tag, instance.version) > 0
      if (newer)
        report.skipped.push({
          tag,
          sha256: entry.sha256,
          why: entry.reason,
          ...(entry.code && { code: entry.code }),
          at: entry.at,
        })
      return true
    }
    const newest = await install.feed.latest(Object.assign(failed, { from: instance.version }))
    if (newest.beyond) report.beyond = newest.beyond
    if (newest.problem !== null) report.problem = problemOf(newest.problem)
    const release = latestFor(newest, instance.version)
    if (release !== null) {
      report.latest = release.tag
      report.updateAvailable = compareTags(release.tag, instance.version) > 0
      const { schema } = release
      // what runs already is not downloaded, so nobody need know what runs
      const sizeBytes = report.updateAvailable
        ? await downloadBytes(release, install.places.executable)
        : release.asset.sizeBytes
      report.release = { ...notesOf(release), sizeBytes, schema }
      const pause = expectedPause(lastPause(history), await knownRehearsal(install, release))
      if (pause !== null) report.pause = pause
      if (report.updateAvailable) report.between = await between(install, instance.version, release.tag)
    }
  } catch (cause) {
    report.problem = problemOf(asBatonError(cause, 'check_failed', 'asking the feed'))
  }
  // trust comes last: asking the feed may have changed it
  return { ...report, database: await database, trust: await install.feed.trust() }
}

const problemOf = ({ code, message }: BatonError): VersionReport['problem'] => ({ code, message })

/** Notes of the releases between the two tags. The check succeeds even if the feed cannot give them. */
async function between(install: ManagedInstall, after: string, before: string): Promise<VersionReport['between']> {
  return await install.feed.notes({ after, before }).catch(() => [])
}

/** Name and schema version of the database that an update snapshots; null if there is none. `schema`: null if unreadable. */
async function databaseOf(install: ManagedInstall): Promise<VersionReport['database']> {
  const { database } = install
  if (database === null || !(await exists(database))) return null
  const schema = await imageOf(install)
    .then((executable) => schemaOf(executable, database))
    .catch(() => null)
  return { name: basename(database), schema }
}

/** At most so long. `isNew`: whether the client has not seen this status yet. */
export interface LongPoll {
  mostMs: number
  isNew(status: Status): boolean
}

/**
 * The status of `GET /admin/update/status?wait=SECONDS`, once it is new, or the operation or the journal has changed; at the latest after
 * `mostMs`, or when `leaving` aborts, as this process is to end. Beside a switch of this process it waits for a single look: an open request
 * would be one more that the switch has to wait for. `wait` null: at once.
 */
export async function changed(
  { stateDirectory }: Pick<ManagedInstall, 'stateDirectory'>,
  running: () => Running | null,
  status: () => Promise<Status>,
  wait: LongPoll | null,
  leaving: AbortSignal,
): Promise<Status> {
  if (wait === null) return await status()
  const look = async () => {
    const written = await stat(journalPath(stateDirectory)).catch(() => null)
    return `${written?.ino} ${written?.mtimeMs} ${JSON.stringify(running()?.operation)}`
  }
  const isSwitching = () => running()?.operation.outcome === null && running()?.operation.stage === 'restart'
  const deadline = performance.now() + wait.mostMs
  const first = await look()
  const now = await status()
  if (wait.isNew(now)) return now
  do await sleep(LOOK_EVERY_MS, undefined, { signal: leaving }).catch(() => {})
  while (!leaving.aborted && !isSwitching() && performance.now() < deadline && (await look()) === first)
  return await status()
}

/** `running`: the operation that this process carries out, or carried out last. */
export async function statusOf(
  install: ManagedInstall,
  running: Running | null,
  instance: Instance,
  next: Omit<NextSwitch, 'expectedMs'>,
): Promise<Status> {
  const state = await install.journal.read()
  const operation = newestOf(state.operation, running)
  const isInFlight = operation !== null && operation.outcome === null
  const isStarting = isInFlight && operation.stage === 'restart' && onProbation(state.probation) === null
  const starting = isStarting ? await readProgress(install.stateDirectory, operation) : null
  if (operation !== null && starting !== null) operation.starting = starting
  // During a restart the backup is the release that ran before. Asking the file would start a process at the worst moment.
  const backupTag = async () =>
    isInFlight && operation.stage === 'restart' ? operation.from : await installedTag(install.places.backup)
  const backup = (await exists(install.places.backup)) ? await backupTag().catch(() => null) : null
  const trust = await install.feed.trust()
  return {
    state: isInFlight ? 'in_flight' : 'idle',
    operation,
    instance,
    backup,
    probation: isInFlight ? onProbation(state.probation) : null,
    switch: { ...next, expectedMs: lastPause(state.history)?.pauseMs ?? null },
    trust,
    schedule: await scheduleReport(install, { journal: { ...state, operation }, trust, next }),
    history: state.history,
    copies: (await keptCopies(install.stateDirectory, install.database)).slice(0, COPIES_MAX),
  }
}

/** `noted`: the journal's. The operation in memory has the progress, which the journal has not. */
function newestOf(noted: Operation | null, running: Running | null): Operation | null {
  const own = running !== null && running.operation.id === noted?.id ? running.operation : null
  // prefer it also if its outcome could not be written
  const isAhead = own !== null && (own.outcome === null || noted?.outcome === null)
  return isAhead ? structuredClone(own) : noted
}

/** What the journal remembers, newest first; first the operation in flight. */
export async function operationsOf({ journal }: ManagedInstall, running: Running | null): Promise<Operation[]> {
  const { operation, history } = await journal.read()
  const newest = newestOf(operation, running)
  return newest === null || history.some(({ id }) => id === newest.id) ? history : [newest, ...history]
}

function onProbation(probation: Probation | null): Status['probation'] {
  if (probation === null || probation.until === null) return null
  return { tag: probation.to, since: probation.since, until: probation.until }
}

/** The refusal to go on at once. */
export function waitsForNothing(): BatonError {
  return new BatonError('too_late', 'no operation is waiting for the application to finish its work')
}

/** The refusal to cancel, from the present status. */
export function tooLate({ operation }: Status): BatonError {
  if (operation === null) return new BatonError('too_late', 'no operation is running')
  const { id, kind, stage, outcome } = operation
  if (outcome !== null)
    return new BatonError('too_late', `no operation is running: ${kind} ${id} has ended (${outcome})`)
  return new BatonError('too_late', `it is too late to cancel ${kind} ${id}: it is in the ${stage} stage`, {
    hint: 'wait until the new version has proved itself or has been reverted; `POST /admin/update/rollback` can undo it afterwards',
  })
}
