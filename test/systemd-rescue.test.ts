// What nobody is there to see: both processes die, or the power goes. The service comes up again by itself, with a whole
// database and every write that it had acknowledged.

import { isLong, suite } from './suite.ts'
import { equal, is, match, ok } from './assert.ts'
import { type Load, spawnLoad } from './lab/load.ts'
import { bootWithReleases, EXECUTABLE, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: rescue', { skip: noHosts, timeoutMs: 180_000 })
/** of the ten points of `pointOf`, in CI every fourth one */
const POINTS = Array.from({ length: 10 }, (_, at) => at).filter((at) => isLong || at % 4 === 0)
const KILL_ALL = ['sh', '-c', 'kill -KILL $(cat /sys/fs/cgroup/system.slice/beacon.service/cgroup.procs)']

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.3.0', fault: 'dies-after-1s' }])
  await host.install({ probation: '3s' })
})
test.after(async () => await host.off())

test('a release that kills both processes is taken back by the backup executable before the start limit', async () => {
  await upgradeAndKillBoth()
  await eventually('the old release', async () => (await host.status()).instance.version === 'v1.0.0', 20_000)
  const { NRestarts: restarts, ActiveState: state } = await host.show('NRestarts', 'ActiveState')
  equal([restarts, state], ['2', 'active'])
  const { operation } = await host.status()
  equal([operation?.outcome, operation?.error?.code], ['reverted', 'probation_failed'])
  is((await host.ok('systemctl', '--failed', '--no-legend')).trim(), '')
})

test('should the first net be gone, OnFailure= puts the backup back once the start limit is hit', async () => {
  await put(
    host,
    '/etc/systemd/system/beacon.service.d/test.conf',
    '[Unit]\nStartLimitBurst=2\n[Service]\nExecStopPost=\nRestartSec=50ms\n',
  )
  await host.ok('systemctl', 'daemon-reload')
  await host.ok('systemctl', 'restart', 'beacon')
  await host.ok('systemctl', 'reset-failed', 'beacon')
  await upgradeAndKillBoth()
  await eventually('the old release', async () => (await host.status()).instance.version === 'v1.0.0', 25_000)
  match(
    await host.ok('journalctl', '-u', 'beacon-rescue', '-o', 'cat', '--no-pager'),
    'v1.3.0 failed; v1.0.0 was restored',
  )
  is((await host.status()).operation?.outcome, 'reverted')
  await host.ok('rm', '/etc/systemd/system/beacon.service.d/test.conf')
  await host.ok('systemctl', 'daemon-reload')
})

test(
  `a power cut at ${POINTS.length} points of an upgrade: the service is up after the next boot, the database is whole`,
  async () => {
    const acknowledged = new Set<string>()
    const seen = new Set<string>()
    for (const i of POINTS) {
      const from = (await host.status()).instance.version
      const to = from === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
      const load = await startWriting()
      const upgrade = host.run(['beacon', 'upgrade', to], { timeoutMs: 30_000 }).catch(() => null)
      // the ten points: by stage where the disk changes, spread over the rest
      await pointOf(i)
      const stage = await host.status().then(
        ({ operation }) => `${operation?.stage} ${operation?.outcome ?? ''}`,
        () => 'silent',
      )
      seen.add(stage.trim())
      await host.cut()
      for (const id of (await load.stop()).writes.ids) acknowledged.add(id)
      await upgrade
      await host.again()
      const status = await eventually(`an answer after cut ${i} (${stage})`, async () => await host.status(), 20_000)
      ok([from, to].includes(status.instance.version), status.instance.version)
      is((await host.sql('pragma integrity_check')).trim(), 'ok')
      const there = new Set((await host.sql('select message from logs')).trim().split('\n'))
      equal(
        [...acknowledged].filter((id) => !there.has(id)),
        [],
        `acknowledged writes lost by cut ${i} (${stage})`,
      )
      const settled = await eventually('an end of the operation', async () => {
        const now = await host.status()
        return now.state === 'idle' && now
      })
      is(await host.ok(EXECUTABLE, '--version'), `beacon ${settled.instance.version}\n`)
      if (settled.backup !== null)
        ok(settled.backup !== settled.instance.version, `the backup is ${settled.backup} too`)
      is(await host.ok('find', '/opt/beacon', '/var/lib/beacon', '!', '-user', 'beacon'), '')
    }
    ok(acknowledged.size > 10 * POINTS.length)
    ok(seen.size >= (isLong ? 3 : 2), `only cut in: ${[...seen].join(', ')}`)
  },
  { timeoutMs: 240_000 },
)

async function upgradeAndKillBoth(): Promise<void> {
  const upgrade = host.run(['beacon', 'upgrade', 'v1.3.0'])
  await eventually('the successor', async () => {
    const { instance, operation } = await host.status()
    return instance.version === 'v1.3.0' && operation?.stage === 'restart'
  })
  await host.ok(...KILL_ALL)
  is((await upgrade).code, 8)
}

/** 0 to 9: from the first byte of the download to the end of probation. */
async function pointOf(i: number): Promise<void> {
  const stage = async (...names: string[]) =>
    await eventually(
      `stage ${names.join(' or ')}`,
      async () => {
        const { operation } = await host.status()
        return operation?.outcome === null && names.includes(operation.stage) // not the one before
      },
      8000,
    ).catch(() => {})
  const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))
  if (i < 2) {
    await stage('check', 'download', 'verify', 'swap', 'restart')
    return await wait(i * 150)
  }
  if (i < 4) {
    await stage('verify', 'swap', 'restart')
    return await wait((i - 2) * 60)
  }
  await stage('restart')
  await wait([0, 120, 300, 700, 2000, 3400][i - 4] ?? 0)
}

async function startWriting(): Promise<Load> {
  return await spawnLoad(
    {
      mode: 'keepalive',
      clients: 4,
      port: 8080,
      path: '/version',
      afterClose: 'reopen',
      hangMs: 500,
      thinkMs: 10,
      keepAcknowledgedIds: true,
      write: {
        every: 2,
        path: '/api/logs',
        method: 'POST',
        body: '{"message":"{id}"}',
        headers: { 'content-type': 'application/json' },
      },
    },
    { prefix: await host.network() },
  )
}

test.run()
