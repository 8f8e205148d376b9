// Where the time of a start-first switch goes, step by step, under an open loop: when each step is taken, and how long the thread of the
// process that takes it is busy in one turn, so that a step that holds up requests has a name.

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../fixtures/install.ts'
import { spawnOpenLoad } from '../lab/open-load.ts'
import { baton } from './baton.ts'
import { other, switchOnce, TAGS, type Tag } from './peer.ts'
import { untilAnswers } from './processes.ts'
import { CACHE } from './setup.ts'
import { ORDERED, STEADY_PATH, STEPS_FILE, type StepSeen } from './step-trace.ts'
import { median } from './statistics.ts'

export interface StepsResult {
  rate: number
  switches: number
  rows: StepRow[]
  markdown: string
}

export interface StepRow {
  side: 'old' | 'new'
  step: string
  /** since the order; median */
  atMs: number
  /** processor time since the step before; median */
  usedMs: number
  /** the most of it in one turn of the loop: the median and the worst */
  longestMs: number
  worstMs: number
}

const [RATE, CONNECTIONS, STEADY_MS] = [2000, 32, 1000]
const SWITCHES = { short: 9, long: 25 }

export async function run({ long, say }: { long: boolean; say: (line: string) => void }): Promise<StepsResult> {
  const folder = join(CACHE, 'run', 'steps')
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const path = join(folder, 'steps')
  const port = await freePort()
  process.env[STEPS_FILE] = path
  const switches: StepSeen[][] = []
  try {
    const peer = await baton()
    await using running = await peer.open({ folder, port, backendPort: 0, drainMs: 2000 })
    await untilAnswers(port, null, performance.now())
    const load = await spawnOpenLoad({ port, rate: RATE, connections: CONNECTIONS })
    let tag: Tag = TAGS[0]
    const count = long ? SWITCHES.long : SWITCHES.short
    while (switches.length < count) {
      await writeFile(path, '')
      tag = other(tag)
      await sleep(STEADY_MS)
      await fetch(`http://127.0.0.1:${port}${STEADY_PATH}`, { headers: { connection: 'close' } })
      await sleep(STEADY_MS)
      await switchOnce(running, port, tag, true)
      await running.finish()
      await running.confirm?.()
      const lines = (await readFile(path, 'utf8')).trim().split('\n')
      switches.push(lines.map((line) => JSON.parse(line) as StepSeen))
      say(`steps: switch ${switches.length} of ${count}`)
    }
    await load.stop()
  } finally {
    delete process.env[STEPS_FILE]
  }
  const rows = rowsOf(switches)
  return { rate: RATE, switches: switches.length, rows, markdown: markdownOf(switches.length, rows) }
}

/** Of each switch what both processes have seen, in any order. Pure. */
export function rowsOf(switches: readonly (readonly StepSeen[])[]): StepRow[] {
  const seen = new Map<string, (StepSeen & { side: StepRow['side'] })[]>()
  for (const steps of switches) {
    const ordered = steps.find(({ step }) => step === ORDERED)
    if (ordered === undefined) continue
    for (const one of steps) {
      const side = one.pid === ordered.pid ? 'old' : 'new'
      const key = `${side} ${one.step}`
      seen.set(key, [...(seen.get(key) ?? []), { ...one, side, at: one.at - ordered.at }])
    }
  }
  const rows = [...seen.values()].flatMap((all): StepRow[] => {
    const [first] = all
    if (first === undefined || first.step === 'steady') return []
    const middle = (of: (one: StepSeen) => number) => tenth(median(all.map(of)))
    return [
      {
        side: first.side,
        step: first.step,
        atMs: middle(({ at }) => at),
        usedMs: middle((one) => one.usedMs),
        longestMs: middle((one) => one.longestMs),
        worstMs: tenth(Math.max(...all.map((one) => one.longestMs))),
      },
    ]
  })
  return rows.toSorted((one, next) => one.atMs - next.atMs)
}

function markdownOf(switches: number, rows: readonly StepRow[]): string {
  return [
    `Of ${switches} start-first switches under ${RATE} requests/s: when each step is taken, the processor time of its process since the step before, and the most of that in one turn of its loop (median, worst). The time before \`${ORDERED}\` is a second without a switch.`,
    '',
    '| process | step | at, ms | used, ms | longest turn, ms | worst |',
    '|---|---|---:|---:|---:|---:|',
    ...rows.map((row) =>
      ['', row.side, row.step, row.atMs, row.usedMs, row.longestMs, row.worstMs, ''].join(' | ').trim(),
    ),
  ].join('\n')
}

function tenth(ms: number): number {
  return Math.round(ms * 10) / 10
}
