// A whole copy of a SQLite database, made by SQLite itself, and the process of its own that makes it. Beside a service that has the
// file open such a copy must not be made: SQLite keeps the descriptor of a file on which its process has locks, and closing
// one drops the locks that another SQLite in the process (that of a service's driver) has.

import { spawn } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { reasonOf } from './errors.ts'

/** `{ from, to }` in the environment of an executable of ours that is run with `--version`: then it makes that copy first. */
export const COPY_ORDER = 'BATON_COPY_DATABASE'
const COPY_MAX_MS = 600_000
const SAID_MAX = 2000

/** What the first code of a release does for `--version`. Rejects where the copy cannot be made. */
export async function copyIfOrdered(): Promise<void> {
  const text = process.env[COPY_ORDER]
  if (text === undefined) return
  const { from, to } = JSON.parse(text) as { from: string; to: string }
  await copyHere(from, to)
}

/** In this process. `to` is replaced. */
export async function copyHere(from: string, to: string): Promise<void> {
  const { backup, DatabaseSync } = process.getBuiltinModule('node:sqlite')
  const source = new DatabaseSync(from, { readOnly: true, timeout: 5000 })
  try {
    // all pages in one step, off the main thread: in steps, a busy writer would make it start over and over
    await backup(source, to, { rate: 0x7fff_ffff })
  } finally {
    source.close()
  }
}

/** By `executable`, in a process of its own. False where that is of a release that does not know how; `to` is empty then. */
export async function copyOutside(executable: string, from: string, to: string): Promise<boolean> {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', LD_LIBRARY_PATH, BATON_NODE } = process.env
  const known = { PATH, LC_ALL: 'C', BATON_DEPTH: '1', [COPY_ORDER]: JSON.stringify({ from, to }) }
  const child = spawn(executable, ['--version'], {
    cwd: '/',
    env: { ...known, ...(LD_LIBRARY_PATH && { LD_LIBRARY_PATH }), ...(BATON_NODE && { BATON_NODE }) },
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: COPY_MAX_MS,
    killSignal: 'SIGKILL',
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text.slice(0, SAID_MAX - said.length)))
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  }).catch((cause: unknown) => {
    throw new Error(`running ${executable}: ${reasonOf(cause)}`, { cause })
  })
  if (code !== 0) throw new Error(`${executable} could not copy it: ${said.trim()}`)
  return (await stat(to)).size > 0
}
