// The way back with the data: finds the snapshot of a release, and writes the mark (`disk/state-mark.ts`) that makes the first code of a
// release take its own data. Operations use it, and the code that ends an interrupted one.

import { readdir, realpath } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { newestCopy } from '../disk/copies.ts'
import { markPath, snapshotDirectory } from '../disk/places.ts'
import { rowsBetween } from '../disk/copy-database.ts'
import type { Disk } from '../disk/disk.ts'
import { forgetOwed, type Owed, paidPath, readOwed, writeOwed } from '../disk/owed.ts'
import type { JournalState } from '../disk/journal.ts'
import { imageOf, type ManagedInstall } from '../disk/managed-install.ts'
import { leftByMark, ownState, readMark, type StateMark } from '../disk/state-mark.ts'
import { ownStart } from '../own.ts'
import { ownCommand } from './own-command.ts'
import { BatonError } from '../words/errors.ts'
import { DUMP, FOLDERS, type SnapshotPlan } from '../words/snapshot.ts'
import { formatLeft, isDone, type Kind, type Operation, type StateMoved } from '../words/state.ts'
import { installedTag } from './version.ts'

const WAY_BACK =
  'use `rollback --restore-state` (or `POST /admin/update/rollback` with `{"restoreState": true}`) to restore the data from before the update; the current data is set aside'

/** The operation that has put `current` in place, if no other has succeeded since; else null. */
export function lastTo(current: string, history: readonly Operation[]): Operation | null {
  const last = history.find(({ outcome }) => isDone(outcome))
  return last?.to === current ? last : null
}

/** Throws schema_newer if the last update has shown that the release before it cannot work on the present data. */
export function refuseNewerSchema({ current }: Pick<ManagedInstall, 'current'>, history: readonly Operation[]): void {
  const last = lastTo(current, history)
  if (last?.trial?.verdict !== 'irreversible') return
  throw new BatonError(
    'schema_newer',
    `${last.from} cannot run on the data that ${current} has changed: ${last.trial.reason}`,
    { hint: WAY_BACK },
  )
}

/**
 * The newest snapshot of the release `named`; null: of the backup executable's. Throws refused if there is none, or if `baton build` did not make
 * this release: it lacks the first code, which restores it.
 */
export async function snapshotFor(
  install: Pick<ManagedInstall, 'database' | 'stateDirectory' | 'places'>,
  named: string | null,
): Promise<{ tag: string; path: string }> {
  if (ownStart() === null) {
    const [stop, restore, start] = ['stop', 'state restore NAME', 'start'].map(ownCommand)
    throw new BatonError(
      'refused',
      'this executable cannot restore a snapshot during a rollback, because it was not made by `baton build`',
      { hint: `run \`${stop}\`, \`${restore}\`, then \`${start}\`` },
    )
  }
  const { database, stateDirectory, places } = install
  const tag = named ?? (await installedTag(places.backup))
  const folder = snapshotDirectory(stateDirectory)
  const names = await readdir(folder).catch(() => [])
  const newest = database === null ? null : newestCopy(names, database, tag)
  if (newest !== null) return { tag, path: join(folder, newest) }
  const dump = newestCopy(names, DUMP, tag) ?? newestCopy(names, FOLDERS, tag)
  if (dump !== null) {
    throw new BatonError('refused', `${tag} keeps its data outside SQLite, so a rollback cannot restore it`, {
      hint: `run \`${ownCommand('stop')}\`, \`${ownCommand(`state restore ${dump}`)}\`, then \`${ownCommand('rollback')}\``,
    })
  }
  throw new BatonError(
    'refused',
    `there is no snapshot of ${basename(database ?? 'the data')} for ${tag} in ${folder}`,
    {
      hint:
        database === null
          ? 'its author has not set `database` in `baton.config.json`, so an update makes no copy of the data'
          : 'an update takes a snapshot for the release being replaced; the snapshots for the last two releases are kept, and `state list` shows them',
    },
  )
}

/** From now on the first code of a release takes its own data, until the operation has succeeded. */
export async function markUpdate(install: ManagedInstall, { id, from, to }: Operation): Promise<void> {
  await writeMark(install, { operationId: id, owner: from, next: to, other: null })
}

/** The same, for data from a snapshot. Throws as `snapshotFor`. */
export async function markRestore(install: ManagedInstall, { id, kind, from, to }: Operation): Promise<void> {
  await writeMark(install, {
    operationId: id,
    owner: from,
    next: null,
    other: await snapshotFor(install, kind === 'update' ? to : null),
  })
}

/** The state of a service in a container, which is no managed install. */
export interface OwnState {
  disk: Disk
  stateDirectory: string
  database: string
}

/** With a hint, if a rollback has failed that left the data as the newer release has written them, and there is a snapshot of them from before. */
export async function withItsData(
  install: ManagedInstall,
  { kind, to, from }: Operation,
  failure: BatonError,
): Promise<BatonError> {
  const { code, message, hint } = failure
  const isOfRelease = code === 'restart_failed' || code === 'probation_failed'
  if (kind !== 'rollback' || !isOfRelease || hint !== null || to === null) return failure
  if ((await snapshotFor(install, to).catch(() => null)) === null) return failure
  const withHint = `if ${to} cannot read the data written by ${from}, ${WAY_BACK}`
  return new BatonError(code, message, { cause: failure, hint: withHint })
}

/** For a container and the one that is to follow it: each has its own data until `settleContainers`. As `markUpdate`. */
export async function markContainers(
  state: OwnState,
  { containers, owner, next }: Required<Pick<StateMark, 'containers' | 'owner' | 'next'>>,
): Promise<void> {
  await writeMark(state, { operationId: 'container', owner, next, other: null, containers })
}

