// The orders that a Baton executable carries out for another process when it is run with `--version`: copy a database, look at one,
// say what its author wants in rehearsals, or remove what releases have unpacked and none needs.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import { writeSync } from 'node:fs'

/** Whoever gives an order or asks for a version sets it: how many executables have started each other. */
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
  return (orders ??= import('./ordered.ts').then(({ obey }) => obey(ownRehearse)))
}

/**
 * For a program with its own `--version`, which may end in its next line: starts to copy, or reads the number, before this returns. Node
 * waits for a copy that has begun, even in `process.exit()`.
 */
export function obeyAtOnce(): void {
  const { [COPY_ORDER]: copy, [SCHEMA_ORDER]: path } = process.env
  if (orders !== null || (copy ?? path) === undefined) return
  orders = Promise.resolve()
  const { backup, DatabaseSync } = process.getBuiltinModule('node:sqlite')
  const open = (from: string) => new DatabaseSync(from, { readOnly: true, timeout: 5000 })
  if (path !== undefined)
    writeSync(ANSWER_FD, String(open(path).prepare('PRAGMA user_version').get()?.['user_version']))
  if (copy === undefined) return
  const { from, to } = JSON.parse(copy) as { from: string; to: string }
  void backup(open(from), to, { rate: ALL_PAGES })
}
