// Copies an SQLite database between two of its writes, without a lock. SQLite's own copy keeps writers out for as long as it lasts unless
// the database is in WAL mode, and a driver without a busy timeout (that of node:sqlite has none) then refuses its application's rows.
// Must hold: what counts as a copy holds no part of a transaction. No process in which the application runs may call this:
// `copy-database.ts` says why.
//
// A transaction writes its journal first, then pages, the first of which has the file's change counter, then does away with the
// journal. So if there was no journal when the copying began and none when it had ended, and the counter and the time of the last
// write are still the same, nobody wrote meanwhile. A transaction that has written pages without a
// journal's file holds a lock, which is asked for and never taken.
// https://www.sqlite.org/fileformat2.html, https://www.sqlite.org/atomiccommit.html

import { type FileHandle, open, realpath, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ALL_PAGES, openToRead } from './orders.ts'
import { isWriteLocked } from './sqlite-locks.ts'

const [TRIES_MS, TRY_EVERY_MS] = [3000, 3]
/** longer than the steps in which file systems tell the time of a write */
const STILL_MS = 12
const HEADER_BYTES = 100
const [READ_VERSION_AT, COUNTER_AT, SCHEMA_AT] = [19, 24, 60]
const WAL = 2
const MAGIC = 'SQLite format 3\0'
const HOT = Buffer.from('d9d505f920a163d7', 'hex')
const PIECE_BYTES = 1024 * 1024

/** Copies `from` to `to` in this process: between two writes if there is a moment, else by SQLite. `to` is there, and empty. */
export async function copyHere(from: string, to: string): Promise<void> {
  if (await copyBetweenWrites(from, to)) return
  const source = openToRead(from)
  try {
    await process.getBuiltinModule('node:sqlite').backup(source, to, { rate: ALL_PAGES })
  } finally {
    source.close()
  }
}

/** Writes to `to`, which is there and empty. False if no moment was found: then it is empty still. */
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

/** `PRAGMA user_version`; null if its file does not tell: a write-ahead log or a journal has it, or somebody writes. */
export async function schemaInHeader(database: string): Promise<number | null> {
  const path = await realpath(database)
  const before = await stateOf(path)
  if (before === 'wal' || before === null) return null
  const header = await firstBytes(path, HEADER_BYTES)
  const isWhole = header.length === HEADER_BYTES && isPlain(header)
  return isWhole && (await stateOf(path)) === before ? header.readInt32BE(SCHEMA_AT) : null
}

/** Whether somebody writes to it within `ms`; false for a database in WAL mode, whose writers no copy disturbs. */
export async function isWrittenTo(database: string, ms: number): Promise<boolean> {
  const path = await realpath(database)
  const before = await stateOf(path)
  if (before === 'wal') return false
  await sleep(ms)
  return before === null || (await stateOf(path)) !== before
}

/** The state in which it has been for a while; null if it was written to meanwhile. */
async function stillness(path: string): Promise<string | null> {
  const before = await stateOf(path)
  if (before === 'wal' || before === null) return before
  await sleep(STILL_MS)
  return (await stateOf(path)) === before ? before : null
}

/** A text that is another one after each transaction. Null while one has a journal, or writes. */
async function stateOf(path: string): Promise<string | null> {
  // looked at twice: a transaction that ends after the first look at the counter, or begins before the second, is told by one of them
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

/** An application that encrypts its database hides the header too: then only a log tells of WAL mode. */
function isPlain(header: Buffer): boolean {
  return header.toString('latin1', 0, MAGIC.length) === MAGIC
}

async function hasLog(path: string): Promise<boolean> {
  const log = await stat(`${path}-wal`).catch(() => null)
  return log !== null && log.size > 0
}

/** What is left of an ended transaction has no such head, in each journal mode that has a file. */
async function hasJournal(path: string): Promise<boolean> {
  try {
    return (await firstBytes(path, HOT.length)).equals(HOT)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw cause
  }
}

async function firstBytes(path: string, count: number): Promise<Buffer> {
  await using file = await open(path, 'r')
  const { buffer, bytesRead } = await file.read(Buffer.alloc(count), 0, count, 0)
  return buffer.subarray(0, bytesRead)
}
