// A managed install on a freshly booted systemd host, from `curl … | sh` to uninstall and back, as an operator would do it.
// The service runs as a user of its own: as root, faults in NotifyAccess and in ownership hide.

import { readFile } from 'node:fs/promises'
import { suite } from './suite.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { spawnLoad } from './lab/load.ts'
import { bootWithReleases, eventsIn, EXECUTABLE, type FeedHost, put, setUpdate } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: install', { skip: noHosts, timeoutMs: 180_000 })
const DROP_IN = '/etc/systemd/system/beacon.service.d/mine.conf'
const ENVIRONMENT = '/etc/default/beacon'

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([
    { tag: 'v1.0.0' },
    { tag: 'v1.1.0' },
    { tag: 'v1.2.0' },
    { tag: 'v1.3.0', fault: 'dies-after-1s' },
    { tag: 'v1.4.0', fault: 'exits-at-once' },
  ])
})
test.after(async () => await host.off())

test('a dry run prints the very plan that is then carried out, and changes nothing', async () => {
  const dry = await host.installer('v1.0.0', 'install', '--dry-run', '--json')
  is(dry.code, 0, dry.stderr)
  const planned = eventsIn(dry.stdout).find(({ event }) => event === 'plan') as unknown as { steps: { text: string }[] }
  equal((await host.run(['sh', '-c', 'ls -d /opt/beacon /etc/beacon /var/lib/beacon'])).stdout, '')
  is((await host.run(['id', 'beacon'])).code, 1)

  // as under `curl … | sh -s -- …`: the script comes on stdin; on a host that has no /usr/local/lib yet, for a root whose files all may change
  const script = await readFile(await host.path('/srv/feed/v1.0.0/install.sh'), 'utf8')
  await host.ok('sh', '-c', 'rm -rf /usr/local/lib; touch /run/began')
  const open = ['sh', '-c', 'umask 000; exec sh -s -- "$@"', 'sh']
  const real = await host.run([...open, '--feed', host.feed, '-y', '--json'], { input: script })
  is(real.code, 0, real.stderr)
  const lax = 'find /etc /opt /usr/local /var/lib /run/beacon* -xdev -newer /run/began -perm /022 ! -type l ! -type s'
  is((await host.run(['sh', '-c', lax])).stdout, '', 'what others may change, whatever the umask is')
  const done = eventsIn(real.stdout).filter(({ event }) => event === 'step') as unknown as { text: string }[]
  equal(
    done.map(({ text }) => text),
    planned.steps.map(({ text }) => text),
  )

  const { password } = (
    JSON.parse(await host.ok('cat', '/etc/beacon/config.json')) as { dashboard: { password: string } }
  ).dashboard
  ok(password.length >= 32)
  const journal = await host.ok('journalctl', '-u', 'beacon', '--no-pager')
  is(
    [real.stdout, real.stderr, journal].some((text) => text.includes(password)),
    false,
  )
  match(real.stdout, '/etc/beacon/config.json')
})

test('asks before it installs, and refuses where there is nobody to ask', async () => {
  const { code, stderr } = await host.cli('uninstall')
  is(code, 7)
  match(stderr, 'confirmation required')
  is((await host.show('ActiveState'))['ActiveState'], 'active')
})

test('the service runs as its own user in a sandbox of at most 2.0, and everything it must write is its own', async () => {
  const { MainPID: pid = '' } = await host.show('MainPID')
  is((await host.ok('stat', '-c', '%U', `/proc/${pid}`)).trim(), 'beacon')
  const owners = await host.ok(
    'stat',
    '-c',
    '%n %U %a',
    '/opt/beacon',
    EXECUTABLE,
    '/usr/local/lib/beacon',
    '/usr/local/lib/beacon/beacon',
    '/usr/local/lib/beacon/receipt.json',
    '/etc/beacon',
    '/etc/beacon/config.json',
    '/var/lib/beacon',
    '/var/lib/beacon/update',
    '/var/lib/beacon/update/lock.db',
  )
  equal(owners.trim().split('\n'), [
    '/opt/beacon beacon 755',
    `${EXECUTABLE} beacon 755`,
    '/usr/local/lib/beacon root 755',
    '/usr/local/lib/beacon/beacon root 755',
    '/usr/local/lib/beacon/receipt.json root 644',
    '/etc/beacon root 750',
    '/etc/beacon/config.json beacon 600',
    '/var/lib/beacon beacon 750',
    '/var/lib/beacon/update beacon 700',
    '/var/lib/beacon/update/lock.db beacon 600',
  ])
  await host.ok('systemd-analyze', 'verify', '--recursive-errors=no', 'beacon.service')
  await host.ok('systemd-analyze', 'security', '--threshold=20', 'beacon.service')
  await host.ok('systemd-analyze', 'security', '--threshold=20', 'beacon-rescue.service')
  const { code, stdout } = await host.cli('doctor', '--json')
  is(code, 0, stdout)
  // whom it is not for learns that, and nothing untrue about directories that only the service can write
  const asked = await host.run(['beacon', 'doctor'], { user: 'nobody' })
  match(asked.stdout, /^problem +rights +a system-wide install requires root/m)
  not.match(asked.stdout, /^problem +(?!rights| )/m)
})

