// Copies and moves a database and the files that belong to it (`-wal`, `-journal`, `-shm`) as one set. SQLite does not check whether a
// log belongs to the database beside it: it writes an old log over a new database, and removes the log beside an empty file.
// Must hold: a database and another one's log are never at names that a foreign program opens (a cron job, a shell, a replicator). So
// while the logs move, the database's name is a link that leads nowhere: one rename puts the link there, one rename replaces it. A
// process that has the set open already goes on with the set that was put aside.
// Power cut, `kill -9`: the same call goes on where the killed one ended.

import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'

/** Called before each change; a test kills the process there. */
export type SetLook = (what: string) => void

const LOGS = ['-wal', '-journal', '-shm'] as const
/** what rows may be in: SQLite makes `-shm` anew */
export const WITH_ROWS = ['', '-wal', '-journal'] as const
/** the database comes last: once it has its name, the set is complete */
export const SUFFIXES = [...LOGS, ''] as const
/** longer than the resolution of a file system's timestamps */
const STILL_MS = 12
const TRIES = 50
/** how long to wait for a foreign transaction */
const [WRITER_MAX_MS, LOOK_EVERY_MS] = [30_000, 20]

/**
 * Does not copy `-shm`: SQLite makes it anew. Throws if there is no database: nothing may be exchanged for it. Throws if a process writes
 * all the time: a database and a log of different moments are damaged together.
 */
export function copySet(from: string, to: string, look: SetLook): void {
  if (!existsSync(from)) throw new Error(`there is no database at ${from}`)
  for (let tries = 0; tries < TRIES; tries++) {
    const before = stateOf(from)
    pause(STILL_MS)
    if (stateOf(from) !== before) continue
    for (const suffix of SUFFIXES) copyFile(from, to, suffix, look)
    flush(dirname(to))
    if (stateOf(from) === before) return
    removeSet(to, look)
  }
  throw new Error(`expected no process to write to ${from} while it is being copied`)
}

function copyFile(from: string, to: string, suffix: string, look: SetLook): void {
  if (suffix === '-shm' || !existsSync(from + suffix)) return
  look(`copy ${suffix}`)
  rmSync(to + suffix, { force: true })
  try {
    copyFileSync(from + suffix, to + suffix, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE)
  } catch (cause) {
    if (!isGone(cause)) throw cause // the log has ended meanwhile: `copySet` sees that the set has changed
  }
  if (existsSync(to + suffix)) flush(to + suffix)
}

/** A text that differs after each write to the set. It includes the logs: a write may change only a log. */
function stateOf(path: string): string {
  const files = WITH_ROWS.map((suffix) => {
    const found = statSync(path + suffix, { bigint: true, throwIfNoEntry: false })
    return found === undefined ? '-' : [found.ino, found.size, found.mtimeNs].join(' ')
  })
  return files.join(', ')
}

/** Moves a set from a name that no other process knows. If `to` is the name of a database, the database replaces the link there. */
export function moveSet(from: string, to: string, look: SetLook): void {
  for (const suffix of SUFFIXES) moveFile(from, to, suffix, look)
  flush(dirname(from))
  flush(dirname(to))
}

/**
 * Puts the set of the database aside, whole, and leaves a link at its name that leads nowhere. Waits for an open transaction. Throws if a
 * person has put a database in place since a process was killed here.
 */
export function putAside(database: string, aside: string, look: SetLook): void {
  const leaving = join(dirname(database), `.${basename(database)}.leaving`)
  const isThere = existsSync(database)
  if (isThere && existsSync(leaving) && statSync(database).ino !== statSync(leaving).ino) refuseBoth(database, leaving)
  if (isThere && existsSync(aside)) refuseBoth(database, aside)
  if (isThere) shut(database, leaving, look)
  // no process can open it any more: its logs do not change
  for (const suffix of LOGS) moveFile(database, aside, suffix, look)
  if (existsSync(leaving)) moveAs('', leaving, aside, look)
  flush(dirname(database))
  flush(dirname(aside))
}

/** Puts the set at `incoming` in the database's place. Throws as `putAside` does. */
export function putInPlace(incoming: string, database: string, look: SetLook): void {
  if (existsSync(incoming) && existsSync(database)) refuseBoth(database, incoming)
  moveSet(incoming, database, look)
}

function refuseBoth(database: string, other: string): never {
  throw new Error(
    `an interrupted replacement of the database left ${other} behind, but ${database} also exists: move one of them away`,
  )
}

/** First gives the file a second name, then replaces its own name by a link that leads nowhere. */
function shut(database: string, leaving: string, look: SetLook): void {
  waitForWriter(database)
  look('leave')
  rmSync(leaving, { force: true })
  const door = `${leaving}.door`
  rmSync(door, { force: true })
  try {
    symlinkSync(`.${basename(database)}.is-being-exchanged/-`, door)
    linkSync(database, leaving)
  } catch (cause) {
    rmSync(door, { force: true })
    if (!NO_LINKS.includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause
    return renameSync(database, leaving)
  }
  flush(dirname(database))
  look('shut')
  renameSync(door, database)
  flush(dirname(database))
}

/** errors of file systems without links */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK']

/** Waits until no process writes: a transaction removes its rollback journal by name at its end, so the journal must not move. */
function waitForWriter(database: string): void {
  for (const end = performance.now() + WRITER_MAX_MS; isLocked(database); pause(LOOK_EVERY_MS))
    if (performance.now() > end) throw new Error(`a process is still writing to ${database}, so it cannot be replaced`)
}

/**
 * Whether a process that this one can see holds a write lock on the file; false without /proc/locks. proc(5). Does not compare the device:
 * on btrfs and overlayfs the kernel shows another one there than stat() does.
 */
function isLocked(path: string): boolean {
  try {
    const { ino } = statSync(path)
    const locks = readFileSync('/proc/locks', 'utf8')
    return new RegExp(` WRITE +\\d+ [0-9a-f]+:[0-9a-f]+:${ino} `).test(locks)
  } catch {
    return false
  }
}

export function removeSet(path: string, look: SetLook): void {
  const names = new Set(SUFFIXES.map((suffix) => basename(path) + suffix))
  for (const name of readdirSync(dirname(path)).filter((one) => names.has(one))) {
    look(`remove ${name}`)
    rmSync(join(dirname(path), name), { force: true })
  }
}

function moveFile(from: string, to: string, suffix: string, look: SetLook): void {
  if (existsSync(from + suffix)) moveAs(suffix, from + suffix, to + suffix, look)
}

/** All or nothing, by a copy, if `to` is on another file system: a link in the state directory may lead to a database elsewhere. */
function moveAs(suffix: string, from: string, to: string, look: SetLook): void {
  look(`move ${suffix}`)
  try {
    renameSync(from, to)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EXDEV') throw cause
    const copy = join(dirname(to), `.${basename(to)}.incoming`)
    copyFileSync(from, copy)
    flush(copy)
    look('place')
    renameSync(copy, to)
    flush(dirname(to))
    look('remove what was copied')
    rmSync(from)
  }
}

export function flush(path: string): void {
  const descriptor = openSync(path, constants.O_RDONLY)
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

export function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

function isGone(cause: unknown): boolean {
  return (cause as NodeJS.ErrnoException).code === 'ENOENT'
}
