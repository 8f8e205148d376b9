// Somebody always holds the door: when every process of the service dies, and on `systemctl restart`, the manager holds the
// listening sockets, and no client is refused; what is stopped on purpose refuses at once.

import { suite } from './suite.ts'
import { equal, is, ok } from './assert.ts'
import { type Load, spawnLoad, type Totals } from './lab/load.ts'
import { bootWithReleases, type FeedHost } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: door', { skip: noHosts, timeoutMs: 120_000 })
const KILL_ALL = ['sh', '-c', 'kill -KILL $(cat /sys/fs/cgroup/system.slice/beacon.service/cgroup.procs)']
const KILLS = 3

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }])
  await host.install()
})
test.after(async () => await host.off())

test('kill -9 of all of its processes, again and again: requests that were under way are lost, nobody is refused', async () => {
  const load = await startLoad()
  for (let kill = 1; kill <= KILLS; kill++) {
    const { instance } = await host.status()
    await host.ok(...KILL_ALL)
    await eventually('the next process', async () => (await statusNow())?.instance.id !== instance.id, 30_000)
  }
  const totals = await load.stop()
  notRefused(totals)
  is((await host.show('NRestarts'))['NRestarts'], String(KILLS))
})

test('systemctl restart loses nothing at all', async () => {
  const load = await startLoad()
  const { instance } = await host.status()
  await host.ok('systemctl', 'restart', 'beacon')
  ok((await host.status()).instance.id !== instance.id)
  const totals = await load.stop()
  notRefused(totals)
  is(totals.lost, 0, JSON.stringify(totals.errors))
})

test('a stop on purpose refuses at once, and the next start serves', async () => {
  await host.ok('systemctl', 'stop', 'beacon')
  const refused = await host.run(['curl', '-sS', '--max-time', '5', 'http://127.0.0.1:8080/version'])
  is(refused.code, 7, `expected a refused connection: ${refused.stderr}`)
  await host.ok('systemctl', 'start', 'beacon')
  equal((await host.show('ActiveState'))['ActiveState'], 'active')
  is((await host.status()).instance.version, 'v1.0.0')
})

test.run()

async function startLoad(): Promise<Load> {
  const load = await spawnLoad(
    { mode: 'fresh', clients: 8, port: 8080, path: '/version', thinkMs: [5, 20], hangMs: 20_000 },
    { prefix: await host.network() },
  )
  await eventually('load', () => Promise.resolve(load.snapshot().ok > 50))
  return load
}

function notRefused({ errors, ok: answered }: Totals): void {
  const refused = Object.entries(errors).filter(([error]) => error.startsWith('connect:'))
  equal(refused, [])
  ok(answered > 50)
}

/** null while no process answers */
async function statusNow(): Promise<Awaited<ReturnType<FeedHost['status']>> | null> {
  return await host.status().catch(() => null)
}
