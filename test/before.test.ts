// `before` of baton.config.json: what a start script runs before the application runs in every start and every switch, where it belongs.

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { judge } from '../agent/install.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { releaseFromSource } from '../deploy/make/from-source.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { performHere } from '../deploy/make/rehearse-here.ts'
import { equal, is, match, throws, withCode } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { unpackLedger } from './lab/ledger.ts'
import { eventually } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('before', { timeoutMs: 200_000 })

/**
 * Started as `server.js migrate`, it is the migration: it notes which process serves, which of them live, and what it was given. It fails
 * at the release that is named in the file `bad`, and waits for as long as there is a file `slow`.
 */
const MIGRATES = `import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
  import { join } from 'node:path'
  import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
  const state = process.env.STATE_DIRECTORY
  const text = (name) => existsSync(join(state, name)) ? readFileSync(join(state, name), 'utf8') : ''
  // one that has ended may be a zombie until its parent looks
  const lives = (pid) => { try { return !/\\) Z /.test(readFileSync('/proc/' + pid + '/stat', 'utf8')) } catch { return false } }
  if (process.argv[2] === 'migrate') {
    const isOwnFolder = process.cwd() === import.meta.dirname
    const [, tag, pid] = /^(\\S+) (\\d+)$/m.exec(text('serves')) ?? [0, 'nobody', 0]
    const said = [release.tag, 'after', tag, lives(Number(pid)) ? 'serves' : 'ended', process.argv[3] === state, isOwnFolder]
    appendFileSync(join(state, 'log'), said.join(' ') + '\\n')
    writeFileSync(join(state, 'migrates'), String(process.pid))
    console.log('migrates', release.tag)
    while (existsSync(join(state, 'slow'))) await new Promise((resolve) => setTimeout(resolve, 20))
    if (text('bad') === release.tag) {
      console.error('error: no such column: price')
      process.exit(3)
    }
  } else {
    await import('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { createServer } = await import('node:http')
    writeFileSync(join(state, 'serves'), release.tag + ' ' + process.pid)
    createServer((request, response) => response.end(release.tag)).listen(process.env.PORT, process.env.HOST)
  }`
const BEFORE = { before: [['server.js', 'migrate', '{stateDirectory}']] }

