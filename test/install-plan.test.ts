// The pure half of the installer: whose word counts, where everything lives, what a plan says, what the unit is.

import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readConfiguration } from '../agent/words.ts'
import { quietly } from './fixtures/quietly.ts'
import { suite } from './suite.ts'
import { equal, is, match, not, ok, throws, withCode } from './assert.ts'
import type { Receipt } from '../agent/disk/receipt.ts'
import {
  checked,
  checkedPath,
  choose,
  type Choices,
  fromEnvironment,
  fromReceipt,
  parseListen,
  parseRelease,
} from '../deploy/host/place/choices.ts'
import { accessFrom, readAccess } from '../deploy/host/service/configuration.ts'
import { checkGiven, howToGive, mountOf, parseMounts } from '../deploy/host/doctor/places.ts'
import { judgeUnit } from '../deploy/host/doctor/host.ts'
import { type Layout, layoutOf, layoutOfReceipt } from '../deploy/host/place/layout.ts'
import { choicesIn } from '../deploy/host/plan/facts.ts'
import { type Facts, foundAs, type InstallRequest } from '../deploy/host/plan/found.ts'
import { planInstall } from '../deploy/host/plan/install.ts'
import { describe } from '../deploy/host/plan/step.ts'
import { planUninstall } from '../deploy/host/plan/uninstall.ts'
import { cagePathUnit, cageUnit, hasCage } from '../deploy/host/place/cage.ts'
import { rescueUnit, serviceUnit } from '../deploy/host/place/unit.ts'
import { rotateLog } from '../deploy/host/supervisor/run-files.ts'
import { runCommand } from '../deploy/host/tree.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('install: plan')

const DEFAULTS: Choices = {
  scope: 'system',
  prefix: null,
  'state-dir': null,
  feed: 'https://releases.example/beacon/',
  listen: '127.0.0.1:8080',
  'run-as': null,
  service: true,
  start: true,
}
const ROOT = { name: 'root', home: '/root', environment: {} }
const FACTS: Facts = {
  root: true,
  userExists: false,
  userIsOurs: true,
  directoryReady: false,
  stateReady: false,
  configDirectoryExists: false,
  configExists: false,
  receipt: null,
  executable: 'absent',
  installed: null,
  earlier: [],
  command: 'absent',
  program: 'absent',
  programTag: null,
  unit: 'absent',
  rescueUnit: 'absent',
  cageUnit: 'absent',
  cagePathUnit: 'absent',
  cageReady: false,
  cageEnabled: false,
  systemdVersion: 252,
  enabled: false,
  active: false,
  ours: [],
  written: null,
  now: new Date('2026-03-04T05:06:07.000Z'),
}
const OWN = { path: '/tmp/x/beacon', tag: 'v1.1.0', sha256: 'ab'.repeat(32), basePath: '' }

test('flags beat environment, environment beats receipt, receipt beats defaults', () => {
  const { choices, origins, remembered } = choose(
    { feed: 'https://flag/' },
    { feed: 'https://environment/', 'state-dir': '/srv/state' },
    { feed: 'https://receipt/', 'state-dir': '/old', prefix: '/srv/app', service: false },
    DEFAULTS,
  )
  equal(choices, { ...DEFAULTS, feed: 'https://flag/', 'state-dir': '/srv/state', prefix: '/srv/app', service: false })
  equal(
    [origins.feed, origins['state-dir'], origins.prefix, origins.listen],
    ['flag', 'environment', 'receipt', 'default'],
  )
  equal(remembered, { feed: 'https://flag/', 'state-dir': '/srv/state' })
})

test('the environment says the same as the flags, and what is not understood is an error', () => {
  const { said, release } = fromEnvironment('my-app', {
    MY_APP_INSTALL_STATE_DIR: '/srv/x/',
    MY_APP_INSTALL_NO_SERVICE: '1',
    MY_APP_INSTALL_RELEASE: 'v1.0.0',
    MY_APP_INSTALL_FEED: '',
  })
  equal([said, release], [{ 'state-dir': '/srv/x', service: false }, 'v1.0.0'])
  throws(() => fromEnvironment('app', { APP_INSTALL_NO_START: 'maybe' }), withCode('invalid_settings'))
  throws(() => fromEnvironment('app', { APP_INSTALL_SCOPE: 'galaxy' }), 'expected `system` or `user`')
  equal(fromReceipt({ prefix: '/a', service: false, start: 'no', other: 1 }), { prefix: '/a', service: false })
})

