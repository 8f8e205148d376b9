// Every way to ask wrongly. Each answer is as documented (docs/reference/openapi.json), no request is answered with a 5xx but the
// documented 501, and nothing that is secret, or that somebody took for the secret, gets into what the service says.

import { spawn } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { mkdir, open, readFile, rm, writeFile } from 'node:fs/promises'
import { METHODS } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { BODY_MAX_BYTES } from '../agent/http/routes.ts'
import type { Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { processesBelow, until } from './fixtures/evidence.ts'
import { ask, type Install, install } from './fixtures/install.ts'
import { oddRequest, randomFrom } from './fixtures/odd-requests.ts'
import { type Exchange, type RawAnswer, type RawClient, rawClient } from './fixtures/raw-client.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { conforms } from './lab/openapi.ts'
import { ROUTES } from '../agent/words/other-way.ts'
import { isLong, suite } from './suite.ts'

const ENDPOINTS = [
  ['POST', '/admin/update'],
  ['POST', '/admin/update/check'],
  ['GET', '/admin/update/status'],
  ['GET', '/admin/update/operations'],
  ['POST', '/admin/update/rollback'],
  ['POST', '/admin/update/cancel'],
] as const
const POSTS = ENDPOINTS.filter(([method]) => method === 'POST').map(([, path]) => path)
/** every token that is tried and not right begins with it */
const WRONG = 'not-the-token-4f1d'
const TEN_MEGABYTES = 10 * 1024 * 1024
const FUZZ_REQUESTS = isLong ? 10_000 : 3000
const FUZZ_AT_ONCE = 16
const FUZZ_SEED = Number(process.env['BATON_FUZZ_SEED'] ?? 26_10_2026)

const release = scriptRelease('v1.0.0')
const test = suite('requests', { timeoutMs: 60_000 })

/** One service for all that changes nothing in it. */
let home: Install
test.before(async () => {
  home = await install({ release: await release })
  await publishTo(join(home.home, 'no-feed'), [await release])
  await home.start()
})
test.after(() => home[Symbol.asyncDispose]())

interface Sent {
  method: string
  path: string
  headers?: Record<string, string>
  body?: string | Buffer
  /** in pieces, without saying how long it is */
  isChunked?: boolean
  /** default: the right one */
  authorization?: string | null
  port?: number
}

test('without the right password every endpoint answers 401, whatever else is asked', async () => {
  const { password } = home
  const basic = Buffer.from(`admin:${password}`).toString('base64')
  const wrongs: (string | null)[] = [
    null,
    '',
    'Bearer',
    'Bearer ',
    `Bearer ${WRONG}`,
    `Bearer ${password}x`,
    `Bearer x${password}`,
    `Bearer ${password?.slice(0, -1)}`,
    `Bearer ${password?.toUpperCase()}`,
    `Bearer ${password} ${WRONG}`,
    `Bearer "${password}"`,
    `Bearer ${WRONG}${'x'.repeat(6000)}`,
    `Bearer\t${password}`,
    `${password}`,
    `Basic ${basic}`,
    `Basic ${password}`,
    `Token ${password}`,
    `Digest username="admin", response="${WRONG}"`,
  ]
  for (const [method, path] of ENDPOINTS) {
    for (const authorization of wrongs) {
      is((await send({ method, path, authorization })).status, 401, `${path} ${authorization?.slice(0, 40)}`)
    }
    for (const query of [`?token=${password}`, `?access_token=${password}`, `?authorization=Bearer%20${password}`]) {
      is((await send({ method, path: path + query, authorization: null })).status, 401, query)
    }
    is((await send({ method, path, authorization: null, headers: { Cookie: `token=${password}` } })).status, 401)
  }
  // before anything else: no method, path or body is looked at
  is((await send({ method: 'DELETE', path: '/admin/update', authorization: null })).status, 401)
  is((await send({ method: 'GET', path: '/admin/update/nothing', authorization: null })).status, 401)
  is((await send({ method: 'POST', path: '/admin/update', body: '{', authorization: null })).status, 401)
  is((await historyLength()) ?? 0, 0)
})

test('the scheme may be written in any case, as HTTP says', async () => {
  for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR ']) {
    const authorization = `${scheme} ${home.password}`
    is((await send({ method: 'GET', path: '/admin/update/status', authorization })).status, 200)
  }
})

