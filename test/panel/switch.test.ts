// @deadlineMs 900000
// The panel on a real service with real releases, in a real browser: what operators click, and what they are told while
// one process takes over from another. In each test no poll may fail, nothing may be logged as an error, no policy violated.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Status } from '../../agent/words/state.ts'
import * as assert from '../assert.ts'
import { scriptRelease, type TestRelease } from '../fixtures/releases.ts'
import { isLong, suite } from '../suite.ts'
import {
  type Browser,
  comesTrue,
  launch,
  NO_BROWSER,
  openPage,
  openTab,
  type Page,
  signIn,
  type Watched,
} from './browser.ts'
import { installService, type Service, TOKEN } from './service.ts'

const test = suite('panel, real service', { timeoutMs: 240_000, skip: NO_BROWSER })
const SETTLE_MS = 60_000
/** of what comes in */
const IDLE_MINUTE_MAX_BYTES = 4000

let browser: Browser
let v100: TestRelease
let v110: TestRelease
let outage: Promise<void>

test.before(async () => {
  browser = await launch()
  v100 = await scriptRelease('v1.0.0')
  v110 = await scriptRelease('v1.1.0')
  outage = isLong ? serviceIsDown() : Promise.resolve()
  outage.catch(() => {}) // told by its test
})
test.after(async () => await browser.close())

test('update and rollback, clicked through: each is believed only when the new instance has answered', async () => {
  // long enough for a page that gets little of the processor to have looked in the middle
  await using service = await installService({ releases: [v100, v110], update: { probation: '5s' } })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await shown(page, '#latest', 'v1.1.0')
  assert.is(await page.textContent('#running'), 'v1.0.0')
  assert.is(await page.textContent('#installed'), 'v1.0.0')
  assert.is(await page.isVisible('#backup'), false, 'there is no backup yet, so there is no rollback')

  service.feed.throttle(40_000)
  const first = await service.status()
  const seen = await recordTexts(page)
  await click(page, '#update')
  const mid = await settled(page, service, 'Updated to v1.1.0')
  service.feed.throttle(undefined)
  const texts = await seen()
  assert.ok(
    texts.some((text) => /^\d+\.\d of \d+\.\d kB .*\d kB\/s .* left$/.test(text)),
    'bytes, speed and time left',
  )
  assert.ok(texts.includes('v1.1.0 is serving, on probation'), texts.join('\n'))
  assert.is.not(mid.instance.id, first.instance.id)
  await shown(page, '#running', 'v1.1.0')
  await shown(page, '#runningName', 'Running, installed and latest')
  assert.is(await page.isVisible('#update'), false)

  await click(page, '#rollback')
  const last = await settled(page, service, 'Rolled back to v1.0.0')
  assert.is(last.instance.version, 'v1.0.0')
  assert.is.not(last.instance.id, mid.instance.id)
  // what is offered is what is kept: once, and without a download
  await shown(page, '#update', 'Return to the newer version v1.1.0')
  assert.is(await page.isVisible('#backup'), false)
  const before = service.feed.requests.length
  await click(page, '#update')
  await settled(page, service, 'Returned to v1.1.0')
  assert.equal(
    service.feed.requests.slice(before).filter(({ path }) => /beacon-/.test(path)),
    [],
  )
  assert.equal(await page.locator('#history b').allTextContents(), ['Rollback undone', 'Rolled back', 'Updated'])
  assert.equal(watched.abortedPolls, [])
  assertQuiet(watched)
})

test.long('a release that dies in probation: the page says that the old version is back, and why', async () => {
  const bad = await scriptRelease('v1.2.0', 'dies-after-1s')
  await using service = await installService({ releases: [v100, bad] })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await click(page, '#update')
  const status = await settled(page, service, 'v1.2.0 failed; v1.0.0 is serving again')
  assert.is(status.operation?.outcome, 'reverted')
  assert.match((await page.textContent('#outcomeReason')) ?? '', /^v1\.2\.0 failed during probation/)
  await shown(page, '#running', 'v1.0.0')
  await shown(page, '#installed', 'v1.0.0')
  await page.waitForSelector('#update', { state: 'hidden' }) // the bad one is not offered again
  await shown(page, '#latest', 'v1.2.0')
  assert.is(await page.isVisible('#failedText'), false, 'the outcome says it')
  await page.click('#dismiss')
  await page.waitForSelector('#failedText:visible')
  assert.match((await page.textContent('#failedText')) ?? '', /^v1\.2\.0 is newer, but failed on this host/)
  assert.not.match(await page.innerText('#actions'), /newest release|up to date/)
  await page.click('#again')
  assert.match(
    (await page.textContent('#confirmPoints')) ?? '',
    /^It failed on this host .*: v1\.2\.0 failed during probation/,
  )
  await page.click('#no')
  assert.is(await page.locator('#history b').first().textContent(), 'Update reverted')
  assertQuiet(watched)
})