/** At its next start, this container takes the copy at `path` instead of its data, which go aside. */
export async function markContainerRestore(
  state: OwnState,
  { container, tag, path }: { container: string; tag: string; path: string },
): Promise<void> {
  await writeMark(state, {
    operationId: 'container',
    owner: tag,
    next: null,
    other: { tag, path },
    containers: [container],
  })
}

/** Before the application begins in `container`, its first code makes the copies of `plan`. Throws as `owe` does. */
export async function oweCopies(
  state: Pick<OwnState, 'disk' | 'stateDirectory'>,
  what: { container: string; kind: Kind; from: string; plan: SnapshotPlan; executable: string },
): Promise<void> {
  await owe(state, { owes: 'snapshot', operationId: 'container', ...what })
}

/** The same for a copy that this container takes back at its next start. */
export async function oweRestore(
  state: Pick<OwnState, 'disk' | 'stateDirectory'>,
  what: { container: string; name: string; plan: SnapshotPlan },
): Promise<void> {
  await owe(state, { owes: 'restore', aside: null, ...what })
}

/** There is one debt at a time. Throws refused if a restore has begun: until it is done, the data may be half of the one, half of the other. */
async function owe({ disk, stateDirectory }: Pick<OwnState, 'disk' | 'stateDirectory'>, owed: Owed): Promise<void> {
  const left = readOwed(stateDirectory)
  if (left?.owes === 'restore')
    throw new BatonError('refused', `the restore of ${left.name} was interrupted and is not complete`)
  await disk.remove(paidPath(stateDirectory))
  await writeOwed(disk, stateDirectory, owed)
}

/** The containers' switch is over: nobody follows the mark any more. It stays if it tells of other data; resolves to what was exchanged; null: nothing. */
export async function settleContainers(
  { disk, stateDirectory }: Pick<OwnState, 'disk' | 'stateDirectory'>,
  executable: string,
): Promise<StateMoved | null> {
  const mark = readMark(stateDirectory)
  if (mark?.containers === undefined || mark.moving !== null) return null
  for (const path of leftByMark(stateDirectory, mark)) await disk.remove(path)
  const over = { ...mark, containers: [], ended: mark.containers }
  if (mark.exchanged === null) {
    // an update with no way back went through: a rollback must know which copy has the data from before it
    if (mark.other === null || mark.other.tag === mark.owner) await disk.remove(markPath(stateDirectory))
    else await disk.writeWhole(markPath(stateDirectory), JSON.stringify(over), 0o600)
    return null
  }
  const { aside, restored } = mark.exchanged
  const rows = mark.rows ?? (await rowsBetween(executable, { more: aside, than: restored }))
  await disk.writeWhole(markPath(stateDirectory), JSON.stringify({ ...over, rows }), 0o600)
  return { aside, restored, rows }
}

async function writeMark(
  { disk, stateDirectory, database }: Pick<ManagedInstall, 'disk' | 'stateDirectory' | 'database'>,
  mark: Pick<StateMark, 'operationId' | 'owner' | 'next' | 'other' | 'containers'>,
): Promise<void> {
  if (database === null) return
  const file = await realpath(database).catch(() => database)
  const whole: StateMark = { ...mark, database: file, exchanged: null, moving: null }
  await disk.writeWhole(markPath(stateDirectory), JSON.stringify(whole), 0o600)
}

/** Gives the executable in place its own data, if that is decided: no process of the service can have them open. */
export async function giveOwnData({
  stateDirectory,
  places,
}: Pick<ManagedInstall, 'stateDirectory' | 'places'>): Promise<void> {
  ownState(stateDirectory, await installedTag(places.executable))
}

/** The exchange of the database that the mark records for this operation; null: none. Give it to `tellMoved`. */
export async function movedIn(install: ManagedInstall, { id }: Operation): Promise<StateMoved | null> {
  const mark = readMark(install.stateDirectory)
  if (mark?.operationId !== id || mark.exchanged === null) return null
  const { aside, restored } = mark.exchanged
  return { restored, aside, rows: await rowsBetween(await imageOf(install), { more: aside, than: restored }) }
}

/** Notes the exchange in the operation that has ended, wherever it stands. If it has failed, its error says where the rows lie. */
export function tellMoved(
  { operation, history }: JournalState,
  id: string | undefined,
  moved: StateMoved | null,
): void {
  if (moved === null) return
  for (const one of [operation, ...history]) {
    if (one === null || one.id !== id || one.stateMoved !== undefined) continue
    one.stateMoved = moved
    if (one.error === null) continue
    const hint = one.error.hint === undefined ? wayToAside() : `${one.error.hint}; ${wayToAside()}`
    one.error = { ...one.error, message: `${one.error.message}; ${formatLeft(moved)}`, hint }
  }
}

/** Removes the mark, and what is owed, at the end of an operation: from now on the database belongs to the release in place. */
export async function dropMark({
  disk,
  stateDirectory,
}: Pick<ManagedInstall, 'disk' | 'stateDirectory'>): Promise<void> {
  await forgetOwed(disk, stateDirectory, 'snapshot')
  const mark = readMark(stateDirectory)
  if (mark === null) return
  if (mark.moving !== null) ownState(stateDirectory, '') // finishes the exchange that has begun
  for (const path of leftByMark(stateDirectory, mark)) await disk.remove(path)
  await disk.remove(markPath(stateDirectory))
}

/** What shows a database that an exchange has put aside, and what brings it back. */
export function wayToAside(): string {
  return `\`${ownCommand('state list')}\` shows it; to bring it back, run \`${ownCommand('stop')}\`, then \`${ownCommand('state restore NAME')}\``
}
