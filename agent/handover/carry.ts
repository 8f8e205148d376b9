// Connections in the middle of something: a WebSocket, a response that is being streamed. The author registers one with
// `agent.carry()`; at a switch it is taken out of this process between two messages, and told to the successor as the request
// that began it, the bytes that nobody has read yet, and the author's own state. `replay.ts` is the other half.
// Must hold: a connection is either here or told, never both; the author of this process never hears that it has "closed".

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { BatonError, reasonOf } from '../errors.ts'
import { descriptorOf, isHalfRead, isWritten, letGoOf, stopReading } from './internals.ts'
import type { CarryMessage } from './messages.ts'
import {
  agreementOf,
  isAtRest,
  isInCompressedFragments,
  letGo,
  unreadOf,
  whyNotCarried,
  type WebSocketLike,
} from './websocket.ts'

export interface CarryOptions {
  /** the `ws` WebSocket that the request was upgraded to */
  ws?: WebSocketLike
  /** or the response that is being streamed: server-sent events, chunks */
  response?: ServerResponse
  /**
   * Asked once, at the moment of the switch. What it returns (JSON, at most STATE_MAX_BYTES) is what `carried(request)` gives
   * in the next process. Take the connection out of your own lists here: from now on it belongs to the successor.
   */
  state?: () => unknown
}

export interface Carries {
  /** From now on the connection of `request` is carried over at a switch. Throws BatonError invalid_settings for what can never be. */
  carry(request: IncomingMessage, options: CarryOptions): void
  /** The state that came along, or undefined for a request that begins here. */
  carried(request: IncomingMessage): unknown
  /** what may be carried now */
  entries(): ReadonlyMap<Socket, Entry>
  /** in the successor: what came along for the connection that will ask next on `socket` */
  expect(socket: Socket, message: CarryMessage): void
  /** in the successor: what the author of the predecessor has sent since */
  late(id: number, data: string | Buffer | null): void
}

export interface Entry {
  readonly kind: 'websocket' | 'stream'
  readonly socket: Socket
  readonly request: IncomingMessage
  readonly ws: WebSocketLike | null
  readonly response: ServerResponse | null
  readonly state: () => unknown
  /** bytes that had been read when the request was complete: more means that something else was asked behind it */
  readAtStart: number | null
  /** takes it off the list of what may be carried */
  forget(): void
}

export const STATE_MAX_BYTES = 64 * 1024
export const HEAD_MAX_BYTES = 64 * 1024
/** of a message that has not arrived whole */
export const UNREAD_MAX_BYTES = 16 * 1024 * 1024
const LATE_MAX = 1000
/** belong to a body that has arrived already */
const OF_THE_BODY = /^(content-length|transfer-encoding|expect)$/i

export function makeCarries(warn: (message: string) => void): Carries {
  const entries = new Map<Socket, Entry>()
  const expected = new WeakMap<Socket, CarryMessage>()
  const arrived = new WeakMap<IncomingMessage, CarryMessage>()
  const targets = new Map<number, Entry | { waiting: (string | Buffer | null)[] }>()
  let isToldWhy = false

  const messageOf = (request: IncomingMessage): CarryMessage | undefined => {
    const message = expected.get(request.socket)
    if (message === undefined) return arrived.get(request)
    expected.delete(request.socket)
    arrived.set(request, message)
    return message
  }

  return {
    carry: (request, options) => {
      const entry = makeEntry(request, options)
      const message = messageOf(request)
      const why = entry.ws === null ? null : whyNotCarried(entry.ws)
      if (why !== null) {
        if (!isToldWhy) warn(`a WebSocket cannot be carried over a switch: ${why}; it will be closed with 1012`)
        isToldWhy = true
      }
      entries.set(entry.socket, entry)
      entry.forget = () => {
        entries.delete(entry.socket)
        if (message !== undefined) targets.delete(message.id)
      }
      entry.socket.once('close', entry.forget)
      entry.response?.once('finish', entry.forget)
      if (message === undefined) return
      const before = targets.get(message.id)
      targets.set(message.id, entry)
      if (before !== undefined && 'waiting' in before) for (const data of before.waiting) send(entry, data)
    },
    carried: (request) => messageOf(request)?.state,
    entries: () => entries,
    expect: (socket, message) => {
      expected.set(socket, message)
      targets.set(message.id, { waiting: [] })
      socket.once('close', () => targets.delete(message.id))
    },
    late: (id, data) => {
      const target = targets.get(id)
      if (target === undefined) return
      if (!('waiting' in target)) send(target, data)
      else if (target.waiting.length < LATE_MAX) target.waiting.push(data)
    },
  }
}

/** Whether the connection stands between two messages right now: nothing of it is on its way through this process. */
export function isCalm({ socket, request, ws, response, readAtStart }: Entry): boolean {
  if (!isWritten(socket)) return false
  if (ws !== null) return isAtRest(ws)
  return (
    response !== null &&
    response.headersSent &&
    !response.writableEnded &&
    response.writableLength === 0 &&
    request.complete &&
    readAtStart === socket.bytesRead &&
    !isHalfRead(socket, request)
  )
}