test('a body of 10 MB is refused with 413, announced or in chunks, and the connection goes on', async () => {
  const body = Buffer.alloc(TEN_MEGABYTES, ' ')
  for (const path of POSTS) {
    for (const isChunked of [false, true]) {
      const client = await rawClient(home.port ?? 0, address())
      const large = await exchanged(client, { method: 'POST', path, body, isChunked })
      is(large.status, 413)
      if (client.isUsable()) is((await exchanged(client, { method: 'GET', path: '/admin/update/status' })).status, 200)
      client.close()
    }
  }
  is((await send({ method: 'POST', path: '/admin/update', body, authorization: null })).status, 401)
  is((await send({ method: 'GET', path: '/admin/update/status', body })).status, 200)
  const just = `{}${' '.repeat(BODY_MAX_BYTES - 1)}`
  is((await send({ method: 'POST', path: '/admin/update/check', body: just })).status, 413)
  is((await send({ method: 'POST', path: '/admin/update/check', body: just.slice(0, -1) })).status, 200)
})

test('what is not a JSON object is refused with 400', async () => {
  const broken = [
    '{',
    '}',
    '{"tag":"v1.0.0"',
    '{"tag":"v1.0.0"}}',
    "{'tag':'v1.0.0'}",
    '{tag:"v1.0.0"}',
    '{"tag":"v1.0.0",}',
    'nul',
    'tag=v1.0.0',
    '[]',
    '[{"tag":"v1.0.0"}]',
    '"v1.0.0"',
    '1',
    'true',
    'null',
    '\u0000',
    Buffer.from([0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00]),
    '['.repeat(BODY_MAX_BYTES),
    '{"a":'.repeat(600),
  ]
  for (const path of POSTS) {
    for (const body of broken) {
      is(await codeOf({ method: 'POST', path, body }), '400 invalid_request', String(body).slice(0, 40))
    }
  }
  is(await historyLength(), 0)
})

test('a tag of a wrong form or type is refused with 400 invalid_tag, and shown no longer than it needs', async () => {
  const forms = [
    '',
    'v',
    'v1',
    'v1.2',
    '1.2.3',
    'V1.2.3',
    'v1.2.3.4',
    'v1.2.3-rc-1',
    'v1.2.3+build',
    'v01.2.3',
    'v1.02.3',
    'v1.2.-3',
    'v1.2.x',
    ' v1.2.3',
    'v1.2.3 ',
    'v1.2.3\n',
    'v1.2.3\u0000',
    'v\uff11.2.3',
    'v9999999999.0.0',
    'latest',
    '../../../etc/passwd',
    'v1.2.3/../v1.2.4',
    `v1.2.${'3'.repeat(3000)}`,
  ]
  const types: unknown[] = [
    null,
    0,
    1,
    1.5,
    -1,
    true,
    false,
    [],
    ['v1.0.0'],
    {},
    { tag: 'v1.0.0' },
    { toString: 'v1.0.0' },
  ]
  for (const tag of [...forms, ...types]) {
    const answer = await send({ method: 'POST', path: '/admin/update', body: JSON.stringify({ tag }) })
    const problem = JSON.parse(answer.body.toString()) as { status: number; code: string; detail: string }
    is(`${problem.status} ${problem.code}`, '400 invalid_tag', JSON.stringify(tag).slice(0, 40))
    ok(problem.detail.length < 120, problem.detail)
  }
  is(await historyLength(), 0)
})

