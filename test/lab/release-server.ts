// A real HTTP(S) server that serves one dist folder twice: as GitHub's REST API with its web host, and as a static folder.
// It is as awkward as the real servers (redirects, quota, validators), and as hostile as `faults` says.
// It needs only node: modules, and listens on 127.0.0.1 unless it is told otherwise. The demo, the panel and the install tests use it without faults.

import { createHash } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import type { IncomingHttpHeaders, IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Answer, type Branches, makeBranches } from './release-branch.ts'

/** What goes wrong; empty: nothing. A test may change every member through `server.faults` while the server runs. */
export interface Faults {
  /** writes that are answered with 502, by `METHOD /path?query` */
  refusedWrites?: RegExp
  /** as GitHub has it: a published release says `immutable`, and no asset of it is added or removed */
  immutable?: boolean
  /** status of every answer with a file of a branch, by the raw host and by the contents API */
  branchStatus?: number
  // the listing
  /** tags that the listing flags as drafts, and (below) as prereleases, whatever releases.json says */
  drafts?: string[]
  prereleases?: string[]
  /** lists only these tags, and `/releases/latest` names the first: an outdated mirror */
  onlyTags?: string[]
  /** asset names put first in the API's list and in SHA256SUMS, such as `../../etc/cron.d/x` */
  extraNames?: string[]
  /** lists no assets, as in the minutes between publishing a release and uploading to it */
  noAssets?: boolean
  // the sums
  /** `line`: SHA256SUMS has no line for an asset; `file`: there is no SHA256SUMS */
  missingChecksum?: 'line' | 'file'
  /** there is no release.json */
  missingManifest?: boolean
  /** `digest` in the API: as GitHub gives it, absent as on older Enterprise servers, or a wrong one */
  digest?: 'true' | 'absent' | 'wrong'
  /** the API states this many bytes more (or fewer) than an asset has */
  announcedDelta?: number
  // every JSON and text answer
  /** answers 200 with an HTML page: a captive portal */
  html?: boolean
  /** status of every JSON and text answer */
  status?: number
  rateLimited?: { status: 403 | 429; resetSeconds?: number; retryAfterSeconds?: number }
  /** a JSON that never ends */
  endlessJson?: boolean
  /** answers nothing at all */
  silent?: boolean
  /** redirects every request in a ring of two addresses */
  redirectLoop?: boolean
  // the bytes of an asset
  /** redirects an asset to this address instead of this server's own `/objects/…` */
  redirectAssetTo?: string
  /** changes the last byte */
  wrongSha256?: boolean
  /** bytes sent after the end, with a content-length that agrees */
  longerBy?: number
  /** bytes lacking at the end, with a content-length that agrees */
  shorterBy?: number
  neverEnding?: boolean
  /** content-length states this many bytes more than are sent */
  contentLengthDelta?: number
  /** sends this many bytes, then nothing, with the connection open */
  stallAfter?: number
  /** breaks the connection after this many bytes, `cuts` times (default: always) */
  cutAfter?: number
  cuts?: number
  /** slow-loris: sends one byte, then waits this many milliseconds */
  byteEveryMs?: number
  /** answers a Range request with 200 and the whole asset */
  ignoreRange?: boolean
  /** gives another ETag in each answer, so that If-Range never matches */
  changingEtag?: boolean
  /** answers 206 with a Content-Range other than the requested one */
  wrongContentRange?: boolean
  /** status of every asset answer */
  assetStatus?: number
  /** further faults for the first answer with bytes of an asset, for the second, and so on; then none */
  turns?: Faults[]
}

export interface ReleaseServerOptions extends Faults {
  /** folder with `<tag>/…`, and perhaps `releases.json` */
  dir: string
  /** `owner/name`; default `acme/beacon` */
  repo?: string
  /** the repository's name before it was renamed: its addresses redirect to those of today, as GitHub's do */
  formerly?: string
  /** the API and the web host answer as Forgejo's and Gitea's: assets have one address, on the web host, which takes the token too */
  forgejo?: boolean
  /** default: any free port */
  port?: number
  /** where it listens; default 127.0.0.1 */
  address?: string
  /** https instead of http */
  tls?: { key: string; cert: string }
  /** speed of each asset answer; default: as fast as possible */
  bytesPerSecond?: number
  /** API requests that an anonymous client may make; default 60, as GitHub. A 304 counts too. */
  quota?: number
  /** makes the repository private: a request without this token gets 404 */
  token?: string
  /** a request with this token may write: create `verified` or a draft, upload and delete their assets, publish a draft */
  writeToken?: string
  /** base of the server to which assets are redirected, as GitHub does; default: this server */
  objectsUrl?: string
}

