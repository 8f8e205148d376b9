// What an operator sees, on a real host, when things are not as they should be: a certificate authority of one's own, dry runs, a
// download that is cancelled, a probation that goes on, an install of an earlier install.sh.

import { readFile, writeFile } from 'node:fs/promises'
import { suite } from './suite.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { bootWithReleases, eventsIn, EXECUTABLE, type FeedHost, put, readerOfLogs, setUpdate } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: an operator', { skip: noHosts, timeoutMs: 120_000 })
const DROP_IN = '/etc/systemd/system/beacon.service.d/ca.conf'

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
})
test.after(async () => await host.off())

test("a state directory that is root's is said before anything is made, and the hint works", async () => {
  await host.ok('sh', '-c', 'mkdir /var/lib/beacon && echo old > /var/lib/beacon/file')
  const refused = await host.installer('v1.0.0', '-y')
  is(refused.code, 7, refused.stderr)
  match(
    refused.stderr,
    'expected /var/lib/beacon to be empty or owned by beacon, found /var/lib/beacon/file, which root owns',
  )
  const [, command] =
    /hint: to give the directory to beacon, run `(chown -R beacon: \/var\/lib\/beacon)`/.exec(refused.stderr) ?? []
  equal([command, (await host.run(['ls', '/opt/beacon'])).code === 0], ['chown -R beacon: /var/lib/beacon', false])
  await host.ok('useradd', '--system', 'beacon')
  await host.ok('sh', '-c', command ?? '')
  await host.install()
})

test('where systemd may make no namespaces, as in LXC without nesting, each command says that, once, and the way', async () => {
  const everywhere = '/etc/systemd/system/service.d'
  await host.ok('mkdir', '-p', everywhere)
  await put(host, `${everywhere}/none.conf`, '[Service]\nRootDirectory=/nowhere-at-all\n') // systemd fails as it does there
  await host.ok('systemctl', 'daemon-reload')
  const { code, stderr } = await host.cli('status')
  await host.ok('rm', '-r', everywhere)
  await host.ok('systemctl', 'daemon-reload')
  is(code, 3, stderr)
  match(
    stderr,
    /cannot start a process with the unit’s restrictions \(226\/NAMESPACE\)\nhint: .*nesting.*\(`--no-service`\)\ncode: unsupported_host \(`help unsupported_host` explains it\)\n$/,
  )
  not.match(stderr, 'drop-ins')
})

test('a password nobody has chosen, which only the service reads', async () => {
  const { dashboard } = JSON.parse(await host.ok('cat', '/etc/beacon/config.json')) as {
    dashboard: { password: string }
  }
  match(dashboard.password, /^[\w-]{32,}$/)
  ok(new Set(dashboard.password).size > 10, 'it looks random')
  is((await host.ok('stat', '-c', '%U %a', '/etc/beacon/config.json')).trim(), 'beacon 600')
})

test("a hurried operator: root's command alone starts no service; a setting that nobody knows and a changed password are told, and harm nothing", async () => {
  const bare = await host.cli()
  is(bare.code, 7, bare.stdout)
  is(
    bare.stderr,
    'error: this command does not start the service itself\nhint: run `beacon start` to start the service, or `beacon --help`\n',
  )

  const path = await host.path('/etc/beacon/config.json')
  const text = await readFile(path, 'utf8')
  const config = JSON.parse(text) as { dashboard: { password: string } }
  const { pid } = (await host.status()).instance
  await writeFile(path, JSON.stringify({ ...config, auto: { mode: 'minor' } }))
  const doctor = await host.cli('doctor')
  match(doctor.stdout, /^problem +configuration .*unknown setting `auto`, expected one of dashboard, /m)
  const restart = await host.cli('restart')
  is(restart.code, 2, restart.stderr)
  match(restart.stderr, /config\.json is not valid: unknown setting `auto`/)

  await writeFile(path, JSON.stringify({ ...config, dashboard: { password: 'another-password-of-16' } }))
  const locked = await host.cli('status')
  is(locked.code, 7, locked.stdout)
  match(
    locked.stderr,
    /^error: the running service does not accept the password in its configuration\nhint: .*run `beacon restart`$/m,
  )
  match((await host.cli('doctor')).stdout, /^problem +switch .*does not accept the password/m)
  await writeFile(path, text)
  is((await host.status()).instance.pid, pid)
})

