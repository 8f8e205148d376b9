// The copies of the database that updates have left, as `state list`, the status and the panel tell them, and which of them stay.
// Must hold: the newest of each kind stays, and for a week the one from before a reverted update; a copy is kept or removed as a set, with
// its logs. Reads names and the journal, and what is kept of folders says its size itself.

import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { tagOfCopy, timeOfCopy } from '../disk/copies.ts'
import { WITH_ROWS } from '../disk/database-set.ts'
import { type Disk, readSmall } from '../disk/disk.ts'
import { makeJournal } from '../disk/journal.ts'
import { asideDirectory, snapshotDirectory, temporaryName } from '../disk/places.ts'
import { DUMP, FOLDERS } from '../words/snapshot.ts'
import type { Operation, StateCopy } from '../words/state.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'

/** the folder of each kind, in a state directory */
export const COPY_FOLDERS = { snapshot: snapshotDirectory, aside: asideDirectory } as const
export const COPY_KINDS = ['snapshot', 'aside'] as const
type CopyKind = (typeof COPY_KINDS)[number]

/** snapshots: of how many releases; of one more if all of them together have at most OLDER_MAX_BYTES */
export const SNAPSHOTS_KEPT = 2
/** databases that gave way: the newest of them, as many as have at most OLDER_MAX_BYTES together */
export const ASIDE_KEPT = 5
const OLDER_MAX_BYTES = 1024 ** 3
/** how long a copy from before a reverted update stays, whatever is copied after it */
const SPARED_MS = 7 * 24 * 3_600_000
/** suffix of a file that belongs to a copy */
const BESIDE = /-(wal|journal|shm)$/

/** In a copy of folders: its bytes, and which folders there were. */
export const COPY_WORDS = 'copy.json'
const WORDS_MAX_BYTES = 64 * 1024

/** Newest first. `database`: its path; null: none. */
export async function keptCopies(stateDirectory: string, database: string | null): Promise<StateCopy[]> {
  const of = [...(database === null ? [] : [database]), DUMP, FOLDERS]
  const all = COPY_KINDS.map(async (kind) => await copiesIn(kind, stateDirectory, of))
  return (await Promise.all(all)).flat().toSorted((a, b) => (a.at < b.at ? 1 : -1))
}

/** Removes the copies of a kind that are more than are kept. `of`: the path of the database, or DUMP or FOLDERS. */
export async function dropOldCopies(disk: Disk, kind: CopyKind, stateDirectory: string, of: string): Promise<void> {
  const copies = await copiesIn(kind, stateDirectory, [of])
  const spared =
    kind === 'snapshot' ? beforeDamage(copies, (await makeJournal(disk, stateDirectory).read()).history) : []
  const names = new Set([...staying(kind, copies), ...spared].map(({ name }) => name))
  await removeCopies(disk, COPY_FOLDERS[kind](stateDirectory), of, (name) => !names.has(name))
}

/** Removes copies as sets, and what a kill in the middle of this has left of one. */
export async function removeCopies(
  disk: Disk,
  folder: string,
  of: string,
  isOld: (name: string) => boolean,
): Promise<void> {
  const entries = await readdir(folder).catch(() => [])
  // the database before its logs: a database without them would still be listed, and lacks rows
  for (const entry of entries.toSorted((a, b) => a.length - b.length)) {
    const name = entry.replace(BESIDE, '')
    if (tagOfCopy(name, of) !== null && isOld(name)) await removeCopy(disk, join(folder, entry))
  }
}

/** A folder gets a hidden name first: half of one would still be listed. */
export async function removeCopy(disk: Disk, path: string): Promise<void> {
  if ((await lstat(path).catch(() => null))?.isDirectory() !== true) return await disk.remove(path)
  const hidden = temporaryName(path)
  await disk.rename(path, hidden)
  await disk.removeFolder(hidden)
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

/**
 * The copy from before the first update of these days that was reverted: that release may have spoilt the data, and then each later copy of
 * the same release's is a copy of that. Both newest first.
 */
function beforeDamage(copies: readonly StateCopy[], history: readonly Operation[]): StateCopy[] {
  const since = new Date(Date.now() - SPARED_MS).toISOString()
  const first = history.findLast(
    ({ kind, outcome, finishedAt }) => kind === 'update' && outcome === 'reverted' && (finishedAt ?? '') > since,
  )
  if (first === undefined) return []
  return copies.filter(({ tag, at }) => tag === first.from && at >= first.startedAt).slice(-1)
}

/** Newest first. `all`: whose copies: see `dropOldCopies`. */
async function copiesIn(kind: CopyKind, stateDirectory: string, all: readonly string[]): Promise<StateCopy[]> {
  const folder = COPY_FOLDERS[kind](stateDirectory)
  const names: string[] = await readdir(folder).catch(() => [])
  const copies = names.map(async (name) => {
    const of = all.find((one) => tagOfCopy(name, one) !== null)
    const tag = of === undefined ? null : tagOfCopy(name, of)
    const path = join(folder, name)
    if (of === undefined || tag === null) return []
    const files = WITH_ROWS.filter((suffix) => names.includes(name + suffix)) // the database first
    const [found = null, ...logs] = await Promise.all(files.map((suffix) => lstat(path + suffix).catch(() => null)))
    if (found === null) return []
    const set = [found, ...logs.filter((log) => log !== null)]
    const bytes = found.isDirectory() ? (await wordsOfCopy(path))?.bytes : set.reduce((sum, { size }) => sum + size, 0)
    const at = timeOfCopy(name) ?? Math.max(...set.map(({ mtimeMs }) => mtimeMs))
    return bytes === undefined ? [] : [{ name, kind, ...whatOf(of), tag, at, bytes }]
  })
  const aged = (await Promise.all(copies)).flat().toSorted((a, b) => b.at - a.at)
  return aged.map((copy) => ({ ...copy, at: new Date(copy.at).toISOString() }))
}

function whatOf(of: string): Pick<StateCopy, 'of'> {
  return of === DUMP || of === FOLDERS ? { of } : {}
}

/** What a copy of folders says of itself; null: it is none. */
export async function wordsOfCopy(path: string): Promise<{ bytes: number; folders: string[] } | null> {
  const text = await readSmall(join(path, COPY_WORDS), WORDS_MAX_BYTES).catch(() => null)
  const words = text === null ? null : parsedJson(text)
  if (!isObject(words) || typeof words['bytes'] !== 'number' || !Array.isArray(words['folders'])) return null
  return { bytes: words['bytes'], folders: words['folders'].map(String) }
}
