// A page that stays open over an update, of a real bundler: in Chromium it asks for a chunk of its own release that it did not need before,
// and then for every file that its release had. `npm run apps` has the kit's other promises.

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../../deploy/lib/shell.ts'
import { pathsBelow } from '../fixtures/evidence.ts'
import { launch, openPage } from '../panel/browser.ts'
import { adoptInto, begin, install, operate, release } from './adopt.ts'

/** where the bundler puts its files, the path that browsers know that by, and the file of the sources that makes the next release */
const BUNDLERS = {
  vite: { assets: 'dist/assets', path: '/assets', version: 'src/version.js' },
  next: { assets: '.next/static', path: '/_next/static', version: 'app/version.js' },
} as const
export type Bundler = keyof typeof BUNDLERS
/** a page that only the release before has, with a hash in its name as if it never changed */
const PAGE = 'page-BkPt2nVx.html'
const NOT_SENT = ['index.html', '..%2Fserver.js', 'never-BkPt2nVx.js', 'plain.js']

export interface OpenPage {
  /** `assets` as `init` has written it */
  assets: unknown
  /** of the files of the release before, how many the next one does not have */
  changed: number
  /** what is wrong with the answers, after the update, for files of the release before: `path: status type` */
  missing: string[]
  /** what the open page has said after it has loaded a chunk of its own release */
  says: string
  /** on its console, and requests that failed */
  wrong: string[]
  /** answers for what is no immutable file, or a page, that are neither 404 nor the page of the release that serves */
  others: string[]
}

/** `packed` is the file that `npm pack` made. */
export async function openOver(
  app: Bundler,
  packed: string,
  say: (line: string) => void = () => {},
): Promise<OpenPage> {
  const { assets, path, version } = BUNDLERS[app]
  const adopter = await begin(app, say)
  const { home, folder, environment, at } = adopter
  let command: string | null = null
  try {
    await adoptInto(adopter, packed)
    const config = JSON.parse(await readFile(join(folder, 'baton.config.json'), 'utf8')) as { assets?: unknown }
    await mkdir(join(folder, 'public', 'assets'), { recursive: true })
    await writeFile(join(folder, 'public', 'assets', PAGE), 'v1.0.0')
    const { service } = await release(adopter, 'v1.0.0')
    await rm(join(folder, 'public', 'assets', PAGE))
    const before = (await pathsBelow(join(folder, assets))).filter((name) => name !== PAGE)
    const bodies = await Promise.all(before.map(async (name) => await readFile(join(folder, assets, name))))
    const source = await readFile(join(folder, version), 'utf8')
    await writeFile(join(folder, version), source.replace('v1.0.0', 'v1.1.0'))
    await release(adopter, 'v1.1.0')
    const after = new Set(await pathsBelow(join(folder, assets)))

    const installed = await install(adopter, service)
    const { port, password } = installed
    command = installed.command
    await at(command, 'start', '--user', '-q')
    const url = `http://127.0.0.1:${port}`
    const browser = await launch()
    try {
      await using watched = await openPage(browser)
      const { page, wrong } = watched
      page.on('response', (answer) => {
        const type = answer.headers()['content-type'] ?? ''
        const isWrong = answer.status() >= 400 || (answer.url().includes(`${path}/`) && type.startsWith('text/html'))
        if (isWrong && !answer.url().endsWith('/favicon.ico')) wrong.push(`${answer.url()}: ${answer.status()} ${type}`)
      })
      await page.goto(url)
      await page.waitForLoadState('networkidle')
      const { outcome, error } = await operate(port, password, '/admin/update', { body: { tag: 'v1.1.0' } })
      if (outcome !== 'updated') throw new Error(`${app}: the update ended as ${outcome}: ${error?.message}`)
      await page.click('button')
      await page.waitForSelector('#later:not(:empty)')
      const says = (await page.textContent('#later')) ?? ''
      const missing: string[] = []
      for (const [index, name] of before.entries()) {
        const answer = await fetch(`${url}${path}/${name.split('/').map(encodeURIComponent).join('/')}`)
        const [type, body] = [answer.headers.get('content-type') ?? '', Buffer.from(await answer.arrayBuffer())]
        if (answer.status !== 200 || type.startsWith('text/html') || !body.equals(bodies[index] ?? Buffer.of()))
          missing.push(`${name}: ${answer.status} ${type}`)
      }
      const others: string[] = []
      const current = await (await fetch(url)).text()
      for (const file of [`/assets/${PAGE}`, ...NOT_SENT.map((name) => `${path}/${name}`)]) {
        const answer = await fetch(`${url}${file}`)
        const text = await answer.text()
        if (answer.status !== 404 && text !== current) others.push(`${file}: ${answer.status}`)
      }
      const changed = before.filter((name) => !after.has(name)).length
      return { assets: config.assets, changed, missing, says, wrong, others }
    } finally {
      await browser.close()
    }
  } finally {
    if (command !== null) await run([command, 'stop', '--user', '-q'], { env: environment, allowFailure: true })
    await rm(home, { recursive: true, force: true })
  }
}
