// Every private part of Node that the handover needs, in this one file, each checked before it is used. Verified on Node
// 26.10. Where one is missing the handover still works: connections drain instead of moving, and the log says what is missing.

import { Server as HttpServer } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { openLibc } from './ffi.ts'

interface ConnectionsList {
  /** parsers between two messages: nothing half-read */
  idle(): { socket?: Socket }[]
}

interface PrivateHandle {
  fd?: number
  readStop?(): number
  close?(): void
  writeQueueSize?: number
}

interface PrivateSocket {
  _handle?: PrivateHandle | null
  _httpMessage?: object | null
  _server?: PrivateServer | null
  server?: PrivateServer | null
  parser?: { unconsume?(): void } | null
}

interface PrivateServer {
  _handle?: PrivateHandle | null
  _connections?: number
}

interface Descriptors {
  duplicate(fd: number): number
  keepFromChildren(fd: number): void
}

let descriptors: Descriptors | null | undefined

/** `dup` and `fcntl` through node:ffi (26.1 and later, experimental), or null where there is none. */
function loadDescriptors(): Descriptors | null {
  if (descriptors !== undefined) return descriptors
  try {
    const { dup, fcntl } = openLibc({
      dup: { arguments: ['i32'], return: 'i32' },
      fcntl: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
    })
    if (dup === undefined || fcntl === undefined) throw new Error('no dup')
    // fcntl is variadic: only on Linux are such arguments passed like any other
    const [F_SETFD, FD_CLOEXEC, F_DUPFD_CLOEXEC] = [2, 1, 1030]
    const linux = process.platform === 'linux'
    descriptors = {
      duplicate: (fd) => Number(linux ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : dup(fd)),
      keepFromChildren: (fd) => void (linux && fcntl(fd, F_SETFD, FD_CLOEXEC)),
    }
  } catch {
    descriptors = null
  }
  return descriptors
}

/** A second descriptor of the same socket, or null where Node cannot make one. */
export function duplicate(fd: number): number | null {
  const copy = loadDescriptors()?.duplicate(fd) ?? -1
  return copy >= 0 ? copy : null
}

/** An inherited descriptor must not leak into every child that the service spawns: they would hold the port. */
export function keepFromChildren(fd: number): void {
  loadDescriptors()?.keepFromChildren(fd)
}

/** Names of what is missing on this Node for a full handover; empty on the versions we support. */
export function missingInternals(server: unknown): string[] {
  const missing: string[] = []
  if (loadDescriptors() === null) missing.push('node:ffi (no spare listener in the first process)')
  if (server instanceof HttpServer && connectionsOf(server) === null) missing.push('http.Server connections list')
  if (typeof (server as PrivateServer)._connections !== 'number') missing.push('net.Server connection count')
  return missing
}

/** Descriptor of a listening server, or null. */
export function listeningFd(server: NetServer): number | null {
  const fd = (server as unknown as PrivateServer)._handle?.fd
  return typeof fd === 'number' && fd >= 0 ? fd : null
}

/**
 * Stops accepting and nothing else. `http.Server.close()` would also destroy idle connections, and since Node 26.4 (PR
 * 63470) accepted ones that have not sent their first byte.
 */
export function closeListenerOnly(server: NetServer): void {
  NetServer.prototype.close.call(server)
}

/** Connections of `server` that can be moved right now: between two requests, nothing half-read, nothing left to write. */
export function idleConnections(server: HttpServer, all: Iterable<Socket>): Socket[] {
  const idle: Socket[] = []
  for (const { socket } of connectionsOf(server)?.idle() ?? []) {
    if (socket !== undefined && isQuiet(socket)) idle.push(socket)
  }
  const known = new Set(idle)
  // accepted (or adopted) and not one byte read: Node calls these active, to time out their headers
  for (const socket of all) {
    if (socket.bytesRead === 0 && !known.has(socket) && isQuiet(socket)) idle.push(socket)
  }
  return idle
}

/** Takes the socket out of its server, so that it can be sent. False, and nothing done, where Node lacks a part. */
export function detach(socket: Socket): boolean {
  const inner = socket as unknown as PrivateSocket
  const { parser, _handle: handle } = inner
  if (typeof parser?.unconsume !== 'function' || typeof handle?.readStop !== 'function') return false
  parser.unconsume()
  handle.readStop()
  // Its timer belongs to the server that it leaves: where it waits for its turn to be sent, that would fire without a server.
  socket.setTimeout(0)
  // Without these two lines Node keeps a register of sent sockets in the server and asks the successor about it.
  const server = inner.server
  if (typeof server?._connections === 'number') server._connections--
  inner.server = null
  inner._server = null
  return true
}

/**
 * How to close a socket that is being sent: Node has taken its handle out of it, and forgets the handle where the receiver
 * dies before it has acknowledged it. To be asked for before it is sent.
 */
export function closerOf(socket: Socket): () => void {
  const handle = (socket as unknown as PrivateSocket)._handle
  return () => {
    socket.destroy()
    handle?.close?.()
  }
}

/** Gives a received socket to `server` as if it had accepted it. Must run in the tick in which the socket arrived. */
export function adopt(server: NetServer, socket: Socket): void {
  const inner = socket as unknown as PrivateSocket
  const own = server as unknown as PrivateServer
  if (typeof own._connections === 'number') own._connections++
  inner.server = own
  inner._server = own
  server.emit('connection', socket)
}

function isQuiet(socket: Socket): boolean {
  const inner = socket as unknown as PrivateSocket
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    (inner._httpMessage ?? null) === null &&
    socket.writableLength === 0 &&
    (inner._handle?.writeQueueSize ?? 1) === 0 &&
    typeof inner.parser?.unconsume === 'function'
  )
}

function connectionsOf(server: HttpServer): ConnectionsList | null {
  for (const symbol of Object.getOwnPropertySymbols(server)) {
    if (symbol.description !== 'http.server.connections') continue
    const list = (server as unknown as Record<symbol, unknown>)[symbol]
    return typeof (list as ConnectionsList | null)?.idle === 'function' ? (list as ConnectionsList) : null
  }
  return null
}