test('unknown fields are refused with 400', async () => {
  const bodies = [
    '{"tag":"v1.0.0","force":true}',
    '{"Tag":"v1.0.0"}',
    '{"version":"v1.0.0"}',
    '{"":1}',
    '{"__proto__":{"tag":"v1.0.0"}}',
    '{"constructor":{}}',
    `{"${'x'.repeat(3000)}":1}`,
  ]
  for (const path of POSTS) {
    for (const body of bodies)
      is(await codeOf({ method: 'POST', path, body }), '400 invalid_request', body.slice(0, 40))
  }
  for (const path of ['/admin/update/check', '/admin/update/rollback']) {
    is(await codeOf({ method: 'POST', path, body: '{"tag":"v1.0.0"}' }), '400 invalid_request', path)
  }
  is(await historyLength(), 0)
})

test('every method on every path is answered as documented', async () => {
  const paths = [...ENDPOINTS.map(([, path]) => path), '/admin/update/', '/admin/update/x', '/admin/update/status/']
  const methods = METHODS.filter((method) => method !== 'CONNECT' && method !== 'QUERY')
  for (const path of paths) {
    const documented = ENDPOINTS.find(([, known]) => known === path)?.[0]
    for (const method of methods) {
      if (method === documented) continue
      const { status } = await send({ method, path })
      const isHead = method === 'HEAD' && documented === 'GET'
      is(status, documented === undefined ? 404 : isHead ? 200 : 405, `${method} ${path}`)
    }
  }
  is(await codeOf({ method: 'POST', path: '/admin/update/rollback' }), '404 no_backup')
  // CONNECT has no answer in HTTP servers of Node; it must do no harm
  const client = await rawClient(home.port ?? 0, address())
  await client.exchange({ bytes: Buffer.from('CONNECT /admin/update HTTP/1.1\r\nHost: x\r\n\r\n') })
  client.close()
  is((await send({ method: 'GET', path: '/admin/update/status' })).status, 200)
})

test('HEAD is GET without its body', async () => {
  const get = await send({ method: 'GET', path: '/admin/update/status' })
  const head = await send({ method: 'HEAD', path: '/admin/update/status' })
  is(head.status, 200)
  is(head.headers['content-type'], get.headers['content-type'])
  is(head.headers['content-length'], get.headers['content-length'])
  is(head.body.length, 0)
})

test('an address that keeps failing is slowed down, alone, and forgiven', async () => {
  const from = '127.44.0.1'
  const path = '/admin/update/status'
  const attempt = async (authorization?: string): Promise<RawAnswer> => {
    const client = await rawClient(home.port ?? 0, from)
    try {
      return await exchanged(client, { method: 'GET', path, ...(authorization !== undefined && { authorization }) })
    } finally {
      client.close()
    }
  }
  const statuses: number[] = []
  for (let i = 0; i < 30; i++) statuses.push((await attempt(`Bearer ${WRONG}-${i}`)).status)
  equal(
    statuses.slice(0, 20),
    Array.from({ length: 20 }, () => 401),
  )
  ok(statuses.includes(429), statuses.join(' '))
  const refused = await attempt(`Bearer ${WRONG}`)
  if (refused.status === 429) {
    const seconds = Number(refused.headers['retry-after'])
    ok(seconds >= 1 && seconds <= 3, `Retry-After: ${refused.headers['retry-after']}`)
  }
  is((await send({ method: 'GET', path })).status, 200, 'another address')
  for (let i = 0; i < 20; i++) is((await attempt()).status, 200, 'the right token is never slowed down')
  await until('the address to be forgiven', async () => (await attempt(`Bearer ${WRONG}`)).status === 401, 10_000)
})

test('below a base path everything is as documented, and above it there is nothing', async () => {
  await using based = await install({ release: await release, basePath: '/my/beacon' })
  await publishTo(join(based.home, 'no-feed'), [await release])
  await based.start()
  for (const [method, path] of ENDPOINTS) {
    const { status, headers, body } = await based.api(method, path)
    conforms({ method, path: `/my/beacon${path}`, status, headers, body })
    if (status === 202) is(headers['location'], '/my/beacon/admin/update/status')
    is(
      status,
      path === '/admin/update'
        ? 202
        : path.endsWith('rollback')
          ? status === 409
            ? 409
            : 404
          : status === 409
            ? 409
            : 200,
    )
    is((await ask(based.port ?? 0, method, path, based.password)).status, 404, `${path} without the base path`)
    is((await ask(based.port ?? 0, method, `/my${path}`, based.password)).status, 404)
  }
  is((await based.settled()).outcome, 'up_to_date')
})

