// The last part of verify: tries a release on a copy of the data, before anything changes. Runs in the service's process or in a
// command; a dry run's command runs beside the service. The releases run in the cage.
// Must hold: it leaves nothing but the verdict in the journal. If the rehearsal itself fails, the verdict is `untried`, and the update
// goes on. Two faults end the update: `update.trial` is not valid, or the disk fills up.

import { realpath, stat } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { copyDatabase, copyFilesBy, lookBy, readRehearse } from '../../disk/copy-database.ts'
import { mebibytes } from '../../disk/disk.ts'
import { roomIn } from '../../disk/reserve.ts'
import { imageOf, type ManagedInstall } from '../../disk/managed-install.ts'
import { BatonError, type ErrorCode, reasonOf } from '../../words/errors.ts'
import type { Release } from '../../words/release.ts'
import {
  irreversibleFault,
  type Rehearsal,
  triedBefore,
  type TriedRelease,
  type Untried,
} from '../../words/rehearsal.ts'
import { REHEARSE_MODES, type RehearseMode } from '../../words/bounds.ts'
import { series } from '../../words/series.ts'
import type { Operation } from '../../words/state.ts'
import { quoted } from '../../words/untrusted.ts'
import { operatorsUpdate } from '../operator.ts'
import { AUTO_MAX_BYTES, startMsAfter, wholeMsOf } from './budget.ts'
import { askCage, type Cage, type CageRequest, cageOf, emptyCage } from './ask-cage.ts'
import { judge, refuseLate } from './judge.ts'
import { readReportOf } from './report.ts'

/** Copying a database in rollback mode makes its writers wait; a database of at most this size is copied fast enough. */
const ROLLBACK_MAX_BYTES = 16 * 1024 ** 2
/** A migration needs room for a second copy, and for its journal. */
const ROOM_FACTOR = 2.5

export interface ToRehearse {
  install: ManagedInstall
  operation: Operation
  release: Release
  /** path of the verified executable */
  candidate: string
  /** a person allows a release with no way back */
  allowIrreversible: boolean
  /** a person asks for a rehearsal, whatever an earlier one has shown */
  again?: true
  signal: AbortSignal | undefined
}

/**
 * Rehearses the release and notes the result in the operation; does nothing if the service keeps no database. Throws verify_failed if
 * the release fails on the copy, and irreversible if there is no way back and `allowIrreversible` is false.
 */
export async function rehearse(what: ToRehearse): Promise<void> {
  const { install, operation, release, allowIrreversible } = what
  const { database, journal } = install
  if (database === null || ((await stat(database).catch(() => null))?.size ?? 0) === 0) return
  const wish = await operatorsMode(install)
  const folder = wish === 'never' ? NEVER : await cageFolderOf(install)
  if (typeof folder !== 'string') {
    operation.trial = { ...NOT_TRIED, ...folder } // no process is started to find out that there is no cage
    return
  }
  const executable = await imageOf(install)
  const found = await lookBy(executable, database).catch(() => null)
  const asked = { sha256: release.asset.sha256, from: install.current, schema: found?.schema ?? null }
  const tried = what.again ? [] : ((await journal.read()).tried ?? [])
  const known = triedBefore(tried, asked, Date.now())
  const on = { folder, database, executable, wish, isBusy: found?.isBusy === true }
  const rehearsal = known ?? (await tryOnCopy(what, on))
  operation.trial = rehearsal
  if (known === null) await noteTried(install, { ...asked, to: release.tag, trial: rehearsal })
  if (!allowIrreversible) refuseIrreversible(release, rehearsal)
}

type Knows = Pick<ManagedInstall, 'database' | 'journal' | 'current' | 'places' | 'runningImage'>

/** For the schedule, which then asks a person instead of downloading it again. What was not tried is tried the next time. */
export async function noteTried({ journal }: Pick<ManagedInstall, 'journal'>, entry: TriedRelease): Promise<void> {
  if (entry.trial.verdict === 'untried') return
  const isOther = ({ sha256, from, schema }: TriedRelease) =>
    sha256 !== entry.sha256 || from !== entry.from || schema !== entry.schema
  await journal.change(
    (state) =>
      void (state.tried = [{ ...entry, at: new Date().toISOString() }, ...(state.tried ?? []).filter(isOther)]),
  )
}

