// What serves the panel, and the parts of the page that need no browser: headers, ETags, methods, paths; the judgement of
// a switch; the words; the size. The page itself is tested in test/panel/.

import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib'
import { MEANINGS } from '../agent/words/errors.ts'
import { CONTENT_SECURITY_POLICY, typeOf } from '../agent/web/panel-send.ts'
import { OUTCOMES, STAGES, type Status } from '../agent/words/state.ts'
import { TRIAL_CODES } from '../agent/words/rehearsal.ts'
import { WAIT_CODES } from '../agent/words/waits.ts'
import { BADGE, makePanel, PAGE, PAGE_LATER, readAssets, webAssets } from '../agent/web/panel.ts'
import { begin, delayOf, join as follow, judge, measure, POLL } from '../agent/web/settings/follow.js'
import { bundle, NOT_LEXED, panelAssets } from '../deploy/make/bundle.ts'
import { PROJECT } from '../deploy/make/place.ts'
import * as assert from './assert.ts'
import { instance, operation, secondsAgo } from './panel/stub.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

/** what the page may weigh on the wire; docs/contributing/panel.md tells what it does weigh */
const WIRE_MAX_BYTES = 38 * 1024

const http = suite('panel, over http')

http('serves each file of the list with its type, a strict policy and a strong ETag', async () => {
  await using server = await serve('')
  for (const [name, text] of Object.entries(webAssets())) {
    const { status, headers, body } = await ask(server.port, `/web/${name}`)
    assert.is(status, 200)
    assert.is(headers['content-type'], typeOf(name))
    assert.match(typeOf(name), /^(text\/(html|css|javascript); charset=utf-8|image\/svg\+xml)$/)
    assert.is(headers['content-security-policy'], CONTENT_SECURITY_POLICY)
    assert.is(headers['x-content-type-options'], 'nosniff')
    assert.is(headers['referrer-policy'], 'no-referrer')
    assert.is(headers['cache-control'], 'no-cache')
    assert.match(headers.etag ?? '', /^"[0-9a-f]{24}"$/)
    assert.is(Number(headers['content-length']), body.length)
    if (name !== 'settings.html') assert.is(body.toString(), text)
  }
})

http('the policy allows nothing unsafe, nothing inline and nobody else', () => {
  assert.not.match(CONTENT_SECURITY_POLICY, /unsafe|\*|https?:|data:|blob:/)
  for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]) {
    assert.ok(CONTENT_SECURITY_POLICY.split('; ').includes(part), part)
  }
  for (const [name, text] of Object.entries(readAssets())) {
    if (name.endsWith('.html')) assert.not.match(text, /<style|style=|\son\w+=|<script>|javascript:|https?:/)
    if (name.endsWith('.css')) assert.not.match(text, /@import (?!'\.\/)|url\(/)
    if (name.endsWith('.js') && name !== 'settings/marked.js') {
      assert.not.match(text, /innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|\beval\b|new Function/)
    }
  }
})

http('the page knows the hash of the whole panel, which is its own ETag', async () => {
  await using server = await serve('')
  const { headers, body } = await ask(server.port, '/web/settings.html')
  const [, hash] = /<meta name="assets" content="([0-9a-f]{24})"/.exec(body.toString()) ?? []
  assert.is(headers.etag, `"${hash}"`)
})

http('answers 304 to its own ETag, weak or strong, and to no other', async () => {
  await using server = await serve('')
  const { etag = '' } = (await ask(server.port, '/web/settings.js')).headers
  for (const [header, expected] of [
    [etag, 304],
    [`W/${etag}`, 304],
    [`"x", ${etag}`, 304],
    ['*', 304],
    ['"x"', 200],
    [etag.slice(1, -1), 200],
  ] as const) {
    const answer = await ask(server.port, '/web/settings.js', { headers: { 'if-none-match': header } })
    assert.is(answer.status, expected, header)
    assert.is(answer.headers.etag, etag)
    if (expected === 304) assert.is(answer.body.length, 0)
  }
})

