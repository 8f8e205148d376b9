// The panel's files over HTTP: a short list of names, served as they are, without the token, since they hold no secret.
// Must never break: nothing outside the list is ever read, and the page may load nothing and talk to nobody but its origin.

import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { MEANINGS } from './errors.ts'
import { ASSET_NAMES, ASSETS, webAssets, type AssetName } from './web/assets.ts'

/** Answers the request where it is for the panel; false where it is for somebody else. */
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
  // always asked for again: after a switch the old page must not go on out of a cache
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
}

interface Representation {
  body: Buffer
  etag: string
}

interface File {
  type: string
  plain: Representation
  gzip: Representation
}

/** `basePath` is the prefix of `/web/settings.html`, '' for none. */
export function makePanel({ basePath }: { basePath: string }): Panel {
  const prefix = `${basePath.replace(/\/+$/, '')}/web/`
  let files: Map<string, File> | null = null
  return (req, res) => {
    const path = (req.url ?? '').replace(/[?#].*$/s, '')
    if (!path.startsWith(prefix)) return false
    const name = path.slice(prefix.length)
    files ??= readFiles() // once, and only in a process that is asked for them
    const file = files.get(name)
    if (file === undefined) return false
    if (req.method !== 'GET' && req.method !== 'HEAD') refuse(req, res)
    else send(req, res, file)
    return true
  }
}

function send(req: IncomingMessage, res: ServerResponse, { type, plain, gzip }: File): void {
  const { body, etag } = acceptsGzip(req.headers['accept-encoding']) ? gzip : plain
  for (const [header, value] of Object.entries(HEADERS)) res.setHeader(header, value)
  res.setHeader('etag', etag)
  if (matches(req.headers['if-none-match'], etag)) {
    res.writeHead(304).end()
    return
  }
  if (body === gzip.body) res.setHeader('content-encoding', 'gzip')
  res.writeHead(200, { 'content-type': type, 'content-length': body.length })
  res.end(req.method === 'HEAD' ? undefined : body)
}

function refuse(req: IncomingMessage, res: ServerResponse): void {
  const { status, title } = MEANINGS.method_not_allowed
  const detail = `expected GET or HEAD, got ${req.method}`
  const body = JSON.stringify({ type: 'about:blank', title, status, detail, code: 'method_not_allowed' })
  for (const [header, value] of Object.entries(HEADERS)) res.setHeader(header, value)
  res.writeHead(status, {
    allow: 'GET, HEAD',
    'content-type': 'application/problem+json',
    'content-length': body.length,
  })
  res.end(body)
}

/** The page learns the hash of the whole panel, which is also its ETag: so it can tell whether another version serves another page. */
function readFiles(): Map<string, File> {
  const texts = webAssets()
  const whole = hashOf(ASSET_NAMES.map((name) => `${name}\n${texts[name]}`).join('\n'))
  return new Map(ASSET_NAMES.map((name) => [name, fileOf(name, texts[name], whole)]))
}

function fileOf(name: AssetName, text: string, whole: string): File {
  const isPage = name === 'settings.html'
  const body = Buffer.from(isPage ? text.replace('content="ASSETS"', `content="${whole}"`) : text)
  const hash = isPage ? whole : hashOf(text)
  return {
    type: ASSETS[name],
    plain: { body, etag: `"${hash}"` },
    gzip: { body: gzipSync(body, { level: 9 }), etag: `"${hash}-gzip"` },
  }
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 24)
}

function acceptsGzip(header: string | string[] | undefined): boolean {
  return String(header ?? '')
    .split(',')
    .some((one) => /^\s*(gzip|\*)\s*(;\s*q=(?!0(\.0*)?\s*$).*)?$/i.test(one))
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some((one) => ['*', etag].includes(one.trim().replace(/^W\//, '')))
}