test('a password that can be guessed is warned of, at the start and by doctor', async () => {
  const path = await host.path('/etc/beacon/config.json')
  const text = await readFile(path, 'utf8')
  const config = JSON.parse(text) as { dashboard: { password: string } }
  await writeFile(path, JSON.stringify({ ...config, dashboard: { password: 'guess-me' } }))
  await host.ok('systemctl', 'restart', 'beacon')
  match((await host.cli('doctor')).stdout, /^warning +configuration .*fewer than 16 characters/m)
  match(
    await host.ok('journalctl', '-u', 'beacon', '-o', 'cat', '--no-pager'),
    'the password has fewer than 16 characters',
  )
  await writeFile(path, text)
  await host.ok('systemctl', 'restart', 'beacon')
})

test('a dry run ends with the code that the command would have, and changes nothing', async () => {
  // the service itself writes its schedule, some seconds after its start
  const places = ['/opt/beacon', '/var/lib/beacon', '/usr/local', '/etc/beacon']
  const changed = () => host.ok('find', ...places, '-newer', EXECUTABLE, '!', '-name', 'schedule.json')
  const before = await changed()
  const plan = async (...args: string[]) => {
    const { code, stdout } = await host.cli(...args, '-n', '--json')
    const { would, from, to, code: why } = eventsIn(stdout).at(-1) ?? {}
    return [code, would ?? why, from ?? null, to ?? null]
  }
  equal(await plan('upgrade'), [0, 'updated', 'v1.0.0', 'v1.1.0'])
  equal(await plan('upgrade', 'v1.0.0'), [0, 'up_to_date', 'v1.0.0', 'v1.0.0'])
  equal((await plan('upgrade', 'v9.9.9')).slice(0, 2), [4, 'release_not_found'])
  equal((await plan('rollback')).slice(0, 2), [7, 'no_backup'])
  equal(await plan('rollback', 'v1.1.0'), [0, 'updated', 'v1.0.0', 'v1.1.0'])
  is(await changed(), before)
})

test.long(
  'doctor, check and a dry run ask with the environment of the service: a private CA that it trusts is trusted',
  async () => {
    await using hub = await host.serve({ dir: host.folder, secure: true })
    await put(host, '/etc/ssl/private-ca.pem', hub.ca ?? '')
    await put(host, DROP_IN, '[Service]\nEnvironment=NODE_EXTRA_CA_CERTS=/etc/ssl/private-ca.pem\n')
    await host.ok('systemctl', 'daemon-reload')
    await useFeed(hub.staticUrl)

    const doctor = await host.cli('doctor')
    is(doctor.code, 0, doctor.stdout)
    match(doctor.stdout, /^ok +feed +https:\/\/127\.0\.0\.1:\d+\/static\/ has v1\.1\.0$/m)
    match((await host.cli('check')).stdout, /^latest +v1\.1\.0/m)
    is((await host.cli('upgrade', '-n')).code, 0)

    await host.ok('rm', DROP_IN)
    await host.ok('systemctl', 'daemon-reload')
    const without = await host.cli('doctor')
    is(without.code, 4, without.stdout)
    match(without.stdout, /^problem +feed .*certificate/m)
    match(without.stdout, /systemctl edit beacon.*Environment=NODE_EXTRA_CA_CERTS=FILE/)
    await useFeed(host.feed)
  },
)

test.long(
  'cancelled from another shell in the middle of its download: nothing is changed, both shells say so, and it can be done again',
  async () => {
    await using hub = await host.serve({ dir: host.folder, bytesPerSecond: 2_000_000 })
    await useFeed(hub.staticUrl)
    const sum = await host.ok('sha256sum', EXECUTABLE)
    const upgrade = host.cli('upgrade', '--json', '--health-url', 'http://127.0.0.1:9/', '--health-timeout', '1s')
    await eventually('some bytes', async () => ((await host.status()).operation?.progress?.bytes ?? 0) > 0)
    const id = (await host.status()).operation?.id

    const second = await host.cli('upgrade', '--json', '--lock-timeout', '0')
    is(second.code, 6)
    match(second.stderr, /the service is busy: update from v1\.0\.0 to v1\.1\.0, in the download stage, since 20/)
    equal(eventsIn(second.stdout).at(-1)?.['operationId'] ?? null, id)

    const cancelled = await host.cli('cancel', '--json')
    is(cancelled.code, 0, cancelled.stderr)
    const { outcome, from, to, operationId } = eventsIn(cancelled.stdout).at(-1) ?? {}
    equal([outcome, from, to, operationId], ['cancelled', 'v1.0.0', 'v1.1.0', id])
    const first = await upgrade
    is(first.code, 7, first.stdout)
    const ended = eventsIn(first.stdout).at(-1) ?? {}
    equal(
      ['event', 'outcome', 'from', 'to', 'operationId'].map((name) => ended[name]),
      ['error', 'cancelled', 'v1.0.0', 'v1.1.0', id],
    )
    is(await host.ok('sha256sum', EXECUTABLE), sum)
    equal((await host.ok('ls', '-A', '/opt/beacon')).trim().split('\n'), ['beacon'])
    match((await host.cli('cancel')).stdout, 'no operation is running')
    await useFeed(host.feed)
  },
)

