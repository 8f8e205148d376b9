// What was measured, held against what was aimed at. Pure.

import type { Change, DeltaResult } from './delta.ts'
import type { LoadResult, PeerResult } from './handover.ts'
import { mb, mib, ratio, type Results, signed } from './results.ts'
import type { StateResult } from './state.ts'
import type { Waits } from './waits.ts'

export interface Goal {
  goal: string
  got: string
  met: boolean
}

/** up to this many requests a second a switch must not be felt; beyond, the two processors are what is measured */
const RATE_MAX = 2000
const OVER_BARE_START = 2
const OVER_SOCKET = 0.65
const OVER_CONTAINER_MS = 100
const BULK_MS = 1000
const OVER_STEADY = 1.25
/** how long a wave of so many hosts may take, in times of one host */
const TIMES_ONE_HOST: ReadonlyMap<number, number> = new Map([
  [20, 1.2],
  [200, 2],
])
const WAIT_GOAL = `up to ${RATE_MAX} requests/s the longest wait of a switch at most that of nginx's reload`
const STEADY_GOAL = `up to ${RATE_MAX} requests/s p99.9 around a switch at most ${OVER_STEADY} times that without one`

const QUIET_GOAL = `a quiet switch takes at most ${OVER_BARE_START} bare starts`
const SOCKET_GOAL = `stop-first the longest wait is at most ${OVER_SOCKET} times that of a restart behind systemd's socket; none lost or closed`
const CONTAINER_GOAL = `behind its holder a container's pause is at most ${OVER_CONTAINER_MS} ms longer than the start of the application`
/** of the asset, for a change of each */
const MOST_OF_ASSET: Record<Change['title'], number> = { 'an application': 0.01, Node: 0.15 }
const APPLY_MS = 500
const APPLY_KB = 160e6 / 1024
const OVER_ASSET = 1.05
const NODE_GOAL = weightGoal('Node')

function weightGoal(title: Change['title']): string {
  return `a delta of a change of ${title} weighs at most ${MOST_OF_ASSET[title] * 100} % of the asset`
}

export const WHY_MISSED: ReadonlyMap<string, string> = new Map([
  [
    WAIT_GOAL,
    'The wait of a switch is not one step of the handover: it is about as long in each part of it (the start, the first requests, the moving, the rest of the probation), because a young process compiles and collects on the processors that its clients use. nginx starts nothing that compiles.',
  ],
  [
    STEADY_GOAL,
    'One request in a thousand meets the start of a Node process on the processors that it shares with the load: 75 ms of processor time, once a switch.',
  ],
  [SOCKET_GOAL, 'Stop-first, Node and the application start while clients wait, as they do there.'],
  [
    NODE_GOAL,
    'A new Node is compiled anew, and each address in it has moved. Larger segments and dictionaries and level 15 bring 1 % of it, level 19 takes minutes; bsdiff knows machine code and needs a native program and four times the time.',
  ],
  [
    waveGoal(200, 2),
    'Ansible starts a process for each host at each step (look, move, settle): in all some 0.2 s of processor time for a host, the stub of the host included, on two processors.',
  ],
])

function waveGoal(hosts: number, most: number): string {
  return `a wave of ${hosts} at most ${most} times one host`
}

export function goalsOf({ handover, carry, update, overhead, container, fleet, state }: Results): Goal[] {
  const goals: Goal[] = []
  const peers = handover?.result.peers ?? []
  const own = peers.find(({ id }) => id === 'baton')
  const isCarried = handover?.result.carried === true
  const nginx = peers.find(({ id }) => id === 'nginx') ?? null
  if (own !== undefined) goals.push(...handoverGoals(own, nginx, isCarried))
  const alone = handover?.result.pairs?.peers.find(({ id }) => id === 'baton-one')
  const socket = handover?.result.pairs?.peers.find(({ id }) => id === 'socket')
  if (alone !== undefined && socket !== undefined)
    goals.push({
      goal: SOCKET_GOAL,
      got: `${socket.ratio} times, lost ${alone.lost}, closed ${alone.closed}`,
      met: socket.ratio <= OVER_SOCKET && alone.lost + alone.closed === 0,
    })
  if (container?.result.pauseMs !== undefined && container.result.startMs !== undefined) {
    const { pauseMs, startMs } = container.result
    const got = `${pauseMs} ms, of which the start takes ${startMs} ms`
    goals.push({ goal: CONTAINER_GOAL, got, met: pauseMs - startMs <= OVER_CONTAINER_MS })
  }
  if (carry !== undefined) {
    const { clients, routes } = carry.result
    const { ms, lost, closed } = routes.baton
    goals.push({
      goal: `${clients.toLocaleString('en')} idle connections move within ${BULK_MS} ms, none lost or closed`,
      got: `${ms} ms (Node's IPC: ${routes.ipc.ms} ms), lost ${lost}, closed ${closed}`,
      met: ms <= BULK_MS && lost + closed === 0,
    })
  }
  if (overhead !== undefined) {
    const { ratio: throughput, processorRatio } = overhead.result
    goals.push({
      goal: 'overhead of the agent at most 2 %',
      got: `${signed(throughput - 1)} requests a second, ${signed(processorRatio - 1)} processor time a request`,
      met: throughput >= 0.98 || processorRatio <= 1.02,
    })
  }
  if (update !== undefined) {
    const { ratio: speed, ratioFlushed, baton, small } = update.result
    if (speed !== null) {
      goals.push({
        goal: 'download at least 0.9 of `curl` and `sha256sum`',
        got: `${speed} (${ratioFlushed} when they flush to the disk too)`,
        met: speed >= 0.9,
      })
    }
    goals.push({
      goal: 'memory does not grow with the asset',
      got: `${mib(baton.peakKb)} at 1 GiB, ${mib(small.peakKb)} at 128 MiB`,
      met: baton.peakKb / small.peakKb <= 1.15,
    })
    if (update.result.delta !== undefined) goals.push(...deltaGoals(update.result.delta))
  }
  for (const { hosts, ratio: times } of fleet?.result.waves ?? []) {
    const most = TIMES_ONE_HOST.get(hosts)
    if (most === undefined) continue
    goals.push({ goal: waveGoal(hosts, most), got: times.toFixed(2), met: times <= most })
  }
  return state === undefined ? goals : [...goals, ...stateGoals(state.result)]
}

