// An application with a login and pages of its own: its session may update, its page shows the badge, its code calls what the endpoints do.

import { readFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeAdmit } from '../agent/http/admit.ts'
import { makeGuard } from '../agent/http/auth.ts'
import { makeCalls } from '../agent/http/calls.ts'
import type { Updater } from '../agent/http/routes.ts'
import type { LogEvent, Status } from '../agent/index.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, ok, rejects, withCode } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { type FrameworkApps, frameworkApps } from './fixtures/framework-apps.ts'
import { type Browser, comesTrue, launch, NO_BROWSER, openPage } from './panel/browser.ts'
import { suite } from './suite.ts'

const test = suite('own login', { timeoutMs: 120_000, skip: NO_BROWSER })
let browser: Browser
let apps: FrameworkApps
test.before(async () => {
  ;[browser, apps] = await Promise.all([launch(), frameworkApps()])
})
test.after(async () => {
  await browser.close()
  await apps[Symbol.asyncDispose]()
})

const BADGE = `document.querySelector('baton-badge')`
const SAYS = `${BADGE}.shadowRoot.querySelector('span').textContent`

for (const app of ['express', 'fastify']) {
  const register = app === 'express' ? test : test.long
  register(
    `${app}: the badge is for who is logged in, and takes the page over the switch; the panel asks for no password`,
    async () => {
      await using place = await apps.started(`login-${app}`)
      await using watched = await openPage(browser)
      const { page } = watched
      const url = `http://127.0.0.1:${place.port}`
      const refused = page.waitForResponse('**/admin/update/status')
      await page.goto(url)
      is((await refused).status(), 401)
      await comesTrue(page, `${BADGE}.hidden && !${BADGE}.checkVisibility()`)
      await page.goto(`${url}/login/somebody`)
      is(await page.evaluate(`fetch('/admin/update/status').then(({ status }) => status)`), 401)
      await page.goto(`${url}/login/operator`)
      await page.goto(url)
      await comesTrue(page, `!${BADGE}.hidden && ${SAYS} === 'v1.1.0 is available'`)
      await page.evaluate(`addEventListener('baton-ended', ({ detail }) => (window.ended = detail.outcome))`)
      await page.getByRole('button', { name: 'Update' }).click()
      await comesTrue(page, `${SAYS} === 'Updated to v1.1.0'`, 30_000)
      is(await page.evaluate('window.ended'), 'updated')
      is(await (await fetch(`${url}/healthz`)).text(), 'v1.1.0')
      await page.goto(`${url}/web/settings.html`)
      await page.waitForSelector('#card:not([hidden])')
      await comesTrue(page, `document.querySelector('#gate').hidden`)
      await page.click('#rollback')
      await page.click('#yes')
      await comesTrue(page, `document.querySelector('#outcomeTitle').textContent === 'Rolled back to v1.0.0'`, 30_000)
      // the old page goes on where it is
      equal(watched.wrong, [])
    },
  )
}

test.long(
  'a badge that comes late says the truth: in the middle of the switch, after a second operation, after a cancel, without a storage',
  async () => {
    const running = { id: '1', to: 'v1.1.0', outcome: null as string | null }
    const now = { operation: null as typeof running | null, instance: { id: 'new', version: 'v1.1.0' } }
    await using service = await pageWithBadge({ latest: 'v1.3.0', status: () => [200, now] })
    const { url } = service
    await using watched = await openPage(browser)
    const { page } = watched
    await page.addInitScript(
      `for (const name of ['getItem', 'setItem', 'removeItem']) Storage.prototype[name] = () => { throw new DOMException('full') }`,
    )
    const says = async (text: string) => await comesTrue(page, `!${BADGE}.hidden && ${SAYS} === '${text}'`)
    now.operation = running
    await page.goto(url)
    await says('Updating to v1.1.0 …')
    now.operation = { ...running, outcome: 'updated' }
    await says('Updated to v1.1.0')
    // this page has slept: what it follows has ended, and so has another one
    now.operation = running
    await page.goto(url)
    await says('Updating to v1.1.0 …')
    now.operation = { id: '2', to: 'v1.2.0', outcome: 'reverted' }
    await says('v1.3.0 is available')
    now.operation = running
    await page.goto(url)
    await says('Updating to v1.1.0 …')
    now.operation = { ...running, outcome: 'cancelled' }
    await says('v1.3.0 is available')
    // somebody else has begun in this moment
    now.operation = { ...running, outcome: null }
    await page.getByRole('button', { name: 'Update' }).click()
    await says('Updating to v1.1.0 …')
    equal(watched.wrong, [])
  },
)

