// The page on a scripted service: what a real one does for a moment only, or after minutes, or never should. The truth
// about a switch, silence, a dying process that still answers, reloads, languages, the keyboard, and accessibility.

import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Operation } from '../../agent/state.ts'
import * as assert from '../assert.ts'
import { suite } from '../suite.ts'
import { type Browser, comesTrue, launch, NO_BROWSER, openPage, type Page, signIn, type Watched } from './browser.ts'
import { instance, operation, report, secondsAgo, serveStub, type Stub, TOKEN } from './stub.ts'

const test = suite('panel, scripted service', { timeoutMs: 120_000, skip: NO_BROWSER })

let browser: Browser
test.before(async () => void (browser = await launch()))
test.after(async () => await browser.close())

test('an answer of the old process is not success, whatever the journal says', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'restart'
  finish(stub, running, 'updated')
  await shown(page, '#detail', 'The journal says it is finished, but the old process answers. Waiting for the new one.')
  assert.is(await page.isVisible('#outcome'), false)
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await shown(page, '#outcomeTitle', 'Updated to v1.1.0')
  assertQuiet(watched)
})

test('a new process of another version is not success either: after a while the page says so', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'restart'
  finish(stub, running, 'updated')
  stub.world.status = { ...stub.world.status, instance: instance('v0.9.0', secondsAgo(0)) }
  await advanceTo(page, '#detail', /^The journal says it is finished, but v0\.9\.0 answers\. Waiting for v1\.1\.0\.$/)
  await advanceTo(page, '#outcomeTitle', /^Not confirmed$/)
  await shown(page, '#outcomeText', 'The journal says it went well, but v0.9.0 answers where v1.1.0 was expected.')
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await advanceTo(page, '#outcomeTitle', /^Updated to v1\.1\.0$/)
  assertQuiet(watched)
})

test('a successor that says another version is not on probation: the old one still counts as serving', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'restart'
  const { instance: before } = stub.world.status
  stub.world.status = { ...stub.world.status, instance: instance('v1.0.0', secondsAgo(0)) }
  await shown(page, '#detail', 'Handing over to v1.1.0: it starts, then it has to prove itself.')
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await comesTrue(page, `document.getElementById('detail').textContent.startsWith('v1.1.0 is serving, on probation')`)
  // in the first half of a probation both answer, each on the connections that it has: no going back and forth
  stub.world.status = { ...stub.world.status, instance: before }
  await shown(page, '#running', 'v1.0.0')
  assert.match(await textOf(page, '#detail'), /^v1\.1\.0 is serving, on probation/)
  finish(stub, running, 'reverted')
  await shown(page, '#outcomeTitle', 'v1.1.0 failed, v1.0.0 is serving again')
  assertQuiet(watched)
})

test('reloaded at each stage, the operation is there at that stage', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  for (const [stage, name] of [
    ['check', 'Check'],
    ['download', 'Download'],
    ['verify', 'Verify'],
    ['swap', 'Swap'],
    ['restart', 'Restart'],
  ] as const) {
    running.stage = stage
    running.progress = stage === 'download' ? { bytes: 5, totalBytes: 10 } : null
    await page.reload()
    await page.waitForSelector('#busy:not([hidden])')
    assert.is(await page.locator('#stages [aria-current=step]').innerText(), `${name}\n(under way)`)
    assert.is(await page.locator('#progress').getAttribute('value'), stage === 'download' ? '5' : null)
  }
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await page.reload()
  await comesTrue(page, `document.getElementById('detail').textContent.startsWith('v1.1.0 is serving, on probation')`)
  finish(stub, running, 'updated')
  await page.reload()
  await shown(page, '#outcomeTitle', 'Updated to v1.1.0')
  assertQuiet(watched)
})