test('what could not stand in a unit, a URL or a command line is refused', () => {
  for (const path of ['/a b', '/a;b', '/$HOME', '/a\nb', '/', '/a/../b', '/ä', '/a%b', "/a'b"]) {
    throws(() => checkedPath('prefix', path), withCode('invalid_settings'))
  }
  is(checkedPath('prefix', '/srv/a_b-c.d@1+2/'), '/srv/a_b-c.d@1+2')
  throws(() => checked({ 'run-as': 'root; id' }), withCode('invalid_settings'))
  equal(parseListen('[::1]:80'), { host: '::1', port: 80 })
  for (const listen of ['80', 'host:', 'host:99999', 'a b:80', ':80'])
    throws(() => parseListen(listen), withCode('invalid_settings'))
  equal(checked({ listen: ':80' }), { listen: '0.0.0.0:80' }) // every address, as other programs take it
  throws(() => checked({ listen: ':' }), withCode('invalid_settings'))
  equal([parseRelease('latest'), parseRelease(null), parseRelease('v1.2.3')], [null, null, 'v1.2.3'])
  for (const tag of ['1.2.3', 'v01.2.3', 'v1.2', 'v1.2.3\n', ''])
    throws(() => parseRelease(tag), withCode('invalid_tag'))
})

test('every path, for the host and for a user', () => {
  const system = layoutOf('beacon', DEFAULTS, ROOT)
  equal(
    [
      system.executable,
      system.backup,
      system.command,
      system.configPath,
      system.stateDirectory,
      system.unit,
      system.environmentFile,
      system.user,
    ],
    [
      '/opt/beacon/beacon',
      '/opt/beacon/beacon.backup',
      '/usr/local/bin/beacon',
      '/etc/beacon/config.json',
      '/var/lib/beacon',
      '/etc/systemd/system/beacon.service',
      '/etc/default/beacon',
      'beacon',
    ],
  )
  const ada = {
    name: 'ada',
    home: '/home/ada',
    environment: { XDG_STATE_HOME: '/data/state', XDG_CONFIG_HOME: 'relative' },
  }
  const user = layoutOf('beacon', { ...DEFAULTS, scope: 'user' }, ada)
  equal(
    [user.executable, user.command, user.configPath, user.stateDirectory, user.unit, user.user],
    [
      '/home/ada/.local/share/beacon/beacon',
      '/home/ada/.local/bin/beacon',
      '/home/ada/.config/beacon/config.json',
      '/data/state/beacon',
      '/home/ada/.config/systemd/user/beacon.service',
      'ada',
    ],
  )
})

test('the plan of a first install, in order', () => {
  equal(planInstall(request()).map(describe), [
    'create the system user beacon',
    'create the directory /opt/beacon (0755, beacon)',
    'create the directory /var/lib/beacon (0750, beacon)',
    'create the directory /var/lib/beacon-trial (0700, beacon)',
    'create the directory /etc/beacon (0750, root)',
    'take the lock in /var/lib/beacon',
    'write /etc/beacon/config.json (0600): listen on 127.0.0.1:8080, with a random dashboard.password',
    'put the executable at /opt/beacon/beacon (sha256 abababababab…)',
    "put root's own copy of v1.1.0 at /usr/local/lib/beacon/beacon",
    'record the install in /usr/local/lib/beacon/receipt.json',
    'link /usr/local/bin/beacon to /usr/local/lib/beacon/beacon',
    'write /etc/systemd/system/beacon.service',
    'write /etc/systemd/system/beacon-rescue.service, which restores the backup if the service cannot start',
    'write /etc/systemd/system/beacon-trial.service, which tries a release on a copy of the data',
    'write /etc/systemd/system/beacon-trial.path, which starts that trial',
    'run systemctl daemon-reload',
    'run systemctl enable beacon.service',
    'run systemctl enable --now beacon-trial.path',
    'start beacon',
    'wait until beacon v1.1.0 answers',
  ])
})

