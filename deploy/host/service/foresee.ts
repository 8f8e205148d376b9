// Says what an operation would do, for an honest dry run: it asks the feed, looks at the backup, and throws what the operation
// would throw. Changes nothing anywhere; what a rehearsal writes meanwhile, `rehearse.ts` removes.

import { dirname } from 'node:path'
import {
  refuseBarred,
  assertDatabaseThere,
  assertRoom,
  assertWritable,
  doneAs,
  foreseeOtherWire,
  makeDisk,
  knownRehearsal,
  makeJournal,
  type ManagedInstall,
  needsBeside,
  needsOfAsset,
  noBackup,
  openFeed,
  placesOf,
  type Receipt,
  refuseIrreversible,
  refuseNewerSchema,
  snapshotFor,
} from '../../../agent/install.ts'
import {
  badEntry,
  compareTags,
  type ExpectedPause,
  expectedPause,
  type Kind,
  lastPause,
  latestFor,
  type Skip,
  type NextSwitch,
  pauseFault,
  type Rehearsal,
  type Release,
  type Status,
  type Order,
  orderOf,
} from '../../../agent/words.ts'
import { formatCrashes } from '../supervisor/crashes.ts'
import { badOf, tellBefore, tellOfSkipped } from './advice.ts'
import { connect } from './client.ts'
import { feedOf, readAccess } from './configuration.ts'
import { refuseInFlight, refuseRestore, standingOf, whatToDo } from './operate.ts'
import type { Outside } from './outside.ts'
import { databaseOf } from './own-database.ts'
import { rehearseAhead } from './rehearse.ts'
import type { Operate } from './request.ts'

export interface Foreseen {
  would: 'updated' | 'rolled_back' | 'up_to_date'
  from: string
  to: string
  /** of the asset that this host would take, hex; null if there is no asset to fetch */
  sha256: string | null
  /** how the one would replace the other; null: nothing is switched, since nothing is to be done or nobody serves */
  switch: ForeseenSwitch | null
  /** null: nothing is known, or the service keeps no database */
  trial: Rehearsal | null
}

export interface ForeseenSwitch extends Pick<NextSwitch, 'expectedMs'> {
  /** null: not known */
  order: Order | null
  /** null: not known */
  shownBy: ExpectedPause['shownBy'] | null
  /** null: not known */
  maxPauseMs: number | null
}

/** Throws what the operation would throw. */
export async function foresee(receipt: Receipt, request: Operate, outside: Outside): Promise<Foreseen> {
  const status = await connect(await readAccess(receipt.configPath)).status()
  refuseInFlight(status)
  if (status === null) outside.note(await whyDown(receipt, outside))
  const standing = await standingOf(receipt, status)
  const { current: from, backup } = standing
  const act = whatToDo(request, standing)
  if (act === null) {
    refuseRestore(request, from)
    return { would: 'up_to_date', from, to: from, sha256: null, switch: null, trial: null }
  }
  await tellBefore(receipt, { request, act, standing }, outside)
  await assertWritable(dirname(receipt.executable))
  const journal = makeJournal(makeDisk(), receipt.stateDirectory)
  const [database, places] = [await databaseOf(receipt), placesOf(receipt.executable)]
  const data = { database, places, stateDirectory: receipt.stateDirectory }
  if (act.kind === 'rollback') {
    if (backup === null) throw noBackup(places)
    if (request.restoreState) outside.note(whatBecomes(await snapshotFor(data, null)))
    else refuseNewerSchema({ current: from }, (await journal.read()).history)
    if (status !== null) await foreseeOtherWire({ places, current: from }, places.backup, backup, 'rollback')
    const next = foreseeSwitch('rollback', status, request.restoreState ? 'stop-first' : null, null)
    return { would: 'rolled_back', from, to: backup, sha256: null, switch: next, trial: null }
  }
  await using feed = openFeed(outside.feedAt(await feedOf(receipt)), { service: receipt.service, stateDirectory: null })
  const release = await releaseFor(receipt, act.tag, from, feed)
  const sha256 = release?.asset.sha256 ?? null
  const stays = release === null || release.tag === from || (act.tag === null && compareTags(release.tag, from) < 0)
  if (stays) {
    await tellOfSkipped(receipt, act.tag, from, outside)
    return { would: 'up_to_date', from, to: from, sha256, switch: null, trial: null }
  }
  if (!request.restoreState) refuseBarred(release, from)
  await assertDatabaseThere(database, receipt.stateDirectory)
  const install = { database, journal, current: from, places, runningImage: async () => null }
  if (request.restoreState) outside.note(whatBecomes(await snapshotFor(data, release.tag)))
  const known = request.restoreState ? null : await knownRehearsal(install, release)
  if (!request.allowIrreversible && !request.rehearse) refuseIrreversible(release, known) // a trial refuses by itself
  await assertRoomOf(receipt, release)
  const foreseen = (rehearsal: Rehearsal | null) => {
    const isAlone = request.restoreState || rehearsal?.verdict === 'irreversible' // the two releases cannot share the data
    const asked = isAlone ? 'stop-first' : (release.order ?? null)
    return foreseeSwitch('update', status, asked, request.restoreState ? null : rehearsal)
  }
  const next = foreseen(known)
  const rehearsal = request.rehearse
    ? await rehearseAhead(receipt, request, release, feed, status !== null, outside)
    : known
  return {
    would: doneAs({ kind: 'update', from, to: release.tag }),
    from,
    to: release.tag,
    sha256,
    switch: rehearsal === known ? next : foreseen(rehearsal),
    trial: rehearsal,
  }
}

