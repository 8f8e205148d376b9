// Gives a registered connection to the successor. Loaded with the first one that an author registers; `carry.ts` keeps them.
// Must hold: a connection is given whole, in one tick, between two messages; or it stays.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { reasonOf } from '../../words/errors.ts'
import type { CarryMessage } from '../../words/wire.ts'
import { descriptorOf, isHalfRead, letGoOf, responseHead, stopReading } from '../../sockets/internals-moving.ts'
import { isWritten } from '../../sockets/internals.ts'
import * as stream from './stream.ts'
import * as frames from './frames.ts'
import { type WebSocketLike, whyNotCarried } from './websocket.ts'

/** A connection that an author has registered. */
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

export const STATE_MAX_BYTES = 64 * 1024
/** of a message that has not wholly arrived */
export const UNREAD_MAX_BYTES = 16 * 1024 * 1024
const HEAD_MAX_BYTES = 64 * 1024
/** headers that belong to a body that has arrived already */
const OF_THE_BODY = /^(content-length|transfer-encoding|expect)$/i

/** Why it can never be carried, for people; null if it can, or if waiting may help. */
export function whyNever({ ws, response, request, stays }: Entry): string | null {
  if (stays !== null) return stays
  if (headOf(request).length > HEAD_MAX_BYTES) return `its request headers are larger than ${HEAD_MAX_BYTES} bytes`
  if (ws !== null) return whyNotCarried(ws)
  return response === null ? null : stream.whyBodyStays(response)
}

/** Whether the connection is between two messages right now. */
export function isCalm(entry: Entry): boolean {
  return whyNotCalm(entry) === null
}

/** Why it cannot be carried now, although waiting may help; for people. Null if it can. */
export function whyNotCalm({ socket, request, ws, response, readAtStart, passesOn }: Entry): string | null {
  if (response !== null && !passesOn()) return 'middleware in the application buffers the response'
  if (!isWritten(socket)) return 'its client did not read everything that was sent'
  if (ws !== null) return frames.isAtRest(ws) ? null : 'it was in the middle of a message'
  if (response === null || !stream.isBodyAtRest(response, socket)) return 'its response was still being written'
  if (!request.complete || readAtStart === null) return 'its request body had not been read to the end'
  return readAtStart === socket.bytesRead && !isHalfRead(socket, request)
    ? null
    : 'another request followed on the same connection'
}

/** Calms a connection that is never quiet: stops reading until the application has caught up; sends a head that waits. */
export function calmDown({ socket, ws, response }: Entry): void {
  if (response !== null) stream.sendHead(response, socket)
  if (ws === null || ws.readyState !== 1) return
  if (frames.isInFragments(ws)) ws.resume()
  else ws.pause()
}

/** Undoes `calmDown`. */
export function wakeUp({ ws }: Entry): void {
  if (ws !== null && ws.readyState === 1) ws.resume()
}

/**
 * Gives a calm connection to the successor, in one tick. This process stops reading it, and the author's sends go to `forward`.
 * False if the successor cannot take it: then the author's `state()` was not called. Throws if the author's state cannot be used:
 * then this process still has the connection, but the author may think that it has left. If `stays` is set, it stays to its end.
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
    if (response !== null && stream.isPipedInto(response)) {
      entry.stays = 'something is still piped into the response after `state()`: call `unpipe` in `state()`'
      throw new Error(entry.stays)
    }
    // send what `state()` has written before the connection leaves
    if (response !== null && response.writableCorked > 0) response.uncork()
    const why = whyNotCalm(entry)
    if (why !== null) throw new Error(`after calling \`state()\`: ${why}`)
    stopReading(socket)
    const unread = ws === null ? Buffer.alloc(0) : frames.unreadOf(ws, socket) // from here on only the successor can read on
    if (unread.length > UNREAD_MAX_BYTES) throw new Error(`expected at most ${UNREAD_MAX_BYTES} unread bytes`)
    const agreement = ws !== null ? frames.agreementOf(ws) : response !== null ? stream.framingOf(response) : ''
    const status = response === null ? null : stream.statusIn(responseHead(response) ?? '')
    const [head, unreadText] = [headOf(request), unread.toString('base64')]
    const message: CarryMessage = {
      type: 'carry',
      id,
      listener,
      kind,
      request: head,
      unread: unreadText,
      agreement,
      state,
    }
    return status === null ? message : { ...message, status }
  }
  if (!give(messageOf, [fd])) return false
  entry.forget()
  if (ws !== null) frames.letGoOfWebSocket(ws, forward)
  if (response !== null) stream.letGoOfBody(response, forward)
  letGoOf(socket, response)
  return true
}

/** The author's state as it will arrive. Throws if it is not JSON, or too large. */
function stateOf(state: () => unknown): unknown {
  let text: string | undefined
  try {
    text = JSON.stringify(state())
  } catch (cause) {
    throw new Error(`getting its state: ${reasonOf(cause)}`, { cause })
  }
  if (text !== undefined && Buffer.byteLength(text) > STATE_MAX_BYTES) {
    throw new Error(`expected a state of at most ${STATE_MAX_BYTES} bytes, got ${Buffer.byteLength(text)}`)
  }
  return text === undefined ? undefined : (JSON.parse(text) as unknown)
}

/** The head of the request that began it, as the client may have written it, without the headers of a body. */
function headOf(request: IncomingMessage): string {
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
