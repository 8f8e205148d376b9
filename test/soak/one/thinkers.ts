// Switches stop-first of a large application, under keep-alive clients that think about as long as the server keeps their
// connections: each switch meets connections in the last moments of their idle time. Node keeps them 6 s, and tells clients 5 s.
// Must hold: no connection is reset, which means that a request was there and unread. A request that crosses the end of an idle time is
// lost without a switch too: it is told, and not judged.

import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../../fixtures/evidence.ts'
import { openWorld } from '../../fixtures/only-world.ts'
import { spawnLoad } from '../../lab/load.ts'

export interface ThinkersOptions {
  switches: number
  clients: number
  say(line: string): void
}

const UPDATE = { quietTimeout: '2s', probation: '800ms', maxPause: '1m', readyTimeout: '20s' } as const
const LARGE = { BALLAST_MB: '300' }
/** about as long as the server waits, and longer by the pause of a switch or two: each meets idle times that are nearly over */
const THINK_MS: [number, number] = [5500, 8500]
const BEFORE_MS = 7000
/** a snapshot of another process may be 100 ms old */
const SNAPSHOT_MS = 500

/** Exit code: 1 if a connection was reset. */
export async function soakThinkers({ switches, clients, say }: ThinkersOptions): Promise<number> {
  await using world = await openWorld(UPDATE, false, LARGE)
  const { home, port } = world
  const load = await spawnLoad({
    port,
    mode: 'keepalive',
    clients,
    thinkMs: THINK_MS,
    afterClose: 'reopen',
    maxMs: 3_600_000,
  })
  await sleep(BEFORE_MS)
  let before = load.snapshot()
  for (let at = 0; at < switches; at++) {
    const id = await (at % 2 === 0 ? world.begin(null) : world.beginRollback())
    const operation = await until(
      'the switch to end',
      async () => {
        const { body } = await home.api('GET', '/admin/update/status')
        const { state, operation: last } = body as { state: string; operation: { id: string; outcome: string | null } }
        return state === 'idle' && last.id === id && last.outcome !== null ? last : null
      },
      60_000,
    )
    await sleep(SNAPSHOT_MS)
    const now = load.snapshot()
    const [lost, closed] = [now.lost - before.lost, now.closed - before.closed]
    before = now
    say(`${at + 1}: ${operation.outcome}, lost ${lost}, connections closed ${closed}`)
  }
  const { requests, lost, lostBy, closedBy, errors } = await load.stop()
  say(`requests ${requests}, lost ${lost} ${JSON.stringify(lostBy)}, closed ${JSON.stringify(closedBy)}`)
  for (const [error, times] of Object.entries(errors)) say(`  ${times} times: ${error}`)
  return Object.keys(errors).some((error) => error.includes('ECONNRESET')) ? 1 : 0
}
