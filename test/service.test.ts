// The reference service: its configuration, its database with predecessor and successor in it at once, its requests over
// real sockets, and the program as an author would run it.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { createServer, request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { BODY_MAX_BYTES, createHandler } from '../agent/service/handler.ts'
import { parseSettings, readSettings, variableName } from '../agent/service/config.ts'
import { SCHEMA } from '../agent/service/schema.ts'
import { openStore, type Store } from '../agent/service/store.ts'
import { equal, is, match, not, ok, rejects, throws, withCode } from './assert.ts'
import { callHttp } from '../deploy/lib/http.ts'
import { run } from '../deploy/lib/shell.ts'
import { type Answer, ask, freePort, install } from './fixtures/install.ts'
import { scriptRelease, unpack } from './fixtures/releases.ts'
import { writeCertificate } from './lab/certificate.ts'
import { type Temporary, temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const BUILD = { service: 'beacon', tag: 'v1.2.3' }

// ---- configuration

const config = suite('service: configuration')
const context = { service: 'beacon', configPath: '/etc/beacon/config.json', environment: {} }

config('has a default for everything, bound to loopback and with the endpoints closed', () => {
  const settings = parseSettings('{}', { ...context, environment: { STATE_DIRECTORY: '/var/lib/beacon' } })
  equal(settings.listeners, [{ host: '127.0.0.1', port: 8080, tls: null }])
  is(settings.password, null)
  is(settings.stateDirectory, '/var/lib/beacon')
  equal(settings.update, {})
})

config('reads what the installer writes', () => {
  const text = JSON.stringify({
    dashboard: { password: 'secret' },
    listen: [{ host: '::1', port: 8443, tls: { key: '/k.pem', cert: '/c.pem' } }, { path: '/run/beacon.sock' }],
    stateDirectory: '/var/lib/beacon',
    feed: 'github:owner/name',
    basePath: '/beacon',
    update: { probation: '5s', hangTimeout: '1s', busy: 'give-up' },
  })
  const settings = parseSettings(text, context)
  is(settings.password, 'secret')
  equal(settings.listeners, [
    { host: '::1', port: 8443, tls: { key: '/k.pem', cert: '/c.pem' } },
    { path: '/run/beacon.sock', tls: null },
  ])
  equal([settings.update, settings.busy], [{ probation: '5s', hangTimeout: '1s' }, 'give-up'])
  is(settings.basePath, '/beacon')
  ok(Object.isFrozen(settings) && Object.isFrozen(settings.listeners) && Object.isFrozen(settings.update))
})

config('names every fault at once, and never the password', () => {
  const text = JSON.stringify({
    dashboard: { password: 'hunter2 with spaces', user: 'x' },
    listen: [{ port: 70_000 }, { host: 'a b', port: 1 }, { path: '/s', port: 1 }, { path: '/s' }],
    update: { probation: '-1s', hangTimeout: 1.5, foo: 1, busy: 'wait' },
    basePath: 'beacon',
    feed: 7,
    unknown: true,
  })
  const { message } = throws(() => parseSettings(text, context), withCode('invalid_settings'))
  const expected = [
    '`unknown`',
    '`dashboard.user`',
    'dashboard.password',
    '`listen[0].port`',
    '`listen[1].host`',
    '`listen[2]`',
  ]
  for (const part of [
    ...expected,
    'update.probation',
    'update.hangTimeout',
    'update.busy',
    '`update.foo`',
    'basePath',
    '`feed`',
  ]) {
    ok(message.includes(part), `${part} in ${message}`)
  }
  not(message.includes('hunter2'))
})

config('says nothing of the text where it is no JSON: the text holds the password', () => {
  const { message } = throws(
    () => parseSettings('{"dashboard":{"password":"hunter2"', context),
    /expected JSON \(line 1 column 35\)/,
  )
  not(message.includes('hunter2'))
})

config('refuses listeners that repeat, none at all, and values of every wrong type', () => {
  for (const listen of [
    [],
    'x',
    1,
    true,
    [null],
    [[]],
    [{ port: '80' }],
    [{ port: 1 }, { port: 1 }],
    [{ path: 'x'.repeat(200) }],
    Array.from({ length: 17 }, () => ({ port: 0 })),
  ]) {
    throws(() => parseSettings(JSON.stringify({ listen }), context), withCode('invalid_settings'))
  }
  for (const text of [
    'null',
    '[]',
    '"x"',
    '1',
    '{"dashboard":1}',
    '{"update":[]}',
    '{"stateDirectory":""}',
    `{"feed":"a\\u0000b"}`,
  ]) {
    throws(() => parseSettings(text, context), withCode('invalid_settings'))
  }
})

config('looks at --config, then at <SERVICE>_CONFIG, and expects a named file to be there', async () => {
  await using home = await makeRoom()
  const [one, other] = [join(home.path, 'one.json'), join(home.path, 'other.json')]
  await writeFile(one, '{"basePath":"/one"}')
  await writeFile(other, '{"basePath":"/other"}')
  is(variableName('my-service'), 'MY_SERVICE_CONFIG')
  is(readSettings('beacon', ['--config', one], { BEACON_CONFIG: other }).basePath, '/one')
  is(readSettings('beacon', ['serve', `--config=${one}`], {}).basePath, '/one')
  is(readSettings('beacon', [], { BEACON_CONFIG: other }).basePath, '/other')
  throws(() => readSettings('beacon', ['--config', join(home.path, 'none.json')], {}), 'ENOENT')
  throws(() => readSettings('beacon', ['--config'], {}), 'expected a path')
  throws(() => readSettings('beacon', ['--confg', one], {}), '--confg')
})

config.run()

// ---- database

const store = suite('service: database')

store('keeps tokens without their secret, logs, quota and completions over a restart', async () => {
  await using home = await makeRoom()
  const first = openStore(home.database)
  const { secret, ...token } = await first.addToken('laptop')
  await first.addLog('info', 'hello')
  await first.addQuota(token.id, 42)
  await first.putCompletion('k', 'content', 60)
  await first.close()
  not((await readFile(home.database)).includes(secret))

  const second = openStore(home.database)
  equal(
    second.tokens(10).map((row) => ({ ...row })),
    [token],
  )
  is(second.logs(10, null)[0]?.message, 'hello')
  is(second.quota(10, token.id)[0]?.used, 42)
  is(second.completion('k')?.content, 'content')
  equal({ ...second.counts() }, { tokens: 1, logs: 1, quota: 1, completions: 1 })
  await second.close()
})

store('forgets completions when they expire', async () => {
  await using home = await makeRoom()
  let seconds = 1_700_000_000
  const cache = openStore(home.database, { now: () => new Date(seconds * 1000) })
  await cache.putCompletion('a', 'x', 60)
  seconds += 61
  is(cache.completion('a'), null)
  equal(cache.completions(10), [])
  await cache.putCompletion('b', 'y', 60)
  is(cache.counts().completions, 1)
  await cache.close()
})

store('is written by predecessor and successor at once, and every acknowledged row is there', async () => {
  await using home = await makeRoom()
  const both = [openStore(home.database), openStore(home.database)]
  const rows = await Promise.all(
    Array.from({ length: 400 }, (_, i) => (both[i % 2] as Store).addLog('info', `row ${i}`)),
  )
  is(new Set(rows.map(({ id }) => id)).size, 400)
  for (const one of both) is(one.counts().logs, 400)
  await Promise.all(both.map((one) => one.close()))
})

store('brings an older file up to date while the older release has it open', async () => {
  await using home = await makeRoom()
  const older = openStore(home.database, { schema: SCHEMA.slice(0, 1) })
  await older.addLog('info', 'before')
  const newer = openStore(home.database)
  is(newer.schema, SCHEMA.length)
  await older.addLog('info', 'after')
  await older.addQuota('t', 1)
  is(newer.counts().logs, 2)
  is(newer.quota(10, 't').length, 1)
  const again = openStore(home.database, { schema: SCHEMA.slice(0, 1) }) // a rollback opens the newer file
  is(again.counts().logs, 2)
  for (const one of [older, newer, again]) await one.close()
})

store('refuses a file that needs a newer release, says so, and leaves it as it is', async () => {
  await using home = await makeRoom()
  const breaking = [...SCHEMA, { minimumReader: SCHEMA.length + 1, sql: 'drop index quota_by_token' }]
  const future = openStore(home.database, {
    schema: [...breaking, { minimumReader: 1, sql: 'create table more (x) ' }],
  })
  const needs = new RegExp(
    `needs a release that reads schema ${SCHEMA.length + 1}, but this one reads only up to ${SCHEMA.length}`,
  )
  const error = throws(() => openStore(home.database), needs) as Error & { hint: string }
  match(error.hint, 'newer release')
  is(future.schema, SCHEMA.length + 2)
  future.check()
  await future.close()
})

store('a step that fails leaves the schema as it was', async () => {
  await using home = await makeRoom()
  await openStore(home.database).close()
  const broken = [...SCHEMA, { minimumReader: 1, sql: 'create table half (x); create table half (x)' }]
  throws(() => openStore(home.database, { schema: broken }), 'half')
  const again = openStore(home.database)
  is(again.schema, SCHEMA.length)
  await again.close()
})

store('two processes that start at once both find the schema', async () => {
  await using home = await makeRoom()
  const [processes, rounds] = [4, 20]
  // each waits in every round until all have come: they open the new database in the same millisecond
  const program = `
    import { existsSync, writeFileSync } from 'node:fs'
    const { openStore } = await import(${JSON.stringify(new URL('../agent/service/store.ts', import.meta.url).href)})
    const [folder, own] = process.argv.slice(1)
    for (let round = 0; round < ${rounds}; round++) {
      writeFileSync(folder + '/' + round + '-' + own, '')
      for (let other = 0; other < ${processes}; other++)
        for (let looks = 0; looks < 1e6 && !existsSync(folder + '/' + round + '-' + other); looks++); // one that failed never comes
      const store = openStore(folder + '/' + round + '.db')
      await store.addLog('info', 'x')
      await store.close()
    }`
  const start = (_: unknown, own: number) =>
    run([process.execPath, '--input-type=module', '-e', program, home.path, String(own)])
  await Promise.all(Array.from({ length: processes }, start))
  for (let round = 0; round < rounds; round++) {
    const after = openStore(join(home.path, `${round}.db`))
    is(after.counts().logs, processes)
    await after.close()
  }
})

store('says what is wrong with a file that is no database', async () => {
  await using home = await makeRoom()
  await mkdir(join(home.path, 'state'))
  await writeFile(
    home.database,
    'this is not a database, not at all, but it is long enough to be looked at'.repeat(100),
  )
  throws(() => openStore(home.database), 'opening')
  throws(() => openStore('/dev/null/beacon.db'), 'opening')
})

store('writes nothing after it is closed, and closes twice', async () => {
  await using home = await makeRoom()
  const closed = openStore(home.database)
  const last = closed.addLog('info', 'queued before the close')
  await closed.close()
  await closed.close()
  is((await last).id, 1)
  await rejects(closed.addLog('info', 'late'), withCode('service_down'))
})

store('flushes each commit to the disk, in WAL mode', async () => {
  await using home = await makeRoom()
  const open = openStore(home.database)
  await open.close()
  const database = new DatabaseSync(home.database)
  is(database.prepare('pragma journal_mode').get()?.['journal_mode'], 'wal')
  is(database.prepare('pragma integrity_check').get()?.['integrity_check'], 'ok')
  database.close()
})

store.run()

// ---- requests

const requests = suite('service: requests')

requests('writes and reads each of the four kinds', async () => {
  await using service = await serve()
  const token = await service.call('POST', '/api/tokens', { name: 'laptop' })
  is(token.status, 201)
  const { id, secret } = token.body as { id: string; secret: string }
  match(secret, /^[A-Za-z0-9_-]{43}$/)
  const tokens = await service.call('GET', '/api/tokens')
  not(JSON.stringify(tokens.body).includes(secret))

  is((await service.call('POST', '/api/logs', { message: 'one' })).status, 201)
  is((await service.call('POST', '/api/logs', { message: 'two', level: 'error' })).status, 201)
  const logs = (await service.call('GET', '/api/logs?limit=1')).body as { logs: { id: number; message: string }[] }
  equal(
    logs.logs.map(({ message }) => message),
    ['two'],
  )
  const earlier = (await service.call('GET', `/api/logs?before=${logs.logs[0]?.id}`)).body as typeof logs
  equal(
    earlier.logs.map(({ message }) => message),
    ['one'],
  )

  is((await service.call('POST', '/api/quota', { tokenId: id, used: 3 })).status, 201)
  is(((await service.call('GET', `/api/quota?tokenId=${id}`)).body as { quota: unknown[] }).quota.length, 1)

  is((await service.call('POST', '/api/completions', { key: 'a/b ?', content: 'hello' })).status, 201)
  const one = await service.call('GET', `/api/completions/${encodeURIComponent('a/b ?')}`)
  is((one.body as { content: string }).content, 'hello')
  is((await service.call('GET', '/api/completions/none')).status, 404)
  equal((await service.call('GET', '/api/counts')).body, { tokens: 1, logs: 2, quota: 1, completions: 1 })
})

requests('tells what it is', async () => {
  await using service = await serve()
  is((await service.call('GET', '/')).body, 'beacon v1.2.3\n')
  equal((await service.call('GET', '/healthz')).body, { status: 'ok', ...BUILD })
  const version = (await service.call('GET', '/version')).body
  equal(version, { ...BUILD, node: process.version, schema: SCHEMA.length, pid: process.pid })
})

requests('is not healthy when the database cannot be read', async () => {
  await using service = await serve()
  await service.store.close()
  is((await service.call('GET', '/healthz')).status, 503)
  is((await service.call('POST', '/api/logs', { message: 'x' })).status, 503)
  is((await service.call('GET', '/api/logs')).status, 500)
  match(service.lines.join('\n'), 'GET /api/logs')
})

requests('answers wrong requests with the documented status and a problem document', async () => {
  await using service = await serve()
  const cases: [string, string, unknown, number][] = [
    ['GET', '/nothing', undefined, 404],
    ['GET', '//', undefined, 404],
    ['GET', '/api/completions/%zz', undefined, 404],
    ['GET', '/api/completions/*', undefined, 404],
    ['GET', '/__proto__', undefined, 404],
    ['DELETE', '/api/logs', undefined, 405],
    ['POST', '/', undefined, 405],
    ['PUT', '/healthz', undefined, 405],
    ['POST', '/api/logs', '{"message":', 400],
    ['POST', '/api/logs', 'null', 400],
    ['POST', '/api/logs', '[]', 400],
    ['POST', '/api/logs', {}, 400],
    ['POST', '/api/logs', { message: '' }, 400],
    ['POST', '/api/logs', { message: 1 }, 400],
    ['POST', '/api/logs', { message: 'x', level: 'loud' }, 400],
    ['POST', '/api/logs', { message: 'x', more: 1 }, 400],
    ['POST', '/api/logs', { message: 'x'.repeat(9000) }, 400],
    ['POST', '/api/quota', { tokenId: 't', used: -1 }, 400],
    ['POST', '/api/quota', { tokenId: 't', used: 1e300 }, 400],
    ['POST', '/api/completions', { key: 'k', content: 'c', ttlSeconds: 0 }, 400],
    ['GET', '/api/logs?limit=0', undefined, 400],
    ['GET', '/api/logs?limit=1001', undefined, 400],
    ['GET', '/api/logs?limit=-1', undefined, 400],
    ['GET', '/api/logs?before=1e9', undefined, 400],
    ['GET', '/api/stream?events=x', undefined, 400],
  ]
  for (const [method, path, body, status] of cases) {
    const answer = await service.call(method, path, body)
    is(answer.status, status, `${method} ${path} ${JSON.stringify(body)}`)
    is(answer.headers['content-type'], 'application/problem+json')
    is((answer.body as { status: number }).status, status)
  }
  const { headers } = await service.call('DELETE', '/api/logs')
  is(headers['allow'], 'GET, HEAD, POST')
  equal((await service.call('GET', '/api/counts')).body, { tokens: 0, logs: 0, quota: 0, completions: 0 })
})

requests('answers HEAD as GET without the body', async () => {
  await using service = await serve()
  for (const path of ['/', '/healthz', '/version', '/api/logs', '/api/stream']) {
    const { status, body } = await service.call('HEAD', path)
    is(status, 200, path)
    is(body, '')
  }
})

requests('refuses a body that is too large, announced or not, with an answer', async () => {
  await using service = await serve()
  const large = await service.call('POST', '/api/logs', `{"message":"${'x'.repeat(BODY_MAX_BYTES)}"}`)
  is(large.status, 413)
  is(large.headers['connection'], 'close')
  const answer = await new Promise<number>((resolve, reject) => {
    const call = request({ host: '127.0.0.1', port: service.port, method: 'POST', path: '/api/logs', agent: false })
    call.on('response', (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    call.on('error', reject)
    for (let i = 0; i < 5; i++) call.write('x'.repeat(64 * 1024)) // chunked: no length is announced
  })
  is(answer, 413)
})

requests('goes on when a client leaves in the middle of its body', async () => {
  await using service = await serve()
  const socket = connect(service.port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write('POST /api/logs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"mess')
  await sleep(50)
  socket.destroy()
  is((await service.call('GET', '/healthz')).status, 200)
  equal(service.lines, [])
})

requests('streams events and ends them', async () => {
  await using service = await serve()
  const text = (await service.call('GET', '/api/stream?events=3&intervalMs=5')).body as string
  match(text, /^retry: 100\n\n/)
  is(text.match(/^data: \{"number":/gm)?.length, 3)
  match(text, /event: end\ndata: \{\}\n\n$/)
})

requests('ends its streams on drain, with a hint to come back at once, and keeps the connection', async () => {
  await using service = await serve()
  const stream = (intervalMs: number) => fetch(`http://127.0.0.1:${service.port}/api/stream?intervalMs=${intervalMs}`)
  const [streaming, other] = [await stream(10), await stream(60_000)]
  service.drain()
  match(await streaming.text(), /event: drain\nretry: 100\ndata: \{\}\n\n$/)
  match(await other.text(), 'event: drain')
  is((await service.call('GET', '/healthz')).status, 200)
})

requests('shares one flush of the disk among many writes', async () => {
  await using service = await serve()
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, i) => service.call('POST', '/api/logs', { message: `m${i}` })),
  )
  ok(answers.every(({ status }) => status === 201))
  is((await service.call('GET', '/api/counts').then(({ body }) => body as { logs: number })).logs, 200)
})

requests(
  'somebody who has the database locked keeps nobody waiting but the writers, and those for a bounded time',
  async () => {
    await using home = await makeRoom()
    const opened = openStore(home.database)
    const other = new DatabaseSync(home.database)
    const handler = createHandler(opened, BUILD, () => {})
    const locked = createServer((incoming, response) => handler.handle(incoming, response))
    await new Promise<void>((resolve) => locked.listen(0, '127.0.0.1', resolve))
    const { port } = locked.address() as AddressInfo
    try {
      other.exec('begin immediate')
      const late = ask(port, 'POST', '/api/logs', null, '{"message":"x"}')
      for (const path of ['/healthz', '/api/logs', '/version']) is((await ask(port, 'GET', path, null)).status, 200)
      const soon = ask(port, 'POST', '/api/logs', null, '{"message":"x"}')
      let over = false
      void late.then(() => (over = true))
      is((await ask(port, 'GET', '/healthz', null)).status, 200)
      is(over, false, 'all of these were answered while a write waited for the lock')
      const { status, body } = await late
      equal([status, (body as { code: string }).code], [503, 'service_down'])
      is((await soon).status, 503)
      other.exec('commit')
      is((await ask(port, 'POST', '/api/logs', null, '{"message":"x"}')).status, 201)
      other.exec('begin immediate')
      const patient = ask(port, 'POST', '/api/logs', null, '{"message":"y"}')
      is((await ask(port, 'GET', '/healthz', null)).status, 200)
      other.exec('commit')
      is((await patient).status, 201)
    } finally {
      other.close()
      locked.closeAllConnections()
      locked.close()
      await opened.close()
    }
  },
)

requests.run()

// ---- the program

const program = suite('service: program', { timeoutMs: 60_000 })

program('serves, with the agent embedded, and keeps acknowledged rows over kill -9', async () => {
  await using home = await install({ release: await scriptRelease('v1.0.0') })
  const child = await home.start()
  is((await home.api('GET', '/')).body, 'beacon v1.0.0\n')
  const ids: number[] = []
  for (let i = 0; i < 50; i++)
    ids.push(((await home.api('POST', '/api/logs', { message: `m${i}` })).body as { id: number }).id)
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
  await home.start()
  const { logs } = (await home.api('GET', '/api/logs?limit=1000')).body as { logs: { id: number }[] }
  equal(logs.map(({ id }) => id).toReversed(), ids)
  const status = await home.api('GET', '/admin/update/status')
  is(status.status, 200)
  is((status.body as { instance: { version: string } }).instance.version, 'v1.0.0')
  is((await stat(home.stateDirectory)).mode & 0o777, 0o700)
  not((await home.output()).includes(home.password ?? '-'))
})

program('serves under a base path, on two ports, on a unix socket and over TLS at once', async () => {
  await using folder = await makeRoom()
  const [plain, secure, socketPath] = [await freePort(), await freePort(), join(folder.path, 'service.sock')]
  const tls = await writeCertificate(folder.path)
  await using home = await install({
    release: await scriptRelease('v1.0.0'),
    basePath: '/beacon',
    listen: [{ port: plain }, { port: secure, tls }, { path: socketPath }],
  })
  await home.start()
  is((await ask(plain, 'GET', '/beacon/admin/update/status', home.password)).status, 200)
  is((await ask(plain, 'GET', '/healthz', null)).status, 200)
  const asked = await callHttp({ tls: true, host: '127.0.0.1', port: secure }, '/healthz') // as a command asks
  is(asked.status, 200)
  const overTlsAlone = join(folder.path, 'config.json')
  await writeFile(overTlsAlone, JSON.stringify({ listen: { port: secure, tls }, basePath: '/beacon' }))
  const asks = [process.execPath, join(import.meta.dirname, '../deploy/executable.ts'), 'healthcheck']
  is((await run([...asks, '--config', overTlsAlone])).stdout, 'beacon v1.0.0\n')
  const overSocket = await new Promise<number>((resolve, reject) => {
    const call = request({ socketPath, path: '/healthz', agent: false })
    call.on('response', (response) => resolve(response.resume().statusCode ?? 0)).on('error', reject)
    call.end()
  })
  is(overSocket, 200)
})

program('answers --version at once, whatever else is wrong', async () => {
  await using folder = await makeRoom()
  const executable = join(folder.path, 'beacon')
  await unpack(await scriptRelease('v1.0.0'), executable)
  const { stdout } = await run([executable, '--version'], { env: { BEACON_CONFIG: '/nonexistent' } })
  is(stdout, 'beacon v1.0.0\n')
})

program('says what is wrong with its settings and exits with 2', async () => {
  await using folder = await makeRoom()
  const [executable, path] = [join(folder.path, 'beacon'), join(folder.path, 'config.json')]
  await unpack(await scriptRelease('v1.0.0'), executable)
  await writeFile(path, '{"listen":{"port":-1},"feeed":1}')
  const { exitCode, stderr } = await run([executable, '--config', path], { allowFailure: true })
  is(exitCode, 2)
  match(stderr, /^error: the configuration .*`listen.*port`.*/)
  match(stderr, 'feeed')
  is(stderr.split('\n').length, 2)
})

program('exits with 7 and a hint where the database needs a newer release', async () => {
  await using home = await install({ release: await scriptRelease('v1.0.0', 'cannot-open-state') })
  await openStore(home.database).close()
  const child = spawn(home.executable, ['--config', home.configPath], { stdio: ['ignore', 'ignore', 'pipe'] })
  let stderr = ''
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number]
  is(code, 7)
  match(stderr, /^error: .* needs a release that reads schema 1, but this one reads only up to 0.*\nhint: /)
})

program('lets requests in flight finish on SIGTERM, ends its streams, and exits with 0', async () => {
  await using home = await install({ release: await scriptRelease('v1.0.0') })
  const child = await home.start()
  const streaming = await fetch(`http://127.0.0.1:${home.port}/api/stream?intervalMs=10`)
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  match(await streaming.text(), 'event: drain')
  equal(await exited, [0, null])
})

program.run()

// ---- helpers

async function makeRoom(): Promise<Temporary & { database: string }> {
  const made = await temporary('service')
  return { ...made, database: join(made.path, 'state', 'beacon.db') }
}

interface Served extends AsyncDisposable {
  port: number
  store: Store
  /** what the handler logged */
  lines: string[]
  drain(): void
  call(method: string, path: string, body?: unknown): Promise<Answer>
}

/** The service's own handler on a real socket, without the agent. */
async function serve(): Promise<Served> {
  const home = await makeRoom()
  const opened = openStore(home.database)
  const lines: string[] = []
  const handler = createHandler(opened, BUILD, (line) => lines.push(line))
  const server = createServer((incoming, response) => handler.handle(incoming, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = address !== null && typeof address === 'object' ? address.port : 0
  return {
    port,
    store: opened,
    lines,
    drain: () => handler.drain(),
    call: (method, path, body) => ask(port, method, path, null, body),
    async [Symbol.asyncDispose]() {
      handler.drain()
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await opened.close()
      await home[Symbol.asyncDispose]()
    },
  }
}
