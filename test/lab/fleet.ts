// A machine room whose hosts each have a managed install from one feed, and the controller that moves them. It is set up as by an
// operator: a playbook installs, deploy/deploy-fleet.sh moves.

import { spawn, type ChildProcess } from 'node:child_process'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import type { Status } from '../../agent/words.ts'
import { publishTo, releases, type ReleaseSpec } from '../fixtures/releases.ts'
import type { LoadOptions, Totals } from './load.ts'
import { SERVICE } from './managed.ts'
import { type FleetEvent, linesOf, type Moved, outcomeOf } from './stub-fleet.ts'
import { bootRoom, inTurns, type Room, type RoomHost } from './network.ts'
import type { Ran } from './systemd.ts'

export interface Fleet extends AsyncDisposable {
  room: Room
  hosts: RoomHost[]
  /** folder that is the feed of all hosts */
  feed: string
  inventory: string
  /** writes another inventory: for each host name its variables, in the order of names; resolves to its path */
  inventoryOf(names: Record<string, Record<string, unknown>>): Promise<string>
  /** runs deploy-fleet.sh with this inventory and a separate report */
  move(report: string, ...args: string[]): Promise<Moved>
  /** like `move`, for a run that the test interrupts */
  start(report: string, ...args: string[]): { child: ChildProcess; done: Promise<Moved> }
  /** the report's events so far */
  events(report: string): Promise<FleetEvent[]>
  reportPath(report: string): string
  status(host: RoomHost): Promise<Status | null>
  /** tags that are running, in the order of the hosts; null for a host that does not answer */
  running(): Promise<(string | null)[]>
  ask(host: RoomHost, method: 'GET' | 'POST', target: string, body?: unknown): Promise<Ran>
  /** starts a program in the switch's namespace; the end of the scope ends it */
  background(command: readonly string[]): AsyncDisposable
  load(options: Omit<LoadOptions, 'mode' | 'clients'> & Partial<LoadOptions>): { stop(): Promise<Totals> }
}

const PORT = 8080
/** where a host sees the feed: the folder is mounted there */
export const FEED = '/srv/feed'
/** settings for hosts that the lab makes new each time: their keys are not checked */
export const ANSIBLE = { ANSIBLE_HOST_KEY_CHECKING: 'False', ANSIBLE_TIMEOUT: '5' }

/** Boots `count` hosts with v1.0.0 installed and a probation of `probationMs`. */
export async function bootFleet(count: number, specs: readonly ReleaseSpec[], probationMs = 2000): Promise<Fleet> {
  // not below /tmp: a host has its own /tmp
  const feed = join(PROJECT, '.cache', 'host-feeds', `${process.pid}-fleet`)
  await publishTo(feed, await releases(specs))
  const clear = () => rm(feed, { recursive: true, force: true })
  const room = await bootRoom(count, (first) => install(first, feed, probationMs)).catch(async (error: unknown) => {
    await clear()
    throw error
  })
  const off = async () => {
    await room[Symbol.asyncDispose]()
    await clear()
  }
  try {
    await inTurns(room.hosts, async (host) => void (await host.ok('mount', '--bind', feed, FEED)))
    const fleet = fleetOf(room, feed, off)
    fleet.inventory = await fleet.inventoryOf(
      Object.fromEntries(room.hosts.map(({ address }, i) => [`h${i + 1}`, { ansible_host: address }])),
    )
    return fleet
  } catch (error) {
    await off()
    throw error
  }
}

/** Installs without a start: systemd starts the service when the host is switched on again. */
async function install(host: RoomHost, feed: string, probationMs: number): Promise<void> {
  const edit = `sed -i 's/"listen"/"update":{"probation":"${probationMs}ms"},"listen"/' /etc/${SERVICE}/config.json`
  const lines = [
    `mkdir -p ${FEED} && mount --bind ${feed} ${FEED}`,
    `sh ${FEED}/v1.0.0/install.sh --feed ${FEED} --listen 0.0.0.0:${PORT} --no-start -y`,
    edit,
  ]
  await host.ok('sh', '-ec', lines.join('\n'))
}

function fleetOf(room: Room, feed: string, off: () => Promise<void>): Fleet {
  const script = join(PROJECT, 'deploy/deploy-fleet.sh')
  const reportPath = (report: string) => join(room.folder, `${report}.jsonl`)
  const events = async (report: string) => linesOf(await readFile(reportPath(report), 'utf8').catch(() => ''))
  const start: Fleet['start'] = (report, ...args) => {
    const command = [script, '--inventory', fleet.inventory, '--report', reportPath(report), '--json', ...args]
    const child = spawn('nsenter', [...room.prefix.slice(1), ...command], {
      env: { ...process.env, ...ANSIBLE },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    return { child, done: outcomeOf(child) }
  }
  const ask: Fleet['ask'] = async (host, method, target, body) => {
    const config = JSON.parse(await host.ok('cat', `/etc/${SERVICE}/config.json`)) as {
      dashboard: { password: string }
    }
    const header = `Authorization: Bearer ${config.dashboard.password}`
    const data = body === undefined ? [] : ['-H', 'content-type: application/json', '-d', JSON.stringify(body)]
    const path = `http://${host.address}:${PORT}/admin/update${target}`
    return await room.run(['curl', '-sS', '--max-time', '3', '-X', method, '-H', header, ...data, path])
  }
  const status: Fleet['status'] = async (host) => {
    const { code, stdout } = await ask(host, 'GET', '/status')
    return code === 0 ? (JSON.parse(stdout) as Status) : null
  }
  const fleet: Fleet = {
    room,
    hosts: room.hosts,
    feed,
    inventory: '',
    async inventoryOf(names) {
      const path = join(
        room.folder,
        `hosts-${Object.keys(names).length}-${Math.random().toString(36).slice(2, 8)}.json`,
      )
      const vars = { ansible_user: 'root', ansible_ssh_private_key_file: room.key }
      await writeFile(path, JSON.stringify({ all: { vars, children: { [SERVICE]: { hosts: names } } } }))
      return path
    },
    move: (report, ...args) => start(report, ...args).done,
    start,
    events,
    reportPath,
    status,
    running: () =>
      Promise.all(room.hosts.map(async (host) => (await status(host).catch(() => null))?.instance.version ?? null)),
    ask,
    background(command) {
      const child = spawn('nsenter', [...room.prefix.slice(1), ...command], { stdio: 'ignore' })
      const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
      child.once('error', () => {})
      return {
        async [Symbol.asyncDispose]() {
          child.kill('SIGKILL')
          await ended
        },
      }
    },
    load(options) {
      const settings = { mode: 'fresh', clients: 8, port: PORT, thinkMs: 5, ...options }
      const program = join(PROJECT, 'test/lab/load.ts')
      const command = [process.execPath, ...process.execArgv, program, '--json', JSON.stringify(settings)]
      const child = spawn('nsenter', [...room.prefix.slice(1), ...command], { stdio: ['pipe', 'pipe', 'inherit'] })
      let text = ''
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
      return {
        async stop() {
          child.stdin.end()
          await ended
          return JSON.parse(text) as Totals
        },
      }
    },
    [Symbol.asyncDispose]: off,
  }
  return fleet
}
