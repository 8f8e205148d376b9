// What the page shows and what can be done with it, on a scripted service: the token, the offer, the way back, cancelling,
// release notes, the history, languages, the keyboard alone, the live region.

import { setTimeout as sleep } from 'node:timers/promises'
import * as assert from '../assert.ts'
import { suite } from '../suite.ts'
import { type Browser, comesTrue, launch, NO_BROWSER, openPage, signIn } from './browser.ts'
import { assertQuiet, finish, served, shown, startUpdate, textOf } from './scripted.ts'
import { LONG_REASON, MARKDOWN, schedule, STATES } from './states.ts'
import { irreversibleFault } from '../../agent/words/rehearsal.ts'
import { formatLeft } from '../../agent/words/state.ts'
import { instance, NO_WAY_BACK, operation, rehearsed, report, secondsAgo, TOKEN } from './stub.ts'

const test = suite('panel, the card', { timeoutMs: 120_000, skip: NO_BROWSER })

let browser: Browser
test.before(async () => void (browser = await launch()))
test.after(async () => await browser.close())

test('too many failed attempts: it says how long to wait', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await page.goto(`${stub.url}/web/settings.html`)
  for (let i = 0; i < 30; i++)
    await fetch(`${stub.url}/admin/update/status`, { headers: { authorization: 'Bearer no' } })
  await page.fill('#token', 'a wrong one') // the right one is never slowed down
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
  await comesTrue(page, `document.getElementById('gateText').textContent.startsWith('No password is set')`)
  assert.is(await page.isVisible('#token'), false)
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
    'v1.1.0 is installed, but v1.0.0 is running. The installed one takes over at the next restart.',
  )
  assertQuiet(watched)
})

test('whether releases are signed, until when, and what is wrong with it', async () => {
  const signed = { role: 'timestamp' as const, version: 7, expiresAt: '2098-11-22T12:00:00Z' }
  for (const [trust, text, where] of [
    [{ signed: false, metadata: [] }, 'Not signed: releases are checked only against their checksums.', '#signed'],
    [
      { signed: true, metadata: [signed], warning: { code: 'expiring', message: 'timestamp.json expires soon' } },
      'The feed’s signatures expire on Nov 22, 2098.',
      '#trust',
    ],
    [
      { signed: true, metadata: [], warning: { code: 'unusable', message: 'ftp: is not a feed address' } },
      'The feed cannot be opened: ftp: is not a feed address.',
      '#trust',
    ],
    [{ signed: true, metadata: [] }, 'Signed releases only.', '#signed'],
  ] as const) {
    await using stub = await served()
    stub.world.report = report({ trust: { yanked: [], warning: null, ...trust, metadata: [...trust.metadata] } })
    await using watched = await openPage(browser)
    await signIn(watched.page, stub.url, TOKEN)
    if (where === '#signed') await watched.page.click('#about summary')
    await shown(watched.page, where, text)
    assertQuiet(watched)
  }
})

