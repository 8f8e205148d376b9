// UDP behind a holder, as processes: what arrives while no application lives is answered by the next one. In real containers:
// test/container/hold-moves.ts.

import { spawn } from 'node:child_process'
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { join } from 'node:path'
import { equal, is, match } from './assert.ts'
import { type HolderGround, holderGround, noHolder, type Started, watched } from './fixtures/container-holder.ts'
import { until } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { suite } from './suite.ts'

const test = suite('lent datagrams', {
  timeoutMs: 60_000,
  skip: noHolder,
})
const PROGRAM = join(import.meta.dirname, 'fixtures/lent-datagrams.ts')

test('datagrams wait while the application is killed or stopped, and each is answered once by the next one', async () => {
  await using ground = await holderGround()
  const [port, http] = [await freePort(), await freePort()]
  await ground.start(`${port}/udp`, String(http))
  await using client = await clientTo(port)
  const texts: string[] = []
  for (const end of ['SIGKILL', 'SIGTERM', 'SIGTERM'] as const) {
    for (let i = 0; i < 20; i++) texts.push(client.send())
    using app = start(ground, `udp4:${port}`, `tcp:${http}`)
    await until('the answers', () => client.heard.length === texts.length)
    match(app.said(), new RegExp(`bound 0.0.0.0 IPv4 ${port}`))
    equal(client.heard.at(-1)?.split(' '), [String(app.pid), texts.at(-1), '127.0.0.1', 'IPv4'])
    const slow = client.send('slow')
    await until('it to have read that', () => client.heard.length === texts.length + 1)
    texts.push(slow)
    if (end === 'SIGTERM') await until('it to serve', () => /"?serving/.test(app.said()))
    process.kill(app.pid, end)
    await app.ended
  }
  equal(client.heard.map((text) => text.split(' ')[1]).toSorted(), texts.toSorted())
})

test('an application that is asked to stop answers what it has read, and leaves the rest to the next one', async () => {
  await using ground = await holderGround()
  const [port, http] = [await freePort(), await freePort()]
  await ground.start(`${port}/udp`, String(http))
  await using client = await clientTo(port)
  const by = new Set<string>()
  let app = start(ground, `udp4:${port}`, `tcp:${http}`)
  const texts: string[] = []
  // slow enough for the kernel's buffer while a busy machine starts a process
  const sending = setInterval(() => texts.push(client.send('slow')), 40)
  try {
    for (let round = 0; round < 3; round++) {
      const before = app
      await until('its answers', () => client.heard.some((text) => text.startsWith(`${before.pid} `)))
      by.add(String(before.pid))
      await until('it to serve', () => /serving/.test(before.said()))
      process.kill(before.pid, 'SIGTERM')
      is(await before.ended, 0)
      app = start(ground, `udp4:${port}`, `tcp:${http}`)
    }
    clearInterval(sending)
    await until('all answers', () => client.heard.length >= texts.length)
    equal(client.heard.map((text) => text.split(' ')[1]).toSorted(), texts.toSorted())
    is(by.size, 3)
  } finally {
    clearInterval(sending)
    app[Symbol.dispose]()
  }
})

test('each kind of socket gets what it asked for: IPv4, IPv6, both, and one address; what is not held is its own', async () => {
  await using ground = await holderGround()
  const ports = [await freePort(), await freePort(), await freePort(), await freePort()]
  const [first = 0, second = 0, third = 0, own = 0] = ports
  await ground.start(`${first}/udp`, `${second}/udp`, `127.0.0.1:${third}/udp`)
  using app = start(ground, `udp4:${first}`, `udp6:${second}`, `udp4:${third}:127.0.0.1`, `udp4:${own}`)
  const asked: [number, string, string][] = [
    [first, '127.0.0.1', '127.0.0.1 IPv4'],
    [second, '::1', '::1 IPv6'],
    [second, '127.0.0.1', '::ffff:127.0.0.1 IPv6'],
    [third, '127.0.0.1', '127.0.0.1 IPv4'],
    [own, '127.0.0.1', '127.0.0.1 IPv4'],
  ]
  await until('the last to be bound', () => app.said().includes(`${own}\n`))
  for (const [port, host, from] of asked) {
    await using client = await clientTo(port, host)
    const text = client.send()
    await until('an answer', () => client.heard.length > 0)
    equal(client.heard, [`${app.pid} ${text} ${from}`])
  }
  match(
    app.said(),
    new RegExp(
      `the holder at .* does not have \\*:${own}/udp \\(it has ${first}/udp, .*\\), so this container itself binds it`,
    ),
  )
  // a client of the other IP is none of a socket of IPv4
  await using other = await clientTo(first, '::1')
  await using same = await clientTo(first)
  other.send()
  same.send()
  await until('an answer', () => same.heard.length > 0)
  equal(other.heard, [])
})

test('what it sends before it has its socket goes out from that; a socket that it closes keeps no process alive', async () => {
  await using ground = await holderGround()
  const [port, back] = [await freePort(), await freePort()]
  const socket = createSocket('udp4').bind(back, '127.0.0.1')
  try {
    await once(socket, 'listening')
    const came = once(socket, 'message')
    using app = start(ground, `udp4:${port}`, `sends:${back}`, 'closes')
    await until('it to wait', () => /waiting for the holder/.test(app.said()))
    await ground.start(`${port}/udp`)
    const [text, from] = (await came) as [Buffer, { port: number }]
    equal([text.toString(), from.port], ['ready', port])
    is(await app.ended, 0)
  } finally {
    socket.close()
  }
})

test('a holder that is killed: the same socket of the application goes on with what the next holder has', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  let holder = await ground.start(`${port}/udp`)
  using app = start(ground, `udp4:${port}`)
  await using client = await clientTo(port)
  for (let round = 0; round < 3; round++) {
    const text = client.send()
    await until('an answer', () => client.heard.length === round + 1)
    equal(client.heard.at(-1), `${app.pid} ${text} 127.0.0.1 IPv4`)
    holder.child.kill('SIGKILL')
    await holder.ended
    // a holder's network ends with it; here the port is free when the application has let go of it
    await until('it to ask again', () => app.said().split('waiting for the holder').length === round + 2)
    holder = await ground.start(`${port}/udp`)
  }
  is(app.said().split('bound').length, 2, 'its author hears of none of that')
})

