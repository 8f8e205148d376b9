// The rounds of the soak of stop-first switches, on one service: switches forth and back, releases that go wrong, and processes
// that are hit at random instants of a switch.
// Must hold: nothing is judged before the service has settled; no process is left at the end.

import { setTimeout as sleep } from 'node:timers/promises'
import { startTimeOf } from '../../../agent/sockets/process.ts'
import type { Operation, Status } from '../../../agent/words/state.ts'
import type { ProcessName } from '../../../agent/words/wire.ts'
import { until } from '../../fixtures/evidence.ts'
import type { OnlyFault } from '../../fixtures/only.ts'
import { openWorld, type World } from '../../fixtures/only-world.ts'
import { ALL_LOSS, clientsLost, type Loss, lossOf, NO_LOSS, type Part, type Round, type Steps } from './judge.ts'
import { castOf, follow, lives, stepsOf, type Times } from './processes.ts'
import { startTraffic, type Traffic } from './traffic.ts'

export interface OneOptions {
  switches: number
  reverts: number
  kills: number
  /** under the supervision of `--no-service`, which starts the service again where nobody is left */
  isSupervised: boolean
  /** hears of each round, with what the service wrote in it */
  heard(round: Round, log: string): void
}

export interface OneReport {
  rounds: Round[]
  /** as `World.wrong` gives it */
  wrong: string[]
  acknowledged: number
}

const HANG_MS = 1500
/** a release that is ill from its start is waited for until `readyTimeout` are over: less than a client waits */
const UPDATE = {
  quietTimeout: '2s',
  probation: '800ms',
  hangTimeout: `${HANG_MS}ms`,
  maxPause: '1m',
  readyTimeout: '8s',
} as const
const TAGS = ['v1.0.0', 'v1.1.0'] as const
const FAULTS = ['exits', 'throws-serving', 'ill', 'listens-elsewhere'] as const satisfies readonly OnlyFault[]
/** of a switch, if none was seen */
const USUAL: Spans = { old: 700, holder: 2500, new: 2400 }
const SETTLED_MS = 60_000
const LOOK_EVERY_MS = 50
/** nobody is there for so long: nobody will be */
const EMPTY_MS = 500
/** how long a process may live after the operation has ended: the holder reaps, an old child dies */
const LAST_MS = 10_000
const BETWEEN_MS = 300
/** a hit that comes too late is tried again, but not for ever */
const TRIES = 4

type Victim = keyof Steps
type Spans = Record<Victim, number>
type Signal = 'SIGKILL' | 'SIGSTOP' | 'SIGTERM'

interface Ground {
  world: World
  options: OneOptions
  report: OneReport
  /** milliseconds that each process was there, of each switch that was seen */
  seen: Spans[]
}

export async function soakRounds(options: OneOptions): Promise<OneReport> {
  await using world = await openWorld(UPDATE, options.isSupervised)
  const ground: Ground = { world, options, report: { rounds: [], wrong: [], acknowledged: 0 }, seen: [] }
  await under(ground, options.switches, (traffic, at) => switchOnce(ground, traffic, at % 4 >= 2))
  if (options.reverts > 0 && (await statusOf(world)).instance.version !== TAGS[0])
    await orderSwitch(world).then(({ id }) => settle(world, id))
  await world.keepChildren(false)
  await under(ground, options.reverts, (traffic, at) =>
    revertOnce(ground, traffic, FAULTS[at % FAULTS.length] ?? 'exits'),
  )
  await under(ground, options.kills, (traffic) => killOnce(ground, traffic))
  return ground.report
}

/** Makes so many rounds under one load. */
async function under(
  ground: Ground,
  times: number,
  act: (traffic: Traffic, at: number) => Promise<unknown>,
): Promise<void> {
  if (times === 0) return
  const { world, report } = ground
  const traffic = await startTraffic(world.port)
  await sleep(BETWEEN_MS)
  for (let at = 0; at < times; at++) {
    await traffic.mark()
    await act(traffic, at)
    await sleep(BETWEEN_MS)
  }
  const { ids } = await traffic.stop()
  report.acknowledged += ids.length
  world.acknowledge(ids)
  report.wrong = await world.wrong()
}

/** `leaves`: v1.1.0 has a child in a session of its own, and neither release ends its child. */
async function switchOnce(ground: Ground, traffic: Traffic, leaves: boolean): Promise<void> {
  const { world } = ground
  await world.keepChildren(leaves)
  const round = await beginRound(ground, 'switch')
  const over = new AbortController()
  const { id, kind, from, to, old } = await orderSwitch(world, leaves ? 'leaves-a-child' : null)
  const following = follow(world, old, over.signal)
  const { operation, version } = await settled(world, id)
  over.abort()
  ground.seen.push(...spansOf(await following))
  const seen = await traffic.mark()
  const broken = clientsLost(seen, NO_LOSS)
  const expected = kind === 'update' ? 'updated' : 'rolled_back'
  if (operation.outcome !== expected || version !== to)
    broken.push(`expected ${expected} and ${to}, got ${wordsOf(operation)} and ${version}`)
  await round.end(`${kind} ${from} to ${to}${leaves ? ', a child is left' : ''}`, operation, {
    seen,
    broken,
    isNobodyLeft: false,
  })
}

