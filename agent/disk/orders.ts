// The orders that a Baton executable carries out for another process when it is run with `--version`: copy a database or files, look
// at a database, print its author's `trial`, or remove what releases have unpacked and no release needs.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import type { DatabaseSync } from 'node:sqlite'

/** Variable: how many executables have started each other. Every process that gives an order or asks for a version sets it. */
export const DEPTH = 'BATON_DEPTH'

/** Variable with `{ from, to }` as JSON: a Baton executable that is run with `--version` then makes that copy too. */
export const COPY_ORDER = 'BATON_COPY_DATABASE'
/** Variable with the path of a database: the executable then writes its `PRAGMA user_version` to descriptor 3. */
export const SCHEMA_ORDER = 'BATON_READ_SCHEMA'
/** `1`: the executable then writes to descriptor 3, as JSON, which versions of a switch's messages it speaks. */
export const WIRES_ORDER = 'BATON_SAY_WIRES'
/** `1`: the executable then reads a `Fetch` as JSON from its stdin, downloads, and writes lines of `Heard` to descriptor 3. */
export const FETCH_ORDER = 'BATON_DOWNLOAD'
export const ANSWER_FD = 3
/** `snapshot` in one step: in several, a busy writer would make it start over and over */
export const ALL_PAGES = 0x7fff_ffff

export function openToRead(path: string): DatabaseSync {
  const { DatabaseSync: Database } = process.getBuiltinModule('node:sqlite')
  return new Database(path, { readOnly: true, timeout: 5000 })
}

/** `PRAGMA user_version` */
export function schemaIn(database: DatabaseSync): number {
  return Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
}
