// UDP sockets that a holder in another container lends (container/holder/holder.c): what `bind` of node:dgram asks for is taken from
// it. What arrives while no application lives waits there in the kernel's buffer, and the next one answers it. Loaded behind a holder.
// Must hold: the application's socket behaves as one that Node has bound, but for the wait. What the holder does not have is bound here.

import type { RemoteInfo, Socket, SocketType } from 'node:dgram'
import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../words/errors.ts'
import { stateOfUdp, swapUdp } from './internals-udp.ts'
import { closeDescriptor, duplicate } from './libc.ts'
import { type Loan, loanAt } from './loan.ts'
import { kindOfSocket } from './packets.ts'

export interface WantedDatagrams {
  socket: Socket & { type: SocketType }
  /** null: every one */
  address: string | null
  port: number
  /** Binds the socket: to this descriptor, or, if there is none, to what the application has asked for. */
  bind(fd: number | null): void
}

interface Shared {
  /** what the application has, by the holder's name for it */
  taken: Map<string, WantedDatagrams>
  loan: Promise<Loan> | null
  leaving: AbortController
}

/** one for each process, shared by symbol: an application may have two copies of this file */
const LENT = Symbol.for('baton.datagrams.lent')
const all = globalThis as { [LENT]?: Shared }
const shared: Shared = (all[LENT] ??= { taken: new Map(), loan: null, leaving: new AbortController() })

/** for answers that are on their way when this process stops */
const ANSWERING_MS = 300
/** how a socket of both kinds of IP shows an address of IPv4 */
const MAPPED = '::ffff:'

/** Binds when the holder at `path` has answered. Never rejects. */
export async function bindLent(path: string, wanted: WantedDatagrams): Promise<void> {
  const state = stateOfUdp(wanted.socket)
  try {
    const { sockets } = await (shared.loan ??= loan(path))
    if (state?.handle === null) return // the application has closed it
    if (state !== null) state.bindState = 0
    const name = nameFor(wanted, sockets)
    if (name !== null) return take(name, wanted, sockets)
    const names = [...sockets.keys()].join(', ') || 'no UDP'
    warn(`the holder at ${path} has ${names}, not ${askedFor(wanted)}: that is this container's own`)
    wanted.bind(null)
  } catch (cause) {
    if (!shared.leaving.signal.aborted) wanted.socket.emit('error', cause as Error)
  }
}

/** What arrives from now on is the next process's. Resolves when answers that were on their way have had time to go. */
export async function finishDatagrams(): Promise<void> {
  shared.leaving.abort()
  for (const { socket } of shared.taken.values()) stateOfUdp(socket)?.handle?.recvStop?.()
  if (shared.taken.size > 0) await sleep(ANSWERING_MS)
}

export function isOfDatagrams(name: string): boolean {
  return name.endsWith('/udp')
}

/** Its UDP sockets; those of TCP are for the servers (lent.ts), which have a connection of their own. */
async function loan(path: string): Promise<Loan> {
  const lent = await loanAt(path, { warn, leaving: shared.leaving.signal })
  for (const [name, fd] of lent.sockets) {
    if (isOfDatagrams(name)) continue
    closeDescriptor(fd)
    lent.sockets.delete(name)
  }
  lent.link.unref() // an application that closes its sockets may end
  lent.link.once('close', () => void renew(path, lent.sockets))
  return lent
}

/** The holder is gone, and its network: the application's sockets go on with what the next one lends. */
async function renew(path: string, before: Loan['sockets']): Promise<void> {
  for (const fd of before.values()) closeDescriptor(fd)
  if (shared.leaving.signal.aborted) return
  try {
    const { createSocket } = await import('node:dgram')
    for (const { socket } of shared.taken.values()) exchange(socket, createSocket(socket.type)) // its port is free now
    shared.loan = loan(path)
    const { sockets } = await shared.loan
    for (const [name, { socket }] of shared.taken) {
      const fd = duplicate(sockets.get(name) ?? -1)
      if (fd === null) warn(`the new holder does not hold ${name}`)
      else exchange(socket, createSocket(socket.type).bind({ fd }))
    }
  } catch (cause) {
    if (!shared.leaving.signal.aborted) warn(reasonOf(cause))
  }
}

/** `socket` has what `fresh` had, and what it had itself is closed. */
function exchange(socket: Socket, fresh: Socket): void {
  swapUdp(socket, fresh)
  fresh.close()
}

function take(name: string, wanted: WantedDatagrams, sockets: Loan['sockets']): void {
  const { socket, port, bind } = wanted
  const lent = sockets.get(name) ?? -1
  shared.taken.set(name, wanted)
  socket.once('close', () => shared.taken.delete(name))
  if (socket.type === 'udp4' && kindOfSocket(lent) === 'udp6') showAsIpv4(socket, port)
  bind(duplicate(lent))
}

/** The holder's name for it; null: it holds none that fits, or another socket of the application has it. */
function nameFor({ socket, address, port }: WantedDatagrams, sockets: Loan['sockets']): string | null {
  const host = address ?? (socket.type === 'udp4' ? '0.0.0.0' : '::')
  const fits = (fd: number | undefined) => fd !== undefined && (socket.type === 'udp4' || kindOfSocket(fd) === 'udp6')
  const names = [`${host}:${port}/udp`, `${port}/udp`]
  return names.find((name) => fits(sockets.get(name)) && !shared.taken.has(name)) ?? null
}

/** A port alone is held for both kinds of IP; an application that asked for IPv4 sees nothing of the other. */
function showAsIpv4(socket: Socket, port: number): void {
  const emit = socket.emit.bind(socket) as (...args: unknown[]) => boolean
  socket.emit = (...args: unknown[]) => {
    const from = args[0] === 'message' ? (args[2] as RemoteInfo | undefined) : undefined
    if (from === undefined || from.family === 'IPv4') return emit(...args)
    if (!from.address.startsWith(MAPPED)) return false
    Object.assign(from, { address: from.address.slice(MAPPED.length), family: 'IPv4' })
    return emit(...args)
  }
  socket.address = () => ({ address: '0.0.0.0', family: 'IPv4', port })
}

function askedFor({ address, port }: WantedDatagrams): string {
  return `${address ?? '*'}:${port}/udp`
}

/** There may be no agent yet, and so no log. */
function warn(message: string): void {
  process.emitWarning(message)
}
