// @deadlineMs 600000
// A stop-first switch under systemd, by an executable that `baton build` makes: the main process moves to the holder and on, two
// processes of the application never live at once, and whoever is killed, the service is there again.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseProject } from '../deploy/make/project.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { type Load, spawnLoad, type Totals } from './lab/load.ts'
import { bootWithFeed, type FeedHost } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { isLong, suite } from './suite.ts'

const test = suite('systemd: alone', { skip: noHosts, timeoutMs: 300_000 })
const STATE = '/var/lib/beacon'
const KILLS = isLong ? 6 : 3

let host: FeedHost

test.before(async () => {
  host = await bootWithFeed(async (out) => {
    const folder = join(import.meta.dirname, 'fixtures')
    const project = parseProject({ service: 'beacon', kind: 'bundle', entry: 'solo.js', healthPath: '/' }, folder)
    await buildTags({ project, out }, ['v1.0.0', 'v1.1.0', 'v1.2.0'])
  })
  await host.install({ probation: '1500ms', quietTimeout: '500ms' })
})
test.after(async () => await host.off())

test('forth and back under load: nothing is lost, nobody is refused, and systemd starts nothing', async () => {
  const load = await startLoad()
  const moved = await host.cli('upgrade', 'v1.1.0', '-y')
  is(moved.code, 0, moved.stderr)
  is((await host.status()).instance.version, 'v1.1.0')
  const { MainPID } = await host.show('MainPID')
  is(Number(MainPID), (await host.status()).instance.pid)
  const back = await host.cli('rollback', '-y')
  is(back.code, 0, back.stderr)
  const totals = await load.stop()
  equal([totals.lost, totals.closed, totals.errors], [0, 0, {}])
  equal(await wrong(), [])
  is((await host.show('NRestarts'))['NRestarts'], '0')
  is((await host.show('ActiveState'))['ActiveState'], 'active')
})

test('a release that dies in its probation: the holder puts the old one back, and the unit never ends', async () => {
  await host.ok('touch', `${STATE}/dies`)
  const load = await startLoad()
  const { code, stderr } = await host.cli('upgrade', 'v1.2.0', '-y')
  is(code, 8, stderr)
  match(stderr, /v\S+ is running again.* because v1\.2\.0 failed during probation: it exited with code 7/)
  notRefused(await load.stop())
  is((await host.status()).instance.version, 'v1.0.0')
  is((await host.show('NRestarts'))['NRestarts'], '0')
  equal(await wrong(), [])
})

test('the main process is killed at random instants of a switch: the service is there again, never twice', async () => {
  for (let kill = 0; kill < KILLS; kill++) {
    const from = (await host.status()).instance.version
    const to = from === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
    await host.ok('systemctl', 'reset-failed', 'beacon') // the start limit is for one that always dies
    const load = await startLoad()
    is((await host.ask('POST', '', { tag: to })).status, 202)
    await sleep(200 + (kill * 1800) / KILLS)
    const { MainPID = '0' } = await host.show('MainPID')
    await host.run(['kill', '-KILL', MainPID])
    const { operation, instance } = await ended()
    const totals = await load.stop()
    notRefused(totals)
    const where = `kill ${kill}: ${operation?.outcome}, ${operation?.error?.message}, ${instance.version}`
    is(instance.version, isDone(operation) ? to : from, where)
    equal(await wrong(), [], where)
  }
})

test('a stop in the middle of a switch ends all of it, and the next start goes on', async () => {
  const from = (await host.status()).instance.version
  const to = from === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
  is((await host.ask('POST', '', { tag: to })).status, 202)
  await eventually('the holder', async () => /"holder"/.test(await host.ok('cat', `${STATE}/update/journal.json`)))
  await host.ok('systemctl', 'stop', 'beacon')
  const left = await host.run(['cat', '/sys/fs/cgroup/system.slice/beacon.service/cgroup.procs'])
  is(left.stdout.trim(), '')
  await host.ok('systemctl', 'start', 'beacon')
  const { operation, instance } = await ended()
  ok(isDone(operation) ? instance.version === to : instance.version === from, JSON.stringify(operation))
  equal(await wrong(), [])
})

test.run()

async function ended(): Promise<Status> {
  const look = async () => {
    const status = await host.status().catch(() => null)
    return status !== null && status.state === 'idle' ? status : null
  }
  return await eventually('the outcome', look, 60_000)
}

async function startLoad(): Promise<Load> {
  const load = await spawnLoad(
    { mode: 'keepalive', clients: 8, port: 8080, path: '/x', thinkMs: [5, 40], hangMs: 20_000, afterClose: 'reopen' },
    { prefix: await host.network() },
  )
  await eventually('load', () => Promise.resolve(load.snapshot().ok > 50))
  return load
}

function notRefused({ lostBy, errors }: Totals): void {
  is(lostBy.connect, 0, JSON.stringify(errors))
}

/** Two processes of the application, or their children, that worked at once; a lock that was held. */
async function wrong(): Promise<string[]> {
  const read = async (name: string) => await readFile(await host.path(`${STATE}/${name}`), 'utf8').catch(() => '')
  const found = (await read('lines')).split('\n').filter((line) => line.includes('held'))
  for (const name of ['beats', 'child']) {
    const seen = new Set<string>()
    let last = ''
    for (const line of (await read(name)).trim().split('\n')) {
      const pid = line.split(' ')[0] ?? ''
      if (pid !== last && seen.has(pid)) found.push(`${name}: ${last} and ${pid} worked at once`)
      seen.add(pid)
      last = pid
    }
  }
  return found
}

/** An update to an older release ends as `rolled_back`. */
function isDone(operation: Operation | null): boolean {
  return operation?.outcome === 'updated' || operation?.outcome === 'rolled_back'
}