test('by keyboard alone: token, update, cancel, update, dismiss; the focus is never lost', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const focus = async () => await page.evaluate<string>('document.activeElement.id')
  const asked = () => stub.asked.filter((one) => one === 'POST /admin/update')
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
  assert.is(await focus(), 'no')
  await page.keyboard.press('Escape')
  assert.is(await focus(), 'update', 'a dialog gives the focus back')
  await page.keyboard.press('Enter')
  await page.keyboard.press('Enter')
  assert.is(await page.isVisible('#confirm'), false)
  assert.equal(asked(), [], 'Enter twice starts nothing')
  assert.is(await focus(), 'update')
  await page.keyboard.press('Enter')
  await page.keyboard.press('Tab')
  assert.is(await focus(), 'yes')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#busy:not([hidden])')
  assert.equal(asked(), ['POST /admin/update'])
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
  const told = async (end: string) => await comesTrue(page, `said.at(-1)?.endsWith(${JSON.stringify(end)})`)
  running.stage = 'download'
  for (let bytes = 1; bytes < 4; bytes++) {
    running.progress = { bytes: bytes * 1e6, totalBytes: 30e6 }
    await sleep(1100)
  }
  await told('Download')
  running.progress = null
  running.stage = 'restart'
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
  await told('on probation')
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
  await page.route('**/settings/en.js', async (route) => await route.abort())
  const refused = page.waitForEvent('requestfailed') // else the next click may come first
  await page.click('#language')
  await refused
  await shown(page, '#cardTitle', '版本更新')
  await page.unroute('**/settings/en.js')
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

test.long(
  'a long reason in the history is two lines until somebody wants the whole, which then stays open, in both languages',
  async () => {
    for (const [locale, head] of [
      ['en', 'The new version did not take over: v1.1.0 did not serve within 60 s: it exited with code 1, after it'],
      ['zh-CN', '新版本未能接管'],
    ] as const) {
      await using stub = await served()
      const past = { startedAt: secondsAgo(60), finishedAt: secondsAgo(20), stage: 'restart' } as const
      const error = { code: 'restart_failed', message: LONG_REASON } as const
      const short = { code: 'download_failed', message: 'expected 200, got 503' } as const
      const failed = (one: typeof error | typeof short) =>
        operation('update', { outcome: 'failed', error: one, ...past })
      const history = [failed(error), failed(short)]
      stub.world.status.history = history
      await using watched = await openPage(browser, { locale })
      const { page } = watched
      await signIn(page, stub.url, TOKEN)
      assert.is(await page.locator('#history details').count(), 1, 'one that is short is not folded')
      await shown(page, '#history summary', head)
      assert.is(await page.isVisible('#history details p'), false)
      assert.match(await textOf(page, '#history li:first-child > p'), locale === 'en' ? /^took 40 s/ : /^用时/)
      await page.click('#history summary')
      const rest = (locale === 'en' ? ` ${LONG_REASON.slice(LONG_REASON.indexOf('wrote:'))}` : LONG_REASON).replaceAll(
        '`',
        '',
      )
      await shown(page, '#history details p', rest)
      stub.world.status.history = [...history, failed(short)]
      await comesTrue(page, `document.querySelectorAll('#history li').length === 3`)
      assert.is(await page.isVisible('#history details p'), true)
      assert.is(await page.evaluate('document.activeElement.textContent'), head)
      assertQuiet(watched)
    }
  },
)

test('data that gave way: the outcome and the history say how many rows written since lie where, also after a revert', async () => {
  const aside = '/srv/shop/update/aside/shop.db.v1.1.0.x'
  const stateMoved = { restored: '/srv/shop/shop.db', aside, rows: 60 }
  const past = { startedAt: secondsAgo(60), finishedAt: secondsAgo(20), stage: 'restart', stateMoved } as const
  const restored = operation('rollback', { from: 'v1.1.0', to: 'v1.0.0', outcome: 'rolled_back', ...past })
  const message = `v1.1.0 died; ${formatLeft(stateMoved)}`
  const error = { code: 'restart_failed', message } as const
  const reverted = operation('update', { outcome: 'reverted', error, ...past })
  for (const [one, said] of [
    [restored, `Rows written after the update: 60. They are still in the database that was replaced, ${aside}`],
    [reverted, `what clients have written since then, with 60 new rows, is in ${aside}`],
  ] as const) {
    await using stub = await served()
    Object.assign(stub.world.status, { operation: one, history: [one] })
    await using watched = await openPage(browser)
    await signIn(watched.page, stub.url, TOKEN)
    for (const place of ['#outcomeReason', '#history li:first-child'])
      assert.ok((await textOf(watched.page, place)).includes(said), `${place}: ${await textOf(watched.page, place)}`)
    assertQuiet(watched)
  }
})

test('work that was not waited for to its end is named by the outcome and the history', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const past = { startedAt: secondsAgo(60), finishedAt: secondsAgo(20), stage: 'restart' } as const
  const updated = operation('update', { outcome: 'updated', cutWork: ['export <b>', 'mail'], ...past })
  Object.assign(stub.world.status, { operation: updated, history: [updated] })
  Object.assign(stub.world.status.instance, { version: 'v1.1.0' })
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#outcomeReason', 'Interrupted before it finished: export <b>, mail.')
  await shown(page, '#history .reason', 'Interrupted before it finished: export <b>, mail · took 40 s')
  assertQuiet(watched)
})

test('the copies of the data that are kept stand below the history: of which release, from when, how large', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const at = secondsAgo(3 * 60)
  stub.world.status.copies = [
    { name: 'svc.db.v1.1.0.b', kind: 'aside', tag: 'v1.1.0', at, bytes: 2_000_000 },
    { name: 'svc.db.v1.0.0.a', kind: 'snapshot', tag: 'v1.0.0', at, bytes: 1_000_000 },
  ]
  await signIn(page, stub.url, TOKEN)
  await shown(
    page,
    '#copies',
    'Data kept for a rollback: v1.1.0, replaced 3 minutes ago, 2.0 MB · v1.0.0, 3 minutes ago, 1.0 MB',
  )
  assertQuiet(watched)
})

test('what failed here is newer and is not offered by itself: it says so, why, and tries again when it is asked to', async () => {
  await using stub = await served()
  stub.world.report = report({
    latest: 'v1.0.0',
    updateAvailable: false,
    skipped: [{ tag: 'v1.2.0', sha256: null, why: 'v1.2.0 failed during probation: it died', at: secondsAgo(7200) }],
  })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#latest', 'v1.2.0')
  await shown(page, '#latestNote', 'failed on this host')
  await shown(page, '#failedText', 'v1.2.0 is newer, but failed on this host 2 hours ago.')
  await shown(page, '#failedWhy', 'v1.2.0 failed during probation: it died')
  assert.not.match(await page.innerText('main'), /newest release|up to date/)
  assert.is(await page.locator('#card .primary:visible').count(), 0, 'nobody is led to it')
  await page.click('#again')
  await shown(page, '#confirmPoints li', 'It failed on this host 2 hours ago: v1.2.0 failed during probation: it died.')
  await page.click('#yes')
  await shown(page, '#busyTitle', 'Updating v1.0.0 to v1.2.0')
  assertQuiet(watched)
})

