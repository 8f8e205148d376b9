// The endpoints over a real socket, with an updater that does nothing but say what it was asked.

import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { makeAdmin } from '../../agent/http/admin.ts'
import { BatonError, type ErrorCode, MEANINGS } from '../../agent/words/errors.ts'
import type { LogEvent } from '../../agent/log.ts'
import type { Updater } from '../../agent/http/routes.ts'
import { type Operation, type Status } from '../../agent/words/state.ts'
import { newOperation } from '../../agent/update/operation.ts'
import { equal, is, match, ok } from '../assert.ts'
import { conforms } from '../lab/openapi.ts'
import { suite } from '../suite.ts'

const TOKEN = 'secret-token'
const OPERATION = newOperation({
  id: 'an-id',
  kind: 'update',
  from: 'v1.0.0',
  to: null,
  startedAt: '2026-11-21T09:00:00.000Z',
})

const INSTANCE = { id: 'i', pid: 42, version: 'v1.0.0', startedAt: '2026-11-21T08:00:00Z' }

const STATUS: Status = {
  state: 'idle',
  operation: null,
  instance: INSTANCE,
  backup: null,
  probation: null,
  trust: { signed: false, metadata: [], yanked: [], warning: null },
  history: [],
}

const test = suite('routes')

interface Served extends AsyncDisposable {
  port: number
  asked: unknown[][]
  events: LogEvent[]
  /** requests that were left to the application */
  others: string[]
  ask(
    method: string,
    path: string,
    body?: string,
    token?: string | null,
  ): Promise<{ status: number; headers: IncomingMessage['headers']; body: string }>
}

