// @long
// A page that was open before an update asks for chunks that only the release before had: a Vite-shaped and a Next-standalone-shaped
// application, built with real hashes, as real executables.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { filesFor, hasHash, oldPages } from '../agent/web/old-pages.ts'
import { archive } from '../deploy/make/archive.ts'
import { loadEsbuild } from '../deploy/make/bundle.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { detect } from '../deploy/make/detect.ts'
import { planInit } from '../deploy/make/init.ts'
import { parseProject } from '../deploy/make/project.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { equal, is, match, ok, throws } from './assert.ts'
import { type Install, install } from './fixtures/install.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { madeOnce } from './fixtures/releases.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('old pages', { timeoutMs: 180_000 })
const UNPACKED = join(import.meta.dirname, 'crash/unpacked.ts')

/** Serves what lies in `folder` below `prefix`, and a page; the rest is 404 by a page of its own. */
const server = (folder: string, prefix: string) => `import 'baton-kit/auto'
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
createServer((request, response) => {
  const [path] = request.url.split('?')
  response.setHeader('x-powered-by', 'shop')
  if (path === '/healthz') return response.end('TAG')
  if (path === '/') return response.setHeader('content-type', 'text/html').end('<h1>TAG</h1>')
  try {
    if (!path.startsWith('${prefix}/')) throw new Error('no')
    const file = readFileSync(join(import.meta.dirname, '${folder}', path.slice(${prefix.length})))
    response.setHeader('content-type', 'text/javascript').end(file)
  } catch {
    response.setHeader('cache-control', 'no-store')
    response.writeHead(404, { 'content-type': 'text/html' })
    response.write('<h1>not')
    response.end(' found</h1>')
  }
}).listen(process.env.PORT)
`

for (const { name, assets, chunks, text } of [
  { name: 'Vite', assets: 'dist/assets', chunks: 'dist/assets', text: server('dist/assets', '/assets') },
  {
    name: 'Next.js standalone',
    assets: '.next/static',
    chunks: '.next/static/chunks',
    text: server('.next/static', '/_next/static'),
  },
]) {
  // what differs is the URL, which the test below has
  const register = name === 'Vite' ? test : test.long
  register(
    `${name}: of the chunks of an open page none answers 404 after the update, and nothing else of the old release is served`,
    async () => {
      await using work = await temporary('old-pages')
      const app = join(work.path, 'app')
      const feed = join(work.path, 'feed')
      const config = { service: 'shop', entry: 'server.js', healthPath: '/healthz', assets: [assets] }
      const build = async (tag: string) => {
        await rm(app, { recursive: true, force: true })
        await mkdir(join(app, 'node_modules'), { recursive: true })
        await symlinkKit(app)
        await writeFile(
          join(app, 'package.json'),
          '{ "name": "shop", "type": "module", "dependencies": { "baton-kit": "*", "undici": "*", "ws": "*" } }',
        )
        await writeFile(join(app, 'server.js'), text.replaceAll('TAG', tag))
        const made = await bundled(work.path, join(app, chunks), tag)
        if (name.startsWith('Next')) {
          const folder = join(app, assets, tag === 'v1.0.0' ? 'Xk3vPq9_aZ71-mTb0RwQe' : 'b8Jd2KfLq0_xVn4-WzYtE')
          await mkdir(folder, { recursive: true })
          await writeFile(join(folder, '_buildManifest.js'), `self.__BUILD_MANIFEST = '${tag}'`)
          made.push(`${folder.slice(join(app, assets).length)}/_buildManifest.js`)
        }
        if (tag === 'v1.0.0') await writeStray(app, assets)
        await buildQuietly({ project: parseProject(config, app), out: feed, tag })
        return made
      }
      const old = await build('v1.0.0')
      const now = await build('v1.1.0')
      ok(old.length >= 3 && old.some((path) => !now.includes(path)), JSON.stringify([old, now]))
      await using home = await installed(feed)
      const prefix = assets.startsWith('.next') ? '/_next/static' : '/assets'
      const urls = old.map((path) => prefix + (path.startsWith('/') ? path : `${chunks.slice(assets.length)}/${path}`))
      const before = await Promise.all(urls.map(async (url) => await fetched(home, url)))
      equal(
        before.map(({ status }) => status),
        urls.map(() => 200),
        urls.join(),
      )
      is((await home.api('POST', '/admin/update', {})).status, 202)
      equal((await home.settled(60_000)).outcome, 'updated', await home.output())
      match((await fetched(home, '/')).text, 'v1.1.0')
      const after = await Promise.all(urls.map(async (url) => await fetched(home, url)))
      equal(
        after.filter(({ status }) => status === 404),
        [],
      )
      equal(
        after.map(({ text: body }) => body),
        before.map(({ text: body }) => body),
      )
      const isGone = (at: number) => !now.includes(old[at] ?? '')
      const moved = after.find((_, at) => isGone(at))
      ok(moved !== undefined, JSON.stringify([old, now]))
      equal(
        [moved.headers.get('content-type'), moved.headers.get('cache-control')],
        ['text/javascript; charset=utf-8', 'public, max-age=3600'],
      )
      const head = await fetched(home, urls.find((_, at) => isGone(at)) ?? '', 'HEAD')
      equal([head.status, head.text, Number(head.headers.get('content-length')) > 0], [200, '', true])
      for (const path of [
        '/plain-absent.js',
        '/index-BkPt2nVx.html',
        '/.env-BkPt2nVx.js',
        '/../../secret-BkPt2nVx.js',
        '/%2e%2e/%2e%2e/secret-BkPt2nVx.js',
        '/link-BkPt2nVx.js',
      ]) {
        const got = await fetched(home, prefix.replace('/_next', '/other') + path)
        equal([got.status, got.text, got.headers.get('cache-control')], [404, '<h1>not found</h1>', 'no-store'], path)
      }
      is((await fetched(home, urls[0] ?? '', 'POST')).text.includes('import'), now.includes(old[0] ?? ''))
      // gone with the backup
      await rename(home.backup, `${home.backup}.away`)
      ok((await Promise.all(urls.map(async (url) => (await fetched(home, url)).status))).includes(404))
    },
  )
}

