// Every private part of Node that moving or ending a connection needs, beside those of internals.ts. What only serves on a TCP port needs
// none of it.

import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import type { Server as NetServer, Socket } from 'node:net'
import {
  connectionsOf,
  isQuiet,
  type PrivateParser,
  type PrivateResponse,
  type PrivateServer,
  type PrivateSocket,
} from './internals.ts'

/** A TLS server: what its sessions are bound to is not in Node's types, and cannot be changed once the server is made. */
export interface SessionBound extends NetServer {
  sessionIdContext?: string
  _sharedCreds?: { context?: { setSessionIdContext?: (context: string) => void } }
}

export function setSessionContext(server: SessionBound, context: string): void {
  server._sharedCreds?.context?.setSessionIdContext?.(context)
  server.sessionIdContext = context // for the next process, and if its author renews the certificate
}

/** Connections of `server` that can move right now: between two requests, nothing half-read, nothing left to write. */
export function idleConnections(server: HttpServer, all: Iterable<Socket>): Socket[] {
  const idle: Socket[] = []
  for (const { socket } of connectionsOf(server)?.idle() ?? []) {
    if (socket !== undefined && isQuiet(socket)) idle.push(socket)
  }
  const known = new Set(idle)
  // Accepted (or adopted), with not one byte read: Node counts these as active, to time out their headers.
  for (const socket of all) {
    if (socket.bytesRead === 0 && !known.has(socket) && isQuiet(socket)) idle.push(socket)
  }
  return idle
}

/** Descriptor of a connected socket, or null. */
export function descriptorOf(socket: Socket): number | null {
  const fd = (socket as unknown as PrivateSocket)._handle?.fd
  return typeof fd === 'number' && fd >= 0 ? fd : null
}

/** Whether another request has begun behind `request` on the same connection. */
export function isHalfRead(socket: Socket, request: IncomingMessage): boolean {
  return (socket as unknown as PrivateSocket).parser?.incoming !== request
}

/** Reads again after `stopReading`. */
export function readOn(socket: Socket): void {
  ;(socket as unknown as PrivateSocket)._handle?.readStart?.()
}

/**
 * Closes this process's descriptor of a connection that another process has now. No code in this process sees an end of the
 * connection, and no end reaches the client.
 */
export function letGoOf(socket: Socket, response: ServerResponse | null = null): void {
  stopReading(socket)
  response?.detachSocket(socket)
  socket.setTimeout(0)
  clearTimeout(adopted.get(socket)?.timer)
  for (const event of ['data', 'end', 'close', 'error', 'drain', 'timeout']) socket.removeAllListeners(event)
  socket.on('error', () => {})
  socket.destroy()
}

interface Adopted {
  /** in `performance.now()`; 0 for never */
  until: number
  timer: NodeJS.Timeout | undefined
}

/** Connections adopted between two requests: when to close each if it stays silent. */
const adopted = new WeakMap<Socket, Adopted>()

/**
 * Stops reading in this tick: what arrives from now on is for another process. Call it at once on a socket made from a descriptor:
 * Node begins to read it right away.
 */
export function stopReading(socket: Socket): void {
  const { parser, _handle: handle } = socket as unknown as PrivateSocket
  parser?.unconsume?.()
  handle?.readStop?.()
}

/**
 * Gives a received socket to `server` as if the server had accepted it. Call it in the tick in which the socket arrived. `idleMs`:
 * what is left of its idle time; 0: no limit; null: it has sent nothing yet, or it is replayed. Node takes it for a new connection
 * and would answer 408 if no headers came. So with an `idleMs` the parser is put between two requests, and a timer here closes it.
 */
export function adopt(server: NetServer, socket: Socket, idleMs: number | null): void {
  const inner = socket as unknown as PrivateSocket
  const own = server as unknown as PrivateServer
  if (typeof own._connections === 'number') own._connections++
  inner.server = own
  inner._server = own
  server.emit('connection', socket)
  if (idleMs === null) return
  if (inner.parser) bringBetweenRequests(inner.parser)
  const close = () => {
    if (socket.bytesRead === 0) socket.destroy()
  }
  // The time may be over as soon as the process has taken many connections, or has started: an immediate runs after the loop has read.
  const timer = idleMs === 0 ? undefined : setTimeout(() => setImmediate(close), idleMs).unref()
  adopted.set(socket, { until: idleMs === 0 ? 0 : performance.now() + idleMs, timer })
  socket.once('close', () => clearTimeout(timer))
}

const ANY_REQUEST = Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n')

