// Listening sockets: the first process of a service binds them once, and every later one inherits them. The socket stays the same
// for ever, so its accept queue is never dropped. Besides the descriptor that a process accepts on, it keeps a *spare* of the
// same socket and never polls it: the next successor inherits the spare, and after a revert this process listens on it again.

import { closeSync } from 'node:fs'
import { type IncomingMessage, Server as HttpServer } from 'node:http'
import net, { type AddressInfo, isIP, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'
import { duplicate } from './libc.ts'
import { belowTls, closeListenerOnly, readBeforeClosing } from './internals.ts'
import { listens } from './asking.ts'

export interface ListenerSpec {
  /** `node:http`, `node:https`, `node:http2` or `node:net` server that is not listening yet */
  server: Server
  /** TCP: address or name to bind, default 127.0.0.1 */
  host?: string
  /** TCP: 0 for any */
  port?: number
  /** unix socket instead of TCP; see `socketPathFault` for how long it may be */
  path?: string
  /** permissions of the unix socket, default 0660 */
  mode?: number
  /** name or number of the unix socket's group, which this process is in; default: the process's own */
  group?: string | number
  /** length of the accept queue, default 4096 (the kernel caps it at net.core.somaxconn) */
  backlog?: number
}

export interface Listener {
  /** the address in the spec, such as `127.0.0.1:8080`: a successor recognises its inheritance by it */
  key: string
  server: Server
  /** false: a unix socket */
  isTcp: boolean
  backlog: number
  /** the address that it really listens on, for people */
  address: string
  /** descriptor of the same socket that no process polls; null before the socket is bound, and if Node could not make one */
  spare: number | null
  /** whether another process was listening on the port already: the kernel then divides the connections between the two */
  isShared: boolean
  /** whether it was bound in place of a socket that was held or inherited: the manager may have that one */
  isAnew: boolean
  /** whether its author has closed the server: it may listen again, as another listener */
  isClosed: boolean
  /** whether connections can be given to a successor: plain HTTP/1.1 only */
  movable: boolean
  /** whether it speaks HTTP/1.1 or HTTP/2; only its author knows how to end the connections of any other server */
  isHttp: boolean
  /** every open connection; over TLS, the secure socket as soon as there is one */
  sockets: Set<Socket>
  /** when the last request on a connection began, in `uptimeMs()`; before the first, when it was accepted */
  busySince: WeakMap<Socket, number>
  /** every open HTTP/2 session, to send GOAWAY to */
  sessions: Set<Session>
}

/** A bound socket that somebody has kept for a listener. */
export interface Held {
  /** descriptor to accept on */
  accept: number
  /** becomes the listener's spare; null: it must have none, since whatever closes or shuts a spare acts on the keeper's socket too */
  spare: number | null
}

/** The part of an HTTP/2 session that matters here. */
export interface Session {
  /** it may be so for as long as the client keeps the socket open: only then comes `close` */
  readonly destroyed: boolean
  goaway(code: number, lastStreamId: number): void
  close(): void
}

const BACKLOG = 4096
const LOOPBACK = 'localhost:'

/** An older Node serves too, but hands nothing over, and the install counts as unmanaged. */
const canHandOver = 'BoundSocket' in net

export function keyOf(spec: ListenerSpec): string {
  return spec.path === undefined ? `${spec.host ?? '127.0.0.1'}:${spec.port ?? 0}` : spec.path
}

/** Whether two keys mean one TCP address: the loopback has a name, which an author may write in its place. */
export function isSameAddress(one: string, other: string): boolean {
  if (one === other) return true
  const [name, address] = one.startsWith(LOOPBACK) ? [one, other] : [other, one]
  const port = name.slice(LOOPBACK.length)
  return name.startsWith(LOOPBACK) && [`127.0.0.1:${port}`, `::1:${port}`].includes(address)
}

/**
 * Whether the server speaks HTTP/1.1 or HTTP/2, by a method that only those of `node:https` and `node:http2` have, since an author may
 * listen before he says who answers. Only the author knows how to end the connections of any other server.
 */
export function speaksHttp(server: Server): boolean {
  const isHttp = server instanceof HttpServer || 'closeIdleConnections' in server || 'updateSettings' in server
  return isHttp || server.listenerCount('request') > 0 || server.listenerCount('stream') > 0
}

/**
 * Prepares the bookkeeping of a listener. Binds nothing yet. `closed`: as of `whenClosed`.
 */
export function makeListener(spec: ListenerSpec, closed: (listener: Listener) => void = () => {}): Listener {
  const { server } = spec
  if (listens(server)) throw new BatonError('invalid_settings', `the server for ${keyOf(spec)} is already listening`)
  const fault = spec.path === undefined ? null : socketPathFault(spec.path)
  if (fault !== null) throw new BatonError('invalid_settings', fault)
  const listener: Listener = {
    key: keyOf(spec),
    server,
    isTcp: spec.path === undefined,
    backlog: spec.backlog ?? BACKLOG,
    address: keyOf(spec),
    spare: null,
    isShared: false,
    isAnew: false,
    isClosed: false,
    movable: server instanceof HttpServer,
    isHttp: speaksHttp(server),
    sockets: new Set(),
    busySince: new WeakMap(),
    sessions: new Set(),
  }
  whenClosed(server, () => {
    listener.isClosed = true
    closed(listener)
  })
  const open = (socket: Socket) => {
    listener.sockets.add(socket)
    listener.busySince.set(socket, uptimeMs())
    socket.once('close', () => listener.sockets.delete(socket))
  }
  if (server instanceof HttpServer) readBeforeClosing(server)
  server.on('connection', open)
  server.on('secureConnection', (socket: Socket) => {
    open(socket)
    const below = belowTls(socket)
    if (below !== null) listener.sockets.delete(below)
  })
  // not on a server of another protocol: it would seem to speak HTTP
  if (listener.isHttp) server.on('request', ({ socket }: IncomingMessage) => listener.busySince.set(socket, uptimeMs()))
  server.on('session', (session: Session & { once(event: 'close', heard: () => void): void }) => {
    listener.sessions.add(session)
    session.once('close', () => listener.sessions.delete(session))
  })
  return listener
}

/** Calls `closed` once, when the author closes the server while it listens, or seems to. Baton calls `net.Server`'s `close` directly. */
export function whenClosed(server: Server, closed: () => void): void {
  const close = server.close.bind(server)
  let isOpen = true
  server.close = (...given) => {
    if (isOpen && server.listening) {
      isOpen = false
      closed()
    }
    return close(...given)
  }
}

/**
 * Listens on the socket that was held for it, or binds one; `mayShare`: even if another process listens there. A unix socket that has
 * lost its name for good is bound anew.
 */
export async function bind(
  listener: Listener,
  spec: ListenerSpec,
  held: Held | null = null,
  mayShare = false,
): Promise<void> {
  try {
    if (held !== null && (await isNamed(listener, held.accept))) return await listen(listener, held)
    if (spec.path === undefined) await bindPort(listener, spec, mayShare)
    else await bindPath(listener, spec.path, spec)
    if (held !== null) await leaveForNew(listener, held)
  } catch (cause) {
    throw new BatonError('unexpected', `cannot listen on ${listener.key}: ${reasonOf(cause)}`, { cause })
  }
}

/** A clock for each request. The first call of `performance.now()` loads ten modules of Node; this one loads none. */
export function uptimeMs(): number {
  return process.uptime() * 1000
}

export function stopAccepting(listener: Listener): void {
  if (listener.server.listening) closeListenerOnly(listener.server)
}

/**
 * Stops for good. Closes the spare too: while it is open, connections would go on queueing, and no process would ever take them.
 */
export function closeListener(listener: Listener): void {
  stopAccepting(listener)
  if (listener.spare !== null) closeSync(listener.spare)
  listener.spare = null
}

async function bindPort(listener: Listener, spec: ListenerSpec, mayShare: boolean): Promise<void> {
  const address = await addressToBind(spec)
  if (!canHandOver) {
    await listening(listener, [spec.port ?? 0, address])
    listener.address = addressOf(listener)
    return
  }
  // SO_REUSEPORT, so that a process started from outside can share the port; a successor inherits it. The kernel decides which of
  // the two processes gets a connection, so never share a port unnoticed.
  listener.isShared = isTaken(address, spec.port ?? 0)
  if (listener.isShared && !mayShare) throw (await import('./denied.ts')).taken()
  const bound = await boundTo(address, spec.port ?? 0)
  listener.spare = duplicate(bound.fd())
  await listening(listener, [bound])
  listener.address = addressOf(listener)
}

/** The address of the spec as a number: what `BoundSocket` takes. */
export async function addressToBind({ host = '127.0.0.1' }: ListenerSpec): Promise<string> {
  return isIP(host) === 0 ? (await (await import('node:dns/promises')).lookup(host)).address : host
}

async function boundTo(host: string, port: number): Promise<net.BoundSocket> {
  try {
    return new net.BoundSocket({ host, port, reusePort: process.platform === 'linux' })
  } catch (cause) {
    throw (await import('./denied.ts')).deniedPort(cause, host, port)
  }
}

/** Whether another process listens there, which SO_REUSEPORT would let this process join without a warning. */
function isTaken(host: string, port: number): boolean {
  if (port === 0) return false
  try {
    new net.BoundSocket({ host, port }).close()
    return false
  } catch (cause) {
    return codeOf(cause) === 'EADDRINUSE'
  }
}

/** Without `options` the name is as the one that was lost. */
export async function bindPath(listener: Listener, path: string, options?: ListenerSpec): Promise<void> {
  const { makeWay, nameSocket, nameToBind } = await import('./names.ts')
  await makeWay(path)
  const name = nameToBind(path)
  if (!canHandOver) return await listening(listener, [name], () => nameSocket(name, path, options))
  // `path` is in Node 26.10 and not yet in its types
  const bound = new net.BoundSocket({ path: name } as ConstructorParameters<typeof net.BoundSocket>[0])
  listener.spare = duplicate(bound.fd())
  await listening(listener, [bound], () => nameSocket(name, path, options))
}

/** Whether clients reach the socket `fd`, which was held or inherited: a unix socket has its name, if need be again. */
export async function isNamed({ isTcp, key }: Listener, fd: number): Promise<boolean> {
  return isTcp || (await (await import('./names.ts')).hasName(key, fd))
}

/** The paths of those that are unix sockets. */
export function namesOf(listeners: readonly Listener[]): string[] {
  return listeners.filter(({ isTcp }) => !isTcp).map(({ key }) => key)
}

/** Call it once a new socket listens in place of one that has lost its name: the connections that wait there are taken. */
export async function leaveForNew(listener: Listener, { accept, spare }: Held): Promise<void> {
  listener.isAnew = true
  if (spare !== null) closeSync(spare)
  await (await import('./names.ts')).takeQueue(listener.server, accept)
}

/** Listens on a socket that is bound already. */
export async function listen(listener: Listener, { accept, spare }: Held): Promise<void> {
  listener.spare = spare
  await listening(listener, [{ fd: accept }])
  listener.address = addressOf(listener)
}

/** `where`: what `server.listen` takes first. `named`: called when it listens, before the application hears of it. */
function listening({ server, backlog }: Listener, where: unknown[], named: () => void = () => {}): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: Error) => {
      server.off('listening', succeeded)
      reject(error)
    }
    const succeeded = () => {
      server.off('error', failed)
      resolve()
    }
    server.once('error', failed)
    server.once('listening', succeeded)
    // The backlog as an argument: in an options object Node ignores it, and a shared queue shrinks to 511.
    server.listen(...(where as [unknown]), backlog)
    if (server.listening) nameOrClose(server, named)
  })
}

