// Whether a lock on an SQLite database that a process has met is its own: a second connection that it has opened itself, say. It loads
// next to nothing, as a part of the first code of a release.

import { fstatSync, readdirSync, readFileSync } from 'node:fs'
import { sessionOf } from '../sockets/process.ts'

/** SQLite's locks by their bytes: in the database from 1 GiB on, in the index of a write-ahead log from 120 on. */
const LOCK_BYTES: readonly (readonly [from: number, to: number])[] = [
  [0x4000_0000, 0x4000_0200],
  [120, 128],
]

/**
 * For a process that ends because a database was locked: whether it, or a process that it has started, holds a lock to write on a
 * database that it has open, and nobody else does. False if this cannot be told.
 */
export function isOwnLock(): boolean {
  try {
    const open = new Set(readdirSync('/proc/self/fd').map(inodeOf))
    const holders = writersIn(readFileSync('/proc/locks', 'latin1')).filter(({ inode }) => open.has(inode))
    const own = sessionOf(process.pid)
    return holders.length > 0 && own !== null && holders.every(({ pid }) => sessionOf(pid) === own)
  } catch {
    return false
  }
}

/** Who has a lock to write on which database: from the text of /proc/locks, proc(5). Pure. */
export function writersIn(locks: string): { pid: number; inode: number }[] {
  const found = locks.matchAll(/^\d+: POSIX +\S+ +WRITE (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) (\d+) /gm)
  return [...found]
    .map(([, pid, inode, start]) => ({ pid: Number(pid), inode: Number(inode), start: Number(start) }))
    .filter(({ start }) => LOCK_BYTES.some(([from, to]) => start >= from && start < to))
    .map(({ pid, inode }) => ({ pid, inode }))
}

function inodeOf(fd: string): number {
  try {
    const found = fstatSync(Number(fd))
    return found.isFile() ? found.ino : -1 // a socket has a number of its own kind
  } catch {
    return -1 // it was the descriptor of the listing
  }
}
