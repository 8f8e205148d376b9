// HTTP as a feed needs it. The only importer of undici; imported when first used, so that starting the service does not pay for it.
// Must hold: plain http only to this machine; no redirect leads from https to http; the token goes to the API it is for and
// nowhere else, and into no message; no answer is read beyond its bound; nothing is waited for without a deadline.

import type { Dispatcher } from 'undici'
import { BatonError, reasonOf } from '../errors.ts'
import type { Details, ErrorCode } from '../errors.ts'
import type { Bytes } from '../release.ts'
import { parsedJson } from '../trust/untrusted.ts'
import { isLoopback } from './loopback.ts'

export interface HttpOptions {
  /** where HTTP_PROXY, HTTPS_PROXY and NO_PROXY are looked up, lower case first */
  environment: Readonly<Record<string, string | undefined>>
  /** sent with requests below `base` and with no others */
  token?: { value: string; base: string } | null
  /** certificates to trust in place of those that come with Node, PEM */
  ca?: string
  /** for an answer to begin, and for a text to arrive whole */
  timeoutMs?: number
}

export interface TextRequest {
  url: string
  maxBytes: number
  accept?: string
  /** ETag of the text that we have; the answer is null where it has not changed */
  known?: string | null
  /** code of the error where it fails for no better reason */
  failure: ErrorCode
  signal?: AbortSignal | undefined
}

export interface Text {
  text: string
  etag: string | null
  /** target of `rel="next"`, null where there is none or where it is on another host */
  next: string | null
}

