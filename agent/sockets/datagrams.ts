// UDP sockets go to the next process too: what arrives while none lives waits in the kernel. Beside its own descriptor a process
// keeps a spare of the same socket, which the next one inherits. Both kinds of switch; together, each datagram reaches one of the two.
// Behind a holder in another container it is that which keeps them (lent-datagrams.ts).
// Must hold: an application that closes its socket frees the port.

import { subscribe } from 'node:diagnostics_channel'
import type { Socket, SocketType } from 'node:dgram'
import type { InheritedListener } from '../words/wire.ts'
import { HOLDER } from '../words/lent.ts'
import { descriptorOfUdp, stateOfUdp } from './internals-udp.ts'
import { closeDescriptor, duplicate } from './libc.ts'

export interface KeptDatagrams {
  /** such as `udp4 127.0.0.1:5353` */
  key: string
  /** descriptor of the same socket */
  spare: number
}

/** how long sockets that this process inherits wait for the application to bind them */
const UNCLAIMED_MS = 10_000

/** one for each process, shared by symbol: an application may have two copies of this file */
const KEPT = Symbol.for('baton.datagrams')
const shared = globalThis as { [KEPT]?: Set<KeptDatagrams> }
const kept = (shared[KEPT] ??= new Set())

/** The sockets that this process has bound, for the next process. */
export function keptDatagrams(): ReadonlySet<KeptDatagrams> {
  return kept
}

export function isDatagrams({ key }: { key: string }): boolean {
  return /^udp[46] /.test(key)
}

/** From now on every UDP socket that is bound to a fixed port is kept. Call it before the application binds one. */
export function keepDatagrams(inherited: readonly InheritedListener[]): void {
  const holder = process.env[HOLDER] || null // it is deleted later
  const unclaimed = new Map(inherited.filter(isDatagrams).map((one) => [one.key, one]))
  // Node says so of each socket as it is made, so a process without one does not load node:dgram
  subscribe('udp.socket', (message) => {
    const { socket } = message as { socket: UdpSocket }
    if (holder === null) follow(socket, unclaimed)
    else borrowFor(socket, holder)
  })
  const letGo = () => {
    for (const { accept, spare } of unclaimed.values()) for (const fd of [accept, spare]) closeDescriptor(fd)
    unclaimed.clear()
  }
  if (unclaimed.size > 0) setTimeout(letGo, UNCLAIMED_MS).unref()
}

type UdpSocket = Socket & { type: SocketType }

function borrowFor(socket: UdpSocket, holder: string): void {
  const bind = socket.bind.bind(socket) as (...args: unknown[]) => Socket
  socket.bind = ((...args: unknown[]) => {
    const asked = askedIn(args)
    if (asked === null) return bind(...args)
    socket.bind = bind as typeof socket.bind
    const state = stateOfUdp(socket)
    if (state !== null) state.bindState = 1 // what is sent until then waits in Node
    const heard = args.slice(-1).filter((one) => typeof one === 'function')
    const bindTo = (fd: number | null) => void (fd === null ? bind(...args) : bind({ fd }, ...heard))
    void import('./lent-datagrams.ts').then(({ bindLent }) => bindLent(holder, { socket, ...asked, bind: bindTo }))
    return socket
  }) as typeof socket.bind
}

function follow(socket: UdpSocket, unclaimed: Map<string, InheritedListener>): void {
  const bind = socket.bind.bind(socket) as (...args: unknown[]) => Socket
  const keep = (key: string, spare: number | null) => {
    if (spare === null) return
    const own = { key, spare }
    kept.add(own)
    socket.once('close', () => {
      kept.delete(own)
      closeDescriptor(spare)
    })
  }
  socket.bind = ((...args: unknown[]) => {
    const asked = askedIn(args)
    const key = asked === null ? null : `${socket.type} ${asked.address ?? '*'}:${asked.port}`
    const inherited = key === null ? undefined : unclaimed.get(key)
    if (key !== null && inherited === undefined)
      socket.once('listening', () => keep(key, duplicate(descriptorOfUdp(socket) ?? -1)))
    if (key === null || inherited === undefined) return bind(...args)
    unclaimed.delete(key)
    keep(key, inherited.spare)
    const heard = args.at(-1)
    return bind({ fd: inherited.accept }, ...(typeof heard === 'function' ? [heard] : []))
  }) as typeof socket.bind
}

/** What `bind()` was asked for; null if it is no fixed port: https://nodejs.org/api/dgram.html#socketbindport-address-callback */
function askedIn([first, second]: readonly unknown[]): { address: string | null; port: number } | null {
  const given = typeof first === 'object' && first !== null ? first : { port: first, address: second }
  const { port, address } = given as { port?: unknown; address?: unknown }
  if (!Number.isInteger(Number(port)) || Number(port) <= 0 || 'fd' in given) return null
  return { address: typeof address === 'string' && address !== '' ? address : null, port: Number(port) }
}