export interface Seen {
  method: string
  path: string
  headers: IncomingHttpHeaders
  status: number
}

export interface ReleaseServer extends AsyncDisposable {
  /** the web host: `http://127.0.0.1:port` */
  url: string
  /** base of the REST API: `<url>/api/v3`, as on GitHub Enterprise */
  apiUrl: string
  /** `<url>/static/` */
  staticUrl: string
  /** feed setting for the agent: `github:owner/name@<apiUrl>` */
  feed: string
  port: number
  branches: Branches
  /** newest last, at most REQUESTS_MAX */
  requests: Seen[]
  faults: Faults
  /** removes all faults, ends what has stalled, and counts answers from the start again */
  heal(): void
  /** 0 or undefined: as fast as possible */
  throttle(bytesPerSecond: number | undefined): void
  close(): Promise<void>
}

const REQUESTS_MAX = 10_000
/** the release that holds the trust metadata: a prerelease, never the latest */
const METADATA = 'verified'
const TAG = /^v(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.]+)?$/
const HTML = '<!doctype html><html><head><title>Log in to the guest network</title></head><body>Hello</body></html>\n'

interface State {
  options: ReleaseServerOptions
  faults: Faults
  bytesPerSecond: number | undefined
  url: string
  owner: string
  quotaLeft: number
  cutsMade: number
  stalled: ServerResponse[]
  answers: number
  sums: Map<string, { key: string; sha256: string }>
  /** ids of assets; like GitHub's, an id is never used again */
  ids: Map<string, number>
  branches: Branches
}

export async function releaseServer(options: ReleaseServerOptions): Promise<ReleaseServer> {
  const { dir: _dir, repo, port, address = '127.0.0.1', tls, bytesPerSecond, quota, token: _token, ...rest } = options
  const { objectsUrl: _objects, writeToken: _write, ...faults } = rest
  const state: State = {
    options,
    faults,
    bytesPerSecond,
    url: '',
    owner: repo ?? 'acme/beacon',
    quotaLeft: quota ?? 60,
    cutsMade: 0,
    stalled: [],
    answers: 0,
    sums: new Map(),
    ids: new Map(),
    branches: makeBranches(),
  }
  const requests: Seen[] = []
  const listener: RequestListener = (request, response) => {
    const seen = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      status: 0,
    }
    requests.push(seen)
    if (requests.length > REQUESTS_MAX) requests.shift()
    response.on('close', () => (seen.status = response.statusCode))
    answer(state, request, response).catch((cause: unknown) => {
      if (response.headersSent) response.destroy()
      else sendText(response, 500, `${String(cause)}\n`)
    })
  }
  const server = tls ? createHttpsServer(tls, listener) : createHttpServer(listener)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port ?? 0, address, resolve)
  })
  const bound = (server.address() as AddressInfo).port
  state.url = `${tls ? 'https' : 'http'}://${address}:${bound}`
  const close = async (): Promise<void> => {
    if (!server.listening) return
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeAllConnections()
    await closed
  }
  return {
    url: state.url,
    apiUrl: `${state.url}/api/v3`,
    staticUrl: `${state.url}/static/`,
    feed: `github:${state.owner}@${state.url}/api/v3`,
    port: bound,
    branches: state.branches,
    requests,
    faults,
    heal: () => {
      for (const name of Object.keys(faults)) Reflect.deleteProperty(faults, name)
      for (const one of state.stalled.splice(0)) one.destroy()
      Object.assign(state, { answers: 0, cutsMade: 0 })
    },
    throttle: (value) => (state.bytesPerSecond = value),
    close,
    [Symbol.asyncDispose]: close,
  }
}

