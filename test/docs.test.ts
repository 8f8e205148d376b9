// The pages say what is there: their links lead somewhere, their commands exist, the files they name exist.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { errorAddress, type ErrorCode, ERRORS_PAGE, EXIT, EXITS, MEANINGS } from '../agent/words.ts'
import { helpFor } from '../deploy/lib/help.ts'
import { run } from '../deploy/lib/shell.ts'
import { REMEDIES } from '../deploy/lib/remedies.ts'
import { errorsPage } from '../deploy/make/errors-page.ts'
import { equal, is, match, ok } from './assert.ts'
import { lossesOf } from './bench/markdown.ts'
import { COMPARED_RATE, withComparison } from './bench/report.ts'
import type { Results } from './bench/results.ts'
import { suite } from './suite.ts'

const ROOT = join(import.meta.dirname, '..')
const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.cache'])

interface Page {
  path: string
  text: string
}

const pages = walk(ROOT)
const markdown = pages.filter(({ path }) => path.endsWith('.md'))

const test = suite('docs')

test('every link within the repository leads to a file, and to a heading of it', () => {
  const broken = markdown.flatMap(({ path, text }) =>
    Array.from(text.matchAll(/\]\(([^()\s]+)\)/g), ([, link = '']) => link)
      .filter((link) => !/^[a-z]+:/.test(link))
      .filter((link) => !leadsSomewhere(path, link))
      .map((link) => `${path}: ${link}`),
  )
  equal(broken, [])
})

test('every `npm run` and every program that a page runs is there', () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>
  }
  const missing = pages.flatMap(({ path, text }) => [
    ...Array.from(text.matchAll(/\bnpm run (?:-s )?([a-z][a-z:-]*)/g), ([, name = '']) => name)
      .filter((name) => !Object.hasOwn(scripts, name))
      .map((name) => `${path}: npm run ${name}`),
    ...Array.from(text.matchAll(/\btsx ([\w./-]+\.ts)/g), ([, program = '']) => program)
      .filter((program) => !existsSync(join(ROOT, program)))
      .map((program) => `${path}: tsx ${program}`),
  ])
  equal(missing, [])
})

test('every file that a page names is there', () => {
  const missing = markdown.flatMap(({ path, text }) =>
    Array.from(text.matchAll(/`((?:agent|deploy|docs|test|container)\/[\w./-]+\.\w+)`/g), ([, name = '']) => name)
      .filter((name) => !existsSync(join(ROOT, name)))
      .map((name) => `${path}: ${name}`),
  )
  equal(missing, [])
})

test('what install.sh, the fleet, `help exit-codes` and every page say of exit codes is the one table of them', async () => {
  const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
  const line = Object.entries(EXITS).map(([code, means]) => `${code} ${means}`)
  const rows = (text: string) =>
    Array.from(text.matchAll(/^ {2}(\d) {2}(.+)$/gm), ([, code, means]) => `${code} ${means}`)
  const script = await run(['sh', join(ROOT, 'install.sh'), 'help', 'exit-codes'])
  equal(rows(script.stdout), line)
  equal(rows((await helpFor(['help', 'exit-codes'], { name: 'x', description: 'x', args: {} })) ?? ''), line)

  const [, python = ''] = /^EXIT = (\{[^}]*\})/m.exec(read('deploy/fleet/plugins/module_utils/words.py')) ?? []
  const snake = Object.entries(EXIT).map(([name, code]) => [
    name.replaceAll(/[A-Z]/g, (c) => `_${c.toLowerCase()}`),
    code,
  ])
  equal(JSON.parse(python.replace(/,\s*\}/, '}')), Object.fromEntries(snake))

  const tables = markdown.flatMap(({ path, text }) =>
    Array.from(text.matchAll(/^\| exit \|.*\n\|[-|]+\n((?:\|.*\n)+)/gm), ([, table = '']) => [path, table]),
  )
  equal(tables.map(([path]) => path).toSorted(), ['docs/reference/cli.md'])
  for (const [path, table = ''] of tables) {
    const said = table
      .trimEnd()
      .split('\n')
      .map((row) => row.split('|').slice(1, 3).join('').trim().replaceAll(/\s+/g, ' '))
    equal(said, line, path)
  }
  // what a container adds is a list, of the same codes
  const [, added = ''] =
    /^For a container, the \[exit codes\].*\n\n((?:- \d.*\n)+)/m.exec(read('docs/operator/container.md')) ?? []
  const codes = Array.from(added.matchAll(/(?:^- |; )(\d):/gm), ([, code = '']) => code)
  ok(codes.length > 5, added)
  for (const code of codes) ok(code in EXITS, code)
})

