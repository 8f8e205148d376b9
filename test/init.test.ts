// @deadlineMs 240000
// What `init` finds out: nothing is started without the author's word, and what is not seen is not written.

import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { detect } from '../deploy/make/detect.ts'
import { planInit } from '../deploy/make/init.ts'
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

test('a server that a tool makes gets a file around it with the agent in front; one whose source is here, or that has the agent, does not', async () => {
  const scripts = { build: 'vite build' }
  await using kit = await packageWith({ devDependencies: { '@sveltejs/adapter-node': '6.0.1' }, scripts })
  const { files, patch } = planInit(detect(kit.path))
  is(patch, null)
  const around = files.find(({ path }) => path === 'baton.server.mjs')
  match(around?.content ?? '', "import 'baton-kit/auto'\nimport './build/index.js'\n")
  const { entry, build } = JSON.parse(files[0]?.content ?? '') as { entry: string; build: string }
  equal([entry, build], ['baton.server.mjs', 'npm run build'])
  const chosen = { configured: { entry: 'build/index.js' }, shown: null }
  not(planInit(detect(kit.path), chosen).files.some(({ path }) => path === 'baton.server.mjs'))

  await using other = await packageWith({ scripts: { ...scripts, start: 'node ./dist/server/entry.mjs' } })
  is(detect(other.path).made, 'dist/server/entry.mjs')
  await other.write('src/server/entry.ts', '')
  is(detect(other.path).made, null)
  is(detect(other.path).source, 'src/server/entry.ts')

  await using embedded = await packageWith({ scripts: { ...scripts, start: 'node build' } })
  await embedded.write('build/index.js', "import 'baton-kit/auto'")
  equal([detect(embedded.path).made, detect(embedded.path).entry], [null, 'build/index.js'])
})

test('an application that a command of a package starts is told which two lines to write', async () => {
  await using budget = await packageWith({
    type: 'module',
    dependencies: { '@a/server': '1.0.0' },
    scripts: { start: 'a-server --config config.json' },
  })
  await budget.write('node_modules/@a/server/package.json', '{ "bin": { "a-server": "./bin/a.js" } }')
  const { notes } = planInit(detect(budget.path))
  match(
    notes.join(),
    "make server.js with the lines `import 'baton-kit/auto'` and `import './node_modules/@a/server/bin/a.js'`",
  )
  await using runner = await packageWith({ devDependencies: { tsx: '4.0.0' }, scripts: { start: 'tsx a.ts' } })
  await runner.write('node_modules/tsx/package.json', '{ "bin": "./cli.js" }')
  match(planInit(detect(runner.path)).notes.join(), 'which file starts the application?')
})

test('if every path is answered, none is proposed as a health route, and that is said', async () => {
  await using shop = await folderWith(
    `require('node:http').createServer((request, response) => response.end('page')).listen(process.env.PORT, process.env.HOST)`,
  )
  const { stderr } = await shop.init('--yes', '--try')
  match(stderr, 'note: every path answers 2xx, so none could be seen to be a health route')
  is((await shop.config())['healthPath'], undefined)
})

test.run()

// ---- parts

/** An application of nothing but its package.json. */
async function packageWith(manifest: object) {
  const path = await mkdtemp(join(tmpdir(), 'baton-init-'))
  const write = async (name: string, text: string) => {
    await mkdir(dirname(join(path, name)), { recursive: true })
    await writeFile(join(path, name), text)
  }
  await write('package.json', JSON.stringify({ name: 'shop', ...manifest }))
  return { path, write, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

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