async function answer(state: State, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', state.url)
  const path = decodeURIComponent(url.pathname)
  if (state.faults.silent) return
  if (state.faults.redirectLoop) {
    return redirect(response, url.searchParams.has('ring') ? url.pathname : `${url.pathname}?ring=1`)
  }
  if (state.options.writeToken !== undefined && ['POST', 'PATCH', 'DELETE'].includes(request.method ?? '')) {
    return await answerWrite(state, request, response, path, url)
  }
  if (request.method !== 'GET' && request.method !== 'HEAD') return sendText(response, 405, 'GET only\n')
  const former = state.options.formerly
  for (const head of ['/api/v3/repos/', '/']) {
    if (former === undefined || !path.startsWith(`${head}${former}/`)) continue
    const rest = `${path.slice(head.length + former.length)}${url.search}`
    return redirect(response, `${state.url}${head}${state.owner}${rest}`, 301)
  }
  if (path.startsWith('/api/v3/')) return await answerApi(state, request, response, path.slice(7), url)
  if (path.startsWith(`/${state.owner}/releases/`)) {
    return await answerWeb(state, request, response, path.slice(state.owner.length + 11))
  }
  const raw = `/${state.owner}/raw/`
  if (path.startsWith(raw)) return redirect(response, `${state.url}/raw-host/${path.slice(raw.length)}`)
  if (path.startsWith('/raw-host/')) return answerRaw(state, request, response, path.slice('/raw-host/'.length))
  if (path.startsWith('/objects/')) return await answerFile(state, request, response, path.slice(9))
  if (path.startsWith('/static/')) return await answerStatic(state, request, response, path.slice(8))
  sendText(response, 404, 'Not Found\n')
}

// ---- GitHub's REST API -------------------------------------------------------------------------------------------

async function answerApi(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
  url: URL,
): Promise<void> {
  const { token } = state.options
  const authorized = token !== undefined && request.headers.authorization === `Bearer ${token}`
  const prefix = `/repos/${state.owner}/releases`
  if (path.startsWith(`${prefix}/assets/`) && (token === undefined || authorized)) {
    const listed = await releasesOf(state)
    const id = Number(path.slice(prefix.length + 8))
    const asset = listed.flatMap((release) => release.assets).find((entry) => entry.id === id)
    if (!asset) return sendJson(response, 404, { message: 'Not Found' })
    if (!request.headers.accept?.includes('application/octet-stream')) return sendJson(response, 200, asset)
    return redirect(response, `${objectsUrl(state)}${asset.path}`)
  }
  if (!authorized) state.quotaLeft--
  const reset = Math.floor(Date.now() / 1000) + (state.faults.rateLimited?.resetSeconds ?? 1_800)
  const exhausted = !authorized && state.quotaLeft < 0
  const left = exhausted || state.faults.rateLimited ? 0 : Math.max(0, state.quotaLeft)
  response.setHeader('x-ratelimit-limit', String(state.options.quota ?? 60))
  response.setHeader('x-ratelimit-remaining', String(left))
  response.setHeader('x-ratelimit-reset', String(reset))
  response.setHeader('x-ratelimit-resource', 'core')
  if (exhausted || state.faults.rateLimited) {
    const { status = 403, retryAfterSeconds } = state.faults.rateLimited ?? {}
    if (retryAfterSeconds !== undefined) {
      response.setHeader('retry-after', String(retryAfterSeconds))
      response.removeHeader('x-ratelimit-remaining')
    }
    return sendJson(response, status, { message: 'API rate limit exceeded for 127.0.0.1.' })
  }
  if (answeredByFault(state, response)) return
  if (token !== undefined && !authorized) return sendJson(response, 404, { message: 'Not Found' })

  const git = `/repos/${state.owner}/git/`
  if (path.startsWith(git)) return sendAnswer(response, state.branches.ref(path.slice(git.length)))
  const contents = `/repos/${state.owner}/contents/`
  if (path.startsWith(contents)) {
    if (state.faults.branchStatus !== undefined) return sendJson(response, state.faults.branchStatus, { message: 'no' })
    const isRaw = request.headers.accept?.includes('.raw') === true
    const at = [path.slice(contents.length), url.searchParams.get('ref') ?? ''] as const
    return sendAnswer(response, state.branches.contents(...at, isRaw, `${state.url}/api/v3${contents}`))
  }
  const listed = await releasesOf(state)
  if (path === prefix || path === `${prefix}/`) {
    const perPage = Math.min(100, Number(url.searchParams.get('per_page') ?? 30))
    const page = Number(url.searchParams.get('page') ?? 1)
    if (page * perPage < listed.length) {
      const next = `${state.url}/api/v3${prefix}?per_page=${perPage}&page=${page + 1}`
      response.setHeader('link', `<${next}>; rel="next"`)
    }
    return sendTagged(request, response, listed.slice((page - 1) * perPage, page * perPage).map(withoutPath))
  }
  if (path === `${prefix}/latest`) {
    const latest = listed.find((release) => !release.draft && !release.prerelease)
    return latest
      ? sendTagged(request, response, withoutPath(latest))
      : sendJson(response, 404, { message: 'Not Found' })
  }
  if (path.startsWith(`${prefix}/tags/`)) {
    const tag = path.slice(prefix.length + 6)
    // a draft appears only in the list, and only for a token that may write
    const isSeen = (entry: Listed) => state.options.writeToken === undefined || !entry.draft
    const release = listed.find((entry) => entry.tag_name === tag && isSeen(entry))
    return release
      ? sendTagged(request, response, withoutPath(release))
      : sendJson(response, 404, { message: 'Not Found' })
  }
  sendJson(response, 404, { message: 'Not Found' })
}

