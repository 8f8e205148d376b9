// The page on a scripted service: what a real one does for a moment only, or after minutes, or never should. The truth
// about a switch, silence, a dying process that still answers, sleep, reloads, and what is asked while nothing happens.

import { setTimeout as sleep } from 'node:timers/promises'
import * as assert from '../assert.ts'
import { suite } from '../suite.ts'
import { type Browser, comesTrue, launch, NO_BROWSER, openPage, signIn } from './browser.ts'
import { advanceTo, assertQuiet, finish, second, served, shown, startUpdate, textOf } from './scripted.ts'
import { instance, operation, report, secondsAgo, TOKEN } from './stub.ts'

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
  await shown(
    page,
    '#detail',
    'The update is recorded as finished, but the old process is still responding. Waiting for the new one.',
  )
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
  await advanceTo(
    page,
    '#detail',
    /^The update is recorded as finished, but v0\.9\.0 is responding\. Waiting for v1\.1\.0\.$/,
  )
  await advanceTo(page, '#outcomeTitle', /^Outcome not confirmed$/)
  await shown(page, '#outcomeText', 'The update log reports success, but v0.9.0 is running instead of v1.1.0.')
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
  await shown(page, '#detail', 'Handing over to v1.1.0: it will start, then enter probation.')
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await comesTrue(page, `document.getElementById('detail').textContent.startsWith('v1.1.0 is serving, on probation')`)
  // in the first half of a probation both answer, each on the connections that it has: no going back and forth
  stub.world.status = { ...stub.world.status, instance: before }
  await shown(page, '#running', 'v1.0.0')
  assert.match(await textOf(page, '#detail'), /^v1\.1\.0 is serving, on probation/)
  finish(stub, running, 'reverted')
  await shown(page, '#outcomeTitle', 'v1.1.0 failed; v1.0.0 is serving again')
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
    ['swap', 'Install'],
    ['restart', 'Switch'],
  ] as const) {
    running.stage = stage
    running.progress = stage === 'download' ? { bytes: 5, totalBytes: 10 } : null
    await page.reload()
    await page.waitForSelector('#busy:not([hidden])')
    assert.is(await page.locator('#stages [aria-current=step]').innerText(), `${name}\n(in progress)`)
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

test.long(
  'after five minutes without an answer it says so, goes on slowly, and is there at once when the service is',
  async () => {
    await using stub = await served()
    await using watched = await openPage(browser)
    const { page } = watched
    await page.clock.install()
    await signIn(page, stub.url, TOKEN)
    const running = await startUpdate(page, stub)
    stub.world.down = true
    const since = await page.evaluate<number>('performance.now()')
    await advanceTo(
      page,
      '#silence',
      /^No response for \d s\. Trying again; the operation continues without this page\.$/,
    )
    await advanceTo(page, '#silence', /^No response for 4 min/)
    assert.is(await page.isVisible('#busy'), true, 'what was last known stays')
    await advanceTo(page, '#silence', /^The service has not responded for 5 min/)
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
  },
)

test.long(
  'after the laptop has slept for hours the page asks at once and does not call the sleep silence',
  async () => {
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
    await shown(page, '#outcomeTitle', 'v1.1.0 failed; v1.0.0 is serving again')
    assert.is(await page.isVisible('#silence'), false)
    assertQuiet(watched)
  },
)

test.long('a proxy that answers for the service while nobody is behind it is no word of the service', async () => {
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

test.long(
  'it reloads itself once for a version whose panel is another one, and not for one whose panel is the same',
  async () => {
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
    while (watched.loads() < 2) await sleep(20)
    await shown(page, '#outcomeTitle', 'Updated to v1.2.0')
    stub.world.status = { ...stub.world.status, instance: instance('v1.2.0', secondsAgo(0)) }
    await sleep(7000)
    assert.is(watched.loads(), 2, 'once a version')
    assertQuiet(watched)
  },
)

test('the token changes while the page is open: it asks again and then goes on where it was', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await startUpdate(page, stub)
  await page.route('**/admin/update/status', async (route) => {
    await route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"code":"unauthorized"}' })
  })
  await shown(page, '#gateProblem', 'The password is no longer accepted. Enter the current one.')
  await page.unrouteAll()
  await page.fill('#token', TOKEN)
  await page.press('#token', 'Enter')
  await shown(page, '#busyTitle', 'Updating v1.0.0 to v1.1.0')
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
  await shown(page, '#notice', 'The service’s response was lost. If the operation has started, it will appear here.')
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
  assert.not.match(await page.innerText('main'), /newest release|up to date/)
  assertQuiet(watched)
})

test('after a rollback nothing is up to date until the feed was asked again, and a question that gets lost is asked again', async () => {
  await using stub = await served()
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0'), backup: 'v1.0.0' }
  stub.world.report = report({ installed: 'v1.1.0', running: 'v1.1.0', updateAvailable: false })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#offerNote', 'Checked just now.')
  await page.click('#rollback')
  await page.click('#yes')
  await page.waitForSelector('#busy:not([hidden])')
  const running = stub.world.status.operation
  if (running === null) throw new Error('nothing was started')
  let lost = 0
  await page.route('**/admin/update/check', async (route) => {
    lost += 1
    await route.abort()
  })
  running.stage = 'restart'
  stub.world.status = { ...stub.world.status, instance: instance('v1.0.0', secondsAgo(0)), backup: 'v1.1.0' }
  finish(stub, running, 'rolled_back')
  stub.world.report = report()
  await shown(page, '#outcomeTitle', 'Rolled back to v1.0.0')
  await comesTrue(page, `installed.textContent === 'v1.0.0'`)
  while (lost < 1) await sleep(20)
  assert.not.match(await page.innerText('main'), /newest release|up to date/)
  await page.unrouteAll()
  await shown(page, '#update', 'Return to the newer version v1.1.0')
  assertQuiet(watched)
})

test('while the feed is asked again the page does not say that it was not reached', async () => {
  await using stub = await served()
  const problem = { code: 'check_failed', message: 'connect ECONNREFUSED' } as const
  stub.world.report = report({ latest: null, updateAvailable: false, release: null, problem })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#latestNote', 'unknown')
  await shown(page, '#problem', 'The feed could not be read: connect ECONNREFUSED')
  await page.route('**/admin/update/check', () => {})
  await page.click('#check')
  await shown(page, '#check', 'Checking …')
  assert.is(await page.textContent('#latestNote'), '')
  assert.is(await page.isVisible('#problem'), false)
  assertQuiet(watched)
})

test('nobody looks: nothing is asked; somebody looks again: it is there at once', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  await signIn(page, stub.url, TOKEN)
  const look = async (visibility: string) => {
    await page.evaluate(
      `Object.defineProperty(document, 'visibilityState', { value: '${visibility}', configurable: true })`,
    )
    await page.evaluate(`document.dispatchEvent(new Event('visibilitychange'))`)
  }
  const running = await startUpdate(page, stub)
  await look('hidden')
  const before = stub.asked.length
  for (let i = 0; i < 120; i++) await second(page)
  assert.ok(stub.asked.length <= before + 1, 'one may have been on its way')
  finish(stub, running, 'reverted')
  await look('visible')
  await shown(page, '#outcomeTitle', 'v1.1.0 failed; v1.0.0 is serving again')
  assert.is(await page.isVisible('#silence'), false, 'not looking is not silence')
  assertQuiet(watched)
})

test('an idle page is told nothing twice: the answers after the first have no body', async () => {
  await using stub = await served()
  stub.world.status.history = Array.from({ length: 50 }, () =>
    operation('update', { outcome: 'updated', finishedAt: secondsAgo(0) }),
  )
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  const answers: number[] = []
  page.on('response', (response) => response.url().endsWith('/status') && answers.push(response.status()))
  await signIn(page, stub.url, TOKEN)
  for (let i = 0; i < 40 && answers.length < 6; i++) await second(page)
  // the first question is asked without a token, since there may be none
  assert.equal(answers.slice(0, 6), [401, 200, 304, 304, 304, 304])
  await startUpdate(page, stub)
  await comesTrue(page, `busy.checkVisibility()`)
  assertQuiet(watched)
})

test.run()
