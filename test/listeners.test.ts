// A service with several listeners at once: two ports, a unix socket and https. All are inherited; connections of the plain
// ones move, those over TLS are told to go with their next response. And what cannot move at all, a long streaming response,
// is ended by the author's hook or, at the deadline, cut and counted.

import { mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { Agent, createServer, request as plainRequest } from 'node:http'
import { connect, createServer as createHttp2Server } from 'node:http2'
import { Agent as SecureAgent, request as secureRequest } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeCarries } from '../agent/handover/carry/carry.ts'
import { drain } from '../agent/handover/give/connections.ts'
import { spares, startWith } from '../agent/sockets/start-with.ts'
import { storedNameOf } from '../agent/sockets/stored-names.ts'
import { makeGiving } from '../agent/handover/give/giving.ts'
import { openDescriptorStore } from '../agent/sockets/descriptor-store.ts'
import { bind, closeListener, makeListener, stopAccepting } from '../agent/sockets/listeners.ts'
import type { Operation, Status } from '../agent/index.ts'
import { NO_HANDOVER } from '../agent/words/report.ts'
import * as assert from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { ask, freePort, install, type Install } from './fixtures/install.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { writeCertificate } from './lab/certificate.ts'
import { startLoad } from './lab/load.ts'
import { suite } from './suite.ts'

const test = suite('listeners', { timeoutMs: 90_000 })

test('two ports, a unix socket and https are all handed on, and no request on any of them is lost', async () => {
  await using room = await makeRoom()
  const [one, two, tls] = [await freePort(), await freePort(), await freePort()]
  const path = join(room.folder, 'svc.sock')
  const certificate = await writeCertificate(room.folder)
  const listen = [
    { host: '127.0.0.1', port: one },
    { host: '127.0.0.1', port: two },
    { path },
    { host: '127.0.0.1', port: tls, tls: certificate },
  ]
  await using home = await install({ release: room.from, feed: room.feed, listen, update: { probation: '600ms' } })
  await home.start()
  const loads = [
    startLoad({ mode: 'keepalive', clients: 8, port: one, thinkMs: [0, 10] }),
    startLoad({ mode: 'fresh', clients: 4, port: one, thinkMs: [0, 10] }),
    startLoad({ mode: 'keepalive', clients: 8, port: two, thinkMs: [0, 10] }),
    startLoad({ mode: 'keepalive', clients: 8, socketPath: path, thinkMs: [0, 10] }),
    startLoad({ mode: 'fresh', clients: 4, socketPath: path, thinkMs: [0, 10] }),
  ]
  const secure = startSecure(tls)
  for (const [, outcome] of [
    [1, 'updated'],
    [2, 'rolled_back'],
    [3, 'rolled_back'],
  ] as const) {
    const ended = await operate(home, one, outcome === 'updated' ? '/admin/update' : '/admin/update/rollback')
    assert.is(ended.outcome, outcome, JSON.stringify(ended))
    assert.is(ended.handover?.cut, 0)
  }
  for (const load of loads) {
    const { lost, closed, ok, errors } = await load.stop()
    assert.is(lost, 0, JSON.stringify(errors))
    assert.is(closed, 0)
    assert.ok(ok > 50, `expected more than 50 answers, got ${ok}`)
  }
  const { ok, failed } = await secure.stop()
  assert.equal(failed, [])
  assert.ok(ok > 20, `expected more than 20 answers over TLS, got ${ok}`)
  assert.ok((await stat(path)).isSocket(), 'the unix socket is still there')
})

test('an address that the configuration changes on the same port is taken over while the predecessor still has the old one', async () => {
  await using room = await makeRoom()
  const port = await freePort()
  const listen = [{ host: '127.0.0.1', port }]
  await using home = await install({ release: room.from, feed: room.feed, listen, update: { probation: '400ms' } })
  await home.start()
  await listenOn(home, '0.0.0.0', port)
  const ended = await operate(home, port, '/admin/update', { mayReset: true })
  assert.is(ended.outcome, 'updated', JSON.stringify(ended))
})

