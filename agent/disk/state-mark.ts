// Records which release the database belongs to, during an operation in which the two releases cannot share one: an update with no
// way back, or a rollback that restores a snapshot. The record, called the mark, is a file beside the journal. The first code of a
// release reads it before the application begins, when no process of the service lives, and gives the release its own data.
//
//   update     the mark says: the database belongs to the old release, and the new one comes next
//              the new one starts: it copies the database (exactly, since no process has it open) and names the copy in the mark
//   revert     the old one starts: it puts the database aside and the copy in its place
//   rollback   the mark says from the beginning that the snapshot has the old release's data
//
// Must hold: the database is exchanged as one set (`database-set.ts`); what was there is put aside whole and never removed; if the
// process is killed at any moment, the next start goes on. A start does all this synchronously: nothing else may run meanwhile.
// A command that exchanges the database by hand names itself in the mark first, and only then looks for other processes. A start
// waits as long as that command lives. So if a command and a start begin at the same time, one sees the other.
// In a container there is no operation: the mark names the containers that it is for, and no other follows it.
// A power cut leaves incomplete copies under hidden names only (`incoming`); the end of the operation removes them.

import { existsSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isAlive, startTimeOf } from '../sockets/process.ts'
import type { ProcessName } from '../words/wire.ts'
import { copyName } from './copies.ts'
import {
  copySet,
  flush,
  moveSet,
  pause,
  putAside,
  putInPlace,
  removeSet,
  type SetLook,
  SUFFIXES,
} from './database-set.ts'
import { asideDirectory, journalPath, markPath, snapshotDirectory } from './places.ts'

export interface StateMark {
  /** the operation that it is for; during another one, or after its success, the mark means nothing */
  operationId: string
  /** absolute path of the file itself, no link: `-wal` and `-journal` lie beside that */
  database: string
  /** tag of the release whose data are at `database` */
  owner: string
  /** tag of the release whose data will be made from the owner's; null: they are made already */
  next: string | null
  /** the data of the other release: path of a copy, to which `-wal` and `-journal` may be added */
  other: { tag: string; path: string } | null
  /** what was put aside in this operation, and what took its place */
  exchanged: { aside: string; restored: string } | null
  /** an exchange that has begun: `aside` is where the owner's data go; the step is `placing` once they are all there */
  moving: { aside: string; step: 'moving' | 'placing' } | null
  /** a command that exchanges the database by hand: no release begins while it lives. Null or absent: no command */
  by?: ProcessName | null
  /** in a container: the ids of those that follow the mark, instead of the operation's releases; none once it is over */
  containers?: readonly string[]
  /** in a container, once it is over: the ids of those that have followed it */
  ended?: readonly string[]
  /** in a container, once it is over: how many rows lie aside only; null: not counted */
  rows?: number | null
}

export const MARK_MAX_BYTES = 16 * 1024
/** how long a start waits for a command: less than systemd allows a start to take */
const [WAIT_MAX_MS, LOOK_EVERY_MS] = [60_000, 20]

/** Null if there is none, or if it cannot be read: then nothing is exchanged. */
export function readMark(stateDirectory: string): StateMark | null {
  try {
    const text = readFileSync(markPath(stateDirectory), 'utf8')
    return text.length > MARK_MAX_BYTES ? null : (JSON.parse(text) as StateMark)
  } catch {
    return null
  }
}

/**
 * Gives the release `tag` its own data. Null: nothing was exchanged. Throws if it fails: the application must not begin on other data.
 * `container`: finds the id of this one.
 */
export function ownState(
  stateDirectory: string,
  tag: string,
  look: SetLook = () => {},
  container: () => string | null = () => null,
): StateMark['exchanged'] {
  if (!existsSync(markPath(stateDirectory))) return null
  const write = (next: StateMark) => writeDurably(markPath(stateDirectory), JSON.stringify(next), look)
  const found = readUnheld(stateDirectory)
  if (found !== null && found.moving !== null) exchangeSets(stateDirectory, found, write, look) // finish what has begun
  const mark = found?.moving === null ? found : readMark(stateDirectory)
  if (mark === null || !isInForce(stateDirectory, mark, container)) return null
  if (mark.other === null && mark.next === tag) keep(stateDirectory, mark, write, look)
  // a container's own release may take another copy of its data, once
  const isOwn = mark.owner === tag && (mark.containers?.length !== 1 || mark.exchanged !== null)
  if (mark.other?.tag !== tag || isOwn) return null
  exchangeSets(stateDirectory, mark, write, look)
  return readMark(stateDirectory)?.exchanged ?? null
}

/** The mark, once no command exchanges the database by hand. Throws if that takes too long. */
function readUnheld(stateDirectory: string): StateMark | null {
  for (const deadline = performance.now() + WAIT_MAX_MS; ; pause(LOOK_EVERY_MS)) {
    const mark = readMark(stateDirectory)
    const by = mark?.by ?? null
    if (by === null || !isAlive(by.pid, by.startTime)) return mark
    if (performance.now() > deadline) throw new Error(`another command (pid ${by.pid}) is still replacing the database`)
  }
}

export interface ByHand {
  database: string
  /** of the release in place */
  tag: string
  /** called once every start waits; throws if a process uses the database, and then nothing is exchanged */
  refuse: (database: string) => Promise<void>
}

/**
 * Puts the database aside and a copy of `path` in its place; resolves to where the database was put. For a command, while the service
 * is stopped and the lock is held. If the command is killed in the middle, the next start or the next command finishes the exchange.
 */