/**
 * Brings a new parser into the state between two requests: feeds it one request, with its callbacks off. Does nothing if Node lacks
 * a part; the connection then has the timeouts of a new one.
 */
function bringBetweenRequests(parser: PrivateParser): void {
  const { kOnHeadersComplete, kOnMessageComplete } = parser.constructor as unknown as Record<string, unknown>
  if (typeof parser.execute !== 'function') return
  if (typeof kOnHeadersComplete !== 'number' || typeof kOnMessageComplete !== 'number') return
  const [headers, message] = [parser[kOnHeadersComplete], parser[kOnMessageComplete]]
  try {
    parser[kOnHeadersComplete] = parser[kOnMessageComplete] = () => 0
    parser.execute(ANY_REQUEST)
  } finally {
    parser[kOnHeadersComplete] = headers
    parser[kOnMessageComplete] = message
  }
}

/** Milliseconds left of the idle time of a connection between two requests; 0: no limit; null: it has never sent a byte. */
export function idleTimeLeft(socket: Socket): number | null {
  if (socket.bytesRead === 0) {
    const until = adopted.get(socket)?.until
    return until === undefined || until === 0 ? (until ?? null) : Math.max(1, Math.round(until - performance.now()))
  }
  const whole = socket.timeout ?? 0
  if (whole === 0) return 0
  timeoutOf ??= Object.getOwnPropertySymbols(socket).find(({ description }) => description === 'timeout')
  const own = timeoutOf === undefined ? null : (socket as unknown as Record<symbol, unknown>)[timeoutOf]
  const [now, since] = [timersNow(), startOf(own)]
  return now === null || since === null ? whole : Math.max(1, Math.round(whole - (now - since)))
}

/** the property in which a socket keeps its timer */
let timeoutOf: symbol | undefined
let clock: { now: number | null } | null = null

/** The present time on the clock of all timers. Read once in a tick: there may be ten thousand connections to look at. */
function timersNow(): number | null {
  if (clock === null) {
    const probe = setTimeout(() => {}, 1)
    clearTimeout(probe)
    clock = { now: startOf(probe) }
    setImmediate(() => (clock = null))
  }
  return clock.now
}

/** When a timer was started, on the clock of all timers. */
function startOf(timer: unknown): number | null {
  return (timer as { _idleStart?: number } | null)?._idleStart ?? null
}

/** Whether the connection was upgraded, for instance to a WebSocket: Node reads no more requests from it. */
export function isUpgraded(socket: Socket): boolean {
  return !socket.destroyed && ((socket as unknown as PrivateSocket).parser ?? null) === null
}

/** The head of a response as its client sees it; null until it is fixed. */
export function responseHead(response: ServerResponse): string | null {
  return (response as PrivateResponse)._header ?? null
}

/** Whether the author has given trailers, announced or not. */
export function hasTrailers(response: ServerResponse): boolean {
  return ((response as PrivateResponse)._trailer ?? '') !== ''
}

/** Whether the head is on its way to the client. A fixed head waits for the first byte of the body. */
export function isHeadSent(response: ServerResponse): boolean {
  return (response as PrivateResponse)._headerSent === true
}

/** Resets a connection, so that its client does not take a part of the answer for the whole. Only TCP has a reset. */
export function breakOff(socket: Socket): void {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}

/**
 * Diverts the body of a response without a connection: calls `wrote` and `ended` with what reaches Node's own `write` and `end`.
 */
export function divertBody(
  response: ServerResponse,
  wrote: (data: unknown, coding: unknown) => void,
  ended: () => void,
): void {
  response.chunkedEncoding = false // otherwise Node would put chunk headers in between
  ;(response as PrivateResponse)._send = (data, coding, written) => {
    wrote(data, coding)
    if (typeof written === 'function') process.nextTick(written)
    return true
  }
  response.removeAllListeners('finish') // Node's own listener would look for the connection
  response.once('finish', ended)
}

/** Bytes that the client has sent, plus those that the kernel has taken for the client. */
export function bytesMoved(socket: Socket): number {
  const queued = (socket as unknown as PrivateSocket)._handle?.writeQueueSize ?? 0
  return socket.bytesRead + socket.bytesWritten - socket.writableLength - queued
}

/** The open streams of an HTTP/2 session; none if Node keeps them elsewhere. */
export function streamsOf(session: object): ServerHttp2Stream[] {
  const own = Object.getOwnPropertySymbols(session).find(({ description }) => description === 'state')
  const { streams } = (own === undefined ? {} : (session as Record<symbol, { streams?: unknown }>)[own]) ?? {}
  return streams instanceof Map ? [...(streams as Map<number, ServerHttp2Stream>).values()] : []
}