test('a journal that cannot be read is a 500 that says so; mended, everything goes on', async () => {
  await using broken = await install({ release: await release })
  await publishTo(join(broken.home, 'no-feed'), [await release])
  await broken.start()
  const path = join(broken.stateDirectory, 'update/journal.json')
  await rm(path, { force: true })
  await mkdir(path, { recursive: true }) // no mode keeps root from reading a file
  for (const [method, target] of [
    ['GET', '/admin/update/status'],
    ['POST', '/admin/update'],
  ] as const) {
    const answer = await broken.api(method, target)
    conforms({ method, path: target, ...answer, isBroken: true })
    is(answer.status, 500)
    match(JSON.stringify(answer.body), 'reading the record of operations')
  }
  await rm(path, { recursive: true })
  is((await broken.api('GET', '/admin/update/status')).status, 200)
  is((await broken.api('POST', '/admin/update')).status, 202)
  is((await broken.settled()).outcome, 'up_to_date')
})

test('without a password every endpoint is closed with 403', async () => {
  for (const password of [null, '']) {
    await using closed = await install({ release: await release, password })
    await closed.start()
    for (const [method, path] of [...ENDPOINTS, ['DELETE', '/admin/update'], ['GET', '/admin/update/x']] as const) {
      for (const token of [null, 'null', 'undefined', WRONG]) {
        const answer = await ask(closed.port ?? 0, method, path, token)
        conforms({ method, path, ...answer })
        is(answer.status, 403)
        is((answer.body as { code: string }).code, 'no_password')
      }
    }
    is((await ask(closed.port ?? 0, 'GET', '/version', null)).status, 200)
  }
})

test('a target that is a whole address is understood, and two Host headers are refused', async () => {
  const client = await rawClient(home.port ?? 0)
  const authorization = `Bearer ${home.password}`
  try {
    const path = `http://somewhere.test:${home.port}/admin/update/status`
    const whole = await exchanged(client, { method: 'GET', path, authorization })
    is(whole.status, 200)
    conforms({ method: 'GET', path: '/admin/update/status', ...whole, body: whole.body.toString() })
  } finally {
    client.close()
  }
  for (const path of ['/admin/update/status', '/healthz', '/admin/update/nothing']) {
    const answer = await answerTo(
      `GET ${path} HTTP/1.1\r\nHost: one.test\r\nHost: two.test\r\nAuthorization: ${authorization}\r\nConnection: close\r\n\r\n`,
    )
    match(answer, /^HTTP\/1\.1 400 /, path)
    match(answer, '"code":"invalid_request"')
  }
})

test('an install that is not managed and has no password answers 501 at once; with one, 401 comes first', async () => {
  for (const [password, token, status] of [
    [null, null, 501],
    [null, 'guess', 501],
    ['correct-horse-battery-staple', null, 401],
    ['correct-horse-battery-staple', 'guess', 401],
    ['correct-horse-battery-staple', 'correct-horse-battery-staple', 501],
  ] as const) {
    await using other = await install({ release: await release, password })
    await rm(other.receiptPath)
    await other.start()
    for (const [method, path] of ENDPOINTS) {
      const answer = await ask(other.port ?? 0, method, path, token)
      conforms({ method, path, ...answer })
      is(answer.status, status, `${method} ${path}`)
      if (status === 501) ok((answer.body as { route: string }).route !== '', 'expected the route to take')
    }
  }
})

