// The orders that a Baton executable carries out for another process when it is run with `--version`: copy a database, read the
// number of its schema, or remove what releases have unpacked and none needs.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import { writeSync } from 'node:fs'
import { makeDisk } from './disk.ts'
import { placesOf } from './places.ts'

/** Variable with `{ from, to }` as JSON: a Baton executable that is run with `--version` then makes that copy too. */
export const COPY_ORDER = 'BATON_COPY_DATABASE'
/** Variable with the path of a database: the executable then writes its `PRAGMA user_version` to descriptor 3. */
export const SCHEMA_ORDER = 'BATON_READ_SCHEMA'
/** `{ service, executable, keep }`, likewise: then it sweeps, and writes the databases that stay to descriptor 3, one a line. */
export const SWEEP_ORDER = 'BATON_SWEEP'
export const ANSWER_FD = 3

let orders: Promise<void> | null = null

/** Carries out the orders of a run with `--version`, once. Rejects if it cannot. */
export function doAsOrdered(): Promise<void> {
  return (orders ??= carryOut())
}

async function carryOut(): Promise<void> {
  const { [COPY_ORDER]: copy, [SCHEMA_ORDER]: database, [SWEEP_ORDER]: sweep } = process.env
  if (database !== undefined) writeSync(ANSWER_FD, String(await schemaHere(database)))
  if (sweep !== undefined) await sweepHere(JSON.parse(sweep) as Sweep)
  if (copy === undefined) return
  const { from, to } = JSON.parse(copy) as { from: string; to: string }
  await copyHere(from, to)
}

export interface Sweep {
  service: string
  /** absolute path of the executable beside which releases unpack */
  executable: string
  /** tags that are needed */
  keep: readonly string[]
}

async function sweepHere({ service, executable, keep }: Sweep): Promise<void> {
  const { sweepUnpacked } = await import('./sweep.ts')
  const kept = await sweepUnpacked(makeDisk(), service, placesOf(executable), keep)
  writeSync(ANSWER_FD, kept.join('\n'))
}

/** Copies `from` to `to` in this process. `to` is there, and empty. */
export async function copyHere(from: string, to: string): Promise<void> {
  const { copyBetweenWrites } = await import('./quiet-copy.ts')
  if (await copyBetweenWrites(from, to)) return
  const { backup, DatabaseSync } = process.getBuiltinModule('node:sqlite')
  const source = new DatabaseSync(from, { readOnly: true, timeout: 5000 })
  try {
    // All pages in one step, off the main thread. In several steps, a busy writer would make it start over and over.
    await backup(source, to, { rate: 0x7fff_ffff })
  } finally {
    source.close()
  }
}

async function schemaHere(path: string): Promise<number> {
  const { schemaInHeader } = await import('./quiet-copy.ts')
  const said = await schemaInHeader(path)
  if (said !== null) return said
  const { DatabaseSync } = process.getBuiltinModule('node:sqlite')
  const database = new DatabaseSync(path, { readOnly: true, timeout: 2000 })
  try {
    return Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
  } finally {
    database.close()
  }
}
