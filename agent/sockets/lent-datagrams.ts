// Binds the application's UDP sockets to those that a holder in another container lends (container/holder/holder.c). Datagrams that
// arrive while no application lives wait in the kernel's buffer, and the next application answers them. Loaded behind a holder.
// Must hold: apart from the wait, the application's socket behaves like one that Node has bound. If the holder has no such socket, the
// application binds in its own container.

import type { RemoteInfo, Socket, SocketType } from 'node:dgram'
import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../words/errors.ts'
import { stateOfUdp, swapUdp } from './internals-udp.ts'
import { closeDescriptor, duplicate } from './libc.ts'
import { type Loan, loanAt } from './loan.ts'
import { kindOfSocket } from './packets.ts'

export interface WantedDatagrams {
  socket: Socket & { type: SocketType }
  /** null: every address */
  address: string | null
  port: number
  /** Binds the socket to this descriptor; null: to the address that the application has asked for. */
  bind(fd: number | null): void
}

interface Shared {
  /** the application's sockets, by the holder's name for each */
  taken: Map<string, WantedDatagrams>
  loan: Promise<Loan> | null
  leaving: AbortController
}

/** one for each process, shared by symbol: an application may have two copies of this file */
const LENT = Symbol.for('baton.datagrams.lent')
const all = globalThis as { [LENT]?: Shared }
const shared: Shared = (all[LENT] ??= { taken: new Map(), loan: null, leaving: new AbortController() })

/** how long a process that stops waits, so that the application can still send its answers */
const ANSWERING_MS = 300
/** prefix of an IPv4 address on a socket for both kinds of IP */
const MAPPED = '::ffff:'

/** Waits for the holder at `path`, then binds. Never rejects: a failure is an `error` event of the socket. */
export async function bindLent(path: string, wanted: WantedDatagrams): Promise<void> {
  const state = stateOfUdp(wanted.socket)
  try {
    const { sockets } = await (shared.loan ??= loan(path))
    if (state?.handle === null) return // the application has closed it
    if (state !== null) state.bindState = 0
    const name = nameFor(wanted, sockets)
    if (name !== null) return take(name, wanted, sockets)
    const names = [...sockets.keys()].join(', ') || 'no UDP'
    warn(`the holder at ${path} does not have ${askedFor(wanted)} (it has ${names}), so this container itself binds it`)
    wanted.bind(null)
  } catch (cause) {
    if (!shared.leaving.signal.aborted) wanted.socket.emit('error', cause as Error)
  }
}

/** Stops reading: later datagrams wait for the next process. Resolves when the application has had time to send its answers. */
export async function finishDatagrams(): Promise<void> {
  shared.leaving.abort()
  for (const { socket } of shared.taken.values()) stateOfUdp(socket)?.handle?.recvStop?.()
  if (shared.taken.size > 0) await sleep(ANSWERING_MS)
}

export function isOfDatagrams(name: string): boolean {
  return name.endsWith('/udp')
}

/** Borrows the UDP sockets. Closes the TCP ones: lent.ts borrows those over another connection. */
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

/** Replaces the sockets of a holder that is gone, and its network with it, by those of the next holder. */
async function renew(path: string, before: Loan['sockets']): Promise<void> {
  for (const fd of before.values()) closeDescriptor(fd)
  before.clear() // another file may have the number of each now
  if (shared.leaving.signal.aborted) return
  shared.loan = loan(path) // what the application binds from now on waits for the next holder
  shared.loan.catch(() => {}) // heard below
  try {
    const { createSocket } = await import('node:dgram')
    for (const { socket } of shared.taken.values()) exchange(socket, createSocket(socket.type)) // frees the port
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

/** Gives `socket` the handle of `fresh`, and closes its own. */
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

/** The holder's name for this socket; null: the holder has none that fits, or another socket of the application has taken it. */
function nameFor({ socket, address, port }: WantedDatagrams, sockets: Loan['sockets']): string | null {
  const host = address ?? (socket.type === 'udp4' ? '0.0.0.0' : '::')
  const fits = (fd: number | undefined) => fd !== undefined && (socket.type === 'udp4' || kindOfSocket(fd) === 'udp6')
  const names = [`${host}:${port}/udp`, `${port}/udp`]
  return names.find((name) => fits(sockets.get(name)) && !shared.taken.has(name)) ?? null
}

/** Hides IPv6: a holder holds a port without an address for both kinds of IP, but this application asked for IPv4. */
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

/** Not the agent's log: there may be no agent yet. */
function warn(message: string): void {
  process.emitWarning(message)
}
