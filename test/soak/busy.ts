// Jobs that take longer than any switch, while the service is updated by hand and by its policy, in both orders: each job is whole.
// Must hold: a job that has begun has ended, in the process in which it began; each switch ends as it should; no request is lost.
// In a way "by policy" the next release is published while the last one is being installed: a service asks again after each update.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Operation, Status } from '../../agent/index.ts'
import { until } from '../fixtures/evidence.ts'
import { type Adopted, adopted } from '../fixtures/adopted.ts'
import { ask } from '../fixtures/install.ts'
import { CLOCK, jobsOf, polite } from '../fixtures/jobs.ts'
import { startLoad } from '../lab/load.ts'

export interface BusyOptions {
  /** of each way, one half in each order */
  switches: number
  jobMs: number
  say(line: string): void
}

const ORDERS = ['start-first', 'stop-first'] as const
const WAYS = ['by hand', 'by policy'] as const
const [DEADLINE_MS, LOOK_MS] = [600_000, 200]
/** as long as a pause stop-first may be, on a machine that does more than this */
const HANG_MS = 30_000

/** Exit code: 1 where a promise was broken. */
export async function soakBusy({ switches, jobMs, say }: BusyOptions): Promise<number> {
  const lanes = ORDERS.flatMap((order) => WAYS.map((way) => ({ order, way, switches: Math.ceil(switches / 2), jobMs })))
  const ends = await Promise.all(
    lanes.map((lane) => runLane(lane, (line) => say(`${lane.order}, ${lane.way}: ${line}`))),
  )
  const broken = ends.flat()
  for (const fault of broken) say(`broken: ${fault}`)
  return broken.length === 0 ? 0 : 1
}

interface Lane {
  order: (typeof ORDERS)[number]
  way: (typeof WAYS)[number]
  switches: number
  jobMs: number
}

/** What was broken. */
async function runLane({ order, way, switches, jobMs }: Lane, say: (line: string) => void): Promise<string[]> {
  const broken: string[] = []
  // a stop waits for work as long as for requests
  const update = { drainTimeout: '2m', auto: { mode: 'patch', allow: ['untried', 'unsigned'] } }
  await using it = await adopted(applicationOf(jobMs), { order }, { update })
  const steps = way === 'by hand' ? byHand(it) : await byPolicy(it, jobMs)
  const load = startLoad({
    port: it.port,
    mode: 'keepalive',
    clients: 4,
    thinkMs: 200,
    hangMs: HANG_MS,
    maxMs: 3_600_000,
  })
  for (let at = 1; at <= switches; at++) {
    const { outcome, to, durations } = await steps()
    say(`${at}: ${outcome} ${to}, waited ${Math.round((durations['wait'] ?? 0) / 1000)} s for work`)
    if (outcome !== 'updated' && outcome !== 'rolled_back') broken.push(`${order}, ${way}: ${at}: ${outcome}`)
  }
  const { requests, lost, lostBy, closed } = await load.stop()
  await it.word('stop', '--user')
  const { begun, ended } = await jobsOf(it)
  const cut = begun.filter((id) => !ended.includes(id))
  say(
    `${begun.length} jobs of ${jobMs} ms begun, ${cut.length} cut; ${requests} requests, ${lost} lost ${JSON.stringify(lostBy)}, ${closed} closed`,
  )
  if (begun.length < switches / 2) broken.push(`${order}, ${way}: only ${begun.length} jobs`)
  if (cut.length + lost + closed > 0) broken.push(`${order}, ${way}: jobs cut, requests lost or connections closed`)
  return broken
}

function byHand(it: Adopted): () => Promise<Operation> {
  let isBack = true
  return async () => {
    isBack = !isBack
    const [path, body] = isBack ? ['/admin/update/rollback'] : ['/admin/update', { tag: 'v1.1.0' }]
    const { body: begun } = await ask(it.port, 'POST', path, it.password, body)
    return await it.settled((begun as Operation).id, DEADLINE_MS)
  }
}

async function byPolicy(it: Adopted, jobMs: number): Promise<() => Promise<Operation>> {
  let patch = 0
  let last: string | undefined
  const publish = async () => await it.release(`v1.0.${++patch}`, applicationOf(jobMs))
  await publish()
  await dueNow(it)
  return async () => {
    const isNext = ({ operation }: Status) =>
      operation !== null && operation.by === 'schedule' && operation.id !== last ? operation : null
    const begun = await until('an automatic update', async () => isNext(await statusOf(it)), DEADLINE_MS, LOOK_MS)
    last = begun.id
    await publish()
    return await it.settled(begun.id, DEADLINE_MS)
  }
}

/** The service asks its feed at its next start, instead of within its first hour. */
async function dueNow(it: Adopted): Promise<void> {
  await until('its first look', async () => (await statusOf(it)).schedule?.next ?? null)
  await it.word('stop', '--user')
  const path = join(it.stateDirectory, 'update/schedule.json')
  const memory = JSON.parse(await readFile(path, 'utf8')) as { asked: object }
  await writeFile(path, JSON.stringify({ ...memory, asked: { ...memory.asked, next: 0 } }), { mode: 0o600 })
  await it.word('start', '--user', '-q')
}

async function statusOf({ port, password }: Adopted): Promise<Status> {
  return (await ask(port, 'GET', '/admin/update/status', password)).body as Status
}

/** One job after the other, by whoever serves, and a short one about twice a second. */
const applicationOf = (jobMs: number) => polite(jobMs, CLOCK)