function deltaGoals({ assetBytes, changes }: DeltaResult): Goal[] {
  return changes.flatMap(({ title, deltaBytes, lines }) => {
    const near = lines.find(({ megabits }) => megabits === null)?.delta
    const slowest = Math.max(
      ...lines.filter(({ megabits }) => megabits !== null).map(({ full, delta }) => delta.ms / full.ms),
    )
    return [
      {
        goal: weightGoal(title),
        got: `${((100 * deltaBytes) / assetBytes).toFixed(2)} %`,
        met: deltaBytes <= MOST_OF_ASSET[title] * assetBytes,
      },
      ...(near === undefined
        ? []
        : [
            {
              goal: `… is fetched from loopback, applied and flushed in ${APPLY_MS} ms and ${Math.round(APPLY_KB * 1.024e-3)} MB`,
              got: `${near.ms} ms, ${mb(near.peakKb * 1024)}`,
              met: near.ms <= APPLY_MS && near.peakKb <= APPLY_KB,
            },
          ]),
      {
        goal: `… at no speed of the line takes more than ${OVER_ASSET} times the asset's time`,
        got: `at most ${slowest.toFixed(2)} times`,
        met: slowest <= OVER_ASSET,
      },
    ]
  })
}

/** how much longer than without a rehearsal, or than what it is made of, a wait may be */
const OVER_MS = 250

function stateGoals({ beside, irreversible }: StateResult): Goal[] {
  const writers = beside.map(({ mode, mebibytes, copyingMs, startingMs, steadyMs, refused }) => {
    const more = Math.round(Math.max(copyingMs, startingMs) - steadyMs)
    return {
      goal: `a writer waits at most ${OVER_MS} ms more for a trial of ${mebibytes} MiB (${mode})`,
      got: `${more} ms, ${refused} rows refused`,
      met: more <= OVER_MS && refused === 0,
    }
  })
  const switches = irreversible.map(({ rows, longestMs, copyMs, migrationMs, lost, closed }) => ({
    goal: `an irreversible update, ${rows.toLocaleString('en')} rows: the longest wait at most copy, migration, start and ${OVER_MS} ms; none lost or closed`,
    got: `${longestMs.median} ms of ${copyMs + migrationMs + OVER_MS}, lost ${lost}, closed ${closed}`,
    met: longestMs.median <= copyMs + migrationMs + OVER_MS && lost + closed === 0,
  }))
  return [...writers, ...switches]
}

function handoverGoals(own: PeerResult, nginx: PeerResult | null, isCarried: boolean): Goal[] {
  const { fresh, keepalive, websocket } = own.loads
  const each = [fresh, keepalive, ...(isCarried ? [websocket] : [])]
  const sum = (of: (load: LoadResult) => number) => each.reduce((all, load) => all + of(load), 0)
  const [lost, closed] = [sum((load) => load.lost), sum((load) => load.closed)]
  const goals: Goal[] = [
    {
      goal: `lost 0 and closed 0, fresh connections${isCarried ? ', keep-alive clients and WebSockets' : ' and keep-alive clients'}`,
      got: `lost ${lost}, closed ${closed}, of ${sum((load) => load.requests)} requests and messages in ${own.switches} switches`,
      met: lost + closed === 0,
    },
  ]
  goals.push({
    goal: QUIET_GOAL,
    got: `${own.quietSwitchMs} ms, ${own.switchOverBareStart} of a bare start`,
    met: own.switchOverBareStart <= OVER_BARE_START,
  })
  const asked = (own.waits ?? []).filter(({ rate }) => rate <= RATE_MAX)
  const pairs = asked.flatMap((waits): [Waits, Waits][] => {
    const theirs = nginx?.waits?.find(({ rate }) => rate === waits.rate)
    return theirs === undefined ? [] : [[waits, theirs]]
  })
  if (pairs.length > 0) {
    goals.push({
      goal: WAIT_GOAL,
      got: pairs
        .map(
          ([ours, theirs]) =>
            `${ours.switchLongestMs.median} ms, nginx ${theirs.switchLongestMs.median} ms at ${ours.rate}/s`,
        )
        .join('; '),
      met: pairs.every(([ours, theirs]) => ours.switchLongestMs.median <= theirs.switchLongestMs.median),
    })
  }
  if (asked.length > 0) {
    goals.push({
      goal: STEADY_GOAL,
      got: asked
        .map(({ rate, switchP999Ms, steadyP999Ms }) => `${ratio(switchP999Ms, steadyP999Ms)} at ${rate}/s`)
        .join('; '),
      met: asked.every(({ switchP999Ms, steadyP999Ms }) => switchP999Ms <= OVER_STEADY * steadyP999Ms),
    })
  }
  return goals
}
