// What an author asks of the unit: a hostile author's values, the plan that an operator reads, the unit, and a real host.

import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Receipt } from '../agent/disk/receipt.ts'
import { linesOf, unitFaults, type UnitWishes, wishesOf } from '../agent/words/unit.ts'
import { confirm, type Context } from '../deploy/host/commands/context.ts'
import { cageUnit } from '../deploy/host/place/cage.ts'
import { acceptedIn, type Layout, layoutOf, layoutOfReceipt } from '../deploy/host/place/layout.ts'
import { rescueUnit, serviceUnit } from '../deploy/host/place/unit.ts'
import type { Facts } from '../deploy/host/plan/found.ts'
import { planInstall } from '../deploy/host/plan/install.ts'
import { describe } from '../deploy/host/plan/step.ts'
import { parseProject } from '../deploy/make/project.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, not, throws, withCode } from './assert.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { bootWithFeed } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('unit wishes')
const onHost = suite('unit wishes: host', { skip: noHosts, timeoutMs: 180_000 })

const WISHES: UnitWishes = {
  readWritePaths: ['/srv/media', '/var/cache/shop/thumbs'],
  devices: ['/dev/dri/renderD128'],
  capabilities: ['CAP_NET_RAW'],
  runtimeDirectory: true,
  environmentFile: '/etc/shop/secrets.env',
}
const CHOICES = {
  scope: 'system',
  prefix: null,
  'state-dir': null,
  feed: 'https://x/',
  listen: '127.0.0.1:8080',
  'run-as': null,
  service: true,
  start: true,
} as const
const ROOT = { name: 'root', home: '/root', environment: {} }
const layout: Layout = { ...layoutOf('shop', CHOICES, ROOT), asks: WISHES }

test('a hostile author’s values are refused: another line, a specifier, folders of the system or of others, files that root would read', () => {
  equal(unitFaults(WISHES, 'shop'), [])
  const bad: [keyof UnitWishes, string[]][] = [
    [
      'readWritePaths',
      [
        '/',
        '/etc',
        '/srv',
        '/srv/',
        '/mnt',
        '/srv/../etc',
        '/srv/./x',
        '/srv//x',
        '/srv/x/..',
        '/srv/x\nUser=root',
        '/srv/x ExecStartPre=/bin/sh',
        '/srv/%H',
        '/srv/"x"',
        '/srv/$x',
        String.raw`/srv/x\x20`,
        '/var/lib/other',
        '/var/lib',
        '/var/lib/shop/../dpkg',
        '/var/lib/shopping',
        '/root/x',
        '/home/ada',
        '/usr/local',
        '/run/systemd',
        '/proc/sys',
        '/sys/x',
        '/dev/shm',
        '/boot/x',
        'srv/x',
        '-/etc',
        '+/etc',
        '',
      ],
    ],
    [
      'devices',
      [
        '/dev/mem',
        '/dev/kmsg',
        '/dev/sda',
        '/dev/loop0',
        '/dev/dri/../mem',
        '/dev/ttyUSB0 rw\nDeviceAllow=/dev/mem',
        'block-sd',
        'char-*',
        '/dev/input/event0',
        '/dev/*',
        '/etc/passwd',
      ],
    ],
    [
      'capabilities',
      [
        'CAP_SYS_ADMIN',
        'CAP_SYS_PTRACE',
        'CAP_DAC_OVERRIDE',
        'CAP_SETUID',
        'cap_net_raw',
        'CAP_NET_RAW CAP_SYS_ADMIN',
        '~CAP_NET_RAW',
        'CAP_NET_RAW\nUser=root',
        '',
      ],
    ],
    [
      'environmentFile',
      [
        '/etc/shadow',
        '/etc/shop/../shadow',
        '/etc/shop',
        '/etc/shop/',
        '/etc/other/env',
        '/etc/shop/a/b',
        '/etc/shop/x\nUser=root',
        '/etc/shop/%n',
        '/root/.env',
        '',
      ],
    ],
  ]
  for (const [name, values] of bad) {
    for (const value of values) {
      const unit = { [name]: name === 'environmentFile' ? value : [value] }
      match(unitFaults(unit, 'shop').join(), `\`unit.${name}\``, `${name}: ${JSON.stringify(value)}`)
      throws(() => wishesOf(unit, 'shop'), withCode('refused'))
      throws(() => parseProject({ service: 'shop', entry: 'a.js', unit }, '/srv'), withCode('invalid_settings'))
    }
  }
  for (const unit of [
    [],
    'x',
    { ExecStartPre: '/bin/sh' },
    { runtimeDirectory: 'systemd' },
    { readWritePaths: '/srv/x' },
    { devices: [1] },
    { readWritePaths: Array.from({ length: 17 }, () => '/srv/x') },
  ])
    throws(() => wishesOf(unit, 'shop'), withCode('refused'))
  equal(
    [
      wishesOf(undefined, 'shop'),
      wishesOf(null, 'shop'),
      wishesOf({}, 'shop'),
      wishesOf({ runtimeDirectory: false }, 'shop'),
    ],
    [null, null, null, null],
  )
})

