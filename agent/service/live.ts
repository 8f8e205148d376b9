// The live tail of the logs for clients: a WebSocket at /api/logs/live, which also takes new rows, and server-sent events at
// /api/logs/events. A switch carries both to the successor: their only state is the position in the log.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { WebSocket, WebSocketServer } from 'ws'
import { BatonError, reasonOf } from '../words.ts'
import type { Agent } from '../index.ts'
import type { LogRow, Store } from './store.ts'
import { FOLLOWERS_MAX, type Place, type Tail } from './tail.ts'

export const LIVE_PATH = '/api/logs/live'
const MESSAGE_MAX_BYTES = 8192
/** how far a slow reader may be behind; one that is further behind is closed and has to reconnect */
const WAITING_MAX_BYTES = 1024 * 1024
const [TRY_AGAIN_LATER, UNSUPPORTED] = [1013, 1003]

export interface Live {
  /** Answers an upgrade; refuses any path but `LIVE_PATH`. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /** Streams rows as server-sent events, from `?after=`, else from Last-Event-ID, else from now on. */
  events(request: IncomingMessage, response: ServerResponse, after: number | null): void
}

export function createLive(store: Store, tail: Tail, carrying: () => Pick<Agent, 'carry' | 'carried'>): Live {
  let loading: Promise<WebSocketServer> | null = null
  const { begin, isFull } = makeFollowers(tail, carrying)

  /** Stores a follower's message as a new row. `message` null: it was not text. */
  const hear = (ws: WebSocket, message: string | null) => {
    if (message === null) return ws.close(UNSUPPORTED, 'expected text')
    store.addLog('info', message).then(tail.stored, (cause: unknown) => {
      ws.send(JSON.stringify({ error: reasonOf(cause) }))
    })
  }

  const upgrade = (wss: WebSocketServer, request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const [path, search] = (request.url ?? '').split(/\?(.*)/s)
    if (path !== LIVE_PATH) return refuse(socket, '404 Not Found')
    if (isFull()) return refuse(socket, '503 Service Unavailable')
    wss.handleUpgrade(request, socket, head, (ws: WebSocket) => {
      const { place, leave } = begin(request, numberIn(new URLSearchParams(search).get('after')), (rows) => {
        if (ws.bufferedAmount > WAITING_MAX_BYTES) return ws.close(TRY_AGAIN_LATER, 'too slow')
        for (const row of rows) ws.send(JSON.stringify(row))
      })
      carrying().carry(request, { ws, state: () => (leave(), place) })
      ws.on('close', leave)
      ws.on('error', leave)
      ws.on('message', (data: Buffer, isBinary: boolean) => hear(ws, isBinary ? null : data.toString()))
    })
  }

  return {
    upgrade: (request, socket, head) => {
      socket.on('error', () => {}) // a client may hang up before `ws` is there
      loading ??= loadServer()
      loading.then(
        (wss) => upgrade(wss, request, socket, head),
        () => socket.destroy(),
      )
    },
    events: (request, response, after) => {
      if (isFull()) throw new BatonError('service_down', `${FOLLOWERS_MAX} followers are already connected`)
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
      if (request.method === 'HEAD') return void response.end()
      response.flushHeaders()
      const since = after ?? numberIn(request.headers['last-event-id'])
      const { place, leave } = begin(request, since, (rows) => {
        if (response.writableLength > WAITING_MAX_BYTES) return response.destroy()
        response.write(rows.map((row) => `id: ${row.id}\ndata: ${JSON.stringify(row)}\n\n`).join(''))
      })
      carrying().carry(request, { response, state: () => (leave(), place) })
      response.on('close', leave)
    },
  }
}

function makeFollowers(tail: Tail, carrying: () => Pick<Agent, 'carried'>) {
  let followers = 0

  /** Adds a follower. A connection that came from the predecessor continues at the position that came with it. */
  const begin = (request: IncomingMessage, after: number | null, push: (rows: LogRow[]) => void) => {
    const place = (carrying().carried(request) as Place | undefined) ?? { after: after ?? tail.newest() }
    const unfollow = tail.follow(place, push)
    followers++
    let isOver = false
    const leave = () => {
      if (isOver) return
      isOver = true
      followers--
      unfollow()
    }
    return { place, leave }
  }
  return { begin, isFull: () => followers >= FOLLOWERS_MAX }
}

/** `ws`, with node:zlib and node:crypto, is more to load than the rest of the service: the first WebSocket loads it. */
async function loadServer(): Promise<WebSocketServer> {
  const { WebSocketServer: Server } = await import('ws')
  return new Server({ noServer: true, clientTracking: false, maxPayload: MESSAGE_MAX_BYTES })
}

function refuse(socket: Duplex, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)
}

function numberIn(text: string | string[] | null | undefined): number | null {
  return typeof text === 'string' && /^[0-9]{1,15}$/.test(text) ? Number(text) : null
}
