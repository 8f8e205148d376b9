// Releases of the reference service, one for each schema of its history, and a database as one of them leaves it.

import { createReadStream, createWriteStream } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pipeline } from 'node:stream/promises'
import { createZstdDecompress } from 'node:zlib'
import { HISTORY } from '../../agent/service/schema.ts'
import { openStore } from '../../agent/service/store.ts'
import type { Rehearse, RehearseRequest } from '../../agent/words/rehearsal.ts'
import { parseProject } from '../../deploy/make/project.ts'
import { buildTags } from '../fixtures/quiet-build.ts'

export const STEPS = HISTORY.map((_, at) => at + 1)

/** What a person uses the service for: each table is written, and read. */
export const HISTORY_REQUESTS: RehearseRequest[] = [
  { path: '/api/counts' },
  { method: 'POST', path: '/api/logs', body: { message: 'rehearsed' }, status: 201 },
  { method: 'POST', path: '/api/quota', body: { tokenId: 'rehearsed', used: 7 }, status: 201 },
  { method: 'POST', path: '/api/completions', body: { key: 'rehearsed', content: 'text' }, status: 201 },
  { path: '/api/completions/rehearsed' },
  { path: '/api/quota?limit=5' },
]

export const tagAt = (schema: number): string => `v1.${schema}.0`

/** Builds v1.N.0 for each N of `schemas` into the feed `out`. */
export async function buildHistory(
  out: string,
  schemas: readonly number[],
  kind: 'script' | 'bundle' = 'script',
): Promise<void> {
  const rehearse: Rehearse = { requests: HISTORY_REQUESTS }
  const about = { service: 'beacon', kind, entry: 'history.ts', healthPath: '/healthz', database: 'beacon.db' }
  const own = { args: ['--config', '{config}'], order: 'start-first', trial: rehearse }
  const project = parseProject({ ...about, ...own }, join(import.meta.dirname, '..', 'fixtures'))
  await buildTags({ project, out }, schemas.map(tagAt), schemas)
}

/** The executable of v1.N.0 in the feed `out`, at `path`. */
export async function unpackHistory(out: string, schema: number, path: string): Promise<void> {
  const folder = join(out, tagAt(schema))
  const name = (await readdir(folder)).find((one) => one.endsWith('.zst')) ?? ''
  const to = createWriteStream(path, { mode: 0o755 })
  await pipeline(createReadStream(join(folder, name)), createZstdDecompress(), to)
}

/** A database as the release at `schema` leaves it, with so many rows of quota and 100 of each other table. */
export async function fillHistory(path: string, schema: number, rows: number): Promise<void> {
  const store = openStore(path, { schema: HISTORY.slice(0, schema) })
  for (let at = 0; at < 100; at++) {
    void store.addLog('info', `line ${at}`)
    void store.putCompletion(`key ${at}`, `content ${at}`, 3600)
  }
  await store.addToken('laptop')
  await store.addQuota('first', 1)
  await store.close()
  const database = new DatabaseSync(path)
  const columns = database
    .prepare('select name from pragma_table_info(?)')
    .all('quota')
    .map(({ name }) => name)
  const used = ['used', 'units'].filter((name) => columns.includes(name))
  database.exec(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ${rows - 1})
    insert into quota (token_id, created_at, ${used.join(', ')})
    select 'token ' || (i % 100), '2026-11-21T08:00:00.000Z', ${used.map(() => 'i').join(', ')} from n`)
  database.close()
}
