// Very many connections, nearly all of them idle, like a proxy's pool or a crowd of browsers. Each sends one request; some send
// more now and then. No connection is opened again. A connection that is closed, or gives no answer, is counted.

import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { answer } from './remote.ts'

export interface IdleOptions {
  host: string
  port: number
  clients: number
  /** requests a second over all connections, on one after the other; 0: none */
  perSecond: number
}

export interface IdleReport {
  clients: number
  /** connections that the service closed */
  closed: number
  answers: number
  /** requests without an answer: not within ANSWER_MS, or the connection closed first */
  lost: number
  /** longest wait, and how many answers each release gave; both since the last report */
  longestMs: number
  tags: Record<string, number>
}

export interface Idle {
  report(): IdleReport
  /** Sends one request on every connection, then resolves to `report()`. */
  askAll(): Promise<IdleReport>
}

const AT_ONCE = 200
const ANSWER_MS = 5000

export async function startIdle({ host, port, clients, perSecond }: IdleOptions): Promise<Idle> {
  const sockets: Socket[] = []
  const counts = { closed: 0, answers: 0, lost: 0, longestMs: 0 }
  let tags: Record<string, number> = {}
  const busy = new Set<Socket>()
  const ask = async (socket: Socket): Promise<void> => {
    if (busy.has(socket) || socket.destroyed) return
    busy.add(socket)
    const since = performance.now()
    const tag = await answerOn(socket)
    busy.delete(socket)
    counts.longestMs = Math.max(counts.longestMs, Math.round(performance.now() - since))
    if (tag === null) return void counts.lost++
    counts.answers++
    tags[tag] = (tags[tag] ?? 0) + 1
  }
  const askSome = async (some: readonly Socket[]) => {
    for (let from = 0; from < some.length; from += AT_ONCE) await Promise.all(some.slice(from, from + AT_ONCE).map(ask))
  }
  while (sockets.length < clients) {
    const some = Array.from({ length: Math.min(AT_ONCE, clients - sockets.length) }, () => opened(host, port))
    for (const socket of await Promise.all(some)) {
      socket.once('close', () => counts.closed++)
      sockets.push(socket)
    }
    await askSome(sockets.slice(-some.length))
  }
  let next = 0
  const everyMs = 10
  let due = 0
  if (perSecond > 0) {
    setInterval(() => {
      for (due += (perSecond * everyMs) / 1000; due >= 1; due--) {
        const socket = sockets[next++ % sockets.length]
        if (socket !== undefined) void ask(socket)
      }
    }, everyMs)
  }
  const report = () => {
    const said = { clients, ...counts, tags }
    tags = {}
    counts.longestMs = 0
    return said
  }
  return {
    report,
    askAll: async () => {
      while (busy.size > 0) await sleep(10)
      tags = {}
      await askSome(sockets)
      return report()
    },
  }
}

function opened(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true })
    socket.once('error', reject)
    socket.once('connect', () => {
      socket.off('error', reject).on('error', () => {})
      resolve(socket)
    })
  })
}

/** Resolves to the body of one answer; null if none came. */
function answerOn(socket: Socket): Promise<string | null> {
  return new Promise((resolve) => {
    let text = ''
    const done = (said: string | null) => {
      clearTimeout(late)
      socket.off('data', heard).off('close', closed)
      resolve(said)
    }
    const late = setTimeout(() => done(null), ANSWER_MS)
    const closed = () => done(null)
    const heard = (part: Buffer) => {
      text += part.toString('latin1')
      const [head = '', body] = text.split('\r\n\r\n')
      if (body !== undefined && body.length === Number(/content-length: (\d+)/i.exec(head)?.[1])) done(body)
    }
    socket.on('data', heard).once('close', closed)
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  })
}

answer(import.meta.url, startIdle)
