// What happens to the connections that a process still has when it stops accepting. A connection between two requests moves to
// the successor at once. A busy one moves when its response is finished, before its next request is read. One that cannot move
// (TLS, HTTP/2, upgraded sockets, a listener that the successor does not have) is asked to end, and at the deadline cut and
// counted. An idle connection that cannot move is left to its own timeout: closing it at once lost 184 of 10,700 requests at
// 50 ms round trip, because the close crosses the client's next request.

import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { askToClose } from '../../sockets/closing.ts'
import { reasonOf } from '../../words/errors.ts'
import type { Carries } from '../carry/carry.ts'
import { endWebSocket, followWebSockets, REASON, SERVICE_RESTART, whenOut } from '../carry/close-frame.ts'
import { calmDown, type Entry, isCalm, wakeUp, whyNever, whyNotCalm } from '../carry/hand-on.ts'
import type { HandoverReport } from '../../words/state.ts'
import type { Giving } from './giving.ts'
import { breakOff, bytesMoved, idleConnections } from '../../sockets/internals-moving.ts'
import { isQuiet, responseOf } from '../../sockets/internals.ts'
import { DESCRIPTORS_MAX } from '../../sockets/packets.ts'
import { framingOf, isOfEvents } from '../carry/stream.ts'
import { isEndless, isNamedEndless } from './endless.ts'
import { isWebSocket } from '../carry/upgrades.ts'
import { type Listener, uptimeMs } from '../../sockets/listeners.ts'

export interface DrainLimits {
  /** after this, a connection that moves no bytes is cut */
  drainMs: number
  /** a response that still moves bytes then may take up to twice its age, but at most this */
  drainMaxMs: number
}

// After a response this long, the next one may take as long: the connection moves when the response ends, even without room.
const LONG_RESPONSE_MS = 50
const PAUSE_MS = [1, 2, 5, 10, 20, 50] as const
/** how many registered connections are calmed at the same time, and how long to wait for each before another one is tried */
const [CARRIED_AT_ONCE, CALM_MS] = [32, 500]
/** how long a client may take to end a connection that is cut, and how many such periods it gets while bytes still move */
const [CLOSING_MS, CLOSING_TURNS] = [1000, 4]
/** how long the clients of ended connections may take to agree, and to read what was written to them before */
export const AGREE_MS = 250
const READ_MS = 1000
/** how long the connections of a server that is not HTTP may take to end after `onDrain` */
export const PLAIN_MS = 1000
/** a response that moves no byte for this long is silent */
const SILENT_MS = 5000
/** bounds of the reasons in the report, which is kept with the operation */
const [REASONS_MAX, REASON_MAX_CHARS] = [10, 300]

/** the counts of closed connections */
export type Ends = Pick<HandoverReport, 'ended' | 'cut'>

export interface DrainOptions {
  listeners: readonly Listener[]
  giving: Giving
  carries: Carries
  limits: DrainLimits
  report: Ends & Pick<HandoverReport, 'reasons'>
  /** called with why a connection was not carried; once for each reason */
  warn: (message: string) => void
  /** aborts when the successor is gone */
  signal: AbortSignal
}

/**
 * Moves or carries each connection, or lets it end, until none is left or `signal` aborts. Cuts each one that is past its own
 * deadline (`DrainLimits`).
 */
export async function drain(options: DrainOptions): Promise<void> {
  const { listeners, giving, carries, limits, signal } = options
  const said = new Set<string>()
  const warn = (why: string) => {
    if (said.has(why)) return
    said.add(why)
    options.warn(`a connection was closed instead of being handed over: ${why}`)
    const reasons = (options.report.reasons ??= [])
    if (reasons.length < REASONS_MAX) reasons.push(why.slice(0, REASON_MAX_CHARS))
  }
  const movable = listeners.filter((listener) => listener.movable && giving.has(listener.key))
  const undo = listeners.map((listener) =>
    movable.includes(listener) ? moveWhenAnswered(listener, giving) : askToClose(listener),
  )
  followWebSockets(listeners, carries)
  const overdue = makeDeadline(listeners, carries, limits)
  const carrier = makeCarrier(movable, giving, carries, options.report, warn)
  const pace = { atOnce: 1 }
  let idleRounds = 0
  try {
    while (!signal.aborted) {
      let given = carrier.look(signal)
      for (const why of giving.refusals()) warn(why)
      for (const listener of movable) given += await moveIdle(listener, giving, signal, pace)
      if (signal.aborted || (giving.isEmpty() && listeners.every(({ sockets }) => sockets.size === 0))) break
      for (const socket of overdue()) {
        const entry = carries.entries().get(socket)
        if (entry !== undefined && !ending.has(socket)) warn(whyLeft(entry, movable))
        cut(socket, carries, options.report)
      }
      if (given > 0) idleRounds = 0
      await sleep(PAUSE_MS[Math.min(idleRounds++, PAUSE_MS.length - 1)])
    }
  } finally {
    carrier.stop()
    for (const why of giving.refusals()) warn(why)
    for (const back of undo) back()
  }
}

