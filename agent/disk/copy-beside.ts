// Copies the files that an author names in `trial.files`, for a rehearsal, or the folders of `snapshot`, all of them. If another database is among them, it is copied as a
// database, without its log and its journal.
// Must hold: no process in which the application runs calls this; `copy-database.ts` says why. Neither links nor sockets are copied.

import { lstat, readdir, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf } from '../words/errors.ts'
import { type Disk, exists, mebibytes } from './disk.ts'
import { copyHere } from './quiet-copy.ts'
import { isDatabase } from './sweep.ts'

/** of all these files together */
export const FILES_MAX_BYTES = 1024 ** 3
const FILES_MAX = 10_000
/** An application that writes a small file anew empties it first. A larger one, or one that changes all the time, is copied as it is. */
const [REST_TRIES, REST_MS, REST_MAX_BYTES] = [20, 20, 16 * 1024 ** 2]
/** an empty file that is younger may be one of these */
const FRESH_MS = 1000
/** for all files together */
const RESTS_MAX = 100

interface Left {
  bytes: number
  files: number
  /** waits for a file that is being written */
  rests: number
}

interface Copied {
  from: string
  to: string
  mode: number
}

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
  const most = isWhole ? { bytes: Infinity, files: Infinity } : { bytes: FILES_MAX_BYTES, files: FILES_MAX }
  const left = { ...most, rests: RESTS_MAX }
  for (const name of files) await copyAll(disk, join(from, name), join(to, name), left)
}

async function copyAll(disk: Disk, from: string, to: string, left: Left): Promise<void> {
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
  if (!(await isDatabase(from))) return await copyAtRest(disk, { from, to, mode: found.mode & 0o700 }, left)
  await (await disk.create(to, 0o600)).close()
  await copyHere(from, to)
}

/** Copies a file between two writes, if there is such a moment soon. One that vanishes meanwhile, such as a temporary file, is left out. */
async function copyAtRest(disk: Disk, { from, to, mode }: Copied, left: Pick<Left, 'rests'>): Promise<void> {
  for (let tries = REST_TRIES; ; tries--) {
    const before = await stat(from).catch(() => null)
    if (before === null) return
    try {
      await disk.copy(from, to, mode)
    } catch (cause) {
      if (codeOf(cause) !== 'ENOENT') throw cause
      return await disk.remove(to)
    }
    const isFresh = before.size === 0 && (await stat(to)).mtimeMs - before.mtimeMs < FRESH_MS
    if (isFresh && left.rests-- > 0) await sleep(REST_MS)
    const after = await stat(from).catch(() => null)
    if (after === null) return await disk.remove(to)
    const isSame = before.mtimeMs === after.mtimeMs && before.size === after.size
    if (isSame || tries <= 1 || after.size > REST_MAX_BYTES || left.rests-- <= 0) return
    await sleep(REST_MS)
    await disk.remove(to)
  }
}
