// @long
// A service on a port below 1024: its unit has the one capability for it, by `--listen` or by the operator's own drop-in. Root's commands
// give up what a service has, and work all the same.

import { readFile, writeFile } from 'node:fs/promises'
import { suite } from './suite.ts'
import { equal, is, match, not } from './assert.ts'
import { bootWithReleases, type FeedHost, put, setUpdate } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: a low port', { skip: noHosts, timeoutMs: 180_000 })
const DROP_IN = '/etc/systemd/system/beacon.service.d/mine.conf'

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
})
test.after(async () => await host.off())

test('`--listen` with a port below 1024 gives the unit the one capability for it, as the plan says; every command works without it', async () => {
  const dry = await host.installer('v1.0.0', 'install', '-n', '--listen', ':80')
  match(dry.stdout, 'beacon.service, which gives the service CAP_NET_BIND_SERVICE, for port 80\n')
  const installed = await host.installer('v1.0.0', 'install', '-y', '--no-start', '--listen', '127.0.0.1:80')
  is(installed.code, 0, installed.stderr)
  await setUpdate(host, { probation: '1s', trial: 'auto' })
  is((await host.cli('install', '-y', '--start')).code, 0)
  equal(await host.show('CapabilityBoundingSet', 'AmbientCapabilities'), {
    CapabilityBoundingSet: 'cap_net_bind_service',
    AmbientCapabilities: 'cap_net_bind_service',
  })
  await worksOnLowPort()

  // a command sees that the service lives, although /proc hides it from a process without its capability
  const { MainPID: pid = '' } = await host.show('MainPID')
  match(await host.ok('cat', `/proc/${pid}/status`), /^CapEff:\t0000000000000400$/m)
  await host.ok('systemctl', 'kill', '--signal=KILL', '--kill-who=main', 'beacon')
  await eventually('an answer', async () => (await host.status()).instance.version === 'v1.1.0')

  await host.ok('systemctl', 'stop', 'beacon')
  const stopped = await host.cli('rollback', '-y')
  is(stopped.code, 0, stopped.stderr)
  is((await host.status()).instance.version, 'v1.0.0')
  is((await host.cli('uninstall', '--purge', '-y', '--confirm', 'beacon')).code, 0)
})

test("a port below 1024 that only the configuration names: the log says the way; an operator's own drop-in opens it too, and every command works", async () => {
  is((await host.installer('v1.0.0', 'install', '-y', '--no-start')).code, 0)
  await setUpdate(host, { probation: '1s' })
  const path = await host.path('/etc/beacon/config.json')
  const config = JSON.parse(await readFile(path, 'utf8')) as object
  await writeFile(path, JSON.stringify({ ...config, listen: { host: '127.0.0.1', port: 80 } }))
  is((await host.cli('install', '-y', '--start')).code === 0, false)
  match(
    await host.ok('journalctl', '-u', 'beacon', '-o', 'cat', '--no-pager'),
    /EACCES: a port below 1024 needs CAP_NET_BIND_SERVICE; run `install --listen 127\.0\.0\.1:80` as root to add it to the unit/,
  )
  const lines = 'AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n'
  await put(host, DROP_IN, `[Service]\n${lines}`)
  await host.ok('systemctl', 'daemon-reload')
  const started = await host.cli('install', '-y', '--start')
  is(started.code, 0, started.stderr)
  await worksOnLowPort()
})

async function worksOnLowPort(): Promise<void> {
  is((await host.status()).instance.version, 'v1.0.0')
  const status = await host.cli('status')
  equal([status.code, /v1\.0\.0/.test(status.stdout)], [0, true], status.stderr)
  const doctor = await host.cli('doctor')
  is(doctor.code, 0, doctor.stdout)
  const upgrade = await host.cli('upgrade', 'v1.1.0', '-y')
  is(upgrade.code, 0, upgrade.stderr)
  not.match(upgrade.stderr, 'drop-ins')
  is((await host.status()).instance.version, 'v1.1.0')
}

test.run()
