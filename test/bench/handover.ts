// The handover of every peer under four loads at once: (a) fresh connections, (b) keep-alive clients that do not reconnect
// by themselves, (c) a slow streaming response per client, (d) a WebSocket per client. A closed connection is counted and
// then replaced, so that every switch meets the same load.

import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../fixtures/install.ts'
import { spawnLoad } from '../lab/load.ts'
import type { Load, LoadOptions, Mode, Totals } from '../lab/load.ts'
import { counters, moved } from '../lab/netns.ts'
import type { Counters } from '../lab/netns.ts'
import { other, type Peer, type Place, switchOnce, TAGS, type Tag } from './peer.ts'
import { measurePairs, type PairsResult } from './pairs.ts'
import { bareStartMs, type Entry, openApp, peers } from './peers.ts'
import { untilAnswers } from './processes.ts'
import { CACHE } from './setup.ts'
import type { Tools } from './setup.ts'
import { median } from './statistics.ts'
import { measureWaits, type Waits } from './waits.ts'

export const LOADS = ['fresh', 'keepalive', 'stream', 'websocket'] as const satisfies readonly Mode[]

export interface LoadResult {
  requests: number
  lost: number
  closed: number
  /** during the switches */
  longestStallMs: number
  /** without a switch, in about a third of the time */
  steadyStallMs: number
  p999SwitchMs: number
  p999SteadyMs: number
  /** p99.9 during the switches over the same without a switch */
  p999Ratio: number
  errors: Record<string, number>
}

export interface PeerResult {
  id: string
  title: string
  version: string
  native: boolean
  configuration: string
  switches: number
  /** median of starts with nothing else going on, milliseconds from spawn to the first answer */
  bareStartMs: number
  /** median of switches without load, from "go" to the new version answering */
  quietSwitchMs: number
  switchOverBareStart: number
  /** of the quiet switches, what went into starting and taking over; null where the peer does not tell */
  restartMs: number | null
  /** median of switches under load */
  loadedSwitchMs: number
  loads: Record<(typeof LOADS)[number], LoadResult>
  /** an open loop at the same rates for every peer */
  waits: Waits[]
  /** what the kernel counted under load; null where the bench has no network namespace of its own */
  kernel: Counters | null
}

export interface HandoverResult {
  peers: PeerResult[]
  missing: { title: string; command: string }[]
  failed: { title: string; reason: string }[]
  switches: number
  drainMs: number
  clients: Record<string, number>
  /** Baton's WebSockets were registered to be carried; absent in results from before */
  carried?: true
  /** both kinds of switch, in turns; absent in results from before */
  pairs?: PairsResult
}

export interface HandoverOptions {
  tools: Tools
  long: boolean
  /** ids of the peers to measure; empty: all */
  only: string[]
  /** this process has a network namespace of its own: the kernel's counters tell about the peer alone */
  isolated: boolean
  /** more peers than `peers.ts` knows: Baton itself */
  more: (tools: Tools) => Promise<Entry[]>
  /** Baton stop-first */
  alone: () => Promise<Peer>
  say: (line: string) => void
}

const SHORT = { switches: 6, quietSwitches: 6, starts: 7, drainMs: 2000, steadyMs: 1000, minRequests: 0, think: 40 }
const LONG = { ...SHORT, switches: 20, quietSwitches: 12, starts: 15, minRequests: 1_000_000, think: 10 }
type Scale = typeof SHORT
/** the id of Baton stop-first: with `--only` it stands for the pairs */
const ALONE = 'baton-one'
const WARM_UP_MS = 1000
const AFTER_SWITCH_MS = 300
const CLIENTS = { fresh: 32, keepalive: 64, stream: 16, websocket: 32 } as const
/** 15 events of 100 ms: shorter than the drain deadline, so that a peer can let every one of them finish */
const STREAM_PATH = '/api/stream?events=15&intervalMs=100'

export async function run(options: HandoverOptions): Promise<HandoverResult> {
  const { tools, only, say, long } = options
  const scale = long ? LONG : SHORT
  const isWanted = ({ id }: Pick<Entry, 'id'>) => only.length === 0 || only.includes(id)
  const known = [...(await options.more(tools)), ...peers(tools)]
  const entries = known.filter(isWanted)
  const result: HandoverResult = {
    peers: [],
    missing: [],
    failed: [],
    switches: scale.switches,
    drainMs: scale.drainMs,
    clients: CLIENTS,
    carried: true,
  }
  for (const entry of entries) {
    if ('missing' in entry) {
      result.missing.push({ title: entry.title, command: entry.missing })
      continue
    }
    say(`handover: ${entry.title}`)
    try {
      result.peers.push(await measure(entry, options, scale))
    } catch (error) {
      result.failed.push({ title: entry.title, reason: error instanceof Error ? error.message : String(error) })
      say(`handover: ${entry.title} failed: ${String(error)}`)
    }
  }
  if (isWanted({ id: ALONE })) {
    const beside = known.filter(({ id }) => id === 'baton' || id === 'socket')
    for (const entry of beside)
      if ('missing' in entry && !entries.includes(entry))
        result.missing.push({ title: entry.title, command: entry.missing })
    const { drainMs, switches: rounds } = scale
    result.pairs = await measurePairs({ entries: [await options.alone(), ...beside], rounds, drainMs, say })
  }
  return result
}

