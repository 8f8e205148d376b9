// Where a run with `--version` finds out that another process has given it an order (orders.ts), and carries it out.
// Must hold: no application runs in this process; `copy-database.ts` says why.

import { writeSync } from 'node:fs'
import { WIRES } from '../words/wire.ts'
import {
  ALL_PAGES,
  ANSWER_FD,
  COPY_ORDER,
  DEPTH,
  FETCH_ORDER,
  openToRead,
  SCHEMA_ORDER,
  schemaIn,
  WIRES_ORDER,
} from './orders.ts'

let orders: Promise<unknown> | null = null

/**
 * Carries out the orders of a run with `--version`, once. Rejects if it cannot. `ownRehearse`: the release's `trial`. `fetch`:
 * downloads as `FETCH_ORDER` says; it is large, so the first code of a release has it elsewhere.
 */
export function doAsOrdered(
  ownRehearse: () => unknown = () => null,
  fetch: () => unknown = () => null,
): Promise<unknown> {
  if (process.env[DEPTH] === undefined) return Promise.resolve()
  if (process.env[FETCH_ORDER] !== undefined) return (orders ??= Promise.resolve(fetch()))
  return (orders ??= import('./obey.ts').then(({ obey }) => obey(ownRehearse)))
}

/**
 * For a program with its own `--version`, which may end in its next line: answers, or starts to copy, before this returns. Node
 * waits for a copy that has begun, even in `process.exit()`.
 */
export function obeyAtOnce(): void {
  const { [COPY_ORDER]: copy, [SCHEMA_ORDER]: path, [WIRES_ORDER]: wires } = process.env
  if (orders !== null || (copy ?? path ?? wires) === undefined) return
  orders = Promise.resolve()
  if (wires !== undefined) writeSync(ANSWER_FD, JSON.stringify(WIRES))
  if (path !== undefined) writeSync(ANSWER_FD, String(schemaIn(openToRead(path))))
  if (copy === undefined) return
  const { from, to } = JSON.parse(copy) as { from: string; to: string }
  void process.getBuiltinModule('node:sqlite').backup(openToRead(from), to, { rate: ALL_PAGES })
}
