// What the build finds out by starting the release once: whether the agent is in it, and which databases, ports and children it has.
// Real releases of the kind script, started as `baton build` starts them.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { gunzipSync } from 'node:zlib'
import type { BatonError } from '../agent/words/errors.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { connect } from '../deploy/host/service/client.ts'
import { releaseFromSource } from '../deploy/make/from-source.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { keptBelow } from '../deploy/make/seen.ts'
import { tryOut } from '../deploy/make/trial-start.ts'
import { equal, is, match, ok, rejects } from './assert.ts'
import { processesNaming } from './fixtures/adopted.ts'
import { ofPlainKit } from './fixtures/plain-kit.ts'
import { isLong, suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('look', { timeoutMs: 120_000 })
const AUTO = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'\n`
const SERVE = `import { createServer } from 'node:http'
  const server = createServer((request, response) => response.end('hello'))
  server.listen(Number(process.env.PORT), process.env.HOST)\n`

test('a release without the line that embeds the agent fails its build at once: entry, source and line are named', async () => {
  await using it = await built(SERVE)
  const error = (await rejects(() => tryOut(it.project, it.path))) as BatonError
  is(error.code, 'verify_failed')
  match(error.message, 'the agent inside the application did not respond (the application itself responded with 200)')
  match(error.message, 'perhaps server.js does not load the agent, or opens fewer servers than `servers` says')
  match(error.hint ?? '', `make \`import 'baton-kit/auto'\` the first line of server.js`)

  const made = { scripts: { build: 'make', start: 'node build' } }
  await writeFile(join(it.project.folder, 'package.json'), JSON.stringify(made))
  const entry = 'build/index.js'
  const other = (await rejects(() => tryOut({ ...it.project, entry }, it.path))) as BatonError
  match(other.hint ?? '', `each build overwrites build/index.js: set \`entry\` to a file of your own`)
})

test('a release that serves, and ends a second later, fails its build with its last words', async () => {
  await using it = await built(`${AUTO}${SERVE}setTimeout(() => { throw new Error('no queue') }, 1000)\n`)
  const error = (await rejects(() => tryOut(it.project, it.path))) as BatonError
  is(error.code, 'verify_failed')
  match(error.message, /it answered \/ with 200 after .*, but then exited with .* after printing: [^]*no queue/)
})

test.long('a trial start has the environment that an install gives, and nothing of the developer’s', async () => {
  await using room = await temporary('look')
  const seen = join(room.path, 'environment.json')
  await using it = await built(
    `${AUTO}import { writeFileSync } from 'node:fs'
     writeFileSync('${seen}', JSON.stringify(process.env))\n${SERVE}`,
  )
  await tryOut(it.project, it.path)
  const given = JSON.parse(await readFile(seen, 'utf8')) as Record<string, string>
  const ours =
    /^(BATON_\w+|PATH|LANG|TZ|HOME|PORT|HOST|STATE_DIRECTORY|NODE_ENV|NODE_EXTRA_CA_CERTS|SSL_CERT_\w+|LD_LIBRARY_PATH|PWD|OLDPWD|SHLVL|_|\w+_proxy)$/i
  equal(
    Object.keys(given).filter((name) => !ours.test(name)),
    [],
  )
  is(given['HOME'], given['STATE_DIRECTORY'])
  is(given['PATH'], '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')
})

const OPENS = (path: string, afterMs = 0) => `${AUTO}import { mkdirSync } from 'node:fs'
  import { DatabaseSync } from 'node:sqlite'
  setTimeout(() => {
    mkdirSync('data', { recursive: true })
    globalThis.kept = new DatabaseSync('${path}')
    globalThis.kept.exec('pragma journal_mode = wal; create table if not exists rows (text)')
  }, ${afterMs})\n${SERVE}`

test('a database that the configuration does not name is told with the line to write, also one that is opened late', async () => {
  const both = [
    ['orders.db', 0],
    [undefined, 3000],
  ] as const
  const tried = both.map(async ([database, afterMs]) => {
    await using it = await built(OPENS('./data/orders.db', afterMs), database === undefined ? {} : { database })
    const { warnings } = await tryOut(it.project, it.path)
    is(warnings.length, 1, warnings.join())
    match(warnings[0] ?? '', 'it uses the database data/orders.db, but `database` is')
    match(warnings[0] ?? '', database === undefined ? 'is not set' : 'is "orders.db"')
    match(warnings[0] ?? '', '`"database": "data/orders.db"` into baton.config.json')
  })
  await Promise.all(tried)
})

test.long(
  'a database that the configuration names is no warning; one that it opens for a moment, or elsewhere, is',
  async () => {
    await using room = await temporary('look')
    const warnings = async (text: string, config: object = {}) => {
      await using it = await built(text, config)
      return (await tryOut(it.project, it.path)).warnings
    }
    const closes = `${OPENS('data/orders.db')}setTimeout(() => globalThis.kept.close(), 50)\n`
    const elsewhere = join(room.path, 'orders.db')
    const [named, brief, outside, none] = await Promise.all([
      warnings(OPENS('data/orders.db'), { database: 'data/orders.db' }),
      warnings(closes),
      warnings(OPENS(elsewhere)),
      warnings(`${AUTO}${SERVE}`, { database: 'orders.db' }),
    ])
    equal(named, [])
    match(brief.join(), 'it uses the database data/orders.db')
    match(outside.join(), `it uses the database ${elsewhere}, which is not in the state directory`)
    match(none.join(), '`database` is "orders.db", but this start did not create that file')
  },
)

test.long(
  'further ports and what the application has started are told, also of one that does so seconds after it is healthy',
  async () => {
    await using it = await built(
      `${AUTO}${SERVE}import { spawn } from 'node:child_process'
     import { createServer as tcp } from 'node:net'
     setTimeout(() => {
       tcp().listen(0, '127.0.0.1')
       spawn('sleep', ['600'], { stdio: 'ignore' })
     }, 3000)\n`,
    )
    const { line, warnings } = await tryOut(it.project, it.path)
    match(
      line,
      /^answers \/ with 200 after .*; it also listens on a random port; it started sleep; switched to itself once: clients waited [\d.]+ m?s$/,
    )
    equal(warnings, [])
  },
)

/** Each refuses to begin again; what its error says, and its hint. */
const REFUSERS: Record<string, { text: string; config?: object; said: string; hint: string }> = {
  'asks in another process whether its port is free': {
    text: `import { spawnSync } from 'node:child_process'
      const ask = "process.getBuiltinModule('net').connect(" + process.env.PORT + ", '127.0.0.1').on('connect', () => process.exit(1)).on('error', () => process.exit(0))"
      if (spawnSync('node', ['-e', ask], { env: { PATH: '${dirname(process.execPath)}' } }).status !== 0) {
        console.error('Error: port ' + process.env.PORT + ' is already in use')
        process.exit(3)
      }\n`,
    said: 'port \\d+ is already in use',
    hint: "the application's port is kept open",
  },
  'refuses while there is a file of the process before': {
    text: `import { existsSync, writeFileSync } from 'node:fs'
      if (existsSync('shop.pid')) throw new Error('another instance has left shop.pid')
      writeFileSync('shop.pid', String(process.pid))\n`,
    said: 'another instance has left shop.pid',
    hint: 'have `onStop` remove it',
  },
  'wants a lock that the process beside it has': {
    text: `import { DatabaseSync } from 'node:sqlite'
      globalThis.lock = new DatabaseSync('lock.db')
      globalThis.lock.exec('pragma locking_mode = exclusive; create table if not exists one (is_here); begin exclusive')\n`,
    config: { order: 'start-first', database: 'lock.db' },
    said: 'database is locked',
    hint: 'have `onStop` remove it',
  },
}

test.long(
  'a release that does not come back when it is switched to itself fails its build: with its words, and what to do if its habit is known',
  async () => {
    const tried = Object.entries(REFUSERS)
      .slice(0, isLong ? undefined : 2)
      .map(async ([habit, { text, config, said, hint }]) => {
        await using it = await built(`${AUTO}${text}${SERVE}`, config)
        const error = (await rejects(() => tryOut(it.project, it.path))) as BatonError
        is(error.code, 'verify_failed', habit)
        match(error.message, /^a test update from this build to itself failed: /)
        match(error.message, new RegExp(said))
        match(error.hint ?? '', hint)
        equal(await processesNaming(it.folder), [], habit)
      })
    await Promise.all(tried)
  },
)

const GROUP = `import { createSocket } from 'node:dgram'
  const mdns = createSocket({ type: 'udp4', reuseAddr: true })
  mdns.bind(0, '224.0.0.251', () => mdns.addMembership('224.0.0.251', '127.0.0.1'))\n`
const WARMS_UP = `import { createServer } from 'node:http'
  const from = Date.now() + 2000
  createServer((request, response) => response.writeHead(Date.now() < from ? 503 : 200).end()).listen(process.env.PORT, process.env.HOST)\n`

/** of this table, in CI */
const SHORT = 3
/** Each is as good after a switch as before; the time that its clients waited, as it is said. */
const SWITCHED: Record<string, { text: string; config?: object; waited: RegExp }> = {
  'is not well for two seconds': { text: WARMS_UP, config: { healthPath: '/healthz' }, waited: /waited [2-9]\.\d s/ },
  'removes its unix socket before it listens there': {
    text: `import { rmSync } from 'node:fs'
      rmSync('own.sock', { force: true });
      (await import('node:http')).createServer(() => {}).listen('own.sock')\n${SERVE}`,
    waited: /waited/,
  },
  'lives as two for a while': { text: SERVE, config: { order: 'start-first' }, waited: /its slowest answer took/ },
  'has joined a group': { text: GROUP + SERVE, waited: /waited/ },
  'has 200 MB in memory, and needs a second to end': {
    text: `globalThis.all = Buffer.alloc(200e6, 1)\nprocess.on('SIGTERM', () => setTimeout(() => process.exit(0), 1000))\n${SERVE}`,
    config: { onStop: 'SIGTERM' },
    waited: /waited [1-9]\.\d s/,
  },
}

test.long(
  'a release that can be switched says in one line how long its clients waited, and what a switch leaves behind is a warning',
  async () => {
    const tried = async ([habit, { text, config, waited }]: [string, (typeof SWITCHED)[string]]) => {
      await using it = await built(AUTO + text, config)
      const { line, warnings } = await tryOut(it.project, it.path)
      match(line, /; switched to itself once: /)
      match(line, waited)
      equal(warnings, [], habit)
      equal(await processesNaming(it.folder), [], habit)
    }
    const all = Object.entries(SWITCHED).slice(0, isLong ? undefined : SHORT)
    await Promise.all(all.slice(0, 3).map(tried))
    await Promise.all(all.slice(3).map(tried))

    const child = `import { spawn } from 'node:child_process'\nspawn('sleep', ['600'], { stdio: 'ignore' })\n`
    await using it = await built(AUTO + child + SERVE, { order: 'start-first' })
    const { warnings } = await tryOut(it.project, it.path)
    match(warnings.join(), 'after a switch the earlier process sleep was left running')
  },
)

test.long('a SIGTERM handler that does not end the process is why clients waited, and a warning', async () => {
  await using it = await built(`${AUTO}process.on('SIGTERM', () => server.close())\n${SERVE}`, { onStop: 'SIGTERM' })
  const { warnings } = await tryOut(it.project, it.path)
  match(warnings.join(), 'its SIGTERM handler did not end the process within 10s, and each update waits that long')
})

test.long(
  'what listens in a worker thread is named: alone it is why no agent answers, beside the main thread it is a warning',
  async () => {
    const inWorker = (text: string) => `import { isMainThread, Worker } from 'node:worker_threads'
    import { createServer } from 'node:http'
    if (isMainThread) new Worker(new URL(import.meta.url))
    ${text}\n`
    const listens = (port: string) =>
      `createServer((request, response) => response.end('hello')).listen(${port}, process.env.HOST)`
    const alone = async () => {
      await using it = await built(AUTO + inWorker(`else ${listens('Number(process.env.PORT)')}`))
      const error = (await rejects(() => tryOut(it.project, it.path))) as BatonError
      match(
        error.message,
        'the application itself responded with 200): no server is listening in the main thread, only in a worker thread',
      )
      match(error.hint ?? '', 'listen in the main thread, and leave the work to the worker')
    }
    const beside = async () => {
      const text = inWorker(listens('isMainThread ? Number(process.env.PORT) : 0'))
      await using it = await built(AUTO + text)
      const { warnings } = await tryOut(it.project, it.path)
      is(warnings.length, 1, warnings.join())
      match(
        warnings[0] ?? '',
        'a worker thread is listening on a random port: an update hands over only what the main thread listens on',
      )
    }
    await Promise.all([alone(), beside()])
  },
)

test.long(
  'files of its own that an application looks for where it is started are named, with the line to write; its data are not',
  async () => {
    const text = `import { existsSync, readFile, stat, writeFileSync } from 'node:fs'
    import { join, resolve } from 'node:path'
    const root = resolve('public')
    readFile('package.json', () => {})
    if (!existsSync('data.json')) writeFileSync('data.json', '{}')
    existsSync('cache.json')
    ${SERVE}
    server.on('request', ({ url }) => stat(join(root, url), () => {}))\n`
    const files = { 'public/app.css': '', 'data.json': '{ "of": "a developer" }', 'views/index.html': '' }
    await using it = await built(AUTO + text, {}, files)
    const { warnings } = await tryOut(it.project, it.path)
    is(warnings.length, 1, warnings.join())
    match(
      warnings[0] ?? '',
      /^the application looks for package\.json, public\/ in its working directory, .*`"cwd": "app"` \(and `"kind": "app"`/,
    )
    match(
      warnings[0] ?? '',
      'Files that it writes to relative paths, such as data.json, are then lost with each new release',
    )
  },
)

test('a client that meets something else than the agent says so, with what to do, instead of `expected 200, got 200`', async () => {
  for (const [status, body] of [
    [200, 'hello'],
    [200, '{"hello":"world"}'],
    [404, '<h1>Not found</h1>'],
  ] as const) {
    const server = createServer((_, response) => response.writeHead(status).end(body)).listen(0, '127.0.0.1')
    await new Promise((listening) => server.once('listening', listening))
    const address = server.address()
    ok(typeof address === 'object' && address !== null)
    try {
      const client = connect({
        address: { tls: false, host: '127.0.0.1', isEverywhere: false, port: address.port },
        basePath: '',
        token: 'a token',
        unknown: [],
        faults: [],
      })
      const error = (await rejects(() => client.status())) as BatonError
      is(error.message, `something other than Baton's agent answered, with status ${status}`)
      match(error.hint ?? '', 'loads Baton')
    } finally {
      server.close()
    }
  }
})

test('a folder that holds nothing but a database is not among the files of which no snapshot is taken', async () => {
  await using state = await temporary('kept')
  for (const name of ['data', 'uploads', 'empty']) await mkdir(join(state.path, name))
  new DatabaseSync(join(state.path, 'data/shop.db')).exec('PRAGMA journal_mode = WAL; CREATE TABLE t(a)')
  await writeFile(join(state.path, 'uploads/a.txt'), 'a')
  equal(await keptBelow(state.path), ['empty/', 'uploads/'])
})

test.run()

// ---- parts

/** A release of the kind script whose one source is `text`. `files`: further ones of the application. */
async function built(
  text: string,
  config: object = {},
  files: Record<string, string> = {},
): Promise<AsyncDisposable & { project: Project; path: string; folder: string }> {
  const room = await temporary('look')
  const folder = join(room.path, 'app')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  await writeFile(join(folder, 'server.js'), await ofPlainKit(text))
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), content)
  }
  const project = parseProject({ service: 'shop', kind: 'script', entry: 'server.js', ...config }, folder)
  const [feed, copies] = [join(room.path, 'feed'), join(folder, '.baton')]
  await releaseFromSource({ project, tag: 'v1.0.0', feed, copies, progress: createProgress({ quiet: true }) })
  const path = join(room.path, 'shop')
  await writeFile(path, gunzipSync(await readFile(join(feed, 'v1.0.0', `${assetName('shop')}.gz`))), { mode: 0o755 })
  return { project, path, folder, [Symbol.asyncDispose]: () => room[Symbol.asyncDispose]() }
}
