// The load generators and the oracle, held against servers that are wrong on purpose: a zero is worth nothing before the
// same instrument has been seen to move.

import { createServer } from 'node:http'
import type { RequestListener, Server } from 'node:http'
import * as net from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { join } from 'node:path'
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { spawn } from 'node:child_process'
import { createHistogram } from './lab/histogram.ts'
import { spawnLoad, startLoad } from './lab/load.ts'
import type { LoadOptions, Totals } from './lab/load.ts'
import { inNetns, moved, netnsProblem } from './lab/netns.ts'
import type { Counters } from './lab/netns.ts'
import { createResponseReader, readFrames } from './lab/response.ts'
import * as assert from './assert.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('load')
const inNamespace = suite('oracle', { skip: netnsProblem(), timeoutMs: 60_000 })

const LOAD_URL = new URL('./lab/load.ts', import.meta.url).href
const NETNS_URL = new URL('./lab/netns.ts', import.meta.url).href

test('loses nothing on a server that is right, in every mode', async () => {
  for (const mode of ['fresh', 'keepalive', 'stream', 'websocket'] as const) {
    await using server = await goodServer()
    const load = startLoad({ mode, clients: 8, port: server.port, path: mode === 'stream' ? '/stream' : '/' })
    await until(() => load.snapshot().ok >= 100)
    const totals = await load.stop()
    assert.is(totals.lost, 0, mode)
    assert.is(totals.closed, 0, mode)
    assert.equal(totals.errors, {}, mode)
    assert.is(totals.requests, totals.ok + totals.unfinished, mode)
    assert.ok(mode === 'stream' || totals.unfinished === 0, `${mode}: ${totals.unfinished} unfinished`)
    if (mode === 'keepalive' || mode === 'websocket') assert.is(totals.connections, 8, mode)
    assert.ok(totals.latency.p50Ms > 0 && totals.latency.p999Ms <= totals.latency.maxMs, mode)
  }
})

test('loses nothing over a unix socket', async () => {
  await using made = await temporary('load')
  const folder = made.path
  const socketPath = join(folder, 'socket')
  const server = createServer((_, res) => res.end('ok'))
  await new Promise<void>((resolve) => server.listen(socketPath, resolve))
  const load = startLoad({ mode: 'fresh', clients: 4, socketPath, maxRequests: 200 })
  const totals = await load.done
  assert.is(totals.ok, 200)
  assert.is(totals.requests, 200)
  server.close()
})

test('counts a server that resets before it answers', async () => {
  await using server = await wrongServer((socket) => socket.once('data', () => socket.resetAndDestroy()))
  const totals = await startLoad({ mode: 'fresh', clients: 4, port: server.port, maxRequests: 20 }).done
  assert.is(totals.lost, 20)
  assert.equal(totals.lostBy, { connect: 0, sent: 20, response: 0 })
  assert.equal(totals.errors, { 'sent: ECONNRESET': 20 })
})

test('counts a server that ends in the middle of an answer', async () => {
  const half = 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf'
  await using server = await wrongServer((socket) => socket.once('data', () => socket.end(half)))
  const totals = await startLoad({ mode: 'fresh', clients: 2, port: server.port, maxRequests: 10 }).done
  assert.equal(totals.lostBy, { connect: 0, sent: 0, response: 10 })
  assert.equal(totals.errors, { 'response: ended': 10 })
})

test('counts a server that is not there', async () => {
  const server = await wrongServer(() => undefined)
  await server.close()
  const totals = await startLoad({ mode: 'fresh', clients: 2, port: server.port, maxRequests: 10 }).done
  assert.equal(totals.errors, { 'connect: ECONNREFUSED': 10 })
})

test('counts a server that hangs, and gives up on it', async () => {
  await using server = await wrongServer(() => undefined)
  const options: LoadOptions = { mode: 'keepalive', clients: 3, port: server.port, hangMs: 200 }
  const totals = await startLoad(options).done
  assert.equal(totals.errors, { 'sent: hang': 3 })
  assert.is(totals.alive, 0)
  assert.ok(totals.longestStallMs >= 200, `longest stall ${totals.longestStallMs} ms`)
})

test('counts an idle keep-alive connection that the server closes, and does not reconnect', async () => {
  await using server = await goodServer()
  const load = startLoad({ mode: 'keepalive', clients: 6, port: server.port, thinkMs: 60_000 })
  await until(() => load.snapshot().ok === 6)
  server.http.closeIdleConnections()
  const totals = await load.done
  assert.is(totals.closed, 6)
  assert.equal(totals.closedBy, { idle: 6, busy: 0, announced: 0 })
  assert.is(totals.lost, 0)
  assert.is(totals.connections, 6)
})