test('an address that the configuration changes on the same port is bound while the manager still holds the old one', async () => {
  await using room = await makeRoom()
  const port = await freePort()
  const spec = { server: createServer(), host: '127.0.0.1', port }
  const held = makeListener(spec)
  await bind(held, spec)
  stopAccepting(held)
  await using home = await install({ release: room.from, feed: room.feed, listen: [{ host: '127.0.0.1', port }] })
  await listenOn(home, '0.0.0.0', port)
  await using log = await open(home.logPath, 'a')
  await startWith({ file: home.executable, args: ['--config', home.configPath] }, spares([held]), { output: log.fd })
  await until('the service', async () => /serving v1\.0\.0 on 0\.0\.0\.0:/.test(await home.output()))
  closeListener(held)
})

test('what only a release listened on that was taken back is not held: its clients reach the one that serves', async () => {
  await using room = await makeRoom()
  const port = await freePort()
  const bad = await scriptRelease('v1.2.0', 'dies-after-1s')
  const feed = await publishTo(join(room.folder, 'bad'), [bad])
  const listen = [{ host: '0.0.0.0', port }]
  await using home = await install({ release: room.from, feed, listen, update: { probation: '4s' } })
  using keeper = openDescriptorStore(join(room.folder, 'keeper.sock'))
  await home.start({ NOTIFY_SOCKET: keeper.path })
  await listenOn(home, '127.0.0.1', port)
  const { body } = await ask(port, 'POST', '/admin/update', home.password)
  await until('the revert', async () => {
    const answer = await ask(port, 'GET', '/admin/update/status', home.password).catch(() => null)
    const { operation } = (answer?.body ?? {}) as Partial<Status>
    return operation?.id === (body as Operation).id && operation.outcome === 'reverted'
  })
  assert.match(await home.output(), new RegExp(`serving v1\\.2\\.0 on 127\\.0\\.0\\.1:${port}`))
  assert.equal(
    keeper.held().map(({ name }) => name),
    [storedNameOf(`0.0.0.0:${port}`)],
  )
})

test('a long streaming response is ended by the onDrain hook of the service, not cut', async () => {
  await using room = await makeRoom()
  await using home = await install({
    release: room.from,
    feed: room.feed,
    update: { probation: '600ms', drainTimeout: '8s' },
  })
  await home.start()
  const port = home.port ?? 0
  const stream = openStream(port, '/api/stream?events=100000&intervalMs=20')
  await stream.begun
  const ended = await operate(home, port, '/admin/update')
  assert.is(ended.outcome, 'updated', JSON.stringify(ended))
  assert.is(ended.handover?.cut, 0)
  const { text, whole } = await stream.ended
  assert.ok(whole, 'the response was ended properly')
  assert.match(text, /retry: \d+/)
})

test('what does not end by the drain deadline is cut, counted and reported', async () => {
  await using room = await makeRoom()
  await using home = await install({
    release: room.from,
    feed: room.feed,
    update: { probation: '400ms', drainTimeout: '300ms' },
  })
  await home.start()
  const port = home.port ?? 0
  // a request that never ends: its body is announced and does not come
  const socket = plainRequest({
    port,
    method: 'POST',
    path: '/api/logs',
    headers: { 'content-length': 1000 },
    agent: false,
  })
  const broken = new Promise<Error>((resolve) => socket.once('error', resolve))
  socket.write('{')
  await sleep(50)
  const ended = await operate(home, port, '/admin/update')
  assert.is(ended.outcome, 'updated', JSON.stringify(ended))
  assert.is(ended.handover?.cut, 1)
  assert.ok((await broken) instanceof Error)
  assert.match(
    await home.output(),
    /drained connections: \d+ moved to the new process \(\d+ in use\), \d+ asked to reconnect, 1 cut off/,
  )
})

