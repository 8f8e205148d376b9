// Both kinds of switch side by side, and beside them a restart behind a socket that systemd holds: there, too, no two processes live
// at once. One after the other in each round, under an open loop at the same rate, so that what else the machine does hits all.

import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../fixtures/install.ts'
import { type OpenSlice, spawnOpenLoad } from '../lab/open-load.ts'
import { other, type Peer, type Place, type Running, switchOnce, type Tag, TAGS } from './peer.ts'
import type { Entry } from './peers.ts'
import { untilAnswers } from './processes.ts'
import { CACHE } from './setup.ts'
import { median, medianRatio } from './statistics.ts'

/** One switch of one peer. */
export interface Turn {
  /** from the order to the new version's answer, ms */
  switchMs: number
  switch: Pick<OpenSlice, 'longestMs' | 'lost' | 'closed' | 'requests'>
  /** in a second without a switch */
  steadyLongestMs: number
}

export interface PairFigures {
  id: string
  title: string
  requests: number
  lost: number
  closed: number
  /** of the second around each switch: the longest wait of each, ms */
  longestMs: { median: number; worst: number }
  steadyLongestMs: number
  switchMs: number
  /** the median of the ratios of each round: the longest wait stop-first over this peer's */
  ratio: number
}

export interface PairsResult {
  rate: number
  rounds: number
  peers: PairFigures[]
}

export interface PairsOptions {
  /** the first is what the others are compared with */
  entries: Entry[]
  rounds: number
  drainMs: number
  say: (line: string) => void
}

const [RATE, CONNECTIONS] = [500, 32]
const [WARM_UP_MS, SECOND_MS, BETWEEN_MS] = [500, 1000, 250]

export async function measurePairs({ entries, rounds, drainMs, say }: PairsOptions): Promise<PairsResult> {
  const present = entries.filter((entry): entry is Peer => !('missing' in entry))
  await using stack = new AsyncDisposableStack()
  const all: { peer: Peer; place: Place; running: Running; turns: Turn[] }[] = []
  for (const peer of present) {
    const folder = join(CACHE, 'run', `pairs-${peer.id}`)
    await rm(folder, { recursive: true, force: true })
    await mkdir(folder, { recursive: true })
    const place = { folder, port: await freePort(), backendPort: await freePort(), drainMs }
    const running = stack.use(await peer.open(place))
    await untilAnswers(place.port, null, performance.now())
    all.push({ peer, place, running, turns: [] })
  }
  let tag: Tag = TAGS[0]
  for (let round = 0; round < rounds; round++) {
    tag = other(tag)
    const inTurn = round % 2 === 0 ? all : all.toReversed()
    for (const { running, place, turns } of inTurn) turns.push(await measureTurn(running, place.port, tag))
    say(
      `handover, in turns: ${all.map(({ peer, turns }) => `${peer.title} ${round1(turns.at(-1)?.switch.longestMs ?? 0)} ms`).join(', ')}`,
    )
  }
  return {
    rate: RATE,
    rounds,
    peers: pairsOf(all.map(({ peer: { id, title }, turns }) => ({ id, title, turns }))),
  }
}

async function measureTurn(running: Running, port: number, tag: Tag): Promise<Turn> {
  const load = await spawnOpenLoad({ port, rate: RATE, connections: CONNECTIONS })
  await sleep(WARM_UP_MS)
  load.mark('steady')
  await sleep(SECOND_MS)
  load.mark(null)
  await running.prepare(tag)
  load.mark('switch')
  const over = sleep(SECOND_MS)
  const switchMs = await switchOnce(running, port, tag, true)
  await running.finish()
  await over
  load.mark(null)
  await running.confirm?.()
  const slices = await load.stop()
  const named = (name: string) => slices.find((slice) => slice.name === name)
  const [during, steady] = [named('switch'), named('steady')]
  if (during === undefined || steady === undefined) throw new Error('the open load has not told of the switch')
  await sleep(BETWEEN_MS)
  return { switchMs, switch: during, steadyLongestMs: steady.longestMs }
}

/** Pure. */
export function pairsOf(peers: readonly { id: string; title: string; turns: readonly Turn[] }[]): PairFigures[] {
  const longest = (turns: readonly Turn[]) => turns.map((turn) => turn.switch.longestMs)
  const own = longest(peers[0]?.turns ?? [])
  return peers.map(({ id, title, turns }) => {
    const sum = (of: (slice: Turn['switch']) => number) => turns.reduce((total, turn) => total + of(turn.switch), 0)
    const theirs = longest(turns)
    return {
      id,
      title,
      requests: sum(({ requests }) => requests),
      lost: sum(({ lost }) => lost),
      closed: sum(({ closed }) => closed),
      longestMs: { median: round1(median(theirs)), worst: round1(Math.max(0, ...theirs)) },
      steadyLongestMs: round1(median(turns.map(({ steadyLongestMs }) => steadyLongestMs))),
      switchMs: round1(median(turns.map(({ switchMs }) => switchMs))),
      ratio: Math.round(medianRatio(own.map((ms, at) => [ms, theirs[at] ?? Number.NaN])) * 100) / 100,
    }
  })
}

function round1(ms: number): number {
  return Math.round(ms * 10) / 10
}
