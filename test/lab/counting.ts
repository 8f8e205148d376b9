// Clients of `numbered-service.ts`. Each counts what it receives and sends on its own connection. At the end three counts must
// agree to the byte: the client's, the service's for this connection, and the kernel's. No client connects again by itself.

import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { IncomingMessage } from 'node:http'
import {
  EVENT_BYTES,
  FRAME_BYTES,
  type Ledger,
  MASKED_FRAME_BYTES,
  readEvent,
  readMessage,
  writeMessage,
} from './numbers.ts'
import { answer } from './remote.ts'
import { tcpBytesOf } from './tcp-info.ts'
import { WebSocket } from './ws.ts'

export interface CountingOptions {
  port: number
  host: string
  websockets: number
  streams: number
  /** pause between two messages of a WebSocket, each way, and between two events of a stream */
  everyMs: number
  eventEveryMs: number
}

export interface Counted {
  clients: number
  /** messages received, and messages sent */
  messages: number
  sent: number
  lost: number
  doubled: number
  reordered: number
  /** received messages that belong to another connection, or differ in a byte from what was written */
  foreign: number
  /** connections that the service closed */
  closed: number
  /** longest time between two messages */
  longestGapMs: number
}

export interface CountingReport {
  websockets: Counted
  streams: Counted
  /** for connections that are open at the end: how the service's ledger, the client's count or the kernel's differ, in words */
  differing: string[]
  /** over how many switches a connection was carried: the fewest and the most */
  hops: [number, number]
}

/** What happened to every connection in the second after a process was killed. */
export interface Aftermath {
  served: number
  closed: number
  /** connections with neither a message nor an end */
  hung: number
}

export interface Counting {
  report(): CountingReport
  /** Watches for a second what happens to the connections that are open now. */
  aftermath(): Promise<Aftermath>
  /** Opens a new connection for each that was closed, with another name. */
  renew(): Promise<void>
  /** Stops sending and compares all counts. The connections stay open until this process ends. */
  settle(): Promise<CountingReport>
}

interface Client {
  kind: 'websockets' | 'streams'
  name: number
  socket: Socket
  last: number
  lastAt: number
  sent: number
  counts: Omit<Counted, 'clients' | 'sent' | 'closed'>
  isClosed: boolean
  /** bytes that are not messages: received, the answer's head; sent, what the kernel had acknowledged before the first message */
  headBytes: number
  ackedBefore: number
  /** asks the service for its ledger */
  settle(): Promise<Ledger | null>
}

const AT_ONCE = 50
const SETTLE_MS = 10_000
const [AFTERMATH_MS, LATE_MS] = [1000, 500]
const DIFFERING_MAX = 20

export async function startCounting(options: CountingOptions): Promise<Counting> {
  const clients: Client[] = []
  let lastName = 0
  const open = async (count: number, one: (options: CountingOptions, name: number) => Promise<Client>) => {
    for (let from = 0; from < count; from += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, count - from) }, () => one(options, ++lastName))
      clients.push(...(await Promise.all(some)))
    }
  }
  await open(options.websockets, openWebSocket)
  await open(options.streams, openStream)
  const report = (differing: string[] = [], hops: number[] = []): CountingReport => ({
    websockets: countedOf(clients, 'websockets'),
    streams: countedOf(clients, 'streams'),
    differing,
    hops: [Math.min(...hops), Math.max(...hops)],
  })
  return {
    report,
    aftermath: () => aftermathOf(clients),
    renew: async () => {
      const closed = clients.filter(({ isClosed }) => isClosed)
      await open(closed.filter(({ kind }) => kind === 'websockets').length, openWebSocket)
      await open(closed.filter(({ kind }) => kind === 'streams').length, openStream)
      for (const one of closed) clients.splice(clients.indexOf(one), 1)
    },
    settle: async () => {
      const ledgers = await Promise.all(clients.map(async (one) => [one, await one.settle()] as const))
      const differing = ledgers.flatMap(([one, ledger]) => differencesOf(one, ledger)).slice(0, DIFFERING_MAX)
      return report(
        differing,
        ledgers.flatMap(([, ledger]) => (ledger === null ? [] : [ledger.hops])),
      )
    },
  }
}

async function aftermathOf(all: Client[]): Promise<Aftermath> {
  const open = all.filter(({ isClosed }) => !isClosed)
  await sleep(AFTERMATH_MS)
  const since = performance.now() - LATE_MS
  const closed = open.filter(({ isClosed }) => isClosed).length
  // bytes that the killed process sent before may still arrive in the first moments
  const served = open.filter(({ isClosed, lastAt }) => !isClosed && lastAt > since).length
  return { served, closed, hung: open.length - closed - served }
}

/** The differences between the counts of a connection that is still open, in words. */
function differencesOf(client: Client, ledger: Ledger | null): string[] {
  if (client.isClosed) return []
  const said: string[] = []
  const same = (what: string, expected: number, got: number) =>
    void (expected === got || said.push(`${client.kind} ${client.name}: ${what}: expected ${expected}, got ${got}`))
  const { received, waiting, acknowledged } = tcpBytesOf(client.socket)
  if (client.kind === 'streams') {
    same('bytes by the kernel', client.headBytes + client.last * EVENT_BYTES, received - waiting - unwhole(client))
    return said
  }
  if (ledger === null) return [`${client.kind} ${client.name}: the service did not tell its ledger`]
  const told = Buffer.byteLength(JSON.stringify(ledger))
  same('its name', client.name, ledger.name)
  same('messages sent by the service', ledger.sent, client.last)
  same('messages heard by the service', client.sent, ledger.heard)
  same('messages that the service found wrong', 0, ledger.wrong)
  same('bytes received, by the kernel', client.headBytes + ledger.sent * FRAME_BYTES + told + 2, received)
  same('bytes sent, by the kernel', ledger.heard * MASKED_FRAME_BYTES + 4 + 6, acknowledged - client.ackedBefore)
  return said
}

