// `kill -9` of either process before and after every message by which connections are given away: idle ones, one in a request,
// WebSockets, streams. After each, every client is served or its connection is closed; none hangs, none gets another's bytes,
// and what is served is served once.

import { spawn } from 'node:child_process'
import { get } from 'node:http'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { equal, ok } from './assert.ts'
import type { PairOrder, PairSaid } from './fixtures/pair.ts'
import { WebSocket } from './lab/ws.ts'
import { bundled } from './fixtures/bundled.ts'
import { isLong, suite } from './suite.ts'

const test = suite('carry kills', { timeoutMs: 300_000 })
const PROGRAM = fileURLToPath(new URL('fixtures/pair.ts', import.meta.url))
const [IDLE, WEBSOCKETS, STREAMS] = [4, 3, 2]
const DEADLINE_MS = 5000

let program = ''
test.before(async () => void (program = await bundled(PROGRAM)))

test('nobody dies: all connections go on in the other process, each once', async () => {
  const { ended, fates } = await round(null)
  equal(ended, 'drained')
  equal(
    fates,
    Array.from(fates, () => 'new'),
  )
})

for (const [victim, title] of [
  ['new', 'the successor dies at any message: what it had not touched is served by the predecessor, and nothing hangs'],
  ['old', 'the predecessor dies at any message: what was given is served by the successor, and nothing hangs'],
] as const) {
  test(title, async () => {
    let deaths = 0
    for (let message = 0; ; message++) {
      // right after one message and right before the next are all but one instant
      const moments = isLong ? (['before', 'after'] as const) : ([message % 2 === 0 ? 'before' : 'after'] as const)
      for (const moment of moments) {
        const where = `${victim} dies ${moment} message ${message}`
        const { ended, fates } = await round({ role: victim, message, moment }).catch((cause: unknown) => {
          throw new Error(where, { cause })
        })
        if (ended === 'drained') {
          const messages = deaths / moments.length
          ok(messages >= WEBSOCKETS + STREAMS, `expected many messages, got ${messages}`)
          return
        }
        deaths++
        const other = victim === 'new' ? 'old' : 'new'
        for (const fate of fates) ok(fate === other || fate === 'closed', `${where}: ${fates.join(', ')}`)
        if (message === 0 && victim === 'new')
          equal(
            fates.slice(0, IDLE),
            Array.from({ length: IDLE }, () => 'old'),
            where,
          )
      }
    }
  })
}

test.run()

interface Client {
  /** who serves it now, or `closed`; rejects where it hangs or hears what is not its own */
  fate(): Promise<string>
  end(): void
}

/** One handover with one death. */
async function round(dieAt: PairOrder['dieAt']): Promise<{ ended: string; fates: string[] }> {
  const order: PairOrder = { role: 'old', dieAt }
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, JSON.stringify(order)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const dead = new Promise<'dead'>((resolve) => child.once('exit', () => resolve('dead')))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const said = async () => JSON.parse((await lines.next()).value ?? 'null') as PairSaid | null
  const first = await said()
  if (first?.is !== 'serving') throw new Error(`expected it to serve, got ${JSON.stringify(first)}`)
  const { port, successor } = first
  const clients = await Promise.all([
    ...Array.from({ length: IDLE }, (_, at) => idleClient(port, `/idle-${at}`)),
    idleClient(port, '/slow'),
    ...Array.from({ length: WEBSOCKETS }, (_, at) => webSocketClient(port, `/ws-${at}`)),
    ...Array.from({ length: STREAMS }, (_, at) => streamClient(port, `/events-${at}`)),
  ])
  try {
    const busy = clients[IDLE]?.fate() // in a request when it begins
    await sleep(5)
    child.stdin.write('go\n')
    const next = said()
    const ended = await Promise.race([dead, next.then((one) => one?.is ?? 'dead')])
    if (ended === 'taken back') equal(await ask(port), '/fresh old')
    await busy
    const fates = await Promise.all(clients.map((client) => client.fate()))
    return { ended, fates }
  } finally {
    for (const client of clients) client.end()
    child.kill('SIGKILL')
    await dead
    kill(successor)
  }
}

/** Keep-alive, and has asked once. */
async function idleClient(port: number, path: string): Promise<Client> {
  const socket = connect(port, '127.0.0.1')
  let [text, isClosed] = ['', false]
  socket.setEncoding('latin1').on('data', (part: string) => (text += part))
  socket.on('error', () => {}).on('close', () => (isClosed = true))
  const asked = async () => {
    text = ''
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)
    const isAnswered = () => /\r\n\r\n.+ (old|new)$/.test(text)
    await until(path, () => isClosed || isAnswered())
    return isAnswered() ? servedBy(path, text.split('\r\n\r\n').slice(1)) : 'closed'
  }
  await asked()
  return { fate: asked, end: () => socket.destroy() }
}

async function webSocketClient(port: number, path: string): Promise<Client> {
  const ws = new WebSocket(`ws://127.0.0.1:${port}${path}`, { perMessageDeflate: false })
  const heard: string[] = []
  let isClosed = false
  ws.on('message', (data: Buffer) => heard.push(data.toString()))
  ws.on('error', () => {})
  ws.on('close', () => (isClosed = true))
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  return {
    fate: async () => {
      if (isClosed) return 'closed'
      ws.send('ask')
      await until(path, () => isClosed || heard.length > 0)
      await sleep(5) // a second answer would come now
      return heard.length === 0 ? 'closed' : servedBy(`${path} ask`, heard)
    },
    end: () => ws.terminate(),
  }
}

async function streamClient(port: number, path: string): Promise<Client> {
  let [text, isClosed] = ['', false]
  const asked = get({ port, path, agent: false })
  asked.on('error', () => (isClosed = true))
  await new Promise<void>((resolve, reject) => {
    asked.once('error', reject).once('response', (response) => {
      response.setEncoding('latin1').on('data', (part: string) => (text += part))
      response.on('error', () => {}).on('close', () => (isClosed = true))
      resolve()
    })
  })
  return {
    fate: async () => {
      text = ''
      await until(path, () => isClosed || text.split('\n\n').length > 4)
      if (isClosed) return 'closed'
      const events = text.split('\n\n').slice(1, -1)
      for (const event of events) servedBy(`data: ${path}`, [event])
      return servedBy(`data: ${path}`, events.slice(-1))
    },
    end: () => asked.destroy(),
  }
}

/** Of exactly one answer that is this client's own. */
function servedBy(own: string, answers: string[]): string {
  const [answer = ''] = answers
  const role = answer.slice(own.length + 1)
  if (answers.length !== 1 || !answer.startsWith(`${own} `) || !['old', 'new'].includes(role))
    throw new Error(`expected one answer to ${own}, got ${JSON.stringify(answers)}`)
  return role
}

function ask(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ port, path: '/fresh', agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      response.on('end', () => resolve(text))
    }).on('error', reject)
  })
}

async function until(what: string, holds: () => boolean): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`${what} hangs`)
    await sleep(1)
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    return // it has died on purpose
  }
}
