// Every command line of a page is one that its program takes: the word is there, and so is each flag. What it does is tried where the
// pages are run: each shell block of a guide is run by a test that reads it from the page, or is in a table here with the reason.

import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { PROGRAMS } from '../deploy/cli-page.ts'
import { type Flags, parseFlags } from '../deploy/lib/flags.ts'
import { equal, ok } from './assert.ts'
import { shellBlocks } from './lab/page.ts'
import { suite } from './suite.ts'

const ROOT = join(import.meta.dirname, '..')
const test = suite('command lines of the pages')

/** what begins a command line of ours, and the program of `PROGRAMS` that takes the rest */
const BEGINS: readonly (readonly [RegExp, string])[] = [
  [/^(?:npx )?baton trust (?!…)|^npm run (?:-s )?trust -- /, 'baton trust'],
  [/^(?:npx )?baton deploy (?!…)|^(?:sh )?(?:deploy\/)?deploy-/, 'baton deploy'],
  [/^(?:npx )?baton /, 'baton'],
  [/^(?:shop|beacon|<service>) |^(?:\.\/|sh )?install\.sh /, '<service>'],
]
/** scripts of a clone, by the word of `baton deploy` */
const SCRIPTS: Readonly<Record<string, string>> = { 'systemd.sh': 'host' }
/** take the flags of another program's command, or read their own */
const PASSED_ON = new Set([
  'baton status',
  'baton check',
  'baton upgrade',
  'baton rollback',
  'baton doctor',
  '<service> snapshot',
])

/**
 * Page -> the tests that read its shell blocks from it and run them in order, and how many of them each runs: a new block has to be
 * counted here, by whoever has seen that the test runs it. Some are run in the long form alone.
 */
const RUN_BY: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  'README.md': { 'author-pages.test.ts': 1 },
  'docs/start.md': { 'start.test.ts': 6 },
  'docs/author/database.md': { 'database-server.test.ts': 1 },
  'docs/author/packages.md': { 'author-pages.test.ts': 1 },
  'docs/author/publishing.md': { 'author-pages.test.ts': 3, 'container/release.ts': 1 },
  'docs/author/signing.md': { 'author-pages.test.ts': 7 },
  'docs/operator/automatic.md': { 'systemd-by-itself.test.ts': 1 },
  'docs/operator/by-hand.md': { 'guides.test.ts': 3 },
  // but for what makes an application and its releases, which is run of other pages
  'docs/operator/container.md': { 'container/release.ts': 10 },
  'docs/operator/fleet.md': { 'fleet-page.test.ts': 6 },
  'docs/operator/from-source.md': { 'guides.test.ts': 4 },
  'docs/operator/install.md': { 'guides.test.ts': 6 },
  'docs/operator/move.md': { 'guides.test.ts': 10 },
  'docs/operator/npm.md': { 'npm-habits.test.ts': 4 },
  'docs/operator/update.md': { 'guides.test.ts': 3 },
}
/** page -> first line of a block that no test runs -> why */
const NOT_RUN: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'README.md': { 'npm ci --ignore-scripts && npm run demo': 'CI runs both itself, in a clone' },
}

