// Shared by everything that answers over HTTP, the endpoints, the panel and a service's own handler: the path of a request, its
// body within a bound, and the problem document of a refusal (RFC 9457).

import type { IncomingMessage, ServerResponse } from 'node:http'
import { errorAddress, BatonError, MEANINGS } from '../words/errors.ts'
import { nodeCrypto } from '../words/later.ts'

export interface Answer {
  status: number
  /** written as JSON */
  body: unknown
  headers?: Record<string, string>
}

/** The path of a request without its query, even if the target is an absolute address (RFC 9112, 3.2.2). */
export function pathOf({ url = '/' }: Pick<IncomingMessage, 'url'>): string {
  const target = url.replace(/^https?:\/\/[^/?#]*/i, '')
  return target.startsWith('/') ? (target.split(/[?#]/, 1)[0] ?? '/') : target === '' ? '/' : target
}

/** Rejects two Host headers with invalid_request: a proxy may have acted on the other one. */
export function assertOneHost({ rawHeaders }: IncomingMessage): void {
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host')
  if (hosts.length > 1) throw new BatonError('invalid_request', `expected one Host header, got ${hosts.length}`)
}

/**
 * The whole body. Throws body_too_large and invalid_request; `send` then reads the rest of the body.
 * Not `for await`: leaving that early would destroy the connection before the refusal is sent.
 */
export function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const tooLarge = new BatonError('body_too_large', `expected a body of at most ${maxBytes} bytes`)
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) return reject(tooLarge)
    const brokeOff = (cause?: unknown) =>
      reject(
        new BatonError(
          'invalid_request',
          'the request ended before its body was complete',
          cause === undefined ? {} : { cause },
        ),
      )
    const parts: Buffer[] = []
    let size = 0
    const collect = (part: Buffer) => {
      size += part.length
      parts.push(part)
      if (size <= maxBytes) return
      request.off('data', collect)
      reject(tooLarge)
    }
    request.on('data', collect)
    request.once('end', () => resolve(Buffer.concat(parts)))
    request.once('error', brokeOff)
    request.once('close', () => brokeOff())
  })
}

export function problemOf(error: BatonError): Answer {
  const { status, title } = MEANINGS[error.code]
  const { code, message: detail, hint, members } = error
  const body = {
    type: errorAddress(code),
    title,
    status,
    detail,
    code,
    ...(hint === null ? {} : { hint }),
    ...members,
  }
  const headers: Record<string, string> = { 'Content-Type': 'application/problem+json' }
  if (code === 'unauthorized') headers['WWW-Authenticate'] = 'Bearer realm="update"'
  const retryAfter = members['retryAfterSeconds']
  if (typeof retryAfter === 'number') headers['Retry-After'] = String(retryAfter)
  return { status, body, headers }
}

export function textOf(body: unknown): string {
  return `${JSON.stringify(body)}\n`
}

export function etagOf(text: string): string {
  return `"${nodeCrypto().createHash('sha256').update(text).digest('hex').slice(0, 24)}"`
}

export function send(request: IncomingMessage, response: ServerResponse, { status, body, headers }: Answer): void {
  const text = textOf(body)
  // Reads the rest of the body and throws it away (server.requestTimeout bounds it). Closing on a client that still sends would
  // reset the connection, and the client would never see this answer.
  if (!request.complete) request.resume()
  const common = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff', ...headers }
  if (status === 200 && request.method !== 'POST') {
    const etag = etagOf(text)
    response.setHeader('ETag', etag)
    // Saves a poll from getting the same answer again while nothing changes.
    if (request.headers['if-none-match'] === etag) return void response.writeHead(304, common).end()
  }
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(text),
    ...common,
  })
  response.end(request.method === 'HEAD' ? undefined : text)
}