export interface Http {
  /** Throws release_not_found for 404 and 410, rate_limited, else `failure`. Null: 304. */
  text(request: TextRequest): Promise<Text | null>
  /** The same, parsed; says so where a page came instead. */
  json(request: TextRequest): Promise<(Omit<Text, 'text'> & { value: unknown }) | null>
  /** Where `url` redirects to, without going there; null where it does not redirect. */
  location(request: Omit<TextRequest, 'maxBytes'>): Promise<string | null>
  /** See `Feed.bytes`. */
  bytes(url: string, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
  close(): Promise<void>
}

const REDIRECTS_MAX = 5
const TIMEOUT_MS = 30_000
const CONNECT_TIMEOUT_MS = 10_000
/** what GitHub asks for where it does not tell when to come back */
const RETRY_AFTER_SECONDS = 60
const RETRY_AFTER_MAX_SECONDS = 24 * 3600
/** of an answer that is read only to see why it is a refusal */
const REFUSAL_MAX_BYTES = 4 * 1024

interface Reply {
  url: URL
  response: Dispatcher.ResponseData
}

export function openHttp(options: HttpOptions): Http {
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS
  let dispatchers: Promise<Dispatchers> | null = null

  /** One request, redirects followed by hand. Throws BatonError `failure` where the way is wrong, else what undici throws. */
  const send = async (
    start: string,
    headers: Record<string, string>,
    failure: ErrorCode,
    signal: AbortSignal,
    follow = REDIRECTS_MAX,
  ): Promise<Reply> => {
    dispatchers ??= openDispatchers(options, timeoutMs)
    const { request, direct, proxied } = await dispatchers
    const seen = new Set<string>()
    let url = parsedUrl(start, failure)
    for (;;) {
      seen.add(url.href)
      const response = await request(url, {
        dispatcher: isLoopback(url.hostname) ? direct : proxied,
        headers: { 'user-agent': 'baton', 'accept-encoding': 'identity', ...headers, ...authorization(url, options) },
        signal,
      })
      // an abort before anybody reads the body is an event that nobody hears, and ends the process: nodejs/undici#3353
      response.body.on('error', () => {})
      const location = redirectOf(response)
      if (location === null || follow === 0) return { url, response }
      discard(response)
      const from = url
      url = parsedUrl(location, failure, from)
      if (from.protocol === 'https:' && url.protocol === 'http:') {
        throw new BatonError(failure, `${shown(from)} redirects from https to plain http: ${shown(url)}`)
      }
      if (seen.has(url.href)) throw new BatonError(failure, `${shown(from)} redirects in a loop`)
      if (seen.size > follow) throw new BatonError(failure, `${shown(start)} redirects more than ${follow} times`)
    }
  }

  const text: Http['text'] = async ({ url, maxBytes, accept, known = null, failure, signal }) => {
    const headers = {
      accept: accept ?? '*/*',
      ...(known === null ? {} : { 'if-none-match': known }),
    }
    const deadline = within(timeoutMs, signal)
    try {
      const reply = await send(url, headers, failure, deadline)
      if (reply.response.statusCode === 304 && known !== null) {
        discard(reply.response)
        return null
      }
      if (reply.response.statusCode !== 200) throw await refusalOf(reply, failure)
      const body = await readBounded(reply, maxBytes, failure)
      return { text: body, etag: header(reply.response, 'etag'), next: nextOf(reply) }
    } catch (error) {
      throw explained(error, failure, `asking ${shown(url)}`, timeoutMs, signal)
    }
  }

  return {
    text,
    async json(request) {
      const answer = await text({ accept: 'application/json', ...request })
      if (answer === null) return null
      const value = parsedJson(answer.text)
      if (value === undefined) {
        const got = /^\s*</.test(answer.text)
          ? 'an HTML page'
          : answer.text.trim() === ''
            ? 'nothing'
            : 'something else'
        const hint = 'is there a proxy or a login page between this host and the feed?'
        throw new BatonError(request.failure, `asking ${shown(request.url)}: expected JSON, got ${got}`, { hint })
      }
      return { value, etag: answer.etag, next: answer.next }
    },
    async location({ url, failure, signal }) {
      try {
        const reply = await send(url, {}, failure, within(timeoutMs, signal), 0)
        discard(reply.response)
        const location = redirectOf(reply.response)
        return location === null ? null : parsedUrl(location, failure, reply.url).href
      } catch (error) {
        throw explained(error, failure, `asking ${shown(url)}`, timeoutMs, signal)
      }
    },
    async bytes(url, from, validator, signal) {
      const range =
        from > 0 ? { range: `bytes=${from}-`, ...(validator === null ? {} : { 'if-range': validator }) } : {}
      const accept = 'application/octet-stream'
      const reply = await send(url, { accept, ...range }, 'download_failed', signal)
      const { response } = reply
      if (response.statusCode === 200) {
        return { stream: response.body, from: 0, totalBytes: lengthOf(response), validator: validatorOf(response) }
      }
      if (response.statusCode === 206 && from > 0) {
        const { first, total } = contentRangeOf(reply)
        if (first !== from) {
          discard(response)
          throw new BatonError('download_failed', `${shown(url)}: expected a range from ${from}, got one from ${first}`)
        }
        return { stream: response.body, from, totalBytes: total, validator: validatorOf(response) }
      }
      if (response.statusCode === 416) {
        discard(response)
        throw new BatonError('download_failed', `${shown(url)}: has fewer than the ${from} bytes that it sent before`)
      }
      const refusal = await refusalOf(reply, 'download_failed')
      // a server that has trouble may have got over it; one that refuses will refuse again
      if (response.statusCode >= 500 || response.statusCode === 408) throw new Error(refusal.message)
      throw refusal
    },
    async close() {
      const opened = await dispatchers?.catch(() => null) // where it could not be opened there is nothing to close
      dispatchers = null
      await Promise.all([opened?.direct.destroy(), opened?.proxied.destroy()])
    },
  }
}

// ---- where a request may go --------------------------------------------------------------------------------------

interface Dispatchers {
  request: (
    url: URL,
    options: { dispatcher: Dispatcher } & Omit<Dispatcher.RequestOptions, 'origin' | 'path' | 'method'>,
  ) => Promise<Dispatcher.ResponseData>
  /** for this machine's own addresses, which a proxy could not reach */
  direct: Dispatcher
  proxied: Dispatcher
}

async function openDispatchers({ environment, ca }: HttpOptions, timeoutMs: number): Promise<Dispatchers> {
  const { Agent, EnvHttpProxyAgent, request } = await import('undici')
  const tls = ca === undefined ? {} : { ca }
  const common = {
    connect: { timeout: CONNECT_TIMEOUT_MS, ...tls },
    headersTimeout: timeoutMs,
    bodyTimeout: 0, // texts have a deadline, assets a watch on their pace
    keepAliveTimeout: 1_000, // a process about to hand over keeps no idle sockets
    maxHeaderSize: 32 * 1024,
  }
  // '' rather than absent: absent makes undici look at process.env itself
  const proxies = {
    httpProxy: proxyOf(environment, 'HTTP_PROXY'),
    httpsProxy: proxyOf(environment, 'HTTPS_PROXY'),
    noProxy: settingOf(environment, 'NO_PROXY'),
  }
  return {
    request,
    direct: new Agent(common),
    proxied: new EnvHttpProxyAgent({ ...common, ...proxies, requestTls: { timeout: CONNECT_TIMEOUT_MS, ...tls } }),
  }
}

/** With the scheme that curl adds too. The value is not shown: there may be a password in it. */
function proxyOf(environment: HttpOptions['environment'], name: string): string {
  const value = settingOf(environment, name)
  if (value === '') return ''
  const url = URL.parse(value.includes('://') ? value : `http://${value}`)
  if (url !== null && /^https?:$/.test(url.protocol) && url.hostname !== '') return url.href
  throw new BatonError('invalid_settings', `the environment's \`${name}\`: expected http://host:port`)
}

function settingOf(environment: HttpOptions['environment'], name: string): string {
  return environment[name.toLowerCase()] || environment[name] || ''
}

/** For messages: no credentials, no query (GitHub signs its download links there). */
export function shown(url: string | URL): string {
  const { protocol, host, pathname } = new URL(url)
  return `\`${protocol}//${host}${pathname.length > 120 ? `${pathname.slice(0, 120)}…` : pathname}\``
}

function parsedUrl(text: string, failure: ErrorCode, base?: URL): URL {
  const url = URL.parse(text, base)
  const whence = base === undefined ? '' : ` (redirected from ${shown(base)})`
  if (url === null) throw new BatonError(failure, `expected an address, got something else${whence}`)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new BatonError(failure, `expected https, got ${url.protocol}${whence}`)
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
    throw new BatonError(failure, `plain http is for this machine only, got ${shown(url)}${whence}`)
  }
  url.hash = ''
  url.username = ''
  url.password = ''
  return url
}

