// Whether an operation can write what it is going to: compares that with what is free on the disk. The update, its dry run, `doctor` and
// an install share this one calculation, so that none promises what another refuses.

import { access, constants, realpath, stat, statfs } from 'node:fs/promises'
import { mebibytes, nearestExisting } from './disk.ts'
import { ROOM_BYTES } from './reserve.ts'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'
import { updateDirectory } from './places.ts'
import type { Asset } from '../words/release.ts'
import { series } from '../words/series.ts'

/** Bytes to be written below a directory, which need not exist yet. */
export interface Need {
  directory: string
  bytes: number
  /** for a message: `the executable` */
  what: string
  /** so few bytes that they may use the room that is kept free for the service */
  isLittle: boolean
}

/** One file system, and the sum of all needs on it. */
export interface Room {
  directory: string
  freeBytes: number
  /** includes what must stay free for the service */
  neededBytes: number
  /** files and folders that may still be made; Infinity if the file system has no fixed number of them */
  freeInodes: number
  neededInodes: number
  what: string
}

/** used if no release.json has the size: executables of Node compress to a fifth */
const USUAL_GROWTH = 6
/** SQLite may make a copy larger than the database by this factor */
const SNAPSHOT_GROWTH = 1.1
/** for the journal, the lock and the reserve */
const STATE_BYTES = 1024 * 1024

/** An operation makes some dozen files and folders; the rest of these stays free for the service. */
const INODES_MIN = 256

/** Needs of an executable of this size in `directory`, beside the present one, and of what it unpacks. */
export function needsOfExecutable(directory: string, bytes: number, unpackedBytes = 0): Need[] {
  const executable = { directory, bytes, what: 'the executable', isLittle: false }
  const unpacked = { directory, bytes: unpackedBytes, what: 'its unpacked files', isLittle: false }
  return unpackedBytes === 0 ? [executable] : [executable, unpacked]
}

/** The same for the executable in this asset, estimated if the feed does not give its size. */
export function needsOfAsset(directory: string, asset: Asset): Need[] {
  const { executable, sizeBytes, compression, unpackedBytes } = asset
  const bytes = executable?.sizeBytes ?? (compression === 'none' ? sizeBytes : sizeBytes * USUAL_GROWTH)
  return needsOfExecutable(directory, bytes, unpackedBytes)
}

/** Null if the database does not exist (yet). Throws swap_failed if its size cannot be read. */
export async function needOfSnapshot(database: string, stateDirectory: string): Promise<Need | null> {
  const bytes = await sizeOf(database)
  if (bytes === null) return null
  const [directory, what] = [updateDirectory(stateDirectory), 'a snapshot of the database']
  return { directory, bytes: Math.ceil(bytes * SNAPSHOT_GROWTH), what, isLittle: false }
}

/** Needs of an update besides the executable. */
export async function needsBeside(state: { database: string | null; stateDirectory: string }): Promise<Need[]> {
  const { database, stateDirectory } = state
  const snapshot = database === null ? null : await needOfSnapshot(database, stateDirectory)
  const directory = updateDirectory(stateDirectory)
  return [
    ...(snapshot === null ? [] : [snapshot]),
    { directory, bytes: STATE_BYTES, what: 'update records', isLittle: true },
  ]
}

/** What is free for these needs, by file system. */
export async function roomFor(needs: readonly Need[]): Promise<Room[]> {
  const byDevice = new Map<number, { directory: string; needs: Need[] }>()
  for (const need of needs) {
    const directory = await nearestExisting(need.directory)
    const { dev } = await stat(directory)
    const on = byDevice.get(dev) ?? { directory, needs: [] }
    byDevice.set(dev, { ...on, needs: [...on.needs, need] })
  }
  return await Promise.all(
    [...byDevice.values()].map(async ({ directory, needs: on }) => {
      const { bavail, bsize, files, ffree } = await statfs(directory)
      const bytes = on.reduce((sum, need) => sum + need.bytes, 0)
      const kept = on.every(({ isLittle }) => isLittle) ? 0 : ROOM_BYTES
      const what = series(
        on.map((need) => need.what),
        'and',
      )
      const freeInodes = files === 0 ? Infinity : ffree
      return {
        directory,
        freeBytes: bavail * bsize,
        neededBytes: bytes + kept,
        freeInodes,
        neededInodes: INODES_MIN,
        what,
      }
    }),
  )
}

/** Throws refused if nothing can be written in the folder of the executable: better before a download than after it. */
export async function assertWritable(directory: string): Promise<void> {
  try {
    await access(directory, constants.W_OK)
  } catch (cause) {
    const found = codeOf(cause) === 'EROFS' ? 'it is on a read-only file system' : reasonOf(cause)
    throw new BatonError('refused', `cannot write to ${directory}, the executable's folder: ${found}`, {
      cause,
      hint: 'run `doctor` to see what the service needs there',
    })
  }
}

/** Throws refused if a file system has too little room, or too few inodes. */
export async function assertRoom(needs: readonly Need[]): Promise<void> {
  const rooms = await roomFor(needs)
  const full = rooms.find((room) => room.freeInodes < room.neededInodes)
  if (full !== undefined) {
    const message = `only ${full.freeInodes} free inodes in \`${full.directory}\`, ${INODES_MIN} needed for ${full.what}`
    throw new BatonError('refused', message, {
      hint: 'remove some files from that disk; `df -i` shows the free inodes',
    })
  }
  const short = rooms.find(({ freeBytes, neededBytes }) => freeBytes < neededBytes)
  if (short === undefined) return
  const { directory, freeBytes, neededBytes, what } = short
  const got = mebibytes(freeBytes, Math.floor)
  const message = `only ${got} free in \`${directory}\`, ${mebibytes(neededBytes)} needed for ${what}`
  const hint = `free up space on that disk; ${mebibytes(ROOM_BYTES)} must stay free for the service`
  throw new BatonError('refused', message, { hint })
}

async function sizeOf(database: string): Promise<number | null> {
  try {
    const main = (await stat(database)).size
    const wal = await stat(`${await realpath(database)}-wal`).catch(() => null)
    return main + (wal?.size ?? 0)
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return null
    throw new BatonError('swap_failed', `checking the size of ${database}: ${reasonOf(cause)}`, { cause })
  }
}