test('a badge asks once for a visitor without rights, and again when it is told to; a page that nobody sees asks nothing', async () => {
  const running = { id: '1', to: 'v1.1.0', outcome: null as string | null }
  const now = { operation: null as typeof running | null, instance: { id: 'old', version: 'v1.0.0' } }
  let [asked, refusal] = [0, 401]
  const status = (): [number, object] => {
    asked++
    return [refusal, refusal === 200 ? now : {}]
  }
  await using service = await pageWithBadge({ latest: 'v1.1.0', status })
  const { url } = service
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  const answered = async (act: () => Promise<unknown>) =>
    await Promise.all([page.waitForResponse('**/admin/update/status'), act()])
  const later = async () => {
    for (let minute = 0; minute < 5; minute++) {
      await page.clock.fastForward(61_000)
      await page.evaluate(`fetch('/elsewhere').then((answer) => answer.text())`) // what it has begun is on its way
    }
  }
  const seen = async (isSeen: boolean) =>
    await page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${!isSeen} });
      document.dispatchEvent(new Event('visibilitychange'))`)
  const told = () => page.evaluate(`${BADGE}.setAttribute('ask', String(Math.random()))`)
  await answered(() => page.goto(url))
  await later()
  equal([asked, await page.evaluate(`${BADGE}.hidden`)], [1, true])
  refusal = 403
  await answered(told)
  await later()
  is(asked, 2)
  refusal = 200
  await answered(told)
  await comesTrue(page, `!${BADGE}.hidden && ${SAYS} === 'v1.1.0 is available'`)
  await later()
  ok(asked > 3, String(asked))
  await seen(false)
  const before = asked
  await later()
  is(asked, before)
  await answered(() => seen(true))
  // a login that has lost its sessions in the switch is not asked for ever
  now.operation = running
  await answered(told)
  await comesTrue(page, `${SAYS} === 'Updating to v1.1.0 …'`)
  refusal = 401
  const inSwitch = asked
  for (let second = 0; second < 40; second++) {
    await page.clock.fastForward(1100)
    await page.evaluate(`fetch('/elsewhere').then((answer) => answer.text())`)
  }
  await comesTrue(page, `${BADGE}.hidden`)
  ok(asked - inSwitch > 5 && asked - inSwitch < 20, String(asked - inSwitch))
  equal(watched.wrong, [])
})

test('another site cannot make a browser that is logged in update: whatever it sends, nothing begins', async () => {
  await using place = await apps.started('login-express')
  const cookie = (await fetch(`http://127.0.0.1:${place.port}/login/operator`)).headers.get('set-cookie') ?? ''
  const asked = async (method: string, path: string, headers: Record<string, string>): Promise<[number, string]> =>
    await new Promise((resolve, reject) => {
      const host = { host: '127.0.0.1', port: place.port, method, path: `/admin/update${path}` }
      httpRequest({ ...host, headers: { cookie: cookie.split(';')[0], ...headers } }, (answer: IncomingMessage) => {
        let text = ''
        answer.on('data', (part: Buffer) => (text += part.toString()))
        answer.on('end', () => resolve([answer.statusCode ?? 0, text]))
      })
        .on('error', reject)
        .end()
    })
  const own = `http://127.0.0.1:${place.port}`
  for (const headers of [
    {},
    { origin: 'null' },
    { origin: 'https://evil.example' },
    { origin: 'http://127.0.0.1' },
    { origin: `${own}.evil.example` },
    { origin: own, 'sec-fetch-site': 'cross-site' },
    { origin: own, 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
  ] as Record<string, string>[]) {
    for (const path of ['', '/rollback', '/check', '/policy', '/cancel', '/proceed']) {
      const [status, text] = await asked('POST', path, headers)
      is(status, 401, JSON.stringify([path, headers]))
      match(text, /expected a request from one of this service's pages, got /)
    }
  }
  const reads: [number, Record<string, string>[]][] = [
    [200, [{}, { 'sec-fetch-site': 'none' }, { 'sec-fetch-site': 'same-origin' }, { origin: own }]],
    [200, [{ referer: `${own}/web/settings.html?a` }, { 'sec-fetch-site': 'same-origin', referer: 'http://a' }]],
    [401, [{ 'sec-fetch-site': 'cross-site' }, { 'sec-fetch-site': 'same-site' }]],
    // without TLS a browser sends no Sec-Fetch-Site
    [401, [{ origin: 'https://evil.example' }, { origin: 'null' }, { referer: 'http://evil.example/page' }]],
    [
      401,
      [
        { referer: `${own}.evil.example/` },
        { referer: `http://evil.example/${own}` },
        { origin: 'null', referer: own },
      ],
    ],
  ]
  for (const [status, all] of reads)
    for (const headers of all) is((await asked('GET', '/status', headers))[0], status, JSON.stringify(headers))
  for (const headers of [{ origin: own }, { 'sec-fetch-site': 'same-origin' }] as Record<string, string>[])
    is((await asked('POST', '/check', headers))[0], 200)
  // Chromium, from another port of this host: the cookie goes along, as it knows no ports
  const evil = createServer((request, response) =>
    response.setHeader('content-type', 'text/html').end(`<form method="post" action="${own}/admin/update"></form>
      <script>fetch('${own}/admin/update', { method: 'POST', mode: 'no-cors', credentials: 'include' }).finally(() => document.forms[0].submit())</script>`),
  )
  await new Promise<void>((resolve) => evil.listen(0, '127.0.0.1', resolve))
  try {
    await using watched = await openPage(browser)
    const { page } = watched
    await page.goto(`${own}/login/operator`)
    const answers: number[] = []
    page.on(
      'response',
      (response) => void (response.url() === `${own}/admin/update` && answers.push(response.status())),
    )
    await page.goto(`http://127.0.0.1:${(evil.address() as AddressInfo).port}/`)
    await page.waitForURL(`${own}/admin/update`)
    equal(answers, [401, 401])
  } finally {
    evil.close()
    evil.closeAllConnections()
  }
  const { operation } = JSON.parse((await asked('GET', '/status', {}))[1]) as { operation: unknown }
  is(operation, null)
})

