// Reads an HTTP answer within bounds, and turns an unwanted answer into an error.
// Must hold: no answer is read beyond its bound; no message shows a query or a credential.

import type { Readable } from 'node:stream'
import { BatonError, reasonOf } from '../../words/errors.ts'
import type { Details, ErrorCode } from '../../words/errors.ts'
import { shown } from './address.ts'

/** The part of undici's response that matters here. */
export interface Response {
  statusCode: number
  headers: Record<string, string | string[] | undefined>
  body: Readable
}

export interface Reply {
  url: URL
  response: Response
}

/** what GitHub asks clients to wait if its answer names no time */
const RETRY_AFTER_SECONDS = 60
const RETRY_AFTER_MAX_SECONDS = 24 * 3600
/** of a refusal's body, which shows whether a quota is the reason */
const REFUSAL_MAX_BYTES = 4 * 1024

export function redirectOf(response: Response): string | null {
  return [301, 302, 303, 307, 308].includes(response.statusCode) ? header(response, 'location') : null
}

export function header({ headers }: Response, name: string): string | null {
  const value = headers[name]
  return (Array.isArray(value) ? value[0] : value) ?? null
}

export function lengthOf(response: Response): number | null {
  const length = header(response, 'content-length')
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : null
}

/** A strong ETag or a date; If-Range takes no weak ETag (RFC 9110, 13.1.5). */
export function validatorOf(response: Response): string | null {
  const etag = header(response, 'etag')
  return etag !== null && !etag.startsWith('W/') ? etag : header(response, 'last-modified')
}

export function contentRangeOf({ url, response }: Reply): { first: number; total: number | null } {
  const range = header(response, 'content-range') ?? ''
  const [, first, total] = /^bytes (\d{1,15})-\d{1,15}\/(\d{1,15}|\*)$/.exec(range) ?? []
  if (first === undefined) {
    discardBody(response)
    const got = JSON.stringify(range.slice(0, 60))
    throw new BatonError('download_failed', `${shown(url)}: expected a Content-Range, got ${got}`)
  }
  return { first: Number(first), total: total === '*' ? null : Number(total) }
}

/** Target of `rel="next"` on the same host. */
export function nextOf({ url, response }: Reply): string | null {
  const [, target] = /<([^<>]+)>;\s*rel="next"/.exec(header(response, 'link') ?? '') ?? []
  const next = target === undefined ? null : URL.parse(target, url)
  return next?.origin === url.origin ? next.href : null
}

export async function readBounded({ url, response }: Reply, maxBytes: number, failure: ErrorCode): Promise<Buffer> {
  const tooLong = (): BatonError =>
    new BatonError(failure, `requesting ${shown(url)}: the response is larger than ${maxBytes} bytes`, {
      members: { maxBytes },
    })
  if ((lengthOf(response) ?? 0) > maxBytes) {
    discardBody(response)
    throw tooLong()
  }
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
    bytes += chunk.length
    if (bytes > maxBytes) throw tooLong() // leaving the loop destroys the body
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Closes an answer without reading it. */
export function discardBody(response: Response): void {
  response.body.destroy()
}

/** Null if there is no such thing. */
export async function ifThere<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer
  } catch (error) {
    if (error instanceof BatonError && error.code === 'release_not_found') return null
    throw error
  }
}

/** The error for an unwanted answer: release_not_found for 404 and 410, rate_limited, else `failure`. */
export async function refusalOf(reply: Reply, failure: ErrorCode): Promise<BatonError> {
  const { url, response } = reply
  const status = response.statusCode
  const message = await readBounded(reply, REFUSAL_MAX_BYTES, failure).then(String, () => '')
  if (status === 429 || (status === 403 && isQuota(response, message))) return rateLimited(reply)
  const members = { status }
  if (status === 404 || status === 410) {
    return new BatonError('release_not_found', `${shown(url)}: not found (${status})`, { members })
  }
  const hint =
    status === 401 || status === 403
      ? { hint: 'check whether the feed needs a token and, if one is set, whether it is still valid' }
      : {}
  return new BatonError(failure, `${shown(url)}: expected 200, got ${status}`, { members, ...hint })
}

/** Turns what was thrown into an error that says what was being done. A BatonError stays as it is. */
export function explained(
  error: unknown,
  failure: ErrorCode,
  doing: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): BatonError {
  if (error instanceof BatonError) return error
  if (signal?.aborted) return new BatonError('interrupted', `${doing}: ${reasonOf(signal.reason)}`, { cause: error })
  const late = error instanceof Error && (error.name === 'TimeoutError' || error.name === 'HeadersTimeoutError')
  const reason = late ? `no answer within ${timeoutMs / 1000} s` : reasonOf(error)
  const hint = 'check that this host can reach the feed; HTTPS_PROXY and NO_PROXY are honored'
  return new BatonError(failure, `${doing}: ${reason}`, { cause: error, hint })
}

function isQuota(response: Response, message: string): boolean {
  return (
    header(response, 'x-ratelimit-remaining') === '0' ||
    header(response, 'retry-after') !== null ||
    /rate limit/i.test(message)
  )
}

function rateLimited({ url, response }: Reply): BatonError {
  const seconds = Math.ceil(Math.min(RETRY_AFTER_MAX_SECONDS, Math.max(1, secondsToWait(response))))
  const resetAt = new Date(Date.now() + seconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z')
  const details: Details = {
    hint: 'wait until then',
    members: { retryAfterSeconds: seconds, resetAt },
  }
  const wait = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`
  return new BatonError(
    'rate_limited',
    `\`${url.host}\` will not accept more requests until ${resetAt} (in ${wait})`,
    details,
  )
}

function secondsToWait(response: Response): number {
  // compare the server's times with the server's own clock, if its answer has a date
  const theirs = Date.parse(header(response, 'date') ?? '')
  const now = Number.isNaN(theirs) ? Date.now() : theirs
  const after = header(response, 'retry-after') ?? ''
  if (/^\d{1,9}$/.test(after)) return Number(after)
  const date = Date.parse(after)
  if (!Number.isNaN(date)) return (date - now) / 1000
  const reset = header(response, 'x-ratelimit-reset') ?? ''
  return /^\d{1,12}$/.test(reset) ? Number(reset) - now / 1000 : RETRY_AFTER_SECONDS
}
