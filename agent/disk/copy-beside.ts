// Copies the files that an author names in `trial.files`, for a rehearsal, or the folders of `snapshot`, all of them. If another database is among them, it is copied as a
// database, without its log and its journal.
// Must hold: no process in which the application runs calls this; `copy-database.ts` says why. Neither links nor sockets are copied.

import { lstat, readdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Disk, exists, mebibytes } from './disk.ts'
import { copyHere } from './quiet-copy.ts'
import { isDatabase } from './sweep.ts'

/** of all these files together */
export const FILES_MAX_BYTES = 1024 ** 3
const FILES_MAX = 10_000

export interface Beside {
  /** folders */
  from: string
  to: string
  /** names of files and folders in `from`; a missing one is left out */
  files: readonly string[]
  /** however many and large they are */
  isWhole?: boolean
}

/** Throws if they are too many or too large. */
export async function copyBeside(disk: Disk, { from, to, files, isWhole = false }: Beside): Promise<void> {
  const left = isWhole ? { bytes: Infinity, files: Infinity } : { bytes: FILES_MAX_BYTES, files: FILES_MAX }
  for (const name of files) await copyAll(disk, join(from, name), join(to, name), left)
}

async function copyAll(disk: Disk, from: string, to: string, left: { bytes: number; files: number }): Promise<void> {
  const found = await lstat(from).catch(() => null)
  if (found?.isDirectory() === true) {
    await disk.makeDirectory(to, 0o700)
    for (const name of await readdir(from)) await copyAll(disk, join(from, name), join(to, name), left)
    return
  }
  const owner = /^(.+)-(wal|shm|journal)$/.exec(from)?.[1]
  if (found?.isFile() !== true || (owner !== undefined && (await isDatabase(owner)))) return
  left.bytes -= found.size
  left.files -= 1
  if (left.bytes < 0 || left.files < 0)
    throw new Error(`\`trial.files\` covers more than ${mebibytes(FILES_MAX_BYTES)} or more than ${FILES_MAX} files`)
  await disk.makeDirectory(dirname(to), 0o700)
  if (await exists(to)) return // named twice
  if (!(await isDatabase(from))) return await disk.copy(from, to, found.mode & 0o700)
  await (await disk.create(to, 0o600)).close()
  await copyHere(from, to)
}