/** As raw.githubusercontent.com, to which GitHub's web host redirects: a file of a branch, `refs/heads/NAME/PATH`. */
function answerRaw(state: State, request: IncomingMessage, response: ServerResponse, path: string): void {
  if (state.faults.branchStatus !== undefined) return sendText(response, state.faults.branchStatus, 'no\n')
  const [, ref = '', name = ''] = /^(refs\/heads\/[^/]+)\/(.+)$/.exec(path) ?? []
  const text = state.options.token === undefined ? state.branches.raw(ref, name) : null
  if (text === null) return sendText(response, 404, '404: Not Found')
  const etag = `W/"${sha256OfText(text)}"`
  response.setHeader('etag', etag)
  response.setHeader('cache-control', 'max-age=300')
  if (request.headers['if-none-match'] === etag) return void response.writeHead(304).end()
  sendText(response, 200, text)
}

function sendAnswer(response: ServerResponse, { status, body }: Answer): void {
  if (typeof body === 'string') sendText(response, status, body, 'application/vnd.github.raw+json; charset=utf-8')
  else sendJson(response, status, body)
}

/** A publisher's requests: create a release, upload an asset (422 if the name is taken), delete one, publish a draft. */
async function answerWrite(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
  url: URL,
): Promise<void> {
  const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>))
  if (request.headers.authorization !== `Bearer ${state.options.writeToken}`) return sendJson(response, 401, {})
  if (state.faults.refusedWrites?.test(`${request.method} ${path}${url.search}`) === true)
    return sendJson(response, 502, { message: 'Bad Gateway' })
  const git = `/api/v3/repos/${state.owner}/git/`
  if (path.startsWith(git)) {
    const said = [request.method ?? '', path.slice(git.length), lenient(body.toString())] as const
    return sendAnswer(response, state.branches.write(...said))
  }
  if (state.faults.immutable === true && !path.endsWith('/releases'))
    return sendJson(response, 422, { message: 'Cannot upload assets to an immutable release.' })
  const releases = `/api/v3/repos/${state.owner}/releases`
  const listed = await releasesOf(state)
  const release = async (wanted: string): Promise<unknown> => {
    const found = (await releasesOf(state)).find(({ tag_name: tag }) => tag === wanted)
    return found === undefined ? null : withoutPath(found)
  }
  if (request.method === 'POST' && path === releases) {
    const { tag_name: tag, prerelease, draft } = lenient(body.toString())
    const isGood = tag === METADATA ? prerelease === true : TAG.test(String(tag)) && draft === true
    if (!isGood) return sendJson(response, 422, { message: 'Validation Failed' })
    await mkdir(join(state.options.dir, String(tag)))
    if (tag !== METADATA) await flag(state.options.dir, String(tag), true)
    return sendJson(response, 201, await release(String(tag)))
  }
  if (request.method === 'POST' && path.startsWith('/api/uploads/')) {
    const [, index] = /\/releases\/(\d+)\/assets$/.exec(path) ?? []
    const tag = listed.find(({ id }) => id === Number(index))?.tag_name ?? METADATA
    const name = url.searchParams.get('name') ?? ''
    const there = await readdir(join(state.options.dir, tag)).catch(() => [])
    if ((there as string[]).includes(name) || !/^[\w.-]+$/.test(name))
      return sendJson(response, 422, { message: 'already_exists' })
    await writeFile(join(state.options.dir, tag, name), body)
    const assets = (await releasesOf(state)).find(({ tag_name }) => tag_name === tag)?.assets ?? []
    return sendJson(response, 201, assets.find((one) => one.name === name) ?? { name, state: 'uploaded' })
  }
  const whole = listed.find(({ id }) => path === `${releases}/${String(id)}`)
  if (request.method === 'PATCH' && whole !== undefined) {
    await flag(state.options.dir, whole.tag_name, lenient(body.toString())['draft'] === true)
    return sendJson(response, 200, await release(whole.tag_name))
  }
  const id = Number(path.slice(releases.length + 8))
  const asset = listed.flatMap(({ assets }) => assets).find((one) => one.id === id)
  if (request.method === 'PATCH' && asset !== undefined) {
    const name = String(lenient(body.toString())['name'])
    const to = join(dirname(join(state.options.dir, asset.path)), name)
    if (!/^[\w.-]+$/.test(name) || existsSync(to)) return sendJson(response, 422, { message: 'already_exists' })
    await rename(join(state.options.dir, asset.path), to)
    state.ids.delete(String(asset['name']))
    state.ids.set(name, id)
    return sendJson(response, 200, { ...asset, name })
  }
  if (request.method !== 'DELETE' || asset === undefined) return sendJson(response, 404, { message: 'Not Found' })
  state.ids.delete(String(asset['name']))
  await rm(join(state.options.dir, asset.path), { force: true })
  response.writeHead(204).end()
}

