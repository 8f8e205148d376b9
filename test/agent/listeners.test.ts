// Listening sockets one by one: the spare, the queue, the name of a unix socket. The handover over them is in
// test/listeners.test.ts and test/switches.test.ts.

import { once } from 'node:events'
import { statSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rm, stat, unlink, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { createSecureServer, createServer as createPlainServer, type ServerHttp2Session } from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect, createServer as createNetServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { askToClose } from '../../agent/sockets/closing.ts'
import {
  bind,
  closeListener,
  isNamed,
  isSameAddress,
  keyOf,
  type Listener,
  type ListenerSpec,
  makeListener,
  stopAccepting,
} from '../../agent/sockets/listeners.ts'
import { listenAgain, turnAway } from '../../agent/sockets/spare.ts'
import { duplicate } from '../../agent/sockets/libc.ts'
import { missingParts } from '../../agent/sockets/internals.ts'
import { freePort } from '../fixtures/install.ts'
import { equal, is, match, not, ok, rejects, throws, withCode } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const test = suite('listening')

const answering = (): Server => createServer((_request, response) => response.end('here'))

/** Bound, and closed at the end of the scope. */
async function bound(spec: Partial<ListenerSpec> = {}): Promise<Listener & AsyncDisposable> {
  const full = { server: answering(), port: spec.path === undefined ? await freePort() : undefined, ...spec }
  const exact = Object.fromEntries(
    Object.entries(full).filter(([, value]) => value !== undefined),
  ) as unknown as ListenerSpec
  const listener = makeListener(exact)
  await bind(listener, exact)
  return Object.assign(listener, {
    [Symbol.asyncDispose]: () => {
      closeListener(listener)
      ;(listener.server as Server).closeAllConnections()
      return Promise.resolve()
    },
  })
}

/** What comes back to a request on a connection of its own; rejects where it is refused or reset. */
async function ask(address: string): Promise<string> {
  const socket = address.startsWith('/') ? connect(address) : connect(Number(address.split(':').at(-1)), '127.0.0.1')
  return await answerOn(socket)
}

async function answerOn(socket: Socket): Promise<string> {
  socket.write('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  let text = ''
  for await (const part of socket) text += String(part)
  return text.split('\r\n\r\n')[1] ?? ''
}

test('a port on which somebody listens already is shared only by whoever wants to', async () => {
  await using first = await bound()
  is(first.isShared, false)
  const spec = { server: answering(), port: Number(first.address.split(':').at(-1)) }
  const second = makeListener(spec)
  await rejects(() => bind(second, spec), /another process is already listening on this address/)
  is(second.server.listening, false)
  await bind(second, spec, null, true)
  is(second.isShared, true)
  closeListener(second)
})

test('what waits in the queue while nobody accepts is answered once it is listened on again', async () => {
  await using listener = await bound()
  match(await ask(listener.address), 'here')
  ok(listener.spare !== null)
  for (let round = 0; round < 3; round++) {
    stopAccepting(listener)
    stopAccepting(listener)
    const waiting = Array.from({ length: 20 }, () => ask(listener.address))
    const first = connect(Number(listener.address.split(':')[1]), '127.0.0.1')
    await once(first, 'connect')
    await listenAgain(listener)
    for (const answer of await Promise.all([...waiting, answerOn(first)])) match(answer, 'here')
    not.equal(listener.spare, null, 'a spare for the next time')
  }
})

test('who cannot be taken over is refused at once, and after a revert it is listened on again, as often as need be', async () => {
  await using listener = await bound()
  for (let round = 0; round < 3; round++) {
    turnAway(listener)
    await rejects(ask(listener.address), withCode('ECONNREFUSED'))
    await listenAgain(listener)
    match(await ask(listener.address), 'here')
  }
})

test('once it is closed for good nobody can connect, and there is nothing to listen on again', async () => {
  const listener = await bound()
  closeListener(listener)
  closeListener(listener)
  await rejects(ask(listener.address), withCode('ECONNREFUSED'))
  await rejects(listenAgain(listener), withCode('undo_failed'))
})

test('a port that somebody has is told with its address', async () => {
  const taker = createNetServer()
  taker.listen(0, '127.0.0.1')
  await once(taker, 'listening')
  const { port } = taker.address() as { port: number }
  await rejects(bound({ port }), new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port}: .*EADDRINUSE`))
  await new Promise((resolve) => taker.close(resolve))
})

test('an address is the same by each of its names, on the same port', () => {
  for (const [one, other, same] of [
    ['localhost:80', '127.0.0.1:80', true],
    ['::1:80', 'localhost:80', true],
    ['localhost:80', 'localhost:80', true],
    ['localhost:80', '127.0.0.1:81', false],
    ['127.0.0.1:80', '::1:80', false],
    ['localhost:80', '0.0.0.0:80', false],
    ['/run/a.sock', 'localhost:80', false],
  ] as const)
    is(isSameAddress(one, other), same, `${one} ${other}`)
})

test('a name is resolved, and a host that is not ours is refused', async () => {
  await using listener = await bound({ host: 'localhost' })
  match(listener.address, /^(127\.0\.0\.1|\[::1\]):\d+$/)
  is(listener.key, keyOf({ server: listener.server, host: 'localhost', port: Number(listener.key.split(':')[1]) }))
  await rejects(bound({ host: '192.0.2.1' }), /cannot listen on 192\.0\.2\.1:\d+: .*EADDRNOTAVAIL/)
})

test('a unix socket has its mode, survives the process that made it, and is taken from nobody who lives', async () => {
  await using made = await temporary('listen')
  const folder = made.path
  try {
    const path = join(folder, 's.sock')
    const first = await bound({ path, mode: 0o600 })
    is((await stat(path)).mode & 0o777, 0o600)
    match(await ask(path), 'here')
    await rejects(bound({ path }), /another process is already listening on this address/)
    match(await ask(path), 'here', 'and is left as it was')
    closeListener(first)
    ok((await stat(path)).isSocket(), 'the name is no process’s: a successor goes on under it')
    await using second = await bound({ path })
    match(await ask(path), 'here', 'a name that nobody listens on is taken over')
    is((await stat(path)).mode & 0o777, 0o660)
    equal((await readdir(folder)).map((name) => name.replace(/[0-9a-f]{6}$/, '*')).toSorted(), ['.s.sock.*', 's.sock'])
    is(second.key, path)
    await rejects(bound({ path: join(folder, 'x'.repeat(100)) }), /expected a socket path of at most 107 bytes/)
  } finally {
    await chmod(folder, 0o700)
  }
})

test('a unix socket has its name, mode and group before its author hears that it listens; what is no socket is left alone', async () => {
  await using made = await temporary('listen')
  const path = join(made.path, 's.sock')
  const server = answering()
  const seen: number[] = []
  server.on('listening', () => seen.push(statSync(path).mode & 0o777, statSync(path).gid))
  const [group = process.getgid?.() ?? 0] = (process.getgroups?.() ?? []).filter((one) => one !== process.getgid?.())
  await using _ = await bound({ server, path, mode: 0o620, group })
  equal(seen, [0o620, group])
  await rejects(
    bound({ path: join(made.path, 't.sock'), group: 'no-such-group' }),
    /expected a group that exists on this host, got/,
  )
  const file = join(made.path, 'rows.txt')
  await writeFile(file, 'rows')
  await rejects(bound({ path: file }), /EADDRINUSE, the existing file is not a socket/)
  is(await readFile(file, 'utf8'), 'rows')
})

test('a unix socket with a full queue is not taken for a dead one', async () => {
  await using made = await temporary('listen')
  const path = join(made.path, 's.sock')
  await using listener = await bound({ path, backlog: 1 })
  stopAccepting(listener)
  const waiting = Array.from({ length: 4 }, () => connect(path).on('error', () => {}))
  await sleep(50)
  await rejects(bound({ path }), /another process is already listening on this address/)
  ok(await isNamed(listener, listener.spare ?? -1))
  for (const socket of waiting) socket.destroy()
})

test('a unix socket that has lost its name gets it again, and is bound anew if every name is gone', async () => {
  await using made = await temporary('listen')
  const [folder, path] = [join(made.path, 'run'), join(made.path, 'run', 's.sock')]
  await mkdir(folder)
  await using first = await bound({ path })
  await unlink(path)
  ok(await isNamed(first, first.spare ?? -1))
  match(await ask(path), 'here')
  const held = duplicate(first.spare ?? -1)
  stopAccepting(first)
  const waiting = connect(path)
  await once(waiting, 'connect')
  await rm(folder, { recursive: true })
  await mkdir(folder)
  is(await isNamed(first, first.spare ?? -1), false)
  const spec = { server: answering(), path }
  const second = makeListener(spec)
  await bind(second, spec, { accept: held ?? -1, spare: null })
  match(await ask(path), 'here')
  match(await answerOn(waiting), 'here', 'whoever waited in the queue is answered')
  is(second.isAnew, true)
  closeListener(second)
})

test('only connections of plain HTTP/1.1 can be given away', () => {
  is(makeListener({ server: answering() }).movable, true)
  is(makeListener({ server: createTlsServer() }).movable, false)
  is(makeListener({ server: createSecureServer() }).movable, false)
  is(makeListener({ server: createNetServer() }).movable, false)
})

test('a server that listens already is refused: its socket could not be handed on', async () => {
  const server = answering()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  throws(() => makeListener({ server }), withCode('invalid_settings'))
  await new Promise((resolve) => server.close(resolve))
})

test('this Node has every private part that the handover needs', () => {
  equal(missingParts(), [])
})

test('open connections are known, and forgotten when they end', async () => {
  await using listener = await bound()
  const socket = connect(Number(listener.address.split(':')[1]), '127.0.0.1')
  await once(listener.server, 'connection')
  is(listener.sockets.size, 1)
  const [accepted] = listener.sockets
  const closed = once(accepted as Socket, 'close')
  socket.destroy()
  await closed
  is(listener.sockets.size, 0)
})

test('HTTP/2: a session that has ended, and whose client keeps the connection open, is not asked to close again', async () => {
  const server = createPlainServer()
  const listener = makeListener({ server, port: 0 })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])
  client.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings]))
  const [session] = (await once(server, 'session')) as [ServerHttp2Session]
  client.on('error', () => {})
  await once(client, 'data')
  session.close()
  while (!session.destroyed) await sleep(5)
  equal(
    [...listener.sessions].map(({ destroyed }) => destroyed),
    [true],
    'no `close` before the client has closed',
  )
  askToClose(listener)()
  client.destroy()
  await new Promise((resolve) => server.close(resolve))
})

test.run()