test('a port below 1024 is a capability of the unit of an install for the whole host, and of nothing else; the receipt keeps it', () => {
  const unitFor = (flags: Partial<Choices>) =>
    serviceUnit(layoutOf('beacon', { ...DEFAULTS, ...flags }, { ...ROOT, home: '/home/ada' }))
  for (const [listen, capability] of [
    ['127.0.0.1:80', 'CAP_NET_BIND_SERVICE'],
    ['[::]:1023', 'CAP_NET_BIND_SERVICE'],
    ['127.0.0.1:1024', ''],
    ['127.0.0.1:0', ''],
  ] as const) {
    const [, bounds, ambient] =
      /^CapabilityBoundingSet=(.*)\nAmbientCapabilities=(.*)$/m.exec(unitFor({ listen })) ?? []
    equal([listen, bounds, ambient], [listen, capability, capability])
  }
  not.match(unitFor({ listen: '127.0.0.1:80', scope: 'user' }), 'CAP_')
  const low = layoutOf('beacon', { ...DEFAULTS, listen: '127.0.0.1:80' }, ROOT)
  not.match(rescueUnit(low), 'CAP_')
  is(
    serviceUnit(layoutOfReceipt(receipt({ options: { listen: '127.0.0.1:80' } }), ROOT)),
    serviceUnit({ ...low, node: null }),
  )
  match(
    planInstall(request({ flags: { listen: '127.0.0.1:80' } }))
      .map(describe)
      .join('\n'),
    /^write \/etc\/systemd\/system\/beacon\.service, which gives the service CAP_NET_BIND_SERVICE, for port 80$/m,
  )
})

test('a re-run with nothing new has an empty plan; a newer executable is an update; an older one needs to be named', () => {
  const settled: Partial<Facts> = { ...SETTLED, receipt: receipt() }
  equal(planInstall(request({ facts: settled })), [])
  const newer = planInstall(request({ facts: { ...settled, installed: 'v1.0.0' } }))
  equal(newer.map(describe), [
    'update beacon from v1.0.0 to v1.1.0: check, download, verify, replace the executable, switch',
  ])
  equal(planInstall(request({ facts: { ...settled, installed: 'v1.2.0' } })), [])
  const older = planInstall(request({ facts: { ...settled, installed: 'v1.2.0' }, explicit: true }))
  equal(
    older.map((step) => step.do),
    ['update'],
  )
})

test('a re-run keeps in the receipt what was chosen before', () => {
  const before = receipt({ options: { listen: '127.0.0.1:9', 'created-user': true } })
  const steps = planInstall(request({ facts: { ...SETTLED, receipt: before }, flags: { feed: 'https://other/' } }))
  const written = steps.find((step) => step.do === 'write-receipt')
  equal(written?.receipt.options, { listen: '127.0.0.1:9', 'created-user': true, feed: 'https://other/' })
  is(written?.receipt.installedAt, before.installedAt)
  const again = planInstall(request({ facts: { ...SETTLED, userIsOurs: true } }))
  const known = again.find((step) => step.do === 'write-receipt')
  is(known?.receipt.options['created-user'], true, 'of an install that was removed, whose user is still there')
})

test("an earlier install is taken over by what root's own unit says; its receipt goes, and decides nothing", () => {
  const unit = serviceUnit(
    layoutOf('beacon', { ...DEFAULTS, prefix: '/srv/app', 'state-dir': '/srv/state', 'run-as': 'bea' }, ROOT),
  )
  equal(choicesIn(unit, 'beacon'), { prefix: '/srv/app', 'state-dir': '/srv/state', 'run-as': 'bea' })
  equal(choicesIn(serviceUnit(layoutOf('beacon', DEFAULTS, ROOT)), 'beacon'), {})
  equal(choicesIn(unit.replace('# Written', '# Edited'), 'beacon'), {})
  const facts = { ...SETTLED, command: 'ours', program: 'absent', programTag: null } as const
  const steps = planInstall(request({ facts: { ...facts, earlier: ['/opt/beacon/receipt.json'] } }))
  equal(steps.map(describe), [
    'take the lock in /var/lib/beacon',
    "put root's own copy of v1.1.0 at /usr/local/lib/beacon/beacon",
    'record the install in /usr/local/lib/beacon/receipt.json',
    'remove /opt/beacon/receipt.json',
    'link /usr/local/bin/beacon to /usr/local/lib/beacon/beacon',
  ])
})