function authorization(url: URL, { token }: HttpOptions): Record<string, string> {
  if (!token) return {}
  const base = new URL(token.base)
  const below = url.origin === base.origin && `${url.pathname}/`.startsWith(`${base.pathname.replace(/\/+$/, '')}/`)
  return below ? { authorization: `Bearer ${token.value}` } : {}
}

// ---- what came back ----------------------------------------------------------------------------------------------

function redirectOf(response: Dispatcher.ResponseData): string | null {
  return [301, 302, 303, 307, 308].includes(response.statusCode) ? header(response, 'location') : null
}

function header({ headers }: Dispatcher.ResponseData, name: string): string | null {
  const value = headers[name]
  return (Array.isArray(value) ? value[0] : value) ?? null
}

function lengthOf(response: Dispatcher.ResponseData): number | null {
  const length = header(response, 'content-length')
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : null
}

/** A strong ETag or a date; If-Range takes no weak ETag (RFC 9110, 13.1.5). */
function validatorOf(response: Dispatcher.ResponseData): string | null {
  const etag = header(response, 'etag')
  return etag !== null && !etag.startsWith('W/') ? etag : header(response, 'last-modified')
}

function contentRangeOf({ url, response }: Reply): { first: number; total: number | null } {
  const range = header(response, 'content-range') ?? ''
  const [, first, total] = /^bytes (\d{1,15})-\d{1,15}\/(\d{1,15}|\*)$/.exec(range) ?? []
  if (first === undefined) {
    discard(response)
    throw new BatonError(
      'download_failed',
      `${shown(url)}: expected a Content-Range, got ${JSON.stringify(range.slice(0, 60))}`,
    )
  }
  return { first: Number(first), total: total === '*' ? null : Number(total) }
}

