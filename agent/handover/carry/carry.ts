// Connections in the middle of something: a WebSocket, or a response that is being streamed. The author registers one with
// `agent.carry()`. At a switch the connection leaves this process between two messages. The successor gets the request that began
// it, the bytes that are not read yet, and the author's own state. Here they are registered; `hand-on.ts` gives one to the successor, and
// `replay.ts` is the successor's half.
// Must hold: only one process has a connection; after it has left, the author's code in this process sees no `close` event.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { BatonError } from '../../words/errors.ts'
import type { Entry } from './hand-on.ts'
import type { WebSocketLike } from './websocket.ts'
import { watchWrites } from './writes.ts'

export interface CarryOptions {
  /** the `ws` WebSocket that the request was upgraded to */
  ws?: WebSocketLike
  /** or the response that is being streamed, as server-sent events or chunks */
  response?: ServerResponse
  /**
   * Called once, at the moment of the switch. In the next process `carried(request)` gives what it returns (JSON, at most
   * STATE_MAX_BYTES). Remove the connection from your own lists here: from now on it belongs to the successor.
   */
  state?: () => unknown
}

export interface Carries {
  /** From now on a switch carries the connection of `request` over. Throws BatonError invalid_settings for wrong options. */
  carry(request: IncomingMessage, options: CarryOptions): void
  /** What the author's `state()` returned in the predecessor for this request; undefined if the request was not carried. */
  carried(request: IncomingMessage): unknown
  /** the connections that may be carried now */
  entries(): ReadonlyMap<Socket, Entry>
  /** in the successor: what belongs to the request that comes next on `socket` */
  expect(socket: Socket, arrival: Arrival): void
}

/** A connection that the predecessor has given. */
export interface Arrival {
  /** the author's, in the predecessor */
  state?: unknown
  /** Called when this process's author has registered it. */
  begins(entry: Entry): void
}

const nothing = () => undefined

export function makeCarries(warn: (message: string) => void): Carries {
  const entries = new Map<Socket, Entry>()
  const expected = new WeakMap<Socket, Arrival>()
  const arrived = new WeakMap<IncomingMessage, Arrival>()
  const told = new Set<string>()

  const arrivalOf = (request: IncomingMessage): Arrival | undefined => {
    const arrival = expected.get(request.socket)
    if (arrival === undefined) return arrived.get(request)
    expected.delete(request.socket)
    arrived.set(request, arrival)
    return arrival
  }
  const tellIfNever = async (entry: Entry): Promise<void> => {
    if (told.has(entry.kind)) return
    const why = (await import('./hand-on.ts')).whyNever(entry)
    if (why === null || told.has(entry.kind)) return
    told.add(entry.kind)
    const [what, becomes] = entry.ws === null ? ['response', 'closed'] : ['WebSocket', 'closed with 1012']
    warn(`a ${what} cannot be kept open across a switch: ${why}; it will be ${becomes}`)
  }

  return {
    carry: (request, options) => {
      const known = entries.get(request.socket)
      if (known?.request === request && known.ws === (options.ws ?? null)) {
        known.state = options.state ?? nothing // registered anew
        return
      }
      const entry = makeEntry(request, options)
      const arrival = arrivalOf(request)
      tellIfNever(entry).catch(() => {}) // npm may have replaced the package's files
      if (entry.response?.writableFinished === true) return
      register(entries, entry)
      arrival?.begins(entry)
    },
    carried: (request) => arrivalOf(request)?.state,
    entries: () => entries,
    expect: (socket, arrival) => void expected.set(socket, arrival),
  }
}

/** Registers it until its connection or its response ends: one connection has many responses, one after the other. */
function register(entries: Map<Socket, Entry>, entry: Entry): void {
  const { socket, response } = entry
  entries.set(socket, entry)
  entry.forget = () => {
    socket.off('close', entry.forget)
    response?.off('finish', entry.forget)
    if (entries.get(socket) === entry) entries.delete(socket) // a request pipelined behind it may have taken its slot
  }
  socket.once('close', entry.forget)
  response?.once('finish', entry.forget)
}

function makeEntry(request: IncomingMessage, { ws, response, state }: CarryOptions): Entry {
  const refused = (what: string) => new BatonError('invalid_settings', `carry: expected ${what}`)
  if ((ws === undefined) === (response === undefined)) throw refused('either `ws` or `response`')
  const entry: Entry = {
    kind: ws === undefined ? 'stream' : 'websocket',
    socket: request.socket,
    request,
    ws: ws ?? null,
    response: response ?? null,
    state: state ?? nothing,
    readAtStart: null,
    passesOn: response === undefined ? () => true : watchWrites(response),
    stays: null,
    forget: () => {},
  }
  const note = () => (entry.readAtStart = request.socket.bytesRead)
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (request.readableEnded || (length === '0' && coding === undefined)) note()
  else request.once('end', note)
  return entry
}