http('compresses for whoever accepts it, under an ETag of its own', async () => {
  await using server = await serve('')
  const plain = await ask(server.port, '/web/settings.css')
  for (const [accepts, expected] of [
    ['gzip, deflate, br', 'br'],
    ['br;q=0, gzip', 'gzip'],
    ['gzip', 'gzip'],
    ['*', 'gzip'],
    ['gzip;q=0', undefined],
    ['gzip;q=0.0, *;q=0', undefined],
    ['', undefined],
  ] as const) {
    const answer = await ask(server.port, '/web/settings.css', { headers: { 'accept-encoding': accepts } })
    assert.is(answer.headers['content-encoding'], expected, accepts)
    assert.is(answer.headers.vary, 'accept-encoding')
    const unpack = expected === 'gzip' ? gunzipSync : expected === 'br' ? brotliDecompressSync : (body: Buffer) => body
    const text = unpack(answer.body)
    assert.is(text.toString(), plain.body.toString())
    assert.is(answer.headers.etag === plain.headers.etag, expected === undefined)
  }
})

http('HEAD is GET without the body; every other method is 405 and says which are allowed', async () => {
  await using server = await serve('')
  const get = await ask(server.port, '/web/settings.html')
  const head = await ask(server.port, '/web/settings.html', { method: 'HEAD' })
  assert.is(head.status, 200)
  assert.is(head.body.length, 0)
  assert.is(head.headers.etag, get.headers.etag)
  assert.is(head.headers['content-length'], get.headers['content-length'])
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']) {
    const answer = await ask(server.port, '/web/settings.html', { method })
    assert.is(answer.status, 405, method)
    assert.is(answer.headers.allow, 'GET, HEAD')
    assert.is(answer.headers['content-type'], 'application/problem+json')
    assert.is((JSON.parse(answer.body.toString()) as { code: string }).code, 'method_not_allowed')
  }
})

http("takes no path but those of the list: everything else is somebody else's", async () => {
  await using server = await serve('')
  for (const path of [
    '/',
    '/web',
    '/web/',
    '/web/settings',
    '/web/settings.html/',
    '/web/SETTINGS.HTML',
    '/web//settings.html',
    '//web/settings.html',
    '/web/assets.ts',
    '/web/settings/follow.d.ts',
    '/web/settings/',
    '/web/settings/../settings/follow.js',
    '/web/follow.js',
    '/web/../panel.ts',
    '/web/../web/settings.html',
    '/web/%2e%2e/panel.ts',
    '/web/..%2fpanel.ts',
    '/web/settings%2ehtml',
    '/web/settings.html%00',
    '/web/constructor',
    '/web/__proto__',
    '/x/web/settings.html',
  ]) {
    const line = await raw(server.port, path)
    assert.match(line, /^HTTP\/1\.1 418 /, path)
  }
  for (const path of ['/web/settings.html', '/web/settings.html?x=1', '/web/settings.html?../../etc/passwd']) {
    assert.match(await raw(server.port, path), /^HTTP\/1\.1 200 /, path)
  }
})

http('a base path is a prefix of its own: nothing is served without it', async () => {
  await using server = await serve('/box/beacon')
  assert.is((await ask(server.port, '/box/beacon/web/settings.html')).status, 200)
  assert.is((await ask(server.port, '/web/settings.html')).status, 418)
  assert.is((await ask(server.port, '/box/beaconx/web/settings.html')).status, 418)
})

http('travels in a bundle: the same bytes, from a folder that has none of the files', async () => {
  const entry = join(PROJECT, 'test', 'panel', 'bundled.ts')
  const script = await bundle({ entry, define: {} })
  await using made = await temporary('panel')
  const folder = made.path
  await writeFile(join(folder, 'bundle.cjs'), script)
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, 'bundle.cjs')], { cwd: '/' })
  assert.equal(JSON.parse(stdout), await panelAssets())
})

