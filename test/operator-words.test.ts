// `logs`, `releases` and `restart` of a real install under the supervision without systemd. Under systemd the guide of the managed install
// runs them (test/guides.test.ts).

import { spawn } from 'node:child_process'
import { appendFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { logProgram } from '../deploy/host/commands/logs.ts'
import type { ListedReleases } from '../deploy/host/service/releases.ts'
import { PROJECT } from '../deploy/make/place.ts'
import type { Receipt } from '../agent/disk/receipt.ts'
import { equal, is, match } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('operator words', { timeoutMs: 120_000 })
/** Says which process it is, in its log and to who asks; ends itself on a request. */
const SHOP = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  console.log('shop begins', process.pid, '\\u001b[31mred')
  createServer((request, response) => response.end(request.url === '/healthz' ? 'ok' : String(process.pid)))
    .listen(Number(process.env.PORT), process.env.HOST)`

test('`logs` shows what the service has written, without what would steer a terminal, and with -f what it writes next', async () => {
  await using it = await adopted(SHOP)
  const home = join(it.configPath, '../../..')
  const { exitCode, stdout, stderr } = await it.typed('logs', '--user')
  is(exitCode, 0, stderr)
  match(stdout, /^shop begins \d+ red$/m)
  is((await it.typed('logs', '--user', '--lines', '0')).stdout, '')
  const wrong = await it.typed('logs', '--user', '--lines', 'all')
  equal([wrong.exitCode, /expected a number for --lines, got "all"/.test(wrong.stderr)], [2, true], wrong.stderr)

  const log = join(home, '.local/state/shop/run/shop.log')
  const env = { HOME: home, BATON_NODE: process.execPath, PATH: process.env['PATH'] ?? '' }
  const following = spawn(join(home, '.local/bin/shop'), ['logs', '--user', '-f', '--lines', '0'], { env })
  let said = ''
  following.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
  const ended = new Promise((resolve) => following.once('exit', (code, signal) => resolve([code, signal])))
  await eventually('a line', async () => {
    await appendFile(log, 'one more\n')
    return said.includes('one more')
  })
  following.kill('SIGINT')
  equal(await ended, [0, null], 'Ctrl-C is how it ends')

  await rm(log)
  const none = await it.typed('logs', '--user')
  equal([none.exitCode, /tail.* failed with exit code 1/.test(none.stderr)], [7, true], none.stderr)
})

test('the journal is read by the unit, a user’s by their own manager', () => {
  const receipt = { service: 'shop', supervisor: 'systemd', stateDirectory: '/x' } as Receipt
  const unit = ['--unit', 'shop.service', '--no-pager', '--lines', '9']
  equal(logProgram(receipt, false, '9'), ['journalctl', ...unit])
  equal(logProgram({ ...receipt, supervisor: 'systemd-user' }, true, '9'), [
    'journalctl',
    '--user',
    ...unit,
    '--follow',
  ])
  equal(logProgram({ ...receipt, supervisor: 'none' }, true, '9'), ['tail', '-n', '9', '-F', '/x/run/shop.log'])
})

test('`releases` lists the feed with what runs here, what is kept, what has failed, and what cannot be used', async () => {
  await using it = await adopted(SHOP)
  const listed = async () => {
    const { exitCode, stdout, stderr } = await it.typed('releases', '--user', '--json')
    is(exitCode, 0, stderr)
    return JSON.parse(stdout) as ListedReleases
  }
  const before = await listed()
  equal(
    before.releases.map(({ tag, isRunning, isInstalled, isBackup, isOffered }) => [
      tag,
      isRunning,
      isInstalled,
      isBackup,
      isOffered,
    ]),
    [
      ['v1.1.0', false, false, false, true],
      ['v1.0.0', true, true, false, true],
    ],
  )
  equal([before.isWhole, before.releases[0]?.bad, typeof before.releases[0]?.sizeBytes], [true, null, 'number'])

  await it.release('v1.2.0', `${SHOP}\nsetTimeout(() => process.exit(1), 200)`)
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  is((await it.operate('/admin/update', { tag: 'v1.2.0' })).outcome, 'reverted')
  const latest = await it.typed('install', 'latest', '--user', '-y')
  equal([latest.exitCode, (await listed()).releases[1]?.isRunning], [0, true], latest.stderr)
  match(
    latest.stderr,
    /^v1\.2\.0 is newer, but failed here at 20\S+: v1\.2\.0 .+; `shop install v1\.2\.0` tries it again$/m,
  )
  const home = join(it.configPath, '../../..')
  await rm(join(home, 'feed/v1.0.0'), { recursive: true })
  await writeFile(join(home, 'feed/v1.1.0/release.json'), '{}')
  const { releases } = await listed()
  equal(
    releases.map(({ tag, isRunning, isBackup, bad, unusable }) => [
      tag,
      isRunning,
      isBackup,
      bad !== null,
      unusable !== null,
    ]),
    [
      ['v1.2.0', false, false, true, false],
      ['v1.1.0', true, false, false, true],
      ['v1.0.0', false, true, false, true],
    ],
  )
  const text = (await it.typed('releases', '--user')).stdout
  match(text, /^v1\.2\.0 .* bad: .+ \(20\d\d-.+\)$/m)
  match(text, /^v1\.1\.0 .* running, cannot be used: .*release\.json/m)
  match(text, /^v1\.0\.0 .* backup, cannot be used: /m)

  await rm(join(home, 'feed'), { recursive: true })
  const gone = await it.typed('releases', '--user')
  equal([gone.exitCode, gone.stdout], [4, ''], gone.stderr)
})

test('a rollback that names no release does not start one that failed here; a failed release tells the way back with the data', async () => {
  const fails = `import { existsSync } from 'node:fs'
    import { DatabaseSync } from 'node:sqlite'
    new DatabaseSync('shop.db').exec('create table if not exists rows (text)')
    if (process.env.BAD && existsSync('fails')) setTimeout(() => process.exit(3), 300)
    ${SHOP}`
  const config = { database: 'shop.db' }
  await using it = await adopted(fails, config, { update: { auto: { mode: 'patch' } } }, true, {
    ...config,
    environment: { PORT: '{port}', HOST: '{host}', BAD: '1' },
  })
  is((await it.typed('upgrade', '--user', '-y', '-q')).exitCode, 0)
  is((await it.typed('rollback', '--user', '-y', '-q')).exitCode, 0)
  await writeFile(join(it.stateDirectory, 'fails'), '')
  const failed = await it.typed('upgrade', '--user', '-y')
  is(failed.exitCode, 8, failed.stderr)
  match(
    failed.stderr,
    /^hint: the data that the failed release wrote is kept; to restore a copy from before the update, find its name with `shop state list`, then run `shop stop`, /m,
  )
  for (const more of [['-y'], ['--dry-run'], ['--restore-state', '-y']]) {
    const refused = await it.typed('rollback', '--user', ...more)
    is(refused.exitCode, 7, refused.stdout)
    match(
      refused.stderr,
      /^error: the backup is v1\.1\.0, which failed here at \S+: .*\nhint: .*`shop rollback v1\.1\.0`/m,
    )
  }
  const named = await it.typed('rollback', 'v1.1.0', '--user', '--dry-run')
  equal(
    [named.exitCode, /trying v1\.1\.0 again, because you named it; it failed here at /.test(named.stderr)],
    [0, true],
    named.stderr,
  )
  const stalled =
    /nothing will be installed automatically: the feed is not signed, and `update\.auto\.allow` does not list `unsigned`/
  match((await it.typed('status', '--user')).stdout, stalled)
  const { stdout: found } = await it.typed('doctor', '--user')
  match(found, stalled)
  match(found, /^ *warning +backup +.*\.backup is v1\.1\.0, which failed here at \S+: /m)
  match((await it.typed('status', '--user')).stdout, /^backup {5}v1\.1\.0, the executable that was replaced last$/m)
})

test.long(
  '`restart` ends the process and starts another, of the installed release; one that is stopped is started',
  async () => {
    await using it = await adopted(SHOP)
    const pid = async () => String((await ask(it.port, 'GET', '/', null)).body)
    const first = await pid()
    const dry = await it.typed('restart', '--user', '--dry-run')
    equal([dry.exitCode, await pid()], [0, first])
    match(dry.stdout, /1 {2}restart shop\n.*2 {2}wait until shop v1\.0\.0 answers/s)
    const done = await it.typed('restart', '--user')
    equal([done.exitCode, done.stdout], [0, 'shop v1.0.0 is running\n'], done.stderr)
    const second = await pid()
    is(second === first, false)
    is((await it.typed('stop', '--user', '-q')).exitCode, 0)
    is((await it.typed('restart', '--user', '-q')).exitCode, 0)
    is((await pid()) === second, false)
  },
)

test.run()
