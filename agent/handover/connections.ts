// What becomes of the connections that a process still has when it stops accepting. One that waits between two requests moves
// to the successor at once, a busy one when its response is finished and before its next request is read; what cannot move
// (TLS, HTTP/2, upgraded sockets, a listener that the successor does not have) is asked to end, and at the deadline cut and
// counted. An idle connection that cannot move is left to its own timeout: closing it at once lost 184 of 10,700 requests at
// 50 ms round trip, as it crosses the client's next request.

import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { bytesMoved, detach, idleConnections, responseOf } from './internals.ts'
import type { Listener, Session } from './listeners.ts'

/** Where connections go. */
export interface Destination {
  /** whether it has the listener of this key; what it lacks is drained here */
  has(key: string): boolean
  /** Resolves to false where it could not be given, and then it is closed. `idleMs` as in the message `connection`. */
  give(key: string, socket: Socket, idleMs: number | null): Promise<boolean>
}

export interface Drained {
  moved: number
  cut: number
}

export interface DrainLimits {
  /** what has not ended by then, and moves no bytes, is cut */
  drainMs: number
  /** a response that still moves bytes then may take twice its age, at most this */
  drainMaxMs: number
}

// Node passes one handle at a time, about 1 ms each. While a socket waits for its turn nobody serves it, so only a few are
// detached at once and the rest go on being served here; but a response that took long would take as long again, and so its
// connection waits for its turn rather than begin another.
const AT_ONCE = 4
const LONG_RESPONSE_MS = 50
const PAUSE_MS = [1, 2, 5, 10, 20, 50] as const
/** a response without a byte for so long is silent */
const SILENT_MS = 5000
/** between the GOAWAY that lets requests under way come in and the one that names the last of them */
const GOAWAY_MS = 300

/** Moves and drains until nothing is left, the deadline has passed, or `signal` aborts (the successor is gone). */
export async function drain(
  listeners: Listener[],
  to: Destination,
  limits: DrainLimits,
  signal: AbortSignal,
): Promise<Drained> {
  const drained: Drained = { moved: 0, cut: 0 }
  const movable = listeners.filter((listener) => listener.movable && to.has(listener.key))
  const mover = makeMover(to, drained)
  const undo = listeners.map((listener) =>
    movable.includes(listener) ? moveWhenAnswered(listener, mover) : askToClose(listener),
  )
  const overdue = makeDeadline(listeners, limits)
  let idleRounds = 0
  try {
    while (!signal.aborted) {
      const before = drained.moved
      for (const listener of movable) await moveIdle(listener, mover, signal)
      if (signal.aborted || (mover.isIdle() && listeners.every(({ sockets }) => sockets.size === 0))) break
      for (const socket of overdue()) {
        socket.destroy()
        drained.cut++
      }
      if (drained.moved > before) idleRounds = 0
      await sleep(PAUSE_MS[Math.min(idleRounds++, PAUSE_MS.length - 1)])
    }
  } finally {
    for (const back of undo) back()
  }
  return drained
}

interface Mover {
  hasRoom(): boolean
  /** resolves when nothing is on its way */
  empty(): Promise<void>
  isIdle(): boolean
  /** Detaches and sends it, in its turn. Only for one that is idle in this very tick. */
  move(listener: Listener, socket: Socket): void
}

function makeMover(to: Destination, drained: Drained): Mover {
  const waiting: (() => Promise<void>)[] = []
  const onTheirWay = new Set<Promise<void>>()
  const taken = new WeakSet<Socket>()
  const next = () => {
    while (onTheirWay.size < AT_ONCE) {
      const send = waiting.shift()
      if (send === undefined) return
      const sent: Promise<void> = send().finally(() => {
        onTheirWay.delete(sent)
        next()
      })
      onTheirWay.add(sent)
    }
  }
  return {
    hasRoom: () => onTheirWay.size < AT_ONCE,
    isIdle: () => onTheirWay.size === 0,
    async empty() {
      while (onTheirWay.size > 0) await Promise.race(onTheirWay)
    },
    move(listener, socket) {
      if (taken.has(socket)) return // Node lists it as idle until it is sent
      const detached = detach(socket)
      if (detached === null) return
      taken.add(socket)
      listener.sockets.delete(socket)
      const since = performance.now()
      waiting.push(async () => {
        // what it has waited for its turn is gone from its idle time
        const waited = Math.round(performance.now() - since)
        const idleMs = detached.idleMs === null || detached.idleMs === 0 ? detached.idleMs : detached.idleMs - waited
        const given = await to.give(listener.key, socket, idleMs === null || idleMs >= 0 ? idleMs : 1)
        if (given) drained.moved++
        else drained.cut++
      })
      next()
    },
  }
}