test('right after a failure it is told once, and no button is the first choice', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await STATES.find(({ name }) => name === 'reverted')?.reach(page, stub)
  await shown(page, '#outcomeTitle', 'v1.2.0 failed; v1.0.0 is serving again')
  await shown(page, '#again', 'Try v1.2.0 again')
  assert.is(await page.locator('#card .primary:visible').count(), 0)
  assert.is(await page.locator('.alarm:visible').count(), 0, 'one box, the outcome')
  assert.is((await page.innerText('#card')).match(/failed during probation/g)?.length, 1)
  await page.click('#dismiss')
  await shown(page, '#failedText', 'v1.2.0 is newer, but failed on this host 2 hours ago.')
  await shown(page, '#failedWhy', 'v1.2.0 failed during probation: it exited with code 1')
  assertQuiet(watched)
})

test('a newest release that cannot be used: nothing is up to date, and it says why, beside what is offered too', async () => {
  await using stub = await served()
  const problem = { code: 'release_unusable', message: 'v1.2.0 cannot be used: it has no release.json' } as const
  await using watched = await openPage(browser)
  const { page } = watched
  stub.world.report = report({ latest: null, updateAvailable: false, release: null, problem })
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#latestNote', 'unknown')
  await shown(page, '#problem', `The release cannot be used here: ${problem.message}`)
  assert.not.match(await page.innerText('main'), /newest release|up to date/)
  stub.world.report = report({ problem })
  await page.click('#check')
  await shown(page, '#update', 'Update to v1.1.0')
  await shown(page, '#problem', `The release cannot be used here: ${problem.message}`)
  assertQuiet(watched)
})

test('one version where running, installed and latest agree; which process answers is told when somebody asks', async () => {
  await using stub = await served()
  stub.world.report = report({ latest: 'v1.0.0', updateAvailable: false })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await shown(page, '#runningName', 'Running, installed and latest')
  assert.equal(await page.locator('#versions strong:visible').allTextContents(), ['v1.0.0'])
  assert.not.match(await page.innerText('main'), /process \d|instance/)
  await page.click('#about summary')
  assert.match(await page.innerText('#instance'), /^v1\.0\.0, process \d+, instance i\d+c0f/)
  stub.world.report = report()
  await page.click('#check')
  await shown(page, '#runningName', 'Running')
  assert.equal(await page.locator('#versions strong:visible').allTextContents(), ['v1.0.0', 'v1.0.0', 'v1.1.0'])
  assertQuiet(watched)
})

test('the question says what is particular: an older release, the snapshot, the schema before and after', async () => {
  await using stub = await served()
  const release = { tag: 'v1.1.0', notes: '', publishedAt: null, sizeBytes: 30_412_288, url: null, schema: 5 }
  stub.world.report = report({ database: { name: 'beacon.db', schema: 4 }, release })
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await page.click('#update')
  const points = async () => await page.locator('#confirmPoints li').allTextContents()
  const snapshot = 'A snapshot of beacon.db is taken first and kept.'
  const unsigned = (await points()).at(-1) ?? ''
  assert.match(unsigned, /signed/)
  assert.equal(await points(), ['Database schema: 4 before, 5 after.', snapshot, unsigned])
  await page.click('#no')
  await page.click('#other summary')
  await page.fill('#tag', 'v0.9.0')
  await page.press('#tag', 'Enter')
  const older = 'It is older than the running version and may be unable to read data that the newer one has written.'
  assert.equal(await points(), [older, snapshot, unsigned])
  assertQuiet(watched)
})

test('stop-first: the question says how long nobody is served, the card who comes back, the outcome and the history how long it was', async () => {
  await using stub = await served()
  const order = 'stop-first'
  stub.world.status.switch = { order, expectedMs: 110, maxPauseMs: 10_000 }
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await page.click('#update')
  await shown(page, '#confirmPoints li', 'Requests will wait about 110 ms, as in the last update.')
  await page.click('#no')
  for (const [expectedMs, says] of [
    [8000, 'Based on the trial on a copy of your data, requests will wait about 8 s.'],
    [
      25_000,
      'Based on the trial on a copy of your data, requests would wait about 25 s. That is longer than maxPause allows, so the update will be refused before anything stops.',
    ],
  ] as const) {
    stub.world.report = report({ pause: { expectedMs, shownBy: 'trial' } })
    await page.reload()
    await page.click('#update')
    await shown(page, '#confirmPoints li', says)
    await page.click('#no')
  }
  stub.world.report = report()
  stub.world.status.switch.expectedMs = null
  await page.reload()
  const running = await startUpdate(page, stub)
  const unknown = 'Requests will wait briefly: the old process stops before the new one starts.'
  assert.ok((await page.locator('#confirmPoints li').allTextContents()).includes(unknown))
  await shown(page, '#serving', 'v1.0.0 keeps serving until the switch, and stops before v1.1.0 starts.')
  running.stage = 'restart'
  const probation = { tag: 'v1.1.0', since: secondsAgo(3), until: secondsAgo(-27) }
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(3)), probation, backup: 'v1.0.0' }
  await shown(page, '#serving', 'Monitoring v1.1.0: process, heartbeat, health. If it fails, v1.0.0 is started again.')
  running.handover = { moved: 3, carried: 0, returned: 0, ended: 0, cut: 0, switchMs: 914, pauseMs: 108 }
  finish(stub, running, 'updated')
  await shown(
    page,
    '#outcomeText',
    'v1.1.0 is running and healthy. v1.0.0 is kept as a backup. Switched in 914 ms. Requests waited 108 ms. Connections moved to the new process: 3; cut off: 0.',
  )
  assert.match(
    await textOf(page, '#history li:first-child'),
    /Requests waited 108 ms · Connections moved to the new process: 3/,
  )
  assertQuiet(watched)
})