export async function exchangeNow(
  stateDirectory: string,
  path: string,
  { database, tag, refuse }: ByHand,
  look: SetLook = () => {},
): Promise<string | null> {
  const write = (next: StateMark) => writeDurably(markPath(stateDirectory), JSON.stringify(next), look)
  const by = { pid: process.pid, startTime: startTimeOf(process.pid) }
  const left = readMark(stateDirectory)
  const mark: StateMark = {
    operationId: 'by hand',
    database: fileOf(database, left),
    owner: tag,
    next: null,
    other: { tag: `restored-${tag}`, path },
    exchanged: null,
    moving: null,
    by,
  }
  const begun = left === null || left.moving === null ? null : { ...left, by }
  write(begun ?? mark) // the next operation removes what a process that is killed here has copied
  try {
    await refuse(mark.database)
  } catch (cause) {
    if (left === null) rmSync(markPath(stateDirectory), { force: true })
    else write(left)
    throw cause
  }
  if (begun !== null) {
    exchangeSets(stateDirectory, begun, write, look) // finish the interrupted exchange first: its set is in two places
    write(mark)
  }
  exchangeSets(stateDirectory, mark, write, look)
  const aside = readMark(stateDirectory)?.exchanged?.aside ?? null
  rmSync(markPath(stateDirectory), { force: true })
  return aside
}

/** Path of the database's file, links resolved. During an exchange its name may lead nowhere: then the path is in the mark. */
function fileOf(database: string, left: StateMark | null): string {
  if (left !== null && left.moving !== null) return left.database
  return existsSync(database) ? realpathSync(database) : database
}

/** Copies the owner's data, before the next release changes them. */
function keep(stateDirectory: string, mark: StateMark, write: (mark: StateMark) => void, look: SetLook): void {
  const { database, owner, next } = mark
  const path = join(snapshotDirectory(stateDirectory), copyName(database, owner, new Date()))
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  const incoming = incomingAt(dirname(path), database)
  orNothing(incoming, look, () => copySet(database, incoming, look))
  const name = () => {
    moveSet(incoming, path, look) // complete by now: only then does it get its name
    write({ ...mark, owner: next ?? owner, next: null, other: { tag: owner, path } })
  }
  orNothing(path, look, name, () => readMark(stateDirectory)?.other?.path === path)
}

function exchangeSets(stateDirectory: string, mark: StateMark, write: (mark: StateMark) => void, look: SetLook): void {
  const { database, owner, other } = mark
  if (other === null) return
  const incoming = incomingAt(dirname(database), database)
  let { moving } = mark
  if (moving === null) {
    const aside = join(asideDirectory(stateDirectory), copyName(database, owner, new Date()))
    moving = { aside, step: 'moving' }
    const begun = { ...mark, moving }
    const make = () => {
      copySet(other.path, incoming, look)
      mkdirSync(dirname(aside), { recursive: true, mode: 0o700 })
      write(begun)
    }
    orNothing(incoming, look, make, () => readMark(stateDirectory)?.moving !== null)
  }
  if (moving.step === 'moving') {
    putAside(database, moving.aside, look)
    moving = { ...moving, step: 'placing' }
    write({ ...mark, moving })
  }
  putInPlace(incoming, database, look)
  const exchanged = { aside: moving.aside, restored: other.path }
  write({ ...mark, owner: other.tag, other: { tag: owner, path: moving.aside }, exchanged, moving: null })
}

/** A mark counts for the operation in the journal, until that has succeeded; or for the containers that it names. */
function isInForce(
  stateDirectory: string,
  { operationId, containers }: StateMark,
  container: () => string | null,
): boolean {
  if (containers !== undefined) return containers.includes(container() ?? '')
  return isOpenOperation(stateDirectory, operationId)
}

/** Whether this operation is the journal's, and has not succeeded. */
export function isOpenOperation(stateDirectory: string, operationId: string): boolean {
  try {
    const journal = JSON.parse(readFileSync(journalPath(stateDirectory), 'utf8')) as {
      operation: { id: string; outcome: string | null } | null
    }
    const { id, outcome } = journal.operation ?? { id: null, outcome: null }
    return id === operationId && outcome !== 'updated' && outcome !== 'rolled_back'
  } catch {
    return false
  }
}

/** Where a copy of the database is made, before it has a name. */
function incomingAt(directory: string, database: string): string {
  return join(directory, `.${basename(database)}.incoming`)
}

/** Files that a killed process may have left behind in this operation. Call it at the end of the operation: nothing needs them then. */
export function leftByMark(stateDirectory: string, { database }: Pick<StateMark, 'database'>): string[] {
  const places = [dirname(database), snapshotDirectory(stateDirectory)].map((one) => incomingAt(one, database))
  return places.flatMap((path) => SUFFIXES.map((suffix) => path + suffix)).filter((path) => existsSync(path))
}

/**
 * Makes copies at `incoming`. If that fails, removes them, since half a copy would keep a full disk full. If the exchange `isBegun`,
 * it needs the copies, and they stay.
 */
function orNothing(incoming: string, look: SetLook, make: () => void, isBegun = () => false): void {
  removeSet(incoming, look) // left by a process that was killed
  try {
    make()
  } catch (cause) {
    if (!isBegun()) removeSet(incoming, look)
    throw cause
  }
}

function writeDurably(path: string, text: string, look: SetLook): void {
  const temporary = join(dirname(path), `.${basename(path)}.${'0'.repeat(12)}.tmp`) // `isLeftover` knows it, if this is killed
  look('write')
  try {
    writeFileSync(temporary, text, { mode: 0o600 })
    flush(temporary)
  } catch (cause) {
    rmSync(temporary, { force: true })
    throw cause
  }
  look('name')
  renameSync(temporary, path)
  flush(dirname(path))
}
