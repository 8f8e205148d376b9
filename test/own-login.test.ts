// An application with a login and pages of its own: its session may update, its page shows the badge, its code calls what the endpoints do.

import { readFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { makeAdmit } from '../agent/http/admit.ts'
import { makeGuard } from '../agent/http/auth.ts'
import type { LogEvent } from '../agent/index.ts'
import { equal, is, match, ok, rejects, withCode } from './assert.ts'
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
  test(`${app}: the badge is for who is logged in, and takes the page over the switch; the panel asks for no password`, async () => {
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
  })
}

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
      match(text, /expected a page of this service to ask, got /)
    }
  }
  is((await asked('GET', '/status', { 'sec-fetch-site': 'cross-site' }))[0], 401)
  for (const headers of [{}, { 'sec-fetch-site': 'none' }, { 'sec-fetch-site': 'same-origin' }] as Record<
    string,
    string
  >[])
    is((await asked('GET', '/status', headers))[0], 200)
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
      await rejects(admitted(authorize), withCode('unauthorized'))
      await admitted(authorize, { authorization: `Bearer ${PASSWORD}` })
    }),
  )
  equal(events.map((event) => ('message' in event ? event.message : '')).toSorted(), [
    "the author's authorize: it did not answer within 10 s",
    "the author's authorize: the session store is away",
    "the author's authorize: the session store is away",
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