function countedOf(all: Client[], kind: Client['kind']): Counted {
  const clients = all.filter((client) => client.kind === kind)
  const sum = (of: (client: Client) => number) => clients.reduce((total, client) => total + of(client), 0)
  return {
    clients: clients.length,
    messages: sum(({ counts }) => counts.messages),
    sent: sum(({ sent }) => sent),
    lost: sum(({ counts }) => counts.lost),
    doubled: sum(({ counts }) => counts.doubled),
    reordered: sum(({ counts }) => counts.reordered),
    foreign: sum(({ counts }) => counts.foreign),
    closed: sum(({ isClosed }) => (isClosed ? 1 : 0)),
    longestGapMs: Math.round(Math.max(0, ...clients.map(({ counts }) => counts.longestGapMs))),
  }
}

function makeClient(kind: Client['kind'], name: number, socket: Socket): Client {
  const counts = { messages: 0, lost: 0, doubled: 0, reordered: 0, foreign: 0, longestGapMs: 0 }
  return {
    kind,
    name,
    socket,
    counts,
    last: 0,
    lastAt: performance.now(),
    sent: 0,
    isClosed: false,
    headBytes: 0,
    ackedBefore: 0,
    settle: () => Promise.resolve(null),
  }
}

function take(client: Client, got: { name: number; number: number } | null): void {
  const { counts, last } = client
  const now = performance.now()
  counts.messages++
  counts.longestGapMs = Math.max(counts.longestGapMs, now - client.lastAt)
  client.lastAt = now
  if (got === null || got.name !== client.name) return void counts.foreign++
  if (got.number === last) counts.doubled++
  else if (got.number < last) counts.reordered++
  else counts.lost += got.number - last - 1
  client.last = Math.max(last, got.number)
}

function openWebSocket({ host, port, everyMs }: CountingOptions, name: number): Promise<Client> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(`ws://${host}:${port}/numbered?name=${name}&everyMs=${everyMs}`, {
      perMessageDeflate: false,
    })
    let timer: NodeJS.Timeout | undefined
    let client: Client | null = null
    const told = Promise.withResolvers<Ledger | null>()
    ws.on('upgrade', (response: IncomingMessage) => {
      client = makeClient('websockets', name, response.socket)
      client.headBytes = headBytesOf(response)
    })
    ws.on('message', (data: Buffer, isBinary: boolean) => {
      if (client === null) return
      if (isBinary) take(client, readMessage(data))
      else told.resolve(JSON.parse(data.toString()) as Ledger)
    })
    ws.on('close', () => {
      clearInterval(timer)
      if (client !== null) client.isClosed = true
      told.resolve(null)
    })
    ws.on('error', reject)
    ws.on('open', () => {
      const own = client
      if (own === null) return
      own.ackedBefore = tcpBytesOf(own.socket).acknowledged
      timer = setInterval(() => ws.send(writeMessage({ name, number: ++own.sent, heard: own.last })), everyMs)
      own.settle = () => {
        clearInterval(timer)
        if (!own.isClosed) ws.send('tell')
        return Promise.race([told.promise, sleep(SETTLE_MS, null)])
      }
      resolve(own)
    })
  })
}

/** the received part of an event whose rest is still on its way */
const parts = new WeakMap<Client, string>()
const unwhole = (client: Client): number => parts.get(client)?.length ?? 0

function openStream({ host, port, eventEveryMs }: CountingOptions, name: number): Promise<Client> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true })
    const client = makeClient('streams', name, socket)
    let text = ''
    socket.setEncoding('latin1').on('data', (part: string) => {
      text += part
      if (client.headBytes === 0) {
        const end = text.indexOf('\r\n\r\n')
        if (end < 0) return
        if (!text.startsWith('HTTP/1.1 200 ')) return reject(new Error(`expected 200, got ${text.slice(0, end)}`))
        client.headBytes = end + 4
        text = text.slice(client.headBytes)
        resolve(client)
      }
      let from = 0
      for (; from + EVENT_BYTES <= text.length; from += EVENT_BYTES)
        take(client, readEvent(text.slice(from, from + EVENT_BYTES)))
      text = text.slice(from)
      parts.set(client, text)
    })
    socket.on('close', () => (client.isClosed = true))
    socket.on('error', reject)
    socket.write(`GET /events?name=${name}&everyMs=${eventEveryMs} HTTP/1.1\r\nHost: x\r\n\r\n`)
  })
}

function headBytesOf({ httpVersion, statusCode, statusMessage, rawHeaders }: IncomingMessage): number {
  const lines = [`HTTP/${httpVersion} ${statusCode} ${statusMessage}`]
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`)
  return Buffer.byteLength(`${lines.join('\r\n')}\r\n\r\n`)
}

answer(import.meta.url, startCounting)
