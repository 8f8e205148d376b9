// What Baton does with the application's database: it makes a whole copy, reads the number of its schema, and looks whether
// another process writes to it. A separate process does all of it.
// Must hold: a process in which the application runs opens, reads and closes no file of that database. POSIX locks belong to the
// process: closing any descriptor of the file drops the locks that the application's driver holds, if the driver brings its own
// copy of SQLite. Another process then writes beside an open transaction, and committed rows are lost.

import { stat } from 'node:fs/promises'
import { durationText } from '../words/duration.ts'
import { BatonError, reasonOf } from '../words/errors.ts'
import { ANSWER_FD, COPY_ORDER, DEPTH, SCHEMA_ORDER } from './orders.ts'
import { type Ran, runBounded } from '../sockets/bounded.ts'
import type { Rehearse } from '../words/rehearsal.ts'
import { copyHere } from './quiet-copy.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'
import type { Beside } from './copy-beside.ts'
import {
  FILES_ORDER,
  LOOK_ORDER,
  REHEARSE_ORDER,
  ROWS_ORDER,
  type RowsBetween,
  type DatabaseLook,
  type Sweep,
  SWEEP_ORDER,
} from './obey.ts'

const COPY_MAX_MS = 600_000
const SCHEMA_MAX_MS = 10_000
const SWEEP_MAX_MS = 120_000
const SAID_MAX = 2000
/** an author's `trial` may be long */
const ANSWER_MAX = 1024 * 1024

/** Which process makes a copy. */
export interface Copier {
  /** a Baton executable that makes it in a separate process; null for none */
  executable: string | null
  /** whether this process makes it if the executable does not know how; never true in a process in which the application runs */
  here: boolean
}

/** Copies `from` to `to`, replacing it. Throws if neither process could. */
export async function copyDatabase(from: string, to: string, { executable, here }: Copier): Promise<void> {
  if (executable !== null && (await copyOutside(executable, from, to))) return
  if (!here) {
    throw new BatonError('swap_failed', `${executable ?? 'the executable'} does not know how to copy the database`, {
      hint: 'if this executable was installed by hand, stop the service and run `upgrade` on the command line: it makes its own copy of the database',
    })
  }
  await copyHere(from, to)
}

/** `PRAGMA user_version`, read by running `executable`; null if that release cannot read it. */
export function schemaOf(executable: string, database: string): Promise<number | null> {
  // However many callers ask at once, one process reads it.
  const asked = asking.get(database) ?? askSchema(executable, database).finally(() => asking.delete(database))
  asking.set(database, asked)
  return asked
}

const asking = new Map<string, Promise<number | null>>()

async function askSchema(executable: string, database: string): Promise<number | null> {
  const { code, answer } = await order(executable, { [SCHEMA_ORDER]: database }, SCHEMA_MAX_MS).catch(() => REFUSED)
  return code === 0 && /^\d{1,10}$/.test(answer) ? Number(answer) : null
}

/** What a rehearsal must know of the database before it begins; null if the release in `executable` cannot answer. */
export async function lookBy(executable: string, database: string): Promise<DatabaseLook | null> {
  const { code, answer } = await order(executable, { [LOOK_ORDER]: database }, SCHEMA_MAX_MS)
  const look = code === 0 ? parsedJson(answer) : null
  return isObject(look) ? (look as unknown as DatabaseLook) : null
}

/** How many rows `more` has that `than` has not; null if nobody could count them. Never throws. */
export async function rowsBetween(executable: string, paths: RowsBetween): Promise<number | null> {
  const counted = order(executable, { [ROWS_ORDER]: JSON.stringify(paths) }, SCHEMA_MAX_MS)
  const { code, answer } = await counted.catch(() => REFUSED)
  return code === 0 && /^\d{1,15}$/.test(answer) ? Number(answer) : null
}

/** What the author of the release in `executable` says about rehearsals; null: nothing, or the release is older than them. */
export async function readRehearse(executable: string): Promise<Rehearse | null> {
  const { code, answer } = await order(executable, { [REHEARSE_ORDER]: '1' }, SCHEMA_MAX_MS)
  const rehearse = code === 0 ? parsedJson(answer) : null
  return isObject(rehearse) ? rehearse : null
}

/** Runs `executable` to copy files of the state directory: another database may be among them. */
export async function copyFilesBy(
  executable: string,
  what: Beside,
  { mostMs = COPY_MAX_MS, signal }: { mostMs?: number; signal?: AbortSignal } = {},
): Promise<void> {
  const { code, said, stopped } = await order(executable, { [FILES_ORDER]: JSON.stringify(what) }, mostMs, signal)
  const why = stopped === 'late' ? `it did not finish within ${durationText(mostMs)}` : said.trim()
  const named = what.isWhole === true ? what.files.join(', ') : '`trial.files`'
  if (code !== 0) throw new Error(`${executable} could not copy ${named}: ${why}`)
}

/**
 * Runs `executable` to remove the folders that releases have unpacked and no release needs. This process must not do it: opening a
 * file that turns out to be a database drops the application's locks. Returns the databases because of which a folder stays.
 */
export async function sweepBy(executable: string, what: Sweep): Promise<string[]> {
  const { code, answer, said } = await order(executable, { [SWEEP_ORDER]: JSON.stringify(what) }, SWEEP_MAX_MS)
  if (code !== 0)
    throw new Error(
      `${executable} could not remove unpacked releases: ${said.trim() || `it ended with ${code ?? 'a signal'}`}`,
    )
  return answer.split('\n').filter((path) => path !== '')
}

/** False if the release of `executable` does not know how; `to` is then empty. */
async function copyOutside(executable: string, from: string, to: string): Promise<boolean> {
  const { code, said } = await order(executable, { [COPY_ORDER]: JSON.stringify({ from, to }) }, COPY_MAX_MS)
  if (code !== 0) throw new Error(`${executable} could not copy ${from}: ${said.trim()}`)
  return (await stat(to)).size > 0
}

type Answer = Pick<Ran, 'code' | 'answer' | 'said' | 'stopped'>

const REFUSED: Answer = { code: null, answer: '', said: '', stopped: null }

/** `answer`: what it has written to descriptor 3. */
async function order(
  executable: string,
  what: Record<string, string>,
  mostMs: number,
  signal?: AbortSignal,
): Promise<Answer> {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', LD_LIBRARY_PATH, BATON_NODE } = process.env
  const known = { PATH, LC_ALL: 'C', [DEPTH]: '1', ...what }
  return await runBounded([executable, '--version'], {
    cwd: '/',
    env: { ...known, ...(LD_LIBRARY_PATH && { LD_LIBRARY_PATH }), ...(BATON_NODE && { BATON_NODE }) },
    timeMs: mostMs,
    answer: { fd: ANSWER_FD, max: ANSWER_MAX },
    said: { first: SAID_MAX },
    group: 'own, left',
    signal,
  }).catch((cause: unknown) => {
    throw new Error(`running ${executable}: ${reasonOf(cause)}`, { cause })
  })
}