test('what has a hash in its name, and what has none', () => {
  const hashed = [
    'index-BkPt2nVx.js',
    'index-DiwrgTda.css',
    'chunk-QWERTYUI.js',
    'webpack-4a3b2c1d0e9f8a7b.js',
    '0a1b2c3d4e5f6789.js',
    'inter.8a7b6c5d.woff2',
    'main.1f2e3d4c.chunk.js',
    'index-B_x-1aBc.js',
    'Xk3vPq9_aZ71-mTb0RwQe',
    '4bd1b696-c023c6e3521b1417.js',
  ]
  const plain = [
    'index.js',
    'background.js',
    'user-settings.js',
    'Dashboard.js',
    'x-v2-views.js',
    'jquery-3.7.1.min.js',
    'bootstrap.bundle.js',
    'my-views-list.js',
    'robots.txt',
    'package.json',
    'v1.0.0',
    'chunks',
  ]
  equal([hashed.filter((name) => !hasHash(name)), plain.filter(hasHash)], [[], []])
})

test('a URL means a file below the folder that is named, and no other', () => {
  const assets = ['dist/assets', '.next/static']
  const paths = (url: string) => filesFor(url, assets).map(({ folder, path }) => `${folder}/${path}`)
  equal(paths('/assets/index-BkPt2nVx.js?v=1'), ['dist/assets/index-BkPt2nVx.js'])
  equal(paths('/shop/_next/static/chunks/app/%5Bslug%5D/page-4a3b2c1d0e9f8a7b.js'), [
    '.next/static/chunks/app/[slug]/page-4a3b2c1d0e9f8a7b.js',
  ])
  for (const url of [
    '/assets/../index-BkPt2nVx.js',
    '/assets/%2e%2e/index-BkPt2nVx.js',
    '/assets/a%2f..%2findex-BkPt2nVx.js',
    '/assets//index-BkPt2nVx.js',
    '/assets/%00index-BkPt2nVx.js',
    '/assets/index-BkPt2nVx.html',
    '/assets/index-BkPt2nVx.xhtml',
    '/assets/index-BkPt2nVx.js%00',
    '/assets/%',
    '/assets/index.js',
    '/index-BkPt2nVx.js',
    '/assets/index-BkPt2nVx',
    String.raw`/assets/..\index-BkPt2nVx.js`,
    `/assets/${'a/'.repeat(40)}index-BkPt2nVx.js`,
  ])
    equal(paths(url), [], url)
})

