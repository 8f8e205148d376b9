// @deadlineMs 240000
// What `init` finds out: nothing is started without the author's word, and what is not seen is not written.

import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { databasesFor } from '../deploy/make/source-start.ts'
import { equal, is, match, not } from './assert.ts'
import { processesNaming } from './fixtures/adopted.ts'
import { suite } from './suite.ts'

const test = suite('init', { timeoutMs: 120_000 })

/** Opens `./data/orders.db` a moment after it serves, and answers 200 at /ready only. */
const SHOP = `const { mkdirSync, writeFileSync } = require('node:fs')
  const { DatabaseSync } = require('node:sqlite')
  writeFileSync(__dirname + '/started', JSON.stringify({ cwd: process.cwd(), env: Object.keys(process.env) }))
  const answer = (request, response) => response.writeHead(request.url === '/healthz' ? 200 : 404).end()
  for (const port of [Number(process.env.PORT), 0]) require('node:http').createServer(answer).listen(port, process.env.HOST)
  setTimeout(() => {
    mkdirSync('data', { recursive: true })
    globalThis.kept = new DatabaseSync('./data/orders.db')
    globalThis.kept.exec('create table rows (text)')
  }, 300)\n`

test('a text in a source is no database: init writes none, and with --yes it starts nothing', async () => {
  await using shop = await folderWith(SHOP)
  const { stderr } = await shop.init('--yes')
  match(stderr, 'note: the sources name orders.db, and nobody has seen where it lies, so `database` is not written')
  match(stderr, 'database not looked for')
  const config = await shop.config()
  is(config['database'], undefined)
  not((await readdir(shop.path)).includes('started'))
})

test('with --try it is started once, with what an install gives, and what was seen is proposed', async () => {
  await using shop = await folderWith(SHOP)
  const { stderr } = await shop.init('--yes', '--try')
  const { database, healthPath } = await shop.config()
  equal({ database, healthPath }, { database: 'data/orders.db', healthPath: '/healthz' }, stderr)
  not(/nobody has seen/.test(stderr))
  const { cwd, env } = JSON.parse(await readFile(join(shop.path, 'started'), 'utf8')) as { cwd: string; env: string[] }
  not(cwd.startsWith(shop.path))
  equal(
    env.filter((name) => name.startsWith('OWN_')),
    [],
  )
  equal(await processesNaming(shop.path), [])
  not((await readdir(shop.path)).includes('data'))
})

test('what an author has written is not changed: a difference is shown, and a second run shows nothing', async () => {
  await using shop = await folderWith(SHOP)
  const written = { service: 'shop', entry: 'server.js', database: 'orders.db', servers: 2, healthPath: '/healthz' }
  await writeFile(join(shop.path, 'baton.config.json'), JSON.stringify(written))
  const { stderr } = await shop.init('--yes', '--try')
  match(
    stderr,
    '--- baton.config.json\n+++ baton.config.json\n-  "database": "orders.db",\n+  "database": "data/orders.db",\n',
  )
  not(/"healthPath"/.test(stderr), stderr)
  equal(await shop.config(), written)
  await writeFile(join(shop.path, 'baton.config.json'), JSON.stringify({ ...written, database: 'data/orders.db' }))
  not((await shop.init('--yes', '--try')).stderr.includes('+++ baton.config.json'))
})

test('an application that does not start, or is well at no path, is told as a note and keeps nothing from being written', async () => {
  await using broken = await folderWith(`throw new Error('no key')`)
  const said = await broken.init('--yes', '--try')
  match(said.stderr, /note: it was started once, and it ended with exit code 1; it said: [^]*no key/)
  is((await broken.config())['service'], 'shop')

  await using odd = await folderWith(
    `const where = '/healthz'
     require('node:http').createServer((request, response) => response.writeHead(503).end()).listen(0, '127.0.0.1')`,
  )
  const { stderr } = await odd.init('--yes', '--try')
  match(stderr, 'note: the sources name /healthz, which answered 503: it is no `healthPath`')
  match(stderr, /note: it listens on port \d+, whatever PORT says/)
  is((await odd.config())['healthPath'], undefined)
})

test('one database in the state directory is named; of several the author chooses; elsewhere there is none', () => {
  const of = (...paths: string[]) => databasesFor(paths, '/state', '/app')
  equal(of('/state/a.db', '/state/update/lock.db'), { database: 'a.db', notes: [] })
  const several = of('/state/a.db', '/state/b.db')
  is(several.database, null)
  match(several.notes.join(), 'choose of a.db, b.db')
  match(of('/app/data/a.db').notes.join(), 'it opens the database data/a.db in its own folder')
  match(of('/srv/a.db').notes.join(), 'it opens the database /srv/a.db, of which no update makes a snapshot')
})

test.run()

// ---- parts

async function folderWith(text: string) {
  const path = await mkdtemp(join(tmpdir(), 'baton-init-'))
  await mkdir(path, { recursive: true })
  await writeFile(join(path, 'package.json'), JSON.stringify({ name: 'shop', scripts: { start: 'node server.js' } }))
  await writeFile(join(path, 'server.js'), text)
  const tsx = ['--import', import.meta.resolve('tsx')]
  const command = [process.execPath, ...tsx, join(PROJECT, 'deploy/baton.ts'), 'init', '--folder', path]
  return {
    path,
    init: (...flags: string[]) => run([...command, ...flags], { env: { OWN_SECRET: 'of the developer' } }),
    config: async () => JSON.parse(await readFile(join(path, 'baton.config.json'), 'utf8')) as Record<string, unknown>,
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }),
  }
}
