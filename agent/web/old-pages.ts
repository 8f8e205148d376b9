// Keeps the pages of the release before working: a page that is open asks for files which only that release had. Where the application
// answers 404, or by a page in the place of a script (the fallback of an application of one page), this sends the file from the folder that
// the backup executable has unpacked. Loaded only if the author names `assets`.
// Must hold: it sends files of the folders that the author names, with a hash in their names and of a few types, and never HTML; only
// for GET and HEAD, and only if the application itself does not have the file. Whatever fails here, the application's answer stands.

import {
  closeSync,
  constants,
  createReadStream,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  realpathSync,
} from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { basename, dirname, extname, join, sep } from 'node:path'

const IMAGES = ['png', 'jpeg', 'gif', 'webp', 'avif'].map((name) => [`.${name}`, `image/${name}`])
const FONTS = ['woff2', 'woff', 'ttf', 'otf'].map((name) => [`.${name}`, `font/${name}`])
const SCRIPTS = ['.js', '.mjs'].map((end) => [end, 'text/javascript; charset=utf-8'])
const TYPES: Readonly<Record<string, string>> = {
  ...Object.fromEntries([...IMAGES, ...FONTS, ...SCRIPTS]),
  '.css': 'text/css; charset=utf-8',
  '.json': 'application/json',
  '.map': 'application/json',
  '.wasm': 'application/wasm',
  '.jpg': 'image/jpeg',
  '.ico': 'image/x-icon',
  '.svg': 'image/svg+xml',
  '.mp4': 'video/mp4',
  '.webm': 'video/webm',
  '.mp3': 'audio/mpeg',
  '.ogg': 'audio/ogg',
}
const [PATH_MAX, DEPTH_MAX] = [1024, 16]
/** names of bundlers have brackets for parts of a route: `[slug]`, `(shop)`, `@modal` */
const SEGMENT = /^[\w~@()[\],+=-][\w.~@()[\],+=-]*$/

export interface OldPages {
  /** absolute path of the executable, whose backup is meant */
  executable: string
  service: string
  tag: string
  /** folders of the release */
  assets: readonly string[]
}

/** What looks at each request before the application does. It never answers one by itself. */
export function oldPages(about: OldPages): (request: IncomingMessage, response: ServerResponse) => void {
  return ({ method, url = '' }, response) => {
    if (method !== 'GET' && method !== 'HEAD') return
    const files = filesFor(url, about.assets)
    if (files.length > 0) ifNotFound(response, () => openIn(foldersOf(about), files), method === 'HEAD')
  }
}

interface Asset {
  /** of the release */
  folder: string
  path: string
}

/** The files that a URL may mean: what stands behind the last part of an assets folder's path. Pure. */
export function filesFor(url: string, assets: readonly string[]): Asset[] {
  const [raw = ''] = url.split('?', 1)
  if (raw.length > PATH_MAX || TYPES[extname(raw).toLowerCase()] === undefined) return []
  let path: string
  try {
    path = decodeURIComponent(raw)
  } catch {
    return []
  }
  return assets.flatMap((folder) => {
    const name = `/${basename(folder)}/`
    const found: Asset[] = []
    for (let at = path.indexOf(name); at !== -1; at = path.indexOf(name, at + 1)) {
      const rest = path.slice(at + name.length)
      const parts = rest.split('/')
      if (parts.length <= DEPTH_MAX && parts.every((part) => SEGMENT.test(part)) && parts.some(hasHash))
        found.push({ folder, path: rest })
    }
    return found
  })
}

/** Whether a bundler has put a hash into this name, as Vite, webpack, esbuild and Next.js do: then it always has the same content. */
export function hasHash(name: string): boolean {
  if (name.split(/[-._~]/).some((part) => part.length >= 8 && /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9]+$/.test(part)))
    return true
  const last = /[-.]([\w-]{8})\.[a-z0-9.]+$/.exec(name)?.[1] ?? ''
  const isMixed = /[a-z]/.test(last) && /[A-Z]/.test(last)
  if (/^[A-Za-z]+$/.test(last) ? /[a-z][A-Z]|[A-Z]{2}/.test(last) : isMixed) return true
  return name.length >= 16 && /^[\w-]+$/.test(name) && [/\d/, /[a-z]/, /[A-Z]/].every((one) => one.test(name))
}