test('counts a keep-alive connection that is ended by an announcement, and replaces it when told to', async () => {
  await using server = await goodServer((_, res) => res.setHeader('connection', 'close').end('bye'))
  const options: LoadOptions = {
    mode: 'keepalive',
    clients: 2,
    port: server.port,
    afterClose: 'reopen',
    maxRequests: 30,
  }
  const totals = await startLoad(options).done
  assert.is(totals.ok, 30)
  assert.equal(totals.closedBy, { idle: 0, busy: 0, announced: 30 })
  assert.is(totals.connections, 30)
})

test('counts a keep-alive connection that is closed under a request as closed and as lost', async () => {
  let requests = 0
  await using server = await goodServer((req, res) => (++requests > 4 ? req.socket.destroy() : res.end('ok')))
  const totals = await startLoad({ mode: 'keepalive', clients: 2, port: server.port }).done
  assert.is(totals.closedBy.busy, 2)
  assert.is(totals.lost, 2)
})

test('counts wrong answers: a status, another request, no HTTP', async () => {
  const cases: [string, RequestListener][] = [
    ['response: status 503', (_, res) => res.writeHead(503).end()],
    ["response: another request's answer", (_, res) => res.setHeader('x-request-id', 'other').end()],
    ['response: not HTTP', (req) => req.socket.end('SSH-2.0-OpenSSH_9.2\r\n\r\n')],
  ]
  for (const [error, handler] of cases) {
    await using server = await goodServer(handler)
    const totals = await startLoad({ mode: 'fresh', clients: 1, port: server.port, maxRequests: 3 }).done
    assert.equal(totals.errors, { [error]: 3 })
    assert.is(totals.ok, 0)
  }
})

test('counts a stream that is cut, and the longest gap in one that is not', async () => {
  await using cut = await goodServer((_, res) => {
    res.write('one')
    setTimeout(() => res.destroy(), 20)
  })
  const lost = await startLoad({ mode: 'stream', clients: 2, port: cut.port, maxRequests: 4 }).done
  assert.is(lost.lostBy.response, 4)
  assert.is(lost.closed, 4)
  await using slow = await goodServer((_, res) => {
    res.write('one')
    setTimeout(() => res.end('two'), 150)
  })
  const whole = await startLoad({ mode: 'stream', clients: 2, port: slow.port, maxRequests: 2 }).done
  assert.is(whole.ok, 2)
  assert.ok(whole.longestStallMs >= 145 && whole.longestStallMs < 2000, `longest stall ${whole.longestStallMs} ms`)
})

test('counts a websocket that is closed, with or without a close frame', async () => {
  await using server = await goodServer()
  const load = startLoad({ mode: 'websocket', clients: 4, port: server.port, thinkMs: 60_000 })
  await until(() => load.snapshot().ok === 4)
  const [polite, ...rude] = [...server.upgraded]
  polite?.end(Buffer.from([0x88, 0x02, 0x03, 0xf4])) // 1012, service restart
  for (const socket of rude) socket.destroy()
  const totals = await load.done
  assert.equal(totals.closedBy, { idle: 3, busy: 0, announced: 1 })
  assert.is(totals.lost, 0)
})

test('measures the outage that a client sees, not only its slowest answer', async () => {
  await using server = await goodServer()
  const load = startLoad({ mode: 'fresh', clients: 2, port: server.port })
  await until(() => load.snapshot().ok > 10)
  await load.mark('outage')
  await server.close()
  await sleep(300)
  const again = createServer((_, res) => res.end('ok'))
  await new Promise<void>((resolve) => again.listen(server.port, '127.0.0.1', resolve))
  const before = load.snapshot().ok
  await until(() => load.snapshot().ok > before + 10)
  await load.mark(null)
  const totals = await load.stop()
  again.close()
  const outage = totals.slices['outage']
  assert.ok(outage !== undefined && outage.lost > 0 && outage.ok > 0)
  assert.ok(outage.longestStallMs >= 290, `longest stall ${outage.longestStallMs} ms`)
  assert.ok(totals.errors['connect: ECONNREFUSED'])
})

test('writes on the side and knows which were acknowledged', async () => {
  const rows: string[] = []
  await using server = await goodServer((req, res) => {
    if (req.method === 'POST') req.setEncoding('utf8').on('data', (body: string) => rows.push(body))
    req.resume().on('end', () => res.end('ok'))
  })
  const write = { every: 5, path: '/rows', body: '{"id":"{id}"}', headers: { 'Content-Type': 'application/json' } }
  const options: LoadOptions = { mode: 'keepalive', clients: 3, port: server.port, maxRequests: 50, write }
  const totals = await startLoad({ ...options, keepAcknowledgedIds: true }).done
  assert.is(totals.writes.acknowledged, 10)
  assert.equal(rows.map((row) => (JSON.parse(row) as { id: string }).id).toSorted(), totals.writes.ids.toSorted())
})

