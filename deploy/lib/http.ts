// The command line's HTTP. `callHttp` asks a service on this host: JSON in, JSON out, at most 4 MiB. The others ask any URL, without a
// token and within a time; a URL of this host's loopback is asked as a service is, in whatever it speaks there. The one importer of
// node-fetch-native: of its part for a Node that has `fetch`, and only when a URL is asked. Most commands ask none, and `fetch` is a
// fourth of what a command would load.
// Must never break: the token goes into a header and nowhere else; no redirect is followed with it.

import type { Socket } from 'node:net'
import { askHere, type LocalPlace, type Protocol } from '../../agent/first.ts'
import { BatonError, parsedJson } from '../../agent/words.ts'

/** Where a service listens. `path` is a unix socket. `tls`: what its configuration says, which is only what is tried first. */
export type Address = { tls: boolean } & LocalPlace

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
  /** called with the open connection before anything is sent; rejects if the server must not have it */
  vet?: (socket: Socket) => Promise<void>
}

const ANSWER_MAX_BYTES = 4 * 1024 * 1024

/** Resolves to the answer, whatever its status. Rejects without a whole answer in time, or beyond 4 MiB. */
export async function callHttp(address: Address, target: string, options: Call = {}): Promise<HttpAnswer> {
  const { method = 'GET', token = null, body, timeoutMs = 5000, vet } = options
  const headers: Record<string, string> = { accept: 'application/json' }
  if (token !== null) headers['authorization'] = `Bearer ${token}`
  if (body !== undefined) headers['content-type'] = 'application/json'
  const { tls, ...place } = address
  using response = await askHere(place, {
    path: target,
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(vet === undefined ? {} : { vet }),
    signal: AbortSignal.timeout(timeoutMs),
    tls,
  })
  response.body.setEncoding('utf8')
  let answer = ''
  for await (const chunk of response.body) answer = bounded(answer + String(chunk))
  return { status: response.status, body: parsedJson(answer) ?? null }
}

/** The status of a plain GET of any URL: for the health URLs that an operator names. */
export async function httpStatusOf(url: string, timeoutMs: number): Promise<number> {
  const here = placeOf(url)
  if (here !== null) return (await statusHere(here, timeoutMs)).status
  const { status, body } = await askUrl(url, timeoutMs)
  await body?.cancel() // it may have no end
  return status
}

/** The status of a plain GET of a URL of this host, and what was spoken. */
export async function statusHere(here: Here, timeoutMs: number): Promise<{ status: number; protocol: Protocol }> {
  using answer = await getHere(here, timeoutMs) // not read to its end: it may have none
  return { status: answer.status, protocol: answer.protocol }
}

/** The status and how long the body is, of a plain GET of a URL of this host; and what was spoken. */
export async function sizeHere(
  here: Here,
  timeoutMs: number,
): Promise<{ status: number; bytes: number; protocol: Protocol }> {
  using answer = await getHere(here, timeoutMs)
  let bytes = 0
  for await (const chunk of answer.body) bytes += (chunk as Buffer).byteLength
  return { status: answer.status, bytes, protocol: answer.protocol }
}

const getHere = ({ place, path, tls }: Here, timeoutMs: number) =>
  askHere(place, { path, tls, signal: AbortSignal.timeout(timeoutMs) })

export interface Here {
  place: LocalPlace
  path: string
  tls: boolean
}

/** Where a URL of this host's loopback leads; null for another host's. */
export function placeOf(text: string): Here | null {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol)) return null
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (host !== 'localhost' && host !== '::1' && !/^127(\.\d+){3}$/.test(host)) return null
  const tls = url.protocol === 'https:'
  return { place: { host, port: Number(url.port || (tls ? 443 : 80)) }, path: url.pathname + url.search, tls }
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
