// Whether another process writes to an SQLite database, or has it open at all: a replicator, a cron job, a shell. If the file were
// exchanged, such a process would go on with the old one.
// Must hold: no process that has the database open calls this, since closing a descriptor drops the locks of its own process.

import { readdirSync, readlinkSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { callLibc, hasLibc } from '../sockets/libc.ts'

/** lockf(3). SQLite's locks lie in the 512 bytes from 1 GiB on; a connection in WAL mode has one as long as it is open. */
const [F_ULOCK, F_TLOCK, F_TEST, LOCKS_END] = [0, 2, 3, 0x4000_0200n]

/** What `foreignHolder` says of a process that this user may not look at. Root's own command can name it. */
export const ANOTHER_USERS = "another user's process"

/** Whether another process holds a lock to write: a transaction has written, or is about to. False if this host cannot tell. */
export async function isWriteLocked(database: string): Promise<boolean> {
  if (!canTell()) return false
  await using file = await open(database, 'r')
  return callLibc('lockf', file.fd, F_TEST, LOCKS_END) !== 0
}

/** Names the process that has it open, such as `litestream (pid 812)`; null: no process that this one can see has it open. */
export async function foreignHolder(database: string): Promise<string | null> {
  const holder = namedHolder(database)
  if (holder !== null) return holder
  if (!canTell()) return null
  await using file = await open(database, 'r+').catch(() => null)
  if (file === null) return null
  if (callLibc('lockf', file.fd, F_TLOCK, LOCKS_END) !== 0) return ANOTHER_USERS
  callLibc('lockf', file.fd, F_ULOCK, LOCKS_END)
  return null
}

function canTell(): boolean {
  return process.platform === 'linux' && hasLibc()
}

/** Looks at the descriptors of every process that this one may inspect: those of the same user. */
function namedHolder(database: string): string | null {
  for (const pid of directoryOf('/proc').filter((name) => /^\d+$/.test(name) && name !== String(process.pid))) {
    const isOpen = directoryOf(`/proc/${pid}/fd`).some((fd) => linkAt(`/proc/${pid}/fd/${fd}`) === database)
    if (isOpen) return `${nameOf(linkAt(`/proc/${pid}/exe`))} (pid ${pid})`
  }
  return null
}

function nameOf(path: string | null): string {
  return path?.split('/').at(-1) ?? 'a process'
}

function directoryOf(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

function linkAt(path: string): string | null {
  try {
    return readlinkSync(path)
  } catch {
    return null
  }
}
