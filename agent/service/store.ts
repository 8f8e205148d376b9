// The state of the service, `<service>.db`: tokens, logs, quota history, detached completion cache entries.
// Must hold: predecessor and successor may have this file open at once, and either may be the older release (`schema.ts`);
// a write that was acknowledged is on the disk.

import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { asBatonError, BatonError } from '../words.ts'
import { isLocked, makeWriteQueue } from './write-queue.ts'
import { HISTORY, SCHEMA, type SchemaStep } from './schema.ts'
import { prepareAll } from './statements.ts'

export interface Token {
  id: string
  name: string
  createdAt: string
}

export interface LogRow {
  id: number
  level: string
  message: string
  createdAt: string
}

export interface QuotaRow {
  id: number
  tokenId: string
  used: number
  createdAt: string
}

export interface Completion {
  key: string
  content: string
  createdAt: string
  expiresAt: string
}

export interface Counts {
  tokens: number
  logs: number
  quota: number
  completions: number
}

/** Every `add` and `put` resolves when the row is on the disk, so an acknowledged write survives a power cut. */
export interface Store {
  /** schema number of the file; it may be newer than the one that this release writes */
  readonly schema: number
  /** Only the answer holds the secret; the file keeps its sha256. */
  addToken(name: string): Promise<Token & { secret: string }>
  tokens(limit: number): Token[]
  addLog(level: string, message: string): Promise<LogRow>
  logs(limit: number, before: number | null): LogRow[]
  /** the rows with a larger id, oldest first */
  logsAfter(id: number, limit: number): LogRow[]
  addQuota(tokenId: string, used: number): Promise<QuotaRow>
  quota(limit: number, tokenId: string | null): QuotaRow[]
  putCompletion(key: string, content: string, ttlSeconds: number): Promise<Completion>
  completions(limit: number): Completion[]
  completion(key: string): Completion | null
  counts(): Counts
  /** Reads from the file; throws if it cannot be read. */
  check(): void
  /** Writes what is queued, then closes the file. Safe to call more than once. */
  close(): Promise<void>
}

export interface StoreOptions {
  /** default: the steps of the present release; tests open a file as another release does */
  schema?: readonly SchemaStep[]
  now?: () => Date
}

/** at the start only, before any request is served */
const BUSY_TIMEOUT_MS = 5000
const LOOK_EVERY_MS = 5

/** Opens the database; creates and migrates it if needed. Throws BatonError refused, unexpected. */
export function openStore(path: string, options: StoreOptions = {}): Store {
  const schema = options.schema ?? SCHEMA
  const now = options.now ?? (() => new Date())
  let database: DatabaseSync
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    // The other process of a handover writes too: wait for its lock instead of failing.
    database = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS, enableForeignKeyConstraints: true })
  } catch (cause) {
    throw asBatonError(cause, 'unexpected', `opening ${path}`)
  }
  try {
    useWal(database)
    // FULL, not NORMAL: in WAL mode NORMAL does not flush at a commit, so a power cut would lose rows that were answered with
    // 201. FULL costs one flush per commit (measured: 0.4 ms against 0.03 ms); writes share commits, see `write-queue.ts`.
    database.exec('pragma synchronous = full')
    const found = migrate(database, schema, path)
    database.exec('pragma busy_timeout = 0') // from now on no lock may block the event loop: see `write-queue.ts`
    const known = schema.filter((step) => HISTORY.includes(step)).length
    return storeOn(database, prepareAll(database, known), found, now)
  } catch (cause) {
    database.close()
    throw asBatonError(cause, 'unexpected', `opening ${path}`)
  }
}

/**
 * WAL: readers and the one writer do not wait for each other, also across processes. SQLite itself waits for no lock where it changes the
 * mode: of the processes that create a database at once, one changes it, and the others are told that it is locked.
 */
function useWal(database: DatabaseSync): void {
  for (let waitedMs = 0; ; waitedMs += LOOK_EVERY_MS) {
    try {
      return database.exec('pragma journal_mode = wal')
    } catch (error) {
      if (!isLocked(error) || waitedMs >= BUSY_TIMEOUT_MS) throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_EVERY_MS)
    }
  }
}