test('an answer is the application’s own, however it is sent, if the file is not there or the answer is no 404', async () => {
  await using work = await temporary('old-answers')
  const executable = join(work.path, 'shop')
  const kept = join(work.path, '.shop/0123456789abcdef')
  await mkdir(join(kept, 'app/dist/assets'), { recursive: true })
  await mkdir(join(kept, 'tags/v1.0.0'), { recursive: true })
  await writeFile(`${executable}.backup`, '')
  const large = 'x'.repeat(3 * 1024 ** 2)
  await writeFile(join(kept, 'app/dist/assets/there-BkPt2nVx.js'), large)
  await writeFile(join(kept, 'app/dist/assets/empty-BkPt2nVx.js'), '')
  const old = oldPages({ executable, service: 'shop', tag: 'v1.1.0', assets: ['dist/assets'] })
  const ways: Record<string, (response: ServerResponse) => void> = {
    fallback: (response) => void response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end('own'),
    'flat fallback': (response) => void response.writeHead(200, ['x-own', '1', 'content-type', 'text/html']).end('own'),
    'fallback with a list': (response) =>
      void response.writeHead(200, ['x-own', ['1', '2'], 'content-type', 'text/html']).end('own'),
    'implicit fallback': (response) => void response.setHeader('content-type', 'text/html').end('own'),
    script: (response) => void response.writeHead(200, 'OK', { 'content-type': 'text/javascript' }).end('own'),
    error: (response) => void response.writeHead(500, { 'content-type': 'text/html' }).end('own'),
    end: (response) => void response.writeHead(404, 'No', { 'x-own': '1' }).end('own'),
    implicit: (response) => {
      response.statusCode = 404
      response.write('o', () => response.end('wn'))
    },
    flushed: (response) => {
      response.statusCode = 404
      response.flushHeaders()
      response.end('own')
    },
    late: (response) => void setTimeout(() => response.writeHead(404).end('own'), 20),
    good: (response) => void response.writeHead(200).end('own'),
    piped: (response) => {
      response.statusCode = 404
      response.on('finish', () => {})
      response.end('own', 'utf8', () => {})
      response.setHeader('x-late', '1')
    },
  }
  const web = createServer((request, response) => {
    old(request, response)
    try {
      ways[new URL(request.url ?? '', 'http://x').searchParams.get('way') ?? '']?.(response)
    } catch {
      ok(response.headersSent)
    }
  })
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve))
  const at = `http://127.0.0.1:${(web.address() as AddressInfo).port}/assets`
  try {
    for (const way of Object.keys(ways)) {
      const own = await (await fetch(`${at}/absent-BkPt2nVx.js?way=${way}`)).text()
      is(own, 'own', way)
      const got = await fetch(`${at}/there-BkPt2nVx.js?way=${way}`)
      const text = await got.text()
      const isOwn = ['good', 'script', 'error'].includes(way)
      const status = way === 'error' ? 500 : 200
      equal([got.status, text === (isOwn ? 'own' : large)], [status, true], way)
      const empty = await fetch(`${at}/empty-BkPt2nVx.js?way=${way}`)
      equal([empty.status, await empty.text()], [status, isOwn ? 'own' : ''], way)
    }
    const gone = new AbortController()
    const begun = await fetch(`${at}/there-BkPt2nVx.js?way=end`, { signal: gone.signal })
    is(begun.status, 200)
    gone.abort()
    await rm(kept, { recursive: true })
    is((await fetch(`${at}/there-BkPt2nVx.js?way=end`)).status, 404)
  } finally {
    web.closeAllConnections()
    await new Promise((resolve) => web.close(resolve))
  }
})