test('each shell block of README and the guides is run by a test, or it is said why none runs it', () => {
  const guides = pages().filter(({ path }) => path === 'README.md' || path.startsWith('docs/'))
  const faults = guides.flatMap(({ path, text }) => {
    const lines = shellBlocks(text).map((block) => block.split(/ +#|\n/)[0] ?? '')
    const [run, not] = [RUN_BY[path] ?? {}, Object.keys(NOT_RUN[path] ?? {})]
    const counted = Object.values(run).reduce((sum, count) => sum + count, 0)
    return [
      ...(lines.length === counted + not.length ? [] : [`${path}: ${counted} of ${lines.length} shell blocks are run`]),
      ...not.filter((line) => !lines.includes(line)).map((line) => `${path}: no block begins with \`${line}\``),
      ...Object.keys(run)
        .filter((file) => !readFileSync(join(ROOT, 'test', file), 'utf8').includes(basename(path)))
        .map((file) => `${path}: test/${file} does not read it`),
    ]
  })
  equal(faults, [])
  const known = new Set(guides.map(({ path }) => path))
  equal(
    [...Object.keys(RUN_BY), ...Object.keys(NOT_RUN)].filter((path) => !known.has(path)),
    [],
  )
})

test('every word and every flag of a command line in a page is one that the program takes', () => {
  const found = pages().flatMap(({ path, text }) => linesIn(text).map((line) => ({ path, line })))
  const checked = found.flatMap(({ path, line }) => {
    const fault = faultOf(line)
    return fault === undefined ? [] : [{ where: `${path}: ${line}`, fault }]
  })
  equal(
    checked.filter(({ fault }) => fault !== null).map(({ where, fault }) => `${where}: ${fault}`),
    [],
  )
  ok(checked.length > 80, `got ${checked.length}`)
})

test('a word or a flag that is not there is found', () => {
  for (const line of [
    'npx baton publsh v1.0.0',
    'shop upgrade --relase v1.1.0',
    'deploy/deploy-fleet.sh -i hosts.yml --soaked 5m',
    'shop check v1.0.0 v1.1.0',
    'npm run -s trust -- yank v1.0.0 --becuase x',
  ])
    ok(typeof faultOf(line) === 'string', line)
})

test.run()

/** Null: it is right. Undefined: it is no command line of ours. */
function faultOf(line: string): string | null | undefined {
  const [begins, program] = BEGINS.find(([pattern]) => pattern.test(line)) ?? []
  if (begins === undefined) return undefined
  const [word = '', ...rest] = wordsOf(line.replace(begins, ''))
  const name = SCRIPTS[word] ?? word.replace(/\.sh$/, '')
  // a command that the text only names
  if (rest.length === 0) return undefined
  const command = PROGRAMS.find((one) => one.name === program)?.commands.find((one) => one.name === name)
  if (command === undefined) {
    if (name.startsWith('-') || name === '' || name === 'help') return undefined
    // an application has words of its own, and install.sh installs without one
    return program === '<service>' ? undefined : `no command ${name}`
  }
  if (PASSED_ON.has(`${program} ${name}`)) return undefined
  try {
    parseFlags(rest, { args: { ...command.args, ...HELP } })
    return null
  } catch (cause) {
    const { message } = cause as Error
    // baton.config.json may have what is not typed; and what only names a flag gives it no value
    return /^expected `--|^expected a value/.test(message) ? null : message
  }
}

const HELP: Flags = { help: { type: 'boolean', alias: 'h' }, all: { type: 'boolean' } }

/** As a shell has them, without what follows a pipe, a redirection or a comment. */
function wordsOf(text: string): string[] {
  const words = Array.from(text.matchAll(/"[^"]*"|'[^']*'|#.*|[|;&<>)].*|[^\s|;&<>"')]+/g), ([word]) => word)
  const end = words.findIndex((word) => /^[#|;&<>)]/.test(word))
  return (end < 0 ? words : words.slice(0, end)).map((word) => word.replace(/^(["'])(.*)\1$/, '$2'))
}

/** The lines of shell blocks, and what is between backticks in the text. A line with an ellipsis is none that somebody types. */
function linesIn(text: string): string[] {
  const blocks = shellBlocks(text).map((block) => block.replaceAll(/\\\n\s*/g, ''))
  const inline = Array.from(text.replaceAll(/^```[^]*?^```/gm, '').matchAll(/`([^`]+)`/g), ([, code = '']) =>
    code.replaceAll('\n', ' '),
  )
  return [...blocks.flatMap((block) => block.split('\n')), ...inline]
    .flatMap((line) => line.split(/ && | \|\| |; /))
    .map((line) => line.trim().replace(/^(?:sudo (?:-u \S+ )?|\S+=\S* |\$ )+/, ''))
    .filter((line) => !line.includes('…') && !/[[\]{}]/.test(line))
}

function pages(): { path: string; text: string }[] {
  const guides = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md') && !path.startsWith('decisions'))
    .map((path) => join('docs', path))
  return ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'llms.txt', ...guides].map((path) => ({
    path,
    text: readFileSync(join(ROOT, path), 'utf8'),
  }))
}