async function revertOnce(ground: Ground, traffic: Traffic, fault: OnlyFault): Promise<void> {
  const { world } = ground
  const round = await beginRound(ground, 'revert')
  const { operation, version } = await settled(world, await world.begin(fault))
  const seen = await traffic.mark()
  // in its probation it dies in the middle of a request, and takes with it what it had received
  const broken = clientsLost(seen, fault === 'throws-serving' ? ALL_LOSS : NO_LOSS)
  if (operation.outcome !== 'reverted' || version !== TAGS[0])
    broken.push(`expected reverted and ${TAGS[0]}, got ${wordsOf(operation)} and ${version}`)
  const isLate = operation.error?.code === 'probation_failed'
  if (isLate !== (fault === 'throws-serving'))
    broken.push(`expected to fail ${isLate ? 'before it is ready' : 'in its probation'}: ${wordsOf(operation)}`)
  await round.end(fault, operation, { seen, broken, isNobodyLeft: false })
}

async function killOnce(ground: Ground, traffic: Traffic): Promise<void> {
  const { world } = ground
  const victim = (['old', 'holder', 'new'] as const)[Math.floor(Math.random() * 3)] ?? 'old'
  const dice = Math.random()
  const signal = dice < 0.6 ? 'SIGKILL' : dice < 0.85 ? 'SIGSTOP' : 'SIGTERM'
  // dense at the beginning: the rest of a switch is its probation. An old process has no such rest
  let share = Math.random() ** (victim === 'old' ? 1 : 2)
  for (let tries = 0; tries < TRIES; tries++, share /= 2) {
    const round = await beginRound(ground, 'kill')
    const { id, kind, from, to, old } = await orderSwitch(world)
    const hit = await hitAt(world, old, victim, signal, share * spanOf(ground, victim))
    if (hit === null) {
      await settled(world, id)
      await traffic.mark()
      continue
    }
    if (signal === 'SIGSTOP')
      void sleep(3 * HANG_MS).then(() => lives(hit.name) && process.kill(hit.name.pid, 'SIGCONT'))
    const { isSupervised } = ground.options
    // who is told to stop still answers for a moment
    if (signal !== 'SIGSTOP') await until('the process to end', () => !lives(hit.name), SETTLED_MS)
    const first = await settle(world, id, isSupervised ? SETTLED_MS : EMPTY_MS)
    const isNobodyLeft = first?.wasEmpty ?? true
    if (first === null) await world.startAgain()
    const { operation, version } = first ?? (await settled(world, id))
    const seen = await traffic.mark()
    const broken = isNobodyLeft ? [] : clientsLost(seen, hit.loss)
    const isTo = operation.outcome === 'updated' || operation.outcome === 'rolled_back'
    if (version !== (isTo ? to : from))
      broken.push(`expected ${isTo ? to : from}, ${version} serves: ${wordsOf(operation)}`)
    if (isNobodyLeft && signal !== 'SIGTERM' && !hit.mayEndAll) broken.push('one process was hit, and nobody was left')
    const steps = (['old', 'holder', 'new'] as const).map((one) => `${one} at \`${hit.steps[one].at(-1) ?? '-'}\``)
    await round.end(
      `${kind} ${from} to ${to}, ${signal} to ${victim} after ${hit.afterMs} ms (${steps.join(', ')})`,
      operation,
      { seen, broken, isNobodyLeft },
    )
    return
  }
}

interface Hit {
  name: ProcessName
  /** since the process was there; the old one's: since the holder was there */
  afterMs: number
  steps: Steps
  loss: Loss
  /** whoever else lived was about to leave */
  mayEndAll: boolean
}

/** Null: the process was gone by then, or never came. */
async function hitAt(
  world: World,
  old: ProcessName,
  victim: Victim,
  signal: Signal,
  afterMs: number,
): Promise<Hit | null> {
  const isThere = () => castOf(world, old)[victim === 'new' ? 'new' : 'holder'] !== null
  await until(`the ${victim} process`, isThere, SETTLED_MS)
  await sleep(afterMs)
  const cast = castOf(world, old)
  const name = cast[victim]
  if (name === null || cast.holder === null || !lives(name)) return null
  process.kill(name.pid, signal)
  const taken = (one: ProcessName | null) => (one === null ? [] : stepsOf(world, one))
  const steps = { old: taken(old), holder: taken(cast.holder), new: taken(cast.new) }
  const mayEndAll = victim === 'new' && steps.new.includes('heard commit')
  const isTold = signal === 'SIGTERM' && victim === 'new'
  const loss = isTold && steps.new.length > 0 ? ALL_LOSS : lossOf(victim, steps)
  return { name, afterMs: Math.round(afterMs), steps, loss, mayEndAll }
}