/** Marks a release in releases.json as a draft or as published. */
async function flag(dir: string, tag: string, draft: boolean): Promise<void> {
  const flags = await flagsOf(dir)
  flags.set(tag, { draft, prerelease: false })
  const releases = [...flags].map(([name, marks]) => ({ tag: name, ...marks }))
  await writeFile(join(dir, 'releases.json'), JSON.stringify({ format: 1, releases }))
}

/** Answers as github.com itself: the redirect to the latest release, and downloads at conventional addresses. */
async function answerWeb(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
): Promise<void> {
  const { token, forgejo = false } = state.options
  const isAllowed = token === undefined || (forgejo && request.headers.authorization === `Bearer ${token}`)
  if (!isAllowed) return sendText(response, 404, 'Not Found\n')
  if (path === 'latest') {
    const listed = await releasesOf(state)
    const latest = listed.find((release) => !release.draft && !release.prerelease)
    return redirect(response, `${state.url}/${state.owner}/releases${latest ? `/tag/${latest.tag_name}` : ''}`)
  }
  if (path.startsWith('tag/')) return sendText(response, 200, HTML, 'text/html')
  if (path.startsWith('download/')) {
    const name = path.slice(9)
    if (!(await exists(state, name))) return sendText(response, 404, 'Not Found\n')
    return redirect(response, `${objectsUrl(state)}${name}`)
  }
  sendText(response, 404, 'Not Found\n')
}

async function answerStatic(state: State, request: IncomingMessage, response: ServerResponse, path: string) {
  if (path === 'releases.json') {
    if (answeredByFault(state, response)) return
    const listed = (await releasesOf(state)).filter(({ tag_name: tag }) => tag !== METADATA)
    const releases = listed.map(({ tag_name: tag, draft, prerelease }) => ({
      tag,
      draft,
      prerelease,
    }))
    return sendTagged(request, response, { format: 1, releases })
  }
  await answerFile(state, request, response, path)
}

