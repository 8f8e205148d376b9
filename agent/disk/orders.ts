// The orders that a Baton executable carries out for another process when it is run with `--version`: copy a database or files, look
// at a database, print its author's `rehearse`, or remove what releases have unpacked and no release needs.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import { writeSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'

/** Variable: how many executables have started each other. Every process that gives an order or asks for a version sets it. */
export const DEPTH = 'BATON_DEPTH'

/** Variable with `{ from, to }` as JSON: a Baton executable that is run with `--version` then makes that copy too. */
export const COPY_ORDER = 'BATON_COPY_DATABASE'
/** Variable with the path of a database: the executable then writes its `PRAGMA user_version` to descriptor 3. */
export const SCHEMA_ORDER = 'BATON_READ_SCHEMA'
export const ANSWER_FD = 3
/** `backup` in one step: in several, a busy writer would make it start over and over */
export const ALL_PAGES = 0x7fff_ffff

let orders: Promise<void> | null = null

/** Carries out the orders of a run with `--version`, once. Rejects if it cannot. `ownRehearse`: the release's `rehearse`. */
export function doAsOrdered(ownRehearse: () => unknown = () => null): Promise<void> {
  if (process.env[DEPTH] === undefined) return Promise.resolve()
  return (orders ??= import('./obey.ts').then(({ obey }) => obey(ownRehearse)))
}

/**
 * For a program with its own `--version`, which may end in its next line: starts to copy, or reads the number, before this returns. Node
 * waits for a copy that has begun, even in `process.exit()`.
 */
export function obeyAtOnce(): void {
  const { [COPY_ORDER]: copy, [SCHEMA_ORDER]: path } = process.env
  if (orders !== null || (copy ?? path) === undefined) return
  orders = Promise.resolve()
  if (path !== undefined) writeSync(ANSWER_FD, String(schemaIn(openToRead(path))))
  if (copy === undefined) return
  const { from, to } = JSON.parse(copy) as { from: string; to: string }
  void process.getBuiltinModule('node:sqlite').backup(openToRead(from), to, { rate: ALL_PAGES })
}

export function openToRead(path: string): DatabaseSync {
  const { DatabaseSync: Database } = process.getBuiltinModule('node:sqlite')
  return new Database(path, { readOnly: true, timeout: 5000 })
}

/** `PRAGMA user_version` */
export function schemaIn(database: DatabaseSync): number {
  return Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
}
