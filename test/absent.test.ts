// A database that `database` names and that is not there. If the service has kept something else, an update is refused before
// anything is fetched: rows under another name would get no snapshot. If it has kept nothing, there is nothing to lose.

import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Status } from '../agent/index.ts'
import { assertDatabaseThere } from '../agent/update/steps/snapshot.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, rejects, withCode } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('absent database', { timeoutMs: 120_000 })
const AUTO = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'\n`
const KEEPS = `${AUTO}import { mkdirSync } from 'node:fs'
  import { createServer } from 'node:http'
  import { DatabaseSync } from 'node:sqlite'
  mkdirSync('data', { recursive: true })
  const rows = new DatabaseSync('data/orders.db')
  rows.exec('create table if not exists rows (text)')
  createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`

test('an update is refused while rows are kept under another name than the release says; a link gives them their snapshot', async () => {
  await using it = await adopted(KEEPS, { database: 'orders.db' })
  const { stateDirectory } = JSON.parse(await readFile(it.configPath, 'utf8')) as { stateDirectory: string }
  const refused = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([refused.outcome, refused.stage, refused.error?.code], ['failed', 'check', 'refused'])
  match(
    refused.error?.message ?? '',
    `there is no database at ${join(stateDirectory, 'orders.db')}, though the service has files, such as `,
  )
  match(refused.error?.message ?? '', join(stateDirectory, 'data/orders.db'))
  const status = (await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status
  is(status.instance.version, 'v1.0.0')

  const doctor = await it.word('doctor', '--user')
  match(doctor.stdout + doctor.stderr, /warning.*orders\.db does not exist/)
  const dry = await it.word('upgrade', '--user', '--dry-run', 'v1.1.0')
  is(dry.exitCode, 7, dry.stderr)
  match(dry.stderr, 'without it there would be no copy of the data')
  match(dry.stderr, /^hint: if the database has another name, create a symlink to it at that path/m)

  await it.word('stop', '--user', '-q')
  const offline = await it.word('upgrade', '--user', '-y', 'v1.1.0')
  is(offline.exitCode, 7, offline.stderr)
  match(offline.stderr, 'without it there would be no copy of the data')
  is((await it.word('start', '--user', '-q')).exitCode, 0)

  await symlink('data/orders.db', join(stateDirectory, 'orders.db'))
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  const snapshots = await readdir(join(stateDirectory, 'update/snapshots'))
  is(snapshots.length, 1)
  const copy = new DatabaseSync(join(stateDirectory, 'update/snapshots', snapshots[0] ?? ''), { readOnly: true })
  is(copy.prepare('select count(*) as count from rows').get()?.['count'], 0)
  copy.close()

  const untried = /no trial has shown that v1\.0\.0 works with the data .* `shop rollback --restore-state` restores/
  match((await it.word('rollback', '--user', '--dry-run')).stderr, untried)
  const here = await it.word('rollback', 'v1.1.0', '--restore-state', '--user', '-y')
  is(here.exitCode, 7, here.stdout)
  match(here.stderr, /v1\.1\.0 is already in place, so no data was restored\nhint: .*`shop state restore NAME`/)
  const back = await it.word('rollback', '--user', '-y')
  equal([back.exitCode, untried.test(back.stderr)], [0, true], back.stderr)

  const text = await readFile(it.configPath, 'utf8')
  await writeFile(it.configPath, `${text.trimEnd().slice(0, -1)},}`)
  const restarted = await it.word('restart', '--user')
  equal([restarted.exitCode, (await ask(it.port, 'GET', '/healthz', null)).status], [2, 200], restarted.stderr)
  match(restarted.stderr, /^error: reading the configuration \S+config\.json: /)
  await writeFile(it.configPath, text)
})

test('a service that has made no database yet is updated: it has kept nothing, or an empty file says so', async () => {
  await using it = await adopted(KEEPS.replace('new DatabaseSync', 'new (class { exec() {} })'), {
    database: 'orders.db',
  })
  const { stateDirectory } = JSON.parse(await readFile(it.configPath, 'utf8')) as { stateDirectory: string }
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated', 'an empty folder is nothing')
  await writeFile(join(stateDirectory, 'data/upload.txt'), 'kept')
  is((await it.operate('/admin/update', { tag: 'v1.0.0' })).error?.code, 'refused')
  await writeFile(join(stateDirectory, 'orders.db'), '')
  is((await it.operate('/admin/update', { tag: 'v1.0.0' })).outcome, 'rolled_back')
  equal(await readdir(join(stateDirectory, 'update/snapshots')).catch(() => []), [])
})

test('a database of which there is a snapshot was there: it is missed, even if nothing else is kept; none that is named is missed by nobody', async () => {
  await using made = await temporary('absent')
  const state = made.path
  const database = join(state, 'orders.db')
  await assertDatabaseThere(database, state)
  for (const folder of ['update/snapshots', 'run', '.cache', 'lost+found', 'uploads/deep'])
    await mkdir(join(state, folder), { recursive: true })
  for (const file of ['run/shop.log', '.cache/a', 'update/journal.json', 'update/snapshots/other.db.v1.0.0.now'])
    await writeFile(join(state, file), '')
  await assertDatabaseThere(database, state)
  await writeFile(join(state, 'update/snapshots/orders.db.v1.0.0.20260101T000000Z'), '')
  await rejects(() => assertDatabaseThere(database, state), withCode('refused'))
  await assertDatabaseThere(null, state)
  await writeFile(database, '')
  await assertDatabaseThere(database, state)
})

test.run()
