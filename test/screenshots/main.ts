// `npm run screenshots`: every state of the panel into .cache/screenshots/, and the ones that the documentation shows into
// docs/images/. Those come from a real service with real releases; the others, on every screen, from the scripted one.
//   npm run screenshots -- [--out DIR] [--states | --real] [part of a name…]

import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { releases } from '../fixtures/releases.ts'
import {
  type Browser,
  type BrowserContextOptions,
  comesTrue,
  launch,
  NO_BROWSER,
  openPage,
  type Page,
  signIn,
} from '../panel/browser.ts'
import { installService, type Service, TOKEN } from '../panel/service.ts'
import { STATES } from '../panel/states.ts'
import { NOTES, serveStub, TOKEN as STUB_TOKEN } from '../panel/stub.ts'
import { temporary } from '../lab/temporary.ts'

const ROOT = join(import.meta.dirname, '../..')

/** what README.md and docs/operator/update.md show */
const PUBLISHED = ['offer-light', 'download-dark', 'probation-chinese', 'unmanaged-light']
const HOST = 'beacon.example.org'
const PORT = 8080
const DOWNLOAD_MS = 20_000

const LOOKS = {
  light: { colorScheme: 'light', viewport: { width: 840, height: 480 }, deviceScaleFactor: 1.5 },
  dark: { colorScheme: 'dark', viewport: { width: 840, height: 480 }, deviceScaleFactor: 1.5 },
  phone: { colorScheme: 'light', viewport: { width: 390, height: 640 }, deviceScaleFactor: 2, isMobile: true },
  chinese: { colorScheme: 'dark', viewport: { width: 840, height: 480 }, deviceScaleFactor: 1.5, locale: 'zh-CN' },
} as const satisfies Record<string, BrowserContextOptions>

/** what each state is looked at on */
const SCREENS = {
  '320-light': { colorScheme: 'light', forcedColors: 'none', width: 320, height: 640, text: '' },
  '320-dark': { colorScheme: 'dark', forcedColors: 'none', width: 320, height: 640, text: '' },
  '320-large-text': { colorScheme: 'dark', forcedColors: 'none', width: 320, height: 640, text: '200%' },
  '390-dark': { colorScheme: 'dark', forcedColors: 'none', width: 390, height: 800, text: '' },
  '390-light': { colorScheme: 'light', forcedColors: 'none', width: 390, height: 800, text: '' },
  '390-forced': { colorScheme: 'dark', forcedColors: 'active', width: 390, height: 800, text: '' },
  '1280-light': { colorScheme: 'light', forcedColors: 'none', width: 1280, height: 800, text: '' },
  '1280-dark': { colorScheme: 'dark', forcedColors: 'none', width: 1280, height: 800, text: '' },
  '1280-forced': { colorScheme: 'light', forcedColors: 'active', width: 1280, height: 800, text: '' },
} as const

/** The one font that looks the same everywhere, where it is installed (Debian: fonts-inter, fonts-jetbrains-mono). */
const FONTS = `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<match target="pattern"><test name="family"><string>system-ui</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test name="family"><string>sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
</fontconfig>`

interface Tab {
  look: string
  page: Page
}