/** Answers with a file of a release, `<tag>/<name>`. The faults change the small ones; assets are streamed. */
async function answerFile(state: State, request: IncomingMessage, response: ServerResponse, path: string) {
  if (!(await exists(state, path))) return sendText(response, 404, 'Not Found\n')
  const file = join(state.options.dir, path)
  const name = path.slice(path.indexOf('/') + 1)
  if (name === 'SHA256SUMS') {
    if (answeredByFault(state, response)) return
    return sendText(response, 200, await sumsOf(state, file))
  }
  if (name === 'release.json' || name === 'install.sh') {
    if (answeredByFault(state, response)) return
    return sendText(response, 200, await readFile(file, 'utf8'), 'application/octet-stream')
  }
  const faults = { ...state.faults, ...state.faults.turns?.[state.answers] }
  state.answers++
  if (faults.redirectAssetTo !== undefined) return redirect(response, faults.redirectAssetTo)
  if (faults.assetStatus !== undefined) return sendText(response, faults.assetStatus, 'no\n')
  await sendAsset(state, faults, request, response, file)
}

// ---- bytes of an asset -------------------------------------------------------------------------------------------

async function sendAsset(
  state: State,
  faults: Faults,
  request: IncomingMessage,
  response: ServerResponse,
  file: string,
): Promise<void> {
  const { size, mtimeMs } = await stat(file)
  const etag = `"${size.toString(16)}-${mtimeMs.toString(16)}${faults.changingEtag ? `-${state.answers}` : ''}"`
  const end = size - (faults.shorterBy ?? 0) + (faults.longerBy ?? 0)
  const ifRange = request.headers['if-range']
  const asked = /^bytes=(\d+)-$/.exec(request.headers.range ?? '')
  const partial = asked !== null && !faults.ignoreRange && (ifRange === undefined || ifRange === etag)
  const from = partial ? Number(asked[1]) : 0
  response.setHeader('etag', etag)
  response.setHeader('content-type', 'application/octet-stream')
  if (!faults.ignoreRange) response.setHeader('accept-ranges', 'bytes')
  if (partial && from >= end) {
    response.setHeader('content-range', `bytes */${end}`)
    return sendText(response, 416, '')
  }
  if (partial) {
    response.statusCode = 206
    const first = faults.wrongContentRange ? Math.max(0, from - 1) : from
    response.setHeader('content-range', `bytes ${first}-${end - 1}/${end}`)
  }
  if (!faults.neverEnding) response.setHeader('content-length', String(end - from + (faults.contentLengthDelta ?? 0)))
  if (request.method === 'HEAD') return void response.end()
  response.flushHeaders()

  let sent = 0
  const cut = faults.cutAfter !== undefined && state.cutsMade < (faults.cuts ?? Infinity) ? faults.cutAfter : Infinity
  const stall = faults.stallAfter ?? Infinity
  const started = performance.now()
  for await (let chunk of bytesOf(file, from, end, size, faults)) {
    while (chunk.length > 0) {
      const most = Math.min(chunk.length, pieceSize(state, faults), cut - sent, stall - sent)
      if (most > 0) {
        if (!response.write(chunk.subarray(0, most))) await drained(response)
        if (response.destroyed) return
      }
      sent += most
      chunk = chunk.subarray(most)
      if (sent >= stall) return void state.stalled.push(response) // the connection stays open and sends nothing more
      if (sent >= cut) {
        state.cutsMade++
        await sleep(20) // so that the written bytes reach the client before the reset
        return void response.destroy()
      }
      await pace(state, faults, sent, started)
    }
  }
  if (faults.contentLengthDelta) return void response.destroy()
  response.end()
}

async function* bytesOf(file: string, from: number, end: number, size: number, faults: Faults): AsyncGenerator<Buffer> {
  let at = from
  if (at < Math.min(end, size)) {
    for await (const read of createReadStream(file, {
      start: from,
      end: Math.min(end, size) - 1,
    })) {
      const chunk = read as Buffer
      at += chunk.length
      if (faults.wrongSha256 && at === size) chunk[chunk.length - 1] = (chunk.at(-1) ?? 0) ^ 0xff
      yield chunk
    }
  }
  if (at < end) yield Buffer.alloc(end - at, 'x')
  while (faults.neverEnding) yield Buffer.alloc(65_536, 'x')
}

function pieceSize(state: State, faults: Faults): number {
  if (faults.byteEveryMs !== undefined) return 1
  return state.bytesPerSecond ? Math.max(1, Math.ceil(state.bytesPerSecond / 20)) : 65_536
}

