// The words that users meet are few: the glossary is made from its table, and the words that these have replaced are nowhere a user looks.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { GLOSSARY, glossaryPage, WORDS_MAX } from '../deploy/make/glossary.ts'
import { equal, is, ok } from './assert.ts'
import { suite } from './suite.ts'

const ROOT = join(import.meta.dirname, '..')

/** What a word was called once. A decision may tell the history, and a test may feed an old word to a parser. */
const OLD: readonly (readonly [name: string, pattern: RegExp])[] = [
  ['one-at-a-time (stop-first)', /one-at-a-time/],
  ['together (start-first)', /["'`]together["'`]/],
  ['one way (irreversible)', /\bone_way\b|\boneWay\b|--one-way\b/],
  ['holdUntil (pauseUntil)', /\bholdUntil\b/],
  ['--hold (--keep-port, --pause-until)', /--(?:no-|release-)?hold\b/],
  ['endless (longLivedPaths)', /["'`]endless["'`]|\bendless\??:/],
  ['withdrawn (yanked)', /\bwithdraw(?:n|s|al|ing)?\b/i],
  ['--rehearse, update.rehearse (--trial, update.trial)', /--rehearse\b|\bupdate\.rehearse\b/],
  ['--no-check, check.environment (--no-try, try.environment)', /--no-check\b|\bcheck\.environment\b/],
  ['--folder, --ref (--dir, a word)', /--(?:folder|ref|dist|without-holder|offline-days|[a-z]+-days)\b/],
]
/** A bearer token is what HTTP calls the password, and a feed has real ones. In the panel there is only the password. */
const PANEL: typeof OLD = [['token (password)', /\btokens?\b/i]]

/** What only the code speaks of. A flow's messages in flight are no operation. */
const HIDDEN: typeof OLD = [
  ['receipt (record of the install)', /\breceipts?\b/i],
  ['conductor', /\bconductor\b/i],
  ['in flight (running)', /(?<!messages )\bin flight\b/],
  ['the right token (password)', /\b(?:right|wrong) token\b/],
]

const test = suite('glossary')

test('docs/reference/glossary.md is what `npm run pages` writes, and fits in a head', () => {
  is(readFileSync(join(ROOT, 'docs/reference/glossary.md'), 'utf8'), glossaryPage())
  ok(GLOSSARY.length <= WORDS_MAX, `got ${GLOSSARY.length}`)
  is(new Set(GLOSSARY.map(({ word }) => word)).size, GLOSSARY.length)
})

test('help, messages, schemas, the API, the panel and the pages have none of the old words', () => {
  const read = ['agent', 'deploy', 'container', 'docs', 'install.sh', 'install.ts', 'README.md', 'CONTRIBUTING.md']
    .concat('SECURITY.md', 'llms.txt', 'config.schema.json', 'settings.schema.json', '.github/workflows')
    .flatMap(textsOf)
    .filter(({ path }) => !/^docs\/decisions\/|performance\.json$/.test(path))
  ok(read.length > 300)
  equal(foundIn(read, OLD), [])
  const panel = read
    .filter(({ path }) => /^agent\/web\/settings\/(?:en|zh)\.js$/.test(path))
    .map(({ path, text }) => ({ path, text: text.replaceAll(/^ *'[\w.]+':/gm, '') }))
  is(panel.length, 2)
  equal(foundIn(panel, PANEL), [])
})

test('pages have none of the words that only the code speaks of', () => {
  const read = ['docs', 'README.md', 'SECURITY.md', 'llms.txt']
    .flatMap(textsOf)
    .filter(({ path }) => !/^docs\/(?:decisions|contributing)\/|performance\.json$/.test(path))
  ok(read.length > 30)
  equal(foundIn(read, HIDDEN), [])
})

test('no test passes an old flag: what only the long form runs would fail there, and nobody would see it before', () => {
  const flags = OLD.filter(([, pattern]) => pattern.source.includes('--'))
  const tests = textsOf('test').filter(({ path }) => path !== 'test/glossary.test.ts')
  ok(flags.length >= 3 && tests.length > 300)
  equal(foundIn(tests, flags), [])
})

test('an old word is found where one is', () => {
  const text = `one-at-a-time, "order": 'together', --one-way, "holdUntil", container --hold, { endless: [] }, withdrawn, --rehearse, --no-check, --ref`
  equal(
    foundIn([{ path: 'x', text }], OLD),
    OLD.map(([name]) => `x:1: ${name}`),
  )
  equal(foundIn([{ path: 'x', text: 'a wrong token' }], PANEL).length, PANEL.length)
  const hidden = 'its receipt, the conductor, an update in flight, a wrong token'
  equal(foundIn([{ path: 'x', text: hidden }], HIDDEN).length, HIDDEN.length)
  equal(foundIn([{ path: 'x', text: 'npm run soak -- --holder, --keep-port, held together' }], OLD), [])
})

test.run()

interface Text {
  path: string
  text: string
}

function foundIn(texts: readonly Text[], words: typeof OLD): string[] {
  return texts.flatMap(({ path, text }) =>
    words.flatMap(([name, pattern]) => {
      // the name of a decision's file tells what it was called then
      const lines = text.split('\n').findIndex((line) => pattern.test(line.replaceAll(/decisions\/[\w-]+\.md/g, '')))
      return lines < 0 ? [] : [`${path}:${lines + 1}: ${name}`]
    }),
  )
}

function textsOf(path: string): Text[] {
  const whole = join(ROOT, path)
  if (statSync(whole).isDirectory()) return readdirSync(whole).flatMap((name) => textsOf(`${path}/${name}`))
  return /\.(?:png|svg|ico|woff2?)$/.test(path) ? [] : [{ path, text: readFileSync(whole, 'utf8') }]
}