/** connections that this process is ending: each is counted once, and waited for */
const ending = new WeakSet<Socket>()

/** Why a registered connection is still here at the deadline. */
function whyLeft(entry: Entry, movable: readonly Listener[]): string {
  if (!movable.some(({ sockets }) => sockets.has(entry.socket)))
    return 'its listener cannot be handed over (TLS, HTTP/2)'
  return whyNever(entry) ?? whyNotCalm(entry) ?? 'the new process took too long'
}

/**
 * Ends a connection. A WebSocket gets a close frame and is read until its client agrees: closing with unread bytes would reset the
 * connection, and the client would never see the frame. Any other connection just ends, in a way that its client notices. Counts it
 * as `cut`, or as `ended` if its client reconnects by itself.
 */
export function cut(socket: Socket, carries: Carries, report: Ends): void {
  if (ending.has(socket)) return
  ending.add(socket)
  report.cut++
  const comesBack = () => {
    report.cut--
    report.ended++
  }
  destroyLater(socket)
  const entry = carries.entries().get(socket)
  if (entry?.ws?.readyState !== 1) {
    if (endWebSocket(socket, comesBack)) return
    if (entry === undefined && isEndless(socket)) comesBack()
    return endsOnlyByItsEnd(socket) ? breakOff(socket) : socket.destroySoon()
  }
  entry.forget()
  entry.ws.resume()
  entry.ws.close(SERVICE_RESTART, REASON)
  whenOut(socket, (...args) => Reflect.apply(socket.write, socket, args), comesBack)
}

/** Whether the end of a connection, `sinceMs` ago, is waited for. */
export function mayStillAgree({ destroyed, writableLength }: Socket, sinceMs: number): boolean {
  return !destroyed && sinceMs < (writableLength > 0 ? READ_MS : AGREE_MS)
}

/** Destroys a connection whose client does not read or does not agree to end. A client that still reads gets more time. */
function destroyLater(socket: Socket, turns = CLOSING_TURNS): void {
  const moved = bytesMoved(socket)
  const look = () => {
    if (turns === 0 || bytesMoved(socket) === moved) socket.destroy()
    else destroyLater(socket, turns - 1)
  }
  setTimeout(look, CLOSING_MS).unref()
}

/** Whether a client would mistake the part of the body that it has for the whole body. */
function endsOnlyByItsEnd(socket: Socket): boolean {
  const response = responseOf(socket)
  return response !== null && response.headersSent && framingOf(response) === 'until closed'
}

/**
 * Gives all connections between two requests, some at a time, while this process serves the rest. Resolves to their number. `pace`: slow
 * first, for both processes run this code once in their lives: one connection, then twice as many once those are adopted, and so on.
 */
export async function moveIdle(
  listener: Listener,
  giving: Giving,
  signal: AbortSignal,
  pace: { atOnce: number } = { atOnce: DESCRIPTORS_MAX },
): Promise<number> {
  let given = 0
  const idle = idleConnections(listener.server as HttpServer, listener.sockets).map((socket) => ({
    socket,
    bytesRead: socket.bytesRead,
  }))
  for (let from = 0; from < idle.length;) {
    const { atOnce } = pace
    const isSlow = atOnce < DESCRIPTORS_MAX
    while (!(isSlow ? giving.isEmpty() : giving.hasRoom()) && !signal.aborted) await giving.changed()
    if (isSlow) await nextTurn()
    if (signal.aborted) return given
    // Other connections were given since these were chosen: check these again in the tick in which they are given.
    const still = idle
      .slice(from, from + atOnce)
      .filter(({ socket, bytesRead }) => socket.bytesRead === bytesRead && isQuiet(socket))
      .map(({ socket }) => socket)
    if (still.length > 0 && giving.move(listener, still)) given += still.length
    from += atOnce
    pace.atOnce = Math.min(DESCRIPTORS_MAX, atOnce * 2)
  }
  return given
}