test('HTTP/2 sessions are told to go away: the stream in flight ends well, and nothing is cut', async () => {
  const server = createHttp2Server((request, response) => {
    setTimeout(() => response.end(`answered ${request.url}`), 300)
  })
  const listener = makeListener({ server, port: 0 })
  await bind(listener, { server, port: 0 })
  const client = connect(`http://${listener.address}`)
  const goneAway = new Promise<void>((resolve) => client.once('goaway', () => resolve()))
  const closed = new Promise<void>((resolve) => client.once('close', () => resolve()))
  const stream = client.request({ ':path': '/slow' })
  let text = ''
  stream.setEncoding('utf8').on('data', (part: string) => (text += part))
  await new Promise((resolve) => server.once('request', resolve))

  stopAccepting(listener)
  const report = { ...NO_HANDOVER }
  const giving = makeGiving({
    has: () => false, // nothing could be given to it
    give: () => false,
    tell: () => {},
    gone: new Promise(() => {}),
    listeners: [listener],
    report,
  })
  const limits = { drainMs: 5000, drainMaxMs: 5000 }
  const { signal } = new AbortController()
  await drain({ listeners: [listener], giving, carries: makeCarries(() => {}), limits, report, signal, warn: () => {} })
  await Promise.all([goneAway, closed])
  assert.equal(report, NO_HANDOVER)
  assert.is(text, 'answered /slow')
  closeListener(listener)
})

test.run()

interface Room extends AsyncDisposable {
  folder: string
  from: Awaited<ReturnType<typeof scriptRelease>>
  feed: string
}

async function makeRoom(): Promise<Room> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-room-'))
  const [from, to] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.1.0')]
  return {
    folder,
    from,
    feed: await publishTo(join(folder, 'feed'), [to]),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

/** As an operator edits the file: what is started from now on listens there. */
async function listenOn({ configPath }: Install, host: string, port: number): Promise<void> {
  const config = JSON.parse(await readFile(configPath, 'utf8')) as object
  await writeFile(configPath, JSON.stringify({ ...config, listen: [{ host, port }] }))
}

/** Starts an operation and waits for its end, over connections of its own. */
/** `mayReset`: what is queued in the moment in which an address is given up is reset (`turnAway`), a question about the status too. */
async function operate(home: Install, port: number, path: string, { mayReset = false } = {}): Promise<Operation> {
  const call = async (method: string, target: string) => {
    const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: unknown }>()
    const headers = { authorization: `Bearer ${home.password}` }
    const asked = plainRequest({ port, method, path: target, headers, agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      response.once('end', () => resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) }))
    })
    asked.once('error', reject)
    asked.end()
    return await promise
  }
  const started = await call('POST', path)
  assert.is(started.status, 202, JSON.stringify(started.body))
  const { id } = started.body as Operation
  for (const deadline = Date.now() + 30_000; Date.now() < deadline; await sleep(20)) {
    const answer = await call('GET', '/admin/update/status').catch((cause: unknown) => {
      if (!mayReset) throw cause
    })
    const { operation = null } = (answer?.body ?? {}) as Partial<Status>
    if (operation?.id === id && operation.outcome !== null) return operation
  }
  throw new Error(`the operation did not end: ${await home.output()}`)
}

/** One client after the other on a kept-alive TLS connection that it opens anew when it is told to. */
function startSecure(port: number): { stop(): Promise<{ ok: number; failed: string[] }> } {
  const agent = new SecureAgent({ keepAlive: true, maxSockets: 1 })
  const failed: string[] = []
  let ok = 0
  let goes = true
  const one = () =>
    new Promise<void>((resolve) => {
      const asked = secureRequest({ port, path: '/version', agent, rejectUnauthorized: false }, (response) => {
        response.resume().once('end', () => {
          if (response.statusCode === 200) ok++
          else failed.push(`status ${response.statusCode}`)
          resolve()
        })
      })
      asked.once('error', (error) => {
        failed.push(error.message)
        resolve()
      })
      asked.end()
    })
  const going = (async () => {
    while (goes) {
      await one()
      await sleep(5)
    }
    agent.destroy()
  })()
  return {
    async stop() {
      goes = false
      await going
      return { ok, failed }
    },
  }
}

function openStream(
  port: number,
  path: string,
): { begun: Promise<void>; ended: Promise<{ text: string; whole: boolean }> } {
  const begun = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<{ text: string; whole: boolean }>()
  let text = ''
  plainRequest({ port, path, agent: new Agent({ keepAlive: false }) }, (response) => {
    response.setEncoding('utf8').on('data', (part: string) => {
      text += part
      begun.resolve()
    })
    response.once('close', () => ended.resolve({ text, whole: response.complete }))
  })
    .once('error', (error) => {
      begun.reject(error)
      ended.resolve({ text, whole: false })
    })
    .end()
  return { begun: begun.promise, ended: ended.promise }
}