http.run()

const page = suite('panel, what the page decides')

const status = (some: Partial<Status>): Status => ({
  state: 'idle',
  operation: null,
  instance: old,
  backup: null,
  probation: null,
  trust: { signed: false, metadata: [], yanked: [], warning: null },
  history: [],
  ...some,
})
const old = instance('v1.0.0', secondsAgo(1000))
const fresh = instance('v1.1.0', secondsAgo(0))

page('done needs a new instance, the expected version and an outcome; each of them alone is not enough', () => {
  const running = operation('update', { to: 'v1.1.0', stage: 'restart' })
  const done = { ...running, outcome: 'updated' } as const
  const mine = begin(running, old.id, 'v1.1.0')
  const phase = (some: Partial<Status>) => judge(mine, status(some)).phase
  assert.is(phase({ operation: running, instance: old }), 'running')
  assert.is(phase({ operation: running, instance: fresh }), 'probation')
  assert.is(phase({ operation: running, instance: instance('v0.9.0') }), 'running')
  assert.is(phase({ operation: done, instance: old }), 'unconfirmed')
  assert.is(phase({ operation: done, instance: { ...old, version: 'v1.1.0' } }), 'unconfirmed')
  assert.is(phase({ operation: done, instance: instance('v1.0.0') }), 'unconfirmed')
  assert.is(phase({ operation: done, instance: fresh }), 'done')
  for (const outcome of ['reverted', 'failed', 'up_to_date'] as const) {
    assert.is(phase({ operation: { ...running, outcome }, instance: old }), 'done')
  }
})

page('an update to the very same version is done when another process answers', () => {
  const running = operation('update', { from: 'v1.0.0', to: 'v1.0.0', stage: 'restart', outcome: 'updated' })
  const mine = begin(running, old.id, 'v1.0.0')
  assert.is(judge(mine, status({ operation: running, instance: old })).phase, 'unconfirmed')
  assert.is(judge(mine, status({ operation: running, instance: instance('v1.0.0') })).phase, 'done')
})

page('who comes late knows the predecessor by its age, and does not wait for a successor that is there', () => {
  const running = operation('update', { to: 'v1.1.0', stage: 'restart', startedAt: secondsAgo(10) })
  assert.is(follow({ operation: running, instance: old }).instanceId, old.id)
  const late = follow({ operation: running, instance: fresh })
  assert.is(late.instanceId, null)
  assert.is(judge(late, status({ operation: { ...running, outcome: 'updated' }, instance: fresh })).phase, 'done')
})

page('an operation that is over is found in the history, one that is nowhere is given up', () => {
  const mine = begin(operation('update', { id: 'a' }), old.id, 'v1.1.0')
  const over = operation('update', { id: 'a', outcome: 'failed' })
  const other = operation('update', { id: 'b' })
  assert.is(judge(mine, status({ operation: other, history: [over] })).phase, 'done')
  assert.is(judge(mine, status({ operation: other })).phase, 'gone')
  assert.is(judge(mine, status({})).phase, 'gone')
})

page('polls each second, backs off to some seconds, and only after five minutes to more; it never stops', () => {
  const now = { failures: 0, failingMs: 0, busy: true, managed: true }
  assert.is(delayOf(now), 1000)
  assert.is(delayOf({ ...now, busy: false }), POLL.idleMs)
  let failingMs = 0
  let failures = 0
  while (failingMs < 300_000) {
    const wait = delayOf({ ...now, failures: ++failures, failingMs })
    assert.ok(wait >= 1000 && wait <= 5000)
    failingMs += wait
  }
  assert.ok(failures > 60)
  assert.is(delayOf({ ...now, failures: 10_000, failingMs: 1e9 }), POLL.silentMs)
  assert.is(delayOf({ ...now, failures: 1, failingMs: 1e9 }), 1000, 'somebody has come back to the page')
})

