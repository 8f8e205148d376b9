// What an application asks about its own port before it listens: is it free? It asks by a connection (tcp-port-used), or by a server that
// it closes as soon as that listens (get-port, detect-port, portfinder), for HTTP too. Behind sockets that a
// predecessor leaves or a manager holds, the kernel would answer that the port is taken, by this very service. The answer here is what a
// first start would get.
// Must hold: a question touches no socket, so no client that waits is accepted by it; a server that stays open listens.

import net, { isIP, isIPv6, type Server, Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'
import { asking, type Handled, isAsking } from './asking.ts'

export interface AskedPlace {
  host?: string
  port?: number
  path?: string
}

export interface Questions {
  /** Whether the place is left to this process, which does not listen there yet. */
  isLeft(place: AskedPlace): boolean
  /** From now on the place is taken: the application listens there. */
  claim(place: AskedPlace): void
}

/** how long a server that only asks may stay open */
const ASKING_MS = 10

/** `left`: keys of the listeners whose sockets are left to this process */
export function answerQuestions(left: Iterable<string>): Questions {
  const open = new Set([...left].map(placeIn))
  const { connect } = Socket.prototype
  const isLeft = (asked: AskedPlace) => [...open].some((place) => overlaps(place, asked))
  if (open.size > 0) Socket.prototype.connect = refusing
  function refusing(this: Socket, ...args: unknown[]): Socket {
    const asked = askedBy(args)
    // while a server asks, a connection waits in the queue: the server may stay open
    if (asked === null || !isLeft(asked) || [...seeming].some((place) => overlaps(place, asked)))
      return Reflect.apply(connect, this, args) as Socket
    const heard = args.at(-1)
    if (typeof heard === 'function') this.once('connect', heard as () => void)
    Object.assign(this, { connecting: true })
    void import('./denied.ts').then(({ refused }) => this.destroy(refused(asked)))
    return this
  }
  return {
    isLeft,
    claim(place) {
      for (const one of open) if (overlaps(one, place)) open.delete(one)
      if (open.size === 0 && Socket.prototype.connect === refusing) Socket.prototype.connect = connect
    },
  }
}

const seeming = new Set<AskedPlace>()

/**
 * Tells the application that its server listens, though it does not yet. Resolves to whether the server stays open; then call
 * `endQuestion` before it listens. `isSilent`: it has no handler, so clients may wait a moment for that; else only for a turn of the loop.
 */
export async function asks(server: Server, place: AskedPlace, isSilent: boolean): Promise<boolean> {
  const { host = '', port = 0 } = place
  seemToListen(server, { address: host, family: isIPv6(host) ? 'IPv6' : 'IPv4', port }, () => seeming.delete(place))
  seeming.add(place)
  await (isSilent ? sleep(ASKING_MS) : turn())
  seeming.delete(place)
  if (!isAsking(server)) return false
  heardOnce(server)
  return true
}

/**
 * As far as the application can see, the server listens at this address, until it closes it or `endQuestion` is called. `address` null:
 * a unix socket.
 */
export function seemToListen(server: Server, address: object | null, close: () => unknown = () => {}): void {
  const handle = {
    close,
    ...(address === null ? {} : { getsockname: (out: object) => void Object.assign(out, address) }),
    ref() {},
    unref() {},
  }
  ;(server as Handled)._handle = handle
  asking.set(server, handle)
  process.nextTick(() => isAsking(server) && server.emit('listening'))
}

/** The application has heard that its server listens: it does not hear so again when the server does. */
export function heardOnce(server: Server): void {
  const heard = server.rawListeners('listening') as (() => void)[]
  server.removeAllListeners('listening')
  server.once('listening', () => {
    for (const one of heard) server.on('listening', one)
  })
}

/** Call it in the moment in which the server begins to listen. */
export function endQuestion(server: Server): void {
  if (isAsking(server)) (server as Handled)._handle = null
  asking.delete(server)
}

/** Whether a server could listen there. False too if only Node can tell, by its own `listen`. */
export function isUnused({ host = '', port = 0 }: AskedPlace): boolean {
  if (!('BoundSocket' in net) || port === 0) return false
  try {
    new net.BoundSocket({ host: host === 'localhost' ? '127.0.0.1' : host, port }).close()
    return true
  } catch {
    return false
  }
}

/** What a listener's key says. */
export function placeIn(key: string): AskedPlace {
  const at = key.lastIndexOf(':')
  const port = Number(key.slice(at + 1))
  return at < 0 || key.startsWith('/') || !Number.isInteger(port) ? { path: key } : { host: key.slice(0, at), port }
}

/** The address in the arguments of `Socket.connect`; null: none of this machine. */
export function askedBy(args: readonly unknown[]): AskedPlace | null {
  const [first, second] = Array.isArray(args[0]) ? (args[0] as unknown[]) : args
  if (typeof first === 'string' && !/^\d+$/.test(first)) return { path: first }
  const given = (typeof first === 'object' && first !== null ? first : { port: first, host: second }) as {
    port?: unknown
    host?: unknown
    path?: unknown
  }
  if (typeof given.path === 'string' && given.port === undefined) return { path: given.path }
  const host = typeof given.host === 'string' && given.host !== '' ? given.host : 'localhost'
  return Number(given.port) > 0 ? { host, port: Number(given.port) } : null
}

/** Whether a socket at `one` would keep another one from `asked`, or get its connections. */
export function overlaps(one: AskedPlace, asked: AskedPlace): boolean {
  if (one.path !== undefined || asked.path !== undefined) return one.path === asked.path
  if (one.port !== asked.port) return false
  const [here, there] = [one.host ?? '', asked.host ?? '']
  if (here === there || isAny(there)) return true
  if (isAny(here)) return isOwn(there)
  return isOnLoopback(here) && isOnLoopback(there) && !(isIP(here) > 0 && isIP(there) > 0)
}

/** of what is listened on: every address */
export function isAny(host: string): boolean {
  return host === '::' || host === '0.0.0.0'
}

/** of what is listened on, as a setting or a socket names it */
export function isOnLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) > 0 && host.startsWith('127.'))
}

function isOwn(host: string): boolean {
  return (
    isOnLoopback(host) || Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === host))
  )
}
