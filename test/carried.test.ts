// WebSockets, streams and idle connections across real switches of the reference service: two processes, one channel. Every
// message has a number; what is missing, doubled, late or closed is counted. Many more of them: carry-soak.test.ts.

import { mkdtemp, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { UpdateSettings } from '../agent/settings.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, ok } from './assert.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { startFollowers } from './lab/followers.ts'
import { WebSocket } from './lab/ws.ts'
import { suite } from './suite.ts'

const test = suite('carried', { timeoutMs: 120_000 })
const [WEBSOCKETS, STREAMS, SWITCHES] = [24, 24, 2]

async function managed(update: UpdateSettings = {}): Promise<AsyncDisposable & { home: Install; port: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-carried-'))
  const [from, to] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.1.0')]
  const home = await install({ release: from, feed: await publishTo(folder, [to]), update: { ...update } })
  await home.start()
  return {
    home,
    port: home.port ?? 0,
    async [Symbol.asyncDispose]() {
      await home[Symbol.asyncDispose]()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function operate(home: Install, path: string): Promise<Operation> {
  equal((await home.api('POST', path)).status, 202)
  return await home.settled()
}

test('numbered messages each way go on over updates and rollbacks: none lost, doubled, late, none closed', async () => {
  await using place = await managed({ drainTimeout: '10s', hangTimeout: '5s' })
  const { home, port } = place
  const followers = await startFollowers({ port, websockets: WEBSOCKETS, streams: STREAMS, everyMs: 200 })
  for (let done = 0; done < SWITCHES; done++) {
    const ended = await operate(home, done === 0 ? '/admin/update' : '/admin/update/rollback')
    is(ended.error, null, JSON.stringify(ended))
    is(ended.handover?.carried, WEBSOCKETS + STREAMS, JSON.stringify(ended.handover))
    is(ended.handover?.cut, 0)
    await sleep(100)
  }
  const { websockets, streams } = await followers.stop()
  for (const { lost, doubled, reordered, closed } of [websockets, streams]) {
    equal({ lost, doubled, reordered, closed }, { lost: 0, doubled: 0, reordered: 0, closed: 0 })
  }
  ok(websockets.messages > WEBSOCKETS * 10, `only ${websockets.messages} messages`)
})

test('idle connections come back from a successor that is killed; what it has spoken with ends at once', async () => {
  await using place = await managed({ probation: '4s', drainTimeout: '10s', hangTimeout: '5s' })
  const { home, port } = place
  const idle = await Promise.all(Array.from({ length: 20 }, () => openIdle(port)))
  const spoken = await openIdle(port)
  const leave = use([...idle, spoken])
  const ws = new WebSocket(`ws://127.0.0.1:${port}/api/logs/live`)
  const wsClosed = new Promise((resolve) => ws.once('close', resolve))
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  equal((await home.api('POST', '/admin/update')).status, 202)
  await until(async () => ((await home.output()).includes('is accepting connections') ? true : null))
  await leave()
  // all of them have moved when the successor answers on a connection that stood with the predecessor
  const successor = await until(async () => {
    const status = (await home.api('GET', '/admin/update/status')).body as Status
    return status.instance.version === 'v1.1.0' && (await home.output()).includes('drained connections:')
      ? status.instance.pid
      : null
  })
  is(await ask(spoken.socket), 'beacon v1.1.0')
  process.kill(successor, 'SIGKILL')
  await Promise.all([wsClosed, spoken.ended])
  const ended = await home.settled()
  is(ended.outcome, 'reverted')
  is(ended.handover?.returned, idle.length, JSON.stringify(ended.handover))
  for (const { socket } of idle) is(await ask(socket), 'beacon v1.0.0')
  for (const { socket } of idle) socket.destroy()
})

test.run()

/** A connection that has asked once and now waits. */
async function openIdle(port: number): Promise<{ socket: Socket; ended: Promise<void> }> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  const ended = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  await ask(socket)
  return { socket, ended }
}

/** As a pool is used: each asks now and then, more often than the service closes what is silent (5 s). Returns the end of it. */
function use(pool: readonly { socket: Socket }[]): () => Promise<void> {
  let isOver = false
  const used = (async () => {
    while (!isOver) {
      for (const { socket } of pool) await ask(socket)
      await sleep(500)
    }
  })()
  return async () => {
    isOver = true
    await used
  }
}

/** The body of one answer. */
function ask(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    if (socket.destroyed) return reject(new Error('the connection is closed'))
    let text = ''
    const heard = (part: Buffer) => {
      text += part.toString()
      const [, body] = /\r\n\r\n(.*)\n$/s.exec(text) ?? []
      if (body === undefined) return
      socket.off('data', heard)
      socket.off('close', failed)
      resolve(body)
    }
    const failed = () => reject(new Error(`closed after ${JSON.stringify(text)}`))
    socket.on('data', heard)
    socket.once('close', failed)
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  })
}

async function until<T>(look: () => Promise<T | null>): Promise<T> {
  const deadline = Date.now() + 30_000
  for (;;) {
    const found = await look()
    if (found !== null) return found
    if (Date.now() > deadline) throw new Error('waited in vain')
    await sleep(50)
  }
}