test('after five minutes without an answer it says so, goes on slowly, and is there at once when the service is', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  stub.world.down = true
  const since = await page.evaluate<number>('performance.now()')
  await advanceTo(page, '#silence', /^No answer for \d s\. Trying again; the operation goes on without this page\.$/)
  await advanceTo(page, '#silence', /^No answer for 4 min/)
  assert.is(await page.isVisible('#busy'), true, 'what was last known stays')
  await advanceTo(page, '#silence', /^The service does not answer since 5 min/)
  const passed = (await page.evaluate<number>('performance.now()')) - since
  assert.ok(passed >= 298_000, `five minutes, not ${passed} ms`)
  const before = stub.asked.length
  for (let i = 0; i < 60; i++) await second(page)
  stub.world.down = false
  running.stage = 'restart'
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  finish(stub, running, 'updated')
  await page.evaluate(`dispatchEvent(new Event('online'))`)
  await shown(page, '#outcomeTitle', 'Updated to v1.1.0')
  assert.ok(stub.asked.length > before)
  assert.is(await page.isVisible('#silence'), false)
  assert.equal(watched.wrong, [])
})

test('after the laptop has slept for hours the page asks at once and does not call the sleep silence', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  await page.clock.pauseAt(new Date(Date.now() + 3_600_000 * 5))
  // a poll that was on its way when the clock stood still is answered by now, and none can begin by itself
  await sleep(1000)
  finish(stub, running, 'reverted')
  await page.evaluate(`document.dispatchEvent(new Event('visibilitychange'))`)
  await shown(page, '#outcomeTitle', 'v1.1.0 failed, v1.0.0 is serving again')
  assert.is(await page.isVisible('#silence'), false)
  assertQuiet(watched)
})

test('a proxy that answers for the service while nobody is behind it is no word of the service', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  for (const answer of [
    { status: 502, body: '<html>Bad Gateway</html>', contentType: 'text/html' },
    { status: 503, body: '{"code":"service_down"}', contentType: 'application/problem+json' },
    { status: 200, body: '<html>Log in</html>', contentType: 'text/html' },
    { status: 404, body: '{"message":"no route"}', contentType: 'application/json' },
  ]) {
    await page.route('**/admin/update/status', async (route) => await route.fulfill(answer))
    await page.waitForSelector('#silence:not([hidden])')
    assert.is(await page.isVisible('#busy'), true)
    await page.unrouteAll()
    await page.waitForSelector('#silence', { state: 'hidden' })
  }
  finish(stub, running, 'failed')
  await shown(page, '#outcomeTitle', 'The update failed')
  assert.equal(watched.wrong, [])
})

test('it reloads itself once for a version whose panel is another one, and not for one whose panel is the same', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  let etag: string | null = null
  await page.route('**/web/settings.html', async (route) => {
    if (route.request().method() !== 'HEAD' || etag === null) return await route.continue()
    await route.fulfill({ status: 200, headers: { etag } })
  })
  await signIn(page, stub.url, TOKEN)
  const update = async (to: string) => {
    stub.world.report = report({ latest: to, release: null })
    await page.click('#check')
    const running = await startUpdate(page, stub)
    running.stage = 'restart'
    stub.world.status = { ...stub.world.status, instance: instance(to, secondsAgo(0)) }
    finish(stub, running, 'updated')
    await shown(page, '#outcomeTitle', `Updated to ${to}`)
  }
  await update('v1.1.0') // the same panel
  await sleep(1500)
  assert.is(watched.loads(), 1)
  etag = '"another"' // and it stays another: a page that reloads whenever it differs would never stop
  await update('v1.2.0')
  await sleep(3000)
  assert.is(watched.loads(), 2)
  await shown(page, '#outcomeTitle', 'Updated to v1.2.0')
  stub.world.status = { ...stub.world.status, instance: instance('v1.2.0', secondsAgo(0)) }
  await sleep(7000)
  assert.is(watched.loads(), 2, 'once a version')
  assertQuiet(watched)
})

test('the token changes while the page is open: it asks again and then goes on where it was', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await startUpdate(page, stub)
  await page.route('**/admin/update/status', async (route) => {
    await route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"code":"unauthorized"}' })
  })
  await shown(page, '#gateProblem', 'The token is no longer accepted. Please enter it again.')
  await page.unrouteAll()
  await page.fill('#token', TOKEN)
  await page.press('#token', 'Enter')
  await shown(page, '#busyTitle', 'Updating v1.0.0 to v1.1.0')
  assertQuiet(watched)
})