page('speed is that of the last seconds, and starts afresh when a download does', () => {
  const at = (samples: { at: number; bytes: number }[], ms: number, bytes: number) =>
    measure(samples, { bytes, totalBytes: 10_000 }, ms)
  let now = at([], 0, 0)
  assert.is(now.bytesPerSecond, null)
  for (let second = 1; second <= 8; second++) now = at(now.samples, second * 1000, second * 1000)
  assert.is(now.bytesPerSecond, 1000)
  assert.is(now.secondsLeft, 2)
  assert.ok(now.samples.length <= 8)
  const again = at(now.samples, 9000, 10)
  assert.is(again.bytesPerSecond, null)
  const stalled = Array.from({ length: 10 }).reduce<ReturnType<typeof at>>(
    (last, _, i) => at(last.samples, 10_000 + i * 1000, 10),
    again,
  )
  assert.is(stalled.secondsLeft, null, 'a download that stands still has no time left to tell')
})

page('every word is there in each language, with the same gaps, and every word that is used exists', async () => {
  const words = async (name: string) =>
    ((await import(join(PROJECT, `agent/web/settings/${name}.js`))) as Record<string, Record<string, string>>)[name] ??
    {}
  const [en, zh] = [await words('en'), await words('zh')]
  // what the service says in English itself
  const unsaid = 'reads_and_writes' // the verdict says it
  const whys = ['others', ...TRIAL_CODES].filter((code) => code !== unsaid).map((code) => `tried.why.${code}`)
  assert.equal(Object.keys(zh).toSorted(), [...Object.keys(en), ...whys].toSorted())
  for (const [key, text] of Object.entries(en)) {
    const gaps = (words: string) => [...new Set(words.match(/\{\w+\}/g))].toSorted()
    assert.equal(gaps(zh[key] ?? ''), gaps(text || (zh[key] ?? '')), key)
  }
  const used = Object.values(readAssets()).flatMap((text) =>
    [...text.matchAll(/data-t="([^"]+)"/g), ...text.matchAll(/\bt\('([^']+)'/g)].map(([, key]) => key ?? ''),
  )
  assert.ok(used.length > 60)
  assert.equal(
    used.filter((key) => !(key in en)),
    [],
  )
  for (const stage of STAGES)
    for (const key of [`stage.${stage}`, ...(stage === 'download' ? [] : [`detail.${stage}`])])
      assert.ok(key in en, key)
  for (const outcome of OUTCOMES) {
    const isDone = outcome === 'updated' || outcome === 'rolled_back'
    for (const key of [`outcome.${outcome}`, isDone ? 'text.done' : `text.${outcome}`]) assert.ok(key in en, key)
  }
  const api = readFileSync(join(PROJECT, 'docs/reference/openapi.json'), 'utf8')
  const reasons = JSON.parse(/"enum": (\[\s*"windows",[^\]]*\])/.exec(api)?.[1] ?? '[]') as string[]
  assert.ok(reasons.length >= 7)
  for (const reason of reasons) for (const key of [`reason.${reason}`, `route.${reason}`]) assert.ok(key in en, key)
  // these are shown in another way: by the offer, by the mode, with their time, as an operation, and in the log
  const otherwise = 'available current not_asked off goes in_flight asks_feed goes_now requests'.split(' ')
  const waits = WAIT_CODES.filter((code) => !otherwise.includes(code))
  assert.equal(
    waits.filter((code) => !zh[`wait.${code}`]),
    [],
  )
  // the page signs in again, or is another page, or never asks so
  const elsewhere = 'unauthorized no_password not_found method_not_allowed body_too_large not_managed invalid_settings'
  const never = `${elsewhere} unsupported_host service_down node_unsupported`.split(' ')
  const told = Object.keys(MEANINGS).filter((code) => !never.includes(code))
  assert.equal(
    told.filter((code) => !(`error.${code}` in en)),
    [],
  )
})