/** Throws irreversible if the rehearsal has shown that the release has no way back. */
export function refuseIrreversible({ tag }: Release, rehearsal: Rehearsal | null): void {
  if (rehearsal?.verdict === 'irreversible') throw irreversibleFault(tag, rehearsal)
}

/** What an earlier rehearsal has shown of the release on the data as they are; null: nothing. Copies and starts nothing. */
export async function knownRehearsal(install: Knows, { asset }: Release): Promise<Rehearsal | null> {
  const { database, journal, current } = install
  const tried = (await journal.read()).tried ?? []
  if (database === null || !tried.some((one) => one.sha256 === asset.sha256)) return null
  const look = await lookBy(await imageOf(install), database).catch(() => null)
  return triedBefore(tried, { sha256: asset.sha256, from: current, schema: look?.schema ?? null }, Date.now())
}

/** Removes the copy that a killed process has left behind; its cage has ended with it. Never throws. */
export async function clearCage(install: ManagedInstall): Promise<void> {
  const { service, disk, log } = install
  const folder = await cageFolderOf(install).catch(() => null)
  if (typeof folder !== 'string') return
  await emptyCage({ folder, disk, service }).catch((cause: unknown) =>
    log({
      event: 'warning',
      message: `could not remove what an interrupted trial left in ${folder}: ${reasonOf(cause)}`,
    }),
  )
}

/** The cage's folder, or why there is no cage. */
export function cageFolderOf({ service, receipt, stateDirectory }: ManagedInstall): ReturnType<typeof cageOf> {
  return cageOf(service, receipt?.supervisor ?? 'none', stateDirectory)
}

interface OnCopy {
  /** the cage's */
  folder: string
  database: string
  /** path of the present release */
  executable: string
  /** the operator's mode, unchecked */
  wish: unknown
  /** see `DatabaseLook` */
  isBusy: boolean
}

async function tryOnCopy(what: ToRehearse, on: OnCopy): Promise<Rehearsal> {
  const { database, executable, wish } = on
  const began = performance.now()
  const rehearsal: Rehearsal = { ...NOT_TRIED, reason: '' }
  const ended = (more: Partial<Rehearsal>): Rehearsal => {
    return Object.assign(rehearsal, more, { tookMs: Math.round(performance.now() - began) })
  }
  let cage: Cage | null = null
  try {
    const rules = await readRehearse(executable)
    const opened = await openCage(what.install, on, modeOf(wish ?? rules?.mode ?? 'auto'))
    if ('reason' in opened) return ended(opened)
    cage = opened
    await copyInto(cage, what.install, database, executable, rules?.files ?? [])
    const copyMs = (rehearsal.copyMs = Math.round(performance.now() - began))
    what.signal?.throwIfAborted()
    const about = { database: relative(what.install.stateDirectory, database) }
    return ended(await inCage(cage, what, about, copyMs))
  } catch (cause) {
    return ended(whyUntried(cause, what.signal))
  } finally {
    if (cage !== null) await clearCage(what.install)
  }
}

/** `update.trial` of the operator's configuration, unchecked. Null: it is not there, or nobody can read it: then it is safer to try. */
async function operatorsMode(install: ManagedInstall): Promise<unknown> {
  return (await operatorsUpdate(install))?.['trial'] ?? null
}

function modeOf(value: unknown): RehearseMode {
  const mode = REHEARSE_MODES.find((one) => one === value)
  if (mode !== undefined) return mode
  throw new BatonError(
    'invalid_settings',
    `\`update.trial\`: expected ${series(REHEARSE_MODES, 'or')}, got ${quoted(value)}`,
  )
}

/** errors that end the update: the release fails on the copy or needs more room than there is, or `update.trial` is not valid */
const ABOUT_THE_RELEASE: readonly ErrorCode[] = ['verify_failed', 'refused', 'invalid_settings']

/** Why the rehearsal itself has failed. Throws what ends the update instead: it was cancelled, or the error is about the release. */
export function whyUntried(cause: unknown, signal: AbortSignal | undefined): Untried {
  if (signal?.aborted === true) throw signal.reason as Error
  if (cause instanceof BatonError && ABOUT_THE_RELEASE.includes(cause.code)) throw cause
  return { code: 'trial_failed', reason: reasonOf(cause) }
}