test('a probation has a bar with an end, says how much of it has passed, and never counts milliseconds', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'restart'
  const probation = { tag: 'v1.1.0', since: secondsAgo(3), until: secondsAgo(-27) }
  stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(3)), probation }
  await comesTrue(page, `/on probation: \\d+ of 30 s\\./.test(detail.textContent)`)
  assert.ok(await page.evaluate<boolean>('progress.position > 0 && progress.position < 1'))
  assert.not.match(await page.innerText('main'), /\d ms/)
  finish(stub, running, 'updated')
  await shown(page, '#outcomeTitle', 'Updated to v1.1.0')
  assertQuiet(watched)
})

test('an update can be cancelled before the swap, by keyboard too, and the end is told; after it there is no button', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const asked: string[] = []
  page.on('request', (request) => request.url().endsWith('/cancel') && asked.push(request.method()))
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'download'
  await page.waitForSelector('#cancel:visible')
  await page.focus('#cancel')
  await page.keyboard.press('Enter')
  await comesTrue(page, `cancel.textContent === 'Cancelling …' || !cancel.checkVisibility()`)
  finish(stub, running, 'cancelled')
  await shown(page, '#outcomeTitle', 'Cancelled')
  await shown(page, '#outcomeText', 'Nothing has changed; v1.0.0 is still running.')
  assert.equal(asked, ['POST'])
  assert.is(await page.evaluate('document.activeElement.id'), 'outcomeTitle')
  const next = await startUpdate(page, stub)
  next.stage = 'swap'
  await page.waitForSelector('#cancel', { state: 'hidden' })
  assertQuiet(watched)
})

test('an update that waits for work of the application says so, and goes on at a key', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.stage = 'verify'
  const why = '"export 7", under way for 40s'
  running.waits = [{ code: 'work', says: `waiting for ${why}`, count: 1, why }]
  await shown(page, '#detail', `waiting for ${why}`)
  await shown(page, '#proceed', 'Update now and interrupt running work')
  assert.ok(await page.isVisible('#cancel'))
  await page.focus('#proceed')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#proceed', { state: 'hidden' })
  assert.is(running.waits, undefined)
  finish(stub, running, 'cancelled')
  await shown(page, '#outcomeTitle', 'Cancelled')
  assertQuiet(watched)
})

test('the result and the history say how the release did on a copy of the data', async () => {
  const why =
    'v1.0.0 starts with the data that v1.1.0 leaves behind, but whether it can also write to it was not tested'
  for (const [rehearsal, line] of [
    [rehearsed(), 'Tried on a copy of the data (rows: 1,042; 2 s): it can be rolled back.'],
    [
      rehearsed({ verdict: 'unproven', reason: why, rows: null }),
      `Tried on a copy of the data (2 s): rollback not verified: ${why.replaceAll('`', '')}.`,
    ],
    [
      rehearsed({ verdict: 'untried', reason: '`trial` is `never`' }),
      'Not tried on a copy of the data: trial is never.',
    ],
  ] as const) {
    await using stub = await served()
    await using watched = await openPage(browser)
    const { page } = watched
    await signIn(page, stub.url, TOKEN)
    const running = await startUpdate(page, stub)
    running.trial = rehearsal
    finish(stub, running, 'updated')
    stub.world.status = { ...stub.world.status, instance: instance('v1.1.0', secondsAgo(0)) }
    await shown(page, '#outcomeReason', line)
    assert.ok((await textOf(page, '#history li:first-child')).includes(line.slice(0, -1)))
    assert.is(await page.isVisible('#noWay'), false)
    assertQuiet(watched)
  }
})

test("in Chinese without the service's English, where a code says it; what a program wrote stands behind it", async () => {
  await using stub = await served()
  await using watched = await openPage(browser, { locale: 'zh-CN' })
  const { page } = watched
  await STATES.find(({ name }) => name === 'not-tried')?.reach(page, stub)
  const why = 'systemd 单元来自尚不支持试用的版本：请以 root 身份运行一次新版本的 install.sh。'
  await shown(page, '#outcomeReason', `没有在数据副本上试用。${why}`)
  const { operation } = stub.world.status
  assert.ok(operation?.trial)
  operation.trial = NO_WAY_BACK
  await shown(
    page,
    '#outcomeReason',
    `已在数据副本上试用（1,042 行，2 秒）：无法回滚。v1.0.0 无法在 v1.1.0 改动后的数据上启动。${NO_WAY_BACK.reason}`,
  )
  const data = { ...rehearsed(), others: ['a.db', 'b.db'], hint: 'a.db, b.db are other databases' }
  operation.trial = data
  const others = 'a.db、b.db 是此服务的其他数据库；恢复更新前的数据时不会改动。'
  await shown(page, '#outcomeReason', `已在数据副本上试用（1,042 行，2 秒）：可以回滚。${others}`)
  operation.trial = { ...rehearsed(), verdict: 'untried', reason: 'an older kit says so', hint: 'do this' }
  await shown(page, '#outcomeReason', '没有在数据副本上试用。an older kit says sodo this')
  assertQuiet(watched)
})