test('a login that throws, hangs, or answers anything but true lets nobody in; the password does', async () => {
  const events: LogEvent[] = []
  const PASSWORD = 'of the operator'
  const guard = makeGuard({ password: PASSWORD })
  const admitted = async (authorize: unknown, headers: Record<string, string> = {}) => {
    const admit = makeAdmit(guard, authorize as Parameters<typeof makeAdmit>[1], (event) => void events.push(event))
    await admit({ method: 'GET', headers, socket: {} } as unknown as IncomingMessage)
  }
  const faults = [
    () => {
      throw new Error('the session store is away')
    },
    () => Promise.reject(new Error('the session store is away')),
    () => new Promise(() => {}),
    () => 1,
    () => 'yes',
    () => ({}),
    () => undefined,
    () => false,
  ]
  await Promise.all(
    faults.map(async (authorize) => {
      const refused = await rejects(admitted(authorize), withCode('unauthorized'))
      is(
        refused.message,
        'the request has neither a valid password nor the login of a user who may update the application',
      )
      await admitted(authorize, { authorization: `Bearer ${PASSWORD}` })
    }),
  )
  equal(events.map((event) => ('message' in event ? event.message : '')).toSorted(), [
    "the application's `authorize` failed: it did not respond within 10 s",
    "the application's `authorize` failed: the session store is away",
    "the application's `authorize` failed: the session store is away",
  ])
  await admitted(() => true)
  await rejects(
    admitted(() => null),
    withCode('unauthorized'),
  )
  await rejects(
    admitted(() => false, { authorization: 'Bearer wrong' }),
    withCode('unauthorized'),
  )
})