test('too many failed attempts: it says how long to wait', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.goto(`${stub.url}/web/settings.html`)
  for (let i = 0; i < 30; i++)
    await fetch(`${stub.url}/admin/update/status`, { headers: { authorization: 'Bearer no' } })
  await page.fill('#token', TOKEN)
  await page.click('#enter')
  await comesTrue(
    page,
    `/^Too many failed attempts. Try again in \\d+ s/.test(document.getElementById('gateProblem').textContent)`,
  )
  assertQuiet(watched)
})

test('no password is set: it says what to do instead of asking for one', async () => {
  await using stub = await served({ password: null })
  await using watched = await openPage(browser)
  const { page } = watched
  await page.goto(`${stub.url}/web/settings.html`)
  await page.fill('#token', 'anything')
  await page.click('#enter')
  await comesTrue(page, `document.getElementById('gateText').textContent.startsWith('No token is set')`)
  assert.is(await page.isVisible('#token'), false)
  assertQuiet(watched)
})

test('the answer to the start gets lost: nothing is claimed, the status tells', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await page.route('**/admin/update', async (route) => {
    await route.fetch()
    await route.abort()
  })
  await page.click('#update')
  await page.click('#yes')
  await shown(page, '#busyTitle', 'Updating v1.0.0 to v1.1.0')
  await shown(page, '#notice', 'The answer got lost. If the operation has started, it will show here.')
  assertQuiet(watched)
})

test('installed and running differ: it says which one takes over at the next restart', async () => {
  await using stub = await served()
  stub.world.report = report({ installed: 'v1.1.0' })
  await using watched = await openPage(browser)
  await signIn(watched.page, stub.url, TOKEN)
  await shown(
    watched.page,
    '#mismatch',
    'v1.1.0 is installed, v1.0.0 is running. The installed one takes over at the next restart.',
  )
  assertQuiet(watched)
})

test('right after a switch the last check is old: it offers nothing, and the journal tells what is installed', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  await page.route('**/admin/update/check', () => {}) // the check after it is never answered
  running.stage = 'restart'
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  finish(stub, running, 'updated')
  await shown(page, '#outcomeTitle', 'Updated to v1.1.0')
  await shown(page, '#check', 'Checking …')
  assert.is(await page.textContent('#installed'), 'v1.1.0')
  assert.is(await page.isVisible('#update'), false)
  assert.is(await page.isVisible('#mismatch'), false)
  assertQuiet(watched)
})

test('by keyboard alone: token, update, cancel, update, dismiss; the focus is never lost', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const focus = async () => await page.evaluate<string>('document.activeElement.id')
  await page.goto(`${stub.url}/web/settings.html`)
  await comesTrue(page, `document.activeElement.id === 'token'`)
  await page.keyboard.type(TOKEN)
  await page.keyboard.press('Enter')
  await page.waitForSelector('#update:visible')
  assert.is(await focus(), 'cardTitle')
  const order: string[] = []
  for (let i = 0; i < 12 && (await focus()) !== 'update'; i++) {
    await page.keyboard.press('Tab')
    order.push(await focus())
  }
  assert.equal(order, ['check', 'update'])
  await page.keyboard.press('Enter')
  assert.is(await focus(), 'yes')
  await page.keyboard.press('Escape')
  assert.is(await focus(), 'update', 'a dialog gives the focus back')
  assert.is(await page.isVisible('#busy'), false)
  await page.keyboard.press('Enter')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#busy:not([hidden])')
  assert.is(await focus(), 'busyTitle', 'the button is gone, the title of what it started has the focus')
  const running = stub.world.status.operation
  if (running === null) throw new Error('nothing was started')
  finish(stub, running, 'reverted')
  await page.waitForSelector('#outcome:not([hidden])')
  assert.is(await focus(), 'outcomeTitle')
  await page.keyboard.press('Tab')
  assert.is(await focus(), 'dismiss')
  await page.keyboard.press('Space')
  await page.waitForSelector('#outcome', { state: 'hidden' })
  assert.is(await focus(), 'cardTitle')
  assertQuiet(watched)
})