test('the rules: what the configuration allows at most, each kept over a change of another, and a fault of the service is shown', async () => {
  await using stub = await served()
  stub.world.limits = { mode: 'minor' }
  stub.world.policy = { zone: 'Europe/Berlin', skip: 'v1.1.7' }
  await using watched = await openPage(browser)
  const { page } = watched
  await STATES.find(({ name }) => name === 'automatic')?.reach(page, stub)
  await page.click('#rulesTitle')
  await page.waitForSelector('#rulesForm:not([hidden])')
  const modes = await page.locator('#ruleMode option').allTextContents()
  assert.equal(modes, [
    'As configured: patches and minor releases',
    'patches',
    'nothing: new releases are shown, but not installed',
    'nothing',
  ])
  assert.is(await page.inputValue('#ruleSkip'), 'v1.1.7')
  await page.selectOption('#ruleMode', 'patch')
  await page.fill('#ruleHours', '02:00-05:00')
  await page.fill('#ruleAge', 'three')
  for (const day of ['sat', 'sun']) await page.uncheck(`#ruleDays [value=${day}]`)
  await page.click('#rulesGo')
  await page.waitForSelector('#ruleProblem:not(:empty)')
  assert.match(
    await textOf(page, '#ruleProblem'),
    /^The request is not valid: expected a duration with a unit \(at most 365d\) in minAge, got "three"\.$/,
  )
  await page.fill('#ruleAge', '3d')
  await page.keyboard.press('Enter')
  await shown(page, '#notice', 'Rules saved.')
  assert.equal(stub.world.policy, {
    zone: 'Europe/Berlin',
    skip: 'v1.1.7',
    mode: 'patch',
    days: ['mon', 'tue', 'wed', 'thu', 'fri'],
    hours: '02:00-05:00',
    minAge: '3d',
  })
  assert.is(await page.evaluate('document.activeElement.id'), 'rulesTitle')
  await page.click('#rulesTitle')
  await page.waitForSelector('#rulesForm:not([hidden])')
  await comesTrue(page, "document.querySelector('#ruleMode').value === 'patch'")
  await page.selectOption('#ruleMode', '')
  for (const field of ['#ruleHours', '#ruleAge', '#ruleSkip']) await page.fill(field, '')
  for (const day of ['sat', 'sun']) await page.check(`#ruleDays [value=${day}]`)
  await page.click('#rulesGo')
  await comesTrue(page, "!document.querySelector('#rules').open")
  assert.equal(stub.world.policy, { zone: 'Europe/Berlin' })
  assertQuiet(watched)
})

test.long(
  'the rules that are opened again stay hidden until they are there, so a late answer overwrites nothing that was typed',
  async () => {
    await using stub = await served()
    stub.world.policy = { skip: 'v1.1.7' }
    await using watched = await openPage(browser)
    const { page } = watched
    await STATES.find(({ name }) => name === 'automatic-paused')?.reach(page, stub)
    await page.click('#rulesTitle')
    await page.waitForSelector('#rulesForm:not([hidden])')
    const held: (() => void)[] = []
    await page.route('**/policy', async (route) => {
      await new Promise<void>((resolve) => held.push(resolve))
      await route.continue()
    })
    await page.click('#rulesTitle')
    await page.waitForSelector('#rulesForm', { state: 'hidden' })
    await page.click('#rulesTitle')
    while (held.length < 1) await sleep(10)
    assert.not(await page.isVisible('#rulesForm'))
    await page.click('#rulesTitle')
    await page.click('#rulesTitle')
    while (held.length < 2) await sleep(10)
    held[1]?.()
    await page.waitForSelector('#rulesForm:not([hidden])')
    await page.fill('#ruleSkip', 'v1.2.0')
    const late = page.waitForResponse('**/policy')
    held[0]?.()
    await late
    await sleep(50)
    assert.is(await page.inputValue('#ruleSkip'), 'v1.2.0')
    assertQuiet(watched)
  },
)

test('a pause is the panel’s own: it ends there and the other rules stay; one of the configuration stays, and it says so', async () => {
  await using stub = await served()
  const skip = 'v1.1.7'
  stub.world.policy = { skip }
  await using watched = await openPage(browser)
  const { page } = watched
  await STATES.find(({ name }) => name === 'automatic-paused')?.reach(page, stub)
  assert.equal(Object.keys(stub.world.policy).toSorted(), ['pauseUntil', 'skip'])
  await page.click('#pause')
  await shown(page, '#pause', 'Pause for a week')
  assert.equal(stub.world.policy, { skip })
  assert.is(await textOf(page, '#notice'), '')
  stub.world.limits = { pauseUntil: '2026-12-27' }
  await page.click('#pause')
  await shown(page, '#pause', 'Resume automatic updates')
  await page.click('#pause')
  await page.waitForSelector('#notice:not([hidden])')
  assert.match(
    await textOf(page, '#notice'),
    /^This host's configuration pauses automatic updates until Dec 27, 2026, .*\.$/,
  )
  assert.equal(stub.world.policy, { skip })
  assertQuiet(watched)
})