/** Why it can never be carried, for people; null where waiting may help. */
export function whyNever({ ws, request }: Entry): string | null {
  if (headOf(request).length > HEAD_MAX_BYTES) return `its request has more than ${HEAD_MAX_BYTES} bytes`
  return ws === null ? null : whyNotCarried(ws)
}

/** A WebSocket that is never quiet is made so: what has been read is worked off, and nothing more is read. Takes that back. */
export function calmDown({ ws }: Entry): void {
  if (ws === null || ws.readyState !== 1) return
  if (isInCompressedFragments(ws)) ws.resume()
  else ws.pause()
}

export function wakeUp({ ws }: Entry): void {
  if (ws !== null && ws.readyState === 1) ws.resume()
}

/**
 * Gives a calm connection to the successor, in one tick: nothing of it is read here any more, and the author's sends go to
 * `forward`. False where the successor cannot take it: then the author was not asked for anything. Throws where the author's
 * state is not usable: it is still here, but its author may think that it has left.
 */
export function handOn(
  entry: Entry,
  give: (message: () => CarryMessage, descriptors: number[]) => boolean,
  { id, listener }: { id: number; listener: string },
  forward: (data: string | Buffer | null) => void,
): boolean {
  const { kind, socket, request, ws, response } = entry
  const fd = descriptorOf(socket)
  if (fd === null) return false
  const messageOf = (): CarryMessage => {
    const state = stateOf(entry.state)
    stopReading(socket)
    const unread = ws === null ? Buffer.alloc(0) : unreadOf(ws, socket) // from here on only the successor can read on
    if (unread.length > UNREAD_MAX_BYTES) throw new Error(`expected at most ${UNREAD_MAX_BYTES} unread bytes`)
    const agreement = ws === null ? framingOf(response) : agreementOf(ws)
    const head = headOf(request)
    return { type: 'carry', id, listener, kind, request: head, unread: unread.toString('base64'), agreement, state }
  }
  if (!give(messageOf, [fd])) return false
  entry.forget()
  if (ws !== null) letGo(ws, (data, isBinary) => forward(isBinary ? asBuffer(data) : String(data)))
  if (response !== null) divert(response, forward)
  letGoOf(socket, response)
  return true
}

/** How a response is framed: the successor must go on in the same way. */
export function framingOf(response: ServerResponse | null): string {
  if (response === null) return ''
  const length = response.getHeader('content-length')
  return length === undefined ? (response.chunkedEncoding ? 'chunked' : 'until closed') : `${String(length)} bytes`
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
    state: state ?? (() => undefined),
    readAtStart: null,
    forget: () => {},
  }
  const note = () => (entry.readAtStart = request.socket.bytesRead)
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (request.readableEnded || (length === '0' && coding === undefined)) note()
  else request.once('end', note)
  return entry
}

/** As it will arrive. Throws where it is not JSON, or too large. */
function stateOf(state: () => unknown): unknown {
  let text: string | undefined
  try {
    text = JSON.stringify(state())
  } catch (cause) {
    throw new Error(`asking for its state: ${reasonOf(cause)}`, { cause })
  }
  if (text !== undefined && Buffer.byteLength(text) > STATE_MAX_BYTES) {
    throw new Error(`expected a state of at most ${STATE_MAX_BYTES} bytes, got ${Buffer.byteLength(text)}`)
  }
  return text === undefined ? undefined : (JSON.parse(text) as unknown)
}

/** The head that began it, as the client may have written it, without what belongs to a body. */
function headOf({ method = 'GET', url = '/', httpVersion, rawHeaders }: IncomingMessage): string {
  const lines = [`${method} ${url} HTTP/${httpVersion}`]
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ''
    if (!OF_THE_BODY.test(name)) lines.push(`${name}: ${rawHeaders[at + 1] ?? ''}`)
  }
  return `${lines.join('\r\n')}\r\n\r\n`
}

function divert(response: ServerResponse, forward: (data: string | Buffer | null) => void): void {
  const callbackIn = (rest: unknown[]) =>
    rest.findLast((value) => typeof value === 'function') as (() => void) | undefined
  const pass = (data: unknown) => {
    if (typeof data === 'string') forward(data)
    else if (data instanceof Uint8Array) forward(asBuffer(data))
  }
  response.write = (data: unknown, ...rest: unknown[]): boolean => {
    pass(data)
    const written = callbackIn(rest)
    if (written !== undefined) process.nextTick(written)
    return true
  }
  response.end = (data?: unknown, ...rest: unknown[]): ServerResponse => {
    pass(data)
    forward(null)
    const ended = callbackIn([data, ...rest])
    if (ended !== undefined) process.nextTick(ended)
    return response
  }
}

function send({ ws, response }: Entry, data: string | Buffer | null): void {
  if (ws !== null && data !== null) ws.send(data)
  if (response === null) return
  if (data === null) response.end()
  else response.write(data)
}

function asBuffer(data: unknown): Buffer {
  if (Buffer.isBuffer(data)) return data
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  return data instanceof ArrayBuffer ? Buffer.from(data) : Buffer.from(String(data))
}
