// Reserves room for a rollback: a file of random bytes, removed when the disk is full. An operation must be in the journal before
// it begins. A full disk is a reason to roll back, so it must not prevent the rollback.

import { codeOf } from '../words/errors.ts'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Disk } from './disk.ts'
import { nodeCrypto, nodeFiles } from '../words/later.ts'

/** the usual size; on a nearly full disk half of what is left, if that is at least LEAST_BYTES */
const [RESERVE_BYTES, LEAST_BYTES] = [512 * 1024, 64 * 1024]

/**
 * Baton leaves this many bytes free on every disk that it writes to: a service must never be refused a write because of Baton.
 */
export const ROOM_BYTES = 32 * 1024 * 1024

/** Bytes that Baton may write in `directory` before it touches the service's share; negative if it is already touched. */
export async function roomIn(directory: string): Promise<number> {
  const { bavail, bsize } = await nodeFiles().statfs(directory)
  return bavail * bsize - ROOM_BYTES
}

function reservePath(directory: string): string {
  return join(directory, 'reserve')
}

/** Whether the reserve is missing and the disk has room for it. */
export async function lacksReserve(directory: string): Promise<boolean> {
  if (existsSync(reservePath(directory))) return false
  // a new install has no such folder yet: report it as missing, so that the folder and the reserve are made
  const room = await roomIn(directory).catch(() => Infinity)
  return room >= 2 * LEAST_BYTES
}

/** Makes the reserve if it is missing and fits on the disk. `directory`: the journal's. Never throws: the reserve only helps. */
export async function keepReserve(disk: Disk, directory: string): Promise<void> {
  try {
    if (!(await lacksReserve(directory))) return
    const bytes = Math.min(RESERVE_BYTES, Math.floor((await roomIn(directory)) / 2))
    await disk.replace(reservePath(directory), async (temporary) => {
      await using file = await disk.create(temporary, 0o600)
      await file.writeFile(nodeCrypto().randomBytes(bytes)) // a file system that compresses would reserve nothing for zeros
      await disk.flush(file, temporary)
    })
  } catch {
    return // the disk is fuller than it was a moment ago
  }
}

/** Runs `write`. If the disk is full, removes the reserve and runs it once more. */
export async function withReserve(disk: Disk, directory: string, write: () => Promise<void>): Promise<void> {
  try {
    await write()
  } catch (cause) {
    if (!isFull(cause)) throw cause
    await disk.remove(reservePath(directory))
    await write()
  }
}

export function isFull(cause: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(codeOf(cause))
}
