// WebSockets that nobody has registered, made by `ws` and by hand: a switch ends each with 1012, whole messages only, and their clients
// come back to the new release.

import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, ok } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { suite } from './suite.ts'

const test = suite('web sockets', { timeoutMs: 120_000 })
const AUTO = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  const server = createServer((request, response) => response.end('ok'))\n`
const LISTEN = `\nserver.listen(Number(process.env.PORT), process.env.HOST)`
const CLIENTS = 30

/** Each sends messages of its own length all the time, in the ways in which libraries do. */
const MADE_BY = {
  ws: `import { WebSocketServer } from '${join(PROJECT, 'node_modules/ws/wrapper.mjs')}'
    let count = 0
    new WebSocketServer({ server, perMessageDeflate: true }).on('connection', (ws) => {
      const size = [3, 200, 70_000][count++ % 3]
      const timer = setInterval(() => ws.send('x'.repeat(size) + '.'), 5)
      ws.on('close', () => clearInterval(timer))
    })`,
  // the head and the body in two writes, and every third connection sends nothing
  hand: `import { createHash } from 'node:crypto'
    let count = 0
    server.on('upgrade', ({ headers }, socket) => {
      const key = createHash('sha1').update(headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
      socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + key + '\\r\\n\\r\\n')
      socket.on('error', () => {}).resume()
      const body = 'x'.repeat(999) + '.'
      const send = () => {
        socket.write(Buffer.from([0x81, 126, body.length >> 8, body.length & 255]))
        socket.write(body, 'latin1')
      }
      const timer = count++ % 3 === 0 ? null : setInterval(send, 5)
      socket.on('close', () => clearInterval(timer))
    })`,
}

interface Ended {
  code: number
  reason: string
  /** messages that did not end as each does */
  broken: number
}

async function openOne(port: number): Promise<{ ended: Promise<Ended> }> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`)
  let broken = 0
  socket.addEventListener('message', ({ data }) => void (String(data).endsWith('.') || broken++))
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve)
    socket.addEventListener('error', reject)
  })
  const ended = new Promise<Ended>((resolve) => {
    socket.addEventListener('close', ({ code, reason }) => resolve({ code, reason, broken }))
  })
  return { ended }
}

