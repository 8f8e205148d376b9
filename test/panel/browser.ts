// The one importer of playwright-core: headless Chromium from the distribution, and a page that keeps account of what goes
// wrong in it. Must hold: an error on the console, a violation of the policy or a failed poll is never overlooked.

import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core'

export type { Browser, BrowserContextOptions, Page } from 'playwright-core'

// the shell has the same engine and no user interface: it takes a third of the processor time
const [SHELL, WHOLE] = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium']
const EXECUTABLE = process.env['BATON_CHROMIUM'] ?? (existsSync(SHELL) ? SHELL : WHOLE)
const ARGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** For `suite({ skip })`: why there is no browser, null where there is one. */
export const NO_BROWSER = existsSync(EXECUTABLE)
  ? null
  : `needs Chromium at ${EXECUTABLE} (Debian: apt-get install chromium-headless-shell)`

export async function launch(environment: Record<string, string> = {}, more: string[] = []): Promise<Browser> {
  const env = { ...(process.env as Record<string, string>), ...environment }
  return await chromium.launch({ executablePath: EXECUTABLE, args: [...ARGS, ...more], env })
}

/** A browser in the network that the prefix enters. `folder` is the test's. */
export async function launchIn(prefix: readonly string[], folder: string): Promise<Browser> {
  const path = join(folder, 'chromium-there')
  await writeFile(path, `#!/bin/sh\nexec ${prefix.join(' ')} ${EXECUTABLE} "$@"\n`, { mode: 0o755 })
  return await chromium.launch({ executablePath: path, args: ARGS })
}

export interface Watched extends AsyncDisposable {
  page: Page
  /** errors on the console (but for refusals, which Chromium logs as such), exceptions, violations of the policy */
  wrong: string[]
  /** polls that failed: no answer, or an answer that is none of the agent's */
  failedPolls: string[]
  /** polls that the page broke off itself: by a reload, or because they took too long */
  abortedPolls: string[]
  /** how often the document was loaded */
  loads: () => number
  context: BrowserContext
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({
    locale: 'en-GB',
    viewport: { width: 900, height: 900 },
    reducedMotion: 'reduce',
    ...options,
  })
  const watched = await openTab(context)
  return { ...watched, [Symbol.asyncDispose]: async () => await context.close() }
}

/** Another tab: the same browser, a session storage of its own. */
export async function openTab(context: BrowserContext): Promise<Watched> {
  const page = await context.newPage()
  const wrong: string[] = []
  const failedPolls: string[] = []
  const abortedPolls: string[] = []
  let loads = 0
  page.setDefaultTimeout(15_000)
  await page.exposeFunction('batonTold', (text: string) => void wrong.push(text))
  await page.addInitScript(`addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sample }) =>
    batonTold('policy: ' + violatedDirective + ' ' + blockedURI + ' ' + sample))`)
  page.on('console', (message) => {
    const isRefusal = /^Failed to load resource: (the server responded|net::)/.test(message.text())
    if (['error', 'warning'].includes(message.type()) && !isRefusal) wrong.push(message.text())
  })
  page.on('pageerror', (error) => wrong.push(String(error.stack)))
  page.on('load', () => (loads += 1))
  page.on('requestfailed', (request) => {
    if (!request.url().endsWith('/admin/update/status')) return
    const text = String(request.failure()?.errorText)
    if (text === 'net::ERR_ABORTED') abortedPolls.push(text)
    else failedPolls.push(text)
  })
  page.on('response', (response) => {
    const status = response.status()
    if (response.url().endsWith('/admin/update/status') && status >= 500 && status !== 501)
      failedPolls.push(`${status}`)
  })
  return {
    page,
    wrong,
    failedPolls,
    abortedPolls,
    loads: () => loads,
    context,
    [Symbol.asyncDispose]: async () => await page.close(),
  }
}

/** Opens the panel and gives it the token. */
export async function signIn(page: Page, url: string, token: string): Promise<void> {
  await page.goto(`${url}/web/settings.html`)
  await page.fill('#token', token)
  await page.click('#enter')
  await page.waitForSelector('#card:not([hidden]), #unmanaged:not([hidden])')
}

/** Waits until an expression is true in the page. Not `waitForFunction`: it evaluates in the page, which the policy forbids. */
export async function comesTrue(page: Page, expression: string, timeoutMs = 15_000): Promise<void> {
  const deadline = Date.now() + timeoutMs
  while (!(await page.evaluate<boolean>(expression).catch(() => false))) {
    if (Date.now() > deadline) throw new Error(`it never came true: ${expression}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
