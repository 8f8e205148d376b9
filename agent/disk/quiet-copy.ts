// Copies an SQLite database between two of its writes, without a lock. SQLite's own copy keeps writers out for as long as it lasts unless
// the database is in WAL mode, and a driver without a busy timeout (that of node:sqlite has none) then refuses its application's rows.
// Must hold: a copy that succeeds holds no part of an unfinished transaction. No process in which the application runs may call
// this: `copy-database.ts` says why.
//
// A transaction writes its journal first, then pages, the first of which has the file's change counter, and then ends the journal.
// So if there was no journal before the copy and none after it, and the counter and the time of the last write are the same, no
// process wrote meanwhile. A transaction that writes pages without a journal's file holds a lock: this code tests that lock and
// never takes it.
// https://www.sqlite.org/fileformat2.html, https://www.sqlite.org/atomiccommit.html

import { type FileHandle, open, realpath, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf } from '../words/errors.ts'
import { ALL_PAGES, openToRead } from './orders.ts'
import { isWriteLocked } from './sqlite-locks.ts'

const [TRIES_MS, TRY_EVERY_MS] = [3000, 3]
/** longer than the resolution of a file system's timestamps */
const STILL_MS = 12
const HEADER_BYTES = 100
const [READ_VERSION_AT, COUNTER_AT, SCHEMA_AT] = [19, 24, 60]
const WAL = 2
const MAGIC = 'SQLite format 3\0'
const HOT = Buffer.from('d9d505f920a163d7', 'hex')
const PIECE_BYTES = 1024 * 1024

/** Copies `from` to `to` in this process: between two writes if it finds a quiet moment, else by SQLite. `to` must exist, empty. */
export async function copyHere(from: string, to: string): Promise<void> {
  if (await copyBetweenWrites(from, to)) return
  const source = openToRead(from)
  try {
    await process.getBuiltinModule('node:sqlite').backup(source, to, { rate: ALL_PAGES })
  } finally {
    source.close()
  }
}

/** Copies into `to`, which must exist, empty. False if it found no quiet moment: then `to` is still empty. */
export async function copyBetweenWrites(path: string, to: string): Promise<boolean> {
  const from = await realpath(path) // its journal lies beside the file itself, not beside a link to it
  await using file = await open(to, 'r+')
  for (const end = performance.now() + TRIES_MS; performance.now() < end; await sleep(TRY_EVERY_MS)) {
    const before = await stillness(from)
    if (before === 'wal') return false
    if (before === null) continue
    await copyInto(file, from)
    if ((await stateOf(from)) === before) return true
    await file.truncate(0)
  }
  return false
}

/** `PRAGMA user_version`, from the file's header; null if the header may be out of date: WAL mode, a journal, or a writer. */
export async function schemaInHeader(database: string): Promise<number | null> {
  const path = await realpath(database)
  const before = await stateOf(path)
  if (before === 'wal' || before === null) return null
  const header = await firstBytes(path, HEADER_BYTES)
  const isWhole = header.length === HEADER_BYTES && isPlain(header)
  return isWhole && (await stateOf(path)) === before ? header.readInt32BE(SCHEMA_AT) : null
}

/** Whether a process writes to it within `ms`; false for a database in WAL mode, whose writers no copy disturbs. */
export async function isWrittenTo(database: string, ms: number): Promise<boolean> {
  const path = await realpath(database)
  const before = await stateOf(path)
  if (before === 'wal') return false
  await sleep(ms)
  return before === null || (await stateOf(path)) !== before
}

/** The state of the database if it has not changed for STILL_MS; null if it has. */
async function stillness(path: string): Promise<string | null> {
  const before = await stateOf(path)
  if (before === 'wal' || before === null) return before
  await sleep(STILL_MS)
  return (await stateOf(path)) === before ? before : null
}

/** A text that differs after each transaction. Null while a transaction has a journal or writes. */
async function stateOf(path: string): Promise<string | null> {
  // Look twice: a transaction that ends after the first look, or begins before the second, changes what one of them sees.
  const first = await lookAt(path)
  if (first === 'wal') return first
  if ((await hasJournal(`${path}-journal`)) || (await isWriteLocked(path))) return null
  return (await lookAt(path)) === first ? first : null
}

async function lookAt(path: string): Promise<string> {
  const header = await firstBytes(path, HEADER_BYTES)
  if (header[READ_VERSION_AT] === WAL || (!isPlain(header) && (await hasLog(path)))) return 'wal'
  const { mtimeNs, size, ino } = await stat(path, { bigint: true })
  return [header.subarray(COUNTER_AT, COUNTER_AT + 4).toString('hex'), mtimeNs, size, ino].join(' ')
}

async function copyInto(to: FileHandle, path: string): Promise<void> {
  await using from = await open(path, 'r')
  const piece = Buffer.alloc(PIECE_BYTES)
  for (let at = 0; ;) {
    const { bytesRead } = await from.read(piece, 0, piece.length, at)
    if (bytesRead === 0) return
    for (let done = 0; done < bytesRead;) {
      const { bytesWritten } = await to.write(piece, done, bytesRead - done, at + done)
      done += bytesWritten
    }
    at += bytesRead
  }
}

/** False if the application encrypts its database, header included: then only a log shows WAL mode. */
function isPlain(header: Buffer): boolean {
  return header.toString('latin1', 0, MAGIC.length) === MAGIC
}

async function hasLog(path: string): Promise<boolean> {
  const log = await stat(`${path}-wal`).catch(() => null)
  return log !== null && log.size > 0
}

/** Whether a transaction is in progress: the journal that an ended one leaves behind has no such head, in any journal mode. */
async function hasJournal(path: string): Promise<boolean> {
  try {
    return (await firstBytes(path, HOT.length)).equals(HOT)
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return false
    throw cause
  }
}

async function firstBytes(path: string, count: number): Promise<Buffer> {
  await using file = await open(path, 'r')
  const { buffer, bytesRead } = await file.read(Buffer.alloc(count), 0, count, 0)
  return buffer.subarray(0, bytesRead)
}
