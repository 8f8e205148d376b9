// What the operator's program (`update.onOutcome`) costs the requests of a service while it hangs, fails or is missing: the same service
// beside itself, in turns. It is told without a pause here; a real one is told a few times a day.

import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { freePort } from '../fixtures/install.ts'
import { spawnLoad } from '../lab/load.ts'
import { PASSWORD } from './baton.ts'
import { end, start, untilAnswers } from './processes.ts'
import { CACHE, writeBundle } from './setup.ts'
import { median, medianRatio } from './statistics.ts'

export interface ToldResult {
  rounds: number
  rows: { what: string; requestsPerSecond: number; p99Ms: number; ratio: number }[]
  /** for docs/about/performance.md */
  markdown: string
}

const PROGRAMS: Record<string, readonly string[] | null> = {
  'no program': null,
  'it hangs, and is ended': ['/bin/sleep', '1000'],
  'it fails at once, and is started again': ['/bin/false'],
  'it is missing': ['/nonexistent/tell'],
}
const [CLIENTS, ROUND_MS] = [16, 2000]

export async function run({ long, say }: { long: boolean; say: (line: string) => void }): Promise<ToldResult> {
  const rounds = long ? 15 : 5
  const folder = join(CACHE, 'run', 'told')
  await rm(folder, { recursive: true, force: true })
  const plain = await writeBundle('service', join(PROJECT, 'test/bench/service.ts'))
  const told = await writeBundle('service-told', join(PROJECT, 'test/bench/service-told.ts'))
  const seen = Object.keys(PROGRAMS).map((what) => ({ what, rates: [] as number[], p99: [] as number[] }))
  for (let round = 0; round < rounds; round++) {
    say(`told: round ${round + 1} of ${rounds}`)
    for (const one of round % 2 === 0 ? seen : seen.toReversed()) {
      const program = PROGRAMS[one.what] ?? null
      const totals = await measure(
        join(folder, `${round}-${seen.indexOf(one)}`),
        program === null ? plain : told,
        program,
      )
      one.rates.push((totals.ok / totals.durationMs) * 1000)
      one.p99.push(totals.latency.p99Ms)
    }
  }
  await rm(folder, { recursive: true, force: true })
  const without = seen[0]?.rates ?? []
  const rows = seen.map(({ what, rates, p99 }) => ({
    what,
    requestsPerSecond: Math.round(median(rates)),
    p99Ms: Math.round(median(p99) * 10) / 10,
    ratio: Math.round(medianRatio(without.map((other, i) => [rates[i] ?? Number.NaN, other])) * 100) / 100,
  }))
  return { rounds, rows, markdown: markdownOf(rounds, rows) }
}

/** One process of the service, alone on the machine while it is measured. */
async function measure(folder: string, bundle: string, program: readonly string[] | null) {
  const port = await freePort()
  const state = join(folder, 'state')
  await mkdir(state, { recursive: true })
  const config = { dashboard: { password: PASSWORD }, listen: { host: '127.0.0.1', port }, stateDirectory: state }
  await writeFile(join(folder, 'config.json'), JSON.stringify(config), { mode: 0o600 })
  const env = { ...process.env, BENCH_TOLD: JSON.stringify(program ?? []) }
  const { pid } = start(process.execPath, [bundle, '--config', join(folder, 'config.json')], { env })
  try {
    await untilAnswers(port, null, performance.now())
    for (const ms of [1000, ROUND_MS]) {
      const load = await spawnLoad({ mode: 'keepalive', clients: CLIENTS, port, maxMs: ms })
      const totals = await load.done
      if (totals.lost > 0) throw new Error(`lost: ${JSON.stringify(totals.errors)}`)
      if (ms === ROUND_MS) return totals // the first was until the code is hot
    }
    throw new Error('nothing was measured')
  } finally {
    await end(pid, 'SIGKILL')
  }
}

function markdownOf(rounds: number, rows: ToldResult['rows']): string {
  return [
    `The reference service under ${CLIENTS} clients with kept connections, while its process tells an \`update.onOutcome\` program without a pause that takes nothing: ${rounds} rounds in turns. *Ratio* is the median of the requests a second over those without a program in the same round; a program that fails at once is started without end here, on the processors that service and clients share, and a real one five times in 15 hours.`,
    '',
    '| the program | requests/s | p99 | ratio |',
    '|---|---|---|---|',
    ...rows.map(
      ({ what, requestsPerSecond, p99Ms, ratio }) => `| ${what} | ${requestsPerSecond} | ${p99Ms} ms | ${ratio} |`,
    ),
  ].join('\n')
}
