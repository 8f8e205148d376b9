// The lock: allows one operation at a time, whether an endpoint, a command or a rescue starts it. It is an exclusive SQLite
// transaction on a separate file. The kernel frees it when its holder dies, so there is no stale lock to break. `lock.json`
// beside it only informs: it names the holder and the time, and never decides.

import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Disk, exists, readSmall } from './disk.ts'
import { BatonError, codeOf, type ErrorCode, reasonOf } from '../words/errors.ts'
import { holderIn } from './journal.ts'
import { updateDirectory } from './places.ts'
import { isFull } from './reserve.ts'
import { isAlive } from '../sockets/process.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'
import type { ProcessName } from '../words/wire.ts'

export interface Holder {
  pid: number
  /** `the service`, `shop upgrade`, … */
  who: string
  /** ISO 8601, UTC */
  since: string
}

const HOLDER_MAX_BYTES = 4096
/** between two tries of a caller that waits: short at first, for most holders are just ending */
const [TRY_FIRST_MS, TRY_MOST_MS] = [2, 50]

export interface Lock extends AsyncDisposable {
  release(): Promise<void>
}

/**
 * Paths of the locks that this process takes or holds. Closing any descriptor of a file drops the process's POSIX locks on it.
 * So while this process holds a lock, none of its code may open the lock's file, not even to see whether it exists.
 */
const ours = new Set<string>()

/**
 * Takes the lock, or throws BatonError `refusal` that names the holder and the time.
 * `waitMs` above 0: waits that long for the lock first. `waits`: called each time that it has to.
 */
export async function takeLock(
  disk: Disk,
  stateDirectory: string,
  who: string,
  { waitMs = 0, refusal = 'locked', waits }: { waitMs?: number; refusal?: ErrorCode; waits?: () => void } = {},
): Promise<Lock> {
  const path = lockPath(stateDirectory)
  const deadline = performance.now() + waitMs
  for (let pauseMs = TRY_FIRST_MS; ; pauseMs = Math.min(TRY_MOST_MS, pauseMs * 2)) {
    if (!ours.has(path)) {
      ours.add(path) // before the first await: of two callers in this process, only one may go on
      try {
        const lock = await tryLock(disk, stateDirectory, who)
        if (lock !== null) return lock
      } catch (error) {
        ours.delete(path)
        throw error
      }
      ours.delete(path)
    }
    if (performance.now() >= deadline) throw await refusalOf(stateDirectory, refusal)
    waits?.()
    await sleep(pauseMs)
  }
}

async function tryLock(disk: Disk, stateDirectory: string, who: string): Promise<Lock | null> {
  const path = lockPath(stateDirectory)
  const { DatabaseSync } = await import('node:sqlite')
  let database
  try {
    await disk.makeDirectory(updateDirectory(stateDirectory), 0o700)
    // Made through `disk`, so that the file belongs to the owner of its directory even if root comes first.
    if (!(await exists(path))) {
      const made = await disk.create(path, 0o600).catch((error: unknown) => {
        if (codeOf(error) !== 'EEXIST') throw error // another process was faster
      })
      await made?.close()
    }
    database = new DatabaseSync(path)
  } catch (error) {
    throw unwritable(path, error)
  }
  try {
    database.exec('PRAGMA busy_timeout = 0; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    // In a stop-first switch the old process drops the lock when it exits. The holder in the journal owns the lock from then on.
    if (isHeldByAnother(await holderIn(stateDirectory))) {
      database.close()
      return null
    }
    const holder: Holder = { pid: process.pid, who, since: new Date().toISOString() }
    // The note only informs. Never block a rollback over it: a full disk may be the reason for the rollback.
    await disk.writeNote(holderPath(stateDirectory), `${JSON.stringify(holder)}\n`, 0o600).catch((error: unknown) => {
      if (!isFull(error)) throw error
    })
  } catch (error) {
    database.close()
    if (isBusy(error)) return null
    throw unwritable(path, error)
  }
  let held = true
  const release = async () => {
    if (!held) return
    held = false
    try {
      await disk.remove(holderPath(stateDirectory))
    } finally {
      database.close()
      ours.delete(path)
    }
  }
  return { release, [Symbol.asyncDispose]: release }
}

/** Whether the holder in the journal still lives and is not this process. */
function isHeldByAnother(holder: ProcessName | null): boolean {
  return holder !== null && holder.pid !== process.pid && isAlive(holder.pid, holder.startTime)
}

export async function readHolder(stateDirectory: string): Promise<Holder | null> {
  try {
    const holder = parsedJson((await readSmall(holderPath(stateDirectory), HOLDER_MAX_BYTES)) ?? '')
    return isObject(holder) ? (holder as unknown as Holder) : null
  } catch {
    return null
  }
}

function lockPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'lock.db')
}

function holderPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'lock.json')
}

async function refusalOf(stateDirectory: string, code: ErrorCode): Promise<BatonError> {
  const holder = await readHolder(stateDirectory)
  const found = holder === null ? 'another process' : `${holder.who} (pid ${holder.pid}, since ${holder.since})`
  return new BatonError(code, `an operation is running: the lock is held by ${found}`, {
    hint: 'wait for it to finish; `GET /admin/update/status` shows its progress',
    members: holder === null ? {} : { heldBy: holder.who, heldByPid: holder.pid, heldSince: holder.since },
  })
}

function unwritable(path: string, cause: unknown): BatonError {
  return new BatonError('refused', `taking the lock ${path}: ${reasonOf(cause)}`, {
    cause,
    hint: 'make sure that the service can write to its state directory and that the disk is not full',
  })
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && (error.errcode === 5 || error.errcode === 6)
}
