// Connections in the middle of something, carried from one server to another over a real channel, real sockets and the real
// `ws`. Both servers live in this process; that two processes do it too is the matter of switches.test.ts.

import { createServer, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Carries, calmDown, handOn, isCalm, makeCarries } from '../../agent/handover/carry.ts'
import { type Channel, channelOver } from '../../agent/handover/channel.ts'
import { socketPair } from '../../agent/handover/descriptors.ts'
import type { ToPredecessor, ToSuccessor } from '../../agent/handover/messages.ts'
import { packetPair, packetsOn } from '../../agent/handover/packets.ts'
import { makeListener } from '../../agent/handover/listeners.ts'
import { makeTaking } from '../../agent/handover/taking.ts'
import { equal, match, ok } from '../assert.ts'
import { fc, fuzz } from '../lab/fuzz.ts'
import { WebSocket, WebSocketServer } from '../lab/ws.ts'
import { suite } from '../suite.ts'

const test = suite('carry', { timeoutMs: 60_000 })

interface Side {
  server: Server
  carries: Carries
  sockets: Set<Socket>
}

/** Two servers with the same handlers, the first of which listens, and the channel between them. */
async function twoSides(handlers: (side: Side, name: string) => void) {
  const sides = ['old', 'new'].map((name) => {
    const server = createServer()
    const side: Side = { server, carries: makeCarries(() => {}), sockets: new Set() }
    server.on('connection', (socket: Socket) => {
      side.sockets.add(socket)
      socket.once('close', () => side.sockets.delete(socket))
    })
    handlers(side, name)
    return side
  }) as [Side, Side]
  const [before, after] = sides
  await new Promise<void>((resolve) => before.server.listen(0, '127.0.0.1', resolve))
  const [near, far] = socketPair()
  const [packets, farPackets] = packetPair()
  const here = channelOver<ToSuccessor, ToPredecessor>(near, packets)
  const there = channelOver<ToPredecessor, ToSuccessor>(far, packetsOn(farPackets))
  const answers: (string | null)[] = []
  here.hear((message) => {
    if (message.type === 'carried') answers.push(message.refused)
  })
  const taking = makeTaking(
    [{ ...makeListener({ server: createServer() }), key: 'x', server: after.server }],
    after.carries,
    there.tell,
  )
  there.hear((message, descriptors) => {
    if (message.type === 'carry') taking.carry(message, descriptors)
    if (message.type === 'late') taking.late(message)
  })
  let id = 0
  return {
    port: (before.server.address() as AddressInfo).port,
    before,
    after,
    answers,
    /** carries all that is calm; how many */
    carry: () => carryNow(before, here, () => ++id),
    calm: async () => {
      for (const entry of before.carries.entries().values()) calmDown(entry)
      await sleep(5)
    },
    close: async () => {
      for (const { server, sockets } of sides) {
        server.close()
        for (const socket of sockets) socket.destroy()
      }
      here.hangUp()
      await there.closed
    },
  }
}

function carryNow(from: Side, channel: Channel<ToSuccessor, ToPredecessor>, nextId: () => number): number {
  let carried = 0
  for (const entry of from.carries.entries().values()) {
    if (!isCalm(entry)) continue
    const id = nextId()
    const forward = (data: string | Buffer | null) => {
      const body = typeof data === 'string' ? { text: data } : data === null ? {} : { base64: data.toString('base64') }
      void channel.tell({ type: 'late', id, ...body })
    }
    if (handOn(entry, channel.give, { id, listener: 'x' }, forward)) carried++
  }
  return carried
}

/** Echoes each message with its number on this connection, which process it began in, and which one answers. */
function echo({ server, carries }: Side, name: string, options: object = {}): void {
  const wss = new WebSocketServer({ server, ...options })
  wss.on('connection', (ws: WebSocket, request: IncomingMessage) => {
    const state = (carries.carried(request) as { count: number; bornIn: string } | undefined) ?? {
      count: 0,
      bornIn: name,
    }
    carries.carry(request, { ws, state: () => state })
    ws.on('message', (data: Buffer) => ws.send(`${data.toString()}|${++state.count}|${state.bornIn}|${name}`))
  })
}

test('a WebSocket goes on in the successor, with its state, and its client hears of nothing', async () => {
  const sides = await twoSides((side, name) => echo(side, name))
  const client = new WebSocket(`ws://127.0.0.1:${sides.port}/room?of=7`, ['chat'])
  const heard: string[] = []
  client.on('message', (data: Buffer) => heard.push(data.toString()))
  await new Promise((resolve) => client.once('open', resolve))
  client.send('one')
  await until(() => heard.length === 1)
  equal(sides.carry(), 1)
  client.send('two')
  await until(() => heard.length === 2)
  equal(heard, ['one|1|old|old', 'two|2|old|new'])
  equal(sides.answers, [null])
  equal(client.readyState, WebSocket.OPEN)
  client.close(1000, 'done')
  const code = await new Promise((resolve) => client.once('close', resolve))
  equal(code, 1000)
  await sides.close()
})