function nextOf({ url, response }: Reply): string | null {
  const [, target] = /<([^<>]+)>;\s*rel="next"/.exec(header(response, 'link') ?? '') ?? []
  const next = target === undefined ? null : URL.parse(target, url)
  return next?.origin === url.origin ? next.href : null
}

async function readBounded({ url, response }: Reply, maxBytes: number, failure: ErrorCode): Promise<string> {
  const tooLong = (): BatonError =>
    new BatonError(failure, `asking ${shown(url)}: expected at most ${maxBytes} bytes, got more`)
  if ((lengthOf(response) ?? 0) > maxBytes) {
    discard(response)
    throw tooLong()
  }
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
    bytes += chunk.length
    if (bytes > maxBytes) throw tooLong() // leaving the loop destroys the body
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** Lets go of an answer that nobody reads. */
function discard(response: Dispatcher.ResponseData): void {
  response.body.destroy()
}

/** Why the answer is not what was asked for. */
async function refusalOf(reply: Reply, failure: ErrorCode): Promise<BatonError> {
  const { url, response } = reply
  const status = response.statusCode
  const message = await readBounded(reply, REFUSAL_MAX_BYTES, failure).catch(() => '')
  if (status === 429 || (status === 403 && isQuota(response, message))) return rateLimited(reply)
  if (status === 404 || status === 410) {
    return new BatonError('release_not_found', `${shown(url)}: there is no such thing (${status})`)
  }
  const hint =
    status === 401 || status === 403 ? { hint: 'is a token needed, or is the one that is set still good?' } : {}
  return new BatonError(failure, `${shown(url)}: expected 200, got ${status}`, hint)
}

function isQuota(response: Dispatcher.ResponseData, message: string): boolean {
  return (
    header(response, 'x-ratelimit-remaining') === '0' ||
    header(response, 'retry-after') !== null ||
    /rate limit/i.test(message)
  )
}

function rateLimited({ url, response }: Reply): BatonError {
  const seconds = Math.ceil(Math.min(RETRY_AFTER_MAX_SECONDS, Math.max(1, secondsToWait(response, Date.now()))))
  const resetAt = new Date(Date.now() + seconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z')
  const details: Details = {
    hint: 'wait, or set GITHUB_TOKEN: it has a larger quota',
    members: { retryAfterSeconds: seconds, resetAt },
  }
  const wait = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`
  return new BatonError('rate_limited', `\`${url.host}\` refuses more requests until ${resetAt} (in ${wait})`, details)
}

function secondsToWait(response: Dispatcher.ResponseData, now: number): number {
  const after = header(response, 'retry-after') ?? ''
  if (/^\d{1,9}$/.test(after)) return Number(after)
  const date = Date.parse(after)
  if (!Number.isNaN(date)) return (date - now) / 1000
  const reset = header(response, 'x-ratelimit-reset') ?? ''
  return /^\d{1,12}$/.test(reset) ? Number(reset) - now / 1000 : RETRY_AFTER_SECONDS
}

function within(timeoutMs: number, signal: AbortSignal | undefined): AbortSignal {
  const deadline = AbortSignal.timeout(timeoutMs)
  return signal === undefined ? deadline : AbortSignal.any([signal, deadline])
}

function explained(
  error: unknown,
  failure: ErrorCode,
  doing: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): BatonError {
  if (error instanceof BatonError) return error
  if (signal?.aborted) return new BatonError('interrupted', `${doing}: ${reasonOf(signal.reason)}`, { cause: error })
  const late = error instanceof Error && (error.name === 'TimeoutError' || error.name === 'HeadersTimeoutError')
  const reason = late ? `expected an answer within ${timeoutMs / 1000} s, got none` : reasonOf(error)
  const hint = 'does this host reach the feed? HTTPS_PROXY and NO_PROXY are honoured'
  return new BatonError(failure, `${doing}: ${reason}`, { cause: error, hint })
}
