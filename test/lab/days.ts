// Hosts that go by themselves, each a machine with a real systemd, over days that a test scripts: a signed feed over https, the clock of
// each host and of the publisher set by the test, releases of the ledger (test/fixtures/ledger) that migrate as `migration.js` says.
// The releases are as they were built: their unit sets the clock (test/fixtures/other-clock.js).

import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { PROJECT } from '../../deploy/make/place.ts'
import { updateReleases } from '../../deploy/make/release-folder.ts'
import { parseMemory, type Remembered } from '../../agent/update/schedule/memory.ts'
import type { PolicyFile } from '../../agent/words/schedule.ts'
import type { Status } from '../../agent/words/state.ts'
import { buildLedgers, REQUESTS } from './ledger.ts'
import { askService, put, SERVICE, serveIn, setUpdate } from './managed.ts'
import { bootRoom, inTurns, type Room, type RoomHost } from './network.ts'
import { bootHost, eventually, type Host } from './systemd.ts'

export interface Days extends AsyncDisposable {
  room: Room
  /** the last one is a clone of the first: its state and its machine id were the first one's */
  hosts: RoomHost[]
  /** the publisher's folder */
  feed: string
  /** publishes a release, or says something of one, by the clock of this moment */
  trust(now: number, ...args: string[]): Promise<void>
  publish(now: number, tag: string, ...rollout: string[]): Promise<void>
  /** Sets the clocks, starts each service anew, and waits until it has asked the feed, which it has to be due for, and done what it does. */
  look(now: number, hosts?: readonly RoomHost[]): Promise<void>
}

export interface DaysOptions {
  tags: readonly string[]
  /** what the releases migrate, see test/fixtures/ledger */
  migration: string
  rules: PolicyFile
  /** of the clocks when the services start for the first time, epoch milliseconds */
  start: number
}

export const STATE = `/var/lib/${SERVICE}`
export const LEDGER = `${STATE}/ledger.db`
/** on the clone: the id that the first host had when its disk was copied */
export const CLONED_FROM = `${STATE}/cloned-from`
const [FEED, PORT, AT_ONCE] = ['/srv/feed', 8443, 3]
/** each look at a host starts processes */
const LOOK_EVERY_MS = 500
const CLOCK = '/usr/local/lib/lab-clock.cjs'
/** for a program of Node's on a host that has to have the host's clock */
export const BY_CLOCK = { NODE_OPTIONS: `--require=${CLOCK}`, LAB_CLOCK: '/etc/lab-clock' }
const UPDATE = {
  probation: '1500ms',
  quietTimeout: '500ms',
  readyTimeout: '1m',
  trial: 'auto',
  onOutcome: ['/usr/local/bin/tell', '--to', 'ops'],
}

export async function bootDays(count: number, { tags, migration, rules, start }: DaysOptions): Promise<Days> {
  const home = join(PROJECT, '.cache', 'host-feeds', `${process.pid}-days`) // not below /tmp: a host has its own
  const [built, feed] = [join(home, 'built'), join(home, 'feed')]
  await mkdir(feed, { recursive: true })
  const trust: Days['trust'] = (now, ...args) => publisher(home, now, args)
  const publish: Days['publish'] = async (now, tag, ...rollout) => {
    await cp(join(built, tag), join(feed, tag), { recursive: true })
    await updateReleases(feed, SERVICE)
    await trust(now, 'sign', '--dir', feed)
    if (rollout.length > 0) await trust(now, 'rollout', tag, '--dir', feed, ...rollout)
  }
  let clone: Host | null = null
  let room: Room | null = null
  let server: AsyncDisposable | null = null
  const off = async () => {
    await server?.[Symbol.asyncDispose]()
    await clone?.off()
    await room?.[Symbol.asyncDispose]()
    await rm(home, { recursive: true, force: true })
  }
  try {
    await trust(start, 'init', '--service', SERVICE, '--dir', feed)
    const root = join(feed, 'verified', '1.root.json')
    await buildLedgers(built, tags, {
      service: SERVICE,
      kind: 'bundle',
      rehearse: { requests: REQUESTS, files: ['migration.js'] },
      root,
    })
    await publish(start, tags[0] ?? '')
    room = await bootRoom(count, (first) => furnish(first, feed, { migration, rules, start }))
    const served = await serveIn(room.prefix, { dir: feed, secure: true, address: room.address, port: PORT })
    server = served
    const { hosts } = room
    await inTurns(hosts, (host) => withFeed(host, served.ca ?? '', served.staticUrl))
    const look: Days['look'] = async (now, some = hosts) =>
      void (await inTurns(some, (host) => lookAt(host, now), AT_ONCE))
    const [first, last] = [hosts[0], hosts.at(-1)]
    if (first === undefined || last === undefined || first === last) throw new Error('expected two hosts')
    // it is new at the first look, and asks an hour later
    await inTurns(hosts, (host) => eventually(`the first look of ${host.name}`, () => memoryOf(host), 60_000))
    await look(start + 2 * HOUR_MS, hosts.slice(0, -1))
    await last.off()
    await put(first, CLONED_FROM, (await memoryOf(first)).id)
    await first.cut()
    clone = await bootHost({ netns: last.netns, like: first, env: { HOST_TWIN: '1' } })
    await first.power()
    hosts[hosts.length - 1] = { ...clone, address: last.address, netns: last.netns }
    return {
      room,
      hosts,
      feed,
      trust,
      publish,
      look,
      [Symbol.asyncDispose]: off,
    }
  } catch (error) {
    await off()
    throw error
  }
}