function nameOrClose(server: Server, named: () => void): void {
  try {
    named()
  } catch (cause) {
    closeListenerOnly(server)
    throw cause
  }
}

function addressOf(listener: Listener): string {
  const address: AddressInfo | string | null = listener.server.address()
  if (address === null || typeof address === 'string') return listener.key
  return address.family === 'IPv6' ? `[${address.address}]:${address.port}` : `${address.address}:${address.port}`
}

/** `sun_path` of unix(7) and of Darwin, without the zero at its end */
const SOCKET_PATH_MAX_BYTES = process.platform === 'linux' ? 107 : 103
/** a socket is bound to a name of its own in the same folder: see names.ts */
export const SOCKET_NAME_BYTES = 7

/** The reason why no socket can be bound at `path`, or null. */
export function socketPathFault(path: string): string | null {
  if (path.includes('\0')) return 'expected a path without a NUL'
  const bytes = Math.max(Buffer.byteLength(path), Buffer.byteLength(dirname(path)) + 1 + SOCKET_NAME_BYTES)
  if (bytes <= SOCKET_PATH_MAX_BYTES) return null
  return `expected a socket path of at most ${SOCKET_PATH_MAX_BYTES} bytes (at most ${SOCKET_PATH_MAX_BYTES - 1 - SOCKET_NAME_BYTES} for its folder), got ${Buffer.byteLength(path)}`
}
