// What a start costs: processor time of a new process until it has answered its first request, of plain `node:http`, of the managed
// reference service, and of that of another checkout if there is one. In pairs, one after the other, each of them in turn first.

import { mkdtemp, rm } from 'node:fs/promises'
import { readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type Install, freePort, install } from '../fixtures/install.ts'
import { releases, type TestRelease } from '../fixtures/releases.ts'
import { commitOf } from '../../deploy/make/publication.ts'
import { end, start, untilAnswers } from './processes.ts'
import { median, medianRatio } from './statistics.ts'

export interface StartResult {
  pairs: number
  rows: { what: string; ms: number; extraMs: number }[]
  /** of this checkout's extra time over that of `--against`; null without it */
  ratio: number | null
  /** for a person */
  markdown: string
}

export interface StartOptions {
  long: boolean
  /** another checkout, with its packages */
  against: string | null
  say: (line: string) => void
}

const PAIRS = { short: 15, long: 101 }
const TAG = 'v1.0.0'

/** Starts one process, asks it once, and ends it; resolves to its processor time in ms. */
type Start = () => Promise<number>

export async function run({ long, against, say }: StartOptions): Promise<StartResult> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-bench-start-'))
  await using stack = new AsyncDisposableStack()
  stack.defer(() => rm(folder, { recursive: true, force: true }))
  const starts: Start[] = [startPlain]
  for (const release of [await releaseOf(null), ...(against === null ? [] : [await releaseOf(against)])])
    starts.push(startOf(stack.use(await install({ release }))))
  for (const one of starts) await one() // the first start of an install clears up, and the files come from the disk
  const all: number[][] = starts.map(() => [])
  const pairs = long ? PAIRS.long : PAIRS.short
  for (let pair = 0; pair < pairs; pair++) {
    const order = [...starts.entries()]
    for (const [at, one] of pair % 2 === 0 ? order : order.toReversed()) all[at]?.push(await one())
    if (pair % 10 === 9) say(`start: pair ${pair + 1} of ${pairs}`)
  }
  const commit = against === null ? null : await commitOf(resolve(against))
  return resultOf(all, commit?.slice(0, 7) ?? 'the other checkout')
}

/** `all`: of plain `node:http`, of this checkout and, if it was asked for, of the other one: one time for each pair. Pure. */
export function resultOf(all: readonly (readonly number[])[], other: string): StartResult {
  const [plain = [], own = [], others = null] = all
  const what = ['plain `node:http`', 'the managed reference service', `the same of ${other}`]
  const extra = (times: readonly number[]) => times.map((ms, pair) => ms - (plain[pair] ?? Number.NaN))
  const rows = all.map((times, at) => ({
    what: what[at] ?? '',
    ms: tenth(median(times)),
    extraMs: tenth(median(extra(times))),
  }))
  const [ours, theirs] = [extra(own), extra(others ?? [])]
  const ratio = others === null ? null : medianRatio(theirs.map((ms, pair) => [ours[pair] ?? Number.NaN, ms]))
  const rounded = ratio === null ? null : Math.round(ratio * 100) / 100
  return { pairs: plain.length, rows, ratio: rounded, markdown: markdownOf(plain.length, rows, rounded) }
}

function markdownOf(pairs: number, rows: StartResult['rows'], ratio: number | null): string {
  const told = rows.map(({ what, ms, extraMs }) => `${what} ${ms} ms (${extraMs} more)`)
  const before = ratio === null ? '' : ` The extra time is ${ratio} of what it was.`
  return `Processor time of a new process until its first answer, medians of ${pairs} pairs: ${told.join(', ')}.${before}`
}

/** The reference service of this checkout, or of the one in `folder`. */
async function releaseOf(folder: string | null): Promise<TestRelease> {
  const builds = folder === null ? { releases } : ((await import(join(resolve(folder), RELEASES))) as Builds)
  const [release] = await builds.releases([{ tag: TAG }])
  if (release === undefined) throw new Error('no release')
  return release
}

type Builds = { releases: typeof releases }
const RELEASES = 'test/fixtures/releases.ts'

async function startPlain(): Promise<number> {
  const port = await freePort()
  const program = `require('node:http').createServer((q, r) => r.end('{"tag":"v0.0.0"}')).listen(${port}, '127.0.0.1')`
  return await measured(start(process.execPath, ['--eval', program]).pid, port)
}

function startOf({ executable, configPath, port }: Install): Start {
  return () => measured(start(executable, ['--config', configPath]).pid, port ?? 0)
}

async function measured(pid: number, port: number): Promise<number> {
  try {
    await untilAnswers(port, null, performance.now())
    return processorMsOf(pid)
  } finally {
    await end(pid, 'SIGKILL')
  }
}

/** Of all threads, in a finer unit than the 10 ms of /proc/<pid>/stat: proc_pid_schedstat(5). */
function processorMsOf(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`)
  const ns = threads.map((id) => Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ')[0]))
  return ns.reduce((sum, one) => sum + one, 0) / 1e6
}

function tenth(ms: number): number {
  return Math.round(ms * 10) / 10
}
