// Handles the requests of the reference service, in the place of an author's own application. The agent's routes come first.
// Must hold: a write is answered only when it is on the disk; bodies are bounded; no answer and no log line holds a secret,
// except the one answer that creates a token.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { assertOneHost, pathOf, problemOf, readBody as receive, send as answerWith } from '../index.ts'
import { BatonError, MEANINGS, reasonOf, series, unexpectedAnswer } from '../words.ts'
import type { Build } from './build.ts'
import type { Live } from './live.ts'
import type { Store } from './store.ts'

export const BODY_MAX_BYTES = 256 * 1024
export const LIST_MAX = 1000
const LIST_DEFAULT = 100
const NAME_MAX = 200
const MESSAGE_MAX = 8192
const CONTENT_MAX = 200_000
const TTL_MAX_SECONDS = 30 * 24 * 3600
const STREAMS_MAX = 1000
const STREAM_EVENTS_MAX = 100_000
const STREAM_RETRY_MS = 100

export interface Handler {
  handle(request: IncomingMessage, response: ServerResponse): void
  /** Ends the streaming responses, each with a hint to reconnect at once: the successor answers then. */
  drain(): void
}

/** `live`: the tail of the logs; null: without it. */
export function createHandler(
  store: Store,
  build: Build,
  log: (line: string) => void,
  live: Live | null = null,
): Handler {
  const streams = new Set<() => void>()
  const context: Context = { store, build, streams, live }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    assertOneHost(request)
    const path = pathOf(request)
    const [, search = ''] = (request.url ?? '').split(/\?(.*)/s)
    const route = findRoute(path)
    if (route === null) throw new BatonError('not_found', 'there is nothing at this path')
    const act = route.methods[request.method === 'HEAD' ? 'GET' : (request.method ?? '')]
    if (act === undefined) {
      const allowed = Object.keys(route.methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
      response.setHeader('allow', allowed.join(', '))
      throw new BatonError(
        'method_not_allowed',
        `expected ${series(allowed, 'or')}, got ${request.method ?? 'nothing'}`,
      )
    }
    await act({ ...context, request, response, query: new URLSearchParams(search), key: route.key })
  }

  return {
    handle(request, response) {
      answer(request, response).catch((error: unknown) => {
        if (response.destroyed) return // the client went away
        // an internal error belongs in the log, not in the answer
        const problem = error instanceof BatonError && error.code !== 'unexpected' ? error : unexpectedAnswer()
        if (MEANINGS[problem.code].status >= 500)
          log(`${request.method ?? ''} ${(request.url ?? '').split('?')[0] ?? ''}: ${reasonOf(error)}`)
        refuse(request, response, problem)
      })
    },
    drain() {
      for (const end of streams) end()
    },
  }
}

interface Context {
  store: Store
  build: Build
  streams: Set<() => void>
  live: Live | null
}

interface Call extends Context {
  request: IncomingMessage
  response: ServerResponse
  query: URLSearchParams
  /** what follows `/api/completions/`, else '' */
  key: string
}

type Act = (call: Call) => void | Promise<void>

const ROUTES: Record<string, Record<string, Act>> = {
  '/': {
    GET: ({ response, build }) => send(response, 200, 'text/plain; charset=utf-8', `${build.service} ${build.tag}\n`),
  },
  '/healthz': { GET: health },
  '/version': {
    GET: ({ response, build, store }) =>
      sendJson(response, 200, { ...build, node: process.version, schema: store.schema, pid: process.pid }),
  },
  '/api/tokens': {
    GET: (call) => sendJson(call.response, 200, { tokens: call.store.tokens(limitOf(call)) }),
    async POST(call) {
      const body = await readBody(call, ['name'])
      sendJson(call.response, 201, await call.store.addToken(text(body, 'name', NAME_MAX)))
    },
  },
  '/api/logs': {
    GET: (call) => {
      sendJson(call.response, 200, {
        logs: call.store.logs(limitOf(call), numberOf(call, 'before', 1, Number.MAX_SAFE_INTEGER)),
      })
    },
    async POST(call) {
      const body = await readBody(call, ['level', 'message'])
      const level = body['level'] === undefined ? 'info' : text(body, 'level', 16)
      if (!['debug', 'info', 'warning', 'error'].includes(level)) {
        throw new BatonError('invalid_request', 'expected debug, info, warning or error in `level`')
      }
      sendJson(call.response, 201, await call.store.addLog(level, text(body, 'message', MESSAGE_MAX)))
    },
  },
  '/api/logs/events': {
    GET: (call) => {
      if (call.live === null) throw new BatonError('not_found', 'there is nothing at this path')
      call.live.events(call.request, call.response, numberOf(call, 'after', 0, Number.MAX_SAFE_INTEGER))
    },
  },
  '/api/quota': {
    GET: (call) => sendJson(call.response, 200, { quota: call.store.quota(limitOf(call), call.query.get('tokenId')) }),
    async POST(call) {
      const body = await readBody(call, ['tokenId', 'used'])
      const used = whole(body, 'used', 0, Number.MAX_SAFE_INTEGER)
      sendJson(call.response, 201, await call.store.addQuota(text(body, 'tokenId', NAME_MAX), used))
    },
  },
  '/api/completions': {
    GET: (call) => sendJson(call.response, 200, { completions: call.store.completions(limitOf(call)) }),
    async POST(call) {
      const body = await readBody(call, ['key', 'content', 'ttlSeconds'])
      const ttl = body['ttlSeconds'] === undefined ? 3600 : whole(body, 'ttlSeconds', 1, TTL_MAX_SECONDS)
      const stored = call.store.putCompletion(text(body, 'key', NAME_MAX), text(body, 'content', CONTENT_MAX), ttl)
      sendJson(call.response, 201, await stored)
    },
  },
  '/api/completions/*': {
    GET(call) {
      const completion = call.store.completion(call.key)
      if (completion === null)
        throw new BatonError('not_found', 'no completion is stored under this key, or it has expired')
      sendJson(call.response, 200, completion)
    },
  },
  '/api/counts': { GET: ({ response, store }) => sendJson(response, 200, store.counts()) },
  '/api/stream': { GET: stream },
}

