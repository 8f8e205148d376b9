// How long a client of a service that is not overloaded waits for an answer while the service is switched: an open loop at the
// same absolute rates for every peer, the second around each switch beside seconds without one.

import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../fixtures/install.ts'
import { type OpenSlice, spawnOpenLoad } from '../lab/open-load.ts'
import { other, type Peer, type Place, switchOnce, TAGS, type Tag } from './peer.ts'
import { untilAnswers } from './processes.ts'
import { median } from './statistics.ts'

export interface Waits {
  /** requests a second */
  rate: number
  switches: number
  requests: number
  lost: number
  closed: number
  /** of the second around each switch: the longest wait of each, ms */
  switchLongestMs: { median: number; worst: number }
  steadyLongestMs: { median: number; worst: number }
  /** median over the seconds, ms */
  switchP999Ms: number
  steadyP999Ms: number
}

export const RATES = [500, 2000, 6000] as const
const CONNECTIONS = 32
const SECOND_MS = 1000
const WARM_UP_MS = 1000

export async function measureWaits(peer: Peer, place: Place, switches: number): Promise<Waits[]> {
  const measured: Waits[] = []
  for (const rate of RATES) {
    const own = { ...place, port: await freePort(), folder: join(place.folder, `waits-${rate}`) }
    await mkdir(own.folder, { recursive: true })
    await using running = await peer.open(own)
    await untilAnswers(own.port, null, performance.now())
    const load = await spawnOpenLoad({ port: own.port, rate, connections: CONNECTIONS })
    await sleep(WARM_UP_MS)
    let tag: Tag = TAGS[0]
    for (let count = 0; count < switches; count++) {
      load.mark('steady')
      await sleep(SECOND_MS)
      tag = other(tag)
      load.mark(null)
      await running.prepare(tag)
      load.mark('switch')
      const over = sleep(SECOND_MS).then(() => load.mark(null)) // the second around the switch, however long the rest takes
      await switchOnce(running, own.port, tag, true)
      await running.finish()
      await over
      await running.confirm?.()
      await sleep(SECOND_MS / 4)
    }
    measured.push(waitsOf(rate, switches, await load.stop()))
  }
  return measured
}

export function waitsOf(rate: number, switches: number, slices: readonly OpenSlice[]): Waits {
  const named = (name: string) => slices.filter((slice) => slice.name === name)
  const longest = (name: string) => {
    const all = named(name).map(({ longestMs }) => longestMs)
    return { median: round(median(all)), worst: round(Math.max(0, ...all)) }
  }
  const p999 = (name: string) => round(median(named(name).map(({ p999Ms }) => p999Ms)))
  const sum = (of: (slice: OpenSlice) => number) => slices.reduce((total, slice) => total + of(slice), 0)
  return {
    rate,
    switches,
    requests: sum(({ requests }) => requests),
    lost: sum(({ lost }) => lost),
    closed: sum(({ closed }) => closed),
    switchLongestMs: longest('switch'),
    steadyLongestMs: longest('steady'),
    switchP999Ms: p999('switch'),
    steadyP999Ms: p999('steady'),
  }
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10
}
