// What becomes of connections of every kind when their process stops accepting: each moves, ends, or is cut and counted. The
// other side is a real process. The whole handover is in test/listeners.test.ts and test/switches.test.ts.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { makeCarries } from '../../agent/handover/carry/carry.ts'
import { type Channel, channelOver } from '../../agent/handover/channel.ts'
import { drain, type DrainLimits } from '../../agent/handover/give/connections.ts'
import { bidFarewell } from '../../agent/handover/give/farewell.ts'
import { type Giving, makeGiving } from '../../agent/handover/give/giving.ts'
import { bind, closeListener, type Listener, makeListener, stopAccepting } from '../../agent/sockets/listeners.ts'
import type { Given, ToPredecessor, ToSuccessor } from '../../agent/words/wire.ts'
import { packetPair } from '../../agent/sockets/packets.ts'
import { closeDescriptor } from '../../agent/sockets/libc.ts'
import { takeTickets, ticketsOf } from '../../agent/sockets/tickets.ts'
import { NO_HANDOVER } from '../../agent/words/report.ts'
import { equal, is, match, ok } from '../assert.ts'
import { until } from '../fixtures/evidence.ts'
import { makeCertificate } from '../lab/certificate.ts'
import { suite } from '../suite.ts'

const test = suite('connections', { timeoutMs: 60_000 })
const LONG = { drainMs: 20_000, drainMaxMs: 20_000 }

test('a connection moves when its response ends, before its next request: clients that ask at once are not cut', async () => {
  await using other = await adopter()
  await using here = await serving((_request, response) => void setTimeout(() => response.end('here'), 200))
  const clients = await Promise.all(Array.from({ length: 24 }, () => here.client()))
  const asked = clients.map(async (client) => {
    const answers: string[] = []
    while (answers.at(-1) !== 'adopted /') answers.push(await client.ask('/'))
    return answers
  })
  await until('all of them busy', () => here.asked() >= 24)
  stopAccepting(here.listener)
  // each is in its first or second response; none may begin a third here
  const drained = await other.drain([here.listener], { drainMs: 450, drainMaxMs: 450 })
  equal(drained, { moved: 24, cut: 0 })
  for (const answers of await Promise.all(asked))
    ok(answers.length <= 3, `expected it to move at once: ${answers.join()}`)
  for (const client of clients) client.close()
})

test('a connection that waits keeps its idle time, and no 408: it is answered long after, or closed when that time is over', async () => {
  await using other = await adopter()
  await using patient = await serving((_request, response) => response.end('here'), { keepAliveTimeout: 620_000 })
  await using strict = await serving((_request, response) => response.end('here'), { keepAliveTimeout: 1500 })
  const [one, two] = [await patient.client(), await strict.client()]
  is(await one.ask('/'), 'here')
  is(await two.ask('/'), 'here')
  const since = performance.now()
  equal(await other.drain([patient.listener, strict.listener]), { moved: 2, cut: 0 })
  await one.quiet(1000)
  is(await one.ask('/'), 'adopted /', 'headers were due after 300 ms')
  is(await two.closed(), '', 'closed without a word')
  ok(performance.now() - since > 1000, 'not before its idle time was over')
  one.close()
})

test('with the last of its idle time a connection moves to a process that is busy: a request in time is answered, and not reset', async () => {
  await using other = await adopter({ argument: 'stalls', leftMs: 20 })
  await using here = await serving((_request, response) => response.end('here'))
  const [asks, waits] = [await here.client(), await here.client()]
  for (const client of [asks, waits]) is(await client.ask('/'), 'here')
  const answer = other.moved().then(() => asks.ask('/'))
  equal(await other.drain([here.listener]), { moved: 2, cut: 0 })
  is(await answer, 'adopted /')
  await waits.closed()
})

test('a request that has arrived when the idle time of its connection is over is answered, if the loop was busy', async () => {
  await using here = await serving((_request, response) => response.end('here'), { keepAliveTimeout: 200 })
  const [asks, waits] = [await here.client(), await here.client()]
  for (const client of [asks, waits]) is(await client.ask('/'), 'here')
  await new Promise(setImmediate) // what is done here is followed by the timers, and only then by reading
  const answer = asks.ask('/')
  for (const end = Date.now() + 400; Date.now() < end;);
  is(await answer, 'here')
  await waits.closed()
  asks.close()
})

test('a new connection that has not sent a byte moves as a new one', async () => {
  await using other = await adopter()
  await using here = await serving((_request, response) => response.end('here'))
  const silent = await here.client()
  const asking = await here.client()
  await until('both accepted', () => here.listener.sockets.size === 2)
  equal(await other.drain([here.listener]), { moved: 2, cut: 0 })
  is(await asking.ask('/'), 'adopted /')
  match(await silent.closed(), /^HTTP\/1\.1 408/)
})