test('ends by itself at its bounds', async () => {
  await using server = await goodServer()
  const timed = await startLoad({ mode: 'keepalive', clients: 2, port: server.port, maxMs: 150 }).done
  assert.ok(timed.durationMs >= 140 && timed.durationMs < 5000, `${timed.durationMs} ms`)
  assert.is(timed.lost + timed.closed + timed.unfinished, 0)
  assert.throws(() => startLoad({ mode: 'fresh', clients: 0, port: 1 }), /clients: expected 1 to/)
  assert.throws(() => startLoad({ mode: 'fresh', clients: 1 }), /either `port` or `socketPath`/)
})

test('gives the same books from a process of its own', async () => {
  await using server = await goodServer()
  const options: LoadOptions = { mode: 'keepalive', clients: 4, port: server.port, thinkMs: 5, tally: 'x-version' }
  const load = await spawnLoad(options)
  await load.mark('first')
  await until(() => load.snapshot().ok > 20)
  await load.mark(null)
  const totals = await load.stop()
  assert.is(totals.lost + totals.closed, 0)
  assert.is(totals.connections, 4)
  assert.equal(totals.answeredBy, { v1: totals.ok })
  assert.ok((totals.slices['first']?.ok ?? 0) > 10)
  assert.is((await load.stop()).ok, totals.ok)
})

test('says so when its process dies', async () => {
  await using server = await goodServer()
  await assert.rejects(
    spawnLoad({ mode: 'fresh', clients: 1, port: server.port }, { prefix: ['false'] }),
    /ended early with 1/,
  )
  await assert.rejects(
    spawnLoad({ mode: 'fresh', clients: 1, port: server.port }, { prefix: ['/no/such'] }),
    /could not be/,
  )
})

