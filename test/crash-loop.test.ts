// A service that ends again and again, under the supervision without systemd: what a person is told, and what an update makes of it.

import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { isCrashed, mayEndToo, readCrashes } from '../deploy/host/supervisor/crashes.ts'
import { crashesFrom } from '../deploy/host/supervisor/systemd.ts'
import { equal, is, match, ok } from './assert.ts'
import { adopted, type Adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { bootWithFeed } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('crash loop', { timeoutMs: 200_000 })

/** While the file is there it answers, and then it dies, or at once if the file says so: every release of it. */
const DIES = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { existsSync, readFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  const dies = process.env.STATE_DIRECTORY + '/dies'
  const die = () => { throw new TypeError('the licence has expired') }
  if (existsSync(dies) && readFileSync(dies, 'utf8') === 'at once') die()
  createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST, () => {
    if (existsSync(dies)) setTimeout(die, 1000) // a start waits up to half a second for the lock of the command that starts it
  })`
const CRASHES =
  /it (?:exited unexpectedly|has exited unexpectedly \d+ times since it was started, last) with exit code 1 at \d{4}-\S+Z after printing: TypeError: the licence has expired/

test('the supervisor has given the old version up: a release that dies in the same way is not waited for, says its error, and is not remembered as failed', async () => {
  await using it = await adopted(DIES)
  const state = join(it.configPath, '../../../.local/state/shop')
  is((await it.word('install', '--user', '--start', '-y', '-q')).exitCode, 0, 'whose service belongs up')
  const before = await statusOf(it)
  equal([before.word, before.crashes], ['active', null])
  process.kill(before.mainPid ?? 0, 'SIGKILL')
  const once = await eventually('the next process', async () => {
    const { exitCode, stdout } = await it.word('status', '--user')
    return exitCode === 0 && stdout.includes('crashes ') ? stdout : null
  })
  match(once, /^crashes +it exited unexpectedly \(SIGKILL\) at .*; see `[^;]*$/m)
  const again = await statusOf(it)
  equal([again.crashes?.count, again.crashes?.isLooping], [1, false])
  await writeFile(join(state, 'dies'), '')
  process.kill(again.mainPid ?? 0, 'SIGKILL')
  const killed = await eventually(
    'its second end',
    async () => {
      const { crashes } = await statusOf(it)
      return (crashes?.count ?? 0) > 1 ? crashes : null
    },
    20_000,
  )
  is(killed?.isLooping, true)
  const down = await eventually(
    'the end',
    async () => {
      const state = await statusOf(it)
      return state.word === 'failed' ? state : null
    },
    60_000,
  )
  const { count, code, signal, isLooping } = down.crashes ?? {}
  equal([count, code, signal, isLooping], [6, 1, null, false])

  const status = await it.word('status', '--user')
  is(status.exitCode, 9, status.stderr)
  match(status.stdout, /^shop does not answer \(failed; without systemd, pid file \S+\)$/m)
  match(status.stdout, CRASHES)
  match(
    status.stdout,
    /^crashes +it has exited unexpectedly 6 times .*; it will not be restarted; see `tail -n 50 \S+shop\.log`$/m,
  )

  const dry = await it.word('upgrade', '--user', '--dry-run')
  is(dry.exitCode, 0, dry.stderr)
  match(dry.stderr + dry.stdout, /shop is not running \(failed; without systemd, pid file \S+\): /)
  match(dry.stderr + dry.stdout, CRASHES)

  const moved = await it.word('upgrade', '--user', '-y', '-q')
  is(moved.exitCode, 9, moved.stdout)
  match(moved.stderr, /^error: v1\.1\.0 failed: .*, and v1\.0\.0 does not start either: /)
  is(moved.stderr.match(new RegExp(CRASHES, 'g'))?.length, 2, moved.stderr)
  match(moved.stderr, /v1\.0\.0 was already down before this operation, so v1\.1\.0 is not recorded as failed/)
  ok(!/nothing answered/.test(moved.stderr), moved.stderr)
  const journal = JSON.parse(await readFile(join(state, 'update/journal.json'), 'utf8')) as {
    bad: unknown[]
    operation: { outcome: string }
  }
  equal([journal.bad, journal.operation.outcome], [[], 'reverted'])

  // longer than this test may take: only the supervisor can end the wait
  await writeFile(join(state, 'dies'), 'at once')
  const started = await it.word('start', '--user', '-q', '--health-timeout', '600s')
  is(started.exitCode, 9, started.stdout)
  match(started.stderr, /v1\.0\.0 is down, and it will not be restarted; it has exited unexpectedly 6 times/)
  match(started.stderr, CRASHES)

  await rm(join(state, 'dies'))
  const same = await it.word('upgrade', '--user', '-y', 'v1.0.0')
  is(same.exitCode, 0, same.stderr)
  match(same.stderr + same.stdout, /v1\.0\.0 is in place, but shop was down: starting it/)
  is((await statusOf(it)).word, 'active', 'nothing to do ends well only if the service answers')

  match((await it.word('upgrade', '--user', '-y')).stdout, /^shop v1\.1\.0 is running and healthy, replacing v1\.0\.0/m)
  is((await statusOf(it)).crashes, null, 'a start by a person begins anew')

  is((await it.word('stop', '--user', '-q')).exitCode, 0)
  const stopped = await it.word('upgrade', '--user', '-y')
  is(stopped.exitCode, 0, stopped.stderr)
  is((await statusOf(it)).word, 'active')
})