const { values, positionals } = parseArgs({
  options: {
    out: { type: 'string', default: join(ROOT, '.cache', 'screenshots') },
    states: { type: 'boolean', default: false },
    real: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})

async function main(): Promise<void> {
  if (NO_BROWSER !== null) throw new Error(NO_BROWSER)
  await mkdir(values.out, { recursive: true })
  await using made = await temporary('screenshots')
  const work = made.path
  const fonts = join(work, 'fonts.conf')
  await writeFile(fonts, FONTS)
  const browser = await launch({ FONTCONFIG_FILE: fonts }, [`--host-resolver-rules=MAP ${HOST} 127.0.0.1`])
  try {
    if (!values.real) await everyState(browser)
    if (!values.states) await everyLook(browser)
  } finally {
    await browser.close()
  }
}

/** From the scripted service: each state once, looked at on each screen. */
async function everyState(browser: Browser): Promise<void> {
  for (const { name, reach } of STATES) {
    const screens = Object.entries(SCREENS)
      .map(([screen, look]) => ({ ...look, file: `${name}-${screen}.png` }))
      .filter(({ file }) => positionals.length === 0 || positionals.some((part) => file.includes(part)))
    if (screens.length === 0) continue
    const stub = await serveStub()
    await using watched = await openPage(browser)
    const { page } = watched
    await reach(page, stub)
    await page.mouse.move(0, 0)
    for (const { file, width, height, text, ...colours } of screens) {
      await page.setViewportSize({ width, height })
      await page.emulateMedia(colours)
      await page.evaluate(`document.documentElement.style.fontSize = '${text}'`)
      const fullPage = !name.startsWith('confirm')
      await page.screenshot({ path: join(values.out, file), fullPage, animations: 'disabled' })
      process.stdout.write(`${file}\n`)
    }
    await stub.close()
  }
}

async function everyLook(browser: Browser): Promise<void> {
  const tabs = await Promise.all(
    Object.entries(LOOKS).map(async ([look, options]) => ({ look, page: (await openPage(browser, options)).page })),
  )
  await managed(tabs)
  await unmanaged(tabs)
}

async function managed(tabs: readonly Tab[]): Promise<void> {
  const list = await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.2.0', fault: 'dies-after-5s' }])
  await using service = await installService({
    releases: list,
    notes: NOTES,
    port: await portOr(0),
    update: { probation: '20s' },
  })
  const { feed } = service
  const url = service.url.replace('127.0.0.1', HOST)
  const [first] = tabs
  if (first === undefined) return
  feed.faults.onlyTags = ['v1.1.0', 'v1.0.0']

  await each(tabs, async ({ page }) => void (await page.goto(`${url}/web/settings.html`)))
  await shoot(tabs, 'password')
  await each(tabs, async ({ page }) => {
    await signIn(page, url, TOKEN)
    await page.waitForSelector('#update:visible')
    await page.click('#notesTitle')
    await page.waitForSelector('#notesText *')
    await page.mouse.move(0, 0)
  })
  await shoot(tabs, 'offer')
  await each(tabs, async ({ page }) => await page.click('#update'))
  await shoot(tabs, 'confirm')
  await each(tabs.slice(1), async ({ page }) => await page.click('#no'))

  feed.throttle(((await sizeOf(service)) / DOWNLOAD_MS) * 1000)
  await first.page.click('#yes')
  await each(tabs, async ({ page }) => {
    await page.waitForSelector('#progress[value]')
    await comesTrue(page, `progress.value / progress.max > 0.55 && /\\/(s|秒)/.test(detail.textContent)`, 60_000)
  })
  await shoot(tabs, 'download')
  feed.throttle(undefined)
  await each(
    tabs,
    async ({ page }) => await comesTrue(page, `/(probation:|试运行) ([3-9]|1\\d) /.test(detail.textContent)`, 60_000),
  )
  await shoot(tabs, 'probation')
  await each(tabs, async ({ page }) => {
    await page.waitForSelector('#outcome:visible', { timeout: 60_000 })
    await page.waitForSelector('#check[aria-disabled=false]')
  })
  await shoot(tabs, 'updated')

  delete feed.faults.onlyTags
  await each(tabs, async ({ page }) => {
    await page.click('#check')
    await comesTrue(page, `latest.textContent === 'v1.2.0'`)
  })
  await first.page.click('#update')
  await first.page.click('#yes')
  await each(tabs, async ({ page }) => {
    await comesTrue(page, `outcome.checkVisibility() && outcome.className === 'bad'`, 60_000)
    await page.waitForSelector('#check[aria-disabled=false]')
  })
  await shoot(tabs, 'reverted')

  feed.faults.status = 503
  await each(tabs, async ({ page }) => {
    await page.click('#dismiss')
    await page.click('#check')
    await page.waitForSelector('#problem:visible')
  })
  await shoot(tabs, 'feed-down')
  await service.kill()
  await each(tabs, async ({ page }) => void (await page.waitForSelector('#silence:visible')))
  await shoot(tabs, 'silence')
}

async function unmanaged(tabs: readonly Tab[]): Promise<void> {
  const stub = await serveStub({ port: await portOr(0) })
  stub.world.unmanaged = {
    detail: 'this is a container: update its image instead',
    reason: 'container',
    route: "on the container's host, pull the new image and recreate the container",
    command:
      'docker run --rm -v /var/run/docker.sock:/var/run/docker.sock registry.example.org/team/beacon:deploy deploy --container label=baton.service=beacon --release latest',
    running: 'v1.0.0',
    latest: 'v1.1.0',
  }
  await each(tabs, async ({ page }) => await signIn(page, stub.url.replace('127.0.0.1', HOST), STUB_TOKEN))
  await shoot(tabs, 'unmanaged')
  await stub.close()
}

async function shoot(tabs: readonly Tab[], state: string): Promise<void> {
  for (const { look, page } of tabs) {
    const name = `panel-${state}-${look}.png`
    if (positionals.length > 0 && !positionals.some((part) => name.includes(part))) continue
    const path = join(values.out, name)
    await page.screenshot({ path, fullPage: state !== 'confirm' })
    process.stdout.write(`${name}\n`)
    if (PUBLISHED.includes(`${state}-${look}`)) await copyFile(path, join(ROOT, 'docs', 'images', name))
  }
}

async function each(tabs: readonly Tab[], act: (tab: Tab) => Promise<void>): Promise<void> {
  await Promise.all(tabs.map(act))
}

async function sizeOf(service: Service): Promise<number> {
  const report = (await (await service.ask('POST', '/check')).json()) as { release: { sizeBytes: number } }
  return report.release.sizeBytes
}

async function portOr(otherwise: number): Promise<number> {
  const server = createServer()
  const free = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false))
    server.listen(PORT, '127.0.0.1', () => resolve(true))
  })
  if (free) await new Promise((resolve) => server.close(resolve))
  return free ? PORT : otherwise
}

await main()