test('runs from the shell until its stdin ends', async () => {
  await using server = await goodServer()
  const options: LoadOptions = { mode: 'fresh', clients: 2, port: server.port }
  const child = spawn(process.execPath, [new URL(LOAD_URL).pathname, '--json', JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  await until(() => server.answered() > 10)
  child.stdin.end()
  await new Promise((resolve) => child.on('close', resolve))
  const totals = JSON.parse(output) as Totals
  assert.ok(totals.ok > 10)
  assert.is(totals.lost, 0)
})

test('reads responses in whatever pieces they come', () => {
  const chunked =
    'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nmore'
  for (let size = 1; size <= chunked.length; size++) {
    const reader = createResponseReader()
    let reading = 'incomplete'
    for (let i = 0; i < chunked.length && reading === 'incomplete'; i += size) {
      reading = reader.push(Buffer.from(chunked.slice(i, i + size)))
    }
    assert.is(reading, 'complete', `in pieces of ${size}`)
    assert.is(reader.status, 200)
    assert.is(reader.persistent, true)
  }
  assert.is(
    createResponseReader().push(Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')),
    'invalid',
  )
  const untilEnd = createResponseReader()
  assert.is(untilEnd.push(Buffer.from('HTTP/1.0 200 OK\r\n\r\nbody')), 'incomplete')
  assert.is(untilEnd.end(), 'complete')
  assert.is(readFrames(Buffer.from([0x81, 0x01, 0x41, 0x81]))?.frames[0]?.payload.toString(), 'A')
  assert.is(readFrames(Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x41])), null, 'a masked frame from a server')
})

test('keeps quantiles within one percent', () => {
  const histogram = createHistogram()
  for (let i = 1; i <= 100_000; i++) histogram.record(i / 10)
  const { count, p50Ms, p99Ms, p999Ms, maxMs } = histogram.latency()
  assert.is(count, 100_000)
  assert.is(maxMs, 10_000)
  for (const [is, should] of [
    [p50Ms, 5000],
    [p99Ms, 9900],
    [p999Ms, 9990],
  ] as const) {
    assert.ok(Math.abs(is / should - 1) < 0.01, `${is} is not ${should}`)
  }
})

inNamespace('has a fresh namespace with a loopback of its own', async () => {
  const result = await inNetns(['sh', '-c', 'cat /proc/net/dev; ps -e | wc -l'])
  assert.is(result.code, 0, result.stderr)
  assert.match(result.stdout, /lo:/)
  assert.not.match(result.stdout, /eth0:/)
})

inNamespace('ends everything inside when the time is up', async () => {
  const startedAt = performance.now()
  const result = await inNetns(['sh', '-c', 'sleep 61.7 & exec sleep 61.7'], { timeoutMs: 300 })
  assert.is(result.signal, 'SIGKILL')
  assert.ok(performance.now() - startedAt < 10_000) // else the pipes would still be held by the sleepers
})

/** A server takes fresh connections for a while; halfway it stops until some are in its queue, then `halfway` is done to it. */
const scene = (halfway: string): string => `
  import net from 'node:net'
  import { createServer } from 'node:http'
  import { readFileSync } from 'node:fs'
  const { spawnLoad } = await import('${LOAD_URL}')
  const { counters } = await import('${NETNS_URL}')
  const newServer = () => createServer((_, res) => res.end('ok'))
  const listen = (server) => new Promise((resolve) => server.listen({ port: 8080, host: '127.0.0.1', reusePort: true }, resolve))
  let server = newServer()
  await listen(server)
  const load = await spawnLoad({ mode: 'fresh', clients: 16, port: 8080 })
  while (load.snapshot().ok < 200) await new Promise((resolve) => setTimeout(resolve, 20))
  const before = counters()
  const queued = () =>
    readFileSync('/proc/net/tcp', 'utf8').split('\\n').some((line) => / 0A \\w+:(?!0+ )/.test(line))
  const pause = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50)
  for (let times = 0; times < 3 || (times < 200 && !queued()); times++) pause()
  ${halfway}
  const ok = load.snapshot().ok
  while (load.snapshot().ok < ok + 200) await new Promise((resolve) => setTimeout(resolve, 20))
  const totals = await load.stop()
  console.log(JSON.stringify({ lost: totals.lost, before, after: counters() }))
  server.close()
`

inNamespace('does not move on a server that is right', async () => {
  const { lost, change } = await play(scene(''))
  assert.is(lost, 0)
  assert.equal(change, { TcpOutRsts: 0, EstabResets: 0, ListenDrops: 0, ListenOverflows: 0 })
})

inNamespace('moves when a listener is closed with connections in its queue', async () => {
  const wrong = `
    net.Server.prototype.close.call(server)
    server = newServer()
    await listen(server)`
  const { lost, change } = await play(scene(wrong))
  assert.ok(lost > 0, 'the clients saw it')
  assert.ok(change.TcpOutRsts > 0, `the kernel saw it: ${JSON.stringify(change)}`)
})

test.run()
inNamespace.run()

// ---- helpers

async function play(program: string) {
  const node = [process.execPath, '--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', program]
  const { code, stdout, stderr } = await inNetns(node, { timeoutMs: 30_000 })
  assert.is(code, 0, stderr)
  const { lost, before, after } = JSON.parse(stdout) as {
    lost: number
    before: Counters
    after: Counters
  }
  return { lost, change: moved(before, after) }
}

interface TestServer extends AsyncDisposable {
  port: number
  http: Server
  upgraded: Set<Socket>
  answered(): number
  close(): Promise<void>
}

/** Answers with the request's id, streams slowly on /stream, echoes on a WebSocket. */
async function goodServer(handler?: RequestListener): Promise<TestServer> {
  let answered = 0
  const upgraded = new Set<Socket>()
  const http = createServer((req, res) => {
    answered++
    res.setHeader('x-request-id', req.headers['x-request-id'] ?? '').setHeader('x-version', 'v1')
    if (handler !== undefined) handler(req, res)
    else if (req.url === '/stream') {
      res.write('a')
      // one after the other: two timers of a late process may fire in either order
      setTimeout(() => {
        res.write('b')
        setTimeout(() => res.end('c'), 5)
      }, 5)
    } else res.end('ok')
  })
  http.on('upgrade', (req, stream) => {
    const socket = stream as Socket
    const key = `${req.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`
    const accept = createHash('sha1').update(key).digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
    upgraded.add(socket)
    socket
      .on('error', () => undefined)
      .on('data', (frame: Buffer) => {
        const masked = Buffer.from(frame.subarray(6)) // the load's mask is zero and its frames are short
        if (((frame[0] ?? 0) & 0x0f) === 1) socket.write(Buffer.concat([Buffer.from([0x81, masked.length]), masked]))
      })
  })
  return { http, upgraded, answered: () => answered, ...(await opened(http)) }
}

async function wrongServer(onConnection: (socket: Socket) => void) {
  return await opened(
    net.createServer((socket) => {
      socket.on('error', () => undefined).resume()
      onConnection(socket)
    }),
  )
}

async function opened(server: net.Server) {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => sockets.add(socket.on('close', () => sockets.delete(socket))))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => net.Server.prototype.close.call(server, () => resolve()))
    for (const socket of sockets) socket.destroy()
    await closed
  }
  return { port: (server.address() as AddressInfo).port, close, [Symbol.asyncDispose]: close }
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(10) // the suite's deadline bounds it
}