/** What packages of the field do to see the host, or to be gentle to it: systeminformation, piscina, p-limit, pidusage, tar, ffmpeg's wrappers. */
const HABITS = {
  'os.cpus() and loads':
    'test "$(grep -c ^cpu /proc/stat)" -gt 1 && grep -q ^processor /proc/cpuinfo && cat /proc/loadavg /proc/uptime',
  'os.freemem()': 'grep -q ^MemAvailable: /proc/meminfo',
  'network statistics': 'grep -q lo: /proc/net/dev && ls /sys/class/net',
  'sockets of TCP': 'cat /proc/net/tcp /proc/net/tcp6',
  disks: 'cat /proc/diskstats /proc/mounts && df -P',
  ip: 'ip -o link | grep -q lo',
  ps: 'ps aux | grep -q "[p]s aux"',
  'os.setPriority() and nice': 'test "$(nice -n 5 nice)" = 5',
  ionice: 'ionice -c 3 true',
  taskset: 'taskset -c 0 true',
  'a chown to itself': 'touch own && chown "$(id -u):$(id -g)" own && rm own',
  'both temporary folders': 'touch /tmp/own /var/tmp/own',
  'shared memory': 'touch /dev/shm/own && rm /dev/shm/own',
} as const

test('an application in the unit sees the host as ordinary packages want it', async () => {
  const unit = (await host.ok('cat', '/etc/systemd/system/beacon.service')).split('\n')
  const walls = unit.filter(
    (line) => !/^(Type|NotifyAccess|Exec\w+|Restart|RestartSec|EnvironmentFile|OnFailure|KillMode)=/.test(line),
  )
  const script = Object.entries(HABITS).map(
    ([name, act]) => `( ${act} ) >/dev/null 2>&1 || echo "fails: ${name}" >>"$STATE_DIRECTORY/habits"`,
  )
  await put(host, '/usr/local/lib/habits.sh', `cd "$STATE_DIRECTORY"; echo asked >habits\n${script.join('\n')}\n`)
  const service = '[Service]\nType=oneshot\nExecStart=/bin/sh /usr/local/lib/habits.sh'
  await put(host, '/etc/systemd/system/habits.service', walls.join('\n').replace('[Service]', service))
  await host.ok('systemctl', 'daemon-reload')
  await host.ok('systemctl', 'start', 'habits.service')
  is((await host.ok('cat', '/var/lib/beacon/habits')).trim(), 'asked')
  await host.ok('rm', '/etc/systemd/system/habits.service', '/usr/local/lib/habits.sh', '/var/lib/beacon/habits')
  await host.ok('systemctl', 'daemon-reload')
})

test('an upgrade under load loses no request and closes no connection; MAINPID follows, nothing is restarted', async () => {
  await put(host, DROP_IN, '[Service]\nEnvironment=MINE=1\n')
  await put(host, ENVIRONMENT, 'ALSO_MINE=1\n')
  await shortenProbation()
  const before = await host.show('MainPID', 'NRestarts')
  const network = await host.network()
  const loads = await Promise.all([
    spawnLoad({ mode: 'keepalive', clients: 24, port: 8080, path: '/version', thinkMs: [0, 20] }, { prefix: network }),
    spawnLoad({ mode: 'fresh', clients: 8, port: 8080, path: '/version', thinkMs: [0, 20] }, { prefix: network }),
  ])
  const { code, stderr, stdout } = await host.cli('upgrade', 'v1.1.0')
  const totals = await Promise.all(loads.map((load) => load.stop()))
  is(code, 0, stderr)
  match(
    stdout,
    /beacon v1\.1\.0 is running and healthy, replacing v1\.0\.0; [0-9]+ connections moved to the new process(?: \([0-9]+ in use\))?, 0 cut off/,
  )
  for (const { lost, closed, ok: answered, errors } of totals) {
    equal({ lost, closed, errors }, { lost: 0, closed: 0, errors: {} })
    ok(answered > 100)
  }
  const after = await host.show('MainPID', 'NRestarts', 'ActiveState')
  not.equal(after['MainPID'], before['MainPID'])
  is(after['NRestarts'], '0')
  is(after['ActiveState'], 'active')
  const { instance, backup } = await host.status()
  is(String(instance.pid), after['MainPID'])
  equal([instance.version, backup], ['v1.1.0', 'v1.0.0'])
  await host.ok('systemd-analyze', 'verify', '--recursive-errors=no', 'beacon.service', 'beacon-rescue.service')
})

