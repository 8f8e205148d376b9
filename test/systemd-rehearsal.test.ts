// @deadlineMs 600000
// A release is tried on a copy of the data, in the cage that the installer makes: what it may do there, what becomes of an update,
// and what is left behind.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Rehearsal } from '../agent/words/rehearsal.ts'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { bootWithFeed, eventsIn, type FeedHost, put } from './lab/managed.ts'
import { publishLedgers } from './lab/ledger.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { isLong, suite } from './suite.ts'

const test = suite('systemd: rehearsal', { skip: noHosts, timeoutMs: 240_000 })
const STATE = '/var/lib/beacon'
const CAGE = '/var/lib/beacon-trial'
/** enough that a copy of them takes a while */
const ROWS = isLong ? 100_000 : 30_000

let host: FeedHost

test.before(async () => {
  host = await bootWithFeed((out) => publishLedgers(out, ['v1.0.0', 'v1.1.0', 'v1.2.0', 'v1.3.0']))
  await host.install({ probation: '1s', quietTimeout: '500ms', trial: 'auto' })
  await sql(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})
    INSERT INTO notes SELECT i, NULL, 'note ' || i FROM n; INSERT INTO authors VALUES (1, 'ada'), (2, 'lease')`)
  await put(host, `${STATE}/uploads/a/b.txt`, 'an upload')
  await host.ok('ln', '-s', '/etc/passwd', `${STATE}/uploads/link`)
  await host.ok('chown', '-R', 'beacon:', `${STATE}/uploads`)
})
test.after(async () => await host.off())

test('the way back is open: the update says so, with rows and seconds, and nothing is left of the copy', async () => {
  await migrate(`
    if (require('node:fs').readFileSync(state + '/uploads/a/b.txt', 'utf8') !== 'an upload') throw new Error('no upload')
    if (process.env.BATON_TRIAL === '1') {
      if (require('node:fs').existsSync(state + '/uploads/link')) throw new Error('a link was copied')
      if (database.prepare("SELECT count(*) AS n FROM authors WHERE name = 'lease'").get().n !== 0) throw new Error('a lease')
    }
    database.exec('ALTER TABLE notes ADD COLUMN colour TEXT')`)
  const { code, stdout, stderr } = await host.cli('upgrade', 'v1.1.0', '-y', '--json')
  is(code, 0, stderr)
  const { trial: rehearsal } = operationIn(stdout)
  is(rehearsal?.verdict, 'reversible', JSON.stringify(rehearsal))
  is(rehearsal?.rows, ROWS + 2)
  await emptied()
  await sql('SELECT colour FROM notes LIMIT 1') // this time it was the real one
  is((await host.cli('rollback', '-y')).code, 0)
})

test.long('a dry run rehearses beside the running service, says how it went, and leaves nothing', async () => {
  await sql('PRAGMA user_version = 40') // so that it is not known from before
  await migrate('database.exec("ALTER TABLE notes ADD COLUMN shade TEXT")')
  const before = await look()
  const files = await host.ok('find', '/opt/beacon', '-printf', '%p %s\\n')
  const dry = ['upgrade', '--dry-run', '--json']
  const { code, stdout, stderr } = await host.cli(...dry, 'v1.1.0', '--trial')
  is(code, 0, stderr)
  const end = eventsIn(stdout).at(-1) as { trial?: Rehearsal; would?: string; outcome?: string }
  equal([end.outcome, end.would, end.trial?.verdict, end.trial?.rows], ['planned', 'updated', 'reversible', ROWS + 2])
  equal(await look(), before)
  is(await host.ok('find', '/opt/beacon', '-printf', '%p %s\\n'), files)
  is((await host.status()).operation?.to, 'v1.0.0', 'the operation of before')
  await emptied()
  const known = await host.cli(...dry, 'v1.1.0')
  is((eventsIn(known.stdout).at(-1) as { trial?: Rehearsal }).trial?.verdict, 'reversible', known.stdout)

  await migrate(`database.exec("DELETE FROM notes WHERE id = 7")`)
  const no = await host.cli(...dry, 'v1.3.0', '--trial')
  is(no.code, 7, no.stdout)
  match(no.stderr + no.stdout, /v1\.3\.0 would change the data irreversibly: 1 row of notes would be lost/)
  const allowed = await host.cli('upgrade', '--dry-run', 'v1.3.0', '--trial', '--allow-irreversible')
  is(allowed.code, 0, allowed.stderr)
  match(allowed.stderr + allowed.stdout, /tried on a copy of your data .*: cannot be rolled back/)
  match(allowed.stderr + allowed.stdout, /the switch: stop-first/)
  await sql('PRAGMA user_version = 41')
  await migrate(`throw new Error('half-way')`)
  const fails = await host.cli(...dry, 'v1.3.0', '--trial')
  is(fails.code, 5, fails.stdout)
  await sql('PRAGMA user_version = 42')
  await migrate('return new Promise((resolve) => setTimeout(resolve, 60_000))')
  const dryRun = ['beacon', ...dry, 'v1.3.0', '--trial'].join(' ')
  const ended = host.run([
    'sh',
    '-c',
    `${dryRun} & p=$!; until [ -e /srv/enough ]; do sleep 0.1; done; kill -INT $p; wait $p`,
  ])
  await eventually('the rehearsal', async () => /request/.test(await host.ok('ls', '-A', CAGE)))
  is((await host.ask('POST', '', { tag: 'v1.1.0' })).status, 409, 'one at a time')
  await put(host, '/srv/enough', '')
  is((await ended).code, 7)
  await emptied()
  equal(await look(), { ...before, schema: (await look()).schema })
  is(await host.ok('find', '/opt/beacon', '-printf', '%p %s\\n'), files)
})

test('no way back: the update ends with 7 and nothing changed, and is refused at once afterwards, until a person allows it', async () => {
  await migrate(`database.exec('DELETE FROM notes WHERE id % 2 = 0')`)
  const before = await look()
  const first = await host.cli('upgrade', 'v1.2.0', '-y')
  is(first.code, 7, first.stderr)
  match(
    first.stderr,
    /v1\.2\.0 would change the data irreversibly: \d{5} rows of notes would be lost; nothing has changed/,
  )
  equal(await look(), before)
  const foretold = await host.cli('upgrade', 'v1.2.0', '--dry-run')
  is(foretold.code, 7, foretold.stdout)
  match(foretold.stderr, /v1\.2\.0 would change the data irreversibly/)
  is((await host.cli('upgrade', 'v1.2.0', '--dry-run', '--allow-irreversible')).code, 0)
  const again = await host.ask('POST', '', { tag: 'v1.2.0' })
  is(again.status, 409, again.body)
  is((JSON.parse(again.body) as { code: string }).code, 'irreversible')
  is((await host.ask('POST', '', { tag: 'v1.2.0', allowIrreversible: 'yes' })).status, 400)
  is((await host.ask('POST', '', { tag: 'v1.2.0', allowIrreversible: true })).status, 202)
  const status = await ended()
  is(status.operation?.outcome, 'updated', JSON.stringify(status.operation))
  is(status.operation?.trial?.verdict, 'irreversible')
  ok((status.operation?.handover?.pauseMs ?? 0) > 0, 'stop-first')
  ok(Number(await sql('SELECT count(*) FROM notes')) < ROWS * 0.6)
  await migrate('')
  await sql("INSERT INTO notes(author, text) VALUES (1, 'written since')")
  const kept = await sql('SELECT count(*) FROM notes')
  const refused = await host.cli('rollback', '-y')
  is(refused.code, 7, refused.stderr)
  match(refused.stderr, /v1\.0\.0 cannot run on the data that v1\.2\.0 has changed/)
  is((await host.cli('rollback', '--dry-run')).code, 7)
  const told = await host.cli('rollback', '--dry-run', '--restore-state')
  is(told.code, 0)
  match(told.stdout + told.stderr, /the database would be set aside and replaced with a copy of \S+/)
  const back = await host.cli('rollback', '-y', '--restore-state', '--json')
  is(back.code, 0, back.stderr)
  is((await host.status()).instance.version, 'v1.0.0')
  is(await sql('SELECT count(*) FROM notes'), String(ROWS))
  const { stateMoved } = operationIn(back.stdout)
  is(await sqlIn(stateMoved?.aside ?? '', 'SELECT count(*) FROM notes'), kept)
  is(await sqlIn(stateMoved?.aside ?? '', "SELECT count(*) FROM notes WHERE text = 'written since'"), '1')
})

test('no way back, and the release fails in its probation: the old one has its data again, to the last row', async () => {
  await migrate(`database.exec("DELETE FROM notes WHERE id % 2 = 0; INSERT INTO notes(id, author, text) VALUES (9000001, 1, 'since'), (9000002, 1, 'since')")
    if (process.env.BATON_TRIAL !== '1') setTimeout(() => process.exit(9), 400)`)
  await sql("INSERT INTO notes(author, text) VALUES (1, 'the last row')")
  const { rows } = await look()
  const { code, stdout } = await host.cli('upgrade', 'v1.2.0', '-y', '--allow-irreversible', '--json')
  is(code, 8, stdout)
  is((await host.status()).instance.version, 'v1.0.0')
  is((await look()).rows, rows)
  const { stateMoved, error } = (await host.status()).operation ?? {}
  ok(Number(await sqlIn(stateMoved?.aside ?? '', 'SELECT count(*) FROM notes')) < ROWS * 0.6)
  is(stateMoved?.rows, 2, error?.message)
  match(error?.message ?? '', `; what clients have written since then, with 2 new rows, is in ${stateMoved?.aside}`)
  match(
    error?.hint ?? '',
    '`beacon state list` shows it; to bring it back, run `beacon stop`, then `beacon state restore NAME`',
  )
  match(stdout, 'state restore NAME')
})

test.long('somebody else has the database open: a release with no way back is put off, and not blamed', async () => {
  await migrate(`database.exec('DELETE FROM notes WHERE id % 3 = 0')`)
  const before = await look()
  const script = `import sqlite3, time; c = sqlite3.connect('${STATE}/ledger.db'); c.execute('SELECT 1 FROM notes').fetchone(); open('${STATE}/is-open', 'w'); time.sleep(60)`
  const other = host.run(['timeout', '60', 'python3', '-c', script], { user: 'beacon' })
  await eventually('the other process', async () => (await host.run(['test', '-e', `${STATE}/is-open`])).code === 0)
  const { code, stderr } = await host.cli('upgrade', 'v1.2.0', '-y', '--allow-irreversible')
  is(code, 8, stderr)
  match(stderr, /python3\S* \(pid \d+\) has \/var\/lib\/beacon\/ledger\.db open/)
  equal((await look()).rows, before.rows)
  is((await host.status()).instance.version, 'v1.0.0')
  await host.run(['pkill', '-f', 'is-open'])
  await other
  is((await host.status()).operation?.stateMoved, undefined)
})

test('a migration that fails: verify_failed with its last words, and nothing has changed', async () => {
  await migrate(`database.exec("ALTER TABLE notes ADD COLUMN half TEXT"); throw new Error('half-way')`)
  const before = await look()
  const { code, stderr } = await host.cli('upgrade', 'v1.3.0', '-y')
  is(code, 5, stderr)
  match(stderr, /v1\.3\.0 fails on a copy of the data: it exited with code 1, saying \\?"Error: half-way/)
  equal(await look(), before)
  await emptied()
})

test('a hostile release reaches nothing outside of the copy', async () => {
  await host.ok(
    'sh',
    '-c',
    'mkdir -p /var/lib/other && cd /var/lib/other && echo x >state && mkfifo -m 666 fifo && (sleep 100 <>fifo >/dev/null 2>&1 &) && echo A=1 >/opt/beacon/.env && usermod -aG tty beacon && mkdir -p /srv/other && echo w >/srv/other/world && chmod 666 /srv/other/world && echo t >/tmp/canary && chmod 666 /tmp/canary',
  )
  const serve =
    "import socket, os, time; s = socket.socket(socket.AF_UNIX); s.bind('/var/lib/other/socket'); os.chmod('/var/lib/other/socket', 0o666); s.listen(); time.sleep(100)"
  const other = host.run(['timeout', '100', 'python3', '-c', serve])
  await eventually('the socket', async () => (await host.run(['test', '-S', '/var/lib/other/socket'])).code === 0)
  await host.run(['sh', '-c', `printf live >${STATE}/canary; chown beacon: ${STATE}/canary`])
  const { MainPID = '' } = await host.show('MainPID')
  await put(host, `${STATE}/live.pid`, MainPID)
  await migrate(await readFile(join(import.meta.dirname, 'fixtures', 'ledger', 'hostile.js'), 'utf8'))
  const before = await look()
  const { code, stderr } = await host.cli('upgrade', 'v1.3.0', '-y')
  is(code, 5, stderr)
  match(stderr, /saying \\?"Error: tried \d\d, through: none/)
  equal(await look(), before)
  is(await host.ok('cat', '/srv/other/world', '/tmp/canary', `${STATE}/canary`), 'w\nt\nlive')
  await host.run(['rm', '/opt/beacon/.env'])
  void other
  await emptied()
})

const CLUMSY = {
  'kill -9 -1': `process.kill(-1, 'SIGKILL'); await_()`,
  'a daemon': `require('node:child_process').spawn('/usr/bin/setsid', ['-f', '/bin/sh', '-c', 'trap "" TERM HUP; exec sleep 4242'], { detached: true, stdio: 'ignore' }).unref(); setTimeout(() => process.exit(3), 300); await_()`,
  'forks without end': `const cp = require('node:child_process'); for (let i = 0; i < 3000; i++) { const c = cp.spawn('/bin/sleep', ['60'], { stdio: 'ignore' }); c.on('error', () => process.exit(4)); if (!c.pid) break } throw new Error('refused')`,
  'memory without end': `const a = []; for (;;) a.push(Buffer.alloc(64 << 20, 1))`,
  'a file without end': `const fs = require('node:fs'), f = fs.openSync(state + '/big', 'w'), b = Buffer.alloc(8 << 20); for (let i = 0; i < 4096; i++) fs.writeSync(f, b)`,
  'folders that nobody can read': `const fs = require('node:fs'); fs.mkdirSync(state + '/d/e', { recursive: true }); fs.writeFileSync(state + '/d/e/f', 'x'); fs.chmodSync(state + '/d/e', 0); fs.chmodSync(state + '/d', 0); throw new Error('made')`,
  'files without end': `const fs = require('node:fs'); fs.mkdirSync(state + '/m'); try { for (let i = 0; i < 1e6; i++) fs.writeFileSync(state + '/m/' + i, '') } catch { database.exec('DELETE FROM notes') }`,
} as const

/** each limit of the cage is seen to be set in systemd-cage.test.ts, so CI exhausts none; a daemon ends as what `kill -9 -1` leaves does */
const IN_CI = ['kill -9 -1', 'files without end']

for (const [what, text] of Object.entries(CLUMSY)) {
  const register = IN_CI.includes(what) ? test : test.long
  register(
    `a release that makes ${what}: the live service and its data are as before, and nothing is left`,
    async () => {
      await host.ok('systemctl', 'reset-failed')
      await migrate(text.replace('await_()', 'return new Promise(() => setInterval(() => {}, 1000))'))
      await put(host, `${STATE}/case`, what) // so that it is not known from before
      const before = await look()
      const { code, stderr } = await host.cli('upgrade', 'v1.3.0', '-y', '--health-timeout', '120s')
      const status = await host.status()
      ok(code === 5 || code === 7, `${code}: ${stderr}`)
      match(stderr, /on a copy of (the|your) data/)
      equal(await look(), before)
      is(status.instance.version, 'v1.0.0')
      await emptied()
    },
  )
}

test.long(
  'the service is killed in the middle of a rehearsal: the next start is the old one, and the copy is gone',
  async () => {
    await migrate('return new Promise((resolve) => setTimeout(resolve, 60_000))')
    is((await host.ask('POST', '', { tag: 'v1.3.0' })).status, 202)
    await eventually('the rehearsal', async () => /request/.test(await host.ok('ls', '-A', CAGE)))
    const { MainPID = '' } = await host.show('MainPID')
    await host.ok('kill', '-KILL', MainPID)
    await eventually('the next start', async () => (await host.status()).instance.version === 'v1.0.0')
    await emptied()
    is((await host.status()).operation?.outcome, 'failed')
  },
)

test.long(
  'the service is killed at random instants of a rehearsal: one whole release serves afterwards, every row is there, no copy is left',
  async () => {
    await migrate(`database.exec('CREATE INDEX IF NOT EXISTS by_text ON notes(text)')`)
    const { rows } = await look()
    for (let kill = 0; kill < 6; kill++) {
      await sql(`PRAGMA user_version = ${100 + kill}`) // so that it is not known from before
      await host.ok('systemctl', 'reset-failed')
      is((await host.ask('POST', '', { tag: 'v1.3.0' })).status, 202)
      await sleep(600 + kill * 350)
      const { MainPID = '' } = await host.show('MainPID')
      await host.run(['kill', '-KILL', MainPID])
      const { operation, instance } = await ended()
      const where = `kill ${kill}: ${operation?.outcome}, ${operation?.stage}, ${instance.version}`
      is(instance.version, operation?.outcome === 'updated' ? 'v1.3.0' : 'v1.0.0', where)
      is((await look()).rows, rows, where)
      await emptied()
      if (instance.version !== 'v1.0.0') is((await host.cli('rollback', '-y')).code, 0, where)
    }
  },
)

test('the cage is killed in the middle: not tried or failed, and the service goes on', async () => {
  await migrate('return new Promise((resolve) => setTimeout(resolve, 60_000))')
  await sql('PRAGMA user_version = 200') // so that it is not known from before
  is((await host.ask('POST', '', { tag: 'v1.3.0' })).status, 202)
  await eventually('the candidate', async () => {
    return (await host.run(['pgrep', '-f', '[.]beacon[.]partial serve'])).code === 0
  })
  await host.ok('systemctl', 'kill', '--signal=KILL', 'beacon-trial.service')
  const { operation, instance } = await ended()
  is(operation?.outcome, 'failed', JSON.stringify(operation))
  is(operation?.error?.code, 'verify_failed', JSON.stringify(operation))
  is(instance.version, 'v1.0.0')
  await emptied()
})

test.long('without its path unit it is not tried: the update says so and goes on as before', async () => {
  await migrate('')
  await sql('PRAGMA user_version = 5') // so that it is not known from before
  await host.ok('systemctl', 'stop', 'beacon-trial.path')
  const { code, stdout, stderr } = await host.cli('upgrade', 'v1.1.0', '-y', '--json')
  is(code, 0, stderr)
  const { trial: rehearsal } = operationIn(stdout)
  is(rehearsal?.verdict, 'untried')
  match(rehearsal?.hint ?? '', /systemctl start beacon-trial\.path/)
  await emptied()
  await host.ok('systemctl', 'start', 'beacon-trial.path')
  await host.cli('rollback', '-y')
})

test.long(
  'the service is stopped: the command rehearses too, and a release with no way back needs the same word',
  async () => {
    await sql('PRAGMA user_version = 300') // so that it is not known from before
    await migrate(`database.exec('DELETE FROM notes WHERE id % 2 = 0')`)
    is((await host.cli('stop')).code, 0)
    const rows = await sql('SELECT count(*), max(id) FROM notes')
    const refused = await host.cli('upgrade', 'v1.2.0', '-y')
    is(refused.code, 7, refused.stderr)
    match(refused.stderr, /v1\.2\.0 would change the data irreversibly/)
    is(await sql('SELECT count(*), max(id) FROM notes'), rows)
    await emptied()
    const done = await host.cli('upgrade', 'v1.2.0', '-y', '--allow-irreversible')
    is(done.code, 0, done.stderr)
    ok((await sql('SELECT count(*), max(id) FROM notes')) !== rows)
    await migrate('')
    is((await host.cli('stop')).code, 0)
    const back = await host.cli('rollback', '-y', '--restore-state')
    is(back.code, 0, back.stderr)
    match(back.stdout, /the database is now a copy of \S+; the previous database was set aside as \S+aside/)
    is(await sql('SELECT count(*), max(id) FROM notes'), rows)
  },
)

test.long('state lists what updates have left, and takes a copy back while the service is stopped', async () => {
  const { stdout } = await host.cli('state', '--json')
  const copies = (eventsIn(stdout).at(-1)?.['copies'] ?? []) as { name: string; kind: string; tag: string }[]
  ok(copies.some(({ kind }) => kind === 'aside'))
  const { name = '' } = copies.find(({ kind, tag }) => kind === 'snapshot' && tag === 'v1.0.0') ?? {}
  const running = await host.cli('state', 'restore', name, '-y')
  is(running.code, 7, running.stderr)
  const before = await sql('SELECT count(*) FROM notes')
  is((await host.cli('stop')).code, 0)
  is((await host.cli('state', 'restore', '../../etc/passwd', '-y')).code, 2)
  const done = await host.cli('state', 'restore', name, '-y', '--json')
  is(done.code, 0, done.stderr)
  const { aside } = eventsIn(done.stdout).at(-1) as { aside?: string }
  is(await sqlIn(aside ?? '', 'SELECT count(*) FROM notes'), before)
  const lie = async () =>
    (await host.ok('sh', '-c', `ls ${STATE}/update/aside | grep -vE -- '-(wal|shm)$'`)).trim().split('\n').length
  const all = await lie()
  ok(all > 1)
  const dry = await host.cli('state', 'clean', '-n')
  match(dry.stdout, 'would be removed')
  is(await lie(), all)
  is((await host.cli('state', 'clean', 'journal.json', '-y')).code, 2)
  is((await host.cli('state', 'clean', '-y')).code, 0)
  is(await lie(), 1)
  const kept = (await host.cli('state', 'clean', '-y')).stdout
  const [, newest = ''] =
    /^nothing to remove; `beacon state clean (\S+)` removes the newest database that was set aside$/m.exec(kept) ?? []
  is((await host.cli('state', 'clean', newest, '-y')).code, 0, kept)
  match((await host.cli('state', 'clean', '-y')).stdout, /^nothing to remove$/m)
  is((await host.cli('start')).code, 0)
  match(await sql('SELECT count(*) FROM notes'), /^\d+$/)
})

test.long(
  "the service's user cannot exchange the folder that root binds, and an uninstall leaves nothing of the cage",
  async () => {
    const moved = await host.run(['mv', CAGE, `${CAGE}-x`], { user: 'beacon' })
    ok(moved.code !== 0)
    is((await host.cli('uninstall', '-y')).code, 0)
    is(
      (
        await host.run([
          'ls',
          CAGE,
          '/etc/systemd/system/beacon-trial.path',
          '/etc/systemd/system/beacon-trial.service',
        ])
      ).stdout,
      '',
    )
    await host.ok('test', '-f', `${STATE}/ledger.db`)
  },
)

test.run()

async function migrate(text: string): Promise<void> {
  await put(host, `${STATE}/migration.js`, text)
}

async function sql(statement: string): Promise<string> {
  return await sqlIn(`${STATE}/ledger.db`, statement)
}

async function sqlIn(path: string, statement: string): Promise<string> {
  return (await host.sql(statement, path)).trim()
}

/** What must be as it was: who serves, and what is in the database. */
async function look() {
  const { instance } = await host.status()
  return {
    instance,
    rows: await sql('SELECT count(*), max(id) FROM notes'),
    schema: await sql('SELECT sql FROM sqlite_schema'),
  }
}

async function ended() {
  return await eventually(
    'the outcome',
    async () => {
      const status = await host.status().catch(() => null)
      return status?.state === 'idle' ? status : null
    },
    90_000,
  )
}

async function emptied(): Promise<void> {
  await eventually('an empty cage', async () => {
    const { stdout } = await host.run([
      'sh',
      '-c',
      `ls -A ${CAGE}; cat /sys/fs/cgroup/system.slice/beacon-trial.service/cgroup.procs`,
    ])
    return stdout.trim() === '' && (await host.run(['pgrep', '-f', 'sleep 4242'])).code !== 0
  })
}

function operationIn(stdout: string): Operation {
  return eventsIn(stdout).at(-1)?.['operation'] as Operation
}
