// Ten thousand idle connections from one process to another, with requests on them meanwhile: Baton's packets of descriptors
// beside Node's own IPC, in the same run, turn by turn.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Idle } from '../lab/idle.ts'
import { spawnRemote } from '../lab/remote.ts'
import type { Bulk, Route } from './bulk.ts'
import { median } from './statistics.ts'

export interface BulkFigures {
  /** medians of the rounds */
  ms: number
  /** of both processes together */
  processorMs: number
  longestWaitMs: number
  /** over all rounds */
  lost: number
  closed: number
}

export interface CarryResult {
  clients: number
  perSecond: number
  rounds: number
  routes: Record<Route, BulkFigures>
}

const [CLIENTS, PER_SECOND, ROUNDS, LONG_ROUNDS] = [10_000, 400, 3, 9]
const BULK = new URL('./bulk.ts', import.meta.url).href
const IDLE = new URL('../lab/idle.ts', import.meta.url).href

export async function run({ long, say }: { long: boolean; say: (line: string) => void }): Promise<CarryResult> {
  const rounds = long ? LONG_ROUNDS : ROUNDS
  const seen: Record<Route, BulkFigures[]> = { baton: [], ipc: [] }
  for (let round = 0; round < rounds; round++) {
    for (const route of ['baton', 'ipc'] as const) {
      const figures = await measure(route)
      seen[route].push(figures)
      say(`carry: ${CLIENTS} idle connections, ${route}: ${figures.ms} ms`)
    }
  }
  return {
    clients: CLIENTS,
    perSecond: PER_SECOND,
    rounds,
    routes: { baton: middle(seen.baton), ipc: middle(seen.ipc) },
  }
}

async function measure(route: Route): Promise<BulkFigures> {
  await using bulk = await spawnRemote<Bulk>(BULK, { route })
  const { port } = await bulk.where()
  await using crowd = await spawnRemote<Idle>(IDLE, {
    host: '127.0.0.1',
    port,
    clients: CLIENTS,
    perSecond: PER_SECOND,
  })
  await sleep(1000)
  await crowd.report()
  const { ms, processorMs, moved } = await bulk.move()
  const { longestMs } = await crowd.report()
  const { tags, lost, closed } = await crowd.askAll()
  if (moved < CLIENTS || (tags['new'] ?? 0) < CLIENTS - lost - closed)
    throw new Error(`${route}: expected ${CLIENTS} to be served by the new process, got ${JSON.stringify(tags)}`)
  return { ms, processorMs, longestWaitMs: longestMs, lost, closed }
}

function middle(all: BulkFigures[]): BulkFigures {
  const of = (key: keyof BulkFigures) => Math.round(median(all.map((one) => one[key])))
  const sum = (key: 'lost' | 'closed') => all.reduce((total, one) => total + one[key], 0)
  return {
    ms: of('ms'),
    processorMs: of('processorMs'),
    longestWaitMs: of('longestWaitMs'),
    lost: sum('lost'),
    closed: sum('closed'),
  }
}
