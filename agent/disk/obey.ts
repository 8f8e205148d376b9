// What a process does that was run with an order (orders.ts): it copies a database or files, looks at a database, or sweeps.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import { writeSync } from 'node:fs'
import type { Beside } from './copy-beside.ts'
import { makeDisk } from './disk.ts'
import { ANSWER_FD, COPY_ORDER, openToRead, SCHEMA_ORDER, schemaIn, WIRES_ORDER } from './orders.ts'
import { reasonOf } from '../words/errors.ts'
import { WIRES } from '../words/wire.ts'
import { placesOf } from './places.ts'
import { copyHere, isWrittenTo, schemaInHeader } from './quiet-copy.ts'
import { sweepUnpacked } from './sweep.ts'

/** Variable with a `Sweep` as JSON: then it sweeps, and writes the databases that stay to descriptor 3, one a line. */
export const SWEEP_ORDER = 'BATON_SWEEP'
/** Variable with the path of a database: then it writes a `DatabaseLook` as JSON to descriptor 3. */
export const LOOK_ORDER = 'BATON_LOOK_AT_DATABASE'
/** Variable with a `Beside` as JSON: then it copies the files that an author's rehearsals need. */
export const FILES_ORDER = 'BATON_COPY_FILES'
/** `1`: then it writes its release's `trial` as JSON to descriptor 3. */
export const REHEARSE_ORDER = 'BATON_READ_REHEARSE'

/** Variable with a `RowsBetween` as JSON: then it writes to descriptor 3 how many rows the one has and the other has not. */
export const ROWS_ORDER = 'BATON_COUNT_ROWS'

/** Paths of two databases that no process writes to. */
export interface RowsBetween {
  more: string
  than: string
}

export interface Sweep {
  service: string
  /** absolute path of the executable beside which releases unpack */
  executable: string
  /** tags that are needed */
  keep: readonly string[]
}

/** Carries out what the environment orders. Rejects if it cannot. `ownRehearse`: the release's `trial`. */
export async function obey(ownRehearse: () => unknown): Promise<void> {
  const { [COPY_ORDER]: copy, [SCHEMA_ORDER]: database, [SWEEP_ORDER]: sweep } = process.env
  const { [LOOK_ORDER]: look, [REHEARSE_ORDER]: rehearse, [FILES_ORDER]: files, [ROWS_ORDER]: rows } = process.env
  if (process.env[WIRES_ORDER] !== undefined) return void writeSync(ANSWER_FD, JSON.stringify(WIRES))
  const answer = (text: string) => void writeSync(ANSWER_FD, text)
  if (look !== undefined) answer(JSON.stringify(await lookHere(look)))
  if (rehearse !== undefined) answer(JSON.stringify(ownRehearse() ?? null))
  if (database !== undefined) answer(String(await schemaHere(database)))
  if (sweep !== undefined) answer(await sweepHere(JSON.parse(sweep) as Sweep))
  if (rows !== undefined) answer(String(rowsBetweenHere(JSON.parse(rows) as RowsBetween)))
  if (files !== undefined) await copyFiles(JSON.parse(files) as Beside)
  if (copy === undefined) return
  const { from, to } = JSON.parse(copy) as { from: string; to: string }
  await copyHere(from, to)
}

/** Writes the reason of a failure alone to stderr: Node would print source text around an error that nothing catches. */
async function copyFiles(what: Beside): Promise<void> {
  const { copyBeside } = await import('./copy-beside.ts')
  await copyBeside(makeDisk(), what).catch((cause: unknown) => {
    process.stderr.write(`${reasonOf(cause)}\n`)
    process.exitCode = 1
  })
}

async function sweepHere({ service, executable, keep }: Sweep): Promise<string> {
  return (await sweepUnpacked(makeDisk(), service, placesOf(executable), keep)).join('\n')
}

async function schemaHere(path: string): Promise<number> {
  const said = await schemaInHeader(path)
  if (said !== null) return said
  const database = openToRead(path)
  try {
    return schemaIn(database)
  } finally {
    database.close()
  }
}

/**
 * By SQLite's own row number, so that rows which a migration has removed do not hide those that were added. Null if that cannot tell: rows
 * are in a table that the other has not, where a migration may have moved them, or in one without row numbers.
 */
function rowsBetweenHere({ more, than }: RowsBetween): number | null {
  const database = openToRead(more)
  try {
    database.prepare('ATTACH ? AS kept').run(than)
    const tables = (schema: string) =>
      database
        .prepare(
          "SELECT name, wr FROM pragma_table_list WHERE schema = ? AND type = 'table' AND name NOT LIKE 'sqlite_%'",
        )
        .all(schema)
        .map(({ name, wr }) => ({ name: String(name), isNumbered: wr === 0 }))
    const known = new Set(tables('kept').map(({ name }) => name))
    let sum = 0
    for (const { name, isNumbered } of tables('main')) {
      const table = `"${name.replaceAll('"', '""')}"`
      const isComparable = isNumbered && known.has(name)
      const added = isComparable ? ` WHERE _rowid_ NOT IN (SELECT _rowid_ FROM kept.${table})` : ''
      const rows = Number(database.prepare(`SELECT count(*) AS n FROM main.${table}${added}`).get()?.['n'])
      if (rows > 0 && !isComparable) return null
      sum += rows
    }
    return sum
  } finally {
    database.close()
  }
}

export interface DatabaseLook {
  /** `PRAGMA user_version` */
  schema: number
  /** whether a process wrote to the database during the look and would have to wait for a copy; false in WAL mode, where it need not */
  isBusy: boolean
}

/** long enough to see a writer that writes twice a second */
const WATCH_MS = 500

async function lookHere(path: string): Promise<DatabaseLook> {
  return { schema: await schemaHere(path), isBusy: await isWrittenTo(path, WATCH_MS) }
}
