// What becomes of the connections of a process that stops and has no successor to give them to: `docker stop`, a shutdown, a
// supervisor's stop. While new clients are still accepted, first every answer says that it is the last on its connection, then what has no
// end is ended. When nothing is accepted any more:
//
//   a request             is answered, within `drainMs`
//   what has no end       a WebSocket, a stream of events, an answer that the author names as endless or has registered. Its client comes
//                         back by itself, and may be slow to agree: nobody else waits for it. A WebSocket gets 1012, a stream ends between
//                         two events. One that has come meanwhile is ended now
//   between two requests  closed once its client has had time to ask again; if a request crosses that end, it is counted as lost
//   another protocol      closed PLAIN_MS after `onDrain`: only its author can ask such a client to end
//   never asked           closed NEVER_ASKED_MS after it was accepted: until then its request is on the way
//
// Must hold: no request is begun whose answer could not be read; what is lost is counted.

import { Server as HttpServer, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { askToClose } from '../../sockets/closing.ts'
import {
  descriptorOf,
  idleConnections,
  idleTimeLeft,
  isUpgraded,
  readOn,
  stopReading,
  streamsOf,
} from '../../sockets/internals-moving.ts'
import { responseOf } from '../../sockets/internals.ts'
import { type Listener, uptimeMs } from '../../sockets/listeners.ts'
import { hasUnread } from '../../sockets/packets.ts'
import { shutDoor } from '../../sockets/shut-door.ts'
import type { Carries } from '../carry/carry.ts'
import { followWebSockets } from '../carry/close-frame.ts'
import { isOfEvents } from '../carry/stream.ts'
import { isWebSocket } from '../carry/upgrades.ts'
import { cut, mayStillAgree, PLAIN_MS } from './connections.ts'
import { isEndless } from './endless.ts'
import { followEvents, isKnown, mayEndNow } from './events.ts'

export interface Farewell {
  /**
   * Makes every answer the last of its connection. Goes on accepting, so that no new client waits meanwhile. In the end the manager drops
   * what it holds.
   */
  announce(): Promise<void>
  /** Ends what has no end, and what comes while it does. Goes on accepting, so that no new client waits for those that are slow to agree. */
  endEndless(): Promise<void>
  /** Lets requests finish, and ends everything else. Call it when nothing is accepted any more. */
  finish(drainMs: number): Promise<Parted>
}

/** How the connections ended. */
export interface Parted {
  /** without an end of their own: asked to reconnect */
  ended: number
  /** closed between two requests */
  idle: number
  /** of these, those whose client sent a request in that moment: it was not begun */
  lost: number
  /** requests that had not ended after `drainMs`, and connections of a server that is not HTTP */
  cut: number
}

export interface FarewellOptions {
  listeners: readonly Listener[]
  carries: Carries
  /** whether another process holds the sockets: then new clients, if they were not accepted, would wait */
  isHeld: boolean
}

/** how long a connection without any request yet is spared */
const NEVER_ASKED_MS = 2000
/**
 * How long connections between two requests may ask while new clients are accepted, and at least. Node tells clients 5 s
 * (`Keep-Alive: timeout=5`), so whoever heeds that does not ask later. Where nobody holds the sockets a stop is a stop; where the author
 * has closed them, new clients wait.
 */
const [ASKED_HELD_MS, ASKED_MS] = [5000, 300]
const LOOK_EVERY_MS = 10

export function bidFarewell(options: FarewellOptions): Farewell {
  const { listeners, carries, isHeld } = options
  const state: State = {
    carries,
    since: uptimeMs(),
    idleSince: new Map(),
    endedAt: new Map(),
    parted: { ended: 0, idle: 0, lost: 0, cut: 0 },
  }
  const endlessNow = () => {
    for (const listener of listeners) follow(listener, carries)
    return new Set(listeners.flatMap((listener) => endlessOf(listener, carries)))
  }
  const left = () => listeners.flatMap(({ sockets }) => [...sockets].filter((socket) => isAwaited(socket, state)))
  return {
    async announce() {
      for (const listener of listeners) {
        askToClose(listener)
        follow(listener, carries)
      }
      const mayAsk = () => listeners.flatMap((listener) => between(listener).filter(hasAsked))
      const streams = listeners.flatMap(({ sockets }) => [...sockets].flatMap(streamOn))
      for (; ; await sleep(LOOK_EVERY_MS)) {
        const asked = mayAsk()
        for (const socket of asked) noteIdle(socket, state)
        const isAccepting = listeners.some(({ server }) => server.listening)
        if (asked.length === 0 && streams.every((one) => one.destroyed || isKnown(one))) break
        if (uptimeMs() - state.since >= (isHeld && isAccepting ? ASKED_HELD_MS : ASKED_MS)) break
      }
      await shutDoor(listeners)
    },
    async endEndless() {
      const first = endlessNow()
      for (let now = first; ; now = endlessNow()) {
        endNow([...now], state)
        // One that has ended by itself may be asked for something else. One that has come meanwhile is ended and not waited for: clients that
        // come back at once would keep this up for ever.
        const left = [...first].filter((socket) => now.has(socket) || state.endedAt.has(socket))
        if (!left.some((socket) => isAwaited(socket, state))) return
        await sleep(LOOK_EVERY_MS)
      }
    },
    async finish(drainMs) {
      const began = uptimeMs()
      const until = began + drainMs
      for (const listener of listeners) follow(listener, carries)
      for (; ; await sleep(LOOK_EVERY_MS)) {
        for (const listener of listeners) {
          endNow(endlessOf(listener, carries), state)
          endStreams(listener, state)
          endIdle(listener, state)
          if (!listener.isHttp && uptimeMs() - began >= PLAIN_MS) endNow([...listener.sockets], state, 'cut')
        }
        if (left().length === 0 || uptimeMs() >= until) break
      }
      const { cut: plain } = state.parted
      return { ...state.parted, cut: plain + left().filter((socket) => responseOf(socket) !== null).length }
    },
  }
}

interface State {
  carries: Carries
  /** in `uptimeMs()` */
  since: number
  /** since when this process has seen a connection between two requests, in `uptimeMs()` */
  idleSince: Map<Socket, number>
  /** when this process has ended a connection, in `uptimeMs()` */
  endedAt: Map<Socket, number>
  parted: Parted
}

function isAwaited(socket: Socket, { endedAt }: State): boolean {
  const at = endedAt.get(socket)
  return at === undefined ? !socket.destroyed : mayStillAgree(socket, uptimeMs() - at)
}

/** Each that may end now: a stream may not inside of an event. */
function endNow(
  sockets: readonly Socket[],
  { carries, endedAt, parted }: State,
  counts: 'ended' | 'cut' = 'ended',
): void {
  for (const socket of sockets) {
    if (endedAt.has(socket) || socket.destroyed || !streamOn(socket).every(mayEndNow)) continue
    endedAt.set(socket, uptimeMs())
    parted[counts]++
    cut(socket, carries, { ended: 0, cut: 0 })
  }
}

/** HTTP/2 has its own streams. */
function endStreams({ sessions }: Listener, { parted }: State): void {
  for (const stream of [...sessions].flatMap(streamsOf)) {
    if (stream.closed || !isEventStream(stream.sentHeaders?.['content-type'])) continue
    parted.ended++
    stream.close()
  }
}

/** Returns since when the connection is between two requests, as far as this process has looked. */
function noteIdle(socket: Socket, { idleSince }: State): number {
  const at = idleSince.get(socket) ?? uptimeMs()
  idleSince.set(socket, at)
  return at
}

function endIdle(listener: Listener, state: State): void {
  const { since, endedAt, parted } = state
  const now = uptimeMs()
  for (const socket of between(listener)) {
    const isLate = hasAsked(socket)
      ? now - noteIdle(socket, state) >= ASKED_MS
      : now - (listener.busySince.get(socket) ?? since) >= NEVER_ASKED_MS
    // on a busy machine a request may have arrived long before Node reads it
    if (!isLate || endedAt.has(socket) || hasUnread(descriptorOf(socket) ?? -1)) continue
    endedAt.set(socket, now)
    parted.idle++
    endBetween(socket, () => parted.lost++)
  }
  if (!listener.movable && now - since >= NEVER_ASKED_MS && 'closeIdleConnections' in listener.server)
    HttpServer.prototype.closeIdleConnections.call(listener.server as HttpServer)
}

/** From now on sees where its WebSockets are between two frames, and its streams between two events. */
function follow(listener: Listener, carries: Carries): void {
  followWebSockets([listener], carries)
  for (const socket of listener.sockets) for (const response of streamOn(socket)) followEvents(response)
}

/** The stream of events on this connection, if there is one. */
function streamOn(socket: Socket): ServerResponse[] {
  const response = responseOf(socket)
  return response !== null && isOfEvents(response) ? [response] : []
}

/** Only its author knows how to end a connection of a server that does not speak HTTP. */
function endlessOf({ sockets, movable, sessions }: Listener, carries: Carries): Socket[] {
  return [...sockets].filter((socket) => {
    if (carries.entries().has(socket) || isEndless(socket)) return true
    return isUpgraded(socket) && (movable || (sessions.size === 0 && isWebSocket(socket)))
  })
}

function isEventStream(type: unknown): boolean {
  return typeof type === 'string' && type.startsWith('text/event-stream')
}

/** Connections without a request in flight. */
function between({ server, sockets, movable }: Listener): Socket[] {
  return movable ? idleConnections(server as HttpServer, sockets) : []
}

function hasAsked(socket: Socket): boolean {
  return idleTimeLeft(socket) !== null
}

/** Ends a connection between two requests. A request that crosses the end is not begun: nobody could read its answer. */
function endBetween(socket: Socket, crossed: () => void): void {
  stopReading(socket)
  for (const event of ['data', 'end', 'timeout']) socket.removeAllListeners(event)
  socket.once('data', () => {
    crossed()
    socket.destroy()
  })
  socket.once('end', () => socket.destroy())
  socket.resume()
  readOn(socket)
  socket.end()
}
