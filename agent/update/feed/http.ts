// HTTP as a feed needs it. The only importer of undici, which it loads on first use, so that the service starts without it.
// Must hold: every hop goes only where `address.ts` allows; the token goes only to the API it is for, and into no message; no
// answer is read beyond its bound; every wait has a deadline. This file follows redirects itself, because undici's interceptor
// does not know these rules. Retries are in `steps/download.ts`, because undici's interceptor does not check the pace.

import type * as Undici from 'undici'
import type { Dispatcher } from 'undici'
import { BatonError } from '../../words/errors.ts'
import type { ErrorCode } from '../../words/errors.ts'
import type { Bytes } from '../../words/release.ts'
import { parsedJson } from '../../words/untrusted.ts'
import { isLoopback, neighbourhoodOf, parsedUrl, shown } from './address.ts'
import type { Neighbourhood } from './address.ts'
import { contentRangeOf, discardBody, explained, header, lengthOf, nextOf } from './answer.ts'
import { readBounded, redirectOf, refusalOf, validatorOf } from './answer.ts'
import type { Reply } from './answer.ts'

export interface HttpOptions {
  /** the addresses in the feed's setting; besides public addresses, requests may go only to networks of these */
  homes: readonly string[]
  /** holds HTTP_PROXY, HTTPS_PROXY and NO_PROXY; the lower-case names win */
  environment: Readonly<Record<string, string | undefined>>
  /** sent only with requests below one of `bases` */
  token?: { value: string; bases: readonly string[] } | null
  /** certificates to trust in place of those that come with Node, PEM */
  ca?: string
  /** how long the start of an answer may take; also the limit for a whole small file. A download that has begun has no limit here */
  timeoutMs?: number
}

export interface FileRequest {
  url: string
  maxBytes: number
  accept?: string
  /** ETag of the version the caller has; the answer is null if that is unchanged */
  known?: string | null
  /** error code if no more specific one applies */
  failure: ErrorCode
  signal?: AbortSignal | undefined
}

export interface File {
  content: Buffer
  etag: string | null
  /** target of `rel="next"`; null if there is none, or if it is on another host */
  next: string | null
}

