// Requests to servers on this host, whatever they speak.

import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createSecureServer, createServer as createPlainHttp2Server } from 'node:http2'
import { createServer as createHttpsServer } from 'node:https'
import { createServer as createNetServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { askHere, type LocalRequest } from '../../agent/sockets/local-request.ts'
import { makeCertificate } from '../lab/certificate.ts'
import { equal, is, rejects } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('local request')

/** Answers with what it got, and counts it. */
interface Asked {
  url?: string
  method?: string
  headers: { authorization?: string }
  setEncoding(encoding: 'utf8'): AsyncIterable<string>
}

let asked = 0
const answering = (request: unknown, response: { end(text: string): unknown }): void => {
  asked++
  const { method, url, headers } = request as Asked
  void (async () => {
    let body = ''
    for await (const part of (request as Asked).setEncoding('utf8')) body += part
    response.end(`${method} ${url} ${headers.authorization ?? '-'} ${body}`)
  })()
}
const pair = makeCertificate(['elsewhere.example'])
const SERVERS: Record<string, () => Server> = {
  http: () => createHttpServer(answering),
  https: () => createHttpsServer(pair, answering),
  h2: () => createSecureServer(pair, answering),
  'h2 and http/1.1': () => createSecureServer({ ...pair, allowHTTP1: true }, answering),
  h2c: () => createPlainHttp2Server(answering),
}

async function listening(server: Server, port = 0): Promise<{ port: number } & AsyncDisposable> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => void sockets.add(socket))
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

async function told(port: number, more: Partial<LocalRequest> = {}): Promise<[string, number, string]> {
  const signal = AbortSignal.timeout(5000)
  using answer = await askHere({ host: '127.0.0.1', port }, { path: '/a?b', signal, ...more })
  let text = ''
  for await (const part of answer.body) text += String(part)
  return [answer.protocol, answer.status, text]
}

for (const [name, make] of Object.entries(SERVERS)) {
  test(`a server of ${name} is asked in that, once, with head and body, whatever was said of it`, async () => {
    await using first = await listening(make())
    asked = 0
    const post = { method: 'POST', headers: { authorization: 'Bearer x' }, body: 'text' }
    for (const tls of [false, true]) {
      const [protocol, status, text] = await told(first.port, { ...post, tls })
      equal([status, text], [200, 'POST /a?b Bearer x text'], protocol)
      const expected = name.startsWith('h2 and') ? 'h2' : name
      is(protocol, expected)
    }
    is(asked, 2)
  })
}

test('a server that comes to speak something else is asked in that from then on', async () => {
  const port = await (async () => {
    await using plain = await listening(createHttpServer(answering))
    is((await told(plain.port))[0], 'http')
    return plain.port
  })()
  for (const name of ['https', 'h2', 'http', 'h2c', 'https']) {
    await using _next = await listening((SERVERS[name] as () => Server)(), port)
    is((await told(port))[0], name)
  }
})

test('what speaks none of these is told with the first failure, and a request that breaks off is not sent again', async () => {
  let connections = 0
  await using mute = await listening(createNetServer((socket) => void (connections++, socket.destroy())))
  await rejects(told(mute.port), /socket hang up|ECONNRESET/)
  is(connections, 3, 'the request, then TLS, then HTTP/2 without any request')
  asked = 0
  const dying = createHttpServer((request) => void (asked++, request.socket.destroy()))
  await using cut = await listening(dying)
  await rejects(told(cut.port, { method: 'POST', body: 'text' }), /socket hang up|ECONNRESET/)
  is(asked, 1)
})

test('a server that dies while it is looked at is told at once, in whatever it speaks: a request on that connection would never end', async () => {
  for (const serve of Object.values(SERVERS)) {
    const server = serve()
    await using it = await listening(server)
    const ends: Socket[] = []
    server.on('connection', (end: Socket) => void ends.push(end))
    const vet = async (socket: Socket) => {
      const closed = new Promise((resolve) => socket.once('close', resolve))
      ends.at(-1)?.resetAndDestroy()
      await closed
    }
    for (const tls of [false, true]) await rejects(() => told(it.port, { vet, tls }))
  }
})

test.run()