test('connections go by the key of their listener: what the other side does not have is drained here', async () => {
  await using other = await adopter()
  await using kept = await serving((_request, response) => response.end('kept'))
  await using dropped = await serving((_request, response) => response.end('dropped'))
  const [one, two] = [await kept.client(), await dropped.client()]
  await one.ask('/')
  await two.ask('/')
  const draining = other.drain([dropped.listener, kept.listener], LONG, (key) => key === kept.listener.key)
  is(await two.ask('/'), 'dropped', 'it is answered by the server that it was connected to')
  is(await two.closed(), '')
  equal(await draining, { moved: 1, cut: 0 })
  is(await one.ask('/'), 'adopted /')
  one.close()
})

test('at the deadline a silent response is cut and counted, one that moves bytes may take twice its age, and no longer than allowed', async () => {
  await using other = await adopter()
  const silentEnded = Promise.withResolvers<void>()
  await using here = await serving((request, response) => {
    if (request.url === '/silent') return
    const timer = setInterval(() => (response.destroyed ? clearInterval(timer) : response.write('x')), 50)
    if (request.url === '/endless') return
    void silentEnded.promise.then(() => {
      clearInterval(timer)
      response.end('!')
    })
  })
  const [silent, moving, endless] = [await here.client(), await here.client(), await here.client()]
  const answers = [silent.ask('/silent'), moving.ask('/moving'), endless.ask('/endless')].map((it) =>
    it.catch(() => 'cut'),
  )
  void answers[0]?.then(() => silentEnded.resolve())
  await until('all of them busy', () => here.asked() === 3)
  const drained = await other.drain([here.listener], { drainMs: 2000, drainMaxMs: 8000 })
  const [first, second, third] = await Promise.all(answers)
  equal([first, third], ['cut', 'cut'])
  match(second ?? '', /^x+!$/)
  equal(drained, { moved: 1, cut: 2 })
  for (const client of [silent, moving, endless]) client.close()
})

test('what stops for good answers what it is asked, closes what waits, and counts the request that crosses that end: it is not begun', async () => {
  await using here = await serving((request, response) => {
    if (request.url === '/slow') setTimeout(() => response.end('slow'), 700)
    else response.end('here')
  })
  const [waits, busy, crosses] = [await here.client(), await here.client(), await here.client({ allowHalfOpen: true })]
  for (const client of [waits, busy, crosses]) is(await client.ask('/'), 'here')
  const slow = busy.ask('/slow')
  await until('the slow one to be asked', () => here.asked() === 4)
  const farewell = bidFarewell({ listeners: [here.listener], carries: makeCarries(() => {}), isHeld: false })
  await farewell.announce()
  stopAccepting(here.listener)
  crosses.atEnd('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n')
  equal(await farewell.finish(60_000), { ended: 0, idle: 2, lost: 1, cut: 0 })
  is(await slow, 'slow') // it was told that this is the last, though it had asked before
  is(here.asked(), 4)
  for (const client of [waits, busy, crosses]) await client.closed()
})

test('a request that still runs at the deadline of a stop is counted', async () => {
  await using here = await serving(() => {})
  const client = await here.client()
  void client.ask('/').catch(() => {})
  await until('it to be asked', () => here.asked() === 1)
  const farewell = bidFarewell({ listeners: [here.listener], carries: makeCarries(() => {}), isHeld: false })
  equal(await farewell.finish(50), { ended: 0, idle: 0, lost: 0, cut: 1 })
  client.close()
})

test('a stream that ends by itself while a stop waits for the end of its event leaves a connection whose next request is answered', async () => {
  const slow = Promise.withResolvers<void>()
  await using here = await serving((request, response) => {
    if (request.url !== '/events') return void slow.promise.then(() => response.end('slow'))
    response.setHeader('Content-Type', 'text/event-stream')
    response.write('data: half of ')
    setTimeout(() => response.write('data: half of '), 30) // it stays inside of an event
    setTimeout(() => response.end('it'), 150)
  })
  const client = await here.client()
  const [events, other] = [client.ask('/events'), await here.client()]
  await until('the stream', () => here.asked() === 1)
  const farewell = bidFarewell({ listeners: [here.listener], carries: makeCarries(() => {}), isHeld: false })
  const ended = farewell.endEndless()
  await events
  const asked = client.ask('/slow')
  await until('the next request', () => here.asked() === 2)
  await ended
  slow.resolve()
  is(await asked, 'slow')
  for (const one of [client, other]) one.close()
})

