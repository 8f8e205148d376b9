// Decides in which order test files run, and how many at once. costs.json records what each cost: seconds from start to end with
// nothing beside it, and processor seconds. A file that is not in it counts as a long one, so that it starts early.

import { readFile, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'

export interface Cost {
  seconds: number
  processor: number
}

export type Costs = Readonly<Record<string, Cost>>

const FILE = join(import.meta.dirname, 'costs.json')
const UNKNOWN: Cost = { seconds: 60, processor: 45 }
/** How much load may run at once for each processor. More than 1, as one file computes while another one waits. */
const SHARE = 1.3
/** Bounds of a file's load: no file is too light to count, and none so heavy that it waits for an empty machine. */
const [LIGHTEST, HEAVIEST] = [0.35, 1.5]

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

/** `load`: how many processors the file keeps busy on average. */
export function costOf(path: string, costs: Costs): Cost & { load: number } {
  const cost = costs[path] ?? UNKNOWN
  const load = cost.processor / Math.max(cost.seconds, 1)
  return { ...cost, load: Math.min(Math.max(load, LIGHTEST), HEAVIEST) }
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
  load: number
  run(): Promise<void>
}

/** Runs all jobs: whenever one ends, it starts the next ones that fit beside those that are running, in order. */
export async function admit(jobs: readonly Job[], room = availableParallelism() * SHARE): Promise<void> {
  const waiting = [...jobs]
  const running = new Set<Promise<void>>()
  let load = 0
  while (waiting.length > 0 || running.size > 0) {
    for (let at = 0; at < waiting.length;) {
      const job = waiting[at]
      if (job === undefined || (running.size > 0 && load + job.load > room)) {
        at++
        continue
      }
      waiting.splice(at, 1)
      load += job.load
      const done: Promise<void> = job.run().finally(() => {
        running.delete(done)
        load -= job.load
      })
      running.add(done)
    }
    await Promise.race(running)
  }
}