test("root's own copy of the command is renewed by a newer one, never by an older one that nobody named", () => {
  const facts: Partial<Facts> = { ...SETTLED, receipt: receipt(), program: 'ours' }
  const dos = (programTag: string, explicit = false) =>
    planInstall(request({ facts: { ...facts, programTag }, explicit })).map(({ do: what }) => what)
  equal(dos('v1.0.0'), ['lock', 'place-program'])
  equal(dos('v1.2.0'), [])
  equal(dos('v1.2.0', true), ['lock', 'place-program'])
})

test('what is not ours is refused before anything is changed', () => {
  const refusals: [string, Partial<Facts>, Partial<Choices>][] = [
    ['is not part of an install', { executable: 'foreign' }, {}],
    ['/usr/local/bin/beacon', { command: 'foreign' }, {}],
    ['beacon.service', { unit: 'foreign' }, {}],
    ['installed for the user beacon', { ...SETTLED, receipt: receipt() }, { 'run-as': 'other' }],
    ['cannot move it', { ...SETTLED, receipt: receipt() }, { 'state-dir': '/elsewhere' }],
    ['installing it again cannot move it', { ...SETTLED, receipt: receipt() }, { prefix: '/srv/beacon' }],
    ['/usr/local/lib/beacon/beacon', { program: 'foreign' }, {}],
    ['with a systemd service', { ...SETTLED, receipt: receipt() }, { service: false }],
    ['an install of lantern, not of beacon', { ...SETTLED, receipt: receipt({ service: 'lantern' }) }, {}],
  ]
  for (const [message, facts, flags] of refusals)
    match(throws(() => planInstall(request({ facts, flags })), withCode('refused')).message, message)
})

test('an uninstall names neither the state, nor the configuration, nor what the operator wrote', () => {
  const layout = layoutOf('beacon', DEFAULTS, ROOT)
  const facts = {
    active: true,
    enabled: true,
    unit: 'same',
    rescueUnit: 'ours',
    cageUnit: 'ours',
    cagePathUnit: 'ours',
    command: 'same',
    program: 'same',
    ours: [layout.executable],
    written: null,
  } as const
  const all = planUninstall(
    layout,
    receipt(),
    { ...facts, ours: [...facts.ours], written: '/opt/beacon/.beacon' },
    true,
  )
  equal(
    all.flatMap((step) => (step.do === 'purge' ? [step.path] : [])),
    ['/var/lib/beacon', '/opt/beacon/.beacon', '/etc/beacon'],
    'all data: also what the application has written beside its code',
  )
  const steps = planUninstall(layout, receipt(), { ...facts, ours: [...facts.ours] }, false)
  const removed = steps.flatMap((step) => ('path' in step && step.do !== 'lock' ? [step.path] : []))
  equal(removed, [
    '/etc/systemd/system/beacon-trial.path',
    '/etc/systemd/system/beacon-trial.service',
    '/etc/systemd/system/beacon.service',
    '/etc/systemd/system/beacon-rescue.service',
    '/opt/beacon/beacon',
    '/var/lib/beacon-trial',
    '/opt/beacon',
    '/usr/local/bin/beacon',
    '/usr/local/lib/beacon/beacon',
    '/usr/local/lib/beacon/receipt.json',
    '/usr/local/lib/beacon',
  ])
  is(
    steps.some((step) => step.do === 'purge'),
    false,
  )
  equal(foundAs('[Service]\n', 'x'), 'foreign') // a unit without our mark stays
})

