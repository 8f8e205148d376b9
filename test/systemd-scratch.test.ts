// @long @deadlineMs 600000
// A service whose rows are in a real PostgreSQL, in the cage that the installer makes: a trial has the operator's scratch database, and nothing else.

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Operation } from '../agent/words/state.ts'
import { run } from '../deploy/lib/shell.ts'
import { parseProject } from '../deploy/make/project.ts'
import { updateReleases } from '../deploy/make/release-folder.ts'
import { equal, is, match } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { madeOnce } from './fixtures/releases.ts'
import { lacks, POSTGRES_BIN } from './lab/database-server.ts'
import { bootWithFeed, eventsIn, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: scratch', { skip: noHosts ?? lacks('postgresql'), timeoutMs: 240_000 })
const SOCKETS = '/run/postgresql'
const program = (name: string) => join(POSTGRES_BIN, name)
const SNAPSHOT = {
  command: [program('pg_dump'), '--format=custom', '--file={file}', 'shop'],
  restore: [program('pg_restore'), '--clean', '--if-exists', '--single-transaction', '--dbname=shop', '{file}'],
  check: [program('pg_restore'), '--list', '{file}'],
}
const SCRATCH = {
  // which database, only its environment says
  restore: ['sh', '-c', `${program('pg_restore')} --clean --if-exists --dbname="$PGDATABASE" "$0"`, '{file}'],
  environment: { PGHOST: SOCKETS, PGUSER: 'keeper', PGDATABASE: 'scratch' },
}
const UPDATE = { probation: '1s', quietTimeout: '500ms', trial: 'auto' }
const TAGS = ['v1.0.0', 'v1.1.0', 'v1.2.0', 'v1.3.0']

let host: FeedHost

test.before(async () => {
  const built = await madeOnce('server-rows', async (folder) => {
    const about = { service: 'beacon', kind: 'bundle', entry: 'server-rows.js', healthPath: '/health' }
    const trial = { requests: [{ method: 'POST', path: '/notes', status: 201 }] }
    const sources = join(import.meta.dirname, 'fixtures/ledger')
    const project = parseProject({ ...about, trial, snapshot: SNAPSHOT }, sources)
    await buildTags({ project, out: folder }, TAGS)
  })
  host = await bootWithFeed(async (out) => {
    for (const tag of TAGS) await run(['cp', '-al', join(built, tag), join(out, tag)])
    await updateReleases(out, 'beacon')
  })
  await startPostgres()
  await put(
    host,
    '/etc/systemd/system/beacon.service.d/postgres.conf',
    `[Service]\nEnvironment=PGHOST=${SOCKETS} PGUSER=keeper PGDATABASE=shop\n`,
  )
  await host.install({ ...UPDATE, scratch: SCRATCH })
  await sql("INSERT INTO notes (text) SELECT 'note ' || i FROM generate_series(1, 1000) AS i")
})
test.after(async () => await host.off())

test('a cage that does not see the server tries nothing, says so, and the update goes on', async () => {
  const { trial, outcome } = await upgrade('v1.1.0')
  equal([outcome, trial?.verdict], ['updated', 'untried'], JSON.stringify(trial))
  match(trial?.reason ?? '', /v1\.0\.0/)
  equal(await sql('SELECT count(*) FROM started WHERE is_trial'), '0')
  await emptied()
  is((await host.cli('rollback', '-y')).code, 0)
})

test('with the socket in the cage the releases run on the scratch database, and on nothing else', async () => {
  // as docs/author/database.md says
  await put(
    host,
    '/etc/systemd/system/beacon-trial.service.d/override.conf',
    `[Service]\nBindReadOnlyPaths=${SOCKETS}\n`,
  )
  await host.ok('systemctl', 'daemon-reload')
  await migrates('ALTER TABLE notes ADD COLUMN colour TEXT')
  const before = await sql('SELECT count(*) FROM notes')
  const { trial, outcome, copies = [] } = await upgrade('v1.2.0')
  equal([outcome, trial?.verdict, copies.length], ['updated', 'unproven', 1], JSON.stringify(trial))
  match(trial?.reason ?? '', /data outside SQLite is not compared/)
  equal(await sql('SELECT count(*) FROM notes'), before, 'the requests of the trial went elsewhere')
  equal(await sql('SELECT count(*) FROM started WHERE is_trial'), '0')
  equal(await sql('SELECT DISTINCT tag FROM started WHERE is_trial ORDER BY tag', 'scratch'), 'v1.0.0\nv1.2.0')
  equal(await sql('SELECT count(colour) FROM notes'), '0', 'this time it was the real one')
  await emptied()
  is((await host.cli('rollback', '-y')).code, 0)
})

test('a migration that the release before cannot work on is refused, and the rows are as they were', async () => {
  await migrates('DROP TABLE notes; CREATE TABLE notes (m INT NOT NULL, o INT NOT NULL, text TEXT)')
  const before = await sql('SELECT count(*), max(id) FROM notes')
  const { code, stdout, stderr } = await host.cli('upgrade', 'v1.3.0', '-y', '--json')
  is(code, 7, stdout + stderr)
  match(stdout, /would change the data irreversibly: .*does not work with the data/)
  equal([await sql('SELECT count(*), max(id) FROM notes'), (await host.status()).instance.version], [before, 'v1.0.0'])
  await emptied()
})

test.run()

/** One of the host's own, as a unit. */
async function startPostgres(): Promise<void> {
  const data = '/var/lib/rows'
  const as = ['runuser', '-u', 'postgres', '--']
  await host.ok('install', '-d', '-o', 'postgres', '-g', 'postgres', '-m', '700', data)
  await host.ok(...as, program('initdb'), '-D', data, '-U', 'keeper', '-A', 'trust', '--no-sync')
  const server = [program('postgres'), '-D', data, '-k', SOCKETS, '-c', 'listen_addresses=', '-c', 'fsync=off']
  const unit = [
    '--unit=rows',
    '--uid=postgres',
    '--property=RuntimeDirectory=postgresql',
    '--property=KillSignal=SIGINT',
  ]
  await host.ok('systemd-run', '--quiet', ...unit, ...server)
  await eventually('the server', async () => (await sql('SELECT 1', 'postgres')) === '1')
  for (const name of ['shop', 'scratch']) await sql(`CREATE DATABASE ${name}`, 'postgres')
}

async function sql(statement: string, database = 'shop'): Promise<string> {
  const words = ['-h', SOCKETS, '-U', 'keeper', '-d', database, '-qAtX', '-c', statement]
  return (await host.ok(program('psql'), ...words)).trim()
}

async function migrates(statement: string): Promise<void> {
  await sql(`DELETE FROM migration; INSERT INTO migration VALUES ('${statement}')`)
}

async function upgrade(tag: string): Promise<Operation> {
  const { code, stdout, stderr } = await host.cli('upgrade', tag, '-y', '--json')
  is(code, 0, stdout + stderr)
  return eventsIn(stdout).at(-1)?.['operation'] as Operation
}

async function emptied(): Promise<void> {
  await eventually(
    'the cage to be empty',
    async () => (await readdir(await host.path('/var/lib/beacon-trial'))).length === 0,
  )
}
