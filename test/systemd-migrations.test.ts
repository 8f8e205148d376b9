// @long @deadlineMs 900000
// Each migration of the table on a host: what a dry run with a trial says beforehand is what the update does, by hand and with a person's
// word, and where it does not go well the data are as before. test/systemd-by-itself.test.ts has the nights, test/container/rehearsal.ts the
// containers, test/rehearsal.test.ts the trial alone.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Rehearsal } from '../agent/words/rehearsal.ts'
import { equal, is, match, ok } from './assert.ts'
import { publishLedgers } from './lab/ledger.ts'
import { bootWithFeed, eventsIn, type FeedHost, put } from './lab/managed.ts'
import { MIGRATIONS } from './lab/migrations.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: migrations', { skip: noHosts, timeoutMs: 180_000 })
const STATE = '/var/lib/beacon'
const DATABASE = `${STATE}/ledger.db`
const ROWS = 2000
const TO = ['v1.1.0']

let host: FeedHost
let schema = 100

test.before(async () => {
  host = await bootWithFeed((out) => publishLedgers(out, ['v1.0.0', 'v1.1.0']))
  await host.install({ probation: '1500ms', quietTimeout: '500ms', trial: 'auto' })
  await sql(`INSERT INTO authors VALUES (1, 'ada'); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})
    INSERT INTO notes SELECT i, 1, 'note ' || i FROM n`)
})
test.after(async () => await host.off())

for (const [what, { text, verdict, exit, foretold = exit, allowed }] of Object.entries(MIGRATIONS)) {
  test(`${what}: foretold ${foretold}, by hand ${exit}${allowed === undefined ? '' : `, with a person's word ${allowed}`}`, async () => {
    await begin(text)
    const before = await look()
    const dry = await host.cli('upgrade', ...TO, '--dry-run', '--trial', '--json')
    is(dry.code, foretold, dry.stdout)
    equal(await look(), before)

    const { code, stdout } = await host.cli('upgrade', ...TO, '-y', '--json')
    is(code, exit, stdout)
    const { trial: rehearsal } = (eventsIn(stdout).at(-1) as { operation?: { trial?: Rehearsal } }).operation ?? {}
    if (verdict !== 'fails') is(rehearsal?.verdict ?? verdict, verdict, stdout)
    if (exit !== 0) equal(await look(), before)
    else await back(before)
    if (allowed === undefined) return

    const word = await host.cli('upgrade', ...TO, '-y', '--allow-irreversible', '--json')
    is(word.code, allowed, word.stdout)
    if (allowed !== 0) equal(await look(), before)
    else await back(before)
  })
}

test('a foreign reader while there is no way back: put off, nobody is blamed, nothing is lost', async () => {
  await begin(MIGRATIONS['renamed']?.text ?? '')
  const before = await look()
  const script = `import sqlite3, time; c = sqlite3.connect('${DATABASE}'); c.execute('SELECT 1 FROM notes').fetchone(); open('${STATE}/is-open', 'w'); time.sleep(45)`
  const reader = host.run(['timeout', '45', 'python3', '-c', script], { user: 'beacon' })
  await eventually('the reader', async () => (await host.run(['test', '-e', `${STATE}/is-open`])).code === 0)
  const { code, stdout } = await host.cli('upgrade', ...TO, '-y', '--allow-irreversible', '--json')
  is(code, 8, stdout)
  match(stdout, /python3\S* \(pid \d+\) has \/var\/lib\/beacon\/ledger\.db open/)
  equal(await look(), before)
  equal((await host.status()).history[0]?.stateMoved, undefined)
  const bad = (eventsIn((await host.cli('check', '--json')).stdout).at(-1)?.['bad'] ?? []) as { reason: string }[]
  ok(!bad.some(({ reason }) => reason.includes('replaced')), JSON.stringify(bad))
  await host.ok('sh', '-c', `kill $(pgrep -u beacon python3)`)
  await reader
})

test('a second writer goes on through an update and a rollback: every row that it was told is kept is there', async () => {
  await begin(MIGRATIONS['additive']?.text ?? '')
  const script = `import sqlite3, time
c = sqlite3.connect('${DATABASE}', timeout=5, isolation_level=None)
for n in range(100000):
    c.execute("INSERT INTO notes(author, text) VALUES (1, 'second " + str(n) + "')")
    open('${STATE}/kept', 'w').write(str(n + 1))
    time.sleep(0.02)`
  const writer = host.run(['timeout', '120', 'python3', '-c', script], { user: 'beacon' })
  await eventually('the writer', async () => (await host.run(['test', '-e', `${STATE}/kept`])).code === 0)
  const { code, stdout } = await host.cli('upgrade', ...TO, '-y', '--json')
  is(code, 0, stdout)
  await sleep(200)
  is((await host.cli('rollback', '-y')).code, 0)
  await host.ok('sh', '-c', `kill $(pgrep -u beacon python3)`)
  await writer
  const kept = Number(await host.ok('cat', `${STATE}/kept`))
  const rows = Number(await sql("SELECT count(*) FROM notes WHERE text LIKE 'second %'"))
  ok(kept > 20 && rows >= kept && rows <= kept + 1, `${rows} of ${kept}`)
  is(await sql('PRAGMA integrity_check'), 'ok')
})

test.run()

/** The next migration, on a schema that no trial knows yet. */
async function begin(text: string): Promise<void> {
  await put(host, `${STATE}/migration.js`, text)
  await sql(`PRAGMA user_version = ${++schema}`)
  await host.ok('systemctl', 'reset-failed')
}

/** Takes the data of before back, and the release. */
async function back(before: Awaited<ReturnType<typeof look>>): Promise<void> {
  const { code, stderr } = await host.cli('rollback', '-y', '--restore-state')
  is(code, 0, stderr)
  equal(await look(), before)
}

async function look() {
  const { instance } = await host.status()
  const notes = await sql('SELECT count(*), max(id), sum(length(text)) FROM notes')
  return { version: instance.version, notes, shape: await sql("SELECT sql FROM sqlite_schema WHERE name = 'notes'") }
}

async function sql(statement: string): Promise<string> {
  return (await host.sql(statement, DATABASE)).trim()
}
