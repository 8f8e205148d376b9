// @long
// Every service of a host, or of a user: found by receipts alone, each asked by its own program, moved one after the other.

import { chmod, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import type { Receipt } from '../agent/disk/receipt.ts'
import { moveLines, rowFrom, type ServiceMove, type ServiceRow, statusLines } from '../deploy/host/commands/all.ts'
import { runProgram } from '../deploy/host/program.ts'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, not, ok, rejects } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { bootWithReleases, eventsIn, put } from './lab/managed.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('all services', { timeoutMs: 120_000 })

/** What the program of an install says, a shell script. */
async function installed(home: string, service: string, script: string, more: Partial<Receipt> = {}, folder?: string) {
  const directory = folder ?? join(home, '.local/share', service)
  const executable = join(directory, service)
  await mkdir(directory, { recursive: true })
  await writeFile(executable, `#!/bin/sh\necho "$*" >>${home}/calls.${service}\n${script}\n`)
  await chmod(executable, 0o755)
  const receipt = {
    format: 1,
    service,
    executable,
    scope: 'user',
    supervisor: 'none',
    user: userInfo().username,
    stateDirectory: '/nowhere',
    configPath: '/nowhere',
    feed: '/nowhere',
    installedAt: '',
    options: {},
    ...more,
  }
  await writeFile(join(directory, 'receipt.json'), JSON.stringify(receipt))
  return executable
}

/** `baton …` of this user, whose home it is. */
async function baton(home: string, ...words: string[]) {
  const command = [process.execPath, ...process.execArgv, join(PROJECT, 'deploy/baton.ts'), ...words, '--user']
  return await run(command, { env: { HOME: home, XDG_CONFIG_HOME: undefined }, allowFailure: true })
}

const says = (object: object, exit = 0) =>
  `printf '%s\\n' '${JSON.stringify({ event: 'result', ...object, exit })}'; exit ${exit}`
const rowsIn = (stdout: string) => (eventsIn(stdout).at(-1) as unknown as { services: ServiceRow[] }).services
const calls = async (home: string, service: string) =>
  (await readFile(join(home, `calls.${service}`), 'utf8').catch(() => '')).trim().split('\n')

const WELL = {
  running: 'v1.0.0',
  installed: 'v1.0.0',
  instance: { id: 'a' },
  health: 200,
  probation: null,
  operation: { kind: 'update', to: 'v1.0.0', outcome: 'updated', finishedAt: '2026-11-24T01:18:31.402Z' },
  schedule: { next: '2026-11-25T07:02:00Z', now: {}, waits: [{ says: 'v1.1.0 is available', tag: 'v1.1.0' }] },
}

test('one table of all: what each says of itself, and of one that says nothing, why; a receipt that lies is named and not run', async () => {
  await using it = await temporary('all')
  const home = it.path
  await installed(home, 'shop', says(WELL))
  await installed(home, 'blog', says({ ...WELL, instance: null, running: null }, 9))
  await installed(home, 'wiki', 'echo rubbish; echo why >&2; exit 3')
  await installed(home, 'mail', says(WELL), { service: 'shop' })
  await installed(home, 'copy', says(WELL), { executable: '/usr/bin/true' })
  await installed(home, 'gone', says(WELL), { executable: join(home, '.local/share/gone/gone') })
  await run(['rm', join(home, '.local/share/gone/gone')])
  const elsewhere = await installed(home, 'far', says({ ...WELL, health: 503 }), {}, join(home, 'srv'))
  await mkdir(join(home, '.local/bin'))
  await symlink(elsewhere, join(home, '.local/bin/far'))
  await mkdir(join(home, '.local/share/broken'))
  await writeFile(join(home, '.local/share/broken/receipt.json'), '{')

  const { exitCode, stdout } = await baton(home, 'status', '--json')
  const rows = new Map(rowsIn(stdout).map((row) => [row.service, row]))
  equal([...rows.keys()], ['blog', 'broken', 'far', 'gone', 'mail', 'shop', 'wiki'])
  equal(rows.get('shop'), {
    service: 'shop',
    version: 'v1.0.0',
    health: 'healthy',
    latest: 'v1.1.0',
    last: { kind: 'update', to: 'v1.0.0', outcome: 'updated', at: '2026-11-24T01:18:31.402Z' },
    next: '2026-11-25T07:02:00Z',
    waits: ['v1.1.0 is available'],
    problem: null,
    exit: 0,
  })
  equal(
    [rows.get('blog')?.health, rows.get('blog')?.version, rows.get('far')?.health],
    ['down', 'v1.0.0', 'unhealthy (503)'],
  )
  match(rows.get('wiki')?.problem ?? '', /^why$/)
  match(rows.get('mail')?.problem ?? '', 'it belongs to "shop"')
  match(rows.get('broken')?.problem ?? '', /receipt\.json cannot be used/)
  match(rows.get('gone')?.problem ?? '', /ENOENT/)
  equal([exitCode, eventsIn(stdout)[0]?.['exit']], [9, 9], 'that of the first which is not as it should be')
  equal(await calls(home, 'shop'), ['status --user --json'])
  equal([await calls(home, 'mail'), await calls(home, 'copy')], [[''], ['']], 'nothing of theirs has run')

  const table = (await baton(home, 'status')).stdout
  match(table, /^service {2}version {2}health {11}latest {2}last {30}next$/m)
  match(table, /^shop {5}v1\.0\.0 {3}healthy {10}v1\.1\.0 {2}updated v1\.0\.0 2026-11-24 01:18Z {2}2026-11-25 07:02Z$/m)
  match(table, /^shop: v1\.1\.0 is available$/m)
})

