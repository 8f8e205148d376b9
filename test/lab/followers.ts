// Clients that follow numbered messages over a WebSocket or a stream of events, and count what a switch does to them.
// Must never break: a number that is missing, comes twice or comes late is counted, and so is a connection that the server
// ended. No client connects again.

import { get, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from './ws.ts'

export interface FollowersOptions {
  port: number
  host?: string
  websockets: number
  streams: number
  /** pause between two numbered messages of a WebSocket; each message must come back to it once */
  everyMs: number
  /** default: the live tail of the reference service's logs */
  paths?: { websocket: string; stream: string }
}

export interface Followed {
  clients: number
  messages: number
  lost: number
  doubled: number
  reordered: number
  closed: number
}

export interface FollowersReport {
  websockets: Followed
  streams: Followed
}

export interface Followers {
  report(): FollowersReport
  /** Stops sending, waits (not forever) until every sent message has come back, and closes. */
  stop(): Promise<FollowersReport>
}

interface Row {
  id: number
  message: string
}

interface Client {
  kind: 'websockets' | 'streams'
  first: number
  last: number
  seen: Set<number>
  doubled: number
  reordered: number
  isClosed: boolean
  sent: number
  /** own messages that came back */
  back: Set<number>
  backTwice: number
  send: ((text: string) => void) | null
  end(): void
}

const PATHS = { websocket: '/api/logs/live?after=0', stream: '/api/logs/events?after=0' }
const SETTLE_MS = 10_000
const AT_ONCE = 50

export async function startFollowers(options: FollowersOptions): Promise<Followers> {
  const { port, host = '127.0.0.1', websockets, streams, everyMs, paths = PATHS } = options
  const run = `${process.pid}-${Date.now()}`
  const clients: Client[] = []
  let isStopping = false
  const open = async (count: number, one: (name: string) => Promise<Client>) => {
    for (let from = 0; from < count; from += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, at) => one(`${run}-${from + at}`))
      clients.push(...(await Promise.all(some)))
    }
  }
  await open(websockets, (name) => openWebSocket(`ws://${host}:${port}${paths.websocket}`, name))
  await open(streams, () => openStream(`http://${host}:${port}${paths.stream}`))
  const timers = clients.map((client, at) => {
    let timer: NodeJS.Timeout | undefined
    const start = setTimeout(
      () =>
        (timer = setInterval(() => !isStopping && !client.isClosed && client.send?.(String(client.sent++)), everyMs)),
      (at / clients.length) * everyMs,
    )
    return () => {
      clearTimeout(start)
      clearInterval(timer)
    }
  })
  const report = (): FollowersReport => ({
    websockets: followed(clients, 'websockets'),
    streams: followed(clients, 'streams'),
  })
  return {
    report,
    stop: async () => {
      isStopping = true
      for (const end of timers) end()
      const newest = () => Math.max(0, ...clients.map(({ last }) => last))
      const isSettled = () =>
        clients.every((one) => one.isClosed || (one.back.size === one.sent && one.last === newest()))
      for (const over = Date.now() + SETTLE_MS; !isSettled() && Date.now() < over;) await sleep(20)
      const final = report()
      for (const client of clients) client.end()
      return final
    },
  }
}

function followed(all: Client[], kind: Client['kind']): Followed {
  const clients = all.filter((client) => client.kind === kind)
  const sum = (of: (client: Client) => number) => clients.reduce((total, client) => total + of(client), 0)
  const newest = Math.max(0, ...all.map(({ last }) => last))
  return {
    clients: clients.length,
    messages: sum(({ seen }) => seen.size),
    // rows that were never seen, up to the newest that anybody saw, and own messages that never came back
    lost: sum((one) =>
      one.isClosed ? 0 : Math.max(0, newest - one.first + 1 - one.seen.size) + Math.max(0, one.sent - one.back.size),
    ),
    doubled: sum(({ doubled, backTwice }) => doubled + backTwice),
    reordered: sum(({ reordered }) => reordered),
    closed: sum(({ isClosed }) => (isClosed ? 1 : 0)),
  }
}

function makeClient(kind: Client['kind'], end: () => void): Client {
  const none = { first: 0, last: 0, doubled: 0, reordered: 0, isClosed: false, sent: 0, backTwice: 0 }
  return { kind, ...none, seen: new Set(), back: new Set(), send: null, end }
}

function take(client: Client, row: Row, name: string): void {
  if (client.seen.has(row.id)) client.doubled++
  else if (row.id < client.last) client.reordered++
  if (client.seen.size === 0) client.first = row.id
  client.seen.add(row.id)
  client.last = Math.max(client.last, row.id)
  const [from, number] = row.message.split(' ')
  if (from !== name) return
  if (client.back.has(Number(number))) client.backTwice++
  client.back.add(Number(number))
}

function openWebSocket(url: string, name: string): Promise<Client> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(url, { perMessageDeflate: false })
    let isOurs = false
    const client = makeClient('websockets', () => {
      isOurs = true
      ws.close()
    })
    client.send = (text) => ws.send(`${name} ${text}`)
    ws.on('message', (data: Buffer) => take(client, JSON.parse(data.toString()) as Row, name))
    ws.on('close', () => (client.isClosed ||= !isOurs))
    ws.on('error', reject)
    ws.on('open', () => resolve(client))
  })
}

function openStream(url: string): Promise<Client> {
  return new Promise((resolve, reject) => {
    const asked = get(url, { agent: false }, (response: IncomingMessage) => {
      let isOurs = false
      const client = makeClient('streams', () => {
        isOurs = true
        response.destroy()
      })
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part
        for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
          const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1]
          if (data !== undefined) take(client, JSON.parse(data) as Row, '')
        }
      })
      response.on('close', () => (client.isClosed ||= !isOurs))
      response.on('error', () => {}) // `close` follows
      resolve(client)
    })
    asked.on('error', reject)
  })
}