async function whyDown(receipt: Receipt, outside: Outside): Promise<string> {
  const supervisor = outside.supervisor(receipt)
  const { word, crashes } = await supervisor.state()
  const how = crashes === null ? '' : `: ${formatCrashes(crashes)}; see \`${supervisor.logCommand}\``
  return `${receipt.service} is not running (${word}; ${supervisor.description})${how}`
}

function whatBecomes({ path }: { path: string }): string {
  return `the database would be set aside and replaced with a copy of ${path}: anything written after that snapshot would remain only in the old database`
}

/**
 * `asked`: what the other release asks for; null: not known. `rehearsal`: what is known of it on these data. Throws if the service would refuse when it comes to the
 * switch.
 */
export function foreseeSwitch(
  act: Kind,
  status: Status | null,
  asked: Order | null,
  rehearsal: Rehearsal | null,
): ForeseenSwitch | null {
  if (status === null) return null
  const { order = null, maxPauseMs = null } = status.switch ?? {}
  const expected = status.switch === undefined ? null : expectedPause(lastPause(status.history), rehearsal)
  // a release that starts slowly must not bar the way back from it
  const fault = act === 'rollback' || maxPauseMs === null ? null : pauseFault(expected, maxPauseMs)
  const both = orderOf(order, asked)
  if (both === 'stop-first' && fault !== null) throw fault
  return { order: both, expectedMs: expected?.expectedMs ?? null, shownBy: expected?.shownBy ?? null, maxPauseMs }
}

/** The release that the check stage would find. It looks for a named tag even if that tag is in place already. */
async function releaseFor(
  receipt: Receipt,
  tag: string | null,
  from: string,
  feed: ManagedInstall['feed'],
): Promise<Release | null> {
  if (tag !== null) return await feed.byTag(tag)
  const bad = await badOf(receipt)
  const failed: Skip = ({ tag: found, asset }) => badEntry(bad, found, asset.sha256) !== null
  const newest = await feed.latest(Object.assign(failed, { from }))
  const release = latestFor(newest, from)
  if (release === null && newest.problem !== null) throw newest.problem
  return release
}

/** Checks for room as the download stage would. */
async function assertRoomOf(receipt: Receipt, { asset }: Release): Promise<void> {
  const { executable, stateDirectory } = receipt
  const database = await databaseOf(receipt)
  await assertRoom([...needsOfAsset(dirname(executable), asset), ...(await needsBeside({ database, stateDirectory }))])
}