test('a listener of `change`: what it throws, now or later, and an agent that cannot be loaded, is a warning', async () => {
  const warnings: string[] = []
  const warn = (message: string) => void warnings.push(message)
  const leaving = new AbortController()
  const broken = makeCalls(() => Promise.reject(new Error('no file')), leaving.signal, warn)
  broken.on('change', () => {})
  let asked = 0
  const status = async () => {
    await sleep(20, undefined, { ref: false })
    return { version: asked++ } as unknown as Status
  }
  const stop = makeCalls(async () => ({ status }) as unknown as Updater, leaving.signal, warn).on('change', async () =>
    Promise.reject(new Error('of the listener')),
  )
  await until('two warnings', () => warnings.length >= 2, 5000)
  stop()
  leaving.abort()
  const said = ['a `change` listener failed: no file', 'a `change` listener failed: of the listener']
  equal([...new Set(warnings)].toSorted(), said)
})

test.long(
  'however many listen to `change`, one question is asked at a time; who leaves hears nothing more, who comes later does',
  async () => {
    const leaving = new AbortController()
    let [version, atOnce, most] = [0, 0, 0]
    const status = async () => {
      most = Math.max(most, ++atOnce)
      await sleep(10, undefined, { ref: false })
      atOnce--
      return { version: version++ } as unknown as Status
    }
    const { on } = makeCalls(
      async () => ({ status }) as unknown as Updater,
      leaving.signal,
      () => {},
    )
    const heard = [0, 0, 0]
    const count = (who: number) => () => void (heard[who] = (heard[who] ?? 0) + 1)
    const offs = [on('change', count(0)), on('change', count(1))]
    await until('three changes for both', () => Math.min(...heard.slice(0, 2)) >= 3, 5000)
    offs[0]?.()
    const [left] = heard
    for (let round = 0; round < 5; round++) {
      offs[1]?.()
      await sleep(round) // the loop is about to see that nobody listens
      offs[1] = on('change', count(2))
    }
    await until('three changes for who came later', () => (heard[2] ?? 0) >= 3, 5000)
    leaving.abort()
    is(heard[0], left)
    ok((heard[1] ?? 0) >= 3 && (heard[2] ?? 0) >= 3, heard.join())
    is(most, 1)
  },
)

test('in the code: check, update, roll back, and each change of the status', async () => {
  await using place = await apps.started('login-express')
  const url = `http://127.0.0.1:${place.port}`
  const get = async (path: string) => await (await fetch(url + path)).text()
  is(await get('/own/latest'), 'v1.1.0')
  const id = await get('/own/update')
  const updated = await place.home.settled()
  equal([updated.id, updated.outcome, await get('/healthz')], [id, 'updated', 'v1.1.0'])
  await get('/own/back')
  is((await place.home.settled()).outcome, 'rolled_back')
  const changes = (await readFile(join(place.home.stateDirectory, 'changes'), 'utf8')).trim().split('\n')
  ok(
    changes.some((line) => /^v1\.0\.0 in_flight (check|download|verify|swap|restart)$/.test(line)),
    changes.join('; '),
  )
  ok(
    changes.some((line) => line.startsWith('v1.1.0 ')),
    changes.join('; '),
  )
})

test.run()

interface BadgeOptions {
  /** what a check finds */
  latest: string
  status(): [code: number, body: object]
}

/** A page with the badge, and the endpoints that the badge asks; an update is in flight already for whoever begins one. */
async function pageWithBadge({ latest, status }: BadgeOptions): Promise<AsyncDisposable & { url: string }> {
  const script = await readFile(join(PROJECT, 'agent/web/badge.js'), 'utf8')
  const page = '<script type="module" src="/web/badge.js"></script><baton-badge></baton-badge>'
  const answers: Record<string, () => [code: number, type: string, body: string]> = {
    '/web/badge.js': () => [200, 'text/javascript', script],
    '/admin/update/status': () => {
      const [code, body] = status()
      return [code, 'application/json', JSON.stringify(body)]
    },
    '/admin/update/check': () => [200, 'application/json', JSON.stringify({ updateAvailable: true, latest })],
    '/admin/update': () => [409, 'application/problem+json', '{"code":"update_in_flight"}'],
  }
  const service = createServer((request, response) => {
    const [code, type, body] = answers[request.url ?? '']?.() ?? [200, 'text/html', page]
    response.writeHead(code, { 'content-type': type }).end(body)
  })
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(service.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      service.close()
      service.closeAllConnections()
    },
  }
}
