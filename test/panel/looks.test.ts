// @deadlineMs 900000
// Every state of the page (in CI a fifth of them) as it looks and as it is used: axe, nothing cut off, no word broken, all of it by
// keyboard; in light and dark, in Chinese, in the reader's own colours, and on the smallest screen with the largest text.

import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import * as assert from '../assert.ts'
import { isLong, suite } from '../suite.ts'
import { type Browser, type BrowserContextOptions, launch, NO_BROWSER, openPage, type Page } from './browser.ts'
import { served } from './scripted.ts'
import { type State, STATES } from './states.ts'

/** the states whose words are the most */
const IN_CHINESE = ['offer-several', 'confirm-particular', 'probation', 'reverted', 'no-way-back', 'container']
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']
const TABS_MAX = 60

/**
 * What runs out of the page, and each word that begins on one line and ends on the next though a line of the card could hold it.
 * Addresses may break; what is scrolled may be wider.
 */
const LAYOUT_FAULTS = `(() => {
  const faults = document.documentElement.scrollWidth > innerWidth ? ['the page is wider than the screen'] : []
  const { clientWidth } = document.querySelector('main')
  const padding = Number.parseFloat(getComputedStyle(document.querySelector('.card')).paddingLeft)
  const widest = clientWidth - 2 * padding
  const isScrolled = (element) => element.closest('#notesText') !== null
  if (getComputedStyle(document.documentElement).backgroundColor === 'rgba(0, 0, 0, 0)') faults.push('the paper ends beside the text')
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement
    if (!parent.checkVisibility() || parent.closest('code:not(.sum), pre, .unseen, script')) continue
    for (const { 0: word, index } of node.data.matchAll(/\\S+/g)) {
      if (/\\/|[\\u3000-\\uffef]/.test(word)) continue
      for (const part of word.matchAll(/[^-\\u2010]+/g)) {
        const range = new Range()
        range.setStart(node, index + part.index)
        range.setEnd(node, index + part.index + part[0].length)
        const rects = [...range.getClientRects()]
        const wide = rects.reduce((sum, { width }) => sum + width, 0)
        if (new Set(rects.map(({ top }) => Math.round(top))).size > 1 && wide < widest) faults.push('broken: ' + word)
        if (!isScrolled(parent) && rects.some(({ right, left }) => right > innerWidth + 1 || left < -1)) faults.push('cut off: ' + word)
      }
    }
  }
  return faults
})()`

/** What can be used by a pointer now; a dialog makes the rest inert. */
const USABLE = `(() => {
  const all = document.querySelectorAll('button, input, summary, a[href], [tabindex="0"]')
  const dialog = document.querySelector('dialog[open]')
  return [...all].filter((e) => e.checkVisibility() && (!dialog || dialog.contains(e))).map((e, at) => (e.dataset.at = at))
})()`

/** Which of them has the focus, null for none; and whether one sees it. */
const FOCUSED = `(() => {
  const { outlineStyle, boxShadow } = getComputedStyle(document.activeElement)
  return { at: document.activeElement.dataset.at ?? null, seen: outlineStyle !== 'none' || boxShadow !== 'none' }
})()`

/**
 * Where the colours are the reader's: a ground has none, so that what stands on one needs an edge; nothing is known by colour alone.
 * Buttons have edges here, and must not meet or stand outside of the card.
 */
const FORCED_FAULTS = `(() => {
  const faults = []
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility())
  const edge = (e) => getComputedStyle(e).borderTopStyle !== 'none' && getComputedStyle(e).borderTopWidth !== '0px'
  for (const e of seen('.note, .way, #outcome, #notesText, progress')) if (!edge(e)) faults.push('no edge: #' + e.id)
  const ground = (e) => getComputedStyle(e).backgroundColor
  for (const e of seen('#stages .done')) {
    const line = getComputedStyle(e, '::before')
    if (line.display !== 'none' && line.backgroundColor === ground(document.body)) faults.push('a stage has no line')
  }
  const plain = seen('button:not(.primary):not([aria-disabled=true])')[0]
  for (const e of seen('.primary')) if (plain && ground(e) === ground(plain)) faults.push('like any other: #' + e.id)
  for (const e of seen('button[aria-disabled=true]')) {
    if (plain && getComputedStyle(e).color === getComputedStyle(plain).color) faults.push('like one that can be used: #' + e.id)
  }
  const buttons = seen('button').map((e) => ({ e, box: e.getBoundingClientRect() }))
  for (const { e, box } of buttons) {
    const card = e.closest('.card')
    const inner = card && card.getBoundingClientRect().left + Number.parseFloat(getComputedStyle(card).paddingLeft)
    if (card && box.left < inner - 1) faults.push('outside: #' + e.id)
    const meets = buttons.some(({ e: f, box: b }) => f !== e && b.left < box.right + 3 && box.left < b.right + 3 && b.top < box.bottom + 3 && box.top < b.bottom + 3)
    if (meets && !document.querySelector('dialog[open]')) faults.push('meets another one: #' + e.id)
  }
  return faults
})()`

