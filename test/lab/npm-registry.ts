// A registry of packages in a folder, for tests: `npm view`, `install` and `ci` work with it. What is not there comes from another registry,
// if one is named. `node npm-registry.ts FOLDER PORT [UPSTREAM]`; each request is a line of FOLDER/requests.log.

import { createHash } from 'node:crypto'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { appendFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import { run } from '../../deploy/lib/shell.ts'

export interface Package {
  name: string
  version: string
  /** path -> text */
  files: Record<string, string>
  manifest?: Record<string, unknown>
  /** default: a year ago */
  publishedAt?: string
  deprecated?: string
}

const YEAR_MS = 365 * 86_400_000

export async function publishPackage(folder: string, one: Package): Promise<void> {
  const { name, version, files, manifest = {}, publishedAt = new Date(Date.now() - YEAR_MS).toISOString() } = one
  const at = join(folder, encodeURIComponent(name), version)
  await rm(at, { recursive: true, force: true })
  const inside = join(at, 'package')
  const all = { ...files, 'package.json': JSON.stringify({ name, version, ...manifest }) }
  for (const [path, text] of Object.entries(all)) {
    await mkdir(dirname(join(inside, path)), { recursive: true })
    await writeFile(join(inside, path), text, { mode: 0o755 })
  }
  await run(['tar', '-czf', join(at, 'package.tgz'), '-C', at, 'package'])
  await describe(
    at,
    { ...manifest, name, version },
    { publishedAt, ...(one.deprecated === undefined ? {} : { deprecated: one.deprecated }) },
  )
}

/** Publishes a copy of a packed file under another number. `change` may edit what is unpacked. */
export async function publishTarball(
  folder: string,
  file: string,
  version: string,
  change: (inside: string) => Promise<void>,
): Promise<void> {
  const at = join(folder, '.making')
  await rm(at, { recursive: true, force: true })
  await mkdir(join(at, 'package'), { recursive: true })
  await run(['tar', '-xzf', file, '-C', join(at, 'package'), '--strip-components=1', '--no-same-owner'])
  const manifest = JSON.parse(await readFile(join(at, 'package/package.json'), 'utf8')) as Record<string, unknown>
  const to = join(folder, encodeURIComponent(String(manifest['name'])), version)
  await writeFile(join(at, 'package/package.json'), JSON.stringify({ ...manifest, version }))
  await change(join(at, 'package'))
  await mkdir(to, { recursive: true })
  await run(['tar', '-czf', join(to, 'package.tgz'), '-C', at, 'package'])
  await describe(to, { ...manifest, version }, { publishedAt: new Date(Date.now() - YEAR_MS).toISOString() })
  await rm(at, { recursive: true, force: true })
}

async function describe(
  at: string,
  manifest: object,
  { publishedAt, ...more }: { publishedAt: string; deprecated?: string },
): Promise<void> {
  const packed = await readFile(join(at, 'package.tgz'))
  const dist = {
    integrity: `sha512-${createHash('sha512').update(packed).digest('base64')}`,
    shasum: createHash('sha1').update(packed).digest('hex'),
  }
  const { scripts } = manifest as { scripts?: Record<string, string> }
  const hasInstallScript = ['preinstall', 'install', 'postinstall'].some((name) => scripts?.[name] !== undefined)
  const about = {
    publishedAt,
    document: { ...manifest, ...more, dist, ...(hasInstallScript ? { hasInstallScript } : {}) },
  }
  await writeFile(join(at, 'about.json'), JSON.stringify(about))
}

interface Packument {
  name: string
  'dist-tags': Record<string, string>
  versions: Record<string, Record<string, unknown>>
  time: Record<string, string>
}

async function documentOf(
  folder: string,
  name: string,
  base: string,
  upstream: string | null,
): Promise<Packument | null> {
  const own = join(folder, encodeURIComponent(name))
  const theirs = upstream === null ? null : await fetch(`${upstream.replace(/\/$/, '')}/${name.replace('/', '%2f')}`)
  const document: Packument =
    theirs?.ok === true ? ((await theirs.json()) as Packument) : { name, 'dist-tags': {}, versions: {}, time: {} }
  for (const version of await readdir(own).catch(() => [])) {
    const path = join(own, version, 'about.json')
    if (!existsSync(path)) continue
    const about = JSON.parse(await readFile(path, 'utf8')) as { publishedAt: string; document: Record<string, unknown> }
    const tarball = `${base}/-/${encodeURIComponent(name)}/${version}.tgz`
    document.versions[version] = { ...about.document, dist: { ...(about.document['dist'] as object), tarball } }
    document.time[version] = about.publishedAt
    if (about.document['deprecated'] === undefined)
      document['dist-tags']['latest'] = newest(document['dist-tags']['latest'], version)
  }
  return Object.keys(document.versions).length === 0 ? null : document
}

function newest(one: string | undefined, other: string): string {
  if (one === undefined) return other
  const [a, b] = [one, other].map((text) => text.split('.').map(Number))
  for (let at = 0; at < 3; at++) if (a?.[at] !== b?.[at]) return Number(a?.[at]) > Number(b?.[at]) ? one : other
  return one
}

async function serve(folder: string, port: number, upstream: string | null): Promise<void> {
  const server = createServer((request, response) => {
    void answer(request.url ?? '/', String(request.headers['if-none-match']), response).catch((error: unknown) => {
      response.writeHead(500).end(String(error))
    })
  })
  const answer = async (url: string, known: string, response: ServerResponse) => {
    const base = `http://127.0.0.1:${(server.address() as { port: number }).port}`
    const [, packed, version] = /^\/-\/([^/]+)\/([^/]+)\.tgz$/.exec(url) ?? []
    const log = (status: number) => appendFile(join(folder, 'requests.log'), `${status} ${url}\n`)
    if (packed !== undefined && version !== undefined) {
      await log(200)
      response.end(await readFile(join(folder, packed, version, 'package.tgz')))
      return
    }
    // npm asks its own registry for what another one says is at npmjs.org
    if (upstream !== null && url.endsWith('.tgz')) {
      response.writeHead(302, { location: new URL(url, upstream).href }).end()
      return
    }
    const name = decodeURIComponent(url.slice(1).split('?')[0] ?? '')
    const document = name === '' || name.startsWith('-') ? null : await documentOf(folder, name, base, upstream)
    const body = JSON.stringify(document)
    const etag = `"${createHash('sha256').update(body).digest('hex')}"`
    const status = document === null ? 404 : known === etag ? 304 : 200
    await log(status)
    response.writeHead(status, { 'content-type': 'application/json', etag, 'cache-control': 'max-age=0' })
    response.end(status === 200 ? body : status === 404 ? '{}' : undefined)
  }
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  process.stdout.write(`${JSON.stringify(server.address())}\n`)
}

export interface NpmRegistry extends AsyncDisposable {
  url: string
  requests(): Promise<string[]>
}

/** `prefix`: goes before a command to run it in a host's network. */
export async function startRegistry(
  folder: string,
  { prefix = [], upstream }: { prefix?: readonly string[]; upstream?: string } = {},
): Promise<NpmRegistry> {
  await mkdir(folder, { recursive: true })
  const [file = '', ...args] = [
    ...prefix,
    process.execPath,
    import.meta.filename,
    folder,
    '0',
    ...(upstream === undefined ? [] : [upstream]),
  ]
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const { port } = JSON.parse(String(line)) as { port: number }
  return {
    url: `http://127.0.0.1:${port}/`,
    requests: async () =>
      (await readFile(join(folder, 'requests.log'), 'utf8').catch(() => '')).split('\n').filter(Boolean),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}

if (import.meta.main) {
  const [folder = '', port = '0', upstream = null] = process.argv.slice(2)
  await serve(folder, Number(port), upstream)
}
