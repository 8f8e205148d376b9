// What `init` finds out: nothing is started without the author's word, and what is not seen is not written.

import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { detect } from '../deploy/make/detect.ts'
import { examineProject } from '../deploy/make/examine.ts'
import { filesOf } from '../deploy/make/files.ts'
import { noteOfAddons, PACKAGE, planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import { updateReleases } from '../deploy/make/release-folder.ts'
import { formatLargest, largestOf } from '../deploy/make/sizes.ts'
import { setUp } from '../deploy/make/set-up.ts'
import { databasesFor, startFromSource } from '../deploy/make/source-start.ts'
import { readNodeCommand, readStart } from '../deploy/make/start-script.ts'
import { howToEmbed } from '../deploy/make/trial-start.ts'
import { equal, is, match, not, rejects, withCode } from './assert.ts'
import { processesNaming } from './fixtures/adopted.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

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
  match(stderr, 'note: the source code mentions orders.db but not its location, so `database` is left unset')
  match(stderr, 'database not checked (use `--try`)')
  const config = await shop.config()
  is(config['database'], undefined)
  not((await readdir(shop.path)).includes('started'))
})

test('packages that no release can hold are told before a build: what Yarn keeps in archives, and a member of a workspace alone', async () => {
  await using shop = await folderWith(SHOP)
  const told = async (folder: string) => (await initIn(folder, '--yes')).stderr
  const wants = (name: string) =>
    JSON.stringify({ name, dependencies: { dep: '*' }, scripts: { start: 'node server.js' } })
  await writeFile(join(shop.path, 'package.json'), wants('shop'))
  await writeFile(join(shop.path, '.pnp.cjs'), '')
  const archived = await told(shop.path)
  match(archived, "fix this before you build: Yarn installed the packages as archives (Plug'n'Play)")
  match(archived, 'hint: run `yarn config set nodeLinker node-modules`')
  not(archived.includes('next: '), archived)

  const app = join(shop.path, 'packages/app')
  for (const folder of [app, join(shop.path, 'node_modules/dep')]) await mkdir(folder, { recursive: true })
  await rm(join(shop.path, '.pnp.cjs'))
  await writeFile(join(shop.path, 'package.json'), '{ "workspaces": ["packages/*"] }')
  await writeFile(join(shop.path, 'node_modules/dep/package.json'), '{ "name": "dep" }')
  await writeFile(join(app, 'package.json'), wants('app'))
  await writeFile(join(app, 'server.js'), SHOP)
  const member = await told(app)
  match(member, /fix this before you build: the package \S+\/node_modules\/dep must be inside \S+\/packages\/app/)
  match(member, '`"entry": "packages/app/server.js"`')
  match(await told(app), 'fix this before you build: ')
  await writeFile(join(app, 'baton.config.json'), '{ "service": "app", "entry": "server.js", "kind": "bundle" }')
  not((await told(app)).includes('before you build'))
})

test.long('with --try it is started once, with what an install gives, and what was seen is proposed', async () => {
  await using shop = await folderWith(SHOP)
  const { stderr } = await shop.init('--yes', '--try')
  const { database, healthPath } = await shop.config()
  equal({ database, healthPath }, { database: 'data/orders.db', healthPath: '/healthz' }, stderr)
  not(/but not its location/.test(stderr))
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
  const again = (await shop.init('--yes', '--try')).stderr
  not(again.includes('+++ baton.config.json'))
  match(again, 'nothing to write: the application is already set up; the points above are for you to decide')
})

test('an application that does not start, or is well at no path, is told as a note and keeps nothing from being written', async () => {
  await using broken = await folderWith(`throw new Error('no key')`)
  const said = await broken.init('--yes', '--try')
  match(said.stderr, /note: in a test run, it exited with code 1 after printing: [^]*no key/)
  is((await broken.config())['service'], 'shop')

  await using odd = await folderWith(
    `const where = '/healthz'
     require('node:http').createServer((request, response) => response.writeHead(503).end()).listen(0, '127.0.0.1')`,
  )
  const { stderr } = await odd.init('--yes', '--try')
  match(stderr, 'note: the source code mentions /healthz, which responded with 503: it cannot be `healthPath`')
  match(
    stderr,
    /note: the application listens on port \d+ and ignores PORT, the variable that tells an installed service its port/,
  )
  is((await odd.config())['healthPath'], undefined)
})