async function pace(state: State, faults: Faults, sent: number, started: number): Promise<void> {
  if (faults.byteEveryMs !== undefined) return await sleep(faults.byteEveryMs)
  if (!state.bytesPerSecond) return
  const ahead = (sent / state.bytesPerSecond) * 1000 - (performance.now() - started)
  if (ahead > 1) await sleep(Math.min(ahead, 1_000))
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('drain', done)
      response.off('close', done)
      resolve()
    }
    response.on('drain', done)
    response.on('close', done)
  })
}

// ---- what is in the folder ---------------------------------------------------------------------------------------

interface ListedAsset {
  id: number
  path: string
  [member: string]: unknown
}
interface Listed {
  tag_name: string
  draft: boolean
  prerelease: boolean
  assets: ListedAsset[]
  [member: string]: unknown
}

/** The releases, newest first, in the shape of GitHub's `release` schema (the members that a client reads). */
async function releasesOf(state: State): Promise<Listed[]> {
  const { faults, options } = state
  const flags = await flagsOf(options.dir)
  const names = await readdir(options.dir)
  const tags = names.filter((name) => TAG.test(name)).toSorted(newestFirst)
  if (names.includes(METADATA)) tags.push(METADATA)
  const shown = faults.onlyTags ? tags.filter((tag) => faults.onlyTags?.includes(tag)) : tags
  const releases: Listed[] = []
  for (const tag of shown) {
    const index = tags.length - tags.indexOf(tag)
    const names = await readdir(join(options.dir, tag))
    const manifest = names.includes('release.json')
      ? await readFile(join(options.dir, tag, 'release.json'), 'utf8')
      : '{}'
    const { notes, publishedAt } = lenient(manifest)
    const { mtime } = await stat(join(options.dir, tag))
    const assets: ListedAsset[] = []
    for (const [at, name] of [...(faults.extraNames ?? []), ...names.toSorted()].entries()) {
      if (isHidden(faults, name)) continue
      const file = join(options.dir, tag, name)
      const real = names.includes(name)
      const id = tag === METADATA ? idOf(state, name) : index * 1000 + at
      const sums = name === 'SHA256SUMS' ? await sumsOf(state, file) : null
      const sha256 = sums !== null ? sha256OfText(sums) : real ? await sha256Of(state, file) : '0'.repeat(64)
      assets.push({
        id,
        path: `${tag}/${name}`,
        name,
        size: sums !== null ? sums.length : real ? (await stat(file)).size + (faults.announcedDelta ?? 0) : 1,
        ...(options.forgejo === true
          ? { uuid: `${id}`, type: 'attachment', download_count: 0 }
          : {
              url: `${state.url}/api/v3/repos/${state.owner}/releases/assets/${id}`,
              state: 'uploaded',
              content_type: 'application/octet-stream',
              ...digestOf(faults, sha256),
            }),
        browser_download_url: `${state.url}/${state.owner}/releases/download/${tag}/${encodeURIComponent(name)}`,
      })
    }
    releases.push({
      id: index,
      url: `${state.url}/api/v3/repos/${state.owner}/releases/${index}`,
      html_url: `${state.url}/${state.owner}/releases/tag/${tag}`,
      upload_url: `${state.url}/api/uploads/repos/${state.owner}/releases/${index}/assets{?name,label}`,
      tag_name: tag,
      name: tag,
      body: typeof notes === 'string' ? notes : '',
      draft: faults.drafts?.includes(tag) ?? flags.get(tag)?.draft ?? false,
      prerelease: faults.prereleases?.includes(tag) ?? flags.get(tag)?.prerelease ?? tag === METADATA,
      ...(faults.immutable === true ? { immutable: true } : {}),
      created_at: mtime.toISOString(),
      published_at: typeof publishedAt === 'string' ? publishedAt : mtime.toISOString(),
      assets,
    })
  }
  return releases
}

function idOf(state: State, name: string): number {
  const id =
    state.ids.get(name) ?? 1_000_000 + Math.max(0, ...[...state.ids.values()].map((one) => one - 1_000_000)) + 1
  state.ids.set(name, id)
  return id
}

function isHidden(faults: Faults, name: string): boolean {
  if (name === 'SHA256SUMS') return faults.missingChecksum === 'file'
  if (name === 'release.json') return faults.missingManifest === true
  return faults.noAssets === true && name !== 'install.sh'
}