test('the unit, whole', () => {
  const text = serviceUnit(layoutOf('beacon', DEFAULTS, ROOT))
  is(
    text.slice(0, text.indexOf('NoNewPrivileges')),
    `# Written by the installer, which will replace it.
# Your own changes belong in /etc/systemd/system/beacon.service.d/ (\`systemctl edit beacon\`) and /etc/default/beacon,
# which the installer leaves alone.

[Unit]
Description=beacon
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=120
StartLimitBurst=6
OnFailure=beacon-rescue.service

[Service]
Type=notify
NotifyAccess=all
ExecStart=/opt/beacon/beacon serve --config /etc/beacon/config.json
ExecStop=-+/bin/sh -c 'umask 022; mkdir -p /run/baton; systemctl list-jobs --plain --no-legend >/run/baton/beacon.service.jobs'
ExecStop=-/bin/sh -c 'kill -TERM $$MAINPID && while kill -0 $$MAINPID; do sleep 0.1; done 2>/dev/null'
ExecStop=-+/bin/rm -f /run/baton/beacon.service.jobs
ExecStopPost=-/bin/sh -c '[ ! -x /opt/beacon/beacon.backup ] || exec /opt/beacon/beacon.backup rescue'
EnvironmentFile=-/etc/default/beacon
User=beacon
Group=beacon
WorkingDirectory=/var/lib/beacon
KillMode=mixed
TimeoutStartSec=90
TimeoutStopSec=60
Restart=always
RestartSec=500ms
OOMPolicy=continue
SyslogIdentifier=beacon
LimitNOFILE=65536
FileDescriptorStoreMax=64
StateDirectory=beacon
StateDirectoryMode=0750
ReadWritePaths=/opt/beacon -/var/lib/beacon-trial
`,
  )
  ok(!/MemoryDenyWriteExecute/.test(text))
  // over D-Bus its user could have a manager of its own started, outside of the sandbox
  for (const one of [text, rescueUnit(layoutOf('beacon', DEFAULTS, ROOT))])
    match(one, /^InaccessiblePaths=-\/run\/dbus -\/run\/systemd\/private -\/run\/user$/m)
  match(rescueUnit(layoutOf('beacon', DEFAULTS, ROOT)), 'ExecCondition=/opt/beacon/beacon.backup rescue --given-up')
})

test('the cage: nothing in it leads through a folder of the service, and an older systemd gets its pid namespace by unshare', () => {
  const layout = layoutOf('beacon', DEFAULTS, ROOT)
  const old = cageUnit(layout, 252)
  match(
    old,
    'ExecStart=/usr/bin/unshare --pid --fork --kill-child=SIGKILL /usr/bin/setpriv --ambient-caps -all /opt/beacon/beacon as-service in-cage',
  )
  match(old, 'RestrictNamespaces=pid')
  const young = cageUnit(layout, 257)
  match(young, '\nExecStart=/opt/beacon/beacon as-service in-cage\n')
  match(young, '\nPrivatePIDs=yes\n')
  for (const text of [old, young]) {
    match(text, 'TemporaryFileSystem=/:ro ')
    match(text, / \/var\/lib\/beacon-trial\nBindPaths=-\/run\/baton\/beacon-cage:\/var\/lib\/beacon\n/)
    match(text, '\nSupplementaryGroups=\n')
    match(text, 'ConditionPathExists=/var/lib/beacon-trial/.trial-request.json')
    ok(!/EnvironmentFile|StandardOutput=file|LoadCredential|PrivateTmp|ProtectSystem|ProtectHome/.test(text))
  }
  match(cagePathUnit(layout), 'PathChanged=/var/lib/beacon-trial/.trial-request.json')
  is(hasCage(layoutOf('beacon', { ...DEFAULTS, 'state-dir': '/srv/state' }, ROOT)), false)
  is(hasCage(layoutOf('beacon', { ...DEFAULTS, scope: 'user' }, { ...ROOT, home: '/home/ada' })), false)
})

test('a feed that is a folder stays visible inside the sandbox', () => {
  const unit = (feed: string) => serviceUnit(layoutOf('beacon', { ...DEFAULTS, feed }, ROOT))
  match(unit('/home/ada/baton/dist/'), /^BindReadOnlyPaths=-\/home\/ada\/baton\/dist$/m)
  match(unit('/home/ada/baton/dist'), /^ProtectHome=tmpfs$/m)
  match(unit('file:///var/tmp/feed'), /^BindReadOnlyPaths=-\/var\/tmp\/feed$/m)
  ok(!unit('/srv/feed').includes('BindReadOnlyPaths'))
  match(
    serviceUnit(layoutOf('beacon', { ...DEFAULTS, 'state-dir': '/home/b/state' }, ROOT)),
    /^ProtectHome=read-only$/m,
  )
})