test('the plan says it line by line; what is confirmed is remembered, and more is asked for anew', () => {
  const lines = planInstall(request(layout)).map(describe)
  equal(
    lines.filter((line) => line.startsWith('allow')),
    linesOf(WISHES, 'shop').map((line) => `allow: this service requests ${line}`),
  )
  match(lines.join('\n'), /^allow: this service requests write access to \/srv\/media \(not granted in trials\)$/m)
  const step = planInstall(request(layout)).find((one) => one.do === 'write-receipt')
  const receipt = step?.receipt as Receipt
  equal(acceptedIn(receipt), WISHES)
  is(serviceUnit(layoutOfReceipt(receipt, ROOT)), serviceUnit(layout))
  const asks = (one: Layout, before: Receipt) =>
    planInstall(request(one, { receipt: before, unit: 'ours' })).filter(({ do: what }) => what === 'allow').length
  is(asks(layout, receipt), 0)
  is(asks({ ...layout, asks: { ...WISHES, capabilities: ['CAP_NET_RAW', 'CAP_NET_ADMIN'] } }, receipt), 7)
  is(acceptedIn({ ...receipt, options: { unit: '{"readWritePaths":["/etc"]}' } }), null)
  is(acceptedIn({ ...receipt, scope: 'user' }), null)
  const later = planInstall(request({ ...layout, asks: null }, { receipt, unit: 'ours' })).find(
    (one) => one.do === 'write-receipt',
  )
  is(later?.receipt.options['unit'], undefined)
})

test('-y alone does not answer for it', () => {
  const steps = planInstall(request(layout))
  const with_ = (flags: object) => () => confirm({ flags } as unknown as Context, 'shop', steps, 'install')
  const refused = throws(with_({ yes: true, acceptUnit: false }), withCode('refused'))
  not.equal(refused, null)
  with_({ yes: true, acceptUnit: true })()
  confirm(
    { flags: { yes: true, acceptUnit: false } } as unknown as Context,
    'shop',
    planInstall(request({ ...layout, asks: null })),
    'install',
  )
})

test('the unit gives what was confirmed, the rescue nothing of it, and the cage only the folder in /run', () => {
  const text = serviceUnit(layout)
  for (const line of [
    'ReadWritePaths=/opt/shop -/var/lib/shop-trial -/srv/media -/var/cache/shop/thumbs',
    'PrivateDevices=no\nDevicePolicy=closed\nDeviceAllow=/dev/dri/renderD128 rw',
    'CapabilityBoundingSet=CAP_NET_RAW\nAmbientCapabilities=CAP_NET_RAW',
    'RuntimeDirectory=shop\nRuntimeDirectoryMode=0750\nRuntimeDirectoryPreserve=restart',
    'EnvironmentFile=-/etc/shop/secrets.env\nEnvironmentFile=-/etc/default/shop',
  ])
    match(text, line)
  match(serviceUnit({ ...layout, lowPort: 80 }), 'AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_RAW')
  is(serviceUnit({ ...layout, asks: null }), serviceUnit(layoutOf('shop', CHOICES, ROOT)))
  is(rescueUnit(layout), rescueUnit({ ...layout, asks: null }))
  const cage = cageUnit(layout, 252)
  match(cage, / \/run\/shop:size=256M/)
  not.match(cage, /srv\/media|renderD128|secrets\.env|CAP_NET_RAW/)
})

