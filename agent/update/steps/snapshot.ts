// Copies the database before the new version opens it. SQLite itself makes the copy, or `disk/quiet-copy.ts` finds a moment in which
// no process writes. Never copy the file otherwise: with a database in WAL mode and an open writer, a plain copy kept 1 of 5,001 rows
// and still passed integrity_check.
// Power cut: the next start removes the temporary file; a snapshot appears under its name whole or not at all.

import { opendir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { copyName, tagOfCopy } from '../../disk/copies.ts'
import { type Copier, copyDatabase } from '../../disk/copy-database.ts'
import { type Disk, exists } from '../../disk/disk.ts'
import { snapshotDirectory } from '../../disk/places.ts'
import { assertRoom, needOfSnapshot } from '../../disk/room.ts'
import { BatonError } from '../../words/errors.ts'
import { COPY_KINDS, dropOldCopies } from '../kept-copies.ts'
import { within } from '../rethrow.ts'

/** how many folders a search for the service's files opens at most */
const FOLDERS_MAX = 1000
/** in a state directory: Baton's own folders, and one that a fresh disk has */
const NOT_THE_SERVICES = ['update', 'run', 'lost+found']

/**
 * Throws BatonError refused if the service has files, but not this database: then the release probably names the database wrongly, and
 * an update would go on without a snapshot. A service without files has nothing to lose; an empty file at the database's path says
 * that there are no rows yet. Looks at names only: opens no file of the service.
 */
export async function assertDatabaseThere(database: string | null, stateDirectory: string): Promise<void> {
  if (database === null || (await exists(database))) return
  const snapshots = await readdir(snapshotDirectory(stateDirectory)).catch(() => [])
  const kept = snapshots.find((name) => tagOfCopy(name, database) !== null)
  const other = kept === undefined ? await firstFileIn(stateDirectory) : join(snapshotDirectory(stateDirectory), kept)
  if (other === null) return
  throw new BatonError(
    'refused',
    `there is no database at ${database}, though the service has files, such as ${other}; without it there would be no copy of the data`,
    {
      hint: `if the database has another name, create a symlink to it at that path (\`ln -s\`) and correct \`database\` in the next release; if there is none yet, run \`touch ${database}\` as the service user`,
    },
  )
}

/** Any file of the service; null if there is none. Ignores names that begin with a dot: caches and the like. */
async function firstFileIn(stateDirectory: string): Promise<string | null> {
  const folders = [stateDirectory]
  for (let looked = 0; folders.length > 0 && looked < FOLDERS_MAX; looked++) {
    const folder = folders.shift() ?? ''
    const entries = await opendir(folder).catch(() => null)
    if (entries === null) continue
    for await (const entry of entries) {
      const isTop = folder === stateDirectory
      if (isTop && (entry.name.startsWith('.') || NOT_THE_SERVICES.includes(entry.name))) continue
      if (!entry.isDirectory()) return join(folder, entry.name)
      folders.push(join(folder, entry.name))
    }
  }
  return null
}

/**
 * Resolves to the path of the new snapshot, or null if the database is missing or empty. Throws refused if there is no room for it,
 * swap_failed if it cannot be made.
 */
export async function snapshot(
  disk: Disk,
  database: string,
  stateDirectory: string,
  from: string,
  copier: Copier,
): Promise<string | null> {
  const need = await needOfSnapshot(database, stateDirectory)
  if (need === null || need.bytes === 0) return null
  await assertRoom([need])
  const directory = snapshotDirectory(stateDirectory)
  await disk.makeDirectory(directory, 0o700)
  const path = join(directory, copyName(database, from, new Date()))
  try {
    await disk.replace(path, async (temporary) => {
      await (await disk.create(temporary, 0o600)).close() // so that it has the right mode and owner from the first byte
      await copyDatabase(database, temporary, copier)
      await disk.flushPath(temporary)
    })
    await disk.flushDirectory(directory)
  } catch (cause) {
    throw within(cause, 'swap_failed', `taking a snapshot of ${database}`)
  }
  for (const kind of COPY_KINDS) await dropOldCopies(disk, kind, stateDirectory, database)
  return path
}
