// The four endpoints (contract 1). Order of refusals: 429, 403, 401, 404, 405, 501, 400. Nothing here decides about an
// update; it reads the request, asks the updater, and writes the answer.

import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { asBatonError, BatonError, MEANINGS } from './errors.ts'
import type { Guard } from './auth.ts'
import type { Log } from './log.ts'
import { parseTag } from './release.ts'
import type { Operation } from './state.ts'
import type { Updater } from './updater.ts'

export const BODY_MAX_BYTES = 4096

interface Answer {
  status: number
  body: unknown
  headers?: Record<string, string>
}

type Endpoint = {
  method: 'GET' | 'POST'
  fields: readonly string[]
  act: (fields: Record<string, unknown>) => Promise<Answer>
}

/** Answers requests below `<basePath>/admin/update`; false where the request is somebody else's. */
export function makeRoutes(
  basePath: string,
  guard: Guard,
  updater: Updater,
  log: Log,
): (request: IncomingMessage, response: ServerResponse) => boolean {
  const prefix = `${basePath}/admin/update`
  const accepted = (operation: Operation): Answer => ({
    status: 202,
    body: operation,
    headers: { Location: `${prefix}/status` },
  })
  const endpoints = new Map<string, Endpoint>([
    [
      '',
      {
        method: 'POST',
        fields: ['tag'],
        act: async ({ tag }) => accepted(await updater.update(tag === undefined ? null : parseTag(tag))),
      },
    ],
    ['/check', { method: 'POST', fields: [], act: async () => ({ status: 200, body: await updater.check() }) }],
    ['/status', { method: 'GET', fields: [], act: async () => ({ status: 200, body: await updater.status() }) }],
    ['/rollback', { method: 'POST', fields: [], act: async () => accepted(await updater.rollback()) }],
  ])

  const answer = async (request: IncomingMessage, path: string): Promise<Answer> => {
    guard(request.headers.authorization, request.socket.remoteAddress ?? 'unix')
    const endpoint = endpoints.get(path)
    if (endpoint === undefined) throw new BatonError('not_found', 'there is no such endpoint')
    const method = request.method === 'HEAD' ? 'GET' : request.method
    if (method !== endpoint.method) {
      throw new BatonError('method_not_allowed', `expected ${endpoint.method}, got ${request.method ?? ''}`)
    }
    updater.assertManaged()
    const fields = endpoint.method === 'POST' ? await readFields(request, endpoint.fields) : {}
    return await endpoint.act(fields)
  }

  return (request, response) => {
    const url = request.url ?? ''
    if (!url.startsWith(prefix)) return false
    const path = url.slice(prefix.length).split('?', 1)[0] ?? ''
    if (path !== '' && !path.startsWith('/')) return false
    answer(request, path)
      .catch((cause: unknown) => refuse(cause, endpoints.get(path), request, log))
      .then((ready) => send(request, response, ready))
      .catch((cause: unknown) => {
        response.destroy(cause instanceof Error ? cause : undefined)
      })
    return true
  }
}

/** A problem document of RFC 9457 for the error; what we did not foresee is a 500 whose cause is logged, not told. */
export function problemOf(error: BatonError): Answer {
  const meaning = MEANINGS[error.code]
  const body = {
    type: `urn:baton:problem:${error.code}`,
    title: meaning.title,
    status: meaning.status,
    detail: error.message,
    code: error.code,
    ...(error.hint === null ? {} : { hint: error.hint }),
    ...error.members,
  }
  return { status: meaning.status, body, headers: { 'Content-Type': 'application/problem+json' } }
}

