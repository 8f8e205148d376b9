// Hands UDP sockets to the next process: datagrams that arrive while no process lives wait in the kernel. Beside its own descriptor
// a process keeps a spare of the same socket, which the next process inherits. In a start-first switch, each datagram reaches one of the
// two processes. Behind a holder in another container, the holder keeps the sockets instead (lent-datagrams.ts).
// Must hold: an application that closes its socket frees the port.

import { subscribe } from 'node:diagnostics_channel'
import type { Socket, SocketType } from 'node:dgram'
import type { InheritedListener } from '../words/wire.ts'
import { HOLDER } from '../words/lent.ts'
import { descriptorOfUdp, keepMemberships, stateOfUdp } from './internals-udp.ts'
import { closeDescriptor, duplicate } from './libc.ts'

export interface KeptDatagrams {
  /** such as `udp4 127.0.0.1:5353`; of two sockets that share a port, the second one is `udp4 127.0.0.1:5353 2` */
  key: string
  /** descriptor of the same socket; null before it is bound, and if there could be none */
  spare: number | null
  /** whether the next process may have it: what this process changes on it, it changes there too */
  isGiven: boolean
}

/** how long sockets that this process inherits wait for the application to bind them */
const UNCLAIMED_MS = 10_000

/** one for each process, shared by symbol: an application may have two copies of this file */
const KEPT = Symbol.for('baton.datagrams')
const shared = globalThis as { [KEPT]?: Set<KeptDatagrams> }
const kept = (shared[KEPT] ??= new Set())

/** The sockets that this process has bound, for the next process. */
export function keptDatagrams(): KeptDatagrams[] {
  const bound = [...kept].filter(({ spare }) => spare !== null)
  for (const one of bound) one.isGiven = true
  return bound
}

export function isDatagrams({ key }: { key: string }): boolean {
  return /^udp[46] /.test(key)
}

/** From now on every UDP socket that is bound to a fixed port is kept. Call it before the application binds one. */
export function keepDatagrams(inherited: readonly InheritedListener[]): void {
  const holder = process.env[HOLDER] || null // read it now: the agent deletes the variable
  const unclaimed = new Map(inherited.filter(isDatagrams).map((one) => [one.key, one]))
  // Node publishes each new socket on this channel, so a process without UDP does not load node:dgram.
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
    if (state !== null) state.bindState = 1 // "binding": Node queues what the application sends until the socket is bound
    keepMemberships(socket, () => false)
    const heard = args.slice(-1).filter((one) => typeof one === 'function')
    const bindTo = (fd: number | null) => void (fd === null ? bind(...args) : bind({ fd }, ...heard))
    void import('./lent-datagrams.ts').then(({ bindLent }) => bindLent(holder, { socket, ...asked, bind: bindTo }))
    return socket
  }) as typeof socket.bind
}

function follow(socket: UdpSocket, unclaimed: Map<string, InheritedListener>): void {
  const bind = socket.bind.bind(socket) as (...args: unknown[]) => Socket
  const own: KeptDatagrams = { key: '', spare: null, isGiven: false }
  const letGo = () => {
    kept.delete(own)
    if (own.spare !== null) closeDescriptor(own.spare)
    own.spare = null
  }
  socket.once('close', letGo)
  keepMemberships(socket, () => own.isGiven)
  socket.bind = ((...args: unknown[]) => {
    const asked = askedIn(args)
    if (asked === null || stateOfUdp(socket)?.bindState !== 0) return bind(...args)
    const place = `${socket.type} ${asked.address ?? '*'}:${asked.port}`
    const inherited = [...unclaimed.values()].find(({ key }) => placeIn(key) === place)
    letGo() // the last `bind` may have failed
    own.key = nextKey(place)
    own.isGiven = false
    kept.add(own)
    if (inherited === undefined) {
      socket.once('listening', () => (own.spare ??= duplicate(descriptorOfUdp(socket) ?? -1)))
      return bind(...args)
    }
    unclaimed.delete(inherited.key)
    own.spare = inherited.spare
    const heard = args.slice(-1).filter((one) => typeof one === 'function')
    bindSoon(socket, inherited.accept, (fd) => bind({ fd }, ...heard))
    return socket
  }) as typeof socket.bind
}

/** Node binds to a descriptor at once, but to an address after `bind` has returned: applications rely on that. */
function bindSoon(socket: UdpSocket, fd: number, bind: (fd: number) => void): void {
  const state = stateOfUdp(socket)
  if (state !== null) state.bindState = 1 // "binding", as above
  process.nextTick(() => {
    if (state?.handle === null) return closeDescriptor(fd) // the application has closed it
    if (state !== null) state.bindState = 0
    bind(fd)
  })
}

/** The key without the number of the socket there. */
function placeIn(key: string): string {
  return key.split(' ', 2).join(' ')
}

/** Sockets that share a port (`reusePort`, `reuseAddr`) are told apart by the order in which they are bound. */
function nextKey(place: string): string {
  for (let count = 1; ; count++) {
    const key = count === 1 ? place : `${place} ${count}`
    if (![...kept].some((one) => one.key === key)) return key
  }
}

/** The address in the arguments of `bind()`; null for any free port: https://nodejs.org/api/dgram.html#socketbindport-address-callback */
function askedIn([first, second]: readonly unknown[]): { address: string | null; port: number } | null {
  const given = typeof first === 'object' && first !== null ? first : { port: first, address: second }
  const { port, address } = given as { port?: unknown; address?: unknown }
  if (!Number.isInteger(Number(port)) || Number(port) <= 0 || 'fd' in given) return null
  return { address: typeof address === 'string' && address !== '' ? address : null, port: Number(port) }
}