test('docs/reference/errors.md is what `npm run pages` writes, and has for each code a cause and what to do', () => {
  const page = readFileSync(join(ROOT, ERRORS_PAGE), 'utf8')
  is(page, errorsPage())
  equal(Object.keys(REMEDIES), Object.keys(MEANINGS))
  for (const code of Object.keys(MEANINGS) as ErrorCode[]) {
    const { cause, fix } = REMEDIES[code]
    for (const text of [cause, fix]) ok(/^[A-Z`].{20,250}\.$/.test(text), `${code}: ${text}`)
    ok(leadsSomewhere('README.md', errorAddress(code)), code)
  }
})

test('the comparison in the README is what the bench has measured', () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')
  const measured = JSON.parse(readFileSync(join(ROOT, 'docs/about/performance.json'), 'utf8')) as Results
  match(readme, /^\| Baton \| 0 \| 0 \|/m)
  is(withComparison(readme, measured), readme)
})

test('what else the README and the page of the comparison say of other ways is what the bench has measured', () => {
  const [readme, page] = ['README.md', 'docs/about/comparison.md'].map((name) => readFileSync(join(ROOT, name), 'utf8'))
  const measured = JSON.parse(readFileSync(join(ROOT, 'docs/about/performance.json'), 'utf8')) as Results
  const of = (id: string) => {
    const peer = measured.handover?.result.peers.find((one) => one.id === id)
    if (peer === undefined) throw new Error(`${id} was not measured`)
    const { lost, closed } = lossesOf(peer.loads)
    return { lost: lost.toLocaleString('en'), closed: closed.toLocaleString('en'), waits: peer.waits }
  }
  const [pm2, restart, socket] = [of('pm2'), of('restart'), of('socket')]
  ok(page?.includes(`| ${pm2.lost} lost, ${pm2.closed} connections closed |`))
  ok(page?.includes(`| ${restart.lost} lost; ${socket.lost} with socket activation |`))
  const at = of('baton').waits?.find(({ rate }) => rate === COMPARED_RATE)
  const waits = `${at?.switchLongestMs.median} ms at ${COMPARED_RATE} requests/s (${at?.steadyLongestMs.median} ms without a switch)`
  ok(readme?.includes(`the longest wait is ${waits}`), waits)
})

test('every promise of SECURITY.md names a test that is there', () => {
  const rows = Array.from(readFileSync(join(ROOT, 'SECURITY.md'), 'utf8').matchAll(/\| `(test\/[^`]+)`: (.+) \|$/gm))
  ok(rows.length > 30)
  const lacking = rows.filter(([, file = '', title = '']) => !readFileSync(join(ROOT, file), 'utf8').includes(title))
  equal(
    lacking.map(([row]) => row),
    [],
  )
})

test('workflows: every action is pinned by its commit, secrets reach programs by the environment only, every word of `trust` is one', async () => {
  const { runTrust } = await import('../deploy/trust/main.ts')
  const folder = join(ROOT, '.github/workflows')
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'))
  const uses = texts.flatMap((text) => Array.from(text.matchAll(/uses: (.+)$/gm), ([, what = '']) => what))
  ok(uses.length > 10)
  equal(
    uses.filter((what) => !/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d/.test(what)),
    [],
  )
  const scripts = texts.flatMap((text) =>
    Array.from(text.matchAll(/run: (?:\|\n((?: {10,}.*\n)+)|(.+))/g), ([all]) => all),
  )
  equal(
    scripts.filter((script) => /\$\{\{ *(secrets|github\.token)/.test(script)),
    [],
  )
  const words = new Set(texts.flatMap((text) => Array.from(text.matchAll(/trust -- (\w+)/g), ([, word = '']) => word)))
  ok(words.size >= 5)
  for (const word of words) {
    let said = ''
    const write = (text: string) => void (said += text)
    is(await runTrust([word, '--help'], { environment: {}, cwd: ROOT, write, complain: write, work: 2 ** 10 }), 0, said)
  }
})

test('every decision has its context, decision and consequences, and is in the index', () => {
  const index = readFileSync(join(ROOT, 'docs/decisions/README.md'), 'utf8')
  const lacking = markdown
    .filter(({ path }) => /^docs\/decisions\/\d/.test(path))
    .flatMap(({ path, text }) =>
      [
        ...['Context', 'Decision', 'Consequences'].filter((part) => !text.includes(`## ${part}`)),
        ...(index.includes(`(${relative('docs/decisions', path)})`) ? [] : ['a line in docs/decisions/README.md']),
      ].map((part) => `${path}: ${part}`),
    )
  equal(lacking, [])
})

test.run()

function walk(folder: string): Page[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (NOT_OURS.has(entry.name)) return []
    if (entry.isDirectory()) return walk(path)
    if (!/\.(md|yml|sh)$/.test(entry.name)) return []
    return [{ path: relative(ROOT, path), text: readFileSync(path, 'utf8') }]
  })
}

function leadsSomewhere(from: string, link: string): boolean {
  const [file = '', anchor = ''] = link.split('#', 2)
  const target = file === '' ? from : join(dirname(from), file)
  if (!existsSync(join(ROOT, target))) return false
  if (anchor === '') return true
  const text = readFileSync(join(ROOT, target), 'utf8')
  if (text.includes(`<a id="${anchor}">`)) return true
  const headings = text.matchAll(/^#+ (.+)$/gm)
  return Array.from(headings, ([, heading = '']) => slug(heading)).includes(anchor)
}

/** As GitHub makes them. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}