function refuse(cause: unknown, endpoint: Endpoint | undefined, request: IncomingMessage, log: Log): Answer {
  if (!(cause instanceof BatonError)) {
    const error = asBatonError(cause, 'unexpected', `answering ${request.method ?? ''}`)
    log({ event: 'warning', message: error.message })
    return problemOf(new BatonError('unexpected', 'something went wrong here; the log of the service says what'))
  }
  const problem = problemOf(cause)
  const headers = (problem.headers ??= {})
  if (cause.code === 'unauthorized') headers['WWW-Authenticate'] = 'Bearer realm="update"'
  if (cause.code === 'method_not_allowed' && endpoint !== undefined) {
    headers['Allow'] = endpoint.method === 'GET' ? 'GET, HEAD' : 'POST'
  }
  const retryAfter = cause.members['retryAfterSeconds']
  if (typeof retryAfter === 'number') headers['Retry-After'] = String(retryAfter)
  return problem
}

function send(request: IncomingMessage, response: ServerResponse, { status, body, headers }: Answer): void {
  const text = `${JSON.stringify(body)}\n`
  // What is left of the body is read and thrown away (server.requestTimeout bounds it): closing on a client that still
  // sends would reset the connection, and the client would never see this answer.
  if (!request.complete) request.resume()
  const common = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff', ...headers }
  if (status === 200 && request.method !== 'POST') {
    const etag = `"${createHash('sha256').update(text).digest('hex').slice(0, 24)}"`
    response.setHeader('ETag', etag)
    // who looks on while nothing happens is not told the same each time
    if (request.headers['if-none-match'] === etag) return void response.writeHead(304, common).end()
  }
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(text),
    ...common,
  })
  response.end(request.method === 'HEAD' ? undefined : text)
}

async function readFields(request: IncomingMessage, known: readonly string[]): Promise<Record<string, unknown>> {
  const value = await readJson(request)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BatonError(
      'invalid_request',
      `expected a JSON object, got ${Array.isArray(value) ? 'an array' : value === null ? 'null' : typeof value}`,
    )
  }
  const unknown = Object.keys(value).filter((key) => !known.includes(key))
  if (unknown.length > 0) {
    const expected = known.length === 0 ? 'no fields' : `only ${known.map((key) => `\`${key}\``).join(', ')}`
    throw new BatonError('invalid_request', `expected ${expected}, got ${JSON.stringify(unknown[0]?.slice(0, 40))}`)
  }
  return value as Record<string, unknown>
}

/** `{}` where there is no body. One that the service's body parser has read before us is taken as the parser has understood it. */
async function readJson(request: IncomingMessage): Promise<unknown> {
  const { body } = request as IncomingMessage & { body?: unknown }
  if (request.readableEnded && typeof body === 'object' && body !== null && !Buffer.isBuffer(body)) return body
  const isRead = request.readableEnded && (typeof body === 'string' || Buffer.isBuffer(body))
  if (request.readableEnded && !isRead && Number(request.headers['content-length'] ?? 0) > 0) {
    throw new BatonError('invalid_request', 'the body was read before the agent could, and nobody kept it', {
      hint: 'let the agent handle the request before any body parser',
    })
  }
  const text = isRead ? String(body) : request.readableEnded ? '' : await readBody(request)
  if (text.trim() === '') return {}
  try {
    return JSON.parse(text)
  } catch {
    throw new BatonError('invalid_request', 'expected a JSON object, got something that is not JSON')
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const tooLarge = new BatonError('body_too_large', `expected a body of at most ${BODY_MAX_BYTES} bytes`)
  if (Number(request.headers['content-length'] ?? 0) > BODY_MAX_BYTES) throw tooLarge
  const parts: Buffer[] = []
  let size = 0
  // not `for await`: leaving the loop early would destroy the socket before the refusal is sent
  await new Promise<void>((resolve, reject) => {
    const collect = (part: Buffer) => {
      size += part.length
      parts.push(part)
      if (size <= BODY_MAX_BYTES) return
      request.off('data', collect)
      reject(tooLarge)
    }
    request.on('data', collect)
    request.once('end', resolve)
    request.once('error', (cause) => reject(new BatonError('invalid_request', 'the request broke off', { cause })))
    request.once('close', () => reject(new BatonError('invalid_request', 'the request broke off')))
  })
  return Buffer.concat(parts).toString('utf8')
}
