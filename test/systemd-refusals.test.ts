// Where an install must not or cannot be: the right exit code, a message that says why, and nothing changed. And the other
// ways to have one: without systemd, for a user. By the deploy scripts: systemd-deploy.test.ts.

import { suite } from './suite.ts'
import type { JournalState } from '../agent/disk/journal.ts'
import { equal, is, match, ok } from './assert.ts'
import { spawnLoad } from './lab/load.ts'
import { bootWithReleases, eventsIn, type FeedHost, put, readerOfLogs, setUpdate } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: refusals and other ways', { skip: noHosts, timeoutMs: 180_000 })
// longer than a release that exits after half a second takes to exit, on a busy machine too
const SHORT = { probation: '2s', hangTimeout: '3s' }

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.2.0', fault: 'exits-in-probation' }])
  for (const user of ['ada', 'bob']) await host.ok('useradd', '--create-home', user)
  // once: the fetched executable, so that not every refusal unpacks it again
  await host.ok('sh', '-c', `gzip -dc ${host.feed}/v1.0.0/beacon-linux-*.gz > /srv/beacon && chmod 755 /srv/beacon`)
})
test.after(async () => await host.off())

test('a place that cannot be used is refused with 7 before anything is changed', async () => {
  const mounts: [string, string, string, string][] = [
    ['/srv/small', 'size=30m', '--prefix', 'not enough space'],
    ['/srv/ro', 'ro', '--prefix', 'read-only'],
    ['/srv/noexec', 'noexec', '--prefix', 'noexec'],
    ['/srv/full', 'size=100k', '--state-dir', 'not enough space'],
    ['/srv/roo', 'ro', '--state-dir', 'read-only'],
  ]
  for (const [path, options, flag, message] of mounts) {
    await host.ok('mkdir', path)
    await host.ok('mount', '-t', 'tmpfs', '-o', options, 'tmpfs', path)
    const { code, stderr } = await install(flag, `${path}/beacon`)
    equal([code, stderr.includes(message)], [7, true], `${flag} ${path}: ${stderr}`)
    await nothingChanged()
  }
})

test('a directory that is a link is refused before anything is changed, with the directory that it leads to', async () => {
  await host.ok('mkdir', '/srv/real')
  await host.ok('ln', '-s', '/srv/real', '/srv/link')
  for (const flag of ['--prefix', '--state-dir']) {
    const { code, stderr } = await install(flag, '/srv/link')
    is(code, 7, stderr)
    match(stderr, 'expected a directory at /srv/link, found a link')
    match(stderr, `pass the directory that the link points to: \`${flag} /srv/real\``)
    await nothingChanged()
  }
})

test('what is not ours is not touched', async () => {
  const foreign: [string, string][] = [
    ['/opt/beacon/beacon', 'somebody else put this here'],
    ['/usr/local/bin/beacon', '#!/bin/sh'],
    ['/etc/systemd/system/beacon.service', '[Service]\nExecStart=/bin/true\n'],
  ]
  for (const [path, text] of foreign) {
    await put(host, path, text)
    const { code, stderr } = await install()
    is(code, 7, stderr)
    match(stderr, path)
    is(await host.ok('cat', path), text)
    await host.ok('rm', path)
    await nothingChanged()
  }
  await host.run(['rmdir', '/opt/beacon'])
})

test('as somebody else: the host needs root, another person has another install', async () => {
  const asUser = (user: string, ...args: string[]) =>
    host.run(['/srv/beacon', 'install', '-y', '--feed', host.feed, '--no-service', '--no-start', ...args], {
      user,
      env: { HOME: `/home/${user}` },
    })
  is((await asUser('ada', '--system')).code, 7)
  await host.ok('mkdir', '-m', '777', '/srv/shared')
  is((await asUser('ada', '--prefix', '/srv/shared')).code, 0)
  const second = await asUser('bob', '--prefix', '/srv/shared')
  is(second.code, 7)
  match(second.stderr, 'installed for the user ada, not for bob')
  is((await asUser('bob', '--prefix', '/home/ada/beacon')).code, 7)
  is((await asUser('bob')).code, 0) // in a home of its own
  is(
    (await host.ok('stat', '-c', '%U', '/home/bob/.local/share/beacon/beacon', '/srv/shared/beacon')).trim(),
    'bob\nada',
  )
  for (const [user, command] of [
    ['ada', '/srv/shared/beacon'],
    ['bob', '/home/bob/.local/bin/beacon'],
  ] as const) {
    const removed = await host.run([command, 'uninstall', '-y'], { user, env: { HOME: `/home/${user}` } })
    is(removed.code, 0, removed.stderr)
  }
})