test.long(
  'lists tell of a release that failed what has happened, in a short line; its last words are in `--json` and the answer of the upgrade',
  async () => {
    await using it = await adopted(DIES)
    await it.release('v1.1.0', `${DIES}\n  setTimeout(() => { throw new TypeError('the licence; has expired') }, 200)`)
    const upgrade = await it.word('upgrade', '--user')
    is(upgrade.exitCode, 8, upgrade.stderr)
    match(upgrade.stderr, /it exited with code 1 after printing: TypeError: the licence; has expired/)
    const how = String.raw`(?:failed during probation|did not take over): it exited with code 1`
    const expected = {
      status: [`^last .*: reverted at .* \\(v1\\.1\\.0 ${how}\\)$`],
      check: [`^last .*: reverted at .* \\(v1\\.1\\.0 ${how}\\)$`, `^bad +v1\\.1\\.0: ${how} \\(\\d`],
      releases: [`^v1\\.1\\.0 .*bad: ${how} \\(\\d`],
    }
    for (const [word, lines] of Object.entries(expected)) {
      const { stdout } = await it.word(word, '--user')
      for (const line of lines) match(stdout, new RegExp(line, 'm'))
      ok(!stdout.includes('the licence'), stdout)
      match((await it.word(word, '--user', '--json')).stdout, /after printing: TypeError: the licence; has expired/)
    }
  },
)

interface State {
  word: string
  mainPid: number | null
  crashes: { count: number; isLooping: boolean; at: string | null; code: number | null; signal: string | null } | null
}

async function statusOf(it: Adopted): Promise<State> {
  const { stdout } = await it.word('status', '--user', '--json')
  return (JSON.parse(stdout) as { supervisor: State }).supervisor
}

/** v1.1.0 renames a column that v1.0.0 needs, and dies. */
const KEEPS = (isNew: boolean) => `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  import { DatabaseSync } from 'node:sqlite'
  const db = new DatabaseSync(process.env.STATE_DIRECTORY + '/shop.db')
  db.exec('PRAGMA journal_mode = WAL')
  if (${isNew}) db.exec('ALTER TABLE notes RENAME COLUMN text TO body')
  else db.exec('CREATE TABLE IF NOT EXISTS notes (text TEXT)')
  const all = db.prepare('SELECT ${isNew ? 'body' : 'text'} AS text FROM notes')
  if (!${isNew} && all.all().length === 0) db.exec("INSERT INTO notes VALUES ('kept')")
  createServer((request, response) => response.end(JSON.stringify(all.all()))).listen(Number(process.env.PORT), process.env.HOST)
  if (${isNew}) setTimeout(() => process.exit(1), 1500)`

test('a release spoils the data and dies, and the old one cannot use them: the upgrade says at once that it is down, doctor too, and another try leaves the copy that brings it back', async () => {
  const config = { database: 'shop.db' }
  await using it = await adopted(KEEPS(false), config, { update: { probation: '5s', readyTimeout: '60s' } })
  await it.release('v1.1.0', KEEPS(true), config)
  const began = performance.now()
  const upgrade = await it.word('upgrade', '--user', '-q')
  is(upgrade.exitCode, 9, upgrade.stderr)
  match(upgrade.stderr, /^error: the service is down and will not be restarted; .*no such column: text/m)
  match(upgrade.stderr, /^hint: if v1\.0\.0 cannot use .*, restore a copy .*`shop state list`, then run `shop stop`, /m)
  ok(performance.now() - began < 110_000, 'it is not waited for as a start is')
  const doctor = await it.word('doctor', '--user')
  equal([doctor.exitCode, /^problem +service .*no such column: text/m.test(doctor.stdout)], [9, true], doctor.stdout)
  // it is put in place only, since nothing runs, and each time the spoilt data are copied as those of v1.0.0 or v1.1.0
  for (const words of [['upgrade', 'v1.1.0'], ['rollback'], ['upgrade', 'v1.1.0'], ['rollback']])
    is((await it.word(...words, '--user', '-y', '-q')).exitCode, 0, words.join(' '))
  const copies = (await it.word('state', 'list', '--user')).stdout
  const names = [...copies.matchAll(/shop\.db\.v1\.0\.0\.\w+\.?\w*Z/g)].map(([name]) => name)
  const [first = ''] = names.toSorted()
  is((await it.word('stop', '--user', '-q')).exitCode, 0)
  const restored = await it.word('state', 'restore', first, '--user', '-y')
  is(restored.exitCode, 0, `${copies}\n${restored.stderr}`)
  is((await it.word('start', '--user', '-q')).exitCode, 0)
  is((await ask(it.port, 'GET', '/', null)).body, '[{"text":"kept"}]')
})