test('an install that is not managed answers 501 with the reason and the route to take', async () => {
  const container = unmanaged('container', { BATON_CONTAINER: '1' })
  // a host that is itself a container is told from a bare one by these two files
  const isContainer = ['/.dockerenv', '/run/.containerenv'].some((path) => existsSync(path))
  const bare = unmanaged(isContainer ? 'container' : 'by_hand', {}, ({ receiptPath }) => rm(receiptPath))
  const foreign = unmanaged('other_executable', {}, ({ receiptPath, receipt }) =>
    writeFile(receiptPath, JSON.stringify({ ...receipt, service: 'lighthouse' })),
  )
  const moved = unmanaged('other_executable', {}, ({ receiptPath, receipt }) =>
    writeFile(receiptPath, JSON.stringify({ ...receipt, executable: '/nowhere/beacon' })),
  )
  await Promise.all([container, bare, foreign, moved, fromSource()])
})

test(
  `of ${FUZZ_REQUESTS} odd requests none is answered with a 5xx, and the service is as well as before`,
  async () => {
    const random = randomFrom(FUZZ_SEED)
    const before = await vitals()
    const secrets = { password: home.password ?? '', wrong: WRONG }
    const statuses = new Map<number | null, number>()
    let made = 0
    const worker = async (): Promise<void> => {
      let client: RawClient | null = null
      while (made < FUZZ_REQUESTS) {
        const number = made++
        const odd = oddRequest(random, secrets)
        const said = `request ${number} of seed ${FUZZ_SEED} (${odd.kind}): ${JSON.stringify(odd.bytes.toString('latin1').slice(0, 300))}`
        if (client === null || !client.isUsable()) {
          client?.close()
          client = await rawClient(home.port ?? 0, address())
        }
        try {
          const answer = await client.exchange(odd, 20_000)
          statuses.set(answer?.status ?? null, (statuses.get(answer?.status ?? null) ?? 0) + 1)
          if (answer === null) {
            if (odd.isForAgent) throw new Error('expected an answer, the connection was closed')
          } else {
            if (answer.status >= 500)
              throw new Error(`answered ${answer.status}: ${answer.body.toString().slice(0, 300)}`)
            if (odd.isForAgent) conforms({ ...odd, ...answer, body: answer.body.toString() })
          }
        } catch (cause) {
          throw new Error(said, { cause })
        }
      }
      client?.close()
    }
    await Promise.all(Array.from({ length: FUZZ_AT_ONCE }, worker))

    // a 409 is a matter of luck here, as an operation has to be in flight: `races.test.ts` makes sure of it
    for (const status of [200, 202, 400, 401, 404, 405, 413, 431]) {
      ok((statuses.get(status) ?? 0) > 0, `expected a ${status} among them, got ${JSON.stringify([...statuses])}`)
    }
    await home.settled()
    const after = await until('the connections to be gone', async () => {
      const now = await vitals()
      return now.descriptors <= before.descriptors + 5 && now
    })
    equal(after.instance, before.instance, 'expected the very process of before')
    ok(after.memory < before.memory + 250, `memory: ${before.memory} MiB before, ${after.memory} MiB after`)
    is(processesBelow(home.home).length, 1)
    is((await ask(home.port ?? 0, 'GET', '/healthz', null)).status, 200)
  },
  { timeoutMs: 150_000 },
)

test('nothing secret is in what the service has said', async () => {
  const output = await home.output()
  ok(output.includes('serving v1.0.0'))
  for (const secret of [home.password ?? '', WRONG, Buffer.from(`admin:${WRONG}`).toString('base64')]) {
    ok(!output.includes(secret), `expected the output not to have \`${secret}\``)
  }
  ok(output.length < 1024 * 1024, `expected less than 1 MiB of output, got ${output.length}`)
})

test.run()

/** What comes back for these very bytes, until the connection is closed. */
async function answerTo(bytes: string): Promise<string> {
  const socket = connect(home.port ?? 0, '127.0.0.1')
  socket.end(bytes)
  return await text(socket)
}

async function unmanaged(
  why: string,
  environment: Record<string, string>,
  arrange?: (home: Install) => Promise<void>,
): Promise<void> {
  await using other = await install({ release: await release })
  await arrange?.(other)
  await other.start(environment)
  await answers501(other, why)
}

