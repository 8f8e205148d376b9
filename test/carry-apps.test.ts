// @long
// WebSockets and streams of applications as their authors write them (test/apps/carry): plain `ws`, Express with `ws`,
// @fastify/websocket, Hono's node-ws. Each goes through an update and a rollback; the packages are those that npm brings.

import { get, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, match } from './assert.ts'
import { type FrameworkApps, frameworkApps } from './fixtures/framework-apps.ts'
import type { Install } from './fixtures/install.ts'
import { WebSocket } from './lab/ws.ts'
import { suite } from './suite.ts'

const test = suite('carry apps', { timeoutMs: 180_000 })
const CLIENTS = 6

let apps: FrameworkApps
test.before(async () => void (apps = await frameworkApps()))
test.after(() => apps[Symbol.asyncDispose]())

for (const [app, title] of [
  ['plain', 'ws'],
  ['express', 'Express with ws'],
  ['fastify', '@fastify/websocket'],
  ['hono', 'Hono’s node-ws'],
] as const) {
  const register = app === 'plain' || app === 'fastify' ? test : test.long
  register(
    `${title}: WebSockets go through an update and a rollback with their state, and not a message is lost`,
    async () => {
      await using place = await apps.started(app)
      const clients = await Promise.all(Array.from({ length: CLIENTS }, () => talker(place.port, '/ws')))
      for (const [path, tag] of [
        ['/admin/update', 'v1.1.0'],
        ['/admin/update/rollback', 'v1.0.0'],
      ] as const) {
        const { handover, error } = await operate(place.home, path)
        is(error, null)
        is(handover?.carried, CLIENTS, JSON.stringify(handover))
        is(handover?.cut, 0)
        for (const client of clients) match(await client.next(), new RegExp(`\\|v1\\.0\\.0\\|${tag}$`))
      }
      for (const client of clients) {
        const { sent, heard, isClosed } = await client.stop()
        is(isClosed, false)
        equal(
          heard.map((text) => text.split('|').slice(0, 3).join('|')),
          Array.from({ length: sent }, (_, at) => `${at}|${at + 1}|v1.0.0`),
        )
      }
    },
  )
}

test('Express: events and a body of known length go through an update without a gap; what is compressed is cut, and why is told', async () => {
  await using place = await apps.started('express')
  let text = ''
  const asked = get({ port: place.port, path: '/events', agent: false }, (response) => {
    response.setEncoding('utf8').on('data', (part: string) => (text += part))
    response.on('error', () => {})
  })
  const at = `http://127.0.0.1:${place.port}`
  const [sized, packed] = await Promise.all([fetch(`${at}/sized`), fetch(`${at}/packed`)])
  const whole = sized.text()
  const broken = packed.text().then(
    () => 'whole',
    () => 'ends short',
  )
  const { handover } = await operate(place.home, '/admin/update')
  equal([handover?.carried, handover?.cut], [2, 1], JSON.stringify(handover))
  match(handover?.reasons?.join() ?? '', /^its body is encoded \(gzip\)/)
  match(await place.home.output(), /closed instead of being handed over: its body is encoded \(gzip\)/)
  is(await broken, 'ends short')
  is(await whole, Array.from({ length: 200 }, (_, number) => String(number).padStart(4)).join(''))
  await until(() => text.includes('|v1.1.0'))
  asked.destroy()
  const numbers = [...text.matchAll(/data: (\d+)\|/g)].map(([, number]) => Number(number))
  equal(
    numbers,
    Array.from(numbers, (_, at) => at),
  )
})

test('the chat room that the guide names: everybody has every line once and in order, over an update and a rollback', async () => {
  await using place = await apps.started('chat')
  const { promise: allAreThere, resolve: begin } = Promise.withResolvers<void>()
  const people = await Promise.all(
    ['ann', 'bob', 'cid', 'dee'].map((name) =>
      talker(place.port, `/?name=${name}`, { everyMs: 50, after: allAreThere }),
    ),
  )
  begin()
  for (const path of ['/admin/update', '/admin/update/rollback']) {
    const { handover, error } = await operate(place.home, path)
    is(error, null)
    equal([handover?.carried, handover?.cut], [people.length, 0])
  }
  const said = people.map(({ hush }) => hush())
  const lines = said.reduce((sum, sent) => sum + sent, 0)
  await until(() => people.every(({ heard }) => heard.length >= lines))
  const [first] = people
  is(new Set(first?.heard).size, lines, 'each once')
  for (const { heard } of people) equal(heard, first?.heard)
  for (const [at, name] of ['ann', 'bob', 'cid', 'dee'].entries()) {
    const own = first?.heard.filter((line) => line.startsWith(`${name}: `))
    equal(
      own,
      Array.from({ length: said[at] ?? 0 }, (_, number) => `${name}: ${number}`),
    )
  }
  for (const { stop } of people) await stop()
})

test('deflate: without context takeover it is carried, compressed as before; with it, it ends with 1012 and is counted', async () => {
  await using place = await apps.started('plain')
  const forgetful = await talker(place.port, '/ws/forgetful', { perMessageDeflate: true })
  const takeover = await talker(place.port, '/ws/takeover', { perMessageDeflate: true })
  match(forgetful.extensions, /^permessage-deflate; server_no_context_takeover; client_no_context_takeover$/)
  is(takeover.extensions, 'permessage-deflate')
  const { handover } = await operate(place.home, '/admin/update')
  equal([handover?.carried, handover?.ended, handover?.cut], [1, 1, 0])
  is(await takeover.closed, 1012)
  match(await forgetful.next(), /\|v1\.0\.0\|v1\.1\.0$/)
  match(await place.home.output(), /cannot be kept open across a switch: its compression keeps context/)
  const { sent, heard, isClosed } = await forgetful.stop()
  is(isClosed, false)
  is(heard.length, sent)
  await takeover.stop()
})

test.run()

async function operate(home: Install, path: string): Promise<Operation> {
  is((await home.api('POST', path)).status, 202)
  return await home.settled()
}

/** Sends a number every so often; each is to be answered once, in order. */
async function talker(
  port: number,
  path: string,
  { perMessageDeflate = false, everyMs = 10, after = Promise.resolve() } = {},
) {
  const ws = new WebSocket(`ws://127.0.0.1:${port}${path}`, { perMessageDeflate })
  const heard: string[] = []
  let [sent, isClosed, extensions] = [0, false, '']
  ws.once('upgrade', ({ headers }: IncomingMessage) => (extensions = headers['sec-websocket-extensions'] ?? ''))
  const closed = new Promise<number>((resolve) => ws.once('close', resolve))
  void closed.then(() => (isClosed = true))
  ws.on('message', (data: Buffer) => heard.push(data.toString()))
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  let timer: NodeJS.Timeout | undefined
  const say = () => ws.readyState === WebSocket.OPEN && ws.send(String(sent++))
  void after.then(() => (timer = setInterval(say, everyMs)))
  return {
    closed,
    heard,
    /** Sends nothing more; how many were sent. */
    hush: () => {
      clearInterval(timer)
      return sent
    },
    /** as they were agreed on */
    extensions,
    /** an answer that was not there when this was asked for, and was asked for after */
    next: async () => {
      const count = sent
      await until(() => heard.length > count)
      return heard.at(-1) ?? ''
    },
    stop: async () => {
      clearInterval(timer)
      await until(() => heard.length >= sent || isClosed)
      const said = { sent, heard, isClosed }
      ws.terminate()
      return said
    },
  }
}

async function until(holds: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`waited in vain: ${holds.toString()}`)
    await sleep(5)
  }
}