/** From now on a connection moves in the tick in which its response finishes. Returns a function that undoes this. */
export function moveWhenAnswered(listener: Listener, giving: Giving): () => void {
  const server = listener.server as HttpServer
  let isOn = true
  const follow = (response: ServerResponse, socket: Socket) => {
    response.once('finish', () => {
      const isLong = uptimeMs() - (listener.busySince.get(socket) ?? 0) >= LONG_RESPONSE_MS
      if (!isOn || !(isLong || giving.hasRoom())) return
      if (idleConnections(server, [socket]).includes(socket)) giving.move(listener, [socket])
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

interface Carrier {
  /** Starts to carry the registered connections, a few at a time. Returns how many were given since the last call. */
  look(signal: AbortSignal): number
  stop(): void
}

/** Carries the connections that the author has registered, each as soon as it is between two messages. */
export function makeCarrier(
  listeners: readonly Listener[],
  giving: Giving,
  carries: Carries,
  report: Ends,
  warn: (why: string) => void,
): Carrier {
  const busy = new Set<Entry>()
  let given = 0
  let isOver = false
  const attempt = async (listener: Listener, entry: Entry): Promise<void> => {
    const until = performance.now() + CALM_MS
    while (!isOver && carries.entries().get(entry.socket) === entry) {
      const calm = isCalm(entry)
      if (calm && giving.hasRoom()) {
        if (!giving.carry(listener, entry)) break
        given++
        return
      }
      if (performance.now() > until) break
      if (!calm) calmDown(entry)
      await sleep(1)
    }
    wakeUp(entry)
  }
  return {
    look: (signal) => {
      for (const entry of carries.entries().values()) {
        if (busy.size >= CARRIED_AT_ONCE || signal.aborted) break
        const listener = listeners.find(({ sockets }) => sockets.has(entry.socket))
        if (busy.has(entry) || listener === undefined) continue
        const never = whyNever(entry)
        if (never !== null) {
          if (entry.response !== null && !isOfEvents(entry.response)) continue // it may end before the deadline
          warn(never)
          cut(entry.socket, carries, report)
          continue
        }
        busy.add(entry)
        void attempt(listener, entry).then(
          () => busy.delete(entry),
          (cause: unknown) => {
            busy.delete(entry)
            if (entry.stays !== null) return
            // the author's state cannot be used
            warn(reasonOf(cause))
            cut(entry.socket, carries, report)
          },
        )
      }
      const since = given
      given = 0
      return since
    },
    stop: () => {
      isOver = true
    },
  }
}

/** Returns a function that lists the connections to cut now. A response that moves bytes gets more time than a silent one. */
function makeDeadline(
  listeners: readonly Listener[],
  carries: Carries,
  { drainMs, drainMaxMs }: DrainLimits,
): () => Socket[] {
  const began = uptimeMs()
  const last = new Map<Socket, { bytes: number; at: number }>()
  /** when an endless connection that its author has not registered has to end, in `uptimeMs()` */
  const ends = new WeakMap<Socket, number>()
  return () => {
    const now = uptimeMs()
    const overdue: Socket[] = []
    for (const { sockets, busySince, sessions, isHttp } of listeners) {
      for (const socket of sockets) {
        // These would last for ever. Spread their ends: their clients reconnect at once.
        if ((isWebSocket(socket) || isNamedEndless(socket)) && !carries.entries().has(socket)) {
          const end = ends.get(socket) ?? now + Math.random() * (began + drainMs - now)
          ends.set(socket, end)
          if (now >= end) overdue.push(socket)
          continue
        }
        const bytes = bytesMoved(socket)
        const before = last.get(socket)
        const at = before?.bytes === bytes ? before.at : now
        last.set(socket, { bytes, at })
        // nobody can ask the client of another protocol to end: `onDrain` has, if its author knows how
        if (now - began < (isHttp ? drainMs : Math.min(drainMs, PLAIN_MS))) continue
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