test('`kill -9` at each change of the disk by which the next release is unpacked and an older one removed: what an open page asks for is served, and whole', async () => {
  await using work = await temporary('old-kills')
  const executable = join(work.path, 'shop')
  const [assets, name] = ['dist/assets', 'chunk-BkPt2nVx.js']
  const text = (tag: string) => `of ${tag} `.repeat(9000)
  const unpacked = async (tag: string) => {
    const folder = join(work.path, '.shop', createHash('sha256').update(tag).digest('hex').slice(0, 16))
    for (const one of [join('app', assets), 'tags']) await mkdir(join(folder, one), { recursive: true })
    for (const one of [name, `${tag.slice(1)}-BkPt2nVx.js`])
      await writeFile(join(folder, 'app', assets, one), text(tag))
    await writeFile(join(folder, 'tags', tag), '')
    await writeFile(join(folder, 'complete'), '')
  }
  for (const tag of ['v0.9.0', 'v1.0.0']) await unpacked(tag)
  for (const path of [executable, `${executable}.backup`]) await writeFile(path, '')
  const source = join(work.path, 'source.js')
  await writeFile(source, text('v1.1.0'))
  const files = ['1.1.0-BkPt2nVx.js', name, 'late-BkPt2nVx.js'].map((one) => ({ path: join(assets, one), source }))
  const { bytes, sha256 } = await archive(files)
  const tar = join(work.path, 'archive')
  await writeFile(tar, bytes)
  const unpack = {
    service: 'shop',
    tag: 'v1.1.0',
    archive: { sha256, sizeBytes: bytes.length, entry: 'x', cwd: 'app' },
  }
  /** of the release `tag`, which runs: what it answers to an open page */
  const served = async (tag: string, file: string) => {
    const web = createServer((request, response) => {
      oldPages({ executable, service: 'shop', tag, assets: [assets] })(request, response)
      response.writeHead(404).end()
    })
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve))
    const answer = await fetch(`http://127.0.0.1:${(web.address() as AddressInfo).port}/assets/${file}`)
    const body = await answer.text()
    web.closeAllConnections()
    await new Promise((resolve) => web.close(resolve))
    return answer.status === 200 ? body : answer.status
  }
  for (const doing of [{ unpack, archive: tar }, { keep: ['v1.0.0', 'v1.1.0'] }]) {
    let isKilled = true
    for (let dieAt = 1; isKilled; dieAt++) {
      const ran = spawnSync(process.execPath, [UNPACKED, JSON.stringify({ doing, service: 'shop', executable, dieAt })])
      isKilled = ran.signal === 'SIGKILL'
      const where = `${Object.keys(doing)[0]}, killed before change ${dieAt}: ${String(ran.stderr)}`
      ok(isKilled || (ran.status === 0 && dieAt > 2), where)
      is(await served('v1.1.0', '1.0.0-BkPt2nVx.js'), text('v1.0.0'), where)
      ok([text('v1.0.0'), text('v0.9.0')].includes(String(await served('v1.1.0', name))), where)
      for (const file of ['1.1.0-BkPt2nVx.js', 'late-BkPt2nVx.js'])
        ok([404, text('v1.1.0')].includes(await served('v1.0.0', file)), where)
    }
  }
  is(await served('v1.1.0', '0.9.0-BkPt2nVx.js'), 404)
  is(await served('v1.0.0', 'late-BkPt2nVx.js'), text('v1.1.0'))
})

test('`init` proposes what is there; paths out of the release, and a script, are refused', async () => {
  await using work = await temporary('assets')
  const config = async (manifest: object, folders: string[]) => {
    const folder = join(work.path, String(Math.random()))
    for (const one of folders) await mkdir(join(folder, one), { recursive: true })
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'shop', ...manifest }))
    await writeFile(
      join(folder, 'server.js'),
      "process.getBuiltinModule('http').createServer().listen(process.env.PORT)",
    )
    const [written] = planInit(detect(folder)).files
    const { assets, build } = JSON.parse(written?.content ?? '') as { assets?: string[]; build?: string }
    const tool = /next|vite build/.exec(JSON.stringify(manifest))?.[0]
    is(build, tool && { next: 'npx next build', 'vite build': 'npm run build' }[tool])
    return assets
  }
  equal(await config({}, ['dist/assets', 'public/build']), ['dist/assets', 'public/build'])
  equal(await config({ dependencies: { next: '16.0.0' } }, ['.']), ['.next/static'])
  equal(await config({}, ['dist']), undefined)
  const vite = { scripts: { build: 'vite build', start: 'node server.js' }, devDependencies: { vite: '7.1.7' } }
  equal(await config(vite, ['.']), ['dist/assets'], 'before the first build')
  equal(await config({ devDependencies: { vite: '7.1.7', astro: '5.0.0' } }, ['.']), undefined)
  const project = (more: object) => () => parseProject({ service: 'shop', entry: 'server.js', ...more }, work.path)
  for (const folder of ['/etc', '..', 'a/../../b', '.', './', '.git', ''])
    throws(project({ assets: [folder] }), /assets/)
  throws(project({ assets: ['dist/assets'], kind: 'script' }), /expected `kind` to be `app` for `assets`/)
  equal(project({ assets: ['./dist/assets/'] })().assets, ['dist/assets'])
})