test('an HTTP/2 client may still begin a stream while the first GOAWAY is on its way', async () => {
  const server = createHttp2Server((request, response) => response.end(`answered ${request.url}`))
  const listener = makeListener({ server, port: 0 })
  await bind(listener, { server, port: 0 })
  const client = connectHttp2(`http://${listener.address}`)
  const settled = once(client, 'remoteSettings')
  const lastIds: number[] = []
  client.on('goaway', (_code: number, lastId: number) => lastIds.push(lastId))
  const closed = once(client, 'close')
  await settled
  stopAccepting(listener)
  // the two cross: the stream is begun in the moment in which the client is told to go
  const late = streamOn(client.request({ ':path': '/late' }))
  const draining = drainTo(null, [listener], LONG, () => false)
  is(await late, 'answered /late')
  equal(await draining, { moved: 0, cut: 0 })
  await closed
  is(lastIds[0], 2 ** 31 - 1)
  closeListener(listener)
})

test('a TLS client resumes in the successor the session that it began here', async () => {
  const certificate = makeCertificate()
  const [old, next] = [createTlsServer(certificate), createTlsServer(certificate)].map((server) => {
    server.on('request', (_request, response) => response.end('x'))
    return { ...makeListener({ server, port: 0 }), key: 'tls' }
  }) as [Listener, Listener]
  for (const listener of [old, next]) await bind(listener, { server: listener.server, port: 0 })
  const first = await secure(old)
  const session = await new Promise<Buffer>((resolve) => first.once('session', resolve))
  is((await secure(next, session)).isSessionReused(), false, 'not without the keys')
  for (const tickets of ticketsOf([old])) takeTickets(next, tickets)
  is((await secure(next, session)).isSessionReused(), true)
  for (const listener of [old, next]) {
    closeListener(listener)
    for (const socket of listener.sockets) socket.destroy()
  }
})

test('a context of sessions that an author has chosen is neither given on nor replaced', () => {
  const make = (sessionIdContext?: string) => {
    const server = createTlsServer({
      ...makeCertificate(),
      ...(sessionIdContext === undefined ? {} : { sessionIdContext }),
    })
    return { ...makeListener({ server, port: 0 }), key: 'tls' }
  }
  const contextOf = ({ server }: Listener) => (server as unknown as { sessionIdContext: string }).sessionIdContext
  const [nodes, chosen] = [make(), make('chosen')]
  equal(
    ticketsOf([nodes, chosen]).map(({ context }) => context),
    [contextOf(nodes), undefined],
  )
  const keys = ticketsOf([nodes])[0]?.keys ?? ''
  for (const listener of [nodes, chosen]) takeTickets(listener, { keys, context: 'of the predecessor' })
  equal([nodes, chosen].map(contextOf), ['of the predecessor', 'chosen'])
  is(ticketsOf([nodes])[0]?.context, 'of the predecessor', 'and it goes on to the next one')
})

test.run()

interface Adopter extends AsyncDisposable {
  /** resolves in the moment in which it has taken connections */
  moved(): Promise<void>
  /** Drains to it what it has; what became of the connections. */
  drain(
    listeners: Listener[],
    limits?: DrainLimits,
    has?: (key: string) => boolean,
  ): Promise<{ moved: number; cut: number }>
}

/** The process of test/fixtures/adopter.ts, which takes connections of any key. */
async function adopter({
  argument = '',
  leftMs = null,
}: { argument?: string; leftMs?: number | null } = {}): Promise<Adopter> {
  const program = fileURLToPath(new URL('../fixtures/adopter.ts', import.meta.url))
  const [packets, far] = packetPair()
  const child = spawn(process.execPath, [...process.execArgv, program, argument], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', far],
  })
  closeDescriptor(far)
  const down = channelOver<ToSuccessor, ToPredecessor>(child.stdio[3] as Socket, packets)
  await new Promise<void>((resolve) => down.hear(({ type }) => type === 'ready' && resolve()))
  const ours = new Set<Listener>()
  let giving: Giving | null = null
  const moved = Promise.withResolvers<void>()
  return {
    moved: () => moved.promise,
    drain: (listeners, limits = LONG, has = () => true) => {
      for (const listener of listeners) ours.add(listener)
      return drainTo(down, listeners, limits, has, { made: (own) => (giving = own), took: moved.resolve, leftMs })
    },
    async [Symbol.asyncDispose]() {
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
      giving?.takeBack()
      for (const { sockets } of ours) for (const socket of sockets) socket.destroy()
    },
  }
}

