// A process that writes rows at a steady rate, whatever keeps it waiting: the application beside a rehearsal. A wait counts from the
// moment at which the row was due until it is committed. All rows that are due share a transaction.

import { fork } from 'node:child_process'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'

export interface Writing {
  path: string
  mode: 'wal' | 'delete'
  /** rows a second */
  rate: number
}

/** The rows that were due while a mark was set. */
export interface WriterSlice {
  name: string
  rows: number
  refused: number
  /** milliseconds */
  longestMs: number
}

export interface Writer {
  mark(name: string | null): void
  stop(): Promise<WriterSlice[]>
}

const TICK_MS = 2
/** as an application with a busy timeout has it */
const BUSY_MS = 20_000

export async function spawnWriter(options: Writing): Promise<Writer> {
  const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(options)], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
  })
  const next = <T>() =>
    new Promise<T>((resolve, reject) => {
      child.once('message', (message) => resolve(message as T))
      child.once('exit', (code) => reject(new Error(`the writer ended with ${code}`)))
    })
  await next()
  return {
    mark: (name) => void child.send({ mark: name }),
    async stop() {
      const slices = next<WriterSlice[]>()
      child.send({ stop: true })
      const result = await slices
      child.kill()
      return result
    },
  }
}

function write({ path, mode, rate }: Writing): void {
  const database = new DatabaseSync(path, { timeout: BUSY_MS })
  database.exec(`pragma journal_mode = ${mode}; pragma synchronous = full`)
  const insert = database.prepare("insert into quota (token_id, used, created_at) values ('written', 1, '2026')")
  const slices: WriterSlice[] = []
  let slice: WriterSlice | null = null
  let [written, began] = [0, performance.now()]
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - began) / 1000) * rate)
    if (due === written) return
    const rows = due - written
    let isRefused = false
    try {
      database.exec('begin immediate')
      for (let row = 0; row < rows; row++) insert.run()
      database.exec('commit')
    } catch {
      if (database.isTransaction) database.exec('rollback')
      isRefused = true
    }
    const waitedMs = performance.now() - (began + ((written + 1) / rate) * 1000)
    written = due
    if (slice === null) return
    slice.rows += rows
    slice.refused += isRefused ? rows : 0
    slice.longestMs = Math.max(slice.longestMs, waitedMs)
  }, TICK_MS)
  process.on('message', ({ mark, stop }: { mark?: string | null; stop?: true }) => {
    if (stop === true) {
      clearInterval(timer)
      database.close()
      process.send?.(slices)
      return process.disconnect?.()
    }
    slice = mark === null || mark === undefined ? null : { name: mark, rows: 0, refused: 0, longestMs: 0 }
    if (slice !== null) slices.push(slice)
  })
  began = performance.now()
  process.send?.('writes')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) write(JSON.parse(process.argv[2] ?? '') as Writing)
