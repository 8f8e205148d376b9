// Releases of the ledger (test/fixtures/ledger): a service with a database whose migration a test writes.

import { createReadStream, createWriteStream } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { DatabaseSync } from 'node:sqlite'
import { createZstdDecompress } from 'node:zlib'
import { run } from '../../deploy/lib/shell.ts'
import { parseProject } from '../../deploy/make/project.ts'
import { updateReleases } from '../../deploy/make/release-folder.ts'
import { buildTags } from '../fixtures/quiet-build.ts'
import { madeOnce } from '../fixtures/releases.ts'
import type { Rehearse } from '../../agent/words/rehearsal.ts'

export const LEDGER = 'ledger'
export const REQUESTS = [{ path: '/notes' }, { method: 'POST', path: '/notes', status: 201 }]

/** Makes releases with these tags in the feed `out`, as scripts if nothing else is said. `root`: the file that the feed is signed by. */
export async function buildLedgers(
  out: string,
  tags: readonly string[],
  {
    service = LEDGER,
    kind = 'script',
    rehearse = { requests: REQUESTS, files: ['migration.js', 'note-role', 'more'] },
    root = null,
  }: { service?: string; kind?: 'script' | 'bundle'; rehearse?: Rehearse; root?: string | null } = {},
): Promise<void> {
  const folder = join(import.meta.dirname, '..', 'fixtures', 'ledger')
  const about = { service, kind, entry: 'ledger.js', healthPath: '/health', database: 'ledger.db' }
  const signed = root === null ? {} : { root: relative(folder, root) }
  const project = { ...parseProject({ ...about, trial: rehearse }, folder), ...signed }
  await buildTags({ project, out }, tags)
}

const HOST_TAGS = ['v1.0.0', 'v1.0.1', 'v1.0.2', 'v1.1.0', 'v1.2.0', 'v1.3.0', 'v1.4.0', 'v2.0.0']

/** Puts executables of the ledger, as the service `beacon`, into the feed `out`. They are built once for all test processes. */
export async function publishLedgers(out: string, tags: readonly string[]): Promise<void> {
  const files = ['migration.js', 'case', 'live.pid', 'uploads']
  const rehearse = { requests: REQUESTS, files, prepare: "DELETE FROM authors WHERE name = 'lease'" }
  const about = { service: 'beacon', kind: 'bundle', rehearse } as const
  const built = await madeOnce('ledgers', async (folder) => await buildLedgers(folder, HOST_TAGS, about))
  for (const tag of tags) await run(['cp', '-al', join(built, tag), join(out, tag)])
  await updateReleases(out, about.service)
}

/** Writes the executable of a release in the feed `out` to `path`. */
export async function unpackLedger(out: string, tag: string, path: string): Promise<void> {
  const name = (await readdir(join(out, tag))).find((one) => one.endsWith('.zst')) ?? ''
  const to = createWriteStream(path, { mode: 0o755 })
  await pipeline(createReadStream(join(out, tag, name)), createZstdDecompress(), to)
}

/** A database as v1.0.0 leaves it, with so many notes. */
export function fillLedger(path: string, rows: number, journal: 'WAL' | 'DELETE' = 'WAL'): void {
  const database = new DatabaseSync(path)
  database.exec(`PRAGMA journal_mode = ${journal};
    CREATE TABLE authors(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE notes(id INTEGER PRIMARY KEY, author INTEGER REFERENCES authors(id), text TEXT NOT NULL);
    INSERT INTO authors VALUES (1, 'ada'), (2, 'grace');
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows})
      INSERT INTO notes SELECT i, 1 + i % 2, 'note ' || i FROM n;`)
  database.close()
}
