// What cannot be carried is told why (1012), counted once, and said in the log: every row of the table in docs/author/websockets.md
// that is not held elsewhere (compression with context takeover: test/carry-apps.test.ts).

import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { equal, is, match, ok } from '../assert.ts'
import { echo, rawClient, type Side, twoSides, until } from '../fixtures/two-sides.ts'
import { WebSocket, WebSocketServer } from '../lab/ws.ts'
import { suite } from '../suite.ts'

const test = suite('carry refused', { timeoutMs: 60_000 })
const LONG = { drainMs: 20_000, drainMaxMs: 20_000 }

for (const [title, state, why] of [
  ['a state of more than 64 kB', () => 'x'.repeat(65_537), /expected a state of at most 65536 bytes, got 65539/],
  ['a state that is no JSON', () => 1n, /getting its state: .*BigInt/],
  [
    'a state that throws',
    () => {
      throw new Error('not now')
    },
    /getting its state: not now/,
  ],
] as const) {
  test(`${title}: closed with 1012, counted and said`, async () => {
    const sides = await twoSides((side) => accept(side, state))
    const clients = [await connected(sides.port), await connected(sides.port)]
    const { carried, ended, cut, warnings } = await sides.drain(LONG)
    equal([carried, ended, cut], [0, 2, 0])
    equal(await Promise.all(clients.map(({ closed }) => closed)), [1012, 1012])
    is(warnings.length, 1, 'each reason once')
    match(warnings[0] ?? '', why)
    await sides.close()
  })
}

test('a successor that agrees on something else, or refuses: 1012, counted and said', async () => {
  const sides = await twoSides((side, name) => echo(side, name, name === 'old' ? {} : { verifyClient: () => false }))
  const client = await connected(sides.port)
  const { carried, ended, cut, warnings } = await sides.drain(LONG)
  equal([carried, ended, cut, await client.closed], [0, 1, 0, 1012])
  match(warnings.join(), /its handler responded with 401/)
  await sides.close()
})

test('a handler that does not answer within its time: 1012, counted and said', async () => {
  const sides = await twoSides((side, name) => {
    if (name === 'old') return echo(side, name)
    side.server.on('upgrade', () => {}) // and nothing more
  })
  const client = await connected(sides.port)
  const { ended, cut, warnings } = await sides.drain(LONG)
  equal([ended, cut, await client.closed], [1, 0, 1012])
  match(warnings.join(), /its handler did not answer within 10 s/)
  await sides.close()
})

test('a `ws` that keeps its state elsewhere: said at once and once, then 1012 and counted', async () => {
  const sides = await twoSides(({ server, carries }) => {
    new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
      delete (ws as unknown as { _sender: { _queue?: unknown } })._sender._queue
      carries.carry(request, { ws })
    })
  })
  const clients = [await connected(sides.port), await connected(sides.port)]
  equal(sides.warnings, [
    'a WebSocket cannot be kept open across a switch: Baton does not know where this version of `ws` keeps its state; it will be closed with 1012',
  ])
  const { carried, ended, cut } = await sides.drain(LONG)
  equal([carried, ended, cut], [0, 2, 0])
  equal(await Promise.all(clients.map(({ closed }) => closed)), [1012, 1012])
  await sides.close()
})

test('a message in fragments that never ends: 1012 at the deadline, counted and said', async () => {
  const sides = await twoSides(({ server, carries }) => {
    new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
      carries.carry(request, { ws })
      ws.send('begun', { fin: false })
    })
  })
  const client = await connected(sides.port)
  const { carried, ended, cut, warnings } = await sides.drain({ drainMs: 300, drainMaxMs: 600 })
  equal([carried, ended, cut, await client.closed], [0, 1, 0, 1012])
  match(warnings.join(), /it was in the middle of a message/)
  await sides.close()
})

test('a client that does not read stays until the deadline; then it is closed and counted, and the others were carried', async () => {
  const sides = await twoSides(({ server, carries }) => {
    new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
      carries.carry(request, { ws })
      if (request.url === '/much') ws.send(Buffer.alloc(32 * 1024 * 1024))
    })
  })
  const slow = await rawClient(sides.port, '', '/much')
  slow.socket.pause()
  const other = await connected(sides.port)
  const gone = new Promise((resolve) => slow.socket.once('close', resolve))
  await until(() => sides.before.sockets.size === 2)
  const { carried, ended, cut, warnings } = await sides.drain({ drainMs: 300, drainMaxMs: 600 })
  equal([carried, ended, cut], [1, 0, 1])
  match(warnings.join(), /its client did not read everything that was sent/)
  slow.socket.on('error', () => {}).resume()
  await gone
  is(other.ws.readyState, WebSocket.OPEN)
  other.ws.terminate()
  await sides.close()
})

test('one that never was quiet is made so: a client that sends without end is carried all the same', async () => {
  const sides = await twoSides((side, name) => echo(side, name))
  const { ws, heard } = await connected(sides.port)
  let sent = 0
  const timer = setInterval(() => {
    for (let some = 0; some < 50; some++) ws.send(String(sent++))
  }, 1)
  await sleep(20)
  const { carried, ended, cut } = await sides.drain(LONG)
  equal([carried, ended, cut], [1, 0, 0])
  await sleep(20)
  clearInterval(timer)
  await until(() => heard.length === sent)
  equal(
    heard.map((text) => text.split('|').slice(0, 2).join('|')),
    Array.from({ length: sent }, (_, at) => `${at}|${at + 1}`),
  )
  ok(heard.at(-1)?.endsWith('|old|new') === true)
  ws.terminate()
  await sides.close()
})

test.run()

function accept({ server, carries }: Side, state: () => unknown): void {
  new WebSocketServer({ server }).on('connection', (ws: WebSocket, request: IncomingMessage) => {
    carries.carry(request, { ws, state })
  })
}

async function connected(port: number) {
  const ws = new WebSocket(`ws://127.0.0.1:${port}`, { perMessageDeflate: false })
  const heard: string[] = []
  ws.on('message', (data: Buffer) => heard.push(data.toString()))
  const closed = new Promise<number>((resolve) => ws.once('close', resolve))
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  return { ws, heard, closed }
}