test('automatic updates are a switch where the operator allows them: off is a rule of the panel, on is what the operator allows', async () => {
  await using stub = await served()
  stub.world.policy = { hours: '02:00-05:00', mode: 'patch' }
  await using watched = await openPage(browser)
  const { page } = watched
  await STATES.find(({ name }) => name === 'automatic')?.reach(page, stub)
  const box = page.getByRole('switch', { name: 'Automatic updates' })
  assert.is(await box.isChecked(), true)
  await box.uncheck()
  await comesTrue(
    page,
    "/^Off\\. New releases are shown here\\. Next check: Nov 24, 2026, [^a-z]*\\.$/.test(document.querySelector('#aloneText').textContent)",
  )
  assert.equal(stub.world.policy, { hours: '02:00-05:00', mode: 'notify' })
  await box.check()
  await comesTrue(
    page,
    "document.querySelector('#aloneText').textContent.startsWith('Installed automatically: patches and')",
  )
  assert.equal(stub.world.policy, { hours: '02:00-05:00' })
  assertQuiet(watched)
  await using another = await openPage(browser)
  await STATES.find(({ name }) => name === 'automatic-notify')?.reach(another.page, stub)
  assert.is(await another.page.isVisible('#auto'), false, 'the operator does not allow them')
})

test('automatic updates that the feed keeps from installing anything are told as such', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  await STATES.find(({ name }) => name === 'automatic-not-signed')?.reach(watched.page, stub)
  assert.match(
    (await watched.page.textContent('#aloneText')) ?? '',
    /^Nothing is installed automatically: the feed is not signed, and update\.auto\.allow does not list unsigned\. Next check: /,
  )
})

test('the link back leads to the application: above the prefix that only Baton has, at the one that it shares', async () => {
  for (const [basePath, path] of [
    ['/_baton', '/'],
    ['/shop/_baton', '/shop/'],
    ['/shop', '/shop/'],
  ] as const) {
    await using stub = await served({ basePath })
    await using watched = await openPage(browser)
    await signIn(watched.page, stub.url, TOKEN)
    const { host, origin } = new URL(stub.url)
    assert.is(await watched.page.evaluate("document.querySelector('#host').href"), `${origin}${path}`)
    assert.is(await textOf(watched.page, '#host'), `${host}${path.slice(0, -1)}`)
  }
})

test('a version that is skipped is not offered, and is again once somebody wants it; other rules stay', async () => {
  await using stub = await served()
  stub.world.policy = { mode: 'minor' }
  await using watched = await openPage(browser)
  const { page } = watched
  await STATES.find(({ name }) => name === 'skipped')?.reach(page, stub)
  assert.equal(stub.world.policy, { mode: 'minor', skip: 'v1.1.0' })
  await shown(page, '#offerNote', 'v1.1.0 is skipped.')
  await page.click('#skip')
  await page.waitForSelector('#update:not([hidden])')
  assert.equal(stub.world.policy, { mode: 'minor' })
  assertQuiet(watched)
})

test('it has the name of the service, a link back to it, and says in green that it is up to date, when it looked and looks next', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const later = new Date(Date.now() + 86_400_000 * 3).toISOString()
  const now = { code: 'current', says: 'there is no newer release' } as const
  stub.world.status = { ...stub.world.status, schedule: schedule({ now, next: later }) }
  stub.world.report = report({ latest: 'v1.0.0', updateAvailable: false })
  await signIn(page, stub.url, TOKEN)
  await comesTrue(page, "document.querySelector('#check').getAttribute('aria-disabled') === 'false'")
  assert.is(await textOf(page, 'h1'), 'beacon')
  assert.match(await page.title(), /^Updates · beacon$/)
  assert.is(await page.evaluate("document.querySelector('#host').href"), `${stub.url}/`)
  assert.is(await page.innerText('#current'), 'Up to date')
  assert.match(
    await textOf(page, '#offerNote'),
    /^Checked just now\. Next check: \w{3} \d+, 20\d\d, .*\d\.?( [AP]M)?\.$/,
  )
  const [good, accent] = await page.evaluate<[string, string]>(
    "[getComputedStyle(document.querySelector('#current')).color, getComputedStyle(document.querySelector('.icon')).backgroundColor]",
  )
  assert.is(good, accent)
  assertQuiet(watched)
})

test('nothing is downloaded where the release is on the disk already, and the offer says so', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  await STATES.find(({ name }) => name === 'restart-missing')?.reach(watched.page, stub)
  await shown(watched.page, '#update', 'Update to v1.1.0')
  await shown(watched.page, '#offerNote', 'no download: v1.1.0 is already installed')
  assertQuiet(watched)
})

test('an unknown tag is told at its field, and nothing has begun', async () => {
  await using stub = await served()
  stub.world.missing = 'v9.9.9'
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, stub.url, TOKEN)
  await page.click('#other summary')
  await page.fill('#tag', 'v9.9.9')
  await page.click('#tagGo')
  await page.click('#yes')
  await shown(page, '#tagProblem', 'The feed has no release v9.9.9.')
  assert.is(await page.inputValue('#tag'), 'v9.9.9')
  assert.is(await page.isVisible('#outcome'), false)
  assert.is(await page.evaluate('document.activeElement.id'), 'tag')
  assertQuiet(watched)
})