test('`upgrade --all` moves one after the other, stops at the first that fails, and tells of each; a second start goes on', async () => {
  await using it = await temporary('all')
  const home = it.path
  const moved = { from: 'v1.0.0', to: 'v1.1.0', outcome: 'updated' }
  const failed = {
    event: 'error',
    code: 'probation_failed',
    message: 'it was bad',
    from: 'v1.0.0',
    to: 'v1.1.0',
    outcome: 'reverted',
  }
  await installed(home, 'a', says(moved))
  await installed(home, 'b', `printf '%s\\n' '${JSON.stringify(failed)}'; exit 8`)
  await installed(home, 'c', says(moved))
  const flags = ['--lock-timeout', '5m', '--allow-irreversible', '--now']
  const night = await baton(home, 'upgrade', '--all', ...flags, '--json')
  is(night.exitCode, 8)
  const services = eventsIn(night.stdout).at(-1)?.['services'] as ServiceMove[]
  equal(
    services.map(({ service, outcome, exit }) => [service, outcome, exit]),
    [
      ['a', 'updated', 0],
      ['b', 'reverted', 8],
      ['c', null, null],
    ],
  )
  is(night.stderr.split('\n')[0], 'error: b: it was bad')
  equal(await calls(home, 'a'), [
    'upgrade --user --health-timeout 1m --lock-timeout 5m --allow-irreversible --now --json',
  ])
  equal(await calls(home, 'c'), [''])
  const table = (await baton(home, 'upgrade', '--all')).stdout
  match(table, 'a  updated    v1.0.0 to v1.1.0\nb  reverted   v1.0.0 to v1.1.0  it was bad\nc  not tried\n')
  const quiet = await baton(home, 'upgrade', '--all', '-q')
  equal([quiet.stdout, quiet.stderr.split('\n')[0]], ['', 'error: b: it was bad'], 'a timer mails nothing else')
  await installed(home, 'b', says({ ...moved, outcome: 'up_to_date', to: null }))
  equal([(await baton(home, 'upgrade', '--all', '-q')).exitCode, (await calls(home, 'c')).length], [0, 1])
})

test('what is about one service is refused beside `--all`, and so is a home without an install; nothing has run', async () => {
  await using it = await temporary('all')
  for (const words of [
    ['v1.1.0'],
    ['--health-url', 'http://x/'],
    ['--pause-until', '2026-12-27'],
    ['--prefix', '/opt/x'],
  ])
    is((await baton(it.path, 'upgrade', '--all', ...words)).exitCode, 2, words.join(' '))
  is((await baton(it.path, 'upgrade')).exitCode, 2)
  const none = await baton(it.path, 'status')
  equal([none.exitCode, /expected .* on this host, found none/.test(none.stderr)], [7, true])
})

test('a program that hangs is ended; one that is killed counts as failed, and one that cannot start is an error', async () => {
  await using it = await temporary('all')
  const path = await installed(it.path, 'slow', 'exec sleep 100')
  const began = performance.now()
  not.equal((await runProgram([path], () => {}, { timeoutMs: 200 })).exit, 0)
  ok(performance.now() - began < 4000)
  not.equal((await runProgram([await installed(it.path, 'dead', 'kill -9 $$')], () => {})).exit, 0)
  await rejects(
    runProgram([join(it.path, 'none')], () => {}),
    /ENOENT/,
  )
})

test('one that has not answered yet is starting as long as its supervisor says so, and crashing if it has ended in that', () => {
  const said = { event: 'result', exit: 9, ...WELL, instance: null, running: null }
  const health = (supervisor: object) => rowFrom('shop', { ...said, supervisor }).health
  is(health({ word: 'activating', crashes: null }), 'starting')
  is(health({ word: 'activating', crashes: { isLooping: true } }), 'crashing')
  is(health({ word: 'active', crashes: null }), 'down')
})

