// The new process's side of a handover. It opens its state, serves its real handler on a private socket only, and accepts
// on the shared sockets when the predecessor has seen that it is what it should be. Until commit it shows that it lives.

import { closeSync } from 'node:fs'
import { chmod, rm } from 'node:fs/promises'
import { createServer, type Server as HttpServer } from 'node:http'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { BatonError, reasonOf } from '../errors.ts'
import type { Log } from '../log.ts'
import { isAlive } from '../process.ts'
import { adopt, keepFromChildren } from './internals.ts'
import { bind, inherit, type InheritedListener, type Listener, type ListenerSpec } from './listeners.ts'
import {
  asToSuccessor,
  envelope,
  type Inheritance,
  INHERITANCE,
  PROBE_PATH,
  type ProbeAnswer,
  type ToPredecessor,
} from './messages.ts'

/** How the predecessor left: `committed` by its word, or `orphaned`: it died or had to be ended before it could say so. */
export type Ending = 'committed' | 'orphaned'

export interface SuccessorOptions {
  inheritance: Inheritance
  listeners: Listener[]
  specs: ListenerSpec[]
  service: string
  tag: string
  log: Log
}

export interface SuccessorSide {
  /** resolves when the predecessor has left */
  ended: Promise<Ending>
  /** Tells the predecessor that this stop is wanted, not a failure. */
  stopping(): void
}

const ALIVE_EVERY_MS = 500
const PREDECESSOR_EXIT_MS = 10_000

/** What this process inherits, or null where it is the first of its service. Takes it out of the environment. */
export function readInheritance(): Inheritance | null {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  delete process.env[INHERITANCE]
  if (process.send === undefined) {
    throw new BatonError('unexpected', `${INHERITANCE} is set but there is no channel to a predecessor`, {
      hint: `unset ${INHERITANCE}: only a predecessor sets it`,
    })
  }
  const inheritance = JSON.parse(text) as Inheritance
  for (const { accept, spare } of inheritance.listeners) {
    keepFromChildren(accept)
    keepFromChildren(spare)
  }
  return inheritance
}

/** Resolves when this process accepts connections. Rejects where it cannot; the predecessor is told and the caller exits. */
export async function takeOver(options: SuccessorOptions): Promise<SuccessorSide> {
  try {
    return await introduceOneself(options)
  } catch (cause) {
    await tell({ type: 'failed', message: reasonOf(cause) })
    throw cause
  }
}

async function introduceOneself(options: SuccessorOptions): Promise<SuccessorSide> {
  const { inheritance, listeners, specs, log } = options
  const { predecessor } = inheritance
  const byKey = new Map(inheritance.listeners.map((inherited) => [inherited.key, inherited]))
  const disconnected = new Promise<void>((resolve) => {
    if (!process.connected) return resolve() // it has died already, while this process was starting
    process.once('disconnect', () => resolve())
  })
  const accept = receive(listeners)

  // what is not inherited is bound before the predecessor is told anything: it may fail
  const inherited: [Listener, InheritedListener][] = []
  for (const [index, listener] of listeners.entries()) {
    const own = byKey.get(listener.key)
    const spec = specs[index]
    if (own !== undefined) inherited.push([listener, own])
    else if (spec !== undefined) await bind(listener, spec)
    byKey.delete(listener.key)
  }
  for (const { accept: one, spare } of byKey.values()) for (const fd of [one, spare]) closeSync(fd)

  const closePrivate = await servePrivately(options)
  await tell({ type: 'hello' })
  // A predecessor that dies now leaves nobody to serve: the sockets are here, so go on alone.
  await Promise.race([accept.accepted, disconnected])
  for (const [listener, own] of inherited) await inherit(listener, own)
  await tell({ type: 'ready' })

  const alive = setInterval(() => void tell({ type: 'alive' }), ALIVE_EVERY_MS)
  const patience = new AbortController()
  const stuck = new Promise<'stuck'>((resolve) => {
    const timer = setTimeout(() => resolve('stuck'), inheritance.patienceMs)
    timer.unref()
    patience.signal.addEventListener('abort', () => clearTimeout(timer))
  })
  const ended = Promise.race([
    accept.committed.then(() => 'committed' as const),
    disconnected.then(() => 'orphaned' as const),
    stuck,
  ]).then(async (how): Promise<Ending> => {
    clearInterval(alive)
    patience.abort()
    if (how === 'committed') await tell({ type: 'committed' })
    await seeOff(predecessor, how === 'stuck' ? 0 : PREDECESSOR_EXIT_MS, log)
    await closePrivate()
    return how === 'committed' ? 'committed' : 'orphaned'
  })
  return { ended, stopping: () => void tell({ type: 'stopping' }) }
}

/** Registered once and at once, so that no message and no socket comes too early. */
function receive(listeners: Listener[]): { accepted: Promise<void>; committed: Promise<void> } {
  const accepted = Promise.withResolvers<void>()
  const committed = Promise.withResolvers<void>()
  process.on('message', (raw, handle) => {
    const message = asToSuccessor(raw)
    if (message === null) return
    switch (message.type) {
      case 'accept':
        return accepted.resolve()
      case 'commit':
        return committed.resolve()
      case 'connection': {
        // the socket is missing where its client hung up on the way
        const listener = listeners[message.listener]
        if (handle !== undefined && listener !== undefined) adopt(listener.server, handle as Socket)
        return void tell({ type: 'adopted', id: message.id })
      }
      default:
        return message satisfies never
    }
  })
  return { accepted: accepted.promise, committed: committed.promise }
}

/** The author's own handler on a socket that only the predecessor can reach. */
async function servePrivately(options: SuccessorOptions): Promise<() => Promise<void>> {
  const { inheritance, listeners, service, tag } = options
  const real = listeners.find((listener) => listener.movable) ?? listeners[0]
  const server: HttpServer = createServer((request, response) => {
    if (request.url !== PROBE_PATH) {
      real?.server.emit('request', request, response)
      return
    }
    const answer: ProbeAnswer = { service, tag, nonce: inheritance.nonce, pid: process.pid }
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify(answer))
  })
  const path = join(inheritance.privateDirectory, 'probe.sock')
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  await chmod(path, 0o600)
  return async () => {
    server.close()
    server.closeAllConnections()
    // the predecessor's to remove, but it may not have lived to do so
    await rm(inheritance.privateDirectory, { recursive: true, force: true })
  }
}

/** Waits for the predecessor to leave and ends it where it does not: two processes must not serve for ever. */
async function seeOff({ pid, startTime }: Inheritance['predecessor'], graceMs: number, log: Log): Promise<void> {
  const deadline = Date.now() + graceMs
  while (isAlive(pid, startTime) && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20))
  if (!isAlive(pid, startTime)) return
  log({ event: 'warning', message: `the predecessor (pid ${pid}) did not leave within ${graceMs} ms and is ended` })
  try {
    process.kill(pid, 'SIGKILL')
  } catch (cause) {
    log({ event: 'warning', message: `ending the predecessor (pid ${pid}): ${reasonOf(cause)}` })
  }
}

function tell(message: ToPredecessor): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined || !process.connected) return resolve()
    process.send(envelope(message), undefined, {}, () => resolve())
  })
}
