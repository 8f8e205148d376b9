// Connections in the middle of something, carried from one server to another over a real channel, real sockets and the real
// `ws`. Both servers live in this process; that two processes do it too is the matter of switches.test.ts. Every byte at which
// a message can be cut is in carry-cuts.test.ts.

import type { IncomingMessage } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { agreementIn } from '../../agent/handover/carry/frames.ts'
import { equal, match, ok } from '../assert.ts'
import { echo, twoSides, until } from '../fixtures/two-sides.ts'
import { WebSocket, WebSocketServer } from '../lab/ws.ts'
import { suite } from '../suite.ts'

const test = suite('carry', { timeoutMs: 60_000 })

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

test('a message that waits in a socket which is not read is heard once, in the successor', async () => {
  const held: Socket[] = []
  const sides = await twoSides(({ server, carries }, name) => {
    const wss = new WebSocketServer({ server })
    wss.on('connection', (ws: WebSocket, request: IncomingMessage) => {
      if (name === 'old') held.push(request.socket)
      ws.on('message', (data: Buffer) => {
        ws.send(`${data.toString()}|${name}`)
        if (data.toString() === 'hold') ws.pause()
      })
      carries.carry(request, { ws })
    })
  })
  const client = new WebSocket(`ws://127.0.0.1:${sides.port}/`)
  const heard: string[] = []
  client.on('message', (data: Buffer) => heard.push(data.toString()))
  await new Promise((resolve) => client.once('open', resolve))
  client.send('hold')
  await until(() => heard.length === 1)
  client.send('waits')
  await until(() => (held[0]?.readableLength ?? 0) > 0)
  equal(sides.carry(), 1)
  client.send('after')
  await until(() => heard.includes('after|new'))
  equal(heard, ['hold|old', 'waits|new', 'after|new'])
  client.terminate()
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

test('a message that the author sends in fragments, pings between them, ends before its WebSocket is carried', async () => {
  for (const perMessageDeflate of [
    false,
    { threshold: 0, clientNoContextTakeover: true, serverNoContextTakeover: true },
  ]) {
    const sides = await twoSides(({ server, carries }, name) => {
      new WebSocketServer({ server, perMessageDeflate }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
        carries.carry(request, { ws })
        ws.on('message', () => ws.send(`is with ${name}`))
        if (name === 'new') return
        const parts = ['one ', 'two ', 'three ', 'four']
        const timer = setInterval(() => {
          ws.ping()
          ws.send(parts.shift() ?? '', { fin: parts.length === 0 })
          if (parts.length === 0) clearInterval(timer)
        }, 30)
      })
    })
    const client = new WebSocket(`ws://127.0.0.1:${sides.port}`, { perMessageDeflate })
    const heard: string[] = []
    client.on('message', (data: Buffer) => heard.push(data.toString()))
    await new Promise((resolve) => client.once('ping', resolve))
    const { carried, cut } = await sides.drain({ drainMs: 20_000, drainMaxMs: 20_000 })
    equal([carried, cut], [1, 0])
    client.send('who?')
    await until(() => heard.length === 2)
    equal(heard, ['one two three four', 'is with new'])
    client.terminate()
    await sides.close()
  }
})

test('what is sent late arrives as it was sent: in fragments, as a Blob, text and bytes, in order', async () => {
  const held: WebSocket[] = []
  const sides = await twoSides(({ server, carries }, name) => {
    new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
      carries.carry(request, { ws })
      if (name === 'old') held.push(ws)
    })
  })
  const client = new WebSocket(`ws://127.0.0.1:${sides.port}`)
  const heard: [string, boolean][] = []
  client.on('message', (data: Buffer, isBinary: boolean) => heard.push([data.toString(), isBinary]))
  await new Promise((resolve) => client.once('open', resolve))
  await until(() => sides.carry() === 1)
  for (const ws of held) {
    ws.send('in ', { fin: false })
    ws.send(Buffer.from('fragments é'.slice(0, 10)), { fin: false })
    ws.send('é', { fin: true })
    ws.send(7)
    ws.send(new Uint8Array([97, 98]))
    await new Promise((resolve) => ws.send(new Blob(['of a blob']) as never, resolve))
    ws.send(new Uint8Array([99]).buffer)
    ws.send(Buffer.from('text'), { binary: false })
    ws.send('bytes', { binary: true })
  }
  await until(() => heard.length === 7)
  equal(heard, [
    ['in fragments é', false],
    ['7', false],
    ['ab', true],
    ['of a blob', true],
    ['c', true],
    ['text', false],
    ['bytes', true],
  ])
  client.terminate()
  await sides.close()
})

test('a message that is too large to be passed on ends its WebSocket, which counts as cut then; the others go on', async () => {
  const held: WebSocket[] = []
  const sides = await twoSides(({ server, carries }, name) => {
    new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
      carries.carry(request, { ws })
      if (name === 'old') held.push(ws)
    })
  })
  const clients = [1, 2].map(() => new WebSocket(`ws://127.0.0.1:${sides.port}`))
  const heard: string[] = []
  const codes = clients.map((client) => new Promise((resolve) => client.once('close', resolve)))
  for (const client of clients) client.on('message', (data: Buffer) => heard.push(data.toString()))
  await until(() => held.length === 2)
  const { carried } = await sides.drain({ drainMs: 20_000, drainMaxMs: 20_000 })
  equal(carried, 2)
  held[0]?.send(Buffer.alloc(17 * 1024 * 1024))
  held[1]?.send('small')
  await until(() => heard.length === 1)
  equal(await Promise.race(codes), 1012)
  const { moved, carried: whole, cut } = sides.report
  equal([moved, whole, cut], [1, 1, 1])
  for (const client of clients) client.terminate()
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
    match(String(sides.answers[0]), /a different protocol|responded with 401/)
    await sides.close()
  }
})

test('an empty value in the answer to an upgrade agrees on nothing: the next line is no part of it', () => {
  const head =
    'HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Protocol: \r\nSec-WebSocket-Extensions:\r\nx-room: 7\r\n'
  equal(agreementIn(head), JSON.stringify(['', []]))
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

test.run()
