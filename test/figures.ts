// Counts how large the product is, and prints it: `npm run check` ends with this. A count holds nothing by itself; it shows what a
// change did.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { SETTINGS, type Setting } from '../agent/words.ts'
import { PROGRAMS } from '../deploy/cli-page.ts'
import { shownOf } from '../deploy/lib/flags.ts'

const ROOT = join(import.meta.dirname, '..')
/** a file below this that one file alone imports is perhaps a part of that file */
const SMALL_LINES = 40
/** of all pages but the decisions: more than that nobody reads */
const WORDS_MAX = 28_000
const IS_TEXT = /\.(?:ts|js|css|html|c|py|ya?ml|sh|md)$|\/Dockerfile$/
const IMPORT = /(?:\bfrom|\bimport|\bimport\()\s*['"](\.[^'"]+)['"]/g

interface Text {
  path: string
  text: string
}

const product = ['agent', 'deploy', 'container', 'install.sh', 'install.ts'].flatMap(read)
const service = product.filter(({ path }) => path.startsWith('agent/service/'))
const others = product.filter((file) => !service.includes(file))
const docs = read('docs').filter(({ path }) => path.endsWith('.md'))
const guides = docs.filter(({ path }) => !path.startsWith('docs/decisions/'))
const doors = ['README.md', 'CONTRIBUTING.md'].flatMap(read)
/** made from tables, to look things up in */
const reference = guides.filter(({ path }) => path.startsWith('docs/reference/'))
const alone = importedOnce(others)
const small = alone.filter(({ lines }) => lines < SMALL_LINES)

say(
  'product',
  `${count(linesOf(others))} lines in ${others.length} files, and agent/service ${count(linesOf(service))}`,
)
for (const part of ['agent', 'deploy', 'container']) {
  const files = others.filter(({ path }) => path.startsWith(`${part}/`))
  say(`  ${part}`, `${count(linesOf(files))} lines in ${files.length} files`)
}
say(
  'one importer',
  `${alone.length} files; under ${SMALL_LINES} lines: ${small.map(({ path }) => path).join(', ') || 'none'}`,
)
say(
  'docs',
  `${count(wordsOf(guides))} words (at most ${count(WORDS_MAX)}), ${count(wordsOf(reference))} of them reference; beside them README and CONTRIBUTING ${count(wordsOf(doors))}, decisions ${count(wordsOf(docs) - wordsOf(guides))}`,
)
if (wordsOf(guides) > WORDS_MAX) throw new Error(`the guides have more than ${count(WORDS_MAX)} words`)
const flags = PROGRAMS.flatMap(({ commands }) => commands).map(
  ({ args }) => Object.values(shownOf(args, false)).filter(({ type }) => type !== 'positional').length,
)
const settings = leavesOf(SETTINGS)
say('first help', `at most ${Math.max(...flags)} flags a command, in ${flags.length} commands`)
say('settings', `${settings.filter(({ isUsual }) => isUsual === true).length} shown first, of ${settings.length}`)
function say(what: string, text: string): void {
  process.stdout.write(`${what.padEnd(14)}${text}\n`)
}

/** The members that are not objects themselves. */
function leavesOf(setting: Setting): Setting[] {
  if (setting.type === 'array' && setting.items.type === 'object') return leavesOf(setting.items)
  return setting.type === 'object' ? Object.values(setting.properties ?? {}).flatMap(leavesOf) : [setting]
}

/** The TypeScript files that exactly one file of the product imports. */
function importedOnce(files: readonly Text[]): { path: string; lines: number }[] {
  const importers = new Map<string, Set<string>>()
  for (const { path, text } of product) {
    for (const [, specifier = ''] of text.matchAll(IMPORT)) {
      const target = normalize(join(dirname(path), specifier))
      importers.set(target, (importers.get(target) ?? new Set()).add(path))
    }
  }
  return files.flatMap((file) => {
    const isOnce = importers.get(file.path)?.size === 1
    return isOnce ? [{ path: file.path, lines: linesOf([file]) }] : []
  })
}

function linesOf(files: readonly Text[]): number {
  return files.reduce((sum, { text }) => sum + text.split('\n').length - 1, 0)
}

function wordsOf(files: readonly Text[]): number {
  return files.reduce((sum, { text }) => sum + (text.match(/\S+/g)?.length ?? 0), 0)
}

function count(number: number): string {
  return number.toLocaleString('en')
}

function read(path: string): Text[] {
  const whole = join(ROOT, path)
  if (statSync(whole).isDirectory()) return readdirSync(whole).flatMap((name) => read(`${path}/${name}`))
  return IS_TEXT.test(path) ? [{ path, text: readFileSync(whole, 'utf8') }] : []
}
