// A holder and an application on a real engine, as the guide makes them, and strict clients of it beyond a cable.

import { readdir, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../deploy/lib/shell.ts'
import { equal, ok } from '../assert.ts'
import type { LabEngine } from '../lab/docker.ts'
import { type Load, spawnLoad, type Totals } from '../lab/load.ts'
import { neighbour, type Neighbour } from '../lab/netns.ts'
import { healthy } from './probe.ts'

export const SMALL = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges']
/** each check starts the executable in the container: where several stand beside each other that takes much of the processor */
export const RARE_CHECK = ['--health-interval', '20s']
/** what lets an application have the sockets, but for the volume */
export const BORROWS = ['--group-add', '65531', '-e', 'BATON_HOLDER=/run/hold/socket']

export interface HeldService {
  /** where clients reach it */
  address: string
  port: number
  door: string
  app: string
  /** arguments of `docker create` and `run` for another application in its place */
  again(tag: string): string[]
  /** starts another holder in its place; `options`: of `docker run` */
  anotherDoor(...options: string[]): Promise<unknown>
}

/** `NAME-door` publishes the port, `NAME` serves: both with the restart policy `always`. */
export async function heldService(
  engine: LabEngine,
  { name, port, repository, address }: { name: string; port: number; repository: string; address: string },
): Promise<HeldService> {
  const door = `${name}-door`
  const published = ['-p', `${address}:${port}:8080`, '-v', `${name}-hold:/run/hold`]
  const rights = ['--restart', 'always', ...SMALL, ...RARE_CHECK]
  const begin = (...options: string[]) =>
    engine.docker('run', '-d', '--name', door, ...rights, ...published, ...options, `${repository}:holder`, '8080')
  await begin()
  const volumes = ['-v', `${name}-hold:/run/hold:ro`, '-v', `${name}-rows:/var/lib/beacon`]
  const again = (tag: string) => ['--name', name, ...rights, ...volumes, ...BORROWS, `${repository}:${tag}`]
  await engine.docker('run', '-d', ...again('v1.0.0'))
  await healthy(engine, name)
  const anotherDoor = async (...options: string[]) => {
    await engine.docker('rm', '-f', door)
    await begin(...options)
  }
  return { address, port, door, app: name, again, anotherDoor }
}

/** `NAME`, which publishes the port itself. */
export async function ordinaryService(
  engine: LabEngine,
  { name, port, repository, address }: { name: string; port: number; repository: string; address: string },
  more: readonly string[] = [],
): Promise<void> {
  const volume = ['-v', `${name}-rows:/var/lib/beacon`]
  const own = ['-p', `${address}:${port}:8080`, ...volume, '--restart', 'always', ...RARE_CHECK]
  await engine.docker('run', '-d', '--name', name, ...own, ...SMALL, ...more, `${repository}:v1.0.0`)
  await healthy(engine, name)
}

export interface Seen {
  ok: number
  refused: number
  /** without a whole answer, but for those that were refused */
  lost: number
  /** kept connections that ended without an announcement */
  closed: number
  longestMs: number
  /** of these, the longest wait of a client that opens a connection for each request */
  freshMs: number
  errors: Record<string, number>
  /** messages of all rows that were acknowledged */
  ids: string[]
}

/** About 150 requests a second: on a connection each, on kept connections, and rows that are written. */
export async function strictClients(
  { address, port }: Pick<HeldService, 'address' | 'port'>,
  beyond: Neighbour,
): Promise<{ stop(): Promise<Seen> }> {
  const row = { path: '/api/logs', body: '{"message":"{id}"}', method: 'POST' }
  const headers = { 'content-type': 'application/json' }
  const common = { host: address, port, hangMs: 20_000, keepAcknowledgedIds: true, maxMs: 3_600_000, headers } as const
  const kept = { mode: 'keepalive', afterClose: 'reopen' } as const
  const { prefix } = beyond
  const loads: Load[] = await Promise.all([
    spawnLoad({ ...common, mode: 'fresh', clients: 4, thinkMs: [20, 40], write: { ...row, every: 10 } }, { prefix }),
    spawnLoad({ ...common, ...kept, clients: 4, thinkMs: [30, 80], write: { ...row, every: 10 } }, { prefix }),
  ])
  return {
    async stop() {
      const [fresh, keepalive] = await Promise.all(loads.map((load) => load.stop()))
      return seenBy(fresh as Totals, keepalive as Totals)
    },
  }
}

function seenBy(fresh: Totals, keepalive: Totals): Seen {
  const all = [fresh, keepalive]
  const errors: Record<string, number> = {}
  for (const one of all) for (const [why, times] of Object.entries(one.errors)) errors[why] = (errors[why] ?? 0) + times
  const sum = (of: (one: Totals) => number) => all.reduce((total, one) => total + of(one), 0)
  const refused = Object.entries(errors).reduce((total, [why, n]) => total + (/ECONNREFUSED/.test(why) ? n : 0), 0)
  return {
    ok: sum(({ ok }) => ok),
    refused,
    lost: sum(({ lost }) => lost) - refused,
    closed: sum(({ closedBy }) => closedBy.idle + closedBy.busy),
    longestMs: Math.round(Math.max(...all.map(({ longestStallMs }) => longestStallMs))),
    freshMs: Math.round(fresh.longestStallMs),
    errors,
    ids: all.flatMap(({ writes }) => writes.ids),
  }
}

/** Acts `rounds` times under load, each when the service has answered for a while; resolves to what clients saw in all. */
export async function underLoad(
  engine: LabEngine,
  service: HeldService,
  rounds: number,
  act: (round: number) => Promise<unknown>,
): Promise<Seen> {
  const clients = await strictClients(service, await cable())
  for (let round = 0; round < rounds; round++) {
    await sleep(500)
    await act(round)
    await healthy(engine, service.app)
  }
  await sleep(500)
  return await clients.stop()
}

let made: Promise<Neighbour> | null = null

/** One for all tests of a file. */
export function cable(): Promise<Neighbour> {
  return (made ??= neighbour())
}

export async function uncable(): Promise<void> {
  await (await made)?.[Symbol.asyncDispose]()
}

export function tell(what: string, { ok: answered, refused, lost, closed, longestMs }: Seen): void {
  process.stdout.write(
    `  ${what}: ${answered} answered, refused ${refused}, lost ${lost}, closed ${closed}, longest wait ${longestMs} ms\n`,
  )
}

/** Nobody was refused, and nothing was lost. */
export function whole(seen: Seen): void {
  const { refused, lost, closed } = seen
  equal({ refused, lost, closed }, { refused: 0, lost: 0, closed: 0 }, JSON.stringify(seen.errors))
  ok(seen.ok > 50)
}

export async function answers(address: string, port: number): Promise<boolean> {
  const answer = await fetch(`http://${address}:${port}/`, { signal: AbortSignal.timeout(2000) }).catch(() => null)
  await answer?.arrayBuffer().catch(() => null)
  return answer?.status === 200
}

/** What a container has written to both of its streams. */
export async function logsOf({ environment }: LabEngine, name: string): Promise<string> {
  const { stdout, stderr } = await run(['docker', 'logs', name], { env: environment })
  return stdout + stderr
}

/** Each row that was acknowledged is in the database of the container, which is stopped for a look. */
export async function keptRows(engine: LabEngine, app: string, ids: readonly string[]): Promise<void> {
  ok(ids.length > 0)
  const { Mounts } = await engine.inspect(app)
  const place = Mounts.find(({ Destination }: { Destination: string }) => Destination === '/var/lib/beacon').Source
  await engine.docker('stop', app)
  const database = new DatabaseSync(join(place, 'beacon.db'))
  try {
    const kept = new Set(
      database
        .prepare('select message from logs')
        .all()
        .map((row) => row['message']),
    )
    equal(
      ids.filter((id) => !kept.has(id)),
      [],
    )
  } finally {
    database.close()
  }
  await engine.docker('start', app)
  await healthy(engine, app)
}

/** Looks again and again how many of the two containers have the service's database open. */
export async function watchDatabase(engine: LabEngine, name: string) {
  let [looks, most, isEnded] = [0, 0, false]
  const pids = new Map<string, number>()
  const watching = (async () => {
    while (!isEnded) {
      for (const one of [name, `${name}-baton-predecessor`, `${name}-baton-successor`, `${name}-baton-previous`]) {
        const found = await engine.inspect(one).catch(() => null)
        if (found !== null) pids.set(found.Id, found.State.Pid)
      }
      for (let i = 0; i < 5; i++) {
        const open = await Promise.all([...pids.values()].map(hasDatabase))
        most = Math.max(most, open.filter(Boolean).length)
        looks++
        await sleep(10)
      }
    }
  })()
  return {
    async stop() {
      isEnded = true
      await watching
      return { looks, most }
    },
  }
}

async function hasDatabase(pid: number): Promise<boolean> {
  if (pid === 0) return false
  const folder = `/proc/${pid}/fd`
  for (const fd of await readdir(folder).catch(() => []))
    if ((await readlink(join(folder, fd)).catch(() => '')).endsWith('/beacon.db')) return true
  return false
}