test('the live region tells each stage once, and the end; never the bytes', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await page.waitForSelector('#update:visible')
  await page.evaluate(`{
    window.said = []
    new MutationObserver(() => said.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true })
  }`)
  const running = await startUpdate(page, stub)
  running.stage = 'download'
  for (let bytes = 1; bytes < 4; bytes++) {
    running.progress = { bytes: bytes * 1e6, totalBytes: 30e6 }
    await sleep(1100)
  }
  running.progress = null
  running.stage = 'restart'
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await sleep(3200)
  finish(stub, running, 'updated')
  await page.waitForSelector('#outcome:not([hidden])')
  assert.equal(await page.evaluate('said'), [
    'Updating v1.0.0 to v1.1.0: Check',
    'Updating v1.0.0 to v1.1.0: Download',
    'Updating v1.0.0 to v1.1.0: v1.1.0 is serving, on probation',
    'Updated to v1.1.0',
  ])
  assertQuiet(watched)
})

test('the browser chooses the language, the button changes it, and the choice is kept', async () => {
  await using stub = await served()
  await using watched = await openPage(browser, { locale: 'zh-CN' })
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#cardTitle', '版本更新')
  assert.is(await page.getAttribute('html', 'lang'), 'zh-CN')
  await page.click('#language')
  await shown(page, '#cardTitle', 'Version update')
  assert.is(await page.getAttribute('html', 'lang'), 'en')
  await page.reload()
  await shown(page, '#cardTitle', 'Version update')
  assertQuiet(watched)
})

test('a history of fifty: four of them, then all; the reasons are there', async () => {
  await using stub = await served()
  stub.world.status.history = Array.from({ length: 50 }, (_, i) =>
    operation('update', {
      outcome: 'failed',
      startedAt: secondsAgo(i * 7000 + 60),
      finishedAt: secondsAgo(i * 7000),
      error: { code: 'download_failed', message: `reason ${i}` },
    }),
  )
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  assert.is(await page.locator('#history li').count(), 4)
  assert.match(
    await textOf(page, '#history li:first-child'),
    /Update failed.*v1\.0\.0 → v1\.1\.0.*The download failed: reason 0 · took 1 min/,
  )
  await page.click('#more')
  assert.is(await page.locator('#history li').count(), 50)
  assert.is(await page.evaluate('document.activeElement.id'), 'pastTitle')
  assertQuiet(watched)
})