test.long(
  'a login in front of the service is told as such, whether it answers or redirects, and the page goes on by itself',
  async () => {
    await using stub = await served()
    await using watched = await openPage(browser)
    const { page } = watched
    await signIn(page, stub.url, TOKEN)
    for (const login of [401, 302] as const) {
      stub.world.login = login
      await page.waitForSelector('#silence:not([hidden])')
      assert.match(
        await textOf(page, '#silence'),
        /^A login page in front of the service responded instead\. Log in there/,
      )
      assert.is(await page.isVisible('#gate'), false, 'the password is not wrong')
      stub.world.login = null
      await page.waitForSelector('#silence', { state: 'hidden' })
    }
  },
)

test('no way back: by keyboard alone a person says that they know, and that is sent with this tag, once', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  const sent: unknown[] = []
  page.on(
    'request',
    (request) =>
      void (request.method() === 'POST' && request.url().endsWith('/update') && sent.push(request.postDataJSON())),
  )
  await signIn(page, stub.url, TOKEN)
  const running = await startUpdate(page, stub)
  running.trial = NO_WAY_BACK
  running.stage = 'verify'
  finish(stub, running, 'failed')
  const { code, message } = irreversibleFault('v1.1.0', NO_WAY_BACK)
  running.error = { code, message }
  await shown(
    page,
    '#outcomeReason',
    `Tried on a copy of the data (rows: 1,042; 2 s): it cannot be rolled back: ${NO_WAY_BACK.reason}.`,
  )
  const means =
    'v1.0.0 cannot work with the data that v1.1.0 leaves behind. Going back means restoring the snapshot: anything written after that snapshot is lost.'
  await shown(page, '#noWayText', means)

  const box = page.getByRole('checkbox', { name: 'I understand this update cannot be rolled back' })
  assert.is(await box.getAttribute('aria-describedby'), 'noWayText')
  await page.getByText('I understand this update cannot be rolled back').click()
  assert.is(await box.isChecked(), true, 'the label is bound')
  await page.getByText('I understand this update cannot be rolled back').click()
  assert.is(await box.isChecked(), false)

  await page.focus('#dismiss')
  await page.keyboard.press('Tab')
  assert.is(await page.evaluate('document.activeElement.id'), 'allowIrreversible')
  await page.keyboard.press('Space')
  assert.is(await box.isChecked(), true)
  await page.keyboard.press('Tab')
  assert.is(await page.evaluate('document.activeElement.id'), 'update')
  await page.keyboard.press('Enter')
  await shown(page, '#confirmPoints li.alarm', means)
  assert.not.match(await textOf(page, '#confirmText'), /is restored automatically/)
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#busy:not([hidden])')
  assert.equal(sent, [{ tag: 'v1.1.0' }, { tag: 'v1.1.0', allowIrreversible: true }])

  const again = stub.world.status.operation
  if (again === null) throw new Error('nothing was started')
  finish(stub, again, 'cancelled')
  await shown(page, '#outcomeTitle', 'Cancelled')
  assert.is(await page.isVisible('#noWay'), false)
  await startUpdate(page, stub)
  assert.equal(sent.at(-1), { tag: 'v1.1.0' }, 'what was said counts once')
  assertQuiet(watched)
})

test('no way back, refused at once: what a person says about one release is not sent with another', async () => {
  await using stub = await served()
  stub.world.noWayBack = { tag: 'v1.5.0', trial: NO_WAY_BACK }
  await using watched = await openPage(browser)
  const { page } = watched
  const sent: unknown[] = []
  page.on(
    'request',
    (request) =>
      void (request.method() === 'POST' && request.url().endsWith('/update') && sent.push(request.postDataJSON())),
  )
  await signIn(page, stub.url, TOKEN)
  await page.click('#other summary')
  await page.fill('#tag', 'v1.5.0')
  await page.press('#tag', 'Enter')
  await page.click('#yes')
  await comesTrue(
    page,
    `notice.textContent.startsWith('This release cannot be rolled back: v1.5.0 would change the data')`,
  )
  assert.is(await page.isVisible('#busy'), false)
  assert.match(await textOf(page, '#noWayText'), /^v1\.0\.0 cannot work with the data that v1\.5\.0 leaves behind\. /)
  await page.check('#allowIrreversible')
  await page.click('#update')
  assert.is(await page.locator('#confirmPoints li.alarm').count(), 0)
  await page.click('#no')
  await page.press('#tag', 'Enter')
  await page.locator('#confirmPoints li.alarm').waitFor()
  await page.click('#yes')
  await page.waitForSelector('#busy:not([hidden])')
  assert.equal(sent, [{ tag: 'v1.5.0' }, { tag: 'v1.5.0', allowIrreversible: true }])
  const running = stub.world.status.operation
  if (running === null) throw new Error('nothing was started')
  finish(stub, running, 'failed')
  const { code, message } = irreversibleFault('v1.5.0', NO_WAY_BACK)
  running.error = { code, message }
  await shown(page, '#outcomeReason', `This release cannot be rolled back: ${message}`)
  assert.is(await page.inputValue('#tag'), 'v1.5.0', 'it can be sent again')
  assert.is(await page.isChecked('#allowIrreversible'), false)
  assertQuiet(watched)
})