interface DrainHooks {
  made?(giving: Giving): void
  /** called in the moment in which the other side has taken some */
  took?(): void
  /** what is left of the idle time of every connection, whatever it is; null: as it is */
  leftMs?: number | null
}

async function drainTo(
  channel: Channel<ToSuccessor, ToPredecessor> | null,
  listeners: Listener[],
  limits: DrainLimits,
  has: (key: string) => boolean,
  { made = () => {}, took = () => {}, leftMs = null }: DrainHooks = {},
): Promise<{ moved: number; cut: number }> {
  const report = { ...NO_HANDOVER }
  const giving = makeGiving({
    has,
    give: (message, descriptors) =>
      channel?.give(leftMs === null ? message : withLeft(message, leftMs), descriptors) ?? false,
    tell: (message) => channel?.tell(message),
    gone: new Promise(() => {}),
    listeners,
    report,
  })
  made(giving)
  channel?.hear((message) => {
    if (message.type === 'adopted') took()
    giving.hear(message)
  })
  const { signal } = new AbortController()
  await drain({ listeners, giving, carries: makeCarries(() => {}), limits, report, signal, warn: () => {} })
  return { moved: report.moved, cut: report.cut }
}

type Message = Given | (() => Given)

function withLeft(message: Message, idleMs: number): Message {
  if (typeof message === 'function' || message.type !== 'connections') return message
  return { ...message, connections: message.connections.map(({ id }) => ({ id, idleMs })) }
}

interface Here extends AsyncDisposable {
  listener: Listener
  /** requests so far */
  asked(): number
  client(options?: { allowHalfOpen?: boolean }): Promise<Client>
}

async function serving(answer: RequestListener, options: { keepAliveTimeout?: number } = {}): Promise<Here> {
  const server = createServer({ keepAliveTimeout: 30_000, ...options, keepAliveTimeoutBuffer: 0 } as object, answer)
  const listener = makeListener({ server, port: 0 })
  await bind(listener, { server, port: 0 })
  const { port } = server.address() as AddressInfo
  listener.key = `127.0.0.1:${port}`
  let asked = 0
  server.on('request', () => asked++)
  return {
    listener,
    asked: () => asked,
    client: (options) => clientOf(port, options),
    [Symbol.asyncDispose]: () => {
      closeListener(listener)
      server.closeAllConnections()
      return Promise.resolve()
    },
  }
}

interface Client {
  /** the body of the answer; rejects where there is none */
  ask(path: string): Promise<string>
  /** fails where something comes within this time */
  quiet(ms: number): Promise<void>
  /** Sends this as soon as the server has ended its half. */
  atEnd(text: string): void
  /** all that comes until the server closes */
  closed(): Promise<string>
  close(): void
}

/** One connection of its own, and no second try. */
async function clientOf(port: number, options: { allowHalfOpen?: boolean } = {}): Promise<Client> {
  const socket: Socket = connect({ port, host: '127.0.0.1', ...options })
  socket.setNoDelay(true)
  await once(socket, 'connect')
  let text = ''
  let isClosed = false
  socket.setEncoding('latin1').on('data', (part: string) => (text += part))
  socket.on('error', () => {}).on('close', () => (isClosed = true))
  return {
    async ask(path) {
      text = ''
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)
      return await until(
        `an answer to ${path}`,
        () => bodyOf(text) ?? (isClosed ? Promise.reject(new Error('cut')) : null),
      )
    },
    async quiet(ms) {
      text = ''
      await sleep(ms)
      equal({ text, isClosed }, { text: '', isClosed: false })
    },
    atEnd: (last) => void socket.once('end', () => socket.end(last)),
    async closed() {
      text = ''
      await until('the server to close', () => isClosed)
      return text
    },
    close: () => socket.destroy(),
  }
}

function bodyOf(text: string): string | null {
  const [head = '', ...rest] = text.split('\r\n\r\n')
  const body = rest.join('\r\n\r\n')
  if (/chunked/i.test(head)) {
    if (!text.endsWith('0\r\n\r\n')) return null
    return body.replaceAll(/[0-9a-f]+\r\n|\r\n/g, '')
  }
  const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN)
  return body.length === length ? body : null
}

async function streamOn(stream: NodeJS.ReadableStream): Promise<string> {
  let text = ''
  for await (const part of stream) text += String(part)
  return text
}

async function secure(listener: Listener, session?: Buffer): Promise<TLSSocket> {
  const { port } = listener.server.address() as AddressInfo
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ...(session && { session }) })
  await once(socket, 'secureConnect')
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  return socket
}