test('systemd: one end is no loop, a start after it is waited for; from the second on it is one until it runs', () => {
  const of = (ActiveState: string, SubState: string, NRestarts: number) =>
    crashesFrom({ ActiveState, SubState, NRestarts: String(NRestarts) })
  const seen = (...shown: Parameters<typeof of>) => [of(...shown)?.count, of(...shown)?.isLooping]
  equal(seen('activating', 'auto-restart', 0), [1, false])
  equal(seen('activating', 'start', 1), [1, false])
  equal(seen('activating', 'auto-restart', 1), [2, true])
  equal(seen('activating', 'start', 2), [2, true])
  equal(seen('active', 'running', 2), [2, false])
  const crashed = (word: string, crashes = of('activating', 'auto-restart', 0)) => isCrashed({ word, crashes })
  equal([crashed('auto-restart'), crashed('activating'), crashed('active')], [true, false, false])
  is(crashed('activating', of('activating', 'start', 2)), true)
  const waits = (word: string, crashes = of('activating', 'start', 1)) => mayEndToo({ word, crashes })
  equal([waits('activating'), waits('auto-restart'), waits('active', of('active', 'running', 2))], [true, true, false])
  equal([waits('activating', null), mayEndToo({ word: 'active', crashes: null })], [false, false])
})

test('the file of its ends belongs to the service: what is not as the supervision writes it counts as none, and no terminal obeys it', async () => {
  await using made = await temporary('crashes')
  const folder = made.path
  const [path, whole] = [
    join(folder, 'crashes.json'),
    { count: 3, isLooping: true, at: null, code: 1, signal: null, said: null },
  ]
  const read = async (crashes: unknown) => {
    await writeFile(path, typeof crashes === 'string' ? crashes : JSON.stringify({ crashes, isGivenUp: true }))
    return await readCrashes(path)
  }
  equal(await readCrashes(path), null)
  equal(await read(whole), { crashes: whole, isGivenUp: true })
  const forged = await read({ ...whole, said: '\u001b]0;title\u0007\u001b[2Jall is well\nbeacon  is fine' })
  is(forged?.crashes.said, 'all is well beacon is fine')
  for (const some of [
    { count: '\u001b[2J' },
    { count: -1 },
    { code: 'x' },
    { at: '\u001b[2J' },
    { signal: 'SIG\u001b' },
    { said: [] },
  ])
    is(await read({ ...whole, ...some }), null, JSON.stringify(some))
  for (const text of ['', '[]', 'null', '{"crashes":null}', '['.repeat(5000), ' '.repeat(20_000)])
    is(await read(text), null)
})

test.run()

// ---- with systemd

const hosted = suite('crash loop: systemd', { skip: noHosts, timeoutMs: 200_000 })

hosted.long(
  'systemd has given the service up: status says how often and how it ended, and a start does not wait',
  async () => {
    await using made = await temporary('crash')
    const folder = made.path
    await writeFile(join(folder, 'server.js'), DIES)
    await using host = await bootWithFeed(async (out) => {
      const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/' }
      await buildTags({ project: parseProject(config, folder), out }, ['v1.0.0', 'v1.1.0'])
    })
    const installer = join(host.feed, 'v1.0.0/install.sh')
    await host.ok('sh', installer, '--feed', host.feed, '--release', 'v1.0.0', '-y')
    const state = async () => {
      const { stdout } = await host.run(['shop', 'status', '--json'])
      return (JSON.parse(stdout) as { supervisor: State }).supervisor
    }
    is((await state()).crashes, null)
    await host.ok('touch', '/var/lib/shop/dies')
    await host.ok('systemctl', 'kill', '--signal=KILL', 'shop')
    const down = await eventually(
      'the end',
      async () => {
        const now = await state()
        return now.word === 'failed' ? now : null
      },
      60_000,
    )
    equal([down.crashes?.code, down.crashes?.signal], [1, null], JSON.stringify(down))
    ok((down.crashes?.count ?? 0) >= 5, JSON.stringify(down))
    ok(Math.abs(Date.parse(down.crashes?.at ?? '') - Date.now()) < 60_000, JSON.stringify(down))
    const said =
      /^crashes +it has exited unexpectedly \d+ times since it was started, last with exit code 1 at \S+Z; it will not be restarted; see `journalctl -u shop\.service`$/m
    match((await host.run(['shop', 'status'])).stdout, said)
    const dry = await host.run(['shop', 'upgrade', '--dry-run'])
    match(dry.stdout + dry.stderr, /shop is not running \(failed; .*\): it (?:has )?exited unexpectedly/)

    const moved = await host.run(['shop', 'upgrade', '-y', '-q', '--health-timeout', '100s'])
    is(moved.code, 9, moved.stderr)
    match(moved.stderr, /v1\.0\.0 was already down before this operation, so v1\.1\.0 is not recorded as failed/)
    await host.ok('shop', 'stop') // which systemd may be about to start again
    await host.ok('rm', '/var/lib/shop/dies')
    match(await host.ok('shop', 'upgrade', '-y'), /^shop v1\.1\.0 is running and healthy, replacing v1\.0\.0/m)
    is((await state()).crashes, null)
  },
)

hosted.run()
