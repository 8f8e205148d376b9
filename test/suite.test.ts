// Proves the guard: each program here must fail under it, and most of them exit 0 under uvu alone.

import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { suite } from './suite.ts'
import { equal, is, match, not, rejects, throws, withCode } from './assert.ts'

const ROOT = join(import.meta.dirname, '..')

interface End {
  code: number | null
  output: string
  events: string[]
}

/** Runs a test file with this body after the imports. */
async function run(body: string, env: Record<string, string> = {}): Promise<End> {
  const cache = join(ROOT, '.cache')
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'guard-'))
  try {
    const [file, report] = [join(folder, 'fixture.ts'), join(folder, 'report.jsonl')]
    const imports = `import { suite } from ${JSON.stringify(join(ROOT, 'test/suite.ts'))}\n`
    await writeFile(file, `${imports}const test = suite('fixture', { timeoutMs: 300 })\n${body}\n`)
    const child = spawn(process.execPath, [...process.execArgv, file], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, BATON_TEST_REPORT: report, BATON_TEST_NO_SKIP: '', ...env },
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += String(chunk)))
    const code = await new Promise<number | null>((resolve) => void child.once('close', resolve))
    const lines = (await readFile(report, 'utf8').catch(() => '')).split('\n').filter(Boolean)
    const events = lines.map((line) => (JSON.parse(line) as { event: string }).event)
    return { code, output, events: events.filter((event) => event !== 'started') }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const GOOD = `test('good', () => {})`

const mustFail: [promise: string, body: string, output: RegExp][] = [
  ['a before hook that throws', `test.before(() => { throw new Error('b1') }); ${GOOD}; test.run()`, /b1/],
  ['an after hook that throws', `test.after(async () => { throw new Error('a1') }); ${GOOD}; test.run()`, /a1/],
  ['a before hook that throws no Error', `test.before(() => { throw null }); ${GOOD}; test.run()`, /null/],
  ['an after hook that never settles', `test.after(() => new Promise(() => {})); ${GOOD}; test.run()`, /after 300 ms/],
  ['a thrown text', `test('t', () => { throw 'some text' }); test.run()`, /some text/],
  ['a thrown null', `test('t', async () => { throw null }); test.run()`, /null/],
  [
    'an error that uvu cannot draw',
    `test('t', () => { throw Object.assign(new Error('odd'), { details: {} }) }); test.run()`,
    /odd/,
  ],
  ['a forgotten run', GOOD, /`\.run\(\)` is never called/],
  ['a suite without tests', `test.run()`, /has no tests/],
  [
    'a promise that never settles',
    `test('t', () => new Promise(() => {})); ${GOOD}; test.run()`,
    /not done after 300 ms/,
  ],
  ['a before hook that never settles', `test.before(() => new Promise(() => {})); ${GOOD}; test.run()`, /after 300 ms/],
  ['an exit in the middle', `test('t', () => process.exit(0)); ${GOOD}; test.run()`, /never ended/],
  ['an exit before the tests', `${GOOD}; test.run(); process.exit(0)`, /never ended/],
  [
    'a rejection that nobody handles',
    `test('t', () => { Promise.reject(new Error('stray')) }); test('u', () => new Promise((done) => setTimeout(done, 50))); test.run()`,
    /stray/,
  ],
  ['two tests with one title', `${GOOD}; ${GOOD}; test.run()`, /two tests are called/],
  ['a test registered after run', `${GOOD}; test.run(); test('late', () => {})`, /after `\.run\(\)`/],
  ['a second suite that is not run', `${GOOD}; test.run(); suite('b')('x', () => {})`, /never called/],
]

const test = suite('guard')

for (const [promise, body, output] of mustFail) {
  test(`fails a file with ${promise}`, async () => {
    const end = await run(body)
    not.equal(end.code, 0, end.output)
    match(end.output, output)
  })
}

test('passes a good file, and reports each title', async () => {
  const end = await run(`${GOOD}; test('two', async ({ signal }) => { signal.throwIfAborted() }); test.run()`)
  equal(end.events, ['passed', 'passed', 'finished'])
  is(end.code, 0, end.output)
})

test('runs every suite of a file', async () => {
  const end = await run(`${GOOD}; test.run(); const b = suite('b'); b('x', () => { throw new Error('x1') }); b.run()`)
  equal(end.events, ['passed', 'failed', 'finished'])
  is(end.code, 1, end.output)
})

test('goes on after a failed test and after one that is not done in time', async () => {
  const end = await run(
    `test('slow', () => new Promise(() => {})); test('bad', () => { throw 1 }); ${GOOD}; test.run()`,
  )
  equal(end.events, ['failed', 'failed', 'passed', 'finished'])
})

test('counts each test as failed when a before hook throws', async () => {
  const end = await run(`test.before(() => { throw 1 }); ${GOOD}; test('two', () => {}); test.run()`)
  equal(end.events, ['failed', 'failed', 'finished'])
})

test('runs the hooks around the tests, and none of what the suite skips', async () => {
  const end = await run(`
    const b = suite('b', { skip: 'needs a moon' }); b.before(() => { throw 1 }); b('x', () => { throw 1 }); b.run()
    let ready = false; test.before(() => { ready = true }); test.after(() => { if (!ready) throw 1 })
    test('good', () => { if (!ready) throw 1 }); test.run()`)
  equal(end.events, ['skipped', 'passed', 'passed', 'finished'])
  is(end.code, 0, end.output)
  match(end.output, /needs a moon/)
})

test('lists titles without running a test or a hook, also those that would be skipped', async () => {
  const body = `test.before(() => { throw 1 }); test('t', () => { throw 1 }); test.run()
    const b = suite('b', { skip: 'needs a moon' }); b('s', () => {}); b.run()`
  const end = await run(body, { BATON_TEST_LIST: '1', BATON_TEST_NO_SKIP: '1' })
  equal(end.events, ['listed', 'listed', 'finished'])
  is(end.code, 0, end.output)
})

test('fails what is skipped where nothing may be', async () => {
  const body = `${GOOD}; test.run(); const b = suite('b', { skip: 'needs a moon' }); b('s', () => {}); b.run()`
  const end = await run(body, { BATON_TEST_NO_SKIP: '1' })
  is(end.code, 1, end.output)
  match(end.output, /`s` is skipped, here nothing may be/)
})

test('fails a file that stays open after its last test', async () => {
  const end = await run(`${GOOD}; test.run(); setInterval(() => {}, 1000)`)
  is(end.code, 1, end.output)
  match(end.output, /still open 10000 ms after the last test: Timeout/)
})

test('`throws` and `rejects` compare a text, a pattern and a code', async () => {
  const boom = (): never => {
    throw Object.assign(new Error('it went boom'), { code: 'boom' })
  }
  is(throws(boom, 'went').message, 'it went boom')
  throws(boom, /boom$/)
  throws(boom, withCode('boom'))
  throws(() => throws(boom, 'bang'), /Expected an error with bang, got: it went boom/)
  throws(() => throws(boom, withCode('bang')), /code `bang`/)
  throws(() => throws(() => {}), /Expected function to throw/)
  await rejects(rejects(Promise.resolve()), /Expected promise to be rejected/)
  await rejects(rejects(Promise.reject('text')), /Expected an Error/)
})

test.run()