test('in a probation the release is said to be on it until it ends, and the address that the operator names is asked; the end carries from, to, outcome and id', async () => {
  await setUpdate(host, { probation: '6s' })
  await host.ok('systemctl', 'restart', 'beacon')
  await put(host, '/srv/gate/well', 'yes')
  const gate = ['busybox', 'httpd', '-f', '-vv', '-p', '127.0.0.1:9000', '-h', '/srv/gate']
  await host.ok('systemd-run', '--quiet', '--unit=gate', ...gate)
  const upgrade = host.cli('upgrade', '--health-url', 'http://127.0.0.1:9000/well', '--json')
  await eventually('the probation', async () => (await host.status()).probation !== null)
  match((await host.cli('status')).stdout, /^probation +v1\.1\.0, until 20\d\d-/m)
  match(await host.ok('journalctl', '-u', 'gate', '-o', 'cat', '--no-pager'), '/well')
  is((await host.status()).operation?.outcome, null, 'it is in flight still')
  await host.ok('systemctl', 'stop', 'gate')
  const { stdout, code } = await upgrade
  is(code, 0, stdout)
  match(stdout, /"message":"the service must stay healthy until \d\d:\d\d:\d\d UTC, or v1\.0\.0 will be restored"/)
  const { outcome, from, to, operationId } = eventsIn(stdout).at(-1) ?? {}
  equal([outcome, from, to, operationId], ['updated', 'v1.0.0', 'v1.1.0', (await host.status()).operation?.id])
  not.match((await host.cli('status')).stdout, /^probation/m)
  match((await host.cli('upgrade')).stdout, /^beacon v1\.1\.0 is up to date$/m)
  match((await host.cli('status')).stdout, /^last +update v1\.0\.0 to v1\.1\.0: updated at 20/m)
  await setUpdate(host, { probation: '1s' })
  await host.ok('systemctl', 'restart', 'beacon')
})

test('a status asks no feed; `rollback TAG` from the backup fetches nothing, and the second one does nothing', async () => {
  await host.ok('mount', '-t', 'tmpfs', 'tmpfs', host.feed) // whoever asks it now is told so
  const { code, stdout } = await host.cli('status', '--json')
  const { latest, problem } = eventsIn(stdout).at(-1) ?? {}
  equal([code, latest, problem], [0, null, null])
  equal((await host.cli('status')).stderr, '', 'no warning with each status')
  is((await host.cli('rollback', 'v1.0.0')).code, 0)
  is((await host.status()).instance.version, 'v1.0.0')
  const again = await host.cli('rollback', 'v1.0.0')
  is(again.code, 0, again.stderr)
  match(again.stdout, 'beacon v1.0.0 is already in place')
  is((await host.status()).backup, 'v1.1.0')
  await host.ok('umount', host.feed)
})

test('`logs` shows the journal of the service, and what reads that has nothing of the environment of root', async () => {
  const { code, stdout, stderr } = await host.cli('logs', '--lines', '500')
  is(code, 0, stderr)
  match(stdout, 'the password has fewer than 16 characters')
  const { program, user, environment } = await readerOfLogs(host, { ROOTS_TOKEN: 'secret' })
  equal([program, user, environment.filter((one) => one.includes('secret'))], ['journalctl', 'root', []])
  ok(environment.some((one) => one.startsWith('PATH=')))
})

test('the journal has no line that means nothing', async () => {
  const journal = await host.ok('journalctl', '-u', 'beacon', '-u', 'beacon-rescue', '-o', 'cat', '--no-pager')
  for (const line of ['missing, skipping', 'Usage', 'nothing to rescue', 'No such file']) not.match(journal, line)
})

test.long(
  "an install of an earlier install.sh is taken over by root's own unit; a forged receipt beside the executable decides nothing",
  async () => {
    await host.sql('create table kept (word)')
    await host.sql(`insert into kept values ('here')`)
    await makeEarlier()
    const status = await host.run(['sh', '/srv/feed/v1.1.0/install.sh', 'status'])
    is(status.code, 7)
    match(status.stderr, /in \/opt\/beacon was made by an earlier install\.sh\nhint: .*takes over that install/)

    const taken = await host.run(['sh', '/srv/feed/v1.1.0/install.sh', '-y', '--feed', host.feed])
    is(taken.code, 0, taken.stderr)
    const receipt = JSON.parse(await host.ok('cat', '/usr/local/lib/beacon/receipt.json')) as Record<string, unknown>
    equal([receipt['user'], receipt['stateDirectory']], ['beacon', '/var/lib/beacon'])
    is((await host.run(['ls', '/opt/beacon/receipt.json'])).code, 2)
    is((await host.ok('readlink', '/usr/local/bin/beacon')).trim(), '/usr/local/lib/beacon/beacon')
    is((await host.sql('select word from kept')).trim(), 'here')
    is((await host.status()).instance.version, 'v1.1.0')
    const { User } = await host.show('User')
    is(User, 'beacon')
    is((await host.cli('rollback')).code, 0)
    is((await host.cli('doctor')).code, 0)
  },
)