test('a user without a systemd manager is told so, with 3', async () => {
  const { code, stderr } = await host.run(['/srv/beacon', 'install', '-y', '--feed', host.feed], {
    user: 'ada',
    env: { HOME: '/home/ada' },
  })
  is(code, 3, stderr)
  match(stderr, '--no-service')
})

test.long('for a user with a systemd manager: upgrade and rollback hand over there too', async () => {
  const uid = (await host.ok('id', '-u', 'ada')).trim()
  await host.ok('loginctl', 'enable-linger', 'ada')
  const bus = `/run/user/${uid}`
  const env = { HOME: '/home/ada', XDG_RUNTIME_DIR: bus, DBUS_SESSION_BUS_ADDRESS: `unix:path=${bus}/bus` }
  await eventually(
    'the manager of ada',
    async () =>
      (await host.run(['systemctl', '--user', 'is-system-running'], { user: 'ada', env })).stdout.trim() === 'running',
  )
  const ada = (...command: string[]) => host.run(command, { user: 'ada', env })
  const done = await ada('/srv/beacon', 'install', '-y', '--feed', host.feed, '--no-start')
  is(done.code, 0, done.stderr)
  await setUpdate(host, SHORT, '/home/ada/.config/beacon/config.json')
  const started = await ada('/srv/beacon', 'install', '-y', '--start')
  is(started.code, 0, started.stderr)
  const beacon = '/home/ada/.local/bin/beacon'
  const upgraded = await ada(beacon, 'upgrade', 'v1.1.0')
  is(upgraded.code, 0, upgraded.stderr)
  is((await ada(beacon, 'upgrade', 'v1.2.0')).code, 8)
  const shown = await ada('systemctl', '--user', 'show', 'beacon', '--property=NRestarts', '--property=ActiveState')
  match(shown.stdout, 'NRestarts=0')
  match(shown.stdout, 'ActiveState=active')
  match((await ada(beacon, 'status')).stdout, 'beacon v1.1.0 is running')
  is((await ada(beacon, 'uninstall', '-y')).code, 0)
  await host.ok('test', '-e', '/home/ada/.local/state/beacon/beacon.db')
})

test.long(
  'not started: what had no chance to prove itself is not called bad when the next operation begins',
  async () => {
    is((await install('--no-service', '--no-start')).code, 0)
    for (const words of ['upgrade v1.1.0', 'upgrade v1.2.0', 'rollback']) {
      const { code, stderr } = await host.cli(...words.split(' '))
      is(code, 0, stderr)
    }
    const { history, bad } = JSON.parse(await host.ok('cat', '/var/lib/beacon/update/journal.json')) as JournalState
    equal(
      history.map(({ outcome, from, to }) => `${outcome} ${from} ${to}`),
      ['updated v1.1.0 v1.2.0', 'updated v1.0.0 v1.1.0'],
    )
    equal(bad, [])
    match((await host.cli('status')).stdout, /v1\.1\.0/)
    is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
  },
)

