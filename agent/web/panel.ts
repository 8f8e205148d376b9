// Serves the panel's files over HTTP: a short list of names. Asks for no token, since the files hold no secret.
// Must hold: nothing outside the list is ever read, and the page loads from and talks to its own origin only.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { BatonError } from '../words/errors.ts'
import { pathOf, problemOf, send as answerWith } from '../http/answer.ts'
import { typeOf, webAssets } from './assets.ts'
import { nodeCrypto } from '../words/later.ts'

/** Answers a request for the panel; returns false for any other. */
export type Panel = (req: IncomingMessage, res: ServerResponse) => boolean

export const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const HEADERS = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // the browser must ask again each time: after a switch it must not use the old page from its cache
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
}

/**
 * Browsers accept brotli only over https and from this machine, the routes by which a token should travel. Gzip is for the rest.
 */
type Encoding = 'br' | 'gzip' | 'identity'

interface File {
  type: string
  hash: string
  body: Buffer
  /** compressed at the first request, asynchronously, so that the service is not blocked */
  packed: Map<Encoding, Promise<Buffer>>
}

const PACK = {
  br: async (body: Buffer) => await promisify((await import('node:zlib')).brotliCompress)(body),
  gzip: async (body: Buffer) => await promisify((await import('node:zlib')).gzip)(body, { level: 9 }),
  identity: async (body: Buffer) => body,
}

/** `basePath`: prefix of `/web/settings.html`, '' for none. */
export function makePanel({ basePath }: { basePath: string }): Panel {
  const prefix = `${basePath.replace(/\/+$/, '')}/web/`
  let files: Map<string, File> | null = null
  return (req, res) => {
    const path = pathOf(req)
    if (!path.startsWith(prefix)) return false
    const name = path.slice(prefix.length)
    files ??= readFiles() // once, and only in a process that gets a request for them
    const file = files.get(name)
    if (file === undefined) return false
    if (req.method !== 'GET' && req.method !== 'HEAD') refuse(req, res)
    else send(req, res, file).catch(() => void res.destroy())
    return true
  }
}

async function send(req: IncomingMessage, res: ServerResponse, { type, hash, body, packed }: File): Promise<void> {
  const encoding = encodingFor(req.headers['accept-encoding'] ?? '')
  const etag = encoding === 'identity' ? `"${hash}"` : `"${hash}-${encoding}"`
  for (const [header, value] of Object.entries({ ...HEADERS, etag })) res.setHeader(header, value)
  if (matches(req.headers['if-none-match'], etag)) {
    res.writeHead(304).end()
    return
  }
  const sent = packed.get(encoding) ?? PACK[encoding](body)
  packed.set(encoding, sent)
  const bytes = await sent
  if (encoding !== 'identity') res.setHeader('content-encoding', encoding)
  res.writeHead(200, { 'content-type': type, 'content-length': bytes.length })
  res.end(req.method === 'HEAD' ? undefined : bytes)
}

function refuse(req: IncomingMessage, res: ServerResponse): void {
  for (const [header, value] of Object.entries(HEADERS)) res.setHeader(header, value)
  const { status, body, headers } = problemOf(
    new BatonError('method_not_allowed', `expected GET or HEAD, got ${req.method}`),
  )
  answerWith(req, res, { status, body, headers: { ...headers, Allow: 'GET, HEAD' } })
}

/**
 * Writes the hash of the whole panel into the page and uses it as the page's ETag, so that the page sees when it is out of date.
 */
function readFiles(): Map<string, File> {
  const texts = Object.entries(webAssets())
  const whole = hashOf(texts.map(([name, text]) => `${name}\n${text}`).join('\n'))
  return new Map(texts.map(([name, text]) => [name, fileOf(name, text, whole)]))
}

function fileOf(name: string, text: string, whole: string): File {
  const isPage = name === 'settings.html'
  const body = Buffer.from(isPage ? text.replace('content="ASSETS"', `content="${whole}"`) : text)
  return { type: typeOf(name), hash: isPage ? whole : hashOf(text), body, packed: new Map() }
}

function hashOf(text: string): string {
  return nodeCrypto().createHash('sha256').update(text).digest('hex').slice(0, 24)
}

function encodingFor(header: string): Encoding {
  const accepted = header.split(',').flatMap((one) => {
    const [, name] = /^\s*([a-z*]+)\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.exec(one) ?? []
    return name === undefined ? [] : [name.toLowerCase()]
  })
  if (accepted.includes('br')) return 'br'
  return accepted.includes('gzip') || accepted.includes('*') ? 'gzip' : 'identity'
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some((one) => ['*', etag].includes(one.trim().replace(/^W\//, '')))
}