test.run()

async function fetched(home: Install, path: string, method = 'GET') {
  const response = await fetch(`http://127.0.0.1:${home.port}${path}`, { method })
  return { status: response.status, headers: response.headers, text: await response.text() }
}

async function installed(feed: string): Promise<Install> {
  const asset = join(feed, 'v1.0.0', `${assetName('shop')}.zst`)
  const release = {
    tag: 'v1.0.0',
    fault: 'none',
    kind: 'executable',
    service: 'shop',
    directory: dirname(asset),
    asset,
    sizeBytes: 0,
    sha256: '',
  } as const
  const home = await install({ release, feed, words: ['serve'], update: { probation: '500ms' } })
  await home.start()
  return home
}

/** A page, two chunks that it loads and one that both releases share. Resolves to their names. */
async function bundled(work: string, outdir: string, tag: string): Promise<string[]> {
  const sources = join(work, 'sources')
  await mkdir(sources, { recursive: true })
  await writeFile(join(sources, 'shared.js'), 'export const shared = "the same in each release".repeat(3)')
  await writeFile(
    join(sources, 'later.js'),
    `import { shared } from './shared.js'; export const later = '${tag}' + shared`,
  )
  await writeFile(
    join(sources, 'index.js'),
    `import { shared } from './shared.js'; import('./later.js').then(({ later }) => (document.title = later + shared + '${tag}'))`,
  )
  const { build } = await loadEsbuild(PROJECT)
  const { metafile } = await build({
    entryPoints: [join(sources, 'index.js')],
    outdir,
    bundle: true,
    splitting: true,
    format: 'esm',
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    metafile: true,
    logLevel: 'silent',
  })
  return Object.keys(metafile.outputs).map((path) => path.split('/').at(-1) ?? '')
}

/** the kit as one folder of plain JavaScript */
async function symlinkKit(app: string): Promise<void> {
  const kit = await madeOnce('old-pages-kit', async (outdir) => {
    const { build } = await loadEsbuild(PROJECT)
    const js =
      "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);"
    await build({
      entryPoints: [join(PROJECT, 'agent/adapters/auto.ts')],
      outdir,
      entryNames: '[name]',
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'node26',
      logLevel: 'silent',
      banner: { js },
    })
    await writeFile(
      join(outdir, 'package.json'),
      '{ "name": "baton-kit", "type": "module", "exports": { "./auto": "./auto.js" } }',
    )
  })
  await cp(kit, join(app, 'node_modules/baton-kit'), { recursive: true })
  for (const one of ['undici', 'ws', 'marked'])
    await cp(join(PROJECT, 'node_modules', one), join(app, 'node_modules', one), { recursive: true })
}

/** What only the old release has, and nobody may get. */
async function writeStray(app: string, assets: string): Promise<void> {
  for (const [file, content] of [
    ['plain.js', 'plain'],
    ['index-BkPt2nVx.html', '<script>1</script>'],
    ['.env-BkPt2nVx.js', 'secret'],
  ])
    await writeFile(join(app, assets, file ?? ''), content ?? '')
  await writeFile(join(app, 'secret-BkPt2nVx.js'), 'secret')
  await symlink('../../server.js', join(app, assets, 'link-BkPt2nVx.js'))
}