test.long(
  '--try runs what the start script runs before the application, and loads what it loads first; a migration that fails is told',
  async () => {
    const scripts = { prestart: 'node migrate.js', start: 'node --import ./first.mjs server.js' }
    await using shop = await packageWith({ scripts })
    await shop.write('first.mjs', 'globalThis.first = 1')
    const migrate = `require('node:fs').writeFileSync(process.env.STATE_DIRECTORY + '/rows', '')`
    await shop.write('migrate.js', migrate)
    await shop.write(
      'server.js',
      `if (globalThis.first !== 1) throw new Error('not loaded')
     require('node:fs').readFileSync(process.env.STATE_DIRECTORY + '/rows')
     require('node:http').createServer((request, response) => response.end()).listen(process.env.PORT, process.env.HOST)`,
    )
    match((await initIn(shop.path, '--yes', '--try')).stderr, /note: in a test run, it was listening after/)
    const { before, nodeFlags } = JSON.parse(await readFile(join(shop.path, 'baton.config.json'), 'utf8')) as Project
    equal([before, nodeFlags], [[['migrate.js']], ['--import=./first.mjs']])
    await shop.write('migrate.js', `throw new Error('no such column')`)
    match(
      (await initIn(shop.path, '--yes', '--try')).stderr,
      /note: the application was not started: `.*migrate\.js` exited with code 1; output: .*no such column/s,
    )
  },
)

test.long('--try names an application that listens, and ends a second later, with its last words', async () => {
  await using brief = await folderWith(
    `require('node:http').createServer((request, response) => response.end()).listen(process.env.PORT, process.env.HOST)
     setTimeout(() => { throw new Error('no queue') }, 1000)`,
  )
  const { stderr } = await brief.init('--yes', '--try')
  match(
    stderr,
    /note: in a test run, it was listening after .*, but then exited with code 1 after printing: [^]*no queue/,
  )
  is((await brief.config())['healthPath'], undefined)
})

/** How one start of it failed. */
async function failedStart(text: string) {
  await using folder = await folderWith(text)
  const environment = { PORT: '{port}', HOST: '{host}' }
  const project = { environment, args: [], try: { environment: {} }, called: 'baton.config.json' }
  return (await startFromSource(folder.path, detect(folder.path), project)).failed
}

test('a start that fails says whether it ended with an error, and shows nothing of what looks at it', async () => {
  const usage = await failedStart(`console.log('usage: shop serve')`)
  equal([usage?.why, usage?.isFault], ['it exited with code 0 after printing: usage: shop serve', false])
  const absent = await failedStart(`require('node:fs').readdirSync('public')`)
  match(absent?.why ?? '', /^it exited with code 1 after printing: [^]*ENOENT[^]*'public'/)
  is(absent?.isFault, true)
  not.match(absent?.why ?? '', 'data:text/javascript')
})

test.long('a start that listens and does not speak HTTP is told as such', async () => {
  const server = `require('node:net').createServer((socket) => socket.end('220 hello\\r\\n'))`
  const failed = await failedStart(`${server}.listen(process.env.PORT, process.env.HOST)`)
  match(failed?.why ?? '', /^it listens on port \d+, but does not answer over HTTP$/)
  is(failed?.isFault, false)
})

test.long('--try sees what an application opens only when it is asked', async () => {
  await using elsewhere = await packageWith({})
  const path = join(elsewhere.path, 'orders.db')
  await using shop = await folderWith(
    `const { DatabaseSync } = require('node:sqlite')
     require('node:http').createServer((request, response) => {
       globalThis.kept ??= new DatabaseSync('${path}')
       globalThis.kept.exec('create table if not exists rows (text)')
       response.writeHead(request.url === '/healthz' ? 200 : 404).end()
     }).listen(process.env.PORT, process.env.HOST)`,
  )
  match((await shop.init('--yes', '--try')).stderr, `it opens the database ${path}, but updates take no snapshot of it`)
})

test.long('a route that only stands in the sources is not taken, and one that answers is', async () => {
  await using shop = await folderWith(
    `const elsewhere = '/up' // of another service
     require('node:http').createServer(({ url }, response) => response.writeHead(url === '/' + 'healthz' ? 200 : 404).end())
       .listen(process.env.PORT, process.env.HOST)`,
  )
  const { stderr } = await shop.init('--yes', '--try')
  match(stderr, 'note: the source code mentions /up, which responded with 404: it cannot be `healthPath`')
  is((await shop.config())['healthPath'], '/healthz')
})

test('the service has the name that its author asks for, and a configuration that is there keeps its own', async () => {
  await using shop = await folderWith(SHOP)
  await rejects(
    shop.init('--yes', '--service', 'My Shop'),
    /expected a name made of a-z, 0-9 and - for --service, got "My Shop"/,
  )
  await shop.init('--yes', '--service', 'market')
  is((await shop.config())['service'], 'market')
  await rejects(
    shop.init('--yes', '--service', 'shop'),
    /baton\.config\.json already names this service `market`; to rename it, edit that file/,
  )
})

test('one database in the state directory is named; of several the author chooses; elsewhere there is none', () => {
  const of = (...paths: string[]) => databasesFor(paths, '/state', '/app')
  equal(of('/state/a.db', '/state/update/lock.db'), { database: 'a.db', notes: [] })
  const several = of('/state/a.db', '/state/b.db')
  is(several.database, null)
  match(several.notes.join(), 'choose one of a.db, b.db')
  match(of('/app/data/a.db').notes.join(), 'it opens the database data/a.db in its own folder')
  match(of('/srv/a.db').notes.join(), 'it opens the database /srv/a.db, but updates take no snapshot of it')
})