test.long(
  'an executable in a folder that has become read-only, and a full state directory, are refused with 7 before anything is fetched',
  async () => {
    is((await host.cli('stop')).code, 0)
    await host.ok('sh', '-c', 'mount --bind /opt/beacon /opt/beacon && mount -o remount,bind,ro /opt/beacon')
    await host.ok('mount', '-t', 'tmpfs', 'tmpfs', host.feed) // whoever asks it ends with 4
    for (const command of [['upgrade', '-n'], ['upgrade'], ['rollback', '-n'], ['rollback']]) {
      const { code, stderr } = await host.cli(...command)
      equal([command, code], [command, 7], stderr)
      match(stderr, "cannot write to /opt/beacon, the executable's folder: it is on a read-only file system")
    }
    await host.ok('umount', '/opt/beacon', host.feed)
    const fill = [
      'mount -t tmpfs -o size=1m,mode=750 tmpfs /var/lib/beacon',
      'chown beacon: /var/lib/beacon',
      '! cat /dev/zero > /var/lib/beacon/full 2>/dev/null',
    ]
    await host.ok('sh', '-c', fill.join(' && '))
    const full = await host.cli('upgrade', 'v1.1.0')
    equal([full.code, /no space|full/.test(full.stderr)], [7, true], full.stderr)
    await host.ok('umount', '/var/lib/beacon')
    is((await host.cli('start')).code, 0)
  },
)

test('uninstall lists what it keeps, before it does too: the state, the configuration, the environment, the user', async () => {
  await put(host, '/etc/default/beacon', 'MINE=1\n')
  const kept = (text: string) => text.match(/^kept: .*$/gm)
  const planned = kept((await host.cli('uninstall', '--dry-run')).stdout)
  const purged = await host.cli('uninstall', '--purge', '--dry-run')
  equal([purged.code, kept(purged.stdout)], [0, ['kept: /etc/default/beacon', 'kept: user beacon']])
  const { code, stdout } = await host.cli('uninstall', '-y')
  is(code, 0)
  equal(planned, kept(stdout))
  for (const what of ['/var/lib/beacon', '/etc/beacon', '/etc/default/beacon', 'user beacon'])
    match(stdout, `kept: ${what}\n`)
  match(stdout, 'if nobody needs it any more, delete it by hand')
  ok((await host.ok('ls', '/var/lib/beacon')).includes('beacon.db'))
})

test('a purge removes the user that an earlier install has made, and not one that was made for another service', async () => {
  const installed = async () => {
    const { code, stderr } = await host.run(['sh', '/srv/feed/v1.1.0/install.sh', '-y', '--feed', host.feed])
    is(code, 0, stderr)
  }
  const purged = async () => {
    const { code, stderr } = await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')
    is(code, 0, stderr)
    return (await host.run(['id', 'beacon'])).code
  }
  await host.ok('userdel', 'beacon')
  await installed()
  is((await host.cli('uninstall', '-y')).code, 0)
  await installed()
  is(await purged(), 1, 'the user is gone')
  await host.ok('useradd', '--system', '--user-group', '--comment', 'made by install.sh for shop', 'beacon')
  await installed()
  is(await purged(), 0, 'the user is there')
})

test.run()

/** From the next start on, as an operator does it: root's own command writes it into root's receipt. */
async function useFeed(feed: string): Promise<void> {
  const { code, stderr } = await host.cli('install', '-y', '--feed', feed)
  is(code, 0, stderr)
  await host.ok('systemctl', 'restart', 'beacon')
}

/** Receipt and command as they were before root had its own, and a receipt that the service's user has forged since. */
async function makeEarlier(): Promise<void> {
  const receipt = JSON.parse(await host.ok('cat', '/usr/local/lib/beacon/receipt.json')) as object
  await put(
    host,
    '/opt/beacon/receipt.json',
    JSON.stringify({ ...receipt, user: 'root', stateDirectory: '/root', tag: 'v1.0.0' }),
  )
  await host.ok('chown', 'beacon:', '/opt/beacon/receipt.json')
  await host.ok('rm', '-r', '/usr/local/lib/beacon')
  await host.ok('ln', '-sfn', EXECUTABLE, '/usr/local/bin/beacon')
}
