// What may happen to a fleet of real hosts, one function each, on a fleet that is in order before and after. The short form of all
// of them is in fleet-hosts.test.ts, the long one in `npm run soak -- --fleet`.

import { cp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/build/place.ts'
import { assetName } from '../../deploy/build/publish.ts'
import { equal, is, match, ok } from '../assert.ts'
import { type Fault, HOST_FAULT } from '../fixtures/faults.ts'
import type { ReleaseSpec } from '../fixtures/releases.ts'
import { FEED, type Fleet } from '../lab/fleet.ts'
import { SERVICE } from '../lab/managed.ts'
import type { RoomHost } from '../lab/network.ts'
import { eventually } from '../lab/systemd.ts'

/** All of them, for one feed. v1.2.0 does on each host what `setFault` says. */
export const RELEASES: readonly ReleaseSpec[] = [
  { tag: 'v1.0.0' },
  { tag: 'v1.1.0' },
  { tag: 'v1.2.0', fault: 'of-the-host' },
]

export interface Way {
  /** seconds */
  soak: string
  waves: string
  /** the fault of a release that dies in probation */
  dies: Fault
  /** one that passes the probation and is not well from then on, and a soak that is long enough to see it */
  sickens: Fault
  longSoak: string
}

/** Every host from v1.0.0 to v1.1.0 in waves, with load on four of them. */
export async function movesUnderLoad(fleet: Fleet, { soak, waves }: Way): Promise<string> {
  const before = await updatesTo(fleet, 'v1.1.0')
  const loads = fleet.hosts.slice(0, 4).map(({ address }) => fleet.load({ host: address }))
  const moved = await fleet.move('load', '--release', 'v1.1.0', '--waves', waves, '--soak', soak)
  const totals = await Promise.all(loads.map((load) => load.stop()))
  const ended = `${moved.stderr}\n${JSON.stringify(moved.rows)}`
  is(moved.code, 0, ended)
  all(await fleet.running(), 'v1.1.0')
  for (const total of totals) {
    ok(total.ok > 100, JSON.stringify(total))
    equal([total.lost, total.closed], [0, 0], JSON.stringify(total.errors))
  }
  equal(
    await updatesTo(fleet, 'v1.1.0'),
    before.map((count) => count + 1),
  )
  const times = Object.values(moved.rows)
    .flatMap(({ ms }) => (ms === null ? [] : [ms / 1000]))
    .toSorted((a, b) => a - b)
  const middle = times[Math.floor(times.length / 2)] ?? 0
  const requests = totals.reduce((sum, total) => sum + total.ok, 0)
  return `${times.length} hosts, each ${times[0]?.toFixed(1)} / ${middle.toFixed(1)} / ${times.at(-1)?.toFixed(1)} s (least, middle, most); ${requests} requests on ${loads.length} hosts, lost 0`
}

/** The whole fleet back, from each host's own backup; none of them asks a feed for bytes. */
export async function goesBack(fleet: Fleet): Promise<void> {
  // where there is no feed any more there is no download
  for (const host of fleet.hosts) await host.ok('umount', FEED)
  const moved = await fleet.move('back', '--rollback', '--waves', '100%', '--soak', '0')
  for (const host of fleet.hosts) await mountFeed(host, fleet.feed)
  is(moved.code, 0, moved.stderr)
  equal(moved.result?.counts, { rolled_back: fleet.hosts.length })
  all(await fleet.running(), 'v1.0.0')
}

/** A release that dies in probation: the canary reverts by itself, nobody else is asked. */
export async function canaryReverts(fleet: Fleet, { dies, waves, soak }: Way): Promise<void> {
  const before = await updatesTo(fleet, 'v1.2.0')
  for (const host of fleet.hosts) await setFault(host, dies)
  const { code, rows, stderr, events } = await fleet.move(
    'canary',
    '--release',
    'v1.2.0',
    '--waves',
    waves,
    '--soak',
    soak,
  )
  for (const host of fleet.hosts) await setFault(host, null)
  is(code, 8, stderr)
  equal([rows['h1']?.outcome, rows['h1']?.now], ['reverted', 'v1.0.0'])
  is(events.filter(({ event }) => event === 'start').length, 1)
  all(await fleet.running(), 'v1.0.0')
  equal(await updatesTo(fleet, 'v1.2.0'), before)
}

/** Good on three hosts and bad from the fourth on: the wave is taken back, or what the operator says. */
export async function badFromTheFourth(fleet: Fleet, { dies, soak }: Way): Promise<void> {
  for (const host of fleet.hosts.slice(3)) await setFault(host, dies)
  const { code, rows, stderr } = await fleet.move(
    'fourth',
    '--release',
    'v1.2.0',
    '--waves',
    '1,3,100%',
    '--soak',
    soak,
  )
  for (const host of fleet.hosts) await setFault(host, null)
  is(code, 8, stderr)
  equal(
    ['h1', 'h2', 'h3', 'h4', 'h5'].map((name) => rows[name]?.outcome),
    ['updated', 'taken_back', 'taken_back', 'reverted', 'untouched'],
  )
  equal((await fleet.running()).slice(0, 5), ['v1.2.0', 'v1.0.0', 'v1.0.0', 'v1.0.0', 'v1.0.0'])
  is((await fleet.move('fourth-back', '--rollback', '--limit', 'h1', '--soak', '0')).code, 0)
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
  const before = await updatesTo(fleet, 'v1.1.0')
  const config = `/etc/${SERVICE}/config.json`
  const password = await wrong.ok('cat', config)
  await fleet.room.unplug(unplugged)
  await fleet.room.unplug(alsoGone)
  await stopped.ok(SERVICE, 'stop')
  const filler = await fillUp(full)
  await wrong.ok('sed', '-i', 's/"password": *"[^"]*"/"password":"not-this-one"/', config)
  const otherFeed = await foreignFeed(fleet.feed)
  await foreign.ok('umount', FEED)
  await mountFeed(foreign, otherFeed)
  const nobody = await fleet.move('look', '--release', 'v1.1.0', '--check')
  const allowed = await fleet.move(
    'look',
    '--release',
    'v1.1.0',
    '--check',
    '--tolerate-gone',
    '2',
    '--tolerate-bad',
    '4',
  )
  await fleet.room.plug(unplugged)
  await fleet.room.plug(alsoGone)
  await stopped.ok(SERVICE, 'start')
  await filler()
  await wrong.run(['sh', '-c', `cat > ${config}`], { input: password })
  await foreign.ok('umount', FEED)
  await mountFeed(foreign, fleet.feed)
  await rm(otherFeed, { recursive: true, force: true })

  is(nobody.code, 4, nobody.stderr)
  match(nobody.stderr, /cannot be reached: h1, h6/)
  is(allowed.code, 0, allowed.stderr)
  const plan = allowed.events.find((event) => event.event === 'plan')
  if (plan?.event !== 'plan') throw new Error('there is no plan')
  equal(plan.gone, ['h1', 'h6'])
  const why = Object.fromEntries(plan.refused.map((one) => [one.host, one]))
  equal(Object.keys(why), ['h2', 'h3', 'h4', 'h5'], JSON.stringify(plan.refused))
  equal([why['h2']?.exit, /down/.test(why['h2']?.why ?? '')], [9, true])
  match(why['h3']?.why ?? '', /space|room|free/)
  match(why['h4']?.why ?? '', /token|password|unauthorized|bearer/i)
  ok(why['h5']?.exit === 4 || why['h5']?.exit === 5, JSON.stringify(why['h5']))
  equal(
    plan.waves.flat(),
    rest.map((_, i) => `h${7 + i}`),
  )
  equal(await updatesTo(fleet, 'v1.1.0'), before)
}

/** Somebody else's update comes first on one host; then a host loses its network in the middle, and comes back. */
export async function vanishesInTheMiddle(fleet: Fleet, { soak }: Way): Promise<void> {
  const [first, second, third] = fleet.hosts as [RoomHost, RoomHost, RoomHost, ...RoomHost[]]
  is((await fleet.ask(first, 'POST', '', { tag: 'v1.2.0' })).code, 0)
  const args = ['--release', 'v1.1.0', '--limit', 'h1,h2,h3', '--waves', '1,2', '--soak', soak, '--on-failure', 'fleet']
  const { done } = fleet.start('vanish', ...args)
  await eventually('h3 at it', () => isAtIt(fleet, third), 240_000)
  await fleet.room.unplug(third)
  await eventually(
    'Ansible noticing',
    async () => (await fleet.events('vanish')).some((it) => it.event === 'host' && it.outcome === 'gone'),
    240_000,
  )
  await fleet.room.plug(third)
  const { code, rows, stderr } = await done
  ok(code === 4 || code === 8, `${code} ${stderr}`)
  match(stderr, /vanished in the middle: h3/)
  equal([rows['h2']?.outcome, rows['h3']?.outcome], ['taken_back', 'taken_back'], JSON.stringify(rows))
  equal(
    [(await fleet.status(second))?.instance.version, (await fleet.status(third))?.instance.version],
    ['v1.0.0', 'v1.0.0'],
  )
  // h1 was on its way to v1.2.0 when it was looked at: it is as it was before this run, or before that operation
  ok(['v1.0.0', 'v1.2.0'].includes((await fleet.status(first))?.instance.version ?? ''))
  const back = await fleet.move('vanish-back', '--rollback', '--release', 'v1.0.0', '--limit', 'h1', '--soak', '0')
  is(back.code, 0, back.stderr)
}

/** The controller is killed while real hosts are at it; they finish by themselves, and it goes on. */
export async function killedAndResumed(fleet: Fleet, { soak }: Way, count: number): Promise<void> {
  const before = await updatesTo(fleet, 'v1.1.0')
  const names = fleet.hosts.slice(0, count).map((_, i) => `h${i + 1}`)
  const args = ['--release', 'v1.1.0', '--waves', '1,100%', '--soak', soak, '--limit', names.join(',')]
  const { child, done } = fleet.start('killed', ...args)
  const [, second] = fleet.hosts as [RoomHost, RoomHost, ...RoomHost[]]
  await eventually('the second wave at it', () => isAtIt(fleet, second), 300_000)
  process.kill(-(child.pid ?? 0), 'SIGKILL')
  await done
  const resumed = await fleet.move('killed', '--resume')
  is(resumed.code, 0, resumed.stderr)
  all((await fleet.running()).slice(0, count), 'v1.1.0')
  equal(
    await updatesTo(fleet, 'v1.1.0'),
    before.map((updates, i) => updates + (i < count ? 1 : 0)),
  )
}

/** HAProxy in front of four hosts, with hooks that drain and without: nobody behind it loses anything. */
export async function behindHaproxy(fleet: Fleet, hooks: boolean): Promise<string> {
  const { room } = fleet
  const socket = join(room.folder, 'haproxy.sock')
  const servers = fleet.hosts.slice(0, 4).map(({ address }, i) => `  server h${i + 1} ${address}:8080 check inter 500`)
  const text = `global
  stats socket ${socket} level admin
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option httpchk GET /healthz
frontend door
  bind ${room.address}:8000
  default_backend app
backend app
${servers.join('\n')}
`
  const configuration = join(room.folder, 'haproxy.cfg')
  await writeFile(configuration, text)
  await using _proxy = fleet.background(['haproxy', '-db', '-q', '-f', configuration])
  const answers = () => room.run(['curl', '-fsS', '-o', '/dev/null', `http://${room.address}:8000/healthz`])
  await eventually('HAProxy', async () => (await answers()).code === 0)
  const load = fleet.load({ host: room.address, port: 8000, clients: 16 })
  const hook = `${join(PROJECT, 'deploy/fleet/hooks/haproxy.py')} --socket ${socket} --backend app`
  const around = hooks ? ['--before-host', hook, '--after-host', hook] : []
  const way = hooks ? ['--release', 'v1.1.0'] : ['--rollback', '--release', 'v1.0.0']
  const moved = await fleet.move(
    `haproxy-${hooks}`,
    ...way,
    '--limit',
    'h1,h2,h3,h4',
    '--waves',
    '1,1,2',
    '--soak',
    '0',
    ...around,
  )
  const total = await load.stop()
  is(moved.code, 0, moved.stderr)
  ok(total.ok > 100)
  is(total.lost, 0, JSON.stringify(total.errors))
  return `HAProxy before four hosts, ${hooks ? 'with' : 'without'} hooks: ${total.ok} requests, lost 0`
}

/** A release that passes its probation and is not well from then on: a real Prometheus says so in the second wave. */
export async function prometheusSaysNo(fleet: Fleet, { sickens, longSoak }: Way): Promise<void> {
  const { room } = fleet
  const names = fleet.hosts.slice(0, 3)
  for (const host of names.slice(1)) await setFault(host, sickens)
  const targets = names.map(({ address }) => `http://${address}:8080/healthz`)
  const relabel = [
    { source_labels: ['__address__'], target_label: '__param_target' },
    { source_labels: ['__param_target'], target_label: 'instance' },
    { target_label: '__address__', replacement: '127.0.0.1:9115' },
  ]
  const scrape = {
    job_name: 'beacon',
    scrape_interval: '1s',
    scrape_timeout: '1s',
    metrics_path: '/probe',
    params: { module: ['http_2xx'] },
    static_configs: [{ targets }],
    relabel_configs: relabel,
  }
  const [configuration, modules] = [join(room.folder, 'prometheus.yml'), join(room.folder, 'blackbox.yml')]
  await writeFile(configuration, JSON.stringify({ scrape_configs: [scrape] }))
  await writeFile(modules, JSON.stringify({ modules: { http_2xx: { prober: 'http', timeout: '1s' } } }))
  await using _exporter = fleet.background([
    'prometheus-blackbox-exporter',
    '--config.file',
    modules,
    '--web.listen-address',
    '127.0.0.1:9115',
  ])
  await using _prometheus = fleet.background([
    'prometheus',
    '--config.file',
    configuration,
    '--storage.tsdb.path',
    join(room.folder, 'tsdb'),
    '--web.listen-address',
    '127.0.0.1:9090',
  ])
  const gate = (query: string) =>
    `${join(PROJECT, 'deploy/fleet/gates/prometheus.py')} --url http://127.0.0.1:9090 --query '${query}' --wait 20`
  const ready = ['curl', '-fsS', 'http://127.0.0.1:9090/-/ready']
  await eventually('Prometheus', async () => (await room.run(ready)).code === 0, 60_000)
  const args = [
    '--release',
    'v1.2.0',
    '--limit',
    'h1,h2,h3',
    '--waves',
    '1,2',
    '--soak',
    longSoak,
    '--on-failure',
    'fleet',
  ]
  const { code, rows, stderr, events } = await fleet.move(
    'prometheus',
    ...args,
    '--gate',
    gate('min_over_time(probe_success[3s])'),
  )
  for (const host of fleet.hosts) await setFault(host, null)
  is(code, 8, stderr)
  match(stderr, /the gate said no .*expected at least 1, got .*10\.77\.0\.1[23].* 0/)
  ok(events.some((event) => event.event === 'wave' && event.wave === 1 && event.step === 'good'))
  equal(
    ['h1', 'h2', 'h3'].map((name) => rows[name]?.outcome),
    ['taken_back', 'taken_back', 'taken_back'],
  )
  all((await fleet.running()).slice(0, 3), 'v1.0.0')
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
async function fillUp(host: RoomHost): Promise<() => Promise<void>> {
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
async function updatesTo(fleet: Fleet, tag: string): Promise<number[]> {
  return await Promise.all(
    fleet.hosts.map(async (host) => {
      const status = await fleet.status(host)
      if (status === null) throw new Error(`${host.name} does not answer`)
      return status.history.filter(({ kind, to, outcome }) => kind === 'update' && to === tag && outcome === 'updated')
        .length
    }),
  )
}

function all(tags: (string | null)[], tag: string): void {
  equal(
    tags,
    tags.map(() => tag),
  )
}
