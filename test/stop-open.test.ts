// A service is stopped and no other takes over from it, with open WebSockets and streams of events: they are ended at once, cleanly, and
// delay nobody. Requests that end by themselves are answered. By itself, and on sockets that a holder lends.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { get } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { equal, is, match } from './assert.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { adopted } from './fixtures/adopted.ts'
import { type HolderGround, holderGround, noHolder, watched } from './fixtures/container-holder.ts'
import { until } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { WebSocket } from './lab/ws.ts'
import { suite } from './suite.ts'

const test = suite('stop open', {
  timeoutMs: 60_000,
  skip: noHolder,
})
const PROGRAM = join(import.meta.dirname, 'fixtures/endless.ts')
const EACH = 8

for (const isHeld of [false, true])
  test(`${isHeld ? 'behind a holder' : 'by itself'}: WebSockets end with 1012, streams between two events, and both before a request that takes a while`, async () => {
    await using ground = await holderGround()
    const port = await freePort()
    if (isHeld) await ground.start(String(port))
    using app = start(port, isHeld ? ground : null)
    await until('it to serve', () => app.said().includes('ready'))
    const order: string[] = []
    const [sockets, streams] = await Promise.all([
      Promise.all(Array.from({ length: EACH }, async () => await webSocket(port))),
      Promise.all(Array.from({ length: EACH }, async () => await stream(port))),
    ])
    const slow = body(port, '/slow').then(
      (text) => order.push(text),
      (cause) => order.push(String(cause)),
    )
    await body(port, '/') // so the slow one has been accepted
    process.kill(app.pid, 'SIGTERM')
    const ended = Promise.all([
      Promise.all(sockets.map(async ({ closed }) => await closed)),
      Promise.all(streams.map(async ({ heard }) => await heard)),
    ])
    void ended.then(() => order.push('endless'))
    const [codes, texts] = await ended
    equal(new Set(codes), new Set([1012]))
    for (const text of texts) match(text, /^(id: \d+\ndata: \d+\n\n)+$/)
    const waiting = isHeld ? bodyOfNext(port, app.pid) : null
    await slow
    equal(order, ['endless', 'slow'], app.said())
    is(await app.ended, 0)
    match(app.said(), `closed connections: ${2 * EACH} long-lived (asked to reconnect), `)
    match(app.said(), '; requests cut off: 0')
    if (waiting === null) return
    using next = start(port, ground)
    is(await waiting, String(next.pid))
  })

for (const isHeld of [false, true])
  test(`${isHeld ? 'behind a holder' : 'by itself'}: while a WebSocket's client does not agree to its end, new clients are answered`, async () => {
    await using ground = await holderGround()
    const port = await freePort()
    if (isHeld) await ground.start(String(port))
    using app = start(port, isHeld ? ground : null)
    await until('it to serve', () => app.said().includes('ready'))
    const { told } = await asleep(port)
    process.kill(app.pid, 'SIGTERM')
    await told
    is(await body(port, '/'), String(app.pid))
    is(await app.ended, 0)
    match(app.said(), 'closed connections: 1 long-lived (asked to reconnect), ')
  })

test('`stop` of an install that has an open stream and a poll at one of `longLivedPaths` does not wait for `drainTimeout`: the stream ends between two events', async () => {
  const text = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
    import { createServer } from 'node:http'
    createServer((request, response) => {
      if (request.url === '/poll') return // whenever there is something to tell
      if (request.url !== '/events') return response.end('here')
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      let id = 0
      const timer = setInterval(() => response.write(\`id: \${++id}\\ndata: \${id}\\n\\n\`), 20)
      response.on('close', () => clearInterval(timer))
    }).listen(Number(process.env.PORT), process.env.HOST)`
  const long = { longLivedPaths: ['/poll'] }
  await using it = await adopted(text, long, { update: { drainTimeout: '10m' } })
  const poll = body(it.port, '/poll').then(String, (cause: Error) => cause.message)
  const { heard } = await stream(it.port)
  const stopped = await it.word('stop', '--user', '-q')
  is(stopped.exitCode, 0, stopped.stderr)
  match(await heard, /^(id: \d+\ndata: \d+\n\n)+$/)
  match(await poll, /socket hang up|ECONNRESET/)
})

test.run()

function start(port: number, ground: HolderGround | null) {
  const env = { ...process.env, ...(ground === null ? {} : { BATON_HOLDER: ground.path }) }
  const child = spawn(process.execPath, [...process.execArgv, PROGRAM, String(port)], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  return { ...watched(child), pid: child.pid ?? 0, [Symbol.dispose]: () => void child.kill('SIGKILL') }
}

async function webSocket(port: number): Promise<{ closed: Promise<number> }> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`)
  const closed = new Promise<number>((resolve) => socket.once('close', (code: number) => resolve(code)))
  await once(socket, 'open')
  return { closed }
}

/** A WebSocket that is open; the promise within resolves when its server has sent a close frame, to which nobody answers. */
async function asleep(port: number): Promise<{ told: Promise<void> }> {
  const socket = connect(port, '127.0.0.1')
  const words = ['GET / HTTP/1.1', 'Host: x', 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13']
  socket.write(`${words.join('\r\n')}\r\nSec-WebSocket-Key: ${'A'.repeat(22)}==\r\n\r\n`)
  await once(socket, 'data')
  socket.on('error', () => {}) // it is cut in the end
  return {
    told: new Promise((resolve) => {
      socket.on('data', (bytes: Buffer) => bytes.includes('service restart') && resolve())
    }),
  }
}

/** Resolves when the first bytes are there; `heard`: all that came until the end. */
function stream(port: number): Promise<{ heard: Promise<string> }> {
  return new Promise((resolve, reject) => {
    const request = get({ host: '127.0.0.1', port, path: '/events', agent: false }, (answer) => {
      let text = ''
      const heard = new Promise<string>((resolveHeard) => {
        answer.on('error', () => {}).on('close', () => resolveHeard(text)) // it ends short
      })
      answer.setEncoding('utf8').on('data', (part: string) => {
        text += part
        resolve({ heard })
      })
    })
    request.once('error', reject)
  })
}

/** Asks until it is another process that answers: a request waits for that once the former one accepts no more. */
async function bodyOfNext(port: number, former: number): Promise<string> {
  for (;;) {
    const text = await body(port, '/')
    if (text !== String(former)) return text
  }
}

function body(port: number, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(20_000)
    const request = get({ host: '127.0.0.1', port, path, agent: false, signal }, (answer) => {
      let text = ''
      answer.setEncoding('utf8').on('data', (part: string) => (text += part))
      answer.on('end', () => resolve(text)).on('error', reject)
    })
    request.once('error', reject)
  })
}