for (const kind of ['stop-first', 'start-first'] as const) {
  for (const [maker, text] of Object.entries(MADE_BY)) {
    const register = kind === 'start-first' && maker === 'hand' ? test : test.long
    register(`${kind}: each WebSocket that ${maker} made ends with 1012`, async () => {
      await using it = await adopted(AUTO + text + LISTEN, { order: kind })
      const open = await Promise.all(Array.from({ length: CLIENTS }, async () => await openOne(it.port)))
      await sleep(300)
      const { outcome, handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
      is(outcome, 'updated')
      const ends = await Promise.all(open.map(async ({ ended }) => await ended))
      equal(
        ends.filter(({ code, reason, broken }) => code !== 1012 || reason !== 'service restart' || broken > 0),
        [],
      )
      equal([handover?.ended, handover?.cut], [CLIENTS, 0])
      await openOne(it.port)
    })
  }
}

test.long(
  'stop-first: a client that is slow to read why its WebSocket ends keeps the connection meanwhile, and nobody else waiting',
  async () => {
    // the holder ends with the probation
    await using it = await adopted(AUTO + MADE_BY.hand + LISTEN, {}, { update: { probation: '5s' } })
    const socket = connect(it.port, '127.0.0.1')
    const key = Buffer.alloc(16).toString('base64')
    socket.write(
      `GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
    )
    const told = new Promise<number>((resolve) => {
      socket.on('data', (chunk: Buffer) => chunk.includes('service restart') && resolve(performance.now()))
    })
    const ended = once(socket, 'end').then(() => performance.now())
    await once(socket, 'connect')
    await sleep(300)
    const { outcome, handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
    equal([outcome, handover?.ended, handover?.cut], ['updated', 1, 0])
    const openMs = (await ended) - (await told)
    ok(openMs > 1000, `it ended ${openMs} ms after it was told`)
    socket.destroy()
  },
)

test.long('server-sent events that nobody has registered: a switch waits for none of them, and each ends', async () => {
  const text = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
    import { createServer } from 'node:http'
    createServer((request, response) => {
      if (request.url !== '/events') return response.end('ok')
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      const timer = setInterval(() => response.write('data: ' + process.pid + '\\n\\n'), 5)
      response.on('close', () => clearInterval(timer))
    }).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text)
  const listen = async () => {
    const response = await fetch(`http://127.0.0.1:${it.port}/events`)
    const read = async () => {
      let heard = ''
      try {
        for await (const chunk of response.body ?? []) heard += new TextDecoder().decode(chunk)
      } catch {
        return heard // cut off, as a client must see it
      }
      return 'it seemed to have ended well'
    }
    return { ended: read() }
  }
  const open = await Promise.all(Array.from({ length: CLIENTS }, listen))
  // a request that takes so long would be waited for: a minute, and longer than this test
  const { outcome, handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([outcome, handover?.ended, handover?.cut], ['updated', CLIENTS, 0])
  for (const heard of await Promise.all(open.map(async ({ ended }) => await ended)))
    ok(/^(data: \d+\n\n)+/.test(heard), heard.slice(0, 80))
})

for (const kind of ['stop-first', 'start-first'] as const) {
  const register = kind === 'stop-first' ? test : test.long
  register(
    `${kind}: answers that the author names in longLivedPaths hold nothing up and are not cut, and a slow one beside them is whole`,
    async () => {
      const text = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
      import { createServer } from 'node:http'
      createServer(({ url }, response) => {
        if (url === '/notes/feed?live=no') return setTimeout(() => response.end('whole'), 1500)
        if (url === '/poll') return
        if (!url.includes('/feed')) return response.end('ok')
        const timer = setInterval(() => response.write('{}\\n'), 5)
        response.on('close', () => clearInterval(timer))
      }).listen(Number(process.env.PORT), process.env.HOST)`
      await using it = await adopted(text, { order: kind, longLivedPaths: ['/poll', '/:name/feed?*live=yes*'] })
      const ask = async (path: string) => {
        const asked = fetch(`http://127.0.0.1:${it.port}${path}`).then((response) => response.text())
        return await asked.catch(() => 'it ended short')
      }
      const feeds = ['/poll', '/notes/feed?live=yes', '/news/feed?since=7&live=yes'].map(ask)
      await sleep(300)
      const slow = ask('/notes/feed?live=no')
      // what is not named would be waited for: a minute, and longer than this test
      const { outcome, handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
      equal([outcome, handover?.ended, handover?.cut], ['updated', 3, 0])
      is(await slow, 'whole')
      for (const heard of await Promise.all(feeds)) match(heard, /^it ended short$/)
    },
  )
}

test('WebSockets registered as a whole, of an application that exits at its SIGTERM: each goes on and is counted; one that is lost too', async () => {
  const auto = join(PROJECT, 'agent/adapters/auto.ts')
  const text = `import { carryAll, carried } from '${auto}'
    import { WebSocketServer } from '${join(PROJECT, 'node_modules/ws/wrapper.mjs')}'
    const counts = new WeakMap()
    const wss = new WebSocketServer({ server })
    wss.on('connection', (ws, request) => {
      counts.set(ws, carried(request)?.count ?? 0)
      ws.on('message', () => {
        counts.set(ws, counts.get(ws) + 1)
        ws.send(process.pid + ' ' + counts.get(ws))
      })
    })
    carryAll(wss, { state: (ws) => ({ count: counts.get(ws) }) })
    process.on('SIGTERM', () => {
      for (const ws of wss.clients) ws.close(1001)
      process.exit(0)
    })`
  const update = { probation: '3s' }
  await using it = await adopted(AUTO + text + LISTEN, { onStop: 'SIGTERM' }, { update })
  const socket = new WebSocket(`ws://127.0.0.1:${it.port}/`)
  await new Promise((resolve) => {
    socket.addEventListener('open', resolve)
  })
  const answer = async () => {
    const heard = new Promise<string>((resolve) => {
      socket.addEventListener('message', ({ data }) => resolve(String(data)), { once: true })
    })
    socket.send('more')
    return (await heard).split(' ')
  }
  const [first, one] = await answer()
  const { handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([handover?.moved, handover?.carried], [1, 1])
  const [second, two] = await answer()
  equal([one, two], ['1', '2'])
  ok(first !== second, 'another process answers')
  await it.release('v1.2.0', `${AUTO + text + LISTEN}\nsetTimeout(() => process.exit(1), 1500)`)
  const ended = once(socket, 'close')
  const failed = await it.operate('/admin/update', { tag: 'v1.2.0' })
  equal([failed.outcome, failed.handover?.cut], ['reverted', 1])
  await ended
})

test.run()