test('a stream of events goes on in the successor without a gap, and its connection serves the next request', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      if (request.url === '/next') return void response.end(name)
      const state = (carries.carried(request) as { next: number } | undefined) ?? { next: 0 }
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      response.flushHeaders()
      let isMine = true
      carries.carry(request, { response, state: () => ((isMine = false), state) })
      const timer = setInterval(() => {
        if (!isMine) return clearInterval(timer)
        response.write(`data: ${state.next++} é\n\n`)
        if (state.next < 40) return
        clearInterval(timer)
        response.end()
      }, 2)
    })
  })
  const socket = connect(sides.port, '127.0.0.1')
  let text = ''
  socket.setEncoding('utf8').on('data', (part: string) => (text += part))
  socket.write('GET /events HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(() => text.includes('data: 9 '))
  await until(() => sides.carry() === 1)
  await until(() => text.endsWith('0\r\n\r\n'))
  equal(
    [...text.matchAll(/data: (\d+) é/g)].map(([, number]) => Number(number)),
    Array.from({ length: 40 }, (_, at) => at),
  )
  equal(text.match(/HTTP\/1\.1/g)?.length, 1)
  text = ''
  socket.write('GET /next HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(() => text.includes('\r\n\r\nnew'))
  socket.destroy()
  await sides.close()
})

test('what is sent late in the old process reaches the client through the new one', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    const wss = new WebSocketServer({ server })
    wss.on('connection', (ws: WebSocket, request: IncomingMessage) => {
      carries.carry(request, { ws })
      ws.on('message', (data: Buffer) => setTimeout(() => ws.send(`${data.toString()} ${name}`), 50))
    })
  })
  const client = new WebSocket(`ws://127.0.0.1:${sides.port}`)
  const heard: string[] = []
  client.on('message', (data: Buffer) => heard.push(data.toString()))
  await new Promise((resolve) => client.once('open', resolve))
  client.send('slow')
  await sleep(20)
  await until(() => sides.carry() === 1)
  await until(() => heard.length === 1)
  equal(heard, ['slow old'])
  client.terminate()
  await sides.close()
})

test('a successor that agrees on something else tells its WebSocket 1012; one that refuses it too', async () => {
  for (const options of [{ handleProtocols: () => 'other' }, { verifyClient: () => false }]) {
    const sides = await twoSides((side, name) => echo(side, name, name === 'old' ? {} : options))
    const client = new WebSocket(`ws://127.0.0.1:${sides.port}`, ['chat', 'other'])
    await new Promise((resolve) => client.once('open', resolve))
    const closed = new Promise((resolve) => client.once('close', resolve))
    await until(() => sides.carry() === 1)
    equal(await closed, 1012)
    match(String(sides.answers[0]), /another protocol|answered 401/)
    await sides.close()
  }
})

test('a stream whose successor frames it in another way ends short, so that its client notices', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(name === 'old' ? 200 : 404, { 'Content-Type': 'text/plain' })
      response.write('.')
      carries.carry(request, { response })
    })
  })
  const socket = connect(sides.port, '127.0.0.1')
  let text = ''
  socket.setEncoding('utf8').on('data', (part: string) => (text += part))
  const ended = new Promise((resolve) => socket.once('close', resolve))
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(() => sides.carry() === 1)
  await ended
  ok(!text.includes('0\r\n\r\n'))
  match(String(sides.answers[0]), /404/)
  await sides.close()
})

test('a stream is left alone while its request is not whole, or another was asked behind it', async () => {
  const sides = await twoSides(({ server, carries }) => {
    server.on('request', (request, response) => {
      if (request.url === '/plain') return void response.end('plain')
      response.writeHead(200)
      response.write('.')
      carries.carry(request, { response })
    })
  })
  for (const text of [
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf',
    'GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /plain HTTP/1.1\r\nHost: x\r\n\r\n',
  ]) {
    const socket = connect(sides.port, '127.0.0.1')
    let answered = false
    socket.on('data', () => (answered = true))
    socket.write(text)
    await until(() => answered)
    equal(sides.carry(), 0)
    socket.destroy()
    await until(() => sides.before.carries.entries().size === 0)
  }
  await sides.close()
})