test('axe finds nothing in any state, in light and dark, on a phone and in Chinese', async () => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
  for (const look of [
    { colorScheme: 'light' },
    { colorScheme: 'dark', locale: 'zh-CN' },
    { colorScheme: 'dark', viewport: { width: 360, height: 740 } },
  ] as const) {
    await using stub = await served()
    await using watched = await openPage(browser, look)
    const { page } = watched
    const clean = async (state: string) => {
      const found = await page.evaluate<{
        violations: { id: string; nodes: { html: string; failureSummary: string }[] }[]
      }>(
        `${axe}; axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })`,
      )
      const lines = found.violations.flatMap(({ id, nodes }) =>
        nodes.map((node) => `${id}: ${node.html}\n${node.failureSummary}`),
      )
      assert.equal(lines, [], `${state}, ${JSON.stringify(look)}`)
      assert.is(
        await page.evaluate('document.documentElement.scrollWidth <= innerWidth'),
        true,
        `${state}: nothing is cut off`,
      )
    }
    await page.goto(`${stub.url}/web/settings.html`)
    await clean('token')
    await page.fill('#token', 'wrong')
    await page.click('#enter')
    await page.waitForSelector('#gateProblem:not(:empty)')
    await clean('wrong token')
    stub.world.status.backup = 'v0.9.0'
    stub.world.status.history = ['updated', 'reverted', 'failed', 'up_to_date', 'rolled_back'].map((outcome) =>
      operation('update', { outcome: outcome as Operation['outcome'], finishedAt: secondsAgo(0) }),
    )
    await page.fill('#token', TOKEN)
    await page.click('#enter')
    await page.waitForSelector('#update:visible')
    await page.click('#notesTitle')
    await page.click('#other summary')
    await page.fill('#tag', 'x')
    await page.press('#tag', 'Enter')
    await clean('offer')
    await page.fill('#tag', '')
    await page.click('#update')
    await clean('dialog')
    await page.click('#yes')
    await page.waitForSelector('#busy:not([hidden])')
    const running = stub.world.status.operation
    if (running === null) throw new Error('nothing was started')
    running.stage = 'download'
    running.progress = { bytes: 1e6, totalBytes: 3e7 }
    await page.waitForSelector('#progress[value]')
    await clean('download')
    stub.world.down = true
    await page.waitForSelector('#silence:not([hidden])')
    await clean('silence')
    stub.world.down = false
    running.stage = 'restart'
    finish(stub, running, 'reverted')
    await page.waitForSelector('#outcome:not([hidden])')
    await clean('reverted')
    stub.world.report = report({
      latest: null,
      updateAvailable: false,
      release: null,
      problem: { code: 'check_failed', message: 'connect ECONNREFUSED' },
    })
    await page.click('#check')
    await page.waitForSelector('#problem:not([hidden])')
    await clean('feed down')
    stub.world.unmanaged = { detail: 'there is no receipt', reason: 'no_receipt', route: 'run `install.sh`' }
    await page.waitForSelector('#unmanaged:not([hidden])')
    await clean('unmanaged')
  }
})

test.run()

async function served(options: Parameters<typeof serveStub>[0] = {}): Promise<Stub & AsyncDisposable> {
  const stub = await serveStub(options)
  return { ...stub, [Symbol.asyncDispose]: stub.close }
}

/** Clicks the update through, and gives the operation of the scripted service, to be moved on. */
async function startUpdate(page: Page, stub: Stub): Promise<Operation> {
  await page.click('#update')
  await page.click('#yes')
  await page.waitForSelector('#busy:not([hidden])')
  const { operation: running } = stub.world.status
  if (running === null) throw new Error('nothing was started')
  return running
}

function finish(stub: Stub, running: Operation, outcome: Operation['outcome']): void {
  const error = outcome === 'reverted' ? ({ code: 'probation_failed', message: 'it died' } as const) : null
  Object.assign(running, { outcome, finishedAt: secondsAgo(0), error })
  stub.world.status = { ...stub.world.status, state: 'idle', history: [running, ...stub.world.status.history] }
  if (outcome === 'updated')
    stub.world.report = report({
      installed: running.to,
      running: running.to ?? '',
      latest: running.to,
      updateAvailable: false,
    })
}

/** Lets the page's clock run until it says so, with the time that the network really needs in each of its seconds. */
async function advanceTo(page: Page, selector: string, text: RegExp): Promise<void> {
  for (let passed = 0; passed < 900; passed++) {
    const element = page.locator(selector)
    if ((await element.isVisible()) && text.test((await element.textContent()) ?? '')) return
    await second(page)
  }
  throw new Error(`expected ${String(text)} in ${selector}; the page says:\n${await page.innerText('main')}`)
}

async function second(page: Page): Promise<void> {
  await page.clock.runFor(1000)
  await sleep(8)
}

async function shown(page: Page, selector: string, text: string): Promise<void> {
  try {
    await comesTrue(
      page,
      `[...document.querySelectorAll('${selector}')].some((e) => e.checkVisibility() && e.textContent === ${JSON.stringify(text)})`,
    )
  } catch (cause) {
    throw new Error(`expected \`${text}\` in ${selector}; the page says:\n${await page.innerText('main')}`, { cause })
  }
}

async function textOf(page: Page, selector: string): Promise<string> {
  return (await page.textContent(selector)) ?? ''
}

function assertQuiet({ wrong, failedPolls }: Watched): void {
  assert.equal(failedPolls, [], 'no poll fails')
  assert.equal(wrong, [], 'nothing is logged as an error, and no policy is violated')
}