/** The application's folders of other releases than this one, if there is a backup executable. */
function foldersOf({ executable, service, tag }: OldPages): string[] {
  if (!existsSync(`${executable}.backup`)) return []
  const home = join(dirname(executable), `.${service}`)
  const others = names(home).filter((name) => {
    const tags = /^[0-9a-f]{16}$/.test(name) ? names(join(home, name, 'tags')) : []
    return tags.length > 0 && !tags.includes(tag)
  })
  return others.map((name) => join(home, name, 'app'))
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

interface Opened {
  fd: number
  size: number
  type: string
}

/** The first of the files that is there; null: none. Follows no link out of its folder. */
function openIn(releases: readonly string[], files: readonly Asset[]): Opened | null {
  for (const release of releases) {
    for (const { folder, path } of files) {
      try {
        const [root, real] = [realpathSync(join(release, folder)), realpathSync(join(release, folder, path))]
        if (!root.startsWith(release + sep) || !real.startsWith(root + sep)) continue
        const fd = openSync(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
        const found = fstatSync(fd)
        const type = TYPES[extname(real).toLowerCase()]
        if (found.isFile() && type !== undefined) return { fd, size: found.size, type }
        closeSync(fd)
      } catch {
        continue // it is not there
      }
    }
  }
  return null
}

type Own = Pick<ServerResponse, 'writeHead' | 'write' | 'end' | 'flushHeaders' | 'setHeader'>

/**
 * Puts the file in the place of the answer, if that says that the application does not have it: looks when the application sends its head,
 * and only then. What it puts around the methods stays: a middleware may have put its own around that.
 */
function ifNotFound(response: ServerResponse, open: () => Opened | null, isHead: boolean): void {
  const { writeHead, write, end, flushHeaders, setHeader } = response
  const own: Own = { writeHead, write, end, flushHeaders, setHeader }
  /** null: not decided yet */
  let isOurs: boolean | null = null
  const decide = (status: number, headers: unknown): void => {
    if (isOurs !== null) return
    const isMissing =
      status === 404 || (status === 200 && isPage(typeIn(headers) ?? response.getHeader('content-type')))
    const found = isMissing && !response.headersSent ? open() : null
    if (found !== null) send(response, own, found, isHead) // before it is ours: Node sets the headers by `setHeader`
    isOurs = found !== null
  }
  /** `answer`: what the application is told of what goes nowhere */
  const around =
    (name: keyof Own, statusOf: (given: unknown) => number | null, answer: unknown) =>
    (...args: unknown[]): unknown => {
      const status = statusOf(args[0])
      if (status !== null) decide(status, name === 'writeHead' ? args.at(-1) : null)
      if (isOurs !== true) return Reflect.apply(own[name] as (...all: unknown[]) => unknown, response, args)
      const done = args.at(-1)
      if (typeof done === 'function') process.nextTick(done)
      return answer
    }
  const now = () => response.statusCode
  Object.assign(response, {
    writeHead: around('writeHead', Number, response),
    flushHeaders: around('flushHeaders', now, undefined),
    setHeader: around('setHeader', () => null, response),
    write: around('write', now, true),
    end: around('end', now, response),
  })
}

function isPage(type: unknown): boolean {
  return /^(text\/html|application\/xhtml)/i.test(String(type))
}

/** The content type in the headers that `writeHead` was given: an object, a flat list, or a list of pairs. */
function typeIn(headers: unknown): unknown {
  if (typeof headers !== 'object' || headers === null) return undefined
  const all: unknown[] = Array.isArray(headers) ? headers : Object.entries(headers)
  const flat = Array.isArray(all[0]) ? all.flat() : all // a flat list may have a list as a value
  const at = flat.findIndex((one, index) => index % 2 === 0 && /^content-type$/i.test(String(one)))
  return at === -1 ? undefined : flat[at + 1]
}

function send(
  response: ServerResponse,
  { writeHead, write, end }: Own,
  { fd, size, type }: Opened,
  isHead: boolean,
): void {
  for (const name of response.getHeaderNames()) if (!KEPT.test(name)) response.removeHeader(name)
  const headers = { 'content-type': type, 'content-length': size, 'x-content-type-options': 'nosniff' }
  Reflect.apply(writeHead, response, [200, { ...headers, 'cache-control': 'public, max-age=3600' }])
  const finish = () => void Reflect.apply(end, response, [])
  if (isHead || size === 0 || response.destroyed) {
    closeSync(fd)
    return finish()
  }
  const file = createReadStream('', { fd })
  response.once('close', () => file.destroy()).on('drain', () => file.resume())
  file
    .on('data', (part) => void (Reflect.apply(write, response, [part]) === false && file.pause()))
    .once('end', finish)
    .once('error', () => response.destroy())
}

/** headers of the application that fit a file, too: all others were about its own answer */
const KEPT = /^(access-control-.*|cross-origin-.*|strict-transport-security|vary|timing-allow-origin)$/