async function measure(peer: Peer, { tools, isolated }: HandoverOptions, scale: Scale): Promise<PeerResult> {
  const folder = join(CACHE, 'run', peer.id)
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const place: Place = { folder, port: await freePort(), backendPort: await freePort(), drainMs: scale.drainMs }
  const backend = { ...place, port: place.backendPort, folder: `${folder}-backend` }
  await using _backend = await openApp(tools.app, 'plain', backend)
  await untilAnswers(backend.port, null, performance.now())

  const { starts, quiet, restarts } = await measureQuiet(peer, place, scale)
  const { loaded, totals, kernel } = await measureLoaded(peer, place, scale)
  const waits = await measureWaits(peer, place, scale.switches)
  await rm(folder, { recursive: true, force: true })
  await rm(backend.folder, { recursive: true, force: true })
  const { id, title, version, native, configuration } = peer
  return {
    id,
    title,
    version,
    native,
    configuration,
    switches: loaded.length,
    bareStartMs: round(median(starts)),
    quietSwitchMs: round(median(quiet)),
    switchOverBareStart: Math.round((median(quiet) / median(starts)) * 100) / 100,
    restartMs: restarts.length === 0 ? null : round(median(restarts)),
    loadedSwitchMs: round(median(loaded)),
    loads: Object.fromEntries(LOADS.map((mode, i) => [mode, resultOf(totals[i])])) as PeerResult['loads'],
    waits,
    kernel: isolated ? kernel : null,
  }
}

/** Bare starts and switches without load, turn by turn, so that what else the machine does hits both. */
async function measureQuiet(
  peer: Peer,
  place: Place,
  scale: Scale,
): Promise<{ starts: number[]; quiet: number[]; restarts: number[] }> {
  const starts: number[] = []
  const quiet: number[] = []
  const restarts: number[] = []
  await using running = await peer.open(place)
  await untilAnswers(place.port, null, performance.now())
  let tag: Tag = TAGS[0]
  for (let i = 0; i < Math.max(scale.starts, scale.quietSwitches); i++) {
    if (i < scale.starts) {
      const own = { ...place, port: await freePort(), folder: join(place.folder, `bare-${i}`) }
      starts.push(await bareStartMs(peer, own))
    }
    if (i < scale.quietSwitches) {
      tag = other(tag)
      quiet.push(await switchOnce(running, place.port, tag))
      await running.finish()
      await running.confirm?.()
      if (running.restartMs !== undefined) restarts.push(running.restartMs())
    }
  }
  return { starts, quiet, restarts }
}

interface Loaded {
  loaded: number[]
  totals: Totals[]
  kernel: Counters
}

async function measureLoaded(peer: Peer, place: Place, scale: Scale): Promise<Loaded> {
  const own = { ...place, port: await freePort(), folder: join(place.folder, 'loaded') }
  await mkdir(own.folder, { recursive: true })
  await using running = await peer.open(own)
  await untilAnswers(own.port, null, performance.now())
  const before = counters()
  const loads = await Promise.all(LOADS.map((mode) => spawnLoad(loadOptions(mode, own.port, scale))))
  const loaded: number[] = []
  try {
    await sleep(WARM_UP_MS)
    await mark(loads, 'steady')
    await sleep(2 * scale.steadyMs)
    let tag: Tag = TAGS[0]
    for (let i = 0; i < scale.switches; i++) {
      tag = other(tag)
      await running.prepare(tag)
      await mark(loads, 'switch')
      loaded.push(await switchOnce(running, own.port, tag, true))
      await running.finish()
      await sleep(AFTER_SWITCH_MS)
      await mark(loads, null)
      await running.confirm?.()
      await sleep(AFTER_SWITCH_MS)
      await mark(loads, 'steady')
      await sleep(scale.steadyMs)
      const requests = loads.reduce((sum, load) => sum + load.snapshot().requests, 0)
      if (i === scale.switches - 1 && requests < scale.minRequests && loaded.length < 500) i--
    }
  } finally {
    await mark(loads, null)
  }
  const totals = await Promise.all(loads.map((load) => load.stop()))
  return { loaded, totals, kernel: moved(before, counters()) }
}

function loadOptions(mode: Mode, port: number, scale: Scale): LoadOptions {
  const clients = CLIENTS[mode]
  const common = { mode, clients, port, afterClose: 'reopen', maxMs: 3_600_000 } as const
  switch (mode) {
    case 'fresh':
    case 'keepalive':
      return { ...common, thinkMs: [0, scale.think] }
    case 'stream':
      return { ...common, path: STREAM_PATH, expectTail: 'event: end' }
    case 'websocket':
      return { ...common, path: '/echo', thinkMs: [0, 5 * scale.think] }
  }
}

function mark(loads: Load[], slice: string | null): Promise<unknown> {
  return Promise.all(loads.map((load) => load.mark(slice)))
}

function resultOf(totals: Totals | undefined): LoadResult {
  if (totals === undefined) throw new Error('a load gave no totals')
  const during = totals.slices['switch']
  const steady = totals.slices['steady']
  const [p999SwitchMs, p999SteadyMs] = [during?.latency.p999Ms ?? 0, steady?.latency.p999Ms ?? 0]
  return {
    requests: totals.requests,
    lost: totals.lost,
    closed: totals.closed,
    longestStallMs: round(during?.longestStallMs ?? 0),
    steadyStallMs: round(steady?.longestStallMs ?? 0),
    p999SwitchMs: round(p999SwitchMs),
    p999SteadyMs: round(p999SteadyMs),
    p999Ratio: p999SteadyMs === 0 ? 0 : Math.round((p999SwitchMs / p999SteadyMs) * 100) / 100,
    errors: totals.errors,
  }
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10
}
