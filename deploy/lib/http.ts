// The command line's HTTP. `callHttp` asks a service on this host: JSON in, JSON out, at most 4 MiB. The others ask any URL, without a
// token and within a time. The one importer of node-fetch-native: of its part for a Node that has `fetch`, and only when a URL is asked.
// Most commands ask none, and `fetch` is a fourth of what a command would load.
// Must never break: the token goes into a header and nowhere else; no redirect is followed with it.

import { request as httpRequest, type IncomingMessage } from 'node:http'
import { BatonError } from '../../agent/words.ts'

/** Where a service listens. `path` is a unix socket. */
export type Address = { tls: boolean } & ({ host: string; port: number } | { path: string })

export interface HttpAnswer {
  status: number
  /** null if the body is empty or not JSON */
  body: unknown
}

export interface Call {
  method?: 'GET' | 'POST'
  token?: string | null
  body?: unknown
  timeoutMs?: number
}

const ANSWER_MAX_BYTES = 4 * 1024 * 1024

/** Resolves to the answer, whatever its status. Rejects without a whole answer in time, or beyond 4 MiB. */
export async function callHttp(address: Address, target: string, options: Call = {}): Promise<HttpAnswer> {
  const { method = 'GET', token = null, body, timeoutMs = 5000 } = options
  const headers: Record<string, string> = { accept: 'application/json', connection: 'close' }
  if (token !== null) headers['authorization'] = `Bearer ${token}`
  if (body !== undefined) headers['content-type'] = 'application/json'
  // `node:http` instead of `fetch`: fetch cannot use a unix socket, and refuses a certificate for another name than 127.0.0.1
  const asked = {
    ...('path' in address ? { socketPath: address.path } : { host: address.host, port: address.port }),
    path: target,
    method,
    headers,
    signal: AbortSignal.timeout(timeoutMs),
    // the address is this host's, from the service's own configuration: nobody is in between, so there is nothing to verify
    ...(address.tls ? { rejectUnauthorized: false } : {}),
  }
  const ask = address.tls ? (await import('node:https')).request : httpRequest
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const request = ask(asked, resolve)
    request.on('error', reject)
    request.end(body === undefined ? undefined : JSON.stringify(body))
  })
  response.setEncoding('utf8')
  let answer = ''
  for await (const chunk of response) answer = bounded(answer + String(chunk))
  return { status: response.statusCode ?? 0, body: parsed(answer) }
}

/** The status of a plain GET of any URL: for the health URLs that an operator names. */
export async function httpStatusOf(url: string, timeoutMs: number): Promise<number> {
  const { status, body } = await askUrl(url, timeoutMs)
  await body?.cancel() // it may have no end
  return status
}

/** The status and how long the body is, of a plain GET. */
export async function httpSizeOf(url: string, timeoutMs: number): Promise<{ status: number; bytes: number }> {
  const response = await askUrl(url, timeoutMs)
  const { byteLength: bytes } = await response.arrayBuffer()
  return { status: response.status, bytes }
}

/** The clock of the host behind a URL; null if its answer has no date. */
export async function dateOf(url: string, timeoutMs: number): Promise<Date | null> {
  const response = await askUrl(url, timeoutMs, 'HEAD')
  const date = Date.parse(response.headers.get('date') ?? '')
  return Number.isNaN(date) ? null : new Date(date)
}

async function askUrl(url: string, timeoutMs: number, method: 'GET' | 'HEAD' = 'GET'): Promise<Response> {
  const { fetch } = await import('node-fetch-native/native')
  return await fetch(url, { method, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) })
}

function bounded(text: string): string {
  if (text.length <= ANSWER_MAX_BYTES) return text
  throw new BatonError('unexpected', `expected an answer of at most ${ANSWER_MAX_BYTES} bytes, got more`)
}

function parsed(text: string): unknown {
  try {
    return text === '' ? null : JSON.parse(text)
  } catch {
    return null
  }
}