test('stop-first: it runs when the old process has ended, and at a rollback and a crash too; one that fails puts the old release back', async () => {
  await using it = await adopted(MIGRATES, BEFORE)
  const { log, state } = await placesOf(it)
  is((await it.operate('/admin/update')).outcome, 'updated')
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
  const first = 'v1.0.0 after nobody ended true true'
  const there = 'v1.1.0 after v1.0.0 ended true true'
  const back = 'v1.0.0 after v1.1.0 ended true true'
  equal(await log(), [first, there, back])

  await writeFile(join(state, 'bad'), 'v1.1.0')
  const { outcome, error } = await it.operate('/admin/update')
  is(outcome, 'reverted')
  match(
    error?.message ?? '',
    /v1\.1\.0 did not take over: it exited with code 1 after printing: .*no such column: price/,
  )
  match(error?.message ?? '', /`server\.js migrate \S+`, which runs before the application, failed with exit code 3/)
  equal((await log()).slice(3), [there, 'v1.0.0 after v1.0.0 ended true true'])
  const journal = await readFile(join(state, 'update/journal.json'), 'utf8')
  match(journal, /"bad":\s*\[\s*\{\s*"tag":\s*"v1\.1\.0"/)
  match(await readFile(join(state, 'run/shop.log'), 'utf8'), /^migrates v1\.1\.0$/m)

  process.kill(await pidIn(join(state, 'serves')), 'SIGKILL')
  await eventually('the next process', async () => (await log()).length === 6)
  is((await log()).at(-1), 'v1.0.0 after v1.0.0 ended true true')
})

test.long('start-first: it runs while the old process serves', async () => {
  await using it = await adopted(MIGRATES, { ...BEFORE, order: 'start-first' })
  is((await it.operate('/admin/update')).outcome, 'updated')
  is((await (await placesOf(it)).log()).at(-1), 'v1.1.0 after v1.0.0 serves true true')
})

test.long('its time counts to `readyTimeout`, and a release that is given up leaves none behind', async () => {
  await using it = await adopted(MIGRATES, BEFORE, { update: { readyTimeout: '3s' } })
  const { state } = await placesOf(it)
  const [slow, migrates] = [join(state, 'slow'), join(state, 'migrates')]
  await writeFile(slow, '')
  const ends = it.operate('/admin/update', undefined, async () => {
    await eventually('the migration', async () => (await readFile(join(state, 'log'), 'utf8')).includes('v1.1.0'))
    const pid = await pidIn(migrates)
    await eventually('its end', async () => !isAlive(pid), 30_000)
    await rm(slow)
  })
  const { outcome, error } = await ends
  is(outcome, 'reverted')
  match(error?.message ?? '', 'it was not ready within 3000 ms')
})

/** A service whose data `before` migrates: a release runs what stands here in place of MIGRATION. */
const KEEPS = `import { DatabaseSync } from 'node:sqlite'
  import { appendFileSync } from 'node:fs'
  const state = process.env.STATE_DIRECTORY
  const database = new DatabaseSync(state + '/shop.db', { timeout: 5000 })
  if (process.argv[2] === 'migrate') {
    database.exec('CREATE TABLE IF NOT EXISTS notes(id INTEGER PRIMARY KEY, text TEXT)')
    appendFileSync(state + '/log', 'TAG ' + (process.cwd() === import.meta.dirname) + '\\n')
    MIGRATION
  } else {
    await import('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { createServer } = await import('node:http')
    const insert = database.prepare("INSERT INTO notes(text) VALUES ('of TAG')")
    createServer((request, response) => {
      if (request.method === 'POST') insert.run()
      response.end(JSON.stringify(database.prepare('SELECT * FROM notes').all()))
    }).listen(process.env.PORT, process.env.HOST)
  }`

test('a rehearsal runs it on the copy: a migration there opens the way back or closes it, and one that fails is told by its words', async () => {
  await using home = await temporary('before-rehearsed')
  const [folder, feed] = [join(home.path, 'app'), join(home.path, 'feed')]
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  const requests = [{ path: '/' }, { method: 'POST', path: '/' }]
  const config = { service: 'shop', entry: 'server.js', healthPath: '/', database: 'shop.db', trial: { requests } }
  const made = async (tag: string, migration: string) => {
    await writeFile(join(folder, 'server.js'), KEEPS.replaceAll('TAG', tag).replace('MIGRATION', migration))
    const project = parseProject({ ...config, before: [['server.js', 'migrate']] }, folder)
    const progress = createProgress({ quiet: true })
    await releaseFromSource({ project, tag, feed, copies: join(folder, '.baton'), progress })
    const path = join(home.path, tag)
    await unpackLedger(feed, tag, path)
    return path
  }
  const present = await made('v1.0.0', '')
  const tried = async (tag: string, migration: string) => {
    const state = join(home.path, `data-${tag}`)
    await mkdir(state)
    const database = new DatabaseSync(join(state, 'shop.db'))
    database.exec("CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT); INSERT INTO notes(text) VALUES ('a'), ('b')")
    database.close()
    const candidate = await made(tag, migration)
    const report = await performHere({ present, candidate, database: 'shop.db', state, startMs: 30_000 })
    const log = (await readFile(join(state, 'log'), 'utf8')).trim().split('\n')
    return { log, judge: () => judge(report, { from: 'v1.0.0', to: tag }) }
  }
  const adds = await tried('v1.1.0', "database.exec('ALTER TABLE notes ADD COLUMN colour TEXT')")
  equal([adds.judge().verdict, adds.log], ['reversible', ['v1.0.0 true', 'v1.1.0 true', 'v1.0.0 true']])
  const drops = await tried('v1.2.0', "database.exec('DELETE FROM notes WHERE id = 1')")
  is(drops.judge().verdict, 'irreversible')
  const fails = await tried('v1.3.0', "throw new Error('no room for the index')")
  const failure = throws(() => fails.judge(), withCode('verify_failed'))
  match(failure.message, /v1\.3\.0 fails on a copy of the data: .*no room for the index/)
})

test.run()

// ---- parts

async function placesOf(it: Adopted) {
  const { stateDirectory = '' } = JSON.parse(await readFile(it.configPath, 'utf8')) as { stateDirectory?: string }
  const state = stateDirectory === '' ? join(dirname(it.configPath), '../../.local/state/shop') : stateDirectory
  const log = async () => (await readFile(join(state, 'log'), 'utf8')).trim().split('\n')
  return { state, log }
}

async function pidIn(path: string): Promise<number> {
  return Number((await readFile(path, 'utf8')).split(' ').at(-1))
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
