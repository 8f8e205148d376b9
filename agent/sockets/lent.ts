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
import type { Keeper } from './keeper.ts'
import { closeDescriptor, duplicate } from './libc.ts'
import { addressToBind, bind, listen, type Listener, type ListenerSpec, stopAccepting } from './listeners.ts'
import { finishDatagrams, isOfDatagrams } from './lent-datagrams.ts'
import { type BorrowOptions, type Loan, loanAt } from './loan.ts'

const TURN_LOOK_MS = 100

interface Open {
  listener: Listener
  spec: ListenerSpec
  /** the holder's name for its socket */
  name: string
  /** the same server in this container's own network, for its health check; its connections outlive a holder */
  inside: Server | null
  within: WeakSet<Socket>
}

/**
 * The holder at `path`. Resolves when it has lent its sockets; throws only if this Node cannot take any. `id`: this container's. What the
 * holder has no socket for is bound in this container's own network, with a warning.
 */
export async function containerKeeper(path: string, options: BorrowOptions & { id: string | null }): Promise<Keeper> {
  const { warn, leaving, id } = options
  let all: Open[] = []
  let loan = await loanAt(path, options)
  const follow = () => void loan.link.once('close', () => void renew().catch((cause) => warn(reasonOf(cause))))
  // an author may close a server and listen again: the holder has its socket still
  const forgetClosed = () => {
    for (const { listener, inside } of all) if (listener.isClosed) inside?.close()
    all = all.filter(({ listener }) => !listener.isClosed)
  }
  const renew = async () => {
    forgetClosed()
    for (const { listener } of all) stopAccepting(listener)
    for (const fd of loan.sockets.values()) closeDescriptor(fd)
    loan.sockets.clear()
    // last: who sees a connection end may start the next holder at once, which needs the ports
    for (const one of all) dropConnections(one)
    if (leaving.aborted) return
    warn(`lost the connection to the holder at ${path}, and every connection through it; trying to reconnect`)
    loan = await loanAt(path, options)
    follow()
    for (const one of all) await listenOn(one, loan, warn)
  }
  follow()
  leaving.addEventListener('abort', () => {
    for (const { inside } of all) inside?.close()
  })
  return {
    ownsQueue: true,
    gone: turnComes(path, id, leaving).then(() => 'committed'),
    leave: finishDatagrams,
    serve: async () => {},
    async listen(listener, spec) {
      forgetClosed()
      const free = [...loan.sockets.keys()].filter(
        (one) => !isOfDatagrams(one) && !all.some(({ name }) => name === one),
      )
      const name = listener.isTcp ? nameFor(listener, spec, free) : null
      if (name === null) {
        const names = free.join(', ') || 'none'
        if (listener.isTcp)
          warn(
            `the holder at ${path} has no free socket for ${listener.key} (free: ${names}), so this container binds that address itself`,
          )
        return await bind(listener, spec)
      }
      const one: Open = { listener, spec, name, inside: null, within: new WeakSet() }
      sparesNew(listener.server, leaving)
      // first, since the application may ask itself as soon as it hears that it listens
      one.inside = await listenInside(one, warn)
      await listenOn(one, loan, warn).catch((cause: unknown) => {
        one.inside?.close()
        throw cause
      })
      all.push(one)
    },
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
function nameFor({ key }: Listener, { port }: ListenerSpec, free: readonly string[]): string | null {
  return [key, String(port)].find((name) => free.includes(name)) ?? null
}

async function listenOn({ listener, name }: Open, { sockets }: Loan, warn: (message: string) => void): Promise<void> {
  const fd = duplicate(sockets.get(name) ?? -1)
  if (fd === null) return warn(`the new holder does not hold ${listener.key}`)
  // no spare: whatever closes or shuts the spare would act on the holder's socket
  await listen(listener, { accept: fd, spare: null })
}

/** The network is gone with the holder: no end of a connection reaches a client or this process, so drop the connections. */
function dropConnections({ listener, within }: Open): void {
  for (const socket of listener.sockets) if (!within.has(socket)) socket.destroy()
}

/** Also listens inside this container, for a health check: the holder's socket is in another network. A failure is only a warning. */
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
    warn(`cannot also listen on ${key} for health checks inside this container: ${reasonOf(cause)}`)
    return null
  }
}

/**
 * An author's own `server.close()` at the same signal would destroy connections whose first request is on its way (Node 26.4,
 * PR 63470): the farewell ends them.
 */
function sparesNew(server: Server, leaving: AbortSignal): void {
  if (!('closeIdleConnections' in server)) return
  const http = server as HttpServer
  const close = http.closeIdleConnections.bind(http)
  http.closeIdleConnections = () => void setImmediate(() => leaving.aborted || close())
}