function migrate(database: DatabaseSync, schema: readonly SchemaStep[], path: string): number {
  if (userVersion(database) === schema.length && minimumReader(database) <= schema.length) return schema.length
  database.exec('begin immediate') // two processes may get here at once: the second finds the work done
  try {
    const found = userVersion(database)
    let needed = minimumReader(database)
    if (needed > schema.length) {
      throw new BatonError(
        'refused',
        `${path} needs a release that reads schema ${needed}, but this one reads only up to ${schema.length}`,
        {
          hint: 'start a newer release, or stop the service and restore the update’s snapshot from `update/snapshots/` beside the database',
        },
      )
    }
    for (let number = found + 1; number <= schema.length; number++) {
      const step = schema[number - 1] as SchemaStep
      needed = Math.max(needed, step.minimumReader)
      database.exec(step.sql)
      database.exec(
        'create table if not exists schema_reader (one integer primary key check (one = 1), minimum integer not null) strict',
      )
      database.prepare('insert or replace into schema_reader (one, minimum) values (1, ?)').run(needed)
      database.exec(`pragma user_version = ${number}`)
    }
    database.exec('commit')
    return Math.max(found, schema.length)
  } catch (error) {
    if (database.isTransaction) database.exec('rollback')
    throw error
  }
}

function userVersion(database: DatabaseSync): number {
  return Number(database.prepare('pragma user_version').get()?.['user_version'] ?? 0)
}

function minimumReader(database: DatabaseSync): number {
  const table = database.prepare("select 1 from sqlite_schema where type = 'table' and name = 'schema_reader'").get()
  if (table === undefined) return 0
  return Number(database.prepare('select minimum from schema_reader').get()?.['minimum'] ?? 0)
}

function storeOn(
  database: DatabaseSync,
  prepared: ReturnType<typeof prepareAll>,
  schema: number,
  now: () => Date,
): Store {
  const { write, close } = makeWriteQueue(database)
  const rows = <T>(statement: StatementSync, ...values: (string | number)[]): T[] =>
    statement.all(...values) as unknown as T[]

  return {
    schema,
    addToken(name) {
      const { createHash, randomBytes, randomUUID } = process.getBuiltinModule('node:crypto')
      const [id, secret, createdAt] = [randomUUID(), randomBytes(32).toString('base64url'), now().toISOString()]
      const digest = createHash('sha256').update(secret).digest()
      return write(() => {
        prepared.insertToken.run(id, name, digest, createdAt)
        return { id, name, createdAt, secret }
      })
    },
    tokens: (limit) => rows<Token>(prepared.selectTokens, limit),
    addLog(level, message) {
      const createdAt = now().toISOString()
      return write(() => ({
        id: prepared.insertLog(level, message, createdAt),
        level,
        message,
        createdAt,
      }))
    },
    logs: (limit, before) => rows<LogRow>(prepared.selectLogs, before ?? Number.MAX_SAFE_INTEGER, limit),
    logsAfter: (id, limit) => rows<LogRow>(prepared.selectLogsAfter, id, limit),
    addQuota(tokenId, used) {
      const createdAt = now().toISOString()
      return write(() => ({
        id: prepared.insertQuota(tokenId, used, createdAt),
        tokenId,
        used,
        createdAt,
      }))
    },
    quota: (limit, tokenId) =>
      tokenId === null
        ? rows<QuotaRow>(prepared.selectQuota, limit)
        : rows<QuotaRow>(prepared.selectQuotaOf, tokenId, limit),
    putCompletion(key, content, ttlSeconds) {
      const at = now()
      const createdAt = at.toISOString()
      const expiresAt = new Date(at.getTime() + ttlSeconds * 1000).toISOString()
      return write(() => {
        prepared.expireCompletions(createdAt)
        prepared.upsertCompletion(key, content, createdAt, expiresAt)
        return { key, content, createdAt, expiresAt }
      })
    },
    completions: (limit) => rows<Completion>(prepared.selectCompletions, now().toISOString(), limit),
    completion: (key) => rows<Completion>(prepared.selectCompletion, key, now().toISOString())[0] ?? null,
    counts: () => prepared.selectCounts.get() as unknown as Counts,
    check() {
      prepared.checkRead.get()
    },
    async close() {
      if (!database.isOpen) return
      close()
      database.close()
    },
  }
}
