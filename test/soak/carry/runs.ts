// The four things that a carry must stand: switches under numbered messages, very many idle connections, the death of a
// successor that has everything, and (the control) a carry that is wrong on purpose. Runs inside a network namespace where the
// host allows it, and prints its report as one line of JSON, last.

import { readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { UpdateSettings } from '../../../agent/settings.ts'
import type { Operation, Status } from '../../../agent/words/state.ts'
import { ask, type Install, install } from '../../fixtures/install.ts'
import { programRelease, publishTo, type TestRelease } from '../../fixtures/releases.ts'
import type { Counting, CountingReport } from '../../lab/counting.ts'
import type { Idle } from '../../lab/idle.ts'
import { type Counters, counters, moved, neighbour } from '../../lab/netns.ts'
import { spawnRemote } from '../../lab/remote.ts'

export interface Wanted {
  switches: { clients: number; times: number; everyMs: number; eventEveryMs: number; fault: string }
  idle: { clients: number; times: number }
  kills: { clients: number; times: number; everyMs: number; eventEveryMs: number }
}

export type Order = { [What in keyof Wanted]: { what: What } & Wanted[What] }[keyof Wanted]

export interface SwitchesReport {
  what: 'switches'
  times: number
  seconds: number
  /** over all of them */
  perSecond: { messagesOut: number; messagesIn: number; events: number }
  counting: CountingReport
  /** of each switch */
  carried: number[]
  cut: number
  /** from the order until the predecessor had left, without the probation */
  switchMs: number[]
  /** null where this host has no network namespaces */
  kernel: Counters | null
}

export interface IdleRunReport {
  what: 'idle'
  clients: number
  times: number
  moved: number[]
  cut: number
  closed: number
  lost: number
  answers: number
  longestMs: number
  /** of the serving process before the first switch and after each: resident kB, and open descriptors */
  memoryKb: number[]
  descriptors: number[]
  /** connections that were answered by the release that runs at the end */
  served: number
  kernel: Counters | null
}

export interface KillsReport {
  what: 'kills'
  times: number
  rounds: {
    carried: number
    served: number
    closed: number
    hung: number
    /** until a new connection was answered by the predecessor */
    answeredMs: number
    returned: number
    /** of the idle connections, asked afterwards */
    idleServed: number
    outcome: string
  }[]
  foreign: number
  reordered: number
  doubled: number
  lost: number
}

export type Report = SwitchesReport | IdleRunReport | KillsReport

export const SERVICE = fileURLToPath(new URL('../../lab/numbered-service.ts', import.meta.url))
const COUNTING = new URL('../../lab/counting.ts', import.meta.url).href
const IDLE = new URL('../../lab/idle.ts', import.meta.url).href
const TAGS = ['v1.0.0', 'v1.1.0'] as const
const PROBATION_MS = 1000
const IDLE_BESIDE = 40

/** Both releases of the service; from the cache where nothing has changed. */
export const builds = (): Promise<TestRelease[]> => Promise.all(TAGS.map((tag) => programRelease(tag, SERVICE)))

async function place(update: UpdateSettings = {}, environment: Record<string, string> = {}) {
  const [from, to] = await builds()
  if (from === undefined || to === undefined) throw new Error('no releases')
  const folder = await mkdtemp(join(tmpdir(), 'baton-carry-'))
  const limits = {
    probation: `${PROBATION_MS}ms`,
    drainTimeout: '1m',
    hangTimeout: '5s',
    readyTimeout: '20s',
    ...update,
  }
  const home = await install({ release: from, host: '0.0.0.0', feed: await publishTo(folder, [to]), update: limits })
  await home.start(environment)
  return {
    home,
    port: home.port ?? 0,
    async [Symbol.asyncDispose]() {
      await home[Symbol.asyncDispose]()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function operate(home: Install, path: string): Promise<Operation> {
  const before = home.pids()
  const answer = await home.api('POST', path)
  if (answer.status !== 202) throw new Error(`expected 202, got ${answer.status}: ${JSON.stringify(answer.body)}`)
  const ended = await home.settled(120_000)
  if (ended.error !== null) throw new Error(`${JSON.stringify(ended)}\n${(await home.output()).slice(-2000)}`)
  await until('the predecessor to leave', () => !home.pids().some((pid) => before.includes(pid)))
  return ended
}

const orderOf = (at: number): string => (at === 0 ? '/admin/update' : '/admin/update/rollback')

async function switches(order: Wanted['switches'], isolated: boolean): Promise<SwitchesReport> {
  const { clients, times, everyMs, eventEveryMs, fault } = order
  await using other = isolated ? await neighbour() : null
  await using one = await place({}, fault === '' ? {} : { CARRY_FAULT: fault })
  const { home, port } = one
  const before = isolated ? counters() : null
  const options = {
    host: other?.address ?? '127.0.0.1',
    port,
    websockets: clients,
    streams: clients,
    everyMs,
    eventEveryMs,
  }
  await using counting = await spawnRemote<Counting>(COUNTING, options, other?.prefix)
  const since = performance.now()
  const first = await counting.report()
  const ended: Operation[] = []
  const switchMs: number[] = []
  for (let at = 0; at < times; at++) {
    const began = performance.now()
    ended.push(await operate(home, orderOf(at)))
    switchMs.push(Math.round(performance.now() - began - PROBATION_MS))
    progress(`${at + 1} of ${times} switches: ${ended.at(-1)?.handover?.carried} carried, ${switchMs.at(-1)} ms`)
    await sleep(200)
  }
  const seconds = (performance.now() - since) / 1000
  const last = await counting.report()
  const counted = await counting.settle()
  return {
    what: 'switches',
    times,
    perSecond: {
      messagesOut: Math.round((last.websockets.messages - first.websockets.messages) / seconds),
      messagesIn: Math.round((last.websockets.sent - first.websockets.sent) / seconds),
      events: Math.round((last.streams.messages - first.streams.messages) / seconds),
    },
    seconds,
    counting: counted,
    carried: ended.map(({ handover }) => handover?.carried ?? 0),
    cut: ended.reduce((sum, { handover }) => sum + (handover?.cut ?? 0), 0),
    switchMs,
    kernel: before === null ? null : moved(before, counters()),
  }
}

async function idle({ clients, times }: Wanted['idle'], isolated: boolean): Promise<IdleRunReport> {
  await using other = isolated ? await neighbour() : null
  await using one = await place()
  const { home, port } = one
  const before = isolated ? counters() : null
  const host = other?.address ?? '127.0.0.1'
  await using crowd = await spawnRemote<Idle>(IDLE, { host, port, clients, perSecond: 200 }, other?.prefix)
  const [memoryKb, descriptors, movedEach]: [number[], number[], number[]] = [[], [], []]
  const look = async () => {
    await sleep(500)
    const { instance } = (await home.api('GET', '/admin/update/status')).body as Status
    memoryKb.push(Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${instance.pid}/status`, 'utf8'))?.[1]))
    descriptors.push(readdirSync(`/proc/${instance.pid}/fd`).length)
  }
  await look()
  let [cut, longestMs] = [0, 0]
  await crowd.report() // the opening is not counted
  for (let at = 0; at < times; at++) {
    const { handover } = await operate(home, orderOf(at))
    movedEach.push(handover?.moved ?? 0)
    cut += handover?.cut ?? 0
    longestMs = Math.max(longestMs, (await crowd.report()).longestMs)
    await look()
    progress(
      `${at + 1} of ${times} switches: ${handover?.moved} moved, ${memoryKb.at(-1)} kB, ${descriptors.at(-1)} descriptors`,
    )
  }
  const final = await crowd.askAll()
  return {
    what: 'idle',
    clients,
    times,
    moved: movedEach,
    cut,
    closed: final.closed,
    lost: final.lost,
    answers: final.answers,
    longestMs,
    memoryKb,
    descriptors,
    served: final.tags[TAGS[times % 2] ?? ''] ?? 0,
    kernel: before === null ? null : moved(before, counters()),
  }
}

async function kills({ clients, times, everyMs, eventEveryMs }: Wanted['kills']): Promise<KillsReport> {
  await using one = await place({ probation: '6s' })
  const { home, port } = one
  const host = '127.0.0.1'
  const options = { host, port, websockets: clients, streams: clients, everyMs, eventEveryMs }
  await using counting = await spawnRemote<Counting>(COUNTING, options)
  const rounds: KillsReport['rounds'] = []
  const sums = { foreign: 0, reordered: 0, doubled: 0, lost: 0 }
  for (let at = 0; at < times; at++) {
    await using beside = await spawnRemote<Idle>(IDLE, { host, port, clients: IDLE_BESIDE, perSecond: 0 })
    const before = home.pids()
    const from = (await home.output()).length
    const answer = await home.api('POST', '/admin/update', { tag: TAGS[1] })
    if (answer.status !== 202) throw new Error(`expected 202, got ${answer.status}: ${JSON.stringify(answer.body)}`)
    await until('all to be carried', async () => (await home.output()).slice(from).includes('drained connections:'))
    const successor = home.pids().find((pid) => !before.includes(pid)) ?? 0
    await sleep(Math.random() * 200)
    const watched = counting.aftermath()
    await counting.report() // answered in order: it watches by now
    process.kill(successor, 'SIGKILL')
    const answeredMs = await untilAnswered(port)
    const { served, closed, hung } = await watched
    const { handover, outcome } = await home.settled(60_000)
    const { tags } = await beside.askAll()
    const { websockets, streams } = await counting.report()
    for (const kind of [websockets, streams])
      for (const key of ['foreign', 'reordered', 'doubled', 'lost'] as const) sums[key] += kind[key]
    const { carried = 0, returned = 0 } = handover ?? {}
    rounds.push({
      carried,
      served,
      closed,
      hung,
      answeredMs,
      returned,
      idleServed: tags[TAGS[0]] ?? 0,
      outcome: outcome ?? '',
    })
    progress(`${at + 1} of ${times} kills: ${JSON.stringify(rounds.at(-1))}`)
    await counting.renew()
  }
  return { what: 'kills', times, rounds, ...sums }
}

async function untilAnswered(port: number): Promise<number> {
  const since = performance.now()
  for (;;) {
    const answer = await ask(port, 'GET', '/', null).catch(() => null)
    if (answer?.body === TAGS[0]) return Math.round(performance.now() - since)
    if (performance.now() - since > 10_000) throw new Error('the predecessor does not answer')
    await sleep(1)
  }
}

async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 60_000
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited for ${what} in vain`)
    await sleep(10)
  }
}

function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}

if (process.argv[2] === '--order') {
  const order = JSON.parse(process.argv[3] ?? '') as Order
  const isolated = process.argv[4] === 'isolated'
  const run =
    order.what === 'switches' ? switches(order, isolated) : order.what === 'idle' ? idle(order, isolated) : kills(order)
  process.stdout.write(`${JSON.stringify(await run)}\n`)
  process.exit(0)
}
