// What the tests on the scripted service have in common: a page that is signed in, an operation that a test moves on by hand,
// and what must be seen. Must hold: no poll fails, nothing is logged as an error, no policy is violated (`assertQuiet`).

import { setTimeout as sleep } from 'node:timers/promises'
import type { Operation } from '../../agent/words/state.ts'
import * as assert from '../assert.ts'
import { comesTrue, type Page, type Watched } from './browser.ts'
import { report, secondsAgo, serveStub, type Stub } from './stub.ts'

export async function served(options: Parameters<typeof serveStub>[0] = {}): Promise<Stub & AsyncDisposable> {
  const stub = await serveStub(options)
  return { ...stub, [Symbol.asyncDispose]: stub.close }
}

/** Clicks the update through, and gives the operation of the scripted service, to be moved on. */
export async function startUpdate(page: Page, stub: Stub): Promise<Operation> {
  await page.click('#update')
  await page.click('#yes')
  await page.waitForSelector('#busy:not([hidden])')
  const { operation: running } = stub.world.status
  if (running === null) throw new Error('nothing was started')
  return running
}

export function finish(stub: Stub, running: Operation, outcome: Operation['outcome']): void {
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
export async function advanceTo(page: Page, selector: string, text: RegExp): Promise<void> {
  for (let passed = 0; passed < 900; passed++) {
    const element = page.locator(selector)
    if ((await element.isVisible()) && text.test((await element.textContent()) ?? '')) return
    await second(page)
  }
  throw new Error(`expected ${String(text)} in ${selector}; the page says:\n${await page.innerText('main')}`)
}

export async function second(page: Page): Promise<void> {
  await page.clock.runFor(1000)
  await sleep(8)
}

export async function shown(page: Page, selector: string, text: string): Promise<void> {
  try {
    await comesTrue(
      page,
      `[...document.querySelectorAll('${selector}')].some((e) => e.checkVisibility() && e.textContent === ${JSON.stringify(text)})`,
    )
  } catch (cause) {
    throw new Error(`expected \`${text}\` in ${selector}; the page says:\n${await page.innerText('main')}`, { cause })
  }
}

export async function textOf(page: Page, selector: string): Promise<string> {
  return (await page.textContent(selector)) ?? ''
}

export function assertQuiet({ wrong, failedPolls }: Watched): void {
  assert.equal(failedPolls, [], 'no poll fails')
  assert.equal(wrong, [], 'nothing is logged as an error, and no policy is violated')
}