export interface Http {
  /** whether it has a token for the API */
  readonly authorized: boolean
  /** Fetches a whole small file. Null: 304. Throws release_not_found for 404 and 410, rate_limited, else `failure`. */
  file(request: FileRequest): Promise<File | null>
  /** The same, parsed as JSON. The error says if an HTML page came instead. */
  json(request: FileRequest): Promise<(Omit<File, 'content'> & { value: unknown }) | null>
  /** Where `url` redirects to, without following it; null if it does not redirect. */
  location(request: Omit<FileRequest, 'maxBytes'>): Promise<string | null>
  /** See `Feed.bytes`. */
  bytes(url: string, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
  close(): Promise<void>
}

const REDIRECTS_MAX = 5
const TIMEOUT_MS = 30_000
const CONNECT_TIMEOUT_MS = 10_000

export function openHttp(options: HttpOptions): Http {
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS
  const near = neighbourhoodOf(options.homes)
  const { send, close } = makeSend(options, near, timeoutMs)

  const file: Http['file'] = async ({ url, maxBytes, accept, known = null, failure, signal }) => {
    const headers = {
      accept: accept ?? '*/*',
      ...(known === null ? {} : { 'if-none-match': known }),
    }
    const deadline = within(timeoutMs, signal)
    try {
      const reply = await send(url, headers, failure, deadline)
      if (reply.response.statusCode === 304 && known !== null) {
        discardBody(reply.response)
        return null
      }
      if (reply.response.statusCode !== 200) throw await refusalOf(reply, failure)
      const content = await readBounded(reply, maxBytes, failure)
      return { content, etag: header(reply.response, 'etag'), next: nextOf(reply) }
    } catch (error) {
      throw explained(error, failure, `requesting ${shown(url)}`, timeoutMs, signal)
    }
  }

  return {
    authorized: (options.token ?? null) !== null,
    file,
    async json(request) {
      const answer = await file({ accept: 'application/json', ...request })
      if (answer === null) return null
      const text = answer.content.toString()
      const value = parsedJson(text)
      if (value === undefined) {
        const got = /^\s*</.test(text) ? 'an HTML page' : text.trim() === '' ? 'nothing' : 'something else'
        const hint = 'check for a proxy or a login page between this host and the feed'
        throw new BatonError(request.failure, `requesting ${shown(request.url)}: expected JSON, got ${got}`, { hint })
      }
      return { value, etag: answer.etag, next: answer.next }
    },
    async location({ url, failure, signal }) {
      try {
        const reply = await send(url, {}, failure, within(timeoutMs, signal), 0)
        discardBody(reply.response)
        const location = redirectOf(reply.response)
        return location === null ? null : parsedUrl(location, failure, reply.url).href
      } catch (error) {
        throw explained(error, failure, `requesting ${shown(url)}`, timeoutMs, signal)
      }
    },
    async bytes(url, from, validator, signal) {
      const range =
        from > 0 ? { range: `bytes=${from}-`, ...(validator === null ? {} : { 'if-range': validator }) } : {}
      const accept = 'application/octet-stream'
      const reply = await send(url, { accept, ...range }, 'download_failed', signal)
      return await bytesOf(reply, from)
    },
    close,
  }
}

interface Sender {
  /** Sends one request and follows its redirects. Throws BatonError `failure` if a hop is not allowed, else what undici throws. */
  send(
    start: string,
    headers: Record<string, string>,
    failure: ErrorCode,
    signal: AbortSignal,
    follow?: number,
  ): Promise<Reply>
  close(): Promise<void>
}

function makeSend(options: HttpOptions, near: Neighbourhood, timeoutMs: number): Sender {
  let dispatchers: Promise<Dispatchers> | null = null

  const send: Sender['send'] = async (start, headers, failure, signal, follow = REDIRECTS_MAX) => {
    dispatchers ??= openDispatchers(options, near, timeoutMs)
    const { request, direct, proxied } = await dispatchers
    const seen = new Set<string>()
    let url = parsedUrl(start, failure)
    for (;;) {
      near.check(url, failure)
      seen.add(url.href)
      const response = await request(url, {
        dispatcher: isLoopback(url.hostname) ? direct : proxied,
        headers: { 'user-agent': 'baton', 'accept-encoding': 'identity', ...headers, ...authorization(url, options) },
        signal,
      })
      // without a listener, an abort before the body is read would end the process: nodejs/undici#3353
      response.body.on('error', () => {})
      const location = redirectOf(response)
      if (location === null || follow === 0) return { url, response }
      discardBody(response)
      const from = url
      url = parsedUrl(location, failure, from)
      if (seen.has(url.href)) throw new BatonError(failure, `${shown(from)} redirects in a loop`)
      if (seen.size > follow) throw new BatonError(failure, `${shown(start)} redirects more than ${follow} times`)
    }
  }
  const close = async (): Promise<void> => {
    const opened = await dispatchers?.catch(() => null) // if opening failed, there is nothing to close
    dispatchers = null
    await Promise.all([opened?.direct.destroy(), opened?.proxied.destroy()])
  }
  return { send, close }
}

async function bytesOf(reply: Reply, from: number): Promise<Bytes> {
  const { response } = reply
  if (response.statusCode === 200) {
    return { stream: response.body, from: 0, totalBytes: lengthOf(response), validator: validatorOf(response) }
  }
  if (response.statusCode === 206 && from > 0) {
    const { first, total } = contentRangeOf(reply)
    if (first !== from) {
      discardBody(response)
      throw new BatonError(
        'download_failed',
        `${shown(reply.url)}: expected a range from byte ${from}, got one from byte ${first}`,
      )
    }
    return { stream: response.body, from, totalBytes: total, validator: validatorOf(response) }
  }
  if (response.statusCode === 416) {
    discardBody(response)
    throw new BatonError(
      'download_failed',
      `${shown(reply.url)}: cannot resume after ${from} bytes: the file is now shorter than that`,
    )
  }
  const refusal = await refusalOf(reply, 'download_failed')
  // A server error may pass: a plain Error makes the download try again. A refusal would come again: it ends the download.
  if (response.statusCode >= 500 || response.statusCode === 408) throw new Error(refusal.message)
  throw refusal
}

interface Dispatchers {
  request: (
    url: URL,
    options: { dispatcher: Dispatcher } & Omit<Dispatcher.RequestOptions, 'origin' | 'path' | 'method'>,
  ) => Promise<Dispatcher.ResponseData>
  /** for this machine's own addresses: a proxy cannot reach them */
  direct: Dispatcher
  proxied: Dispatcher
}

/** Loads undici: most of the code that a feed needs, so it is loaded only when a feed is first asked. */
export async function loadHttp(): Promise<typeof Undici> {
  return await import('undici')
}

async function openDispatchers(
  { environment, ca }: HttpOptions,
  { lookup }: Neighbourhood,
  timeoutMs: number,
): Promise<Dispatchers> {
  const { Agent, EnvHttpProxyAgent, request } = await loadHttp()
  const tls = ca === undefined ? {} : { ca }
  const common = {
    connect: { timeout: CONNECT_TIMEOUT_MS, lookup, ...tls },
    headersTimeout: timeoutMs,
    bodyTimeout: 0, // texts have a deadline, assets a watch on their pace
    keepAliveTimeout: 1_000, // a process about to hand over keeps no idle sockets
    maxHeaderSize: 32 * 1024,
  }
  // '' and not absent: if absent, undici reads process.env itself
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

/** The proxy's URL; a value without a scheme gets `http://`, as in curl. No message shows the value: it may hold a password. */
function proxyOf(environment: HttpOptions['environment'], name: string): string {
  const value = settingOf(environment, name)
  if (value === '') return ''
  const url = URL.parse(value.includes('://') ? value : `http://${value}`)
  if (url !== null && /^https?:$/.test(url.protocol) && url.hostname !== '') return url.href
  throw new BatonError('invalid_settings', `the environment variable \`${name}\`: expected http://host:port`)
}

function settingOf(environment: HttpOptions['environment'], name: string): string {
  return environment[name.toLowerCase()] || environment[name] || ''
}

function authorization(url: URL, { token }: HttpOptions): Record<string, string> {
  if (!token) return {}
  const isBelow = (text: string) => {
    const base = new URL(text)
    return url.origin === base.origin && `${url.pathname}/`.startsWith(`${base.pathname.replace(/\/+$/, '')}/`)
  }
  return token.bases.some(isBelow) ? { authorization: `Bearer ${token.value}` } : {}
}

function within(timeoutMs: number, signal: AbortSignal | undefined): AbortSignal {
  const deadline = AbortSignal.timeout(timeoutMs)
  return signal === undefined ? deadline : AbortSignal.any([signal, deadline])
}