test('fuzz: whatever a program says, it is a row of plain texts, each on one line', async () => {
  const words = fc.constantFrom(...Object.keys(WELL), 'latest', 'event', 'exit')
  await fuzz(fc.dictionary(words, fc.jsonValue()), (said) => {
    const row = rowFrom('shop', { event: 'result', ...said })
    for (const value of [row.version, row.health, row.latest, row.next]) ok(value === null || typeof value === 'string')
    const lines = statusLines([row, { ...row, problem: 'why' }])
    ok(
      lines.every((line) => !line.includes('\n')),
      JSON.stringify(lines),
    )
  })
  equal(moveLines([]), [])
})

test('a real install, by its own command: status, then the upgrade; its health is what it answers', async () => {
  const text = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
    import { createServer } from 'node:http'
    import { existsSync } from 'node:fs'
    const isIll = () => existsSync('ill')
    createServer((request, response) => response.writeHead(isIll() ? 503 : 200).end('ok'))
      .listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text)
  const rowNow = async () => rowsIn((await it.word('status', '--all', '--json')).stdout)[0]
  const before = await rowNow()
  equal([before?.service, before?.version, before?.health, before?.last], ['shop', 'v1.0.0', 'healthy', null])
  match((await it.word('status')).stdout, /^health .* returns 200$/m)
  await writeFile(join(it.stateDirectory, 'ill'), '')
  match((await it.word('status')).stdout, /^health {5}\/healthz returns 503, expected 2xx$/m)
  is((await rowNow())?.health, 'unhealthy (503)')
  await rm(join(it.stateDirectory, 'ill'))
  const checked = rowsIn((await it.word('check', '--all', '--json')).stdout)
  is(checked[0]?.latest, 'v1.1.0')
  const done = await it.word('upgrade', '--all')
  is(done.exitCode, 0, done.stderr)
  match(done.stdout, /^shop {2}updated {2}v1\.0\.0 to v1\.1\.0$/m)
  const after = await rowNow()
  equal([after?.version, after?.last?.outcome], ['v1.1.0', 'updated'])
  await it.word('stop', '-q')
  const stopped = await it.word('status', '--all')
  equal([stopped.exitCode, / stopped /.test(stopped.stdout)], [0, true], 'as it was installed: `--no-start`')
})

test.run()

const onHost = suite('all services: root', { skip: noHosts, timeoutMs: 180_000 })

onHost('root runs only programs that nobody else can change, and believes no receipt of another user', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  await host.install()
  const text = JSON.parse(await host.ok('cat', '/usr/local/lib/beacon/receipt.json')) as Receipt
  for (const service of ['evil', 'lax', 'node']) {
    const more = service === 'node' ? { node: '/srv/node' } : {}
    const executable = `/usr/local/lib/${service}/${service}`
    await put(host, `/usr/local/lib/${service}/receipt.json`, JSON.stringify({ ...text, service, executable, ...more }))
    await put(host, `/usr/local/lib/${service}/${service}`, `#!/bin/sh\ntouch /run/ran\n`)
    await host.ok('chmod', '755', `/usr/local/lib/${service}/${service}`)
  }
  await host.ok('chown', '-R', 'beacon', '/usr/local/lib/evil')
  await host.ok('chmod', '777', '/usr/local/lib/lax/lax')
  await put(host, '/srv/node', '#!/bin/sh\ntouch /run/ran\n')
  await host.ok('chown', 'beacon', '/srv/node')
  const { stdout, code } = await host.cli('status', '--all', '--json')
  is(code, 7, stdout)
  const rows = rowsIn(stdout)
  equal(
    rows.map(({ service, version, health }) => [service, version, health]),
    [
      ['beacon', 'v1.0.0', 'answers'],
      ['evil', null, null],
      ['lax', null, null],
      ['node', null, null],
    ],
  )
  for (const row of rows.slice(1)) match(row.problem ?? '', /root|everyone|user id/)
  match((await host.run(['sh', '/srv/feed/v1.0.0/install.sh', 'status', '--all'])).stdout, /^beacon +v1\.0\.0 /m)
  const night = await host.cli('upgrade', '--all')
  equal([night.code, /^evil +failed .*\nlax +not tried\nnode +not tried$/m.test(night.stdout)], [7, true], night.stdout)
  match(night.stdout, /^beacon +updated +v1\.0\.0 to v1\.1\.0$/m)
  is((await host.run(['test', '-e', '/run/ran'])).code, 1)
})

onHost.run()