test('a Node without node:ffi ends and says why, instead of asking for ever: for UDP, and for a server', async () => {
  await using ground = await holderGround()
  const [port, http] = [await freePort(), await freePort()]
  await ground.start(`${port}/udp`, String(http))
  for (const word of [`udp4:${port}`, `tcp:${http}`]) {
    using app = start(ground, '--no-experimental-ffi', word)
    is(await app.ended, 1)
    match(
      app.said(),
      /using the sockets of a holder \(BATON_HOLDER\) requires node:ffi, which is not available in this Node \(v\d\S*\)/,
    )
  }
})

test.run()

interface App extends Started, Disposable {
  pid: number
}

function start({ path }: HolderGround, ...words: string[]): App {
  const flags = words.filter((word) => word.startsWith('--'))
  const args = [...process.execArgv, ...flags, PROGRAM, ...words.filter((word) => !word.startsWith('--'))]
  const env = { ...process.env, BATON_HOLDER: path }
  const started = watched(spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] }))
  return { ...started, pid: started.child.pid ?? 0, [Symbol.dispose]: () => void started.child.kill('SIGKILL') }
}

interface Client extends AsyncDisposable {
  /** in the order in which they came */
  heard: string[]
  /** Sends another text each time, and returns it. */
  send(kind?: string): string
}

let sent = 0

async function clientTo(port: number, host = '127.0.0.1'): Promise<Client> {
  const socket: Socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
  const heard: string[] = []
  socket.on('message', (text) => void heard.push(text.toString()))
  socket.connect(port, host)
  await once(socket, 'connect')
  return {
    heard,
    send(kind = 'text') {
      const text = `${kind}${sent++}`
      socket.send(text)
      return text
    },
    async [Symbol.asyncDispose]() {
      const closed = once(socket, 'close')
      socket.close()
      await closed
    },
  }
}