test('what has no password and is not managed asks for none: it says which way to take', async () => {
  await using stub = await served({ password: null })
  stub.world.unmanaged = {
    detail: 'installed by hand',
    reason: 'by_hand',
    route: 'run it',
    command: null,
    running: 'v1.0.0',
  }
  await using watched = await openPage(browser)
  const { page } = watched
  await page.goto(`${stub.url}/web/settings.html`)
  await page.waitForSelector('#unmanaged:not([hidden])')
  assert.is(await page.isVisible('#gate'), false)
  assert.is(await page.isVisible('#copy'), false)
  await shown(page, '#unmanagedRunning', 'v1.0.0')
  assertQuiet(watched)
})

test('in a container: both versions, and the whole command, to be copied', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page, context } = watched
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  const container = STATES.find(({ name }) => name === 'container')
  await container?.reach(page, stub)
  await shown(page, '#unmanagedRunning', 'v1.0.0')
  await shown(page, '#unmanagedLatest', 'v1.1.0')
  await shown(page, '#unmanagedRoute', 'Pull the new image, then recreate the container.')
  for (let i = 0; i < 8 && (await page.evaluate('document.activeElement.id')) !== 'copy'; i++)
    await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await shown(page, '#copy', 'Copied')
  assert.is(await page.evaluate('navigator.clipboard.readText()'), stub.world.unmanaged?.['command'])
  assertQuiet(watched)
})

test('release notes are Markdown: headings without a gap, lists, tables, code, links that leave by a click only', async () => {
  await using stub = await served()
  stub.world.report = report({
    release: {
      tag: 'v1.1.0',
      notes: `${MARKDOWN}\n[js](javascript:alert(1)) ![x](https://example.org/x.png)\n\n<b>raw</b> &amp; &#x27;`,
      publishedAt: null,
      url: null,
      schema: null,
      sizeBytes: 1,
    },
  })
  await using watched = await openPage(browser)
  const { page } = watched
  const requests: string[] = []
  page.on('request', (request) => requests.push(request.url()))
  await signIn(page, stub.url, TOKEN)
  await page.waitForSelector('#notesTitle:visible')
  const loaded = () => requests.map((url) => /settings\/(?:marked|en|zh)\.js$/.exec(url)?.[0] ?? '').filter(Boolean)
  assert.equal(loaded(), ['settings/en.js'], 'the other language and the parser are not loaded by an ordinary visit')
  await page.click('#notesTitle')
  await page.waitForSelector('#notesText h3')
  assert.equal(loaded(), ['settings/en.js', 'settings/marked.js'])
  const names = await page.evaluate<string[]>(
    `[...new Set([...notesText.querySelectorAll('*')].map((e) => e.localName))].sort()`,
  )
  for (const name of ['a', 'blockquote', 'code', 'em', 'h3', 'h4', 'h5', 'li', 'pre', 'strong', 'table', 'ul']) {
    assert.ok(names.includes(name), name)
  }
  assert.equal(await page.evaluate(`[...notesText.querySelectorAll('a')].map((e) => [e.textContent, e.href, e.rel])`), [
    ['the guide', 'https://example.org/guide', 'noopener noreferrer nofollow'],
    ['x', 'https://example.org/x.png', 'noopener noreferrer nofollow'],
  ])
  const text = await textOf(page, '#notesText')
  for (const part of ['snake_case_names stay whole', "<b>raw</b> & '", 'js', '☑ ']) assert.ok(text.includes(part), part)
  assert.equal(
    requests.filter((url) => !url.startsWith(stub.url)),
    [],
  )
  assertQuiet(watched)
})

test.long(
  'release notes are shown as they stand where their parser is not to be had, and properly when it is',
  async () => {
    await using stub = await served()
    stub.world.report = report({
      release: { tag: 'v1.1.0', notes: '## What', publishedAt: null, url: null, schema: null, sizeBytes: 1 },
    })
    await using watched = await openPage(browser)
    const { page } = watched
    await signIn(page, stub.url, TOKEN)
    await page.route('**/settings/marked.js', async (route) => await route.abort())
    await page.click('#notesTitle')
    await shown(page, '#notesText pre', '## What')
    await page.unroute('**/settings/marked.js')
    await page.click('#notesTitle')
    await page.click('#notesTitle')
    await shown(page, '#notesText h4', 'What')
    assertQuiet(watched)
  },
)

test.long('notes that are made to keep a parser busy cost a moment, and are shown as they stand', async () => {
  await using stub = await served()
  await using watched = await openPage(browser)
  const { page } = watched
  for (const part of ['*a_', '>', '> - ', '1. ', '[', '![', '`a ', '**a*_', '|a\n|-\n', '<a ', 'x\n', 'a\n-\n']) {
    const notes = part.repeat(64 * 1024).slice(0, 64 * 1024)
    stub.world.report = report({
      release: { tag: 'v1.1.0', notes, publishedAt: null, url: null, schema: null, sizeBytes: 1 },
    })
    await page.goto('about:blank')
    await signIn(page, stub.url, TOKEN).catch(() => {})
    await page.waitForSelector('#check[aria-disabled=false]')
    await page.click('#notesTitle')
    await comesTrue(page, `notesText.textContent.length > 100`)
    await page.click('#leave')
  }
  assertQuiet(watched)
})

test.run()