test('without systemd: upgrade, revert, restart after a death, rollback and stop work the same', async () => {
  const done = await install('--no-service', '--no-start')
  is(done.code, 0, done.stderr)
  await setUpdate(host, SHORT)
  is((await install('--start')).code, 0)
  is((await host.run(['systemctl', 'cat', 'beacon'])).code, 1)
  const owners = await host.ok('sh', '-c', 'ps -eo user:20,args | grep "^[a-z]* */opt/beacon/beacon" | sort')
  match(owners, /^beacon +\/opt\/beacon\/beacon serve/)
  const { program, user, environment } = await readerOfLogs(host, { ROOTS_TOKEN: 'secret' })
  equal([program, user, environment.filter((one) => one.includes('secret'))], ['tail', 'beacon', []])
  ok(environment.some((one) => one.startsWith('PATH=')))
  match(owners, /^beacon +\/opt\/beacon\/beacon start --supervise$/m)
  const upgraded = await host.cli('upgrade', 'v1.1.0')
  is(upgraded.code, 0, upgraded.stderr)
  const reverted = await host.cli('upgrade', 'v1.2.0', '--json')
  is(reverted.code, 8, reverted.stderr)
  const { event, outcome, from, to, operationId } = eventsIn(reverted.stdout).at(-1) ?? {}
  equal(
    [event, outcome, from, to, operationId],
    ['error', 'reverted', 'v1.1.0', 'v1.2.0', (await host.status()).operation?.id],
  )
  match(
    (await host.cli('upgrade', 'v1.2.0', '-n')).stderr,
    /trying v1\.2\.0 again, because you named it; it failed here at \S+: /,
  )
  for (const flags of [[], ['-n']]) {
    const { code, stderr } = await host.cli('upgrade', ...flags)
    is(code, 0, stderr)
    match(stderr, /v1\.2\.0 is newer, but failed here at .*: .*; `beacon upgrade v1\.2\.0` tries it again/)
  }
  const { pid } = (await host.status()).instance
  const prefix = await host.network()
  const load = await spawnLoad(
    { mode: 'fresh', clients: 4, port: 8080, path: '/version', thinkMs: [5, 20], hangMs: 20_000 },
    { prefix },
  )
  await eventually('load', () => Promise.resolve(load.snapshot().ok > 20))
  await host.ok('kill', '-KILL', String(pid))
  const next = await eventually('a new process', async () => {
    const { instance } = await host.status()
    return instance.pid !== pid && instance
  })
  is(next.version, 'v1.1.0')
  const { errors } = await load.stop()
  equal(
    Object.keys(errors).filter((error) => error.startsWith('connect')),
    [],
    'the supervision holds the door: nobody is refused',
  )
  const rolledBack = await host.cli('rollback')
  is(rolledBack.code, 0, rolledBack.stderr)
  is((await host.cli('stop')).code, 0)
  is((await host.run(['pgrep', '-f', '^/opt/beacon/beacon'])).stdout, '')
  is((await host.cli('upgrade', 'v1.1.0')).code, 0)
  is((await host.status()).instance.version, 'v1.1.0')
  is(await host.ok('find', '/opt/beacon', '/var/lib/beacon', '!', '-user', 'beacon'), '')
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
  is((await host.run(['id', 'beacon'])).code, 1)
})

test.long('a checksum that is not the one of the release ends an upgrade with 5, and nothing is changed', async () => {
  await host.ok(
    'sh',
    '-c',
    `cp -r ${host.feed} /srv/bad && cd /srv/bad/v1.1.0 && sed -i 's/^[0-9a-f]\\{8\\}/00000000/' SHA256SUMS && sed -i 's/"sha256": "......../"sha256": "00000000/' release.json`,
  )
  is((await install('--feed', '/srv/bad', '--no-start')).code, 0)
  await setUpdate(host, SHORT)
  is((await install('--feed', '/srv/bad', '--start')).code, 0)
  const before = await host.ok('sha256sum', '/opt/beacon/beacon')
  const { code, stderr } = await host.cli('upgrade', 'v1.1.0')
  is(code, 5, stderr)
  is(await host.ok('sha256sum', '/opt/beacon/beacon'), before)
  equal((await host.ok('ls', '-A', '/opt/beacon')).trim().split('\n'), ['beacon'])
  is((await host.status()).instance.version, 'v1.0.0')
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
})

async function install(...args: string[]) {
  const feed = args.includes('--feed') ? [] : ['--feed', host.feed]
  return await host.run(['/srv/beacon', 'install', '-y', ...feed, ...args])
}

async function nothingChanged(): Promise<void> {
  const { stdout } = await host.run([
    'sh',
    '-c',
    'ls -d /etc/beacon /var/lib/beacon /opt/beacon/receipt.json /usr/local/lib/beacon; id beacon 2>/dev/null',
  ])
  is(stdout, '')
}

test.run()