test('systemd still supervises what came out of the handover: killed, it is started again', async () => {
  const { MainPID: pid = '' } = await host.show('MainPID')
  await host.ok('kill', '-KILL', pid)
  await eventually('a new main process', async () => {
    const now = await host.show('MainPID', 'NRestarts', 'SubState')
    return now['SubState'] === 'running' && now['MainPID'] !== pid && now['NRestarts'] === '1'
  })
  await eventually('an answer', async () => (await host.status()).instance.version === 'v1.1.0')
})

test('two shells at once: one works, the other, if it is not to wait, ends with 6 and says who is at it since when', async () => {
  const first = host.cli('upgrade', 'v1.2.0')
  await eventually('an operation in flight', async () => (await host.status()).state === 'in_flight')
  const second = await host.cli('upgrade', 'v1.2.0', '--lock-timeout', '0')
  is(second.code, 6, second.stderr)
  match(second.stderr, /update from v1\.1\.0 to v1\.2\.0, in the \w+ stage, since 20\d\d-/)
  is((await first).code, 0)
})

test('a release that dies in probation is taken back: exit 8, and the main pid is the old one again', async () => {
  const before = await host.show('MainPID', 'NRestarts')
  const { code, stderr } = await host.cli('upgrade', 'v1.3.0')
  is(code, 8, stderr)
  match(stderr, 'v1.2.0 is running again')
  equal(await host.show('MainPID', 'NRestarts'), before)
  is((await host.status()).instance.version, 'v1.2.0')
  is((await host.cli('upgrade')).code, 8) // to v1.4.0, which fails too
  const latest = await host.cli('upgrade') // `latest` skips what failed here
  is(latest.code, 0)
  match(
    latest.stdout,
    /^beacon stays on v1\.2\.0: v1\.\d\.0, v1\.\d\.0 failed here before, and there is no other newer release$/m,
  )
  is((await host.status()).instance.version, 'v1.2.0')
})

test('a rollback without a tag brings the backup back, with a tag it fetches that release', async () => {
  is((await host.cli('rollback')).code, 0)
  is((await host.status()).instance.version, 'v1.1.0')
  const { code, stderr } = await host.cli('rollback', 'v1.0.0')
  is(code, 0, stderr)
  equal([(await host.status()).instance.version, (await host.status()).backup], ['v1.0.0', 'v1.1.0'])
})

