// A response in the middle of its body: which head was sent, what is between the author's `write` and the connection, and how the
// body continues in another process. That process has neither an encoder's memory nor the bytes that middleware has kept back: such
// a response is never carried.
// Must hold: every byte that was written to a carried response has left, as it was written.

import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { divertBody, hasTrailers, isHeadSent, responseHead } from '../../sockets/internals-moving.ts'
import { responseOf } from '../../sockets/internals.ts'
import { sizeOfWrite, callBack, encodingIn } from './writes.ts'

/** Why this response can never be carried, for people; null if it can, or while its head is unknown. */
export function whyBodyStays(response: ServerResponse): string | null {
  return (
    whyNotGoneOnWith(responseHead(response) ?? '') ??
    (hasTrailers(response) ? 'its body is followed by trailers' : null)
  )
}

/** The same, from the text of a head. */
export function whyNotGoneOnWith(head: string): string | null {
  const [coding] = valuesOf(head, 'content-encoding').filter((value) => !/^(identity)?$/i.test(value))
  if (coding !== undefined)
    return `its body is encoded (${coding}), and the encoder's state cannot move to another process`
  const [transfer] = valuesOf(head, 'transfer-encoding').filter((value) => !/^chunked$/i.test(value))
  if (transfer !== undefined) return `its body uses the transfer encoding ${transfer}`
  return valuesOf(head, 'trailer').length > 0 ? 'its body is followed by trailers' : null
}

/** The values of the headers of this name, in the text of a head. */
export function valuesOf(head: string, name: string): string[] {
  return [...head.matchAll(new RegExp(`^${name}:[ \\t]*(.*?)[ \\t]*$`, 'gim'))].map(([, value = '']) => value.trim())
}

/** Whether the head has left, and everything that was written to the body. */
export function isBodyAtRest(response: ServerResponse, socket: Socket): boolean {
  return (
    responseOf(socket) === response && isHeadSent(response) && !response.writableEnded && response.writableLength === 0
  )
}

/** Sends a head that waits: `writeHead()` holds it back until the first byte of the body. */
export function sendHead(response: ServerResponse, socket: Socket): void {
  if (responseOf(socket) === response && response.headersSent && !isHeadSent(response)) response.flushHeaders()
}

/** Whether it is a stream of server-sent events: its client reconnects by itself and says where it was. */
export function isOfEvents(response: ServerResponse): boolean {
  return valuesOf(responseHead(response) ?? '', 'content-type').some((value) => /^text\/event-stream\b/i.test(value))
}

/** How a response is framed: the successor must go on in the same way. */
export function framingOf(response: ServerResponse): string {
  return framingIn(responseHead(response) ?? '')
}

/** The same, from a head as it was sent. */
export function framingIn(head: string): string {
  const [length] = valuesOf(head, 'content-length')
  if (length !== undefined) return `${length} bytes`
  return valuesOf(head, 'transfer-encoding').some((value) => /chunked$/i.test(value)) ? 'chunked' : 'until closed'
}

export function statusIn(head: string): number | null {
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1]
  return status === undefined ? null : Number(status)
}

/** Whether a stream is piped into it: what that stream writes would land in the middle of what the successor sends. */
export function isPipedInto(response: ServerResponse): boolean {
  // `pipeline` of an async generator and a web stream wait for `drain`; others listen for `unpipe`
  return response.listenerCount('unpipe') > 0 || response.listenerCount('drain') > 0
}

/** From now on `forward` gets what the author writes, and null when the author has ended the response. */
export function letGoOfBody(response: ServerResponse, forward: (data: string | Buffer | null) => void): void {
  const pass = (data: unknown, coding: unknown) => {
    if (sizeOfWrite(data, coding) === 0) return
    const isText = typeof data === 'string' && (encodingIn(coding) === 'utf8' || encodingIn(coding) === 'utf-8')
    forward(isText ? data : asBuffer(data, coding))
  }
  response.write = (data: unknown, ...rest: unknown[]): boolean => {
    pass(data, rest[0])
    callBack(rest)
    return true
  }
  response.end = (data?: unknown, ...rest: unknown[]): ServerResponse => {
    pass(data, rest[0])
    forward(null)
    callBack([data, ...rest])
    return response
  }
  // covers code that holds the former `write` or `end`
  divertBody(response, pass, () => forward(null))
}

function asBuffer(data: unknown, coding: unknown): Buffer {
  if (typeof data === 'string') return Buffer.from(data, encodingIn(coding))
  const { buffer, byteOffset, byteLength } = data as Uint8Array
  return Buffer.from(buffer, byteOffset, byteLength)
}
