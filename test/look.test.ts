// @deadlineMs 240000
// What the build finds out by starting the release once: whether the agent is in it, and which databases, ports and children it has.
// Real releases of the kind script, started as `baton build` starts them.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import type { BatonError } from '../agent/words/errors.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { connect } from '../deploy/host/service/client.ts'
import { releaseFromSource } from '../deploy/make/from-source.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { tryOut } from '../deploy/make/trial-start.ts'
import { equal, is, match, ok, rejects } from './assert.ts'
import { suite } from './suite.ts'
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
  match(error.message, 'expected the agent to answer beside the application, got 200 from the application itself')
  match(error.message, 'the entry server.js does not embed it')
  match(error.hint ?? '', `make \`import 'baton-kit/auto'\` the first line of server.js`)

  const made = { scripts: { build: 'make', start: 'node build' } }
  await writeFile(join(it.project.folder, 'package.json'), JSON.stringify(made))
  const entry = 'build/index.js'
  const other = (await rejects(() => tryOut({ ...it.project, entry }, it.path))) as BatonError
  match(other.hint ?? '', `each build makes build/index.js anew: name a file of your own in \`entry\``)
})

test('a release that serves, and ends a second later, fails its build with its last words', async () => {
  await using it = await built(`${AUTO}${SERVE}setTimeout(() => { throw new Error('no queue') }, 1000)\n`)
  const error = (await rejects(() => tryOut(it.project, it.path))) as BatonError
  is(error.code, 'verify_failed')
  match(error.message, /it served \/ with 200 after .*, and then ended with .*; it said: [^]*no queue/)
})

test('a trial start has the environment that an install gives, and nothing of the developer’s', async () => {
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
    globalThis.kept.exec('pragma journal_mode = wal; create table rows (text)')
  }, ${afterMs})\n${SERVE}`

test('a database that the configuration does not name is told with the line to write, also one that is opened late', async () => {
  for (const [database, afterMs] of [
    ['orders.db', 0],
    [undefined, 3000],
  ] as const) {
    await using it = await built(OPENS('./data/orders.db', afterMs), database === undefined ? {} : { database })
    const { warnings } = await tryOut(it.project, it.path)
    is(warnings.length, 1, warnings.join())
    match(warnings[0] ?? '', 'it has the database data/orders.db, and `database` is')
    match(warnings[0] ?? '', database === undefined ? 'is not set' : 'is "orders.db"')
    match(warnings[0] ?? '', '`"database": "data/orders.db"` into baton.config.json')
  }
})

test('a database that the configuration names is no warning; one that it opens for a moment, or elsewhere, is', async () => {
  await using room = await temporary('look')
  await using named = await built(OPENS('data/orders.db'), { database: 'data/orders.db' })
  equal((await tryOut(named.project, named.path)).warnings, [])

  const closes = `${OPENS('data/orders.db')}setTimeout(() => globalThis.kept.close(), 50)\n`
  await using brief = await built(closes)
  match((await tryOut(brief.project, brief.path)).warnings.join(), 'it has the database data/orders.db')

  const elsewhere = join(room.path, 'orders.db')
  await using outside = await built(OPENS(elsewhere))
  match(
    (await tryOut(outside.project, outside.path)).warnings.join(),
    `it has the database ${elsewhere}, which is not in the state directory`,
  )

  await using none = await built(`${AUTO}${SERVE}`, { database: 'orders.db' })
  match((await tryOut(none.project, none.path)).warnings.join(), '`database` is "orders.db", and this start made none')
})

test('further ports and what the application has started are told, also of one that does so seconds after it is healthy', async () => {
  await using it = await built(
    `${AUTO}${SERVE}import { spawn } from 'node:child_process'
     import { createServer as tcp } from 'node:net'
     setTimeout(() => {
       tcp().listen(0, '127.0.0.1')
       spawn('sleep', ['600'], { stdio: 'ignore' })
     }, 3000)\n`,
  )
  const { line, warnings } = await tryOut(it.project, it.path)
  match(line, /^serves \/ with 200 after .*; it listens on the ports \d+, \d+; it has started sleep$/)
  equal(warnings, [])
})

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
      is(error.message, `expected Baton's agent to answer, got ${status} from something without it`)
      match(error.hint ?? '', 'does not embed the agent')
    } finally {
      server.close()
    }
  }
})

test.run()

// ---- parts

/** A release of the kind script whose one source is `text`. */
async function built(
  text: string,
  config: object = {},
): Promise<AsyncDisposable & { project: Project; path: string; folder: string }> {
  const room = await temporary('look')
  const folder = join(room.path, 'app')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  await writeFile(join(folder, 'server.js'), text)
  const project = parseProject({ service: 'shop', kind: 'script', entry: 'server.js', ...config }, folder)
  const [feed, copies] = [join(room.path, 'feed'), join(folder, '.baton')]
  await releaseFromSource({ project, tag: 'v1.0.0', feed, copies, progress: createProgress({ quiet: true }) })
  const path = join(room.path, 'shop')
  await writeFile(path, gunzipSync(await readFile(join(feed, 'v1.0.0', `${assetName('shop')}.gz`))), { mode: 0o755 })
  return { project, path, folder, [Symbol.asyncDispose]: () => room[Symbol.asyncDispose]() }
}