test('where nothing runs the command does it itself, and starts the service; a release that does not start is taken back', async () => {
  is((await host.cli('stop')).code, 0)
  // not `failed`: its main process came by a handover and was still let drain
  equal(await host.show('ActiveState', 'Result'), { ActiveState: 'inactive', Result: 'success' })
  is((await host.cli('status')).code, 9)
  const both = await Promise.all([1, 2].map(() => host.cli('upgrade', 'v1.1.0', '--lock-timeout', '0')))
  equal(both.map(({ code }) => code).toSorted(), [0, 6], both.map(({ stderr }) => stderr).join('\n'))
  match(both.find(({ code }) => code === 6)?.stderr ?? '', /held by beacon upgrade \(pid \d+, since 20\d\d-/)
  is((await host.status()).instance.version, 'v1.1.0')
  is((await host.cli('stop')).code, 0)
  const broken = await host.cli('upgrade', 'v1.4.0')
  is(broken.code, 8, broken.stderr)
  equal([(await host.status()).instance.version, (await host.show('ActiveState'))['ActiveState']], ['v1.1.0', 'active'])
  const foreign = await host.ok('find', '/opt/beacon', '/var/lib/beacon', '!', '-user', 'beacon')
  is(foreign, '')
})

test('systemctl restart and stop let a request that is being answered finish', async () => {
  const slow = host.run([
    'curl',
    '-sSN',
    '--max-time',
    '20',
    'http://127.0.0.1:8080/api/stream?events=8&intervalMs=100',
  ])
  await eventually('the stream', async () =>
    (await host.run(['ss', '-Hnt', 'state', 'established', 'sport = :8080'])).stdout.includes('8080'),
  )
  await host.ok('systemctl', 'restart', 'beacon')
  const { code, stdout, stderr } = await slow
  is(code, 0, stderr)
  match(stdout, /event: (end|drain)/)
  await eventually('an answer', async () => (await host.status()).instance.version === 'v1.1.0')
})

test('a re-run changes nothing: not the unit, not the drop-in, not the environment file, not the process', async () => {
  const files = [
    '/etc/systemd/system/beacon.service',
    '/etc/beacon/config.json',
    '/usr/local/lib/beacon/receipt.json',
    DROP_IN,
    ENVIRONMENT,
  ]
  const sums = async () => await host.ok('sha256sum', ...files)
  // the first one renews root's own copy of the command, and knows the feed from root's receipt
  const renewed = await host.run(['sh', '/srv/feed/v1.1.0/install.sh', '-y'])
  is(renewed.code, 0, renewed.stderr)
  match(await host.ok('beacon', '--version'), 'v1.1.0')
  const [before, pid] = [await sums(), await host.show('MainPID')]
  const { code, stdout, stderr } = await host.run(['sh', '/srv/feed/v1.1.0/install.sh', '-y'], {
    env: { BEACON_INSTALL_FEED: host.feed },
  })
  is(code, 0, stderr)
  match(stdout, 'nothing to do')
  is(await sums(), before)
  equal(await host.show('MainPID'), pid)
  // the installer of an older release does not go back by itself
  match(
    (await host.run(['sh', '/srv/feed/v1.0.0/install.sh', '-y'], { env: { BEACON_INSTALL_FEED: host.feed } })).stdout,
    'nothing to do',
  )
})

test('doctor names a drop-in that forbids the swap', async () => {
  const path = '/etc/systemd/system/beacon.service.d/wrong.conf'
  await put(
    host,
    path,
    '[Service]\nReadWritePaths=\nReadWritePaths=/opt/beacon/beacon\nMemoryDenyWriteExecute=yes\nNotifyAccess=main\n',
  )
  await host.ok('systemctl', 'daemon-reload')
  const { code, stdout } = await host.cli('doctor')
  is(code, 7)
  for (const word of [
    'the unit forbids writing to /opt/beacon',
    'MemoryDenyWriteExecute',
    'NotifyAccess=all, got main',
  ])
    match(stdout, word)
  await host.ok('rm', path)
  await host.ok('systemctl', 'daemon-reload')
  is((await host.cli('doctor')).code, 0)
})

test('uninstall keeps the state and what the operator wrote; a reinstall elsewhere finds the state', async () => {
  await host.ok(
    'curl',
    '-sSf',
    '-X',
    'POST',
    '-H',
    'content-type: application/json',
    '-d',
    '{"message":"before the uninstall"}',
    'http://127.0.0.1:8080/api/logs',
  )
  const mine = await host.ok('sha256sum', DROP_IN, ENVIRONMENT)
  const password = await host.ok('cat', '/etc/beacon/config.json')
  const { code, stderr } = await host.cli('uninstall', '-y')
  is(code, 0, stderr)
  equal(
    (
      await host.run([
        'sh',
        '-c',
        'ls -d /opt/beacon /usr/local/bin/beacon /usr/local/lib/beacon /etc/systemd/system/beacon*.service',
      ])
    ).stdout,
    '',
  )
  is(await host.ok('sha256sum', DROP_IN, ENVIRONMENT), mine)
  is((await host.sql('select count(*) from logs')).trim(), '1')

  const again = await host.installer('v1.1.0', 'install', '-y', '--prefix', '/srv/apps/beacon')
  is(again.code, 0, again.stderr)
  is(await host.ok('cat', '/etc/beacon/config.json'), password)
  match(await host.ok('curl', '-sS', 'http://127.0.0.1:8080/api/logs'), 'before the uninstall')
  // fewer flags: the prefix stays
  const rerun = await host.installer('v1.2.0', 'install', '-y')
  is(rerun.code, 0, rerun.stderr)
  is((await host.status()).instance.version, 'v1.2.0')
  is((await host.ok('readlink', '/usr/local/bin/beacon')).trim(), '/usr/local/lib/beacon/beacon')
})

test('a purge needs the name of the service, -y is not enough', async () => {
  is((await host.cli('uninstall', '--purge', '-y')).code, 7)
  is((await host.cli('uninstall', '--purge', '-y', '--confirm', 'bacon')).code, 7)
  is((await host.show('ActiveState'))['ActiveState'], 'active')
  const { code, stderr } = await host.cli('uninstall', '--purge', '-y', '--confirm', 'beacon')
  is(code, 0, stderr)
  is((await host.run(['sh', '-c', 'ls -d /var/lib/beacon /etc/beacon'])).stdout, '')
})

async function shortenProbation(): Promise<void> {
  await setUpdate(host, { probation: '3s', hangTimeout: '3s' })
  await host.ok('systemctl', 'restart', 'beacon')
  await eventually('an answer', async () => (await host.status()).instance.version === 'v1.0.0')
}

test.run()
