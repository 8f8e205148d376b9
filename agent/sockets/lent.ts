// Listens on sockets that a holder in another container lends (container/holder/holder.c). The holder keeps the accept queue, so this
// container can be recreated. The connection to the holder stays open. If it ends, the holder is gone, and its network with it:
// accepted connections reach no client any more, and this process takes the sockets of the next holder.
// Must hold: nothing here closes or shuts the holder's queue. If the holder is away or answers nonsense, this process asks again.

import { existsSync } from 'node:fs'
import net, { type Server, type Socket } from 'node:net'
import { Server as HttpServer } from 'node:http'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../words/errors.ts'
import { containerTurn } from '../words/lent.ts'
import { askToClose } from './closing.ts'
import { descriptorOf, idleConnections, idleTimeLeft } from './internals.ts'
import { closeDescriptor } from './libc.ts'
import { addressToBind, bind, listen, type Listener, type ListenerSpec, stopAccepting } from './listeners.ts'
import { finishDatagrams, isOfDatagrams } from './lent-datagrams.ts'
import { hasUnread } from './packets.ts'
import { type BorrowOptions, type Loan, loanAt } from './loan.ts'

export interface Lent {
  /** Listens on the holder's socket for it. If the holder has none, binds one in this container's own network, with a warning. */
  listen(listener: Listener, spec: ListenerSpec): Promise<void>
  /** Makes the next answer on every connection the last one. Goes on accepting, so that no new client waits meanwhile. */
  announce(listeners: readonly Listener[]): Promise<void>
  /** Lets requests finish and closes connections, so that no client whose request is on its way is reset. */
  finish(listeners: readonly Listener[], drainMs: number): Promise<void>
}

const TURN_LOOK_MS = 100
/** a connection that was accepted and has not asked yet: its request is on the way */
const NEVER_ASKED_MS = 2000
/** how long a connection between two requests is spared: its next answer says that it is the last */
const ASKED_MS = 300

interface Open {
  listener: Listener
  spec: ListenerSpec
  /** the same server in this container's own network, for its health check; its connections outlive a holder */
  inside: Server | null
  within: WeakSet<Socket>
}

/** Resolves when the holder at `path` has lent its sockets. Throws only if this Node cannot take any. */
export async function borrow(path: string, options: BorrowOptions): Promise<Lent> {
  const { warn, leaving } = options
  const all: Open[] = []
  let loan = await loanAt(path, options)
  const follow = () => void loan.link.once('close', () => void renew().catch((cause) => warn(reasonOf(cause))))
  const renew = async () => {
    for (const one of all) letGoOf(one)
    for (const fd of loan.sockets.values()) closeDescriptor(fd)
    loan.sockets.clear()
    if (leaving.aborted) return
    warn(`the holder at ${path} is gone, and with it every connection: asking again`)
    loan = await loanAt(path, options)
    follow()
    for (const one of all) await listenOn(one, loan, warn)
  }
  follow()
  const every = (listeners: readonly Listener[]) => [...new Set([...listeners, ...all.map((one) => one.listener)])]
  leaving.addEventListener('abort', () => {
    for (const { inside } of all) inside?.close()
  })
  return {
    async listen(listener, spec) {
      const one: Open = { listener, spec, inside: null, within: new WeakSet() }
      if (!listener.isTcp || nameFor(listener, spec, loan) === null) {
        const names = [...loan.sockets.keys()].filter((name) => !isOfDatagrams(name)).join(', ') || 'nothing more'
        if (listener.isTcp)
          warn(`the holder at ${path} has ${names}, not ${listener.key}: that is this container's own`)
        return await bind(listener, spec)
      }
      sparesNew(listener.server, leaving)
      listener.server.on('connection', (socket: Socket) => acceptedAt.set(socket, performance.now()))
      await listenOn(one, loan, warn)
      all.push(one)
      one.inside = await listenInside(one, warn)
    },
    announce: async (listeners) => await announce(every(listeners)),
    finish: async (listeners, drainMs) =>
      void (await Promise.all([finish(every(listeners), drainMs), finishDatagrams()])),
  }
}

/**
 * Resolves when no other container of the service lives: when the command that put this container (`id`) beside the old one removes
 * its file; at once if there is no such file. False if this process is asked to stop before.
 */