test('the line is one that the file can run: an ES module may be one by its syntax alone', async () => {
  for (const [text, type, line] of [
    ["import { createServer } from 'node:http'\n", undefined, `import '${PACKAGE}/auto'`],
    ["// import\nconst { createServer } = require('node:http')\n", undefined, `require('${PACKAGE}/auto')`],
    ["const x = await import('node:http')\n", 'module', `import '${PACKAGE}/auto'`],
    ["const http = import('node:http')\n", 'commonjs', `require('${PACKAGE}/auto')`],
  ] as const) {
    await using shop = await packageWith({
      ...(type === undefined ? {} : { type }),
      scripts: { start: 'node server.js' },
    })
    await shop.write('server.js', text)
    is(planInit(detect(shop.path)).patch?.line, line, text)
    match(howToEmbed(shop.path, 'server.js'), `make \`${line}\` the first line of server.js`)
  }
})

test('native addons: what npm makes for another Node is said before a build finds it', () => {
  match(
    noteOfAddons(['better-sqlite3'], '20.19.0'),
    /here builds them for Node 20, but a release includes Node 26: .*`npx baton rebuild`/,
  )
  is(
    noteOfAddons(['better-sqlite3'], '26.10.0'),
    'native addons (better-sqlite3): build on each platform that you release for (docs/author/packages.md)',
  )
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

test.long(
  'a server that a package brings gets a file around it, and its arguments are kept; nothing in node_modules is edited',
  async () => {
    const text = `if (require.main === module) console.log('served', process.argv.slice(2).join(' '), globalThis.isEmbedded)\n`
    for (const start of [
      'node node_modules/wiki/wiki.js mine --listen port=8080 host=127.0.0.1',
      'wiki mine --listen port=8080 host=127.0.0.1',
      'NODE_ENV=production npx wiki mine --listen port=$PORT host=${HOST:-0.0.0.0} > log.txt',
    ]) {
      await using wiki = await packageWith({ dependencies: { wiki: '1.0.0' }, scripts: { start } })
      await wiki.write('node_modules/wiki/package.json', '{ "bin": { "wiki": "./wiki.js" } }')
      await wiki.write('node_modules/wiki/wiki.js', text)
      await wiki.write('node_modules/baton-kit/package.json', '{ "exports": { "./auto": "./auto.js" } }')
      await wiki.write('node_modules/baton-kit/auto.js', 'globalThis.isEmbedded = true')
      await wiki.write('mine/tiddlywiki.info', '')
      const { stderr } = await initIn(wiki.path, '--yes')
      match(
        stderr,
        'Nothing in node_modules is edited: instead, baton.server.mjs loads the agent, then the package',
        start,
      )
      match(
        stderr,
        'note: `args` contains mine, but an install starts the application in the state directory, so it looks there, not here',
      )
      is(await readFile(join(wiki.path, 'node_modules/wiki/wiki.js'), 'utf8'), text)
      const { entry, args } = await configIn(wiki.path)
      equal([entry, args], ['baton.server.mjs', ['mine', '--listen', 'port={port}', 'host={host}']], start)
      const served = await run([process.execPath, join(wiki.path, 'baton.server.mjs'), 'mine'])
      is(served.stdout.trim(), 'served mine true')
      match((await initIn(wiki.path, '--yes')).stderr, 'nothing to write: the application is already set up')
      const agent = (await examineProject(wiki.path)).find(({ check }) => check === 'agent')
      equal([agent?.level, agent?.message], ['ok', 'baton.server.mjs loads Baton'])
    }
  },
)

test('what a framework’s own command is given is none of the server’s: `next start` leaves the operator the word `start`', async () => {
  for (const [name, bin] of [
    ['next', 'next'],
    ['@nestjs/core', 'nest'],
  ] as const) {
    const scripts = { build: `${bin} build`, start: `${bin} start --port 4000` }
    await using site = await packageWith({ dependencies: { [name]: '1.0.0' }, scripts })
    await site.write(`node_modules/${name}/package.json`, `{ "bin": { "${bin}": "./cli.js" } }`)
    const { args, words } = detect(site.path)
    equal([args, words], [[], []], name)
  }
})

test('what forks workers of node:cluster is named: in a package whose command the start script runs, until its inner module is loaded', async () => {
  await using wiki = await packageWith({ dependencies: { 'wiki-server': '1.0.0' }, scripts: { start: 'wiki-server' } })
  const inside = (path: string, text: string) => wiki.write(`node_modules/wiki-server/${path}`, text)
  await inside('package.json', '{ "name": "wiki-server", "version": "1.0.0", "bin": "bin/wiki.js" }')
  await inside('bin/wiki.js', `#!/usr/bin/env node\nconst { run } = require('../lib/main')\nrun()\n`)
  const forks = `const cluster = require('node:cluster')
    exports.run = () => (cluster.isPrimary ? cluster.fork() : require('./server.js'))`
  await inside('lib/main.js', forks)
  await inside('lib/server.js', `require('node:http').createServer().listen(process.env.PORT, process.env.HOST)`)
  const named = 'node_modules/wiki-server/lib/main.js starts node:cluster workers'
  const { stderr } = await initIn(wiki.path, '--yes')
  match(
    stderr,
    `note: ${named}; a service of several processes runs, but cannot be updated, as an update replaces one process: write a`,
  )
  const about = async () => (await examineProject(wiki.path)).find(({ check }) => check === 'processes')
  const found = await about()
  equal([found?.level, found?.message.startsWith(named)], ['warning', true])
  match(found?.hint ?? '', '"A command that starts a cluster"')

  await wiki.write('baton.server.mjs', `import 'baton-kit/auto'\nimport './node_modules/wiki-server/lib/server.js'\n`)
  is((await about())?.level, 'ok')
  not((await initIn(wiki.path, '--yes')).stderr.includes('node:cluster workers'))

  await using own = await folderWith(forks.replace("require('./server.js')", 'undefined'))
  match((await own.init('--yes')).stderr, /note: server\.js .*: set `entry` to the file that a worker runs/)
})

test('an application that makes its own folder the working folder is named, with the relative paths in `args` and what to do', async () => {
  const entry = (how: string) => `require('./lib/start')\n${how}`
  await using own = await packageWith({
    scripts: { start: 'node server.js --rules ./rules.json data/shop.json --mode=fast' },
  })
  await own.write('server.js', entry(''))
  await own.write('lib/start.js', `process.chdir(__dirname)`)
  const folder = async () => (await examineProject(own.path)).find(({ check }) => check === 'folder')
  match(
    (await initIn(own.path, '--yes')).stderr,
    /note: lib\/start\.js changes the working directory .* install every relative path \(including \.\/rules\.json and data\/shop\.json in `args`\) is .*: remove the call, and use `import\.meta\.dirname`/,
  )
  const found = await folder()
  equal([found?.level, found?.message.includes('./rules.json and data/shop.json in `args`')], ['warning', true])
  match(found?.hint ?? '', '{stateDirectory}')

  await own.write('lib/start.js', '')
  for (const how of [
    `process.chdir(require('node:path').join(__dirname, '..'))`,
    `process.chdir(import.meta.dirname)`,
    `process.chdir(dirname(fileURLToPath(import.meta.url)))`,
    `chdir(new URL('.', import.meta.url).pathname)`,
  ]) {
    await own.write('server.js', entry(how))
    match((await folder())?.message ?? '', /^server\.js changes the working directory /, how)
  }
  await own.write('server.js', entry(`process.chdir(process.env.DATA_DIR)`))
  is((await folder())?.level, 'ok')
  not((await initIn(own.path, '--yes')).stderr.includes('working directory'))
})

test('a configuration whose entry is a file of a package is told of the file around it, which is written', async () => {
  await using wiki = await packageWith({ dependencies: { wiki: '1.0.0' } })
  await wiki.write('node_modules/wiki/wiki.js', '')
  await wiki.write(
    'baton.config.json',
    JSON.stringify({ service: 'wiki', entry: 'node_modules/wiki/wiki.js', healthPath: '/status' }),
  )
  const { stderr } = await initIn(wiki.path, '--yes')
  match(stderr, '-  "entry": "node_modules/wiki/wiki.js",\n+  "entry": "baton.server.mjs",\n')
  not(/no health route was found/.test(stderr), 'the author has named one')
  match(await readFile(join(wiki.path, 'baton.server.mjs'), 'utf8'), "import './node_modules/wiki/wiki.js'\n")
  const hint = howToEmbed(wiki.path, 'node_modules/wiki/wiki.js')
  match(hint, 'run `baton init` to write a file that loads it after the agent')
  match(hint, "`import 'baton-kit/auto'` and `import './node_modules/wiki/wiki.js'`")
  not(/first line of/.test(hint))
})

test('without a start script the command that a package brings is named, and the service has the name of the folder', async () => {
  await using wiki = await packageWith({ name: undefined, dependencies: { 'baton-kit': '1.0.0', wiki: '1.0.0' } })
  await wiki.write('node_modules/wiki/package.json', '{ "bin": "./wiki.js" }')
  await wiki.write('node_modules/baton-kit/package.json', '{ "bin": { "baton": "./bin.js" } }')
  const found = detect(wiki.path)
  match(found.service, /^baton-init-/)
  match(planInit(found).notes.join(), 'If it is `wiki` from the package wiki, add `"start": "wiki …"`')
  await using runner = await packageWith({
    devDependencies: { tsx: '4.0.0' },
    scripts: { start: 'tsx watch a.ts --port 1' },
  })
  await runner.write('node_modules/tsx/package.json', '{ "bin": "./cli.js" }')
  match(planInit(detect(runner.path)).notes.join(), 'the file that starts the application')
  equal(detect(runner.path).args, [])
})

test('what a start script gives to its program becomes `args`: a port and a host as an install has them, and what needs a shell is said', () => {
  const of = (command: string) => readNodeCommand(command)
  equal(of('node a.js --port 8080 --host=::1 -p 80 --title "My wiki" && echo'), {
    flags: [],
    program: 'a.js',
    args: ['--port', '{port}', '--host={host}', '-p', '{port}', '--title', 'My wiki'],
    lostArgs: [],
  })
  const addresses = of('node s3.js -d data -a 127.0.0.1 --bind ::1 --db localhost -b file --address 10.0.0.1')?.args
  is(addresses?.join(' '), '-d data -a {host} --bind {host} --db localhost -b file --address 10.0.0.1')
  equal(of('node a.js "$HOME/x" --listen=$PORT $(cat f)'), {
    flags: [],
    program: 'a.js',
    args: ['--listen={port}'],
    lostArgs: ['"$HOME/x"', '$(cat', 'f)'],
  })
})

test('nothing of a start script is lost: what stands before and behind the program, its variables, and what calls it', () => {
  const of = (start: string, others: Record<string, string> = {}) => {
    const { node, folder, before, after, through, runner, environment, lostVariables } =
      readStart({ ...others, start }, 'start') ?? {}
    const said = { folder: folder === '.' ? null : folder, before, after, through, runner, environment, lostVariables }
    const kept = Object.entries(said).filter(([, value]) => value !== null && Object.keys(value ?? {}).length > 0)
    return { program: node?.program ?? null, ...Object.fromEntries(kept) }
  }
  equal(of('prisma migrate deploy && LOG_LEVEL=info node s.js | pino-pretty'), {
    program: 's.js',
    before: ['prisma migrate deploy'],
    after: ['| pino-pretty'],
    environment: { LOG_LEVEL: 'info' },
  })
  equal(of('npm run a && A="x y" npm run b -- --loud', { a: 'node seed.js', b: 'cross-env B=2 node s.js' }), {
    program: 's.js',
    before: ['node seed.js'],
    environment: { A: 'x y', B: '2' },
  })
  equal(of('node s.js', { prestart: 'node migrate.js' }), { program: 's.js', before: ['node migrate.js'] })
  equal(of('node w.js & cd server && dotenv -e .env -- node --env-file .env s.js; echo over'), {
    program: 'server/s.js',
    folder: 'server',
    before: ['node w.js &'],
    after: ['; echo over'],
    through: 'dotenv -e .env --',
  })
  equal(of('export A=1 B=$C; exec node s.js || exit 1'), {
    program: 's.js',
    after: ['|| exit 1'],
    environment: { A: '1' },
    lostVariables: ['B=$C'],
  })
  const options = ['-i', 'max', '--name', 'x']
  equal(of('pm2-runtime start -i max s.js --name x -- --loud'), {
    program: 's.js',
    runner: { name: 'pm2-runtime', options },
  })
  equal(of('nodemon --watch src s.js --loud'), {
    program: 's.js',
    runner: { name: 'nodemon', options: ['--watch', 'src'] },
  })
  equal(of('npm start'), { program: null })
  equal(of('concurrently "node a.js" "node b.js"'), { program: null })
})

test('init names a folder in which the start script starts the application, and refuses one that is a package of its own', async () => {
  await using shop = await packageWith({
    scripts: { start: 'npm run migrate && cd server && node index.js', migrate: 'node m.js' },
  })
  await shop.write('server/index.js', '')
  await shop.write('m.js', '')
  const { files, notes } = planInit(detect(shop.path))
  const { entry, before } = JSON.parse(files[0]?.content ?? '') as Record<string, unknown>
  equal([entry, before], ['server/index.js', [['m.js']]])
  match(notes[0] ?? '', 'dropped from the start script: `cd server`')
  await shop.write('server/package.json', '{ "dependencies": { "fastify": "5.0.0" } }')
  const print = { say: () => {}, print: () => {} }
  const flags = { service: null, starts: false, yes: true, json: false, dryRun: false }
  const refused = await rejects(async () => await setUp(shop.path, flags, print), withCode('refused'))
  match(refused.message, 'runs an application in `server`, which is a separate package')
  equal((await readdir(shop.path)).includes('baton.config.json'), false)
})

test('init takes the variables of a start script, and names first of all what no install runs', async () => {
  await using shop = await packageWith({
    main: 'index.js',
    scripts: {
      prestart: 'npm run build && prisma generate',
      build: 'tsc',
      start: 'prisma migrate deploy && npm run serve',
      serve: 'LOG_LEVEL=info PORT=3000 KEY=$KEY pm2-runtime server.js',
    },
  })
  await shop.write('index.js', '')
  await shop.write('server.js', 'process.env.UPLOAD_DIR')
  const { files, notes } = planInit(detect(shop.path))
  const { entry, environment, build } = JSON.parse(files[0]?.content ?? '') as Record<string, unknown>
  const usual = { PORT: '{port}', HOST: '{host}', STATE_DIRECTORY: '{stateDirectory}', NODE_ENV: 'production' }
  const own = { LOG_LEVEL: 'info', UPLOAD_DIR: '{stateDirectory}/uploads' }
  equal([entry, environment, build], ['server.js', { ...usual, ...own }, 'npm run build'])
  match(
    notes[0] ?? '',
    'runs `prisma generate`, `prisma migrate deploy` before the application, but an install does not',
  )
  match(notes.join('\n'), 'with pm2-runtime, but an install runs server.js without it')
  match(notes.join('\n'), 'dropped from the start script: `KEY=$KEY`')

  await shop.write('node_modules/prisma/package.json', '{ "bin": { "prisma": "build/index.js" } }')
  await shop.write('migrate.js', '')
  const asWritten = {
    prestart: 'prisma generate && node migrate.js "a b" && (echo || true)',
    start: 'node_modules/.bin/prisma migrate deploy && KEY=1 node migrate.js; node server.js',
  }
  const manifest = { name: 'shop', dependencies: { prisma: '7.0.0' }, scripts: asWritten }
  await shop.write('package.json', JSON.stringify(manifest))
  const commands = [
    ['migrate.js', 'a b'],
    ['node_modules/prisma/build/index.js', 'migrate', 'deploy'],
  ]
  const planned = planInit(detect(shop.path))
  equal((JSON.parse(planned.files[0]?.content ?? '') as Record<string, unknown>)['before'], commands)
  match(
    planned.notes[0] ?? '',
    'runs `prisma generate`, `(echo ||`, `true)`, `KEY=1 node migrate.js` before the application',
  )
  match(planned.notes[1] ?? '', 'each start runs `migrate.js a b`, `node_modules/prisma/build/index.js migrate deploy`')
  const late = planInit(detect(shop.path), { configured: { entry: 'server.js' }, shown: null }).notes.join()
  match(late, `add \`"before": ${JSON.stringify(commands)}\``)

  for (const start of ['concurrently "node server.js" "node w.js"', 'node lib/none.js', 'pm2-runtime pm2.config.js']) {
    await shop.write('package.json', JSON.stringify({ name: 'shop', main: 'index.js', scripts: { start } }))
    const found = detect(shop.path)
    is(found.entry, 'index.js')
    match(planInit(found).notes.join(), `runs \`${start}\`, but no file could be identified in it: index.js was chosen`)
  }
  await shop.write('pm2.config.js', "module.exports = { apps: [{ name: 'x', script: './server.js' }] }")
  is(detect(shop.path).entry, 'server.js')
})

test('an application of Bun or Deno is refused by name, and one that Node.js runs too is not', async () => {
  await using shop = await packageWith({ scripts: { start: 'bun run server.ts' } })
  await shop.write('server.ts', 'Bun.serve({})')
  await rejects(initIn(shop.path, '--yes'), /this is an application for Bun, not Node\.js/)
  not((await readdir(shop.path)).includes('baton.config.json'))
  const runtime = async (scripts: object, text: string) => {
    await shop.write('package.json', JSON.stringify({ name: 'shop', scripts }))
    await shop.write('server.ts', text)
    return detect(shop.path).foreignRuntime
  }
  is(await runtime({}, `import { Database } from 'bun:sqlite'`), 'Bun')
  is(await runtime({ start: 'deno run -A server.ts' }, ''), 'Deno')
  is(await runtime({ start: 'bun run serve', serve: 'node server.ts' }, ''), null)
  is(await runtime({ start: 'node server.ts' }, 'Bun.serve({})'), null)
  is(await runtime({}, `if (typeof Bun !== 'undefined') Bun.serve({})`), null)
  await rm(join(shop.path, 'package.json'))
  await shop.write('deno.json', '{}')
  await rejects(initIn(shop.path, '--yes'), /for Deno, not Node\.js: there is a deno\.json but no package\.json/)
})

test('a folder of the project to which releases are published is in no release', async () => {
  await using shop = await packageWith({})
  await shop.write('server.js', '')
  await shop.write('public/releases.json', '[]')
  await mkdir(join(shop.path, 'out/v1.0.0'), { recursive: true })
  await shop.write('out/v1.0.0/release.json', JSON.stringify({ tag: 'v1.0.0', service: 'shop' }))
  await updateReleases(join(shop.path, 'out'), 'shop')
  const out: string[] = []
  const files = await filesOf(parseProject({ service: 'shop', entry: 'server.js' }, shop.path), (one) => out.push(one))
  equal(out, ['out'])
  equal(files.map(({ path }) => path).toSorted(), ['package.json', 'public/releases.json', 'server.js'])
})

test('what is large in a release is named: packages, and folders of the author', () => {
  const of = (...sizes: [string, number][]) =>
    formatLargest(largestOf(sizes.map(([path, sizeBytes]) => ({ path, sizeBytes }))))
  is(of(['server.js', 999], ['node_modules/a/b.js', 9e5]), null)
  is(
    of(
      ['old/v1/shop', 9e7],
      ['old/v2/shop', 2e6],
      ['node_modules/@a/b/c', 1e7],
      ['m/node_modules/d/e.bin', 6e6],
      ['x', 1e6],
    ),
    '  largest parts: old/ 92.0 MB, node_modules/@a/b 10.0 MB, m/node_modules/d 6.0 MB',
  )
})

test('a workflow for GitHub is written at the root of a repository only, and otherwise that is said', async () => {
  await using shop = await packageWith({ main: 'server.js' })
  const paths = () => planInit(detect(shop.path)).files.map(({ path }) => path)
  not(paths().includes('.github/workflows/release.yml'))
  match(planInit(detect(shop.path)).notes.join(), 'the folder is not the root of a git repository')
  await shop.write('.git/config', '')
  is(paths().includes('.github/workflows/release.yml'), true)
})

test.long(
  '--try says what answered and after how long, and proposes a usual path with a short answer, not a page',
  async () => {
    await using wiki = await folderWith(
      `const answers = { '/': 'a page', ['/hea' + 'lth']: 'x'.repeat(10_000), '/status': '{"well":true}' }
     require('node:http').createServer((request, response) => {
       const answer = answers[request.url]
       response.writeHead(answer === undefined ? 404 : 200).end(answer)
     }).listen(process.env.PORT, process.env.HOST)`,
    )
    const { stderr } = await wiki.init('--yes', '--try')
    match(
      stderr,
      /note: in a test run, it was listening after \d+(\.\d+)? m?s, and answered `\/status` with 200 \(13 bytes\)/,
    )
    is((await wiki.config())['healthPath'], '/status')
  },
)

test.long('--try: an addon that another Node has built leads to `baton rebuild`, and not to a build', async () => {
  await using shop = await folderWith(
    `throw new Error('compiled against a different version: NODE_MODULE_VERSION 115')`,
  )
  const { stderr } = await shop.init('--yes', '--try')
  match(
    stderr,
    /its native addons were built for a different Node; run `npx baton rebuild`, then `npx baton init --try` again/,
  )
  match(stderr, /^next: npx baton rebuild$/m)
  not(stderr.includes('NODE_MODULE_VERSION'), 'whose own advice is for the Node of the developer')
})

test.long(
  '--try proposes / where no usual path answers, and says what the start has written beside databases, and where',
  async () => {
    await using shop = await folderWith(
      `const { mkdirSync, writeFileSync } = require('node:fs')
     mkdirSync(process.env.STATE_DIRECTORY + '/uploads')
     writeFileSync(process.env.STATE_DIRECTORY + '/settings.json', '{}')
     writeFileSync(__dirname + '/hits.log', 'one')
     globalThis.kept = new (require('node:sqlite').DatabaseSync)(__dirname + '/own.db')
     globalThis.kept.exec('pragma journal_mode = wal; create table if not exists rows (text)')
     require('node:http').createServer((request, response) => {
       response.writeHead(request.url === '/' ? 200 : 404).end('a shop')
     }).listen(process.env.PORT, process.env.HOST)`,
    )
    const { stderr } = await shop.init('--yes', '--try')
    is((await shop.config())['healthPath'], '/', stderr)
    match(
      stderr,
      'note: the application wrote files to the state directory (settings.json, uploads/): every update keeps them',
    )
    match(stderr, 'note: it opens the database own.db in its own folder')
    match(stderr, 'note: the application wrote files to its own folder (hits.log), which each release replaces')
    match(stderr, 'and set it to `{stateDirectory}`')
  },
)

test.long(
  '--try says what no look from outside shows: programs that have ended, threads, `.env` files, each listen',
  async () => {
    await using shop = await folderWith(
      `import { execFileSync } from 'node:child_process'
     import { readFileSync } from 'node:fs'
     import { createServer } from 'node:http'
     import { Worker } from 'node:worker_threads'
     import { createSocket } from 'node:dgram'
     readFileSync(import.meta.dirname + '/.env', 'utf8')
     execFileSync('true')
     new Worker('1', { eval: true })
     process.on('SIGTERM', () => process.exit())
     createSocket('udp4').bind({ port: 0, address: '127.0.0.1' })
     createServer((request, response) => response.end()).listen(process.env.PORT, process.env.HOST)`,
      'module',
    )
    await writeFile(join(shop.path, '.env'), 'TOKEN=of-the-developer')
    const { stderr } = await shop.init('--yes', '--try')
    match(stderr, 'note: the application listens on 2 ports: {port} and a random free udp port')
    match(stderr, 'note: the application ran true, which each host needs as well')
    match(stderr, 'note: the application started 1 worker thread')
    match(stderr, /note: the application reads \S+\.env, but a release never contains \.env files/)
    match(stderr, 'note: the application handles SIGTERM, which an update does not send')
    not(stderr.includes('of-the-developer'))
  },
)

test.long(
  '--try names files of its own that it looks for where it is started, and servers of worker threads, and proposes what helps',
  async () => {
    await using shop = await folderWith(
      `const { isMainThread, Worker } = require('node:worker_threads')
     const http = require('node:http')
     if (isMainThread) {
       new Worker(__filename)
       http.createServer((request, response) => {
         const path = require('node:path').join(process.cwd(), 'public', request.url)
         require('node:fs').stat(path, (error) => response.writeHead(error === null ? 200 : 404).end())
       }).listen(process.env.PORT, process.env.HOST)
     } else http.createServer(() => {}).listen(0, '127.0.0.1')`,
    )
    await mkdir(join(shop.path, 'public'))
    await writeFile(join(shop.path, 'public/app.css'), '')
    const written = { service: 'shop', entry: 'server.js', healthPath: '/' }
    await writeFile(join(shop.path, 'baton.config.json'), JSON.stringify(written))
    const { stderr } = await shop.init('--yes', '--try')
    match(
      stderr,
      'note: the application looks for public/ in its working directory, which on a host is the state directory',
    )
    match(
      stderr,
      'note: a worker thread is listening on a random port: an update hands over only what the main thread listens on',
    )
    match(stderr, '\n+  "cwd": "app",\n') // not written: what it writes by a relative path would be lost with each release
    equal(await shop.config(), written)
  },
)

test('the kit among the development packages: `init` and `doctor` say so, with what was typed to install it', async () => {
  await using shop = await folderWith(SHOP)
  const from = 'file:../baton-kit.tgz'
  const manifest = { name: 'shop', scripts: { start: 'node server.js' }, devDependencies: { 'baton-kit': from } }
  await writeFile(join(shop.path, 'package.json'), JSON.stringify(manifest))
  const { stderr } = await shop.init('--yes')
  match(
    stderr,
    `note: baton-kit is a development dependency here, but a release contains no development dependencies: run \`npm install --save-prod ${from}\``,
  )
})

test('changes that are in no commit: `doctor` names the files, on stdout', async () => {
  await using shop = await folderWith(SHOP)
  const git = (...args: string[]) => run(['git', '-C', shop.path, '-c', 'user.name=a', '-c', 'user.email=a@b', ...args])
  const doctor = async () => {
    const { stdout } = await run([...baton(), 'doctor', '--dir', shop.path], { allowFailure: true })
    return stdout
  }
  await git('init', '-q')
  await git('add', '.')
  await git('commit', '-qm', 'one')
  await shop.init('--yes')
  await git('commit', '-qam', 'two')
  match(await doctor(), /^ok +commit [0-9a-f]{12}$/m)
  await writeFile(join(shop.path, 'server.js'), `${await readFile(join(shop.path, 'server.js'), 'utf8')}\n`)
  match(
    await doctor(),
    /^warning commit [0-9a-f]{12}; changed since: server\.js\n {8}commit before you build a release$/m,
  )
})

test('if every path is answered, none is proposed as a health route, and that is said', async () => {
  await using shop = await folderWith(
    `require('node:http').createServer((request, response) => response.end('page')).listen(process.env.PORT, process.env.HOST)`,
  )
  const { stderr } = await shop.init('--yes', '--try')
  match(stderr, 'note: every path returns 2xx, so no health route could be identified')
  match(stderr, 'If the application has no health route, use a page that returns 200, such as `/`')
  is((await shop.config())['healthPath'], undefined)
})

test.run()

// ---- parts

/** An application of nothing but its package.json. */
async function packageWith(manifest: object) {
  const made = await temporary('init')
  const { path } = made
  const write = async (name: string, text: string) => {
    await mkdir(dirname(join(path, name)), { recursive: true })
    await writeFile(join(path, name), text)
  }
  await write('package.json', JSON.stringify({ name: 'shop', ...manifest }))
  return { ...made, write }
}

async function folderWith(text: string, type = 'commonjs') {
  const made = await temporary('init')
  const { path } = made
  await writeFile(
    join(path, 'package.json'),
    JSON.stringify({ name: 'shop', type, scripts: { start: 'node server.js' } }),
  )
  await writeFile(join(path, 'server.js'), text)
  return {
    ...made,
    init: (...flags: string[]) => initIn(path, ...flags),
    config: () => configIn(path),
  }
}

async function initIn(path: string, ...flags: string[]) {
  return await run([...baton(), 'init', '--dir', path, ...flags], { env: { OWN_SECRET: 'of the developer' } })
}

const baton = () => [process.execPath, '--import', import.meta.resolve('tsx'), join(PROJECT, 'deploy/baton.ts')]

async function configIn(path: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(join(path, 'baton.config.json'), 'utf8')) as Record<string, unknown>
}