const HOUR_MS = 3_600_000

/** Installs without a start: systemd starts the service when the host is switched on again. */
async function furnish(
  host: Host,
  feed: string,
  { migration, rules, start }: Pick<DaysOptions, 'migration' | 'rules' | 'start'>,
): Promise<void> {
  await host.ok('mkdir', '-p', FEED)
  await host.ok('mount', '--bind', feed, FEED)
  await host.ok('sh', `${FEED}/v1.0.0/install.sh`, '--feed', FEED, '--listen', '0.0.0.0:8080', '--no-start', '-y')
  await put(host, CLOCK, await readFile(join(import.meta.dirname, '../fixtures/other-clock.js'), 'utf8'))
  await setClock(host, start)
  const variables = [...Object.entries(BY_CLOCK), ['NODE_EXTRA_CA_CERTS', '/etc/ssl/private-ca.pem']]
  // a test starts it as often in a minute as its host would in days
  const unit = `[Unit]\nStartLimitIntervalSec=0\n[Service]\n${variables.map(([name, value]) => `Environment=${name}=${value}`).join('\n')}\n`
  await put(host, `/etc/systemd/system/${SERVICE}.service.d/lab.conf`, unit)
  await put(host, '/usr/local/bin/tell', `#!/bin/sh\n{ cat; echo; } >>${STATE}/told\n`)
  await host.ok('chmod', '755', '/usr/local/bin/tell')
  await put(host, `${STATE}/migration.js`, migration)
  await setUpdate(host, { ...UPDATE, auto: rules })
}

async function withFeed(host: Host, ca: string, feed: string): Promise<void> {
  await put(host, '/etc/ssl/private-ca.pem', ca)
  await host.ok(SERVICE, 'install', '-y', '--no-start', '--feed', feed)
}

/** Other rules than the other hosts have. */
export async function rule(host: Host, auto: PolicyFile): Promise<void> {
  await setUpdate(host, { ...UPDATE, auto })
}

async function setClock(host: Host, now: number): Promise<void> {
  await put(host, '/etc/lab-clock', String(now - Date.now()))
}

async function lookAt(host: Host, now: number): Promise<void> {
  await host.ok('systemctl', 'stop', SERVICE)
  await setClock(host, now)
  await host.ok('systemctl', 'start', SERVICE)
  let last: unknown = null
  await eventually(
    `${host.name} has looked`,
    async () => {
      await sleep(LOOK_EVERY_MS)
      const [status, memory] = await Promise.all([statusOf(host), memoryOf(host)])
      last = [status.state, status.schedule?.now.says, memory.asked, memory.letters]
      const { state, schedule } = status
      const isDue =
        schedule === undefined || / is being installed$|asking the feed|an operation is running/.test(schedule.now.says)
      return state === 'idle' && (memory.asked.at ?? 0) >= now && !isDue && memory.letters.length === 0
    },
    180_000,
  ).catch((cause: unknown) => {
    throw new Error(`${String(cause)}: ${JSON.stringify(last)}`, { cause })
  })
}

export async function statusOf(host: Host): Promise<Status> {
  return JSON.parse((await askService(host, 'GET', '/status')).body) as Status
}

export async function memoryOf(host: Host): Promise<Remembered> {
  const memory = parseMemory(await readFile(await host.path(`${STATE}/update/schedule.json`), 'utf8'))
  if (memory === null) throw new Error(`${host.name} has no memory of its schedule`)
  return memory
}

/** What the operator's program was told, in order. */
export async function toldOf(host: Host): Promise<{ event: string; report?: { to: string; outcome: string } }[]> {
  const text = await readFile(await host.path(`${STATE}/told`), 'utf8').catch(() => '')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { event: string })
}

/** The publisher's command, by a clock of its own. */
async function publisher(home: string, now: number, args: readonly string[]): Promise<void> {
  const clock = join(home, 'clock')
  await writeFile(clock, String(now - Date.now()))
  const own = { XDG_CONFIG_HOME: home, BATON_TRUST_PASSPHRASE: 'correct horse battery staple', LAB_CLOCK: clock }
  const program = [
    `--import=${join(import.meta.dirname, '../fixtures/other-clock.js')}`,
    join(PROJECT, 'deploy/trust.ts'),
  ]
  await promisify(execFile)(process.execPath, [...program, ...args], { env: { ...process.env, ...own }, cwd: PROJECT })
}
