// @long
// The reference service goes through the history of its schema on a host: each step forward, back, forth again, back with its data.
// test/history.test.ts has the rehearsals alone.

import { HISTORY } from '../agent/service/schema.ts'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { buildHistory, STEPS, tagAt } from './lab/history.ts'
import { bootWithFeed, DATABASE, eventsIn, type FeedHost } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: history', { skip: noHosts, timeoutMs: 240_000 })
const ROWS = 100_000
const LAST = HISTORY.length
let host: FeedHost
let written = 0

test.before(async () => {
  host = await bootWithFeed(async (out) => await buildHistory(out, [1, ...WAY, LAST], 'bundle'))
  await begin()
})
test.after(async () => await host.off())

const WAY = STEPS.slice(1, -1)

for (const [at, to] of WAY.entries()) {
  const from = WAY[at - 1] ?? 1
  test(`from schema ${from} to ${to}: open, and either release serves every row, before and after`, async () => {
    is(await write(), await count())
    is((await upgrade(to)).verdict, 'reversible')
    is(await write(), await count())
    is((await host.cli('rollback', '-y')).code, 0)
    await serves(to - 1)
    is(await write(), await count())
    is((await upgrade(to)).verdict, 'reversible')
    is(await write(), await count())
  })

  test(`from schema ${to} back to ${to - 1} with the data of before: what was written since lies aside`, async () => {
    const all = await count()
    const { stdout, stderr, code } = await host.cli('rollback', '-y', '--restore-state', '--json')
    is(code, 0, stderr)
    await serves(to - 1)
    const { stateMoved } = operationIn(stdout)
    is(await count(stateMoved?.aside), all)
    written += (await count()) - all
    is(await userVersion(), to) // it had been there and back before this update
    is(await write(), await count())
    is((await upgrade(to)).verdict, 'reversible')
  })
}

test('the last step has no way back: a person allows it, and only the data of before lead back', async () => {
  const refused = await host.cli('upgrade', tagAt(LAST), '-y')
  is(refused.code, 7, refused.stderr)
  match(
    refused.stderr,
    /would change the data irreversibly: v1\.5\.0 does not start with the data that v1\.6\.0 leaves behind/,
  )
  await serves(LAST - 1)
  is((await upgrade(LAST, '--allow-irreversible')).verdict, 'irreversible')
  const before = await count()
  is(await write(), await count())
  is((await host.cli('rollback', '-y')).code, 7)
  await serves(LAST)
  is((await host.cli('rollback', '-y', '--restore-state')).code, 0)
  await serves(LAST - 1)
  is(await count(), before)
})

test('back by two releases with the data of then, while it runs and while it is stopped; without a copy of them nothing changes', async () => {
  is((await upgrade(LAST, '--allow-irreversible')).verdict, 'irreversible')
  await write() // a row that the older data have not
  const newest = await count()
  const none = await host.cli('state', 'back', tagAt(1), '-y')
  is(none.code, 7, none.stderr)
  match(none.stderr, /there is no snapshot of beacon\.db for v1\.1\.0 in/)
  is((await host.cli('state', 'back', '-y')).code, 2)
  is((await host.ask('POST', '', { restoreState: true })).status, 400)
  const foretold = await host.cli('state', 'back', tagAt(LAST - 2), '--dry-run')
  is(foretold.code, 0, foretold.stderr)
  match(foretold.stdout + foretold.stderr, /the switch: stop-first/)
  await serves(LAST)
  for (const isStopped of [false, true]) {
    if (isStopped) is((await host.cli('stop')).code, 0)
    const { code, stdout, stderr } = await host.cli('state', 'back', tagAt(LAST - 2), '-y', '--json')
    is(code, 0, stderr)
    await serves(LAST - 2)
    ok((await userVersion()) < LAST)
    const { stateMoved } = operationIn(stdout)
    is(await count(stateMoved?.aside ?? 'nowhere'), newest, isStopped ? 'stopped' : 'running')
    ok((await count()) < newest)
    const forth = await host.cli('rollback', '-y', '--restore-state')
    is(forth.code, 0, forth.stderr)
    await serves(LAST)
    is(await count(), newest)
  }
})

// test/history.test.ts has the verdict of the jump
test.long('from the oldest to the newest in one jump, and back', async () => {
  is((await host.cli('uninstall', '-y', '--purge', '--confirm', 'beacon')).code, 0)
  await begin()
  const before = await count()
  const refused = await host.deploy('--release', tagAt(LAST))
  is(refused.code, 7, refused.stderr)
  const { code, stdout, stderr } = await host.deploy('--release', tagAt(LAST), '--allow-irreversible')
  is(code, 0, stderr)
  match(stdout, /^tried earlier on a copy of your data .*: cannot be rolled back: v1\.1\.0 does not start/m)
  is(await userVersion(), LAST)
  is(await count(), before)
  is(await write(), await count())
  is((await host.cli('rollback', '-y')).code, 7)
  is((await host.cli('rollback', '-y', '--restore-state')).code, 0)
  await serves(1)
  is(await count(), before)
  is(await userVersion(), 1)
})

test.run()

/** v1.1.0 with many rows. */
async function begin(): Promise<void> {
  await host.install({ probation: '1s', quietTimeout: '500ms', trial: 'auto' }, tagAt(1))
  await host.sql(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ${ROWS})
    insert into quota (token_id, used, created_at) select 'token ' || (i % 100), i, '2026-11-21T08:00:00.000Z' from n`)
  written = ROWS
}

async function upgrade(to: number, ...more: string[]) {
  const { code, stdout, stderr } = await host.cli('upgrade', tagAt(to), '-y', '--json', ...more)
  is(code, 0, stderr)
  await serves(to)
  is(await userVersion(), to)
  const { trial: rehearsal } = operationIn(stdout)
  ok((rehearsal?.rows ?? 0) >= ROWS, JSON.stringify(rehearsal))
  return rehearsal ?? { verdict: 'none' }
}

async function serves(schema: number): Promise<void> {
  is((await host.status()).instance.version, tagAt(schema))
}

/** Has the service write a row of each kind; resolves to how many of quota it has acknowledged. */
async function write(): Promise<number> {
  await post('logs', { message: 'written' })
  await post('completions', { key: `key ${written}`, content: 'text' })
  equal((await post('quota', { tokenId: 'written', used: written }))['used'], written)
  return ++written
}

async function post(what: string, body: unknown): Promise<Record<string, unknown>> {
  const curl = ['curl', '-sSf', '--max-time', '10', '-H', 'content-type: application/json']
  const said = await host.ok(...curl, '-d', JSON.stringify(body), `http://127.0.0.1:${await port()}/api/${what}`)
  return JSON.parse(said) as Record<string, unknown>
}

async function port(): Promise<number> {
  const config = JSON.parse(await host.ok('cat', '/etc/beacon/config.json')) as { listen: { port: number } }
  return config.listen.port
}

async function userVersion(): Promise<number> {
  return Number(await host.sql('pragma user_version'))
}

async function count(path = DATABASE): Promise<number> {
  return Number(await host.sql('select count(*) from quota', path))
}

function operationIn(stdout: string): Operation {
  return eventsIn(stdout).at(-1)?.['operation'] as Operation
}