test.long('a release that never gets ready: reverted while the old instance goes on', async () => {
  const bad = await scriptRelease('v1.2.0', 'exits-at-once')
  await using service = await installService({ releases: [v100, bad] })
  await using watched = await openPage(browser)
  const { page } = watched
  const before = await service.status()
  await signIn(page, service.url, TOKEN)
  await click(page, '#update')
  const status = await settled(page, service, 'v1.2.0 failed; v1.0.0 is serving again')
  assert.is(status.instance.id, before.instance.id)
  assertQuiet(watched)
})

test('two tabs: the second one shows what the first has started; starting again there is refused, and says so', async () => {
  await using service = await installService({ releases: [v100, v110] })
  await using first = await openPage(browser)
  await signIn(first.page, service.url, TOKEN)
  const second = await openTab(first.context)
  await second.page.goto(`${service.url}/web/settings.html`)
  await second.page.waitForSelector('#gate:not([hidden]), #card:not([hidden])')
  assert.is(await second.page.isVisible('#gate'), true, 'the token of one tab is not there in another')
  await signIn(second.page, service.url, TOKEN)
  await second.page.click('#update') // the dialog stands open while the other tab starts
  service.feed.throttle(10_000) // until both have seen it, however slow this machine is
  await click(first.page, '#update')
  await first.page.waitForSelector('#busy:not([hidden])')
  await second.page.click('#yes')
  await shown(second.page, '#notice', 'Someone else started the operation shown here.')
  await shown(second.page, '#busyTitle', 'Updating v1.0.0 to v1.1.0')
  service.feed.throttle(undefined)
  await Promise.all([first, second].map(({ page }) => settled(page, service, 'Updated to v1.1.0')))
  for (const watched of [first, second]) assertQuiet(watched)
})

test.long(
  'reloaded over and over through an update: the running operation is there each time, and so is its end',
  async () => {
    await using service = await installService({ releases: [v100, v110], update: { probation: '8s' } })
    await using watched = await openPage(browser)
    const { page } = watched
    await signIn(page, service.url, TOKEN)
    service.feed.throttle(10_000) // until it was seen
    await click(page, '#update')
    await page.waitForSelector('#busy:not([hidden])')
    const stages = new Set<string>()
    for (let before = await service.status(); before.state === 'in_flight'; before = await service.status()) {
      await page.reload()
      await page.waitForSelector('#card:not([hidden])') // without the token being asked for
      if (await page.isVisible('#busy')) {
        assert.is(await page.textContent('#busyTitle'), 'Updating v1.0.0 to v1.1.0')
        stages.add((await page.locator('#stages li.now').innerText()).split('\n')[0] ?? '')
        if (stages.has('Download')) service.feed.throttle(undefined)
      } else {
        const after = await service.status()
        assert.is(after.state, 'idle', `idle is shown, the service says ${after.state}`)
      }
    }
    await settled(page, service, 'Updated to v1.1.0')
    assert.ok(stages.has('Download') && stages.has('Switch'), [...stages].join())
    assertQuiet(watched)
  },
)

test.long(
  'a page that is opened during the probation joins in, and does not wait for an instance that is long there',
  async () => {
    await using service = await installService({ releases: [v100, v110], update: { probation: '12s' } })
    await service.ask('POST', '', { tag: 'v1.1.0' })
    await until(async () => (await service.status()).instance.version === 'v1.1.0')
    await using watched = await openPage(browser)
    const { page } = watched
    await signIn(page, service.url, TOKEN)
    await page.waitForSelector('#busy:not([hidden])')
    assert.match((await page.textContent('#detail')) ?? '', /^v1\.1\.0 is serving, on probation: \d+ of 12 s\.$/)
    assert.match((await page.textContent('#serving')) ?? '', /v1\.0\.0 is standing by to take over again\.$/)
    assert.ok(Number(await page.getAttribute('#progress', 'max')) > 5000, 'the bar knows how long it takes')
    await settled(page, service, 'Updated to v1.1.0')
    assertQuiet(watched)
  },
)

test.long(
  'the service is down for 60 s in the middle: the page waits, goes on by itself and tells how it ended',
  () => outage,
)