function findRoute(path: string): { methods: Record<string, Act>; key: string } | null {
  const methods = Object.hasOwn(ROUTES, path) && !path.includes('*') ? ROUTES[path] : undefined
  if (methods !== undefined) return { methods, key: '' }
  const prefix = '/api/completions/'
  if (!path.startsWith(prefix) || path.length === prefix.length) return null
  try {
    return { methods: ROUTES['/api/completions/*'] ?? {}, key: decodeURIComponent(path.slice(prefix.length)) }
  } catch {
    return null
  }
}

function health({ response, store, build }: Call): void {
  try {
    store.check()
  } catch (error) {
    sendJson(response, 503, { status: 'failing', reason: reasonOf(error), ...build })
    return
  }
  sendJson(response, 200, { status: 'ok', ...build })
}

/** Sends `?events=` server-sent events (default: STREAM_EVENTS_MAX), one every `?intervalMs=`. */
function stream(call: Call): void {
  const { request, response, build, streams } = call
  const events = numberOf(call, 'events', 1, STREAM_EVENTS_MAX) ?? STREAM_EVENTS_MAX
  const intervalMs = numberOf(call, 'intervalMs', 1, 60_000) ?? 1000
  if (streams.size >= STREAMS_MAX) throw new BatonError('service_down', `${STREAMS_MAX} streams are already open`)
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  if (request.method === 'HEAD') {
    response.end()
    return
  }
  response.write(`retry: ${STREAM_RETRY_MS}\n\n`)
  let sent = 0
  const timer = setInterval(() => {
    if (response.writableNeedDrain) return // a slow reader misses events; they must not fill the memory
    sent++
    response.write(`id: ${sent}\ndata: ${JSON.stringify({ number: sent, tag: build.tag, pid: process.pid })}\n\n`)
    if (sent >= events) finish('end')
  }, intervalMs)
  const finish = (event: 'end' | 'drain' | null): void => {
    clearInterval(timer)
    if (!streams.delete(drain) || event === null) return
    response.end(
      event === 'drain' ? `event: drain\nretry: ${STREAM_RETRY_MS}\ndata: {}\n\n` : 'event: end\ndata: {}\n\n',
    )
  }
  const drain = (): void => finish('drain')
  streams.add(drain)
  response.on('close', () => finish(null))
}

async function readBody({ request }: Call, keys: string[]): Promise<Record<string, unknown>> {
  const body = await receive(request, BODY_MAX_BYTES)
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body))
  } catch {
    throw new BatonError('invalid_request', 'request body: expected JSON in UTF-8')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BatonError('invalid_request', 'request body: expected a JSON object')
  }
  const unknown = Object.keys(value).find((key) => !keys.includes(key))
  if (unknown !== undefined) {
    throw new BatonError(
      'invalid_request',
      `expected only ${series(
        keys.map((key) => `\`${key}\``),
        'and',
      )}, got ${JSON.stringify(unknown.slice(0, 40))}`,
    )
  }
  return value as Record<string, unknown>
}

function text(body: Record<string, unknown>, name: string, max: number): string {
  const value = body[name]
  if (typeof value === 'string' && value.length > 0 && value.length <= max) return value
  throw new BatonError('invalid_request', `expected text of 1 to ${max} characters in \`${name}\``)
}

function whole(body: Record<string, unknown>, name: string, least: number, most: number): number {
  const value = body[name]
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= most) return value
  throw new BatonError('invalid_request', `expected a whole number from ${least} to ${most} in \`${name}\``)
}

function limitOf(call: Call): number {
  return numberOf(call, 'limit', 1, LIST_MAX) ?? LIST_DEFAULT
}

function numberOf({ query }: Call, name: string, least: number, most: number): number | null {
  const given = query.get(name)
  if (given === null) return null
  const value = /^[0-9]{1,16}$/.test(given) ? Number(given) : Number.NaN
  if (value >= least && value <= most) return value
  throw new BatonError('invalid_request', `expected a whole number from ${least} to ${most} in \`?${name}=\``)
}

function sendJson(response: ServerResponse, status: number, value: unknown): void {
  send(response, status, 'application/json', `${JSON.stringify(value)}\n`)
}

function refuse(request: IncomingMessage, response: ServerResponse, error: BatonError): void {
  if (response.headersSent) return void response.destroy()
  answerWith(request, response, problemOf(error))
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  })
  response.end(body)
}