test('doctor reads a unit as systemd does: the deepest rule about a path wins', () => {
  const good = {
    LoadState: 'loaded',
    Type: 'notify',
    NotifyAccess: 'all',
    KillMode: 'mixed',
    ProtectSystem: 'strict',
    ProtectHome: 'yes',
    ReadWritePaths: '/opt/beacon',
    StateDirectory: 'beacon',
  }
  const levels = (unit: Record<string, string>) => judgeUnit({ ...good, ...unit }, receipt()).map(({ level }) => level)
  equal(levels({}), ['ok'])
  equal(levels({ ReadWritePaths: '' }), ['problem'])
  equal(levels({ ReadWritePaths: '', ProtectSystem: 'full' }), ['ok'])
  equal(levels({ ReadOnlyPaths: '/opt/beacon' }), ['ok']) // equally deep: what is opened stays open
  equal(levels({ ReadWritePaths: '/opt', ReadOnlyPaths: '/opt/beacon' }), ['problem'])
  equal(levels({ StateDirectory: '' }), ['problem'])
  equal(levels({ MemoryDenyWriteExecute: 'yes' }), ['problem'])
  equal(levels({ NotifyAccess: 'main' }), ['problem'])
  equal(levels({ KillMode: 'control-group', Type: 'simple' }), ['warning', 'warning'])
  equal(levels({ LoadState: 'not-found' }), ['problem'])
})

test('nobody is advised to give the service a directory that is not its own', async () => {
  const { findings } = await checkGiven(layoutOf('beacon', { ...DEFAULTS, prefix: '/usr/bin' }, ROOT))
  const [{ message = '', hint = '' } = {}] = findings
  match(message, /^expected \/usr\/bin to be empty or owned by beacon, found/)
  is(hint, 'choose another location with `--prefix` or `--state-dir`')
  const isGiven = (path: string) =>
    howToGive(path, { service: 'beacon', user: 'ada' }).includes(`chown -R ada: ${path}\``)
  equal(['/opt/beacon', '/var/lib/beacon', '/srv/beacon-two'].map(isGiven), [true, true, true])
  equal(
    ['/', '/usr', '/usr/local/bin', '/home/ada/.local', '/beacon', '/usr/local/beacon'].map(isGiven),
    Array.from({ length: 6 }, () => false),
  )
})

test('a mount point with a blank in its name, and mounts on top of each other', () => {
  const mounts = parseMounts(String.raw`1 0 8:1 / / rw,relatime - ext4 /dev/x rw
2 1 0:3 / /opt rw,noexec - tmpfs tmpfs rw
3 1 0:4 / /srv/my\040disk ro - tmpfs tmpfs rw
4 2 0:5 / /opt rw - tmpfs tmpfs rw`)
  is(mountOf(mounts, '/srv/my disk/x')?.options[0], 'ro')
  equal(mountOf(mounts, '/opt/beacon')?.options, ['rw'])
  is(mountOf(mounts, '/optical')?.path, '/')
})

test('what the service would refuse at its next start is a fault for its commands too: a setting that the reference service does not know', async () => {
  await using folder = await temporary('access')
  const path = join(folder.path, 'config.json')
  await writeFile(path, JSON.stringify({ auto: {}, dashboard: { password: 'x' } }))
  const { faults, unknown } = await readAccess(path)
  equal([faults.length, unknown], [1, []])
  match(faults[0] ?? '', /^unknown setting `auto`, expected one of dashboard, /)
})

test('a shell finds the service: a plain listener first, wildcards by loopback', () => {
  const access = (value: unknown) => accessFrom(readConfiguration(JSON.stringify(value)))
  const address = (listen: unknown) => access({ listen }).address
  equal(address(undefined), { host: '127.0.0.1', isEverywhere: false, port: 8080, tls: false })
  equal(address({ host: '0.0.0.0', port: 80 }), { host: '127.0.0.1', isEverywhere: true, port: 80, tls: false })
  equal(address([{ port: 443, tls: { key: 'k', cert: 'c' } }, { path: '/run/b.sock' }]), {
    path: '/run/b.sock',
    isEverywhere: false,
    tls: false,
  })
  equal(access({ dashboard: { password: 'x' }, basePath: '/b' }).token, 'x')
  const typos = { listen: [{ port: 1, hots: 'x' }], update: { probationMS: 1, drainTimeout: '1ms' }, mine: { a: 1 } }
  const like = { listn: 1, dashboard: { pasword: 'x', title: 'mine' } }
  equal(
    access(like)
      .unknown.map(({ name }) => name)
      .toSorted(),
    ['dashboard.pasword', 'listn'],
  )
  equal(
    access(typos).unknown.map(({ name }) => name),
    ['listen[0].hots', 'update.probationMS'],
  )
})