test.run()

onHost.long(
  'on a host: -y is refused and nothing is there; with the flag or its variable the service may write there, and nowhere else; release.json says it',
  async () => {
    const unit = { readWritePaths: ['/srv/media'], runtimeDirectory: true, environmentFile: '/etc/ledger/secrets' }
    await using host = await bootWithFeed(async (out) => {
      await mkdir(out, { recursive: true })
      const folder = join(PROJECT, 'test/fixtures/ledger')
      const about = {
        service: 'ledger',
        kind: 'bundle',
        entry: 'ledger.js',
        healthPath: '/health',
        database: 'ledger.db',
      }
      await buildQuietly({ project: parseProject({ ...about, unit }, folder), out })
    })
    const install = (...flags: string[]) => ['sh', '/srv/feed/v1.0.0/install.sh', ...flags, '--feed', '/srv/feed']
    const installs = (...flags: string[]) => host.run(install(...flags))
    await host.ok('mkdir', '-p', '/srv/media', '/etc/ledger')
    const planned = await installs('--dry-run')
    match(
      planned.stdout + planned.stderr,
      'allow: this service requests write access to /srv/media (not granted in trials)',
    )
    const refused = await installs('-y')
    equal([refused.code, /--accept-unit/.test(refused.stdout + refused.stderr)], [7, true], refused.stderr)
    is((await host.run(['test', '-e', '/etc/systemd/system/ledger.service'])).code, 1)
    const not = await host.run(install('-y'), { env: { LEDGER_INSTALL_ACCEPT_UNIT: '0' } })
    is(not.code, 7, not.stderr)
    const done = await host.run(install('-y'), { env: { LEDGER_INSTALL_ACCEPT_UNIT: '1' } })
    is(done.code, 0, done.stdout + done.stderr)
    await host.ok('chown', 'ledger:', '/srv/media')
    const { stdout } = await host.run(['systemctl', 'show', 'ledger', '-p', 'MainPID', '--value'])
    const as = (script: string) =>
      host.run([
        'nsenter',
        '-t',
        stdout.trim(),
        '-m',
        'setpriv',
        '--reuid=ledger',
        '--clear-groups',
        'sh',
        '-c',
        script,
      ])
    equal([(await as('touch /srv/media/x /run/ledger/x')).code, (await as('touch /srv/y 2>/dev/null')).code], [0, 1])
    match((await host.run(['cat', '/srv/feed/v1.0.0/release.json'])).stdout, '"readWritePaths"')
    const again = await installs('-y', '--accept-unit')
    equal([again.code, /nothing to do/.test(again.stdout + again.stderr)], [0, true], again.stdout + again.stderr)
  },
)

onHost.run()

function request(one: Layout, facts: Partial<Facts> = {}): Parameters<typeof planInstall>[0] {
  const chosen = { choices: CHOICES, origins: {} as never, remembered: {} }
  const all: Facts = {
    root: true,
    userExists: true,
    userIsOurs: false,
    directoryReady: true,
    stateReady: true,
    configDirectoryExists: true,
    configExists: true,
    receipt: null,
    executable: 'installed',
    installed: 'v1.0.0',
    earlier: [],
    command: 'same',
    program: 'same',
    programTag: null,
    unit: 'absent',
    rescueUnit: 'same',
    cageUnit: 'same',
    cagePathUnit: 'same',
    cageReady: true,
    cageEnabled: true,
    systemdVersion: 252,
    enabled: true,
    active: true,
    ours: [],
    written: null,
    now: new Date('2026-03-04T05:06:07Z'),
    ...facts,
  }
  const own = { path: '/tmp/x/shop', tag: 'v1.0.0', sha256: 'ab'.repeat(32), basePath: '' }
  return { layout: one, chosen, facts: all, own, explicit: false }
}
