// How a file of the panel is sent: compressed, with its hash, and with headers by which the page loads from and talks to its own origin only.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { extname } from 'node:path'
import { promisify } from 'node:util'
import { problemOf, send as answerWith } from '../http/answer.ts'
import type { PasswordHeader } from '../words/bounds.ts'
import { BatonError } from '../words/errors.ts'
import { nodeCrypto } from '../words/later.ts'

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}

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

interface PanelFile {
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

/** One of the panel's files, and what the page is told. */
export interface AskedFile {
  name: string
  texts: Readonly<Record<string, string>>
  service: string
  passwordHeader: PasswordHeader
}

/** of each panel, made at its first request */
const made = new WeakMap<AskedFile['texts'], Map<string, PanelFile>>()

export async function sendFile(req: IncomingMessage, res: ServerResponse, asked: AskedFile): Promise<void> {
  const files = made.get(asked.texts) ?? readFiles(asked)
  made.set(asked.texts, files)
  const file = files.get(asked.name)
  if (file === undefined) throw new Error(`expected ${asked.name} among the panel's files`)
  if (req.method !== 'GET' && req.method !== 'HEAD') return refuse(req, res)
  const { type, hash, body, packed } = file
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

/**
 * Writes into the page what it has to know before it asks, and the hash of the whole panel. That is the page's ETag too, so that the page
 * sees when it is out of date.
 */
function readFiles({ texts: given, service, passwordHeader }: AskedFile): Map<string, PanelFile> {
  const filledIn = (text: string) => text.replaceAll('SERVICE', service).replace('HEADER', passwordHeader)
  const filled = Object.entries(given).map(
    ([name, text]) => [name, name === 'settings.html' ? filledIn(text) : text] as const,
  )
  const whole = hashOf(filled.map(([name, text]) => `${name}\n${text}`).join('\n'))
  return new Map(filled.map(([name, text]) => [name, fileOf(name, text, whole)]))
}

function fileOf(name: string, text: string, whole: string): PanelFile {
  const isPage = name === 'settings.html'
  const body = Buffer.from(isPage ? text.replace('content="ASSETS"', `content="${whole}"`) : text)
  return { type: typeOf(name), hash: isPage ? whole : hashOf(text), body, packed: new Map() }
}

function hashOf(text: string): string {
  return nodeCrypto().createHash('sha256').update(text).digest('hex').slice(0, 24)
}

export function typeOf(name: string): string {
  return TYPES[extname(name)] ?? 'application/octet-stream'
}