async function fromSource(): Promise<void> {
  await using other = await install({ release: await release })
  const log = await open(other.logPath, 'a')
  const program = join(import.meta.dirname, '..', 'deploy', 'executable.ts')
  spawn(process.execPath, [program, 'serve', '--config', other.configPath], { stdio: ['ignore', log.fd, log.fd] })
  await log.close()
  await until('the service to start', async () => /serving v/.test(await other.output()), 20_000)
  await answers501(other, 'source')
}

async function answers501(other: Install, why: string): Promise<void> {
  for (const [method, path] of ENDPOINTS) {
    const answer = await other.api(method, path)
    conforms({ method, path, ...answer })
    is(answer.status, 501, why)
    const problem = answer.body as { reason: string; route: string; hint: string; detail: string }
    is(problem.reason, why)
    is(problem.route, ROUTES[why as keyof typeof ROUTES])
    is(problem.hint, problem.route)
    ok(problem.detail.length > 20, problem.detail)
    const closed = await ask(other.port ?? 0, method, path, null)
    is(closed.status, 401, 'first of all the token')
  }
  is((await ask(other.port ?? 0, 'GET', '/healthz', null)).status, 200, 'it serves all the same')
  match(await other.output(), /cannot update itself: /)
}

/** Memory in MiB, open descriptors, and who it is. */
async function vitals(): Promise<{ memory: number; descriptors: number; instance: Status['instance'] }> {
  const { instance } = JSON.parse(
    (await send({ method: 'GET', path: '/admin/update/status' })).body.toString(),
  ) as Status
  const status = await readFile(`/proc/${instance.pid}/status`, 'utf8')
  const memory = Math.round(Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024)
  return { memory, descriptors: readdirSync(`/proc/${instance.pid}/fd`).length, instance }
}

async function historyLength(): Promise<number> {
  const { body } = await send({ method: 'GET', path: '/admin/update/status' })
  return (JSON.parse(body.toString()) as Status).history.length
}

async function codeOf(sent: Sent): Promise<string> {
  const { status, body } = await send(sent)
  return `${status} ${(JSON.parse(body.toString()) as { code: string }).code}`
}

/** On a connection of its own from an address of its own. */
async function send(sent: Sent): Promise<RawAnswer> {
  const client = await rawClient(sent.port ?? home.port ?? 0, address())
  try {
    return await exchanged(client, sent)
  } finally {
    client.close()
  }
}

async function exchanged(client: RawClient, sent: Sent): Promise<RawAnswer> {
  const answer = await client.exchange(exchangeOf(sent))
  if (answer === null) throw new Error(`${sent.method} ${sent.path}: the connection was closed`)
  conforms({ method: sent.method, path: sent.path, ...answer, body: answer.body.toString() })
  return answer
}

function exchangeOf({ method, path, headers = {}, body, isChunked = false, authorization }: Sent): Exchange {
  const token = authorization === undefined ? `Bearer ${home.password}` : authorization
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: 127.0.0.1',
    ...(token === null ? [] : [`Authorization: ${token}`]),
  ]
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`)
  const bytes = Buffer.from(body ?? '')
  if (isChunked) lines.push('Transfer-Encoding: chunked')
  else if (body !== undefined) lines.push(`Content-Length: ${bytes.length}`)
  const parts = [Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')]
  if (!isChunked) parts.push(bytes)
  else {
    const size = 65_536
    for (let at = 0; at < bytes.length; at += size) {
      const piece = bytes.subarray(at, at + size)
      parts.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'))
    }
    parts.push(Buffer.from('0\r\n\r\n'))
  }
  return { bytes: Buffer.concat(parts), isHead: method === 'HEAD' }
}

let addresses = 0

/** Another one each time, so that failures are counted apart. */
function address(): string {
  const number = addresses++
  return `127.${1 + ((number >> 14) % 40)}.${(number >> 7) % 128}.${1 + (number % 128)}`
}
