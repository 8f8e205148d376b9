// To whom the command line sends the password: not to another user's program that has taken the service's port.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown } from 'node:fs/promises'
import { json } from 'node:stream/consumers'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { connect } from '../deploy/host/service/client.ts'
import { equal, match, rejects, withCode } from './assert.ts'
import { freePort } from './fixtures/install.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const NOBODY = { uid: 65534, gid: 65534 }
const TOKEN = 'the-very-secret'
const isRoot = process.getuid?.() === 0
const test = suite('listener', { timeoutMs: 60_000, skip: isRoot ? null : 'only root can be two users' })

type Where = { host: string; port: number } | { path: string }

/** A program of nobody's that says what it gets. Else than `accepts`, connections wait for ever in its queue. */
const TAKER = `
const [where, accepts] = JSON.parse(process.argv[1])
const server = require('node:net').createServer((socket) => {
  socket.on('error', () => {})
  socket.on('data', (bytes) => console.log('got ' + bytes))
})
server.listen({ ...where, exclusive: true }, () => {
  console.log('listens')
  if (!accepts) for (;;);
})
`

async function taker(where: Where, { accepts = true } = {}) {
  const child = spawn(process.execPath, ['-e', TAKER, JSON.stringify([where, accepts])], {
    ...NOBODY,
    cwd: '/',
    env: {},
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const got: string[] = []
  const lines = createInterface({ input: child.stdout })
  await once(lines, 'line')
  lines.on('line', (line) => got.push(line))
  return {
    got,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await once(child, 'close')
    },
  }
}

const clientOf = (where: Where, token: string | null = TOKEN) =>
  connect({
    address: { ...where, tls: false, isEverywhere: false },
    basePath: '',
    token,
    unknown: [],
    faults: [],
  })

for (const [named, host, listens] of [
  ['IPv4', '127.0.0.1', '127.0.0.1'],
  ['IPv6', '::1', '::1'],
  ['every address', '127.0.0.1', '0.0.0.0'],
  ['both families', '127.0.0.1', '::'],
] as const) {
  test(`a program of another user gets no password: ${named}`, async () => {
    const port = await freePort()
    for (const accepts of [true, false]) {
      await using stranger = await taker({ host: listens, port }, { accepts })
      const error = await rejects(clientOf({ host, port }).status(), withCode('refused'))
      match(error.message, /^the program listening on .+:\d+ is not the service: it runs as user 65534$/)
      await rejects(
        clientOf({ host, port }).update(null, { allowIrreversible: false, restoreState: false, now: false }),
        withCode('refused'),
      )
      equal(stranger.got, [])
    }
  })

  test(`this user's own program is asked: ${named}`, async () => {
    const asked: (string | undefined)[] = []
    const server = createServer((request, response) => {
      asked.push(request.headers.authorization)
      response.setHeader('content-type', 'application/json').end('{"service":"shop"}')
    })
    server.listen({ port: 0, host: listens })
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    await clientOf({ host, port })
      .status()
      .catch(() => null)
    equal(asked, [`Bearer ${TOKEN}`])
    server.close()
  })
}

test('a service that does not know why a release is bad goes back all the same', async () => {
  const asked: unknown[] = []
  const server = createServer((request, response) => {
    void json(request).then((body) => {
      asked.push(body)
      const isKnown = !Object.hasOwn(body as object, 'bad')
      const answer = isKnown
        ? { id: 'a' }
        : { code: 'invalid_request', title: 'invalid request', detail: 'expected no `bad`' }
      response.writeHead(isKnown ? 202 : 400, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const client = clientOf({ host: '127.0.0.1', port: (server.address() as AddressInfo).port })
  const { id } = await client.rollback({ restoreState: true, now: false, bad: 'no answer' })
  equal([id, asked], ['a', [{ restoreState: true, bad: 'no answer' }, { restoreState: true }]])
  server.close()
})

test('a program of another user behind a unix socket gets no password', async () => {
  await using room = await temporary('listener')
  await chmod(room.path, 0o755)
  await chown(room.path, NOBODY.uid, NOBODY.gid)
  const path = join(room.path, 'shop.sock')
  await using stranger = await taker({ path })
  const error = await rejects(clientOf({ path }).status(), withCode('refused'))
  match(error.message, /^the program listening on \/.+ is not the service: it runs as user 65534$/)
  equal(stranger.got, [])
})

test('a connection is told by its other end, not by who listens at another address of the port', async () => {
  const port = await freePort()
  await using stranger = await taker({ host: '127.0.0.2', port })
  const server = createServer((_, response) => response.writeHead(204).end())
  server.listen({ port, host: '127.0.0.1' })
  await once(server, 'listening')
  await rejects(clientOf({ host: '127.0.0.1', port }).status(), withCode('unexpected'))
  await rejects(clientOf({ host: '127.0.0.2', port }).status(), withCode('refused'))
  equal(stranger.got, [])
  server.close()
})

test('where nobody listens, the service does not answer', async () => {
  equal(await clientOf({ host: '127.0.0.1', port: await freePort() }).status(), null)
})

test.run()
