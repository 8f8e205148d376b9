// Removes folders that releases of kind `app` have unpacked beside the executable, once neither the executable nor its backup
// needs them. A power cut leaves a `.partial-…` that nothing starts, because the folder is renamed before its first file is
// removed; the next unpacking removes it. Must hold: the folders of the executable and of the backup stay. A folder in which the
// application has written what may be data stays too: nothing must be lost. Only a process without the application may call this. It opens
// and closes such files: in the application's own process that would drop the locks of its driver (`copy-database.ts`).

import { open, readdir, stat } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import type { Disk } from './disk.ts'
import type { Places } from './places.ts'

const SQLITE = 'SQLite format 3\0'
/** folders in which an application keeps what it can make again */
const MADE_AGAIN = ['node_modules', '.git', '.baton', '.cache', '.next', 'cache', 'tmp', 'temp', 'log', 'logs']

/** The folder beside the executable into which a service's releases of kind `app` are unpacked: `make/first/unpack.ts`. */
export function unpackedHome(executable: string, service: string): string {
  return join(dirname(executable), `.${service}`)
}

/**
 * `keep`: the tags that are still needed. Returns, for each folder that stays although no release needs it, a file because of which it does.
 * Throws what the file system throws; the next sweep tries again.
 */
export async function sweepUnpacked(
  disk: Disk,
  service: string,
  places: Places,
  keep: readonly string[],
): Promise<string[]> {
  const home = unpackedHome(places.executable, service)
  const kept: string[] = []
  for (const name of await readdir(home).catch(() => [])) {
    if (!/^[0-9a-f]{16}$/.test(name)) continue
    const tags = await readdir(join(home, name, 'tags')).catch(() => null)
    if (tags === null || tags.some((tag) => keep.includes(tag))) continue
    const [written] = await writtenIn(join(home, name))
    if (written !== undefined) {
      kept.push(written)
      continue
    }
    const aside = join(home, `.partial-${process.pid}-${name}`)
    await disk.rename(join(home, name), aside)
    await disk.removeFolder(aside)
  }
  return kept
}

/** Databases that the application has made, or written to, inside its own folder; absolute paths. */
export async function databasesIn(unpacked: string): Promise<string[]> {
  const found: string[] = []
  for (const path of await changedIn(unpacked)) if (await isDatabase(path)) found.push(path)
  return found
}

/** What the application has written inside its own folder and cannot make again, as far as the names tell; absolute paths. */
export async function writtenIn(unpacked: string): Promise<string[]> {
  const found: string[] = []
  for (const path of await changedIn(unpacked))
    if (!isMadeAgain(relative(join(unpacked, 'app'), path)) || (await isDatabase(path))) found.push(path)
  return found
}

/** Pure. Whether a path in an application's folder is that of a cache, a log or a package. */
export function isMadeAgain(path: string): boolean {
  return /\.(log|pid)$/.test(path) || path.split(sep).some((name) => MADE_AGAIN.includes(name))
}

/**
 * Files that are newer than the unpacking. Ignores a file that is missing or vanishes meanwhile: an installation must not fail because
 * of it.
 */
async function changedIn(unpacked: string): Promise<string[]> {
  const changedAt = async (path: string) => (await stat(path).catch(() => null))?.mtimeMs ?? -Infinity
  const unpackedAt = await changedAt(join(unpacked, 'complete'))
  if (unpackedAt === -Infinity) return []
  const found: string[] = []
  const entries = await readdir(join(unpacked, 'app'), { recursive: true, withFileTypes: true }).catch(() => [])
  for (const entry of entries.filter((one) => one.isFile())) {
    const path = join(entry.parentPath, entry.name)
    if ((await changedAt(path)) > unpackedAt) found.push(path)
  }
  return found.toSorted()
}

/** Whether the file begins as an SQLite database does; false if it cannot be read, or is empty. */
export async function isDatabase(path: string): Promise<boolean> {
  await using file = await open(path, 'r').catch(() => null)
  if (file === null) return false
  const { buffer, bytesRead } = await file.read(Buffer.alloc(SQLITE.length), 0, SQLITE.length, 0)
  return buffer.toString('latin1', 0, bytesRead) === SQLITE
}