test('a wrong token is refused, the right one is kept for this tab and is in no URL', async () => {
  await using service = await installService({ releases: [v100] })
  await using watched = await openPage(browser)
  const { page } = watched
  const urls: string[] = []
  page.on('request', (request) => urls.push(request.url()))
  await page.goto(`${service.url}/web/settings.html`)
  for (const wrong of ['wrong', 'ünïcode', `${TOKEN}x`]) {
    await page.fill('#token', wrong)
    await page.press('#token', 'Enter')
    await shown(page, '#gateProblem', 'Wrong password.')
    await comesTrue(page, `document.activeElement.id === 'token'`)
    assert.is(await page.getAttribute('#token', 'aria-invalid'), 'true')
  }
  await page.fill('#token', TOKEN)
  await page.press('#token', 'Enter')
  await page.waitForSelector('#card:not([hidden])')
  await page.reload()
  await page.waitForSelector('#card:not([hidden])')
  await page.click('#leave')
  await page.waitForSelector('#gate:not([hidden])')
  await page.reload()
  await page.waitForSelector('#gate:not([hidden])')
  assert.equal(
    urls.filter((url) => url.includes('?') || url.includes(TOKEN)),
    [],
  )
  assert.not.match(service.output(), new RegExp(TOKEN))
  assertQuiet(watched)
})

test('an unmanaged install: the reason and the route, and not one dead button', async () => {
  await using service = await installService({ releases: [v100], managed: false })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await page.waitForSelector('#unmanaged:not([hidden])')
  assert.match((await page.textContent('#unmanagedLead')) ?? '', /installed by hand|runs in a container/)
  assert.match(
    (await page.textContent('#unmanagedRoute')) ?? '',
    /download the new release asset|recreate the container/i,
  )
  // where there is a command to take instead, it can be copied
  assert.is(await page.locator('main button:visible:not(#copy)').count(), 0)
  assertQuiet(watched)
})

test('the feed is down: versions are shown all the same, with the reason; later it is there', async () => {
  await using service = await installService({ releases: [v100, v110] })
  service.feed.faults.status = 503
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await shown(page, '#latestNote', 'unknown')
  assert.is(await page.textContent('#running'), 'v1.0.0')
  assert.is(await page.textContent('#installed'), 'v1.0.0')
  assert.match((await page.textContent('#problem')) ?? '', /^The feed could not be read: .*503/)
  delete service.feed.faults.status
  await page.click('#check')
  await shown(page, '#latest', 'v1.1.0')
  assert.is(await page.isVisible('#problem'), false)
  assertQuiet(watched)
})

test('a tag that does not exist is an error of the field, not a failed update; a tag that is none is not sent', async () => {
  await using service = await installService({ releases: [v100] })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await page.click('#other summary')
  await page.fill('#tag', '1.2')
  await page.press('#tag', 'Enter')
  await shown(page, '#tagProblem', 'Enter a tag of the form v1.2.3.')
  await page.fill('#tag', 'v9.9.9')
  await page.press('#tag', 'Enter')
  await page.click('#yes')
  await shown(page, '#tagProblem', 'The feed has no release v9.9.9.')
  assert.is(await page.inputValue('#tag'), 'v9.9.9')
  await comesTrue(page, `document.activeElement.id === 'tag'`)
  assert.is(await page.isVisible('#outcome'), false)
  assert.is((await service.status()).history.length, 0, 'nobody else sees it')
  await page.reload()
  await page.waitForSelector('#card:not([hidden])')
  assert.is(await page.isVisible('#outcome'), false)
  assertQuiet(watched)
})

test('release notes full of markup and script are text; nothing runs and the policy has nothing to report', async () => {
  const notes = `<script>batonTold('ran')</script><img src=x onerror="batonTold('ran')"><b>bold</b> [x](javascript:batonTold('ran'))
<iframe srcdoc="<script>parent.batonTold('ran')</script>"></iframe><style>body{display:none}</style><a href="javascript:batonTold(1)">click</a>
</div></details>{{constructor.constructor('batonTold(1)')()}} \`\${batonTold(1)}\` <svg onload=batonTold(1)> \u202egnp.exe &lt;b&gt;`
  await using service = await installService({ releases: [v100, v110], notes })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await page.click('#notesTitle')
  await comesTrue(page, `notesText.textContent !== ''`)
  const text = (await page.textContent('#notesText')) ?? ''
  for (const part of ['<script>batonTold', '<img src=x onerror=', '</details>{{constructor', 'svg onload', '<b>']) {
    assert.ok(text.includes(part), part)
  }
  const names = await page.evaluate<string[]>(`[...notesText.querySelectorAll('*')].map((e) => e.localName)`)
  assert.equal(
    names.filter((name) => !['section', 'div', 'span', 'h3', 'p', 'code', 'a'].includes(name)),
    [],
  )
  // the only link is that to the page of the release
  const links = await page.evaluate<string[]>(`[...notesText.querySelectorAll('a')].map((e) => e.protocol)`)
  assert.equal(
    links.filter((protocol) => !['http:', 'https:'].includes(protocol)),
    [],
  )
  await sleep(500)
  assertQuiet(watched)
})