export async function turnComes(path: string, id: string | null, leaving: AbortSignal): Promise<boolean> {
  const file = join(dirname(path), containerTurn(id ?? ''))
  while (existsSync(file) && !leaving.aborted) await sleep(TURN_LOOK_MS, undefined, { ref: false })
  return !leaving.aborted
}

/** The holder's name for this listener, by its key or its port alone; null: it holds none, or another listener has it. */
function nameFor({ key }: Listener, { port }: ListenerSpec, { sockets }: Loan): string | null {
  return [key, String(port)].find((name) => sockets.has(name)) ?? null
}

async function listenOn(one: Open, loan: Loan, warn: (message: string) => void): Promise<void> {
  const name = nameFor(one.listener, one.spec, loan)
  const fd = loan.sockets.get(name ?? '')
  if (name === null || fd === undefined) return warn(`the new holder does not hold ${one.listener.key}`)
  loan.sockets.delete(name)
  // no spare: whatever closes or shuts the spare would act on the holder's socket
  await listen(one.listener, fd)
}

/** The network is gone with the holder: no end of a connection reaches a client or this process, so drop the connections. */
function letGoOf({ listener, within }: Open): void {
  stopAccepting(listener)
  for (const socket of listener.sockets) if (!within.has(socket)) socket.destroy()
}

/** A health check asks inside this container, where the holder's socket does not listen. If it cannot, the service serves without. */
async function listenInside({ listener, spec, within }: Open, warn: (message: string) => void): Promise<Server | null> {
  const { key, server } = listener
  const inside = net.createServer({ allowHalfOpen: server instanceof HttpServer, noDelay: true }, (socket) => {
    within.add(socket)
    server.emit('connection', socket)
  })
  try {
    const bound = new net.BoundSocket({ host: await addressToBind(spec), port: spec.port ?? 0 })
    await new Promise<void>((resolve, reject) => {
      inside.once('error', reject)
      inside.listen(bound, resolve)
    })
    inside.on('error', () => {})
    return inside
  } catch (cause) {
    warn(`listening on ${key} in this container too, for a health check: ${reasonOf(cause)}`)
    return null
  }
}

/**
 * An author's own `server.close()` at the same signal would destroy connections whose first request is on its way (Node 26.4,
 * PR 63470): `finish` ends them.
 */
function sparesNew(server: Server, leaving: AbortSignal): void {
  if (!('closeIdleConnections' in server)) return
  const http = server as HttpServer
  const close = http.closeIdleConnections.bind(http)
  http.closeIdleConnections = () => void setImmediate(() => leaving.aborted || close())
}

const acceptedAt = new WeakMap<Socket, number>()
let announcedAt = 0

async function announce(listeners: readonly Listener[]): Promise<void> {
  announcedAt = performance.now()
  for (const listener of listeners) askToClose(listener)
  const asked = listeners.flatMap((listener) => between(listener).filter(hasAsked))
  for (; performance.now() - announcedAt < ASKED_MS; await sleep(10))
    if (asked.every((socket) => socket.destroyed)) return
}

async function finish(listeners: readonly Listener[], drainMs: number): Promise<void> {
  for (const began = performance.now(); performance.now() - began < drainMs; await sleep(10)) {
    if (listeners.every(({ sockets }) => sockets.size === 0)) return
    for (const listener of listeners) endIdle(listener, performance.now() - began)
  }
}

function endIdle(listener: Listener, ageMs: number): void {
  const now = performance.now()
  for (const socket of between(listener)) {
    const [since, graceMs] = hasAsked(socket) ? [announcedAt, ASKED_MS] : [acceptedAt.get(socket) ?? 0, NEVER_ASKED_MS]
    const isLate = now - since >= graceMs
    // on a busy machine a request may have arrived long before Node reads it
    if (isLate && !hasUnread(descriptorOf(socket) ?? -1)) socket.destroy()
  }
  const { server, movable } = listener
  if (!movable && ageMs >= NEVER_ASKED_MS && 'closeIdleConnections' in server)
    HttpServer.prototype.closeIdleConnections.call(server as HttpServer)
}

/** Connections without a request in flight. */
function between({ server, sockets, movable }: Listener): Socket[] {
  return movable ? idleConnections(server as HttpServer, sockets) : []
}

function hasAsked(socket: Socket): boolean {
  return idleTimeLeft(socket) !== null
}
