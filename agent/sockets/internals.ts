// Every private part of Node that serving needs, each checked before use; those that only a switch or a stop needs are in
// internals-moving.ts, and internals-udp.ts for UDP. Verified on Node 26.10. If one is missing there are no managed updates: a second,
// lesser handover would have to be proved too.

import { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import { Server as NetServer, Socket } from 'node:net'
import { hasLibc } from './libc.ts'

interface ConnectionsList {
  /** parsers between two messages, with nothing half-read */
  idle(): { socket?: Socket }[]
}

interface PrivateHandle {
  fd?: number
  readStart?(): number
  readStop?(): number
  close?(): void
  writeQueueSize?: number
}

export interface PrivateSocket {
  _handle?: PrivateHandle | null
  _httpMessage?: object | null
  _server?: PrivateServer | null
  server?: PrivateServer | null
  parser?: PrivateParser | null
}

export interface PrivateParser {
  incoming?: unknown
  unconsume?(): void
  execute?(bytes: Buffer): unknown
  /** its callbacks, by the numbers that its class defines */
  [callback: number]: unknown
}

export interface PrivateResponse {
  _header?: string | null
  _headerSent?: boolean
  _trailer?: string
  _send?(data: unknown, coding: unknown, written?: unknown): boolean
}

export interface PrivateServer {
  _handle?: PrivateHandle | null
  _connections?: number
}

/** Names of the parts that this Node lacks for a handover; empty on the supported versions. */
export function missingParts(): string[] {
  const missing: string[] = []
  if (!hasLibc()) missing.push('node:ffi')
  const server = new HttpServer()
  server.emit('listening') // the server makes its list at this event
  if (connectionsOf(server) === null) missing.push('http.Server connections list')
  server.close()
  if (typeof (server as PrivateServer)._connections !== 'number') missing.push('net.Server connection count')
  const response = new ServerResponse(new IncomingMessage(new Socket()))
  response.writeHead(200)
  const { _header: head, _headerSent: isSent, _send: send } = response as PrivateResponse
  if (typeof head !== 'string' || isSent !== false || typeof send !== 'function')
    missing.push('http.ServerResponse head')
  return missing
}

/**
 * Stops accepting, and nothing else. `http.Server.close()` would also destroy idle connections and, since Node 26.4 (PR 63470),
 * accepted ones that have not sent their first byte.
 */
export function closeListenerOnly(server: NetServer): void {
  NetServer.prototype.close.call(server)
}

/** Whether the kernel has everything that was written, and the connection is open in both directions. */
export function isWritten(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.writableLength === 0 &&
    ((socket as unknown as PrivateSocket)._handle?.writeQueueSize ?? 1) === 0
  )
}

/**
 * From now on an idle connection whose time is over is closed when the loop has read once more. Node ends these times before it reads: if the
 * loop was busy, as in a switch, a client that has asked in time would be reset.
 */
export function readBeforeClosing(server: HttpServer): void {
  server.on('timeout', (socket: Socket) => {
    if (server.listenerCount('timeout') > 1 || isTimeoutHeard(socket)) return // the author decides
    if (!isQuiet(socket)) return void socket.destroy() // as Node does
    const { bytesRead } = socket
    setImmediate(() => {
      if (socket.bytesRead === bytesRead) socket.destroy()
    })
  })
}

/** Whether the author hears of the timeout of this connection, on the request or the response. */
function isTimeoutHeard(socket: Socket): boolean {
  const { incoming } = ((socket as unknown as PrivateSocket).parser ?? {}) as { incoming?: IncomingMessage | null }
  const request = incoming?.complete === false ? incoming : null
  return [request, responseOf(socket)].some((one) => (one?.listenerCount('timeout') ?? 0) > 0)
}

/** The response that is being written on this connection; null between two requests and on an upgraded connection. */
export function responseOf(socket: Socket): ServerResponse | null {
  return ((socket as unknown as PrivateSocket)._httpMessage ?? null) as ServerResponse | null
}

/** The TCP connection under a TLS one. */
export function belowTls(socket: Socket): Socket | null {
  return (socket as unknown as { _parent?: Socket | null })._parent ?? null
}

/** Whether a connection is between two requests with nothing left to write. The parser may still have half a request. */
export function isQuiet(socket: Socket): boolean {
  const inner = socket as unknown as PrivateSocket
  return isWritten(socket) && (inner._httpMessage ?? null) === null && typeof inner.parser?.unconsume === 'function'
}

export function connectionsOf(server: HttpServer): ConnectionsList | null {
  for (const symbol of Object.getOwnPropertySymbols(server)) {
    if (symbol.description !== 'http.server.connections') continue
    const list = (server as unknown as Record<symbol, unknown>)[symbol]
    return typeof (list as ConnectionsList | null)?.idle === 'function' ? (list as ConnectionsList) : null
  }
  return null
}