test('the log of a service without systemd stays small, and what was written last is kept', async () => {
  await using made = await temporary('rotate')
  const folder = made.path
  const log = join(folder, 'beacon.log')
  for (const text of ['first', 'second', 'third', 'fourth', 'fifth']) {
    await writeFile(log, text, { flag: 'a' })
    is(await rotateLog(log, 5, 3), true)
    is(await readFile(log, 'utf8'), '')
  }
  equal(await rotateLog(log, 5, 3), false)
  equal((await readdir(folder)).toSorted(), ['beacon.log', 'beacon.log.1', 'beacon.log.2', 'beacon.log.3'])
  is(await readFile(`${log}.1`, 'utf8'), 'fifth')
  is(await readFile(`${log}.3`, 'utf8'), 'third')
})

test('every wrong use of the command line ends with 2 and changes nothing', async () => {
  const wrong = [
    ['instal'],
    ['install', '--force'],
    ['install', '--feed'],
    ['install', '--release'],
    ['upgrade', '1.0'],
    ['upgrade', '--release', 'v1.1.0'],
    ['upgrade', 'v1.1.0', 'v1.2.0'],
    ['status', '--check'],
    ['upgrade', '--health-timeout', '60'],
    ['install', '--system', '--user'],
    ['install', '--listen', 'nowhere'],
    ['install', '--no-json'],
    ['upgrade', '--dry-run=maybe'],
    ['upgrade', '--health-timeout', 'soon'],
    ['rollback', 'v1.0.0', 'v1.1.0'],
    ['rollback', 'newest'],
    ['status', '-y'],
  ]
  for (const argv of wrong) {
    const { code, stderr } = await quietly(() => runCommand(argv, { service: 'beacon', tag: 'v1.1.0' }))
    is(code, 2, `${argv.join(' ')}: ${stderr}`)
    match(stderr, /^error: /)
  }
  is((await quietly(() => runCommand(['install', '--help'], { service: 'beacon', tag: 'v1.1.0' }))).code, 0)
})

const SETTLED: Partial<Facts> = {
  userExists: true,
  userIsOurs: false,
  directoryReady: true,
  stateReady: true,
  configDirectoryExists: true,
  configExists: true,
  executable: 'installed',
  installed: 'v1.1.0',
  program: 'same',
  programTag: 'v1.1.0',
  command: 'same',
  unit: 'same',
  rescueUnit: 'same',
  cageUnit: 'same',
  cagePathUnit: 'same',
  cageReady: true,
  cageEnabled: true,
  enabled: true,
  active: true,
}

function request({
  facts = {},
  flags = {},
  explicit = false,
}: { facts?: Partial<Facts>; flags?: Partial<Choices>; explicit?: boolean } = {}): InstallRequest {
  const chosen = choose(flags, {}, {}, DEFAULTS)
  const layout: Layout = layoutOf('beacon', chosen.choices, ROOT)
  return { layout, chosen, facts: { ...FACTS, ...facts }, own: OWN, explicit }
}

function receipt(more: Partial<Receipt> = {}): Receipt {
  return {
    format: 1,
    service: 'beacon',
    executable: '/opt/beacon/beacon',
    scope: 'system',
    supervisor: 'systemd',
    user: 'beacon',
    stateDirectory: '/var/lib/beacon',
    configPath: '/etc/beacon/config.json',
    feed: DEFAULTS.feed,
    installedAt: '2026-01-01T00:00:00.000Z',
    options: {},
    ...more,
  }
}

test('a rollback to a backup that is newer is told as a return to it', () => {
  const told = (from: string, to: string) => describe({ do: 'rollback', service: 'shop', from, to })
  match(told('v1.1.0', 'v1.0.0'), /^roll shop back from v1\.1\.0 to v1\.0\.0, without a download/)
  match(told('v1.0.0', 'v1.1.0'), /^return shop from v1\.0\.0 to v1\.1\.0, without a download/)
})

test.run()
