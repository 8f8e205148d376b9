// Connections in the middle of something: a WebSocket, or a response that is being streamed. The author registers one with
// `agent.carry()`. At a switch the connection leaves this process between two messages. The successor gets the request that began
// it, the bytes that are not read yet, and the author's own state. `replay.ts` is the successor's half.
// Must hold: only one process has a connection; after it has left, the author's code in this process sees no `close` event.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { BatonError } from '../../words/errors.ts'
import type { CarryMessage } from '../../words/wire.ts'
import * as stream from './stream.ts'
import * as websocket from './websocket.ts'
import type { WebSocketLike } from './websocket.ts'

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
  /** in the successor: `message` belongs to the request that comes next on `socket`; `refuse` ends the connection */
  expect(socket: Socket, message: CarryMessage, refuse: (why: string) => void): void
  /** in the successor: what the predecessor's author has sent since; null: the author has ended the response */
  late(id: number, data: string | Buffer | null): void
}

export interface Entry {
  readonly kind: 'websocket' | 'stream'
  readonly socket: Socket
  readonly request: IncomingMessage
  readonly ws: WebSocketLike | null
  readonly response: ServerResponse | null
  state: () => unknown
  /** bytes that had been read when the request was complete; more means that another request came behind it */
  readAtStart: number | null
  /** whether everything that was written to a response reached the connection at once; see `watchWrites` */
  passesOn(): boolean
  /** why it stays in this process to its end, found on the attempt to hand it on; null: it does not */
  stays: string | null
  /** removes it from `entries()` */
  forget(): void
}

export const HEAD_MAX_BYTES = 64 * 1024
/** of what the predecessor sends before the successor's handler has registered the connection */
const LATE_MAX_BYTES = 16 * 1024 * 1024
/** headers that belong to a body that has arrived already */
const OF_THE_BODY = /^(content-length|transfer-encoding|expect)$/i

const nothing = () => undefined

export function makeCarries(warn: (message: string) => void): Carries {
  const entries = new Map<Socket, Entry>()
  const expected = new WeakMap<Socket, CarryMessage>()
  const arrived = new WeakMap<IncomingMessage, CarryMessage>()
  const targets = new Map<number, Entry | Waiting>()
  const told = new Set<string>()

  const messageOf = (request: IncomingMessage): CarryMessage | undefined => {
    const message = expected.get(request.socket)
    if (message === undefined) return arrived.get(request)
    expected.delete(request.socket)
    arrived.set(request, message)
    return message
  }

  return {
    carry: (request, options) => {
      const known = entries.get(request.socket)
      if (known?.request === request && known.ws === (options.ws ?? null)) {
        known.state = options.state ?? nothing // registered anew
        return
      }
      const entry = makeEntry(request, options)
      const message = messageOf(request)
      const why = whyNever(entry)
      if (why !== null && !told.has(entry.kind)) {
        told.add(entry.kind)
        const [what, becomes] = entry.ws === null ? ['response', 'closed'] : ['WebSocket', 'closed with 1012']
        warn(`a ${what} cannot be carried over a switch: ${why}; it will be ${becomes}`)
      }
      if (entry.response?.writableFinished === true) return
      register(entries, entry, () => message !== undefined && targets.delete(message.id))
      if (message === undefined) return
      // this process does not count the bytes that the predecessor has sent of the body
      if (entry.response !== null) entry.response.strictContentLength = false
      const before = targets.get(message.id)
      targets.set(message.id, entry)
      if (before !== undefined && 'waiting' in before) for (const data of before.waiting) send(entry, data)
    },
    carried: (request) => messageOf(request)?.state,
    entries: () => entries,
    expect: (socket, message, refuse) => {
      expected.set(socket, message)
      targets.set(message.id, { waiting: [], bytes: 0, refuse })
      socket.once('close', () => targets.delete(message.id))
    },
    late: (id, data) => {
      const target = targets.get(id)
      if (target === undefined) return
      if (!('waiting' in target)) return send(target, data)
      target.waiting.push(data)
      target.bytes += (data?.length ?? 0) + 64 // overhead of one entry
      if (target.bytes > LATE_MAX_BYTES) target.refuse(`more than ${LATE_MAX_BYTES} bytes came before its handler`)
    },
  }
}

/** Why it can never be carried, for people; null if it can, or if waiting may help. */
export function whyNever({ ws, response, request, stays }: Entry): string | null {
  if (stays !== null) return stays
  if (headOf(request).length > HEAD_MAX_BYTES) return `its request has more than ${HEAD_MAX_BYTES} bytes`
  if (ws !== null) return websocket.whyNotCarried(ws)
  return response === null ? null : stream.whyBodyStays(response)
}

interface Waiting {
  waiting: (string | Buffer | null)[]
  bytes: number
  refuse(why: string): void
}

/** Registers it until its connection or its response ends: one connection has many responses, one after the other. */
function register(entries: Map<Socket, Entry>, entry: Entry, forgotten: () => unknown): void {
  const { socket, response } = entry
  entries.set(socket, entry)
  entry.forget = () => {
    socket.off('close', entry.forget)
    response?.off('finish', entry.forget)
    if (entries.get(socket) === entry) entries.delete(socket) // a request pipelined behind it may have taken its slot
    forgotten()
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
    passesOn: response === undefined ? () => true : stream.watchWrites(response),
    stays: null,
    forget: () => {},
  }
  const note = () => (entry.readAtStart = request.socket.bytesRead)
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (request.readableEnded || (length === '0' && coding === undefined)) note()
  else request.once('end', note)
  return entry
}

/** The head of the request that began it, as the client may have written it, without the headers of a body. */
export function headOf(request: IncomingMessage): string {
  const { method = 'GET', url = '/', httpVersion, rawHeaders } = request
  // a router that is mounted on a path removes that path from `url` while its handlers run (Connect, Express)
  const { originalUrl } = request as { originalUrl?: unknown }
  const lines = [`${method} ${typeof originalUrl === 'string' ? originalUrl : url} HTTP/${httpVersion}`]
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ''
    if (!OF_THE_BODY.test(name)) lines.push(`${name}: ${rawHeaders[at + 1] ?? ''}`)
  }
  return `${lines.join('\r\n')}\r\n\r\n`
}

function send({ ws, response }: Entry, data: string | Buffer | null): void {
  if (ws !== null && data !== null) ws.send(data)
  // writing to a response that has ended or was destroyed would raise an unhandled error
  if (response === null || response.writableEnded || response.destroyed) return
  if (data === null) response.end()
  else response.write(data)
}