function digestOf(faults: Faults, sha256: string): { digest?: string } {
  if (faults.digest === 'absent') return {}
  return { digest: `sha256:${faults.digest === 'wrong' ? '0'.repeat(64) : sha256}` }
}

async function flagsOf(dir: string): Promise<Map<string, { draft: boolean; prerelease: boolean }>> {
  const text = await readFile(join(dir, 'releases.json'), 'utf8').catch(() => '{}')
  const { releases } = lenient(text) as {
    releases?: { tag: string; draft?: boolean; prerelease?: boolean }[]
  }
  return new Map(
    (releases ?? []).map(({ tag, draft, prerelease }) => [
      tag,
      { draft: draft ?? false, prerelease: prerelease ?? false },
    ]),
  )
}

async function sumsOf(state: State, file: string): Promise<string> {
  const { faults } = state
  const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '')
  const extra = (faults.extraNames ?? []).map((name) => `${'0'.repeat(64)}  ${name}`)
  const kept =
    faults.missingChecksum === 'line' ? lines.filter((line) => /release\.json|install\.sh/.test(line)) : lines
  return [...extra, ...kept].map((line) => `${line}\n`).join('')
}

/** Whether a release has this file and no fault hides it. */
async function exists(state: State, path: string): Promise<boolean> {
  const [tag = '', name = '', ...rest] = path.split('/')
  if (
    !(TAG.test(tag) || tag === METADATA) ||
    name === '' ||
    name.startsWith('.') ||
    rest.length > 0 ||
    isHidden(state.faults, name)
  )
    return false
  const found = await stat(join(state.options.dir, tag, name)).catch(() => null)
  return found?.isFile() ?? false
}

async function sha256Of(state: State, file: string): Promise<string> {
  const { size, mtimeMs, ino } = await stat(file)
  const key = `${size}-${mtimeMs}-${ino}`
  const known = state.sums.get(file)
  if (known?.key === key) return known.sha256
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer)
  const sha256 = hash.digest('hex')
  state.sums.set(file, { key, sha256 })
  return sha256
}

function sha256OfText(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

function newestFirst(a: string, b: string): number {
  const [left, right] = [a, b].map((tag) => tag.slice(1).split('.').map(Number))
  for (let i = 0; i < 3; i++) {
    const difference = (right?.[i] ?? 0) - (left?.[i] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}

function lenient(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return {}
  }
}

// ---- answers -----------------------------------------------------------------------------------------------------

/** True if a fault has answered in place of a JSON or text. */
function answeredByFault(state: State, response: ServerResponse): boolean {
  const { faults } = state
  if (faults.html) sendText(response, 200, HTML, 'text/html; charset=utf-8')
  else if (faults.status !== undefined) sendText(response, faults.status, 'no\n')
  else if (faults.endlessJson) sendEndless(response)
  else return false
  return true
}

function sendEndless(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json' })
  response.write('[')
  const more = (): void => {
    while (!response.destroyed && response.write('{"tag_name":"v9.9.9"},'.repeat(1_000)));
  }
  response.on('drain', more)
  more()
}

function sendTagged(request: IncomingMessage, response: ServerResponse, value: unknown): void {
  const text = JSON.stringify(value)
  const etag = `W/"${sha256OfText(text)}"`
  response.setHeader('etag', etag)
  if (request.headers['if-none-match'] === etag) return void response.writeHead(304).end()
  sendText(response, 200, text, 'application/json; charset=utf-8')
}

function sendJson(response: ServerResponse, status: number, value: unknown): void {
  sendText(response, status, JSON.stringify(value), 'application/json; charset=utf-8')
}

function sendText(response: ServerResponse, status: number, text: string, type = 'text/plain; charset=utf-8'): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) })
  response.end(text)
}

function redirect(response: ServerResponse, location: string, status: 301 | 302 = 302): void {
  response.writeHead(status, { location, 'content-length': 0 }).end()
}

function objectsUrl(state: State): string {
  return `${state.options.objectsUrl ?? state.url}/objects/`
}

function withoutPath({ assets, ...release }: Listed): Record<string, unknown> {
  return { ...release, assets: assets.map(({ path: _path, ...asset }) => asset) }
}