async function served(updater: Partial<Updater> = {}, basePath = ''): Promise<Served> {
  const asked: unknown[][] = []
  const events: LogEvent[] = []
  const others: string[] = []
  const note = (...what: unknown[]) => {
    asked.push(what)
    return Promise.reject(new BatonError('no_backup', 'there is none'))
  }
  const all: Updater = {
    update: (tag, { allowIrreversible, restoreState }) =>
      note('update', tag, allowIrreversible, ...(restoreState ? ['its data'] : [])),
    rollback: () => note('rollback'),
    cancel: () => note('cancel'),
    proceed: () => note('proceed'),
    check: () => note('check'),
    status: (wait) => note('status', ...(wait === null ? [] : [wait.mostMs])),
    operations: () => note('operations'),
    policy: (...own) => note('policy', ...own),
    assertManaged: () => {},
    attend: () => note('attend'),
    ...updater,
  }
  const log = (event: LogEvent) => void events.push(event)
  const settings = {
    basePath,
    password: TOKEN,
    trustedProxy: null,
    passwordHeader: 'authorization',
    authorize: null,
    log,
  } as const
  const routes = makeAdmin(settings, () => Promise.resolve(all))
  const server: Server = createServer((incoming, response) => {
    if (routes(incoming, response)) return
    others.push(incoming.url ?? '')
    response.end('the application')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port,
    asked,
    events,
    others,
    ask: (method, path, body, token = TOKEN) =>
      new Promise((resolve, reject) => {
        const headers = token === null ? {} : { authorization: `Bearer ${token}` }
        const sent = request({ host: '127.0.0.1', port, method, path, headers, agent: false }, (response) => {
          let text = ''
          response.on('data', (part: Buffer) => (text += part.toString()))
          response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }))
          response.on('error', reject)
        })
        sent.on('error', reject)
        sent.end(body)
      }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

test('asks the updater for what the request says', async () => {
  await using service = await served({ update: (tag) => Promise.resolve({ ...OPERATION, to: tag }) })
  for (const [body, to] of [
    ['', null],
    ['  \n', null],
    ['{}', null],
    ['{"tag":"v1.2.3"}', 'v1.2.3'],
    [' {"tag" : "v0.0.0" } ', 'v0.0.0'],
  ] as const) {
    const answer = await service.ask('POST', '/admin/update', body)
    conforms({ method: 'POST', path: '/admin/update', ...answer })
    is(answer.status, 202)
    is(answer.headers['location'], '/admin/update/status')
    is((JSON.parse(answer.body) as Operation).to, to)
  }
  await service.ask('POST', '/admin/update/rollback')
  await service.ask('POST', '/admin/update/check', '{}')
  await service.ask('GET', '/admin/update/status?x=1')
  equal(service.asked, [['rollback'], ['check'], ['status']])
})

test('what has happened is one list, and each of it has an address', async () => {
  const ended = {
    ...OPERATION,
    id: 'another',
    to: 'v1.1.0',
    outcome: 'updated' as const,
    finishedAt: OPERATION.startedAt,
  }
  await using service = await served({ operations: () => Promise.resolve([OPERATION, ended]) })
  const all = await service.ask('GET', '/admin/update/operations')
  conforms({ method: 'GET', path: '/admin/update/operations', ...all })
  equal(JSON.parse(all.body), { operations: [OPERATION, ended] })
  for (const [id, status] of [
    ['another', 200],
    ['an-id', 200],
    ['none', 404],
    ['', 404],
    ['another/', 404],
    ['%61nother', 404],
    ['__proto__', 404],
  ] as const) {
    const one = await service.ask('GET', `/admin/update/operations/${id}`)
    conforms({ method: 'GET', path: '/admin/update/operations/{id}', ...one })
    is(one.status, status, id)
    if (status === 200) is((JSON.parse(one.body) as Operation).id, id)
  }
  for (const path of ['/admin/update/operations', '/admin/update/operations/another']) {
    const refused = await service.ask('POST', path)
    conforms({ method: 'POST', path: '/admin/update/operations/{id}', ...refused })
    equal([refused.status, refused.headers['allow']], [405, 'GET, HEAD'])
  }
})

test('the policy is read with GET and written with POST', async () => {
  await using service = await served()
  await service.ask('GET', '/admin/update/policy')
  await service.ask('POST', '/admin/update/policy', '{"policy":{"skip":"v1.1.0"}}')
  equal(service.asked, [['policy'], ['policy', { skip: 'v1.1.0' }]])
  const refused = await service.ask('DELETE', '/admin/update/policy')
  equal([refused.status, refused.headers['allow']], [405, 'GET, HEAD, POST'])
  match(refused.body, 'expected GET or POST, got DELETE')
})

test('a status that is waited for says how long at most, and what the client has not seen is new', async () => {
  const told: [number, boolean][] = []
  await using service = await served({
    status(wait) {
      if (wait !== null) told.push([wait.mostMs, wait.isNew(STATUS)])
      return Promise.resolve(STATUS)
    },
  })
  const first = await service.ask('GET', '/admin/update/status?wait=60')
  is(first.status, 200)
  const seen = first.headers.etag ?? ''
  const asked = (tag: string) =>
    fetch(`http://127.0.0.1:${service.port}/admin/update/status?wait=5`, {
      headers: { authorization: `Bearer ${TOKEN}`, 'if-none-match': tag },
    })
  is((await asked(seen)).status, 304)
  is((await asked('"other"')).status, 200)
  equal(told, [
    [60_000, false],
    [5000, false],
    [5000, true],
  ])
  for (const wait of ['61', '-1', '1.5', 'x', '', '1e1', '0x10']) {
    const answer = await service.ask('GET', `/admin/update/status?wait=${wait}`)
    conforms({ method: 'GET', path: '/admin/update/status', ...answer })
    is(answer.status, 400, wait)
    match(answer.body, 'expected 0 to 60 seconds in `wait`')
  }
  is(told.length, 3)
})

test('a person may allow a release with no way back; without that word nobody has, and another type is refused', async () => {
  await using service = await served()
  for (const body of [
    '{"tag":"v1.2.3"}',
    '{"tag":"v1.2.3","allowIrreversible":false}',
    '{"tag":"v1.2.3","allowIrreversible":true}',
  ])
    await service.ask('POST', '/admin/update', body)
  equal(service.asked, [
    ['update', 'v1.2.3', false],
    ['update', 'v1.2.3', false],
    ['update', 'v1.2.3', true],
  ])
  for (const allowIrreversible of ['"true"', '1', 'null']) {
    const answer = await service.ask('POST', '/admin/update', `{"allowIrreversible":${allowIrreversible}}`)
    conforms({ method: 'POST', path: '/admin/update', ...answer })
    is(answer.status, 400, allowIrreversible)
    match(answer.body, 'expected `allowIrreversible` to be true')
  }
  is(service.asked.length, 3)
})

test('an update may take the data along that the named release has left; anything but true is refused', async () => {
  await using service = await served()
  await service.ask('POST', '/admin/update', '{"tag":"v1.2.3","restoreState":true}')
  equal(service.asked, [['update', 'v1.2.3', false, 'its data']])
  const answer = await service.ask('POST', '/admin/update', '{"tag":"v1.2.3","restoreState":"snapshot"}')
  conforms({ method: 'POST', path: '/admin/update', ...answer })
  match(answer.body, 'expected `restoreState` to be true')
  is(service.asked.length, 1)
})

test('takes what is below its prefix and leaves the rest to the application', async () => {
  await using service = await served({}, '/beacon')
  const own = [
    '/beacon/admin/update',
    '/beacon/admin/update/x',
    '/beacon/admin/update?x',
    '/beacon/admin/update/status/',
  ]
  const others = [
    '/',
    '/admin/update',
    '/beacon/admin/updates',
    '/beacon/admin',
    '/beaconx/admin/update',
    '//beacon/admin/update',
  ]
  for (const path of own) ok((await service.ask('GET', path, '', null)).status === 401, path)
  for (const path of others) is((await service.ask('GET', path)).body, 'the application')
  equal(service.others, others)
  equal(service.asked, [])
})

test('each code that an endpoint can refuse with has its status and a problem document', async () => {
  for (const code of Object.keys(MEANINGS) as ErrorCode[]) {
    const refusal = new BatonError(code, 'it is so', { hint: 'do this', members: { retryAfterSeconds: 7, extra: 'x' } })
    await using service = await served({ status: () => Promise.reject(refusal) })
    const { status, headers, body } = await service.ask('GET', '/admin/update/status')
    is(status, MEANINGS[code].status, code)
    is(headers['content-type'], 'application/problem+json')
    is(headers['cache-control'], 'no-store')
    is(headers['retry-after'], '7')
    const { type, title } = JSON.parse(body) as { type: string; title: string }
    equal(JSON.parse(body), {
      type,
      title,
      status,
      detail: 'it is so',
      code,
      hint: 'do this',
      retryAfterSeconds: 7,
      extra: 'x',
    })
    ok(type.includes(code) && title.length > 5)
  }
})

test('what nobody foresaw is told to the log, and to the client only that it happened', async () => {
  await using service = await served({ status: () => Promise.reject(new TypeError('x.secret is not a function')) })
  const { status, body } = await service.ask('GET', '/admin/update/status')
  is(status, 500)
  is((JSON.parse(body) as { code: string }).code, 'unexpected')
  ok(!body.includes('x.secret'), body)
  match(JSON.stringify(service.events), /x\.secret is not a function/)
})

test('nothing is asked of the updater before the token, the path, the method and the body are right', async () => {
  await using service = await served({
    assertManaged: () => {
      throw new BatonError('not_managed', 'by hand', { members: { reason: 'by_hand' } })
    },
  })
  is((await service.ask('POST', '/admin/update', '{', null)).status, 401)
  is((await service.ask('POST', '/admin/update/x', '{')).status, 404)
  is((await service.ask('GET', '/admin/update')).status, 405)
  is((await service.ask('POST', '/admin/update', '{')).status, 501)
  equal(service.asked, [])
})

test('a status that would be the same is a 304, and only for a GET that has the right token', async () => {
  const now = structuredClone(STATUS)
  await using service = await served({ status: async () => now, check: () => Promise.reject(new Error('unused')) })
  const asked = async (etag: string, token = TOKEN) =>
    await fetch(`http://127.0.0.1:${service.port}/admin/update/status`, {
      headers: { authorization: `Bearer ${token}`, 'if-none-match': etag },
    })
  const first = await asked('"x"')
  const etag = first.headers.get('etag') ?? ''
  is(first.status, 200)
  const again = await asked(etag)
  is(again.status, 304)
  is(await again.text(), '')
  is(again.headers.get('cache-control'), 'no-store')
  is((await asked(etag, 'wrong')).status, 401)
  now.history.push(OPERATION)
  is((await asked(etag)).status, 200)
})

test('a client that leaves in the middle of its body harms nobody', async () => {
  await using service = await served()
  for (let i = 0; i < 20; i++) {
    const socket = connect(service.port, '127.0.0.1')
    await once(socket, 'connect')
    const head = `POST /admin/update HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Length: 100\r\n\r\n{"tag":`
    await new Promise((resolve) => socket.write(head, resolve))
    if (i % 2 === 0) socket.destroy()
    else socket.resetAndDestroy()
  }
  is((await service.ask('GET', '/admin/update/status')).status, 404)
  equal(service.asked, [['status']])
  equal(service.events, [])
})

test.run()
