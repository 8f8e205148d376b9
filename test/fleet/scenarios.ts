// What may happen to a fleet of real hosts, one function each, on a fleet that is in order before and after. The short form of all
// of them is in fleet-hosts.test.ts, the long one in `npm run soak -- --fleet`.

import { cp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { assetName } from '../../deploy/make/release-folder.ts'
import { equal, is, match, ok } from '../assert.ts'
import { type Fault, HOST_FAULT, HOST_ILL } from '../fixtures/faults.ts'
import type { ReleaseSpec } from '../fixtures/releases.ts'
import { FEED, type Fleet } from '../lab/fleet.ts'
import type { LoadOptions, Totals } from '../lab/load.ts'
import { SERVICE } from '../lab/managed.ts'
import type { RoomHost } from '../lab/network.ts'
import { type Moved, type Plan } from '../lab/stub-fleet.ts'
import { eventually } from '../lab/systemd.ts'
import { haproxy, prometheusOf } from './around.ts'

/** All of them, for one feed. v1.2.0 does on each host what `setFault` says. */
export const RELEASES: readonly ReleaseSpec[] = [
  { tag: 'v1.0.0' },
  { tag: 'v1.1.0' },
  { tag: 'v1.2.0', fault: 'of-the-host' },
  { tag: 'v1.3.0-beta.1' },
]

export interface Way {
  /** seconds */
  soak: string
  waves: string
  /** the fault of a release that dies in probation */
  dies: Fault
  /** long enough to make hosts ill in it */
  longSoak: string
  /** on each of four hosts, and on HAProxy before all */
  load: Pick<LoadOptions, 'clients' | 'thinkMs'>
}

/** Some of the hosts, for a scenario that leaves the others alone. */
export interface Part {
  hosts: RoomHost[]
  names: string[]
  limit: string
}

export function part(fleet: Fleet, first = 0, count = fleet.hosts.length): Part {
  const names = fleet.hosts.map((_, i) => `h${i + 1}`).slice(first, first + count)
  return { hosts: fleet.hosts.slice(first, first + count), names, limit: names.join(',') }
}

/** Every host from v1.0.0 to v1.1.0 in waves, with load on four of them at most and on HAProxy before all. */
export async function movesUnderLoad(fleet: Fleet, { soak, waves, load }: Way): Promise<string> {
  const before = await updatesTo(fleet, fleet.hosts, 'v1.1.0')
  await using proxy = await haproxy(fleet)
  const loads = [
    ...fleet.hosts.slice(0, 4).map(({ address }) => fleet.load({ host: address, ...load })),
    proxy.load(load),
  ]
  const moved = await fleet.move('load', '--release', 'v1.1.0', '--waves', waves, '--soak', soak)
  const totals = await Promise.all(loads.map((one) => one.stop()))
  is(moved.code, 0, `${moved.stderr}\n${JSON.stringify(moved.rows)}`)
  all(await fleet.running(), 'v1.1.0')
  for (const total of totals) {
    ok(total.ok > 100, JSON.stringify(total))
    equal([total.lost, total.closed], [0, 0], JSON.stringify(total.errors))
  }
  equal(
    await updatesTo(fleet, fleet.hosts, 'v1.1.0'),
    before.map((count) => count + 1),
  )
  return `${timesOf(moved)}; ${requestsOf(totals)} requests on ${loads.length - 1} hosts and on HAProxy, lost 0`
}

/** One host on the channel beta: it alone is offered a prerelease, goes to it by its tag, and back. */
export async function goesToBeta(fleet: Fleet, { soak }: Way): Promise<void> {
  const [first, second] = fleet.hosts as [RoomHost, RoomHost]
  const [beta, config] = ['v1.3.0-beta.1', `/etc/${SERVICE}/config.json`]
  const offered = async (host: RoomHost) => {
    const { stdout } = await host.run([SERVICE, 'check', '--json'])
    return (JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as { latest: string }).latest
  }
  await first.ok('cp', '-p', config, `${config}.before`)
  await first.ok('sed', '-i', '0,/{/s/{/{ "channel": "beta",/', config)
  await first.ok(SERVICE, 'restart')
  equal([await offered(first), await offered(second)], [beta, 'v1.2.0'])
  const before = await fleet.running()
  const moved = await fleet.move('beta', beta, '--limit', 'h1', '--soak', soak)
  equal([moved.code, moved.rows['h1']?.outcome, moved.result?.release], [0, 'updated', beta], moved.stderr)
  equal(await fleet.running(), [beta, ...before.slice(1)])
  const back = await fleet.move('beta-back', '--rollback', '--limit', 'h1', '--soak', '0')
  is(back.code, 0, back.stderr)
  equal(await fleet.running(), before)
  await first.ok('mv', `${config}.before`, config)
  await first.ok(SERVICE, 'restart')
}

/** The whole fleet back, from each host's own backup; none of them asks a feed for bytes, each is drained before its turn. */
export async function goesBack(fleet: Fleet, { load: clients }: Way): Promise<string> {
  // where there is no feed any more there is no download
  for (const host of fleet.hosts) await host.ok('umount', FEED)
  await using proxy = await haproxy(fleet)
  const load = proxy.load(clients)
  const hooks = ['--before-host', proxy.hook, '--after-host', proxy.hook]
  const moved = await fleet.move('back', '--rollback', '--waves', '50%,100%', '--soak', '0', ...hooks)
  const total = await load.stop()
  for (const host of fleet.hosts) await mountFeed(host, fleet.feed)
  is(moved.code, 0, moved.stderr)
  equal(moved.result?.counts, { rolled_back: fleet.hosts.length })
  all(await fleet.running(), 'v1.0.0')
  ok(total.ok > 100, JSON.stringify(total))
  is(total.lost, 0, JSON.stringify(total.errors))
  return `${timesOf(moved)}; ${requestsOf([total])} requests on HAProxy with hooks that drain, lost 0`
}

/** A release that dies in probation: the canary reverts by itself, nobody else is asked. */
export async function canaryReverts(fleet: Fleet, { dies, waves, soak }: Way): Promise<void> {
  const before = await updatesTo(fleet, fleet.hosts, 'v1.2.0')
  for (const host of fleet.hosts) await setFault(host, dies)
  const args = ['--release', 'v1.2.0', '--waves', waves, '--soak', soak]
  const { code, rows, stderr, events } = await fleet.move('canary', ...args)
  for (const host of fleet.hosts) await setFault(host, null)
  is(code, 8, stderr)
  is(rows['h1']?.outcome, 'reverted')
  is(Object.values(rows).filter(({ outcome }) => outcome === 'untouched').length, fleet.hosts.length - 1)
  is(events.filter(({ event }) => event === 'host').length, 1)
  all(await fleet.running(), 'v1.0.0')
  equal(await updatesTo(fleet, fleet.hosts, 'v1.2.0'), before)
}

/** Good on three hosts and bad from the fourth on: the wave is taken back, or what the operator says. */
export async function badFromTheFourth(
  fleet: Fleet,
  { dies, soak }: Way,
  { hosts, names, limit }: Part,
): Promise<void> {
  for (const host of hosts.slice(3)) await setFault(host, dies)
  const args = ['--release', 'v1.2.0', '--limit', limit, '--waves', '1,3,100%', '--soak', soak]
  const { code, rows, stderr } = await fleet.move('fourth', ...args)
  for (const host of hosts) await setFault(host, null)
  is(code, 8, stderr)
  equal(
    names.map((name) => rows[name]?.outcome),
    ['updated', 'taken_back', 'taken_back', 'reverted', ...names.slice(4).map(() => 'untouched')],
  )
  equal(await runningOf(fleet, hosts), ['v1.2.0', ...names.slice(1).map(() => 'v1.0.0')])
  is((await fleet.move('fourth-back', '--rollback', '--limit', names[0] ?? '', '--soak', '0')).code, 0)
}

/** Everything that a look finds, each on a host of its own; nothing is changed on any of them. */
export async function lookFindsThem(fleet: Fleet): Promise<void> {
  const [unplugged, stopped, full, wrong, foreign, alsoGone, ...rest] = fleet.hosts as [
    RoomHost,
    RoomHost,
    RoomHost,
    RoomHost,
    RoomHost,
    RoomHost,
    ...RoomHost[],
  ]
  const before = await updatesTo(fleet, fleet.hosts, 'v1.1.0')
  const config = `/etc/${SERVICE}/config.json`
  const password = await wrong.ok('cat', config)
  const look = (...args: string[]) => fleet.move('look', '--release', 'v1.1.0', '--check', ...args)
  const [seventh, eighth] = [rest[0]?.address, rest[1]?.address]
  const named = { h7: { ansible_host: seventh }, h8: { ansible_host: eighth }, again: { ansible_host: seventh } }
  const twice = await look('--inventory', await fleet.inventoryOf(named))
  await fleet.room.unplug(unplugged)
  await fleet.room.unplug(alsoGone)
  await stopped.ok(SERVICE, 'stop')
  const filler = await fillUp(full)
  await wrong.ok('sed', '-i', 's/"password": *"[^"]*"/"password":"not-this-one"/', config)
  const otherFeed = await foreignFeed(fleet.feed)
  await foreign.ok('umount', FEED)
  await mountFeed(foreign, otherFeed)
  const nobody = await look('--limit', 'h1,h6,h7')
  const allowed = await look('--max-fail-percentage', '90')
  await fleet.room.plug(unplugged)
  await fleet.room.plug(alsoGone)
  await stopped.ok(SERVICE, 'start')
  await filler()
  await wrong.run(['sh', '-c', `cat > ${config}`], { input: password })
  await foreign.ok('umount', FEED)
  await mountFeed(foreign, fleet.feed)
  await rm(otherFeed, { recursive: true, force: true })

  is(twice.code, 2, twice.stderr)
  match(twice.stderr, /h7 and again are the same host/)
  is(nobody.code, 4, nobody.stderr)
  match(nobody.stderr, /cannot be reached: h1, h6/)
  // what is tolerated lets it go on, and is returned all the same: a service is down
  equal([allowed.code, allowed.result?.outcome], [9, 'planned'], allowed.stderr)
  const plan = allowed.events.find((event): event is Plan => event.event === 'plan')
  const left = (outcome: string | null) => plan?.hosts.filter((row) => row.outcome === outcome) ?? []
  equal(
    left('gone').map(({ host }) => host),
    ['h1', 'h6'],
  )
  const why = Object.fromEntries(left('refused').map((one) => [one.host, one]))
  equal(Object.keys(why), ['h2', 'h3', 'h4', 'h5'], JSON.stringify(plan))
  equal([why['h2']?.exit, /down/.test(why['h2']?.why ?? '')], [9, true])
  match(why['h3']?.why ?? '', /space|room|free/)
  match(why['h4']?.why ?? '', /token|password|unauthorized|bearer/i)
  ok(why['h5']?.exit === 4 || why['h5']?.exit === 5, JSON.stringify(why['h5']))
  equal(
    left(null).map(({ host }) => host),
    rest.map((_, i) => `h${7 + i}`),
  )
  equal(await updatesTo(fleet, fleet.hosts, 'v1.1.0'), before)
}

/** Somebody else's update comes first on one host; then a host loses its network in the middle, and comes back. */
export async function vanishesInTheMiddle(fleet: Fleet, { soak }: Way, { hosts, names, limit }: Part): Promise<void> {
  const [first, , third] = hosts as [RoomHost, RoomHost, RoomHost, ...RoomHost[]]
  const [one = '', two = '', three = ''] = names
  is((await fleet.ask(first, 'POST', '', { tag: 'v1.2.0' })).code, 0)
  const args = ['--release', 'v1.1.0', '--limit', limit, '--waves', '1,2', '--soak', soak, '--on-failure', 'fleet']
  // the first one is on its way to something newer
  const { done } = fleet.start('vanish', ...args, '--allow-downgrade')
  await eventually(`${three} at it`, () => isAtIt(fleet, third), 240_000)
  await fleet.room.unplug(third)
  await eventually(
    'Ansible noticing',
    async () => (await fleet.events('vanish')).some((it) => it.event === 'host' && it.outcome === 'gone'),
    240_000,
  )
  await fleet.room.plug(third)
  const { code, rows, stderr } = await done
  ok(code === 4 || code === 8, `${code} ${stderr}`)
  match(stderr, new RegExp(`${three}: the host became unreachable during its update or rollback`))
  equal([rows[two]?.outcome, rows[three]?.outcome], ['taken_back', 'taken_back'], JSON.stringify(rows))
  const [now, ...others] = await runningOf(fleet, hosts)
  equal(others, ['v1.0.0', 'v1.0.0'])
  // the first was on its way to v1.2.0 when it was looked at: it is as it was before this run, or before that operation
  ok(['v1.0.0', 'v1.2.0'].includes(now ?? ''))
  const back = await fleet.move('vanish-back', '--rollback', '--release', 'v1.0.0', '--limit', one, '--soak', '0')
  is(back.code, 0, back.stderr)
}

/** The controller is killed while real hosts are at it; they finish by themselves, and the same command goes on. */
export async function killedAndAgain(fleet: Fleet, { soak }: Way, { hosts, limit }: Part): Promise<void> {
  const before = await updatesTo(fleet, hosts, 'v1.1.0')
  const args = ['--release', 'v1.1.0', '--waves', '1,100%', '--soak', soak, '--limit', limit]
  const { child, done } = fleet.start('killed', ...args)
  const [, second] = hosts as [RoomHost, RoomHost, ...RoomHost[]]
  await eventually('the second wave at it', () => isAtIt(fleet, second), 300_000)
  process.kill(-(child.pid ?? 0), 'SIGKILL')
  await done
  const again = await fleet.move('killed', ...args)
  is(again.code, 0, again.stderr)
  all(await runningOf(fleet, hosts), 'v1.1.0')
  equal(
    await updatesTo(fleet, hosts, 'v1.1.0'),
    before.map((updates) => updates + 1),
  )
}

/** A release that passes its probation and is not well from then on: a real Prometheus says so in the second wave. */
export async function prometheusSaysNo(fleet: Fleet, { longSoak }: Way, { hosts, names, limit }: Part): Promise<void> {
  const second = hosts.slice(1)
  for (const host of second) await setFault(host, 'unhealthy-when-told')
  await using prometheus = await prometheusOf(fleet, hosts)
  const gate = `${join(PROJECT, 'deploy/fleet/gates/prometheus.py')} --url ${prometheus.url} --query 'min_over_time(probe_success[3s])' --wait 20`
  const args = ['--release', 'v1.2.0', '--limit', limit, '--waves', '1,2', '--soak', longSoak, '--on-failure', 'fleet']
  const { done } = fleet.start('prometheus', ...args, '--gate', gate)
  const proved = async () =>
    (await fleet.events('prometheus')).filter((it) => it.event === 'host' && it.outcome === 'updated').length
  // not after a time: a busy machine may take longer for the probation, and a host that is ill in it goes back by itself
  await eventually('all of them to have passed it', async () => (await proved()) === hosts.length, 240_000)
  for (const host of second) await host.ok('touch', HOST_ILL)
  const { code, rows, stderr, events } = await done
  for (const host of second) {
    await host.ok('rm', HOST_ILL)
    await setFault(host, null)
  }
  is(code, 8, stderr)
  match(stderr, /the gate did not let the deployment continue: .*expected at least 1, got .*10\.77\.0\.\d+.* 0/)
  ok(events.some((event) => event.event === 'wave' && event.wave === 1 && event.step === 'good'))
  equal(
    names.map((name) => rows[name]?.outcome),
    names.map(() => 'taken_back'),
  )
  all(await runningOf(fleet, hosts), 'v1.0.0')
}

// ---- parts

export async function setFault(host: RoomHost, fault: Fault | null): Promise<void> {
  await host.ok('sh', '-c', fault === null ? `rm -f ${HOST_FAULT}` : `echo ${fault} > ${HOST_FAULT}`)
}

/** Its new process is there, and on probation. */
async function isAtIt(fleet: Fleet, host: RoomHost): Promise<boolean> {
  const status = await fleet.status(host).catch(() => null)
  return status?.state === 'in_flight' && status.operation?.stage === 'restart'
}

async function mountFeed(host: RoomHost, folder: string): Promise<void> {
  await host.ok('mount', '--bind', folder, FEED)
}

/** Leaves no room for an executable where the service's is. Returns what makes room again. */
export async function fillUp(host: RoomHost): Promise<() => Promise<void>> {
  // the writable layer of a host is 4 GB of memory that nobody has to have: reserve, do not write
  await host.ok('sh', '-c', 'fallocate -l $(($(stat -f -c "%a*%S" /opt/beacon) - 8000000)) /opt/filler')
  return async () => void (await host.ok('rm', '/opt/filler'))
}

/** The same releases for another architecture only. */
async function foreignFeed(feed: string): Promise<string> {
  const folder = `${feed}-foreign`
  await cp(feed, folder, { recursive: true })
  const own = assetName(SERVICE)
  const other = own.replace(/-(x64|arm64)$/, (_, arch: string) => (arch === 'x64' ? '-arm64' : '-x64'))
  for (const tag of (await readdir(folder)).filter((name) => /^v\d/.test(name))) {
    const place = join(folder, tag)
    for (const name of await readdir(place))
      if (name.startsWith(own)) await rename(join(place, name), join(place, name.replace(own, other)))
    const path = join(place, 'release.json')
    const manifest = (await readFile(path, 'utf8'))
      .replaceAll(own, other)
      .replaceAll(`"${process.arch}"`, `"${other.split('-').at(-1)}"`)
    await rm(path)
    await writeFile(path, manifest)
    const sums = await Promise.all(
      (await readdir(place))
        .filter((name) => name !== 'SHA256SUMS')
        .map(async (name) => {
          const sum = createHash('sha256')
            .update(await readFile(join(place, name)))
            .digest('hex')
          return `${sum}  ${name}\n`
        }),
    )
    await rm(join(place, 'SHA256SUMS'))
    await writeFile(join(place, 'SHA256SUMS'), sums.join(''))
  }
  return folder
}

/** How many operations of its own history have moved each host to the tag. */
async function updatesTo(fleet: Fleet, hosts: readonly RoomHost[], tag: string): Promise<number[]> {
  return await Promise.all(
    hosts.map(async (host) => {
      const status = await fleet.status(host)
      if (status === null) throw new Error(`${host.name} does not answer`)
      return status.history.filter(({ kind, to, outcome }) => kind === 'update' && to === tag && outcome === 'updated')
        .length
    }),
  )
}

async function runningOf(fleet: Fleet, hosts: readonly RoomHost[]): Promise<(string | null)[]> {
  return await Promise.all(hosts.map(async (host) => (await fleet.status(host))?.instance.version ?? null))
}

function timesOf({ rows }: Moved): string {
  const times = Object.values(rows)
    .flatMap(({ ms }) => (ms === null ? [] : [ms / 1000]))
    .toSorted((a, b) => a - b)
  const shown = [times[0], times[Math.floor(times.length / 2)], times.at(-1)].map((time) => time?.toFixed(1))
  return `${times.length} hosts, each ${shown.join(' / ')} s (least, middle, most)`
}

function requestsOf(totals: readonly Totals[]): number {
  return totals.reduce((sum, total) => sum + total.ok, 0)
}

function all(tags: (string | null)[], tag: string): void {
  equal(
    tags,
    tags.map(() => tag),
  )
}
