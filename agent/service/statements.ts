// The SQL of the store, for a release that knows the first `known` steps of the history in `schema.ts`. The store's answers do not
// depend on that number.
// Must hold: rows that an older release writes at the same time are read with the same meaning, if the file lets that release write.

import type { DatabaseSync } from 'node:sqlite'
import { BUILD } from './build.ts'

/** `known`: how many steps of the history the release knows. */
export function prepareAll(database: DatabaseSync, known: number) {
  const [usedColumns, used] =
    known >= 6 ? [['units'], 'units'] : known >= 4 ? [['used', 'units'], 'coalesce(units, used)'] : [['used'], 'used']
  const quotaColumns = `select id, token_id as tokenId, ${used} as used, created_at as createdAt from quota`
  const quota = insertInto(database, 'quota', ['token_id', 'created_at', ...usedColumns])
  const logs = insertInto(database, 'logs', ['level', 'message', 'created_at', ...(known >= 3 ? ['written_by'] : [])])
  return {
    insertToken: database.prepare('insert into tokens (id, name, secret_sha256, created_at) values (?, ?, ?, ?)'),
    insertLog: (level: string, message: string, createdAt: string) =>
      Number(logs.run(level, message, createdAt, ...(known >= 3 ? [BUILD.tag] : [])).lastInsertRowid),
    insertQuota: (tokenId: string, units: number, createdAt: string) =>
      Number(quota.run(tokenId, createdAt, ...usedColumns.map(() => units)).lastInsertRowid),
    ...prepareCompletions(database, known),
    selectTokens: database.prepare(
      'select id, name, created_at as createdAt from tokens order by created_at desc, id limit ?',
    ),
    selectLogs: database.prepare(
      'select id, level, message, created_at as createdAt from logs where id < ? order by id desc limit ?',
    ),
    selectLogsAfter: database.prepare(
      'select id, level, message, created_at as createdAt from logs where id > ? order by id limit ?',
    ),
    selectQuota: database.prepare(`${quotaColumns} order by id desc limit ?`),
    selectQuotaOf: database.prepare(`${quotaColumns} where token_id = ? order by id desc limit ?`),
    selectCounts: database.prepare(
      `select (select count(*) from tokens) as tokens, (select count(*) from logs) as logs,
            (select count(*) from quota) as quota, (select count(*) from completions) as completions`,
    ),
    checkRead: database.prepare('select count(*) as tables from sqlite_schema'),
  }
}

/** Up to step 4 the contents are in `completions`, at step 5 in both tables, from step 6 on in `contents`. */
function prepareCompletions(database: DatabaseSync, known: number) {
  const [isWhole, isSplit] = [known < 6, known >= 5]
  const from = `select key, content, created_at as createdAt, expires_at as expiresAt from ${isWhole ? 'completions' : 'completions join contents using (key)'}`
  const upsert = upsertInto(database, 'completions', [
    'key',
    ...(isWhole ? ['content'] : []),
    'created_at',
    'expires_at',
  ])
  const upsertContent = isSplit ? upsertInto(database, 'contents', ['key', 'content']) : null
  const expire = database.prepare('delete from completions where expires_at <= ?')
  const expireContents = isSplit
    ? database.prepare('delete from contents where key in (select key from completions where expires_at <= ?)')
    : null
  return {
    upsertCompletion(key: string, content: string, createdAt: string, expiresAt: string) {
      upsert.run(key, ...(isWhole ? [content] : []), createdAt, expiresAt)
      upsertContent?.run(key, content)
    },
    expireCompletions(at: string) {
      expireContents?.run(at)
      expire.run(at)
    },
    selectCompletions: database.prepare(`${from} where expires_at > ? order by created_at desc, key limit ?`),
    selectCompletion: database.prepare(`${from} where key = ? and expires_at > ?`),
  }
}

function insertInto(database: DatabaseSync, table: string, columns: readonly string[]) {
  return database.prepare(insertText(table, columns))
}

/** The first column is the key. */
function upsertInto(database: DatabaseSync, table: string, columns: readonly string[]) {
  const [key, ...rest] = columns
  const set = rest.map((column) => `${column} = excluded.${column}`).join(', ')
  return database.prepare(`${insertText(table, columns)} on conflict (${key}) do update set ${set}`)
}

function insertText(table: string, columns: readonly string[]): string {
  return `insert into ${table} (${columns.join(', ')}) values (${columns.map(() => '?').join(', ')})`
}