export const NEVER: Untried = { code: 'never', reason: '`trial` is `never`' }

export const NOT_TRIED: Omit<Rehearsal, 'reason'> = {
  verdict: 'untried',
  rows: null,
  copyMs: null,
  migrationMs: null,
  tookMs: 0,
}

/** Empties the cage's folder, and returns the cage; or returns why there is no rehearsal. */
async function openCage(
  { service, stateDirectory, disk }: ManagedInstall,
  { folder, database, isBusy }: OnCopy,
  mode: RehearseMode,
): Promise<Cage | Untried> {
  if (mode === 'never') return NEVER
  if (!database.startsWith(stateDirectory + sep))
    return { code: 'database_outside', reason: 'the database is not in the state directory' }
  const bytes = await bytesOf(database)
  if (mode === 'auto' && bytes > AUTO_MAX_BYTES) {
    return {
      code: 'database_size',
      reason: `the database is ${mebibytes(bytes)}, but \`auto\` allows a trial only up to ${mebibytes(AUTO_MAX_BYTES)}`,
      hint: 'to try it anyway, set `update.trial: "always"` in the configuration',
    }
  }
  if (isBusy && bytes > ROLLBACK_MAX_BYTES) {
    return {
      code: 'journal_mode',
      reason: 'the database is in use and in rollback-journal mode, so writes would wait until the copy is complete',
      hint: 'use `PRAGMA journal_mode = WAL` in the application',
    }
  }
  const cage = { folder, disk, service }
  await emptyCage(cage)
  const room = await roomIn(folder)
  const needed = bytes * ROOM_FACTOR
  if (room < needed)
    return {
      code: 'no_room',
      reason: `a trial needs ${mebibytes(needed)} free in ${folder}, which has ${mebibytes(Math.max(0, room), Math.floor)}`,
    }
  return cage
}

function noStart(service: string): Untried {
  const units = `${service}-trial.path ${service}-trial.service`
  return {
    code: 'not_started',
    reason: 'systemd did not start the trial',
    hint: `run \`systemctl reset-failed ${units}\` and \`systemctl start ${service}-trial.path\` as root; if the units are older than this release, run its \`install.sh\``,
  }
}

/** Has the cage try the release on what has been copied. Throws as `rehearse` does for a release that fails. */
export async function inCage(
  cage: Cage,
  { install, release, candidate, signal }: ToRehearse,
  about: Pick<CageRequest, 'database' | 'environment'>,
  copyMs: number,
): Promise<Partial<Rehearsal>> {
  const startMs = startMsAfter(copyMs, install.readyMs)
  const mostMs = wholeMsOf(startMs)
  const end = await askCage(cage, { do: 'rehearse', candidate, ...about, startMs }, { mostMs, signal })
  if (end.is === 'not-begun') return noStart(install.service)
  const report = readReportOf(end.report)
  if (end.is === 'late') {
    const why = `it did not finish within ${Math.round(mostMs / 1000)} s`
    refuseLate(report, release.tag, why)
    return { code: 'not_finished', reason: why }
  }
  const tags = { from: install.current, to: release.tag }
  return { ...judge(report, tags), copyMs, rows: report.rows, migrationMs: report.candidate?.ms ?? null }
}

/** Puts copies of the database and of the author's files into the cage's folder. */
async function copyInto(
  { folder, disk }: Cage,
  { stateDirectory, serves }: ManagedInstall,
  database: string,
  executable: string,
  files: readonly string[],
): Promise<void> {
  const to = join(folder, relative(stateDirectory, database))
  await disk.makeDirectory(dirname(to), 0o700)
  await (await disk.create(to, 0o600)).close()
  await copyDatabase(database, to, { executable, here: !serves }).catch(async (cause: unknown) => {
    await disk.remove(to) // on a full disk even the request to empty the folder could not be written
    throw cause
  })
  if (files.length > 0) await copyFilesBy(executable, { from: stateDirectory, to: folder, files })
}

async function bytesOf(database: string): Promise<number> {
  const file = await realpath(database).catch(() => database) // its log lies beside the file itself, not beside a link to it
  const sizes = [file, `${file}-wal`].map(async (path) => (await stat(path).catch(() => null))?.size ?? 0)
  return (await Promise.all(sizes)).reduce((sum, bytes) => sum + bytes, 0)
}