interface Ordered {
  id: string
  kind: 'update' | 'rollback'
  from: string
  to: string
  /** the process that serves */
  old: ProcessName
}

/** Orders a switch to the other release: an update to v1.1.0, a rollback to v1.0.0. */
async function orderSwitch(world: World, fault: OnlyFault | null = null): Promise<Ordered> {
  const { instance } = await statusOf(world)
  const [first, second] = TAGS
  const old = { pid: instance.pid, startTime: startTimeOf(instance.pid) }
  if (instance.version === first) return { id: await world.begin(fault), kind: 'update', from: first, to: second, old }
  return { id: await world.beginRollback(), kind: 'rollback', from: second, to: first, old }
}

interface Settled {
  operation: Operation
  version: string
  /** for a moment no process was there */
  wasEmpty: boolean
}

async function settled(world: World, id: string): Promise<Settled> {
  const end = await settle(world, id)
  if (end === null) throw new Error(`nobody is left\n${await world.home.output()}`)
  return end
}

/** Resolves when the operation has ended and one process is left. Null: nobody was there for `emptyMs`. */
async function settle(world: World, id: string, emptyMs = EMPTY_MS): Promise<Settled | null> {
  const { home } = world
  const over = performance.now() + SETTLED_MS
  let emptySince: number | null = null
  let wasEmpty = home.pids().length === 0
  let last: unknown = null
  while (performance.now() < over) {
    const pids = home.pids()
    emptySince = pids.length > 0 ? null : (emptySince ?? performance.now())
    if (emptySince !== null && performance.now() - emptySince > emptyMs) return null
    wasEmpty ||= emptySince !== null
    // a process that is stopped answers nobody
    const answer = await Promise.race([home.api('GET', '/admin/update/status').catch(() => null), sleep(1000, null)])
    const status = answer?.status === 200 ? (answer.body as Status) : null
    last = status ?? last
    const operation = status?.operation ?? null
    if (status?.state === 'idle' && operation?.id === id && operation.outcome !== null && pids.length === 1) {
      return { operation, version: status.instance.version, wasEmpty }
    }
    await sleep(LOOK_EVERY_MS)
  }
  const states = home.pids().join(', ')
  throw new Error(
    `expected ${id} to end within ${SETTLED_MS} ms: processes ${states}; ${JSON.stringify(last)}\n${(await home.output()).slice(-6000)}`,
  )
}

async function statusOf({ home }: World): Promise<Status> {
  const { status, body } = await home.api('GET', '/admin/update/status')
  if (status !== 200) throw new Error(`status: expected 200, got ${status}`)
  return body as Status
}

interface RoundEnd {
  end(title: string, operation: Operation, found: Pick<Round, 'seen' | 'broken' | 'isNobodyLeft'>): Promise<void>
}

async function beginRound({ world, report, options }: Ground, part: Part): Promise<RoundEnd> {
  const written = (await world.home.output()).length
  return {
    async end(title, operation, found) {
      await oneProcess(world)
      const wrong = await world.wrong()
      const broken = [...found.broken, ...wrong.filter((line) => !report.wrong.includes(line))]
      report.wrong = wrong
      const pauseMs = operation.handover?.pauseMs ?? null
      const round = { part, title, outcome: wordsOf(operation), pauseMs, ...found, broken }
      report.rounds.push(round)
      options.heard(round, (await world.home.output()).slice(written))
    },
  }
}

/** The holder is gone a moment after the operation has ended. */
async function oneProcess({ home }: World): Promise<void> {
  await until('one process to be left', () => home.pids().length === 1, LAST_MS)
}

function wordsOf({ outcome, error }: Operation): string {
  return `${outcome}${error === null ? '' : ` (${error.message.slice(0, 200)})`}`
}

function spansOf({ holderBorn, newBorn, oldGone, holderGone }: Times): Spans[] {
  const spans = { old: oldGone - holderBorn, holder: holderGone - holderBorn, new: holderGone - newBorn }
  return Object.values(spans).some((ms) => !(ms > 0)) ? [] : [spans]
}

/** The median of what was seen. */
function spanOf({ seen }: Ground, victim: Victim): number {
  const sorted = seen.map((spans) => spans[victim]).toSorted((a, b) => a - b)
  return sorted[sorted.length >> 1] ?? USUAL[victim]
}