test.long('an idle page costs little, and nothing while nobody sees it', async () => {
  await using service = await installService({ releases: [v100, v110] })
  await using watched = await openPage(browser)
  const { page } = watched
  await page.clock.install()
  await signIn(page, service.url, TOKEN)
  await shown(page, '#latest', 'v1.1.0')
  const client = await page.context().newCDPSession(page)
  await client.send('Network.enable')
  const answers: number[] = []
  client.on('Network.loadingFinished', ({ encodedDataLength }) => void answers.push(encodedDataLength)) // with its headers
  const minute = async (): Promise<number> => {
    answers.length = 0
    for (let passed = 0; passed < 60; passed++) {
      await page.clock.runFor(1000)
      await sleep(20)
    }
    return answers.reduce((sum, bytes) => sum + bytes, 0)
  }
  await minute() // whatever follows upon the sign-in
  const seen = await minute()
  process.stdout.write(`    | an idle minute: ${answers.length} answers, ${seen} bytes with their headers\n`)
  assert.ok(answers.length >= 10 && answers.length <= 13, `${answers.length}`)
  assert.ok(seen <= IDLE_MINUTE_MAX_BYTES, `${seen}`)
  await page.evaluate(`Object.defineProperty(document, 'visibilityState', { value: 'hidden' })
    document.dispatchEvent(new Event('visibilitychange'))`)
  assert.is(await minute(), 0)
  assertQuiet(watched)
})

test.long('below a base path the page asks below it too', async () => {
  await using service = await installService({ releases: [v100, v110], basePath: '/box/beacon' })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  await click(page, '#update')
  await settled(page, service, 'Updated to v1.1.0')
  assertQuiet(watched)
})

test.run()

/** A test of mostly waiting: it goes on beside the others. */
async function serviceIsDown(): Promise<void> {
  await using service = await installService({ releases: [v100, v110] })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, service.url, TOKEN)
  service.feed.throttle(30_000)
  await click(page, '#update')
  await until(async () => (await service.status()).operation?.stage === 'download')
  await service.kill()
  await page.waitForSelector('#silence:not([hidden])')
  assert.match(
    (await page.textContent('#silence')) ?? '',
    /^No response for \d+ s\. Trying again; the operation continues/,
  )
  await sleep(60_000)
  assert.match((await page.textContent('#silence')) ?? '', /^No response for (5\d s|1 min)/)
  assert.is(await page.isVisible('#outcome'), false, 'nothing is claimed while nobody answers')
  service.feed.throttle(undefined)
  await service.start()
  await shown(page, '#outcomeTitle', 'The update failed')
  assert.match((await page.textContent('#outcomeReason')) ?? '', /^The operation was interrupted/)
  assert.is(await page.isVisible('#silence'), false)
  await click(page, '#update')
  await settled(page, service, 'Updated to v1.1.0')
  assert.equal(watched.wrong, [])
}

async function click(page: Page, button: string): Promise<void> {
  await page.click(button)
  await page.click('#yes')
}

async function shown(page: Page, selector: string, text: string): Promise<void> {
  const found = page.locator(selector).filter({ visible: true, hasText: new RegExp(`^\\s*${escaped(text)}\\s*$`) })
  try {
    await found.waitFor({ timeout: SETTLE_MS })
  } catch (cause) {
    const body = await page.innerText('main')
    throw new Error(`expected \`${text}\` in ${selector}; the page says:\n${body}`, { cause })
  }
}

/** Waits for the outcome, and holds it against what the service itself says. */
async function settled(page: Page, service: Service, title: string): Promise<Status> {
  await shown(page, '#outcomeTitle', title)
  const status = await service.status()
  assert.is(status.state, 'idle')
  const { operation, instance } = status
  if (operation?.outcome === 'updated' || operation?.outcome === 'rolled_back')
    assert.is(instance.version, operation.to)
  return status
}

/** Everything that stood in `#detail` and `#live`. */
async function recordTexts(page: Page): Promise<() => Promise<string[]>> {
  await page.evaluate(`{
    window.texts = new Set()
    for (const id of ['detail', 'live']) {
      const element = document.getElementById(id)
      new MutationObserver(() => texts.add(element.textContent.replace(/^.*?: /, ''))).observe(element, { childList: true, characterData: true, subtree: true })
    }
  }`)
  return async () => await page.evaluate<string[]>('[...texts]')
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + SETTLE_MS
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`it never came true: ${holds.toString()}`)
    await sleep(50)
  }
}

function assertQuiet({ wrong, failedPolls }: Watched): void {
  assert.equal(failedPolls, [], 'no poll fails')
  assert.equal(wrong, [], 'nothing is logged as an error, and no policy is violated')
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