async function moveIdle(listener: Listener, mover: Mover, signal: AbortSignal): Promise<void> {
  const server = listener.server as HttpServer
  for (const few of chunks(idleConnections(server, listener.sockets), AT_ONCE)) {
    await mover.empty()
    if (signal.aborted) return
    // Chosen a moment ago, and other chunks were sent since: look again in the tick in which they are detached.
    const still = new Set(idleConnections(server, few))
    for (const socket of few) if (still.has(socket)) mover.move(listener, socket)
  }
  await mover.empty()
}

/** From now on a connection moves in the tick in which its response is finished. Returns how to take that back. */
function moveWhenAnswered(listener: Listener, mover: Mover): () => void {
  const server = listener.server as HttpServer
  let isOn = true
  const follow = (response: ServerResponse, socket: Socket) => {
    response.once('finish', () => {
      const isLong = Date.now() - (listener.busySince.get(socket) ?? 0) >= LONG_RESPONSE_MS
      if (!isOn || !(isLong || mover.hasRoom())) return
      if (idleConnections(server, [socket]).includes(socket)) mover.move(listener, socket)
    })
  }
  const heard = ({ socket }: IncomingMessage, response: ServerResponse) => follow(response, socket)
  server.prependListener('request', heard)
  for (const socket of listener.sockets) {
    const response = responseOf(socket)
    if (response !== null) follow(response, socket)
  }
  return () => {
    isOn = false
    server.off('request', heard)
  }
}

/** Which connections are to be cut now. A response that moves bytes is given more time than one that is silent. */
function makeDeadline(listeners: Listener[], { drainMs, drainMaxMs }: DrainLimits): () => Socket[] {
  const began = Date.now()
  const last = new Map<Socket, { bytes: number; at: number }>()
  return () => {
    const now = Date.now()
    const overdue: Socket[] = []
    for (const { sockets, busySince, sessions } of listeners) {
      for (const socket of sockets) {
        const bytes = bytesMoved(socket)
        const before = last.get(socket)
        const at = before?.bytes === bytes ? before.at : now
        last.set(socket, { bytes, at })
        if (now - began < drainMs) continue
        const isAnswering = responseOf(socket) !== null || sessions.size > 0
        const isMoving = isAnswering && now - at < Math.min(SILENT_MS, Math.max(drainMs, 1))
        const ageMs = began + drainMs - (busySince.get(socket) ?? began)
        const longest = Math.min(drainMaxMs, Math.max(drainMs, 2 * ageMs))
        if (!isMoving || now - began >= longest) overdue.push(socket)
      }
    }
    return overdue
  }
}

/** From now on every response ends its connection, and HTTP/2 sessions are told to go away. Returns how to take that back. */
export function askToClose({ server, sessions }: Listener): () => void {
  const lastResponse = (_request: unknown, response: ServerResponse) => {
    if (!response.headersSent && response.req.httpVersionMajor < 2) response.setHeader('Connection', 'close')
  }
  const goAway = (session: Session) => {
    // RFC 9113, 6.8: first the largest number, so that what is under way is still taken, and later the last one taken
    session.goaway(0, 2 ** 31 - 1)
    setTimeout(() => session.close(), GOAWAY_MS).unref()
  }
  server.prependListener('request', lastResponse)
  server.on('session', goAway)
  for (const session of sessions) goAway(session)
  return () => {
    server.off('request', lastResponse)
    server.off('session', goAway)
  }
}

/** A process that stops for good has nobody to give them to: what waits between two requests is closed. */
export function closeIdle({ server, sockets, movable }: Listener): void {
  if (movable) for (const socket of idleConnections(server as HttpServer, sockets)) socket.destroy()
  else if ('closeIdleConnections' in server) (server as HttpServer).closeIdleConnections()
}

function* chunks<T>(items: T[], size: number): Generator<T[]> {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size)
}