page('the scripts type-check', async () => {
  const tsc = join(PROJECT, 'node_modules/.bin/tsc')
  const { stdout } = await promisify(execFile)(tsc, ['-p', join(PROJECT, 'test/panel/tsconfig.page.json')]).catch(
    (error: unknown) => error as { stdout: string },
  )
  assert.is(stdout, '')
})

page('what is left out of the parser of release notes, nothing in it refers to', async () => {
  const { 'settings/marked.js': served = '' } = await panelAssets()
  const whole = readAssets()['settings/marked.js'] ?? ''
  const rules = new RegExp(`\\b(?:${NOT_LEXED})\\b`, 'g')
  assert.ok(new Set(whole.match(rules)).size >= 12)
  assert.equal(served.match(rules), null)
})

page('weighs as little as docs/contributing/panel.md says, compressed by gzip, whatever is opened in it', async () => {
  const sizes = Object.entries(await panelAssets()).map(([name, text]) => ({
    name,
    plain: Buffer.byteLength(text),
    gzip: gzipSync(text, { level: 9 }).length,
    br: brotliCompressSync(text).length,
  }))
  const sum = (name: string, names: string[]) => ({
    name,
    plain: 0,
    gzip: 0,
    br: 0,
    ...Object.fromEntries(
      (['plain', 'gzip', 'br'] as const).map((of) => [
        of,
        sizes.filter((size) => names.includes(size.name)).reduce((total, size) => total + size[of], 0),
      ]),
    ),
  })
  const visit = sum('a visit', [...PAGE, 'settings/en.js'])
  // one language is loaded, and the larger one is Chinese
  const most = sum('all of a visit', [...PAGE, 'settings/zh.js', 'settings/marked.js'])
  const whole = sum('both languages', [...PAGE, ...PAGE_LATER])
  for (const { name, plain, gzip, br } of [...sizes, visit, most, whole]) {
    process.stdout.write(`    | ${name.padEnd(18)} ${[plain, gzip, br].map((n) => String(n).padStart(7)).join(' ')}\n`)
  }
  assert.equal(sizes.map(({ name }) => name).toSorted(), [...PAGE, BADGE, ...PAGE_LATER].toSorted())
  assert.ok((sizes.find(({ name }) => name === BADGE)?.gzip ?? Infinity) <= 4096)
  assert.ok(most.gzip <= WIRE_MAX_BYTES, `${most.gzip}`)
  const docs = readFileSync(join(PROJECT, 'docs/contributing/panel.md'), 'utf8')
  const [, ofVisit, ofMost] = /(\d+) kB of gzip for a visit in English, (\d+) kB for all/.exec(docs) ?? []
  assert.equal(
    [ofVisit, ofMost].map(Number),
    [visit, most].map(({ gzip }) => Math.round(gzip / 1000)),
  )
})

page.run()

interface Answer {
  status: number
  headers: IncomingMessage['headers']
  body: Buffer
}

async function serve(basePath: string): Promise<AsyncDisposable & { port: number }> {
  const panel = makePanel({ basePath, service: 'beacon', passwordHeader: 'authorization' })
  const server = createServer((req, res) => {
    if (!panel(req, res)) res.writeHead(418).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function ask(
  port: number,
  path: string,
  options: { method?: string; headers?: Record<string, string> } = {},
): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    const request = httpRequest({ host: '127.0.0.1', port, path, agent: false, ...options }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(parts) }),
      )
    })
    request.on('error', reject).end()
  })
}

/** The status line, for a path that no client would send as it stands. */
async function raw(port: number, path: string): Promise<string> {
  return await new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`),
    )
    let text = ''
    socket.setEncoding('latin1').on('data', (part) => (text += part))
    socket.on('end', () => resolve(text.split('\r\n', 1)[0] ?? '')).on('error', reject)
  })
}
