// The copies of the database that updates have left, as `state list`, the status and the panel tell them, and which of them stay.
// Must hold: the newest of each kind stays; a copy is kept or removed as a set, with its logs. Reads names only.

import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { tagOfCopy } from '../disk/copies.ts'
import type { Disk } from '../disk/disk.ts'
import { asideDirectory, snapshotDirectory } from '../disk/places.ts'
import type { StateCopy } from '../words/state.ts'

/** the folder of each kind, in a state directory */
export const COPY_FOLDERS = { snapshot: snapshotDirectory, aside: asideDirectory } as const
export const COPY_KINDS = ['snapshot', 'aside'] as const
type CopyKind = (typeof COPY_KINDS)[number]

/** snapshots: of how many releases; of one more if all of them together have at most OLDER_MAX_BYTES */
export const SNAPSHOTS_KEPT = 2
/** databases that gave way: the newest of them, as many as have at most OLDER_MAX_BYTES together */
export const ASIDE_KEPT = 5
const OLDER_MAX_BYTES = 1024 ** 3
/** suffix of a file that belongs to a copy */
const BESIDE = /-(wal|journal|shm)$/

/** Newest first. */
export async function keptCopies(stateDirectory: string, database: string | null): Promise<StateCopy[]> {
  if (database === null) return []
  const all = await Promise.all(COPY_KINDS.map((kind) => copiesIn(kind, stateDirectory, database)))
  return all.flat().toSorted((a, b) => (a.at < b.at ? 1 : -1))
}

/** Removes the copies of a kind that are more than are kept. */
export async function dropOldCopies(
  disk: Disk,
  kind: CopyKind,
  stateDirectory: string,
  database: string,
): Promise<void> {
  const names = new Set(staying(kind, await copiesIn(kind, stateDirectory, database)).map(({ name }) => name))
  await removeCopies(disk, COPY_FOLDERS[kind](stateDirectory), database, (name) => !names.has(name))
}

/** Removes copies as sets, and what a kill in the middle of this has left of one. */
export async function removeCopies(
  disk: Disk,
  folder: string,
  database: string,
  isOld: (name: string) => boolean,
): Promise<void> {
  const entries = await readdir(folder).catch(() => [])
  // the database before its logs: a database without them would still be listed, and lacks rows
  for (const entry of entries.toSorted((a, b) => a.length - b.length)) {
    const name = entry.replace(BESIDE, '')
    if (tagOfCopy(name, database) !== null && isOld(name)) await disk.remove(join(folder, entry))
  }
}

function staying(kind: CopyKind, copies: readonly StateCopy[]): StateCopy[] {
  const isSmall = (some: readonly StateCopy[]) => some.reduce((sum, { bytes }) => sum + bytes, 0) <= OLDER_MAX_BYTES
  if (kind === 'aside') {
    const last = copies.slice(0, ASIDE_KEPT)
    while (last.length > 1 && !isSmall(last)) last.pop()
    return last
  }
  const newest = copies.filter(({ tag }, at) => copies.findIndex((other) => other.tag === tag) === at)
  const last = newest.slice(0, SNAPSHOTS_KEPT + 1)
  return isSmall(last) ? last : last.slice(0, SNAPSHOTS_KEPT)
}

/** Newest first. */
async function copiesIn(kind: CopyKind, stateDirectory: string, database: string): Promise<StateCopy[]> {
  const folder = COPY_FOLDERS[kind](stateDirectory)
  const names = await readdir(folder).catch(() => [])
  const copies = names.map(async (name) => {
    const tag = tagOfCopy(name, database)
    const found = tag === null ? null : await stat(join(folder, name)).catch(() => null)
    return tag === null || found === null ? [] : [{ name, kind, tag, at: found.mtimeMs, bytes: found.size }]
  })
  const aged = (await Promise.all(copies)).flat().toSorted((a, b) => b.at - a.at)
  return aged.map((copy) => ({ ...copy, at: new Date(copy.at).toISOString() }))
}