test('messages cut at any byte, in fragments, with pings between, arrive whole, once and in order (property)', async () => {
  for (const deflate of [false, { threshold: 0, clientNoContextTakeover: true, serverNoContextTakeover: true }]) {
    const sides = await twoSides((side, name) => echo(side, name, { perMessageDeflate: deflate }))
    const piece = fc.oneof(
      fc.record({ kind: fc.constant('text' as const), size: fc.constantFrom(0, 1, 5, 125, 126, 300, 70_000) }),
      fc.record({ kind: fc.constant('fragments' as const), size: fc.constantFrom(0, 3, 126, 66_000) }),
      fc.record({ kind: fc.constant('ping' as const), size: fc.constantFrom(0, 4) }),
    )
    const pieces = fc.array(piece, { minLength: 1, maxLength: 4 })
    const where = fc.double({ min: 0, max: 1, noNaN: true })
    await fuzz(
      fc.tuple(pieces, where),
      async ([pieces, where]) => {
        const bytes = Buffer.concat(pieces.map(({ kind, size }, at) => framesOf(kind, `${at}:${'x'.repeat(size)}`)))
        const cut = Math.round(where * bytes.length)
        const client = await rawClient(sides.port)
        client.socket.write(bytes.subarray(0, cut))
        await until(() => client.entry(sides.before)?.socket.bytesRead === client.handshakeBytes + cut)
        await until(() => sides.carry() === 1)
        client.socket.write(bytes.subarray(cut))
        const wanted = pieces.flatMap(({ kind, size }, at) => (kind === 'ping' ? [] : [`${at}:${'x'.repeat(size)}`]))
        await until(() => client.messages().length === wanted.length)
        equal(
          client.messages().map((text) => text.split('|').slice(0, 2)),
          wanted.map((text, at) => [text, String(at + 1)]),
        )
        client.socket.destroy()
        await until(() => sides.after.sockets.size === 0)
      },
      { runs: 60 },
    )
    await sides.close()
  }
})

test.run()

/** Masked frames of one message, as a client sends them. */
function framesOf(kind: 'text' | 'fragments' | 'ping', text: string): Buffer {
  if (kind === 'ping') return frame(0x89, Buffer.from(text.slice(0, 100)))
  if (kind === 'text') return frame(0x81, Buffer.from(text))
  const third = Math.ceil(text.length / 3)
  const parts = [text.slice(0, third), text.slice(third, 2 * third), text.slice(2 * third)]
  const [first = '', second = '', last = ''] = parts
  return Buffer.concat([
    frame(0x01, Buffer.from(first)),
    frame(0x89, Buffer.from('between')),
    frame(0x00, Buffer.from(second)),
    frame(0x80, Buffer.from(last)),
  ])
}

function frame(first: number, payload: Buffer): Buffer {
  const mask = Buffer.from([1, 2, 3, 250])
  const head =
    payload.length < 126
      ? Buffer.from([first, 0x80 | payload.length])
      : payload.length < 65_536
        ? Buffer.from([first, 0xfe, payload.length >> 8, payload.length & 255])
        : Buffer.concat([Buffer.from([first, 0xff]), Buffer.from(payload.length.toString(16).padStart(16, '0'), 'hex')])
  return Buffer.concat([head, mask, payload.map((byte, at) => byte ^ (mask[at % 4] ?? 0))])
}

/** A WebSocket client that sends what it is told, byte for byte. */
async function rawClient(port: number) {
  const socket = connect(port, '127.0.0.1')
  let received = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => (received = Buffer.concat([received, chunk])))
  const handshake =
    'GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
  socket.write(handshake)
  await until(() => received.includes('\r\n\r\n'))
  received = received.subarray(received.indexOf('\r\n\r\n') + 4)
  return {
    socket,
    handshakeBytes: handshake.length,
    entry: ({ carries }: Side) => [...carries.entries().values()][0],
    messages: () => {
      const messages: string[] = []
      for (let at = 0; at + 2 <= received.length;) {
        const [first = 0, second = 0] = [received[at], received[at + 1]]
        const [length, head] =
          second < 126
            ? [second, 2]
            : second === 126
              ? [received.length < at + 4 ? Infinity : received.readUInt16BE(at + 2), 4]
              : [received.length < at + 10 ? Infinity : Number(received.readBigUInt64BE(at + 2)), 10]
        if (at + head + length > received.length) break
        if ((first & 15) === 1) messages.push(received.toString('utf8', at + head, at + head + length))
        at += head + length
      }
      return messages
    },
  }
}

async function until(holds: () => boolean): Promise<void> {
  const deadline = Date.now() + 10_000
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`waited in vain: ${holds.toString()}`)
    await sleep(1)
  }
}
