// Queues the writes of one database: all that arrive in one turn of the event loop share a commit, and so one flush of the disk.
// Must hold: another process's lock on the file never blocks the event loop.

import type { DatabaseSync } from 'node:sqlite'
import { BatonError, reasonOf } from '../words.ts'

export interface WriteQueue {
  /** Resolves with what `run` returned, once it is on the disk. Rejects with service_down, unexpected. */
  write<T>(run: () => T): Promise<T>
  /** Writes what waits, and refuses any later write. */
  close(): void
}

/** how many writes may wait for one commit before new ones are refused */
export const QUEUE_MAX = 10_000
/** how long a write waits for another process's lock */
export const LOCK_PATIENCE_MS = 5000
const LOOK_AGAIN_MS = [1, 2, 5, 10, 25] as const

interface Waiting {
  run: () => unknown
  /** by `performance.now()` */
  until: number
  resolve: (value: unknown) => void
  reject: (error: unknown) => void
}

/** `database` must have `busy_timeout` 0: SQLite's own wait for a lock blocks the whole process. */
export function makeWriteQueue(database: DatabaseSync): WriteQueue {
  let queue: Waiting[] = []
  let closed = false
  let looks = 0

  const flush = (): void => {
    if (queue.length === 0) return
    try {
      database.exec('begin immediate')
    } catch (cause) {
      if (isLocked(cause) && !closed) return lookAgain()
      return refuse(
        queue.splice(0),
        new BatonError('unexpected', `writing to the database: ${reasonOf(cause)}`, { cause }),
      )
    }
    looks = 0
    const batch = queue.splice(0)
    const results: unknown[] = []
    try {
      for (const waiting of batch) results.push(waiting.run())
      database.exec('commit')
    } catch (cause) {
      if (database.isTransaction) database.exec('rollback')
      return refuse(batch, new BatonError('unexpected', `writing to the database: ${reasonOf(cause)}`, { cause }))
    }
    for (const [i, waiting] of batch.entries()) waiting.resolve(results[i])
  }
  const lookAgain = (): void => {
    const now = performance.now()
    const tired = queue.filter(({ until }) => until <= now)
    queue = queue.filter(({ until }) => until > now)
    const message = `another process has kept the database locked for more than ${LOCK_PATIENCE_MS} ms`
    refuse(tired, new BatonError('service_down', message, { hint: 'try again' }))
    if (queue.length > 0) setTimeout(flush, LOOK_AGAIN_MS[Math.min(looks++, LOOK_AGAIN_MS.length - 1)])
  }

  return {
    write<T>(run: () => T) {
      if (closed) {
        return Promise.reject<T>(new BatonError('service_down', 'the database is closed: this process is stopping'))
      }
      if (queue.length >= QUEUE_MAX) {
        return Promise.reject<T>(new BatonError('service_down', `${QUEUE_MAX} writes are already waiting`))
      }
      if (queue.length === 0) setImmediate(flush)
      return new Promise<T>((resolve, reject) => {
        const until = performance.now() + LOCK_PATIENCE_MS
        queue.push({ run, until, resolve: resolve as (value: unknown) => void, reject })
      })
    },
    close() {
      closed = true
      // the process does nothing else afterwards, so it may block for the lock
      if (queue.length > 0) database.exec(`pragma busy_timeout = ${LOCK_PATIENCE_MS}`)
      flush()
    },
  }
}

function refuse(waiting: Waiting[], error: BatonError): void {
  for (const { reject } of waiting) reject(error)
}

/** SQLITE_BUSY, SQLITE_LOCKED and their extended codes */
export function isLocked(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && [5, 6].includes(Number(error.errcode) & 0xff)
}
