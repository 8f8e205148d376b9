// Decides in which order test files run, and how many at once. costs.json records what each cost in a whole run: seconds from start
// to end, and processor seconds. A file that is not in it counts as a long one, so that it starts early.

import { readFile, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Cost {
  seconds: number
  processor: number
}

export type Costs = Readonly<Record<string, Cost>>

const FILE = join(import.meta.dirname, 'costs.json')
const UNKNOWN: Cost = { seconds: 60, processor: 45 }
/** The next file starts only if the processors were idle for at least this share of the time since the last look. */
const IDLE_MIN = 0.14
/** A long file needs this long until its start can be seen in how busy the processors are. */
const LOOK_EVERY_MS = 1500
/** A file of at most `SHORT_SECONDS` would be over before that: the last hundred would leave the processors idle. */
const LOOK_SHORT_MS = 300
const SHORT_SECONDS = 20
/** files at once for each processor, at least and at most: what waits for timers needs no processor, but memory and disk */
const [LEAST, MOST] = [1, 6]

export async function readCosts(): Promise<Costs> {
  return JSON.parse(await readFile(FILE, 'utf8').catch(() => '{}')) as Costs
}

/** Writes the costs of these files, and keeps the known costs of the others. */
export async function recordCosts(seen: Costs, known: Costs): Promise<void> {
  const all = Object.entries({ ...known, ...seen }).toSorted(([a], [b]) => (a < b ? -1 : 1))
  const lines = all.map(([path, { seconds, processor }]) => {
    const rounded = `{ "seconds": ${Math.ceil(seconds)}, "processor": ${Math.ceil(processor)} }`
    return `  ${JSON.stringify(path)}: ${rounded}`
  })
  await writeFile(FILE, `{\n${lines.join(',\n')}\n}\n`)
}

export function costOf(path: string, costs: Costs): Cost {
  return costs[path] ?? UNKNOWN
}

export function longestFirst<T extends { path: string }>(files: readonly T[], costs: Costs): T[] {
  return files.toSorted((a, b) => costOf(b.path, costs).seconds - costOf(a.path, costs).seconds)
}

/** The files of shard `2/3`: each is in one shard, and the shards cost about the same. */
export function shardOf<T extends { path: string }>(shard: string, files: readonly T[], costs: Costs): T[] {
  const [, wanted, of] = (/^(\d+)\/(\d+)$/.exec(shard) ?? []).map(Number)
  if (wanted === undefined || of === undefined || wanted < 1 || wanted > of)
    throw new Error(`--shard: expected a number of the shard and how many there are, such as 1/3, got \`${shard}\``)
  const shards = Array.from({ length: of }, () => ({ processor: 0, files: [] as T[] }))
  const dearest = files.toSorted((a, b) => costOf(b.path, costs).processor - costOf(a.path, costs).processor)
  for (const file of dearest) {
    const least = shards.reduce((a, b) => (b.processor < a.processor ? b : a))
    least.processor += costOf(file.path, costs).processor
    least.files.push(file)
  }
  return shards[wanted - 1]?.files ?? []
}

export interface Job {
  run: () => Promise<void>
  /** how long it is known to take */
  seconds: number
}

/** Runs all jobs in order: the next one starts as soon as the processors have time for it. */
export async function admit(
  jobs: readonly Job[],
  { idle = idleShare(), looks = [LOOK_SHORT_MS, LOOK_EVERY_MS], processors = availableParallelism() } = {},
): Promise<void> {
  const running = new Set<Promise<void>>()
  for (const { run, seconds } of jobs) {
    const everyMs = looks[seconds <= SHORT_SECONDS ? 0 : 1]
    while (running.size >= LEAST * processors) {
      const look = new AbortController()
      const wait = sleep(everyMs, undefined, { signal: look.signal }).catch(() => {})
      await Promise.race([...running, wait])
      look.abort()
      if (running.size < MOST * processors && idle() >= IDLE_MIN) break
    }
    const done: Promise<void> = run().finally(() => running.delete(done))
    running.add(done)
  }
  await Promise.all(running)
}

/** Each call returns the processors' idle share of the time since the last call. */
export function idleShare(): () => number {
  const read = () => {
    const all = cpus().map(({ times }) => times)
    const idle = all.reduce((sum, times) => sum + times.idle, 0)
    return { idle, whole: all.reduce((sum, times) => sum + times.user + times.nice + times.sys + times.irq, idle) }
  }
  let last = read()
  return () => {
    const now = read()
    const share = (now.idle - last.idle) / Math.max(now.whole - last.whole, 1)
    last = now
    return share
  }
}