/** a colour that is on its way to another one is neither */
const STILL = { reducedMotion: 'reduce' } as const

const test = suite('panel, every state', { timeoutMs: 400_000, skip: NO_BROWSER })

let browser: Browser
let axe: string
test.before(async () => {
  browser = await launch()
  axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
})
test.after(async () => await browser.close())

const looked = isLong ? STATES : STATES.filter((_, i) => i % 5 === 0)

test(`in every ${isLong ? '' : 'fifth '}state: axe finds nothing, all is reached by keyboard, and no word is broken, down to 320 px, dark, at 200 %, in forced colours`, async () => {
  await each(looked, { colorScheme: 'light', ...STILL }, async (page) => {
    const large = [...(await layoutFaults(page)), ...(await unreached(page)), ...(await axeFaults(page, RULES))]
    await page.emulateMedia({ colorScheme: 'dark' })
    await page.setViewportSize({ width: 320, height: 640 })
    await page.evaluate(`document.documentElement.style.fontSize = '200%'`)
    const small = [...(await layoutFaults(page)), ...(await axeFaults(page, ['color-contrast']))]
    await page.emulateMedia({ forcedColors: 'active' })
    await page.setViewportSize({ width: 390, height: 800 })
    await page.evaluate(`document.documentElement.style.fontSize = ''`)
    const forced = [...(await layoutFaults(page)), ...(await page.evaluate<string[]>(FORCED_FAULTS))]
    return [
      ...large,
      ...small.map((fault) => `at 320 px: ${fault}`),
      ...forced.map((fault) => `in forced colours: ${fault}`),
    ]
  })
})

test('in Chinese axe finds nothing, and no word is broken', async () => {
  const states = STATES.filter(({ name }) => IN_CHINESE.includes(name))
  await each(states, { colorScheme: 'dark', locale: 'zh-CN', ...STILL }, async (page) => [
    ...(await layoutFaults(page)),
    ...(await axeFaults(page, RULES)),
  ])
})

test.run()

async function each(
  states: readonly State[],
  options: BrowserContextOptions,
  look: (page: Page) => Promise<string[]>,
): Promise<void> {
  const faults: string[] = []
  for (const state of states) {
    await using stub = await served()
    await using watched = await openPage(browser, options)
    await state.reach(watched.page, stub)
    assert.equal(watched.wrong, [], state.name) // before axe, which itself does what the policy forbids
    faults.push(...(await look(watched.page)).map((fault) => `${state.name}: ${fault}`))
  }
  assert.equal(faults, [])
}

async function layoutFaults(page: Page): Promise<string[]> {
  return await page.evaluate<string[]>(LAYOUT_FAULTS)
}

async function axeFaults(page: Page, rules: readonly string[]): Promise<string[]> {
  if (!(await page.evaluate<boolean>(`'axe' in window`))) await page.evaluate(`${axe}; 0`)
  const options = { runOnly: rules, resultTypes: ['violations'] }
  const { violations } = await page.evaluate<{
    violations: { id: string; nodes: { html: string; failureSummary: string }[] }[]
  }>(`axe.run(document, ${JSON.stringify(options)})`)
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  )
}

/** What a pointer could use and Tab does not come to, or comes to unseen. */
async function unreached(page: Page): Promise<string[]> {
  const left = new Set((await page.evaluate<number[]>(USABLE)).map(String))
  const faults: string[] = []
  for (let tabs = 0; left.size > 0 && tabs < TABS_MAX; tabs++) {
    await page.keyboard.press('Tab')
    const { at, seen } = await page.evaluate<{ at: string | null; seen: boolean }>(FOCUSED)
    if (at !== null && left.delete(at) && !seen) faults.push(`its focus is not seen: ${await named(page, at)}`)
  }
  for (const at of left) faults.push(`no Tab comes to it: ${await named(page, at)}`)
  return faults
}

async function named(page: Page, at: string): Promise<string> {
  return await page.evaluate<string>(`document.querySelector('[data-at="${at}"]').outerHTML`)
}
