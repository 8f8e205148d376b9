// A copy of the database from before the new version opens it, made by SQLite itself. Never by copying the file: of a
// database in WAL mode with an open writer a plain copy kept 1 of 5,001 rows and still passed integrity_check.
// Power cut: the temporary name is cleared at the next start; a snapshot appears under its name whole or not at all.

import { readdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { type Copier, copyDatabase } from '../copy-database.ts'
import { type Disk, ROOM_BYTES, roomIn, temporaryName } from '../disk.ts'
import { BatonError, reasonOf } from '../errors.ts'
import { updateDirectory } from '../journal.ts'
import { within } from './within.ts'

export const SNAPSHOTS_KEPT = 2

export function snapshotDirectory(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'snapshots')
}

/**
 * Path of the new snapshot, or null where there is no database yet. Throws swap_failed where it cannot be made.
 */
export async function snapshot(
  disk: Disk,
  database: string,
  stateDirectory: string,
  from: string,
  copier: Copier,
): Promise<string | null> {
  const size = await sizeOf(database)
  if (size === null) return null
  const directory = snapshotDirectory(stateDirectory)
  await disk.makeDirectory(directory, 0o700)
  const [room, needed] = [await roomIn(directory), Math.ceil(size * 1.1)]
  if (room < needed) {
    throw new BatonError(
      'swap_failed',
      `expected ${needed + ROOM_BYTES} bytes free for a snapshot of ${database} beside the service, found ${room + ROOM_BYTES}`,
      { hint: `free some space on the disk of ${directory}` },
    )
  }
  const stamp = new Date()
    .toISOString()
    .replaceAll(/[-:]/g, '')
    .replace(/\.\d+Z$/, 'Z')
  const path = join(directory, `${basename(database)}.${from}.${stamp}`)
  const temporary = temporaryName(path)
  try {
    await (await disk.create(temporary, 0o600)).close() // so that it has the right mode and owner from the first byte
    await copyDatabase(database, temporary, copier)
    await disk.flushPath(temporary)
    await disk.rename(temporary, path)
    await disk.flushDirectory(directory)
  } catch (cause) {
    await disk.remove(temporary)
    throw within(cause, 'swap_failed', `making a snapshot of ${database}`)
  }
  await dropOld(disk, directory, basename(database))
  return path
}

async function dropOld(disk: Disk, directory: string, name: string): Promise<void> {
  const all = (await readdir(directory)).filter((entry) => entry.startsWith(`${name}.v`))
  const aged = await Promise.all(
    all.map(async (entry) => ({ entry, at: (await stat(join(directory, entry))).mtimeMs })),
  )
  aged.sort((a, b) => b.at - a.at)
  for (const { entry } of aged.slice(SNAPSHOTS_KEPT)) await disk.remove(join(directory, entry))
}

async function sizeOf(database: string): Promise<number | null> {
  try {
    const main = (await stat(database)).size
    const wal = await stat(`${database}-wal`).catch(() => null)
    return main + (wal?.size ?? 0)
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null
    throw new BatonError('swap_failed', `looking at ${database}: ${reasonOf(cause)}`, { cause })
  }
}
