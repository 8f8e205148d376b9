// The guard around uvu. uvu runs the tests and draws them; this file decides whether they passed.
// Must never break: every registered test has a result. uvu 0.5.6 exits 0 after a throwing `before` or `after.each`, after
// `throw 'text'` and after a forgotten `.run()` (its issues 60, 80 and 191). Here each of these fails the file. So uvu gets only
// tests: this file runs the hooks, and an error in a hook fails a test.
//
//   const test = suite('feed', { timeoutMs: 60_000 })
//   test('skips a release without our asset', async () => { … })
//   test.run()

import { appendFileSync, writeSync } from 'node:fs'
import { inspect } from 'node:util'

/** `signal` aborts when the deadline has passed. */
export type Body = (context: { signal: AbortSignal }) => unknown

export interface SuiteOptions {
  /** deadline of each test and each hook, in milliseconds */
  timeoutMs?: number
  /** why this machine skips every test here, such as `needs root`; null or absent runs them */
  skip?: string | null
}

export interface Suite {
  /** `timeoutMs`: deadline of this test, if the suite's will not do */
  (title: string, body: Body, options?: { timeoutMs?: number }): void
  /** The same, in the long form alone: a variant of another test, or more than it tries. No later test may need what it leaves. */
  long(title: string, body: Body, options?: { timeoutMs?: number }): void
  /** Runs before the first test; if it fails, every test fails. */
  before(body: Body): void
  /** Runs after the last test; if it fails, that counts as a failed test. */
  after(body: Body): void
  run(): void
}

/** A test file appends these, one JSON text a line, to the file that `test/run.ts` names in BATON_TEST_REPORT. */
export type Report =
  | { event: 'started'; title: string }
  | { event: 'passed' | 'failed'; title: string; ms: number }
  | { event: 'skipped'; title: string; ms: number; /** what this machine lacks, such as `needs root` */ why: string }
  | { event: 'listed'; title: string }
  | { event: 'finished' }

export const TIMEOUT_MS = 30_000
/** how long sockets, timers and processes may outlive the last test */
const LINGER_MS = 10_000

interface Account {
  name: string
  running: boolean
  /** it has tests that only the long form runs */
  hasLong: boolean
  /** every registered title; null until the test has a result */
  results: Map<string, 'passed' | 'failed' | 'skipped' | 'listed' | null>
}

const accounts: Account[] = []
const reportPath = process.env['BATON_TEST_REPORT']
delete process.env['BATON_TEST_REPORT'] // belongs to this process alone
/** Whether tests with a long form run every case instead of some. `npm run soak` asks for it. */
export const isLong = process.env['BATON_TEST_LONG'] === '1'
/** how many times longer each deadline is in the long form: it has more cases, and its machine may be busy. As in run.ts. */
const LONG_TIMES = isLong ? 4 : 1
const neverSkip = process.env['BATON_TEST_NO_SKIP'] === '1'
/** `run.ts --list` asks only for the titles: no test and no hook runs, and a file does no work before its tests. */
export const onlyLists = process.env['BATON_TEST_LIST'] === '1'
delete process.env['BATON_TEST_LIST']

// uvu reads these when it is loaded, and then leaves its queue to this file
const queue: (() => Promise<[string | true, ...number[]]>)[] = []
Object.assign(globalThis, { UVU_DEFER: 1, UVU_INDEX: 0, UVU_QUEUE: [queue] })
const uvu = await import('uvu')

let turn: Promise<void> = new Promise((resolve) => setImmediate(resolve))
let finishedRuns = 0

export function suite(name: string, { timeoutMs = TIMEOUT_MS, skip = null }: SuiteOptions = {}): Suite {
  const inner = uvu.suite(name)
  const account: Account = { name, running: false, hasLong: false, results: new Map() }
  const hooks: { before: Body[]; after: Body[] } = { before: [], after: [] }
  let ready: Promise<void> | null = null
  accounts.push(account)

  const beReady = (): Promise<void> =>
    (ready ??= (async () => {
      for (const hook of hooks.before) await bounded(hook, timeoutMs, 'before')
    })())

  const register = (title: string, body: () => Promise<void>): void => {
    account.results.set(title, null)
    inner(title, async () => {
      report({ event: 'started', title: `${name}: ${title}` })
      const startedAt = performance.now()
      const failure = await body().then(() => null, toError)
      leave(account, title, failure === null ? 'passed' : 'failed', performance.now() - startedAt)
      if (failure !== null) throw failure
    })
  }

  const test = (title: string, body: Body, options: { timeoutMs?: number } = {}): void => {
    if (account.running) throw new Error(`suite \`${name}\`: \`${title}\` is registered after \`.run()\``)
    if (account.results.has(title)) throw new Error(`suite \`${name}\`: two tests are called \`${title}\``)
    if (onlyLists) return list(account, title)
    if (skip !== null) return skipOne(account, title, skip)
    register(title, async () => {
      await beReady()
      await bounded(body, options.timeoutMs ?? timeoutMs, title)
    })
  }
  test.long = (...args: Parameters<typeof test>) => {
    account.hasLong = true
    if (isLong) test(...args)
  }
  test.before = (body: Body) => void hooks.before.push(body)
  test.after = (body: Body) => void hooks.after.push(body)
  test.run = (): void => {
    if (account.running) throw new Error(`suite \`${name}\`: \`.run()\` is called twice`)
    if (skip === null && !onlyLists)
      hooks.after.forEach((hook, at) => register(`after ${at + 1}`, () => bounded(hook, timeoutMs, 'after')))
    account.running = true
    inner.run()
    const run = queue.pop()
    turn = turn.then(async () => {
      const [errors] = (await run?.()) ?? ['uvu gave no runner']
      if (errors !== true) process.stdout.write(`\n${errors}\n`)
      if (skip !== null) process.stdout.write(`  skipped: ${skip}\n`)
      finishedRuns++
      if (finishedRuns === accounts.length) endSoon(account)
    })
  }
  return test
}

process.on('exit', (code) => {
  for (const account of accounts) {
    const told = `suite \`${account.name}\``
    if (!account.running) fail(account, '.run()', `${told}: \`.run()\` is never called`)
    if (account.results.size === 0 && !account.hasLong) fail(account, 'no tests', `${told} has no tests`)
    for (const [title, result] of account.results) {
      if (result === null) fail(account, title, `${told}: \`${title}\` never ended`)
      if (result === 'skipped' && neverSkip)
        fail(account, title, `${told}: \`${title}\` is skipped, here nothing may be`)
    }
  }
  if (accounts.length === 0) say('this file has no suite')
  report({ event: 'finished' })
  const all = accounts.flatMap(({ results }) => [...results.values()])
  if (accounts.length === 0 || all.includes('failed')) process.exitCode = code || 1
})

/** Runs the body and waits for it until its deadline. */
async function bounded(body: Body, deadlineMs: number, title: string): Promise<void> {
  const timeoutMs = deadlineMs * LONG_TIMES
  const abort = new AbortController()
  const deadline = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    const error = new Error(`\`${title}\` is not done after ${timeoutMs} ms`)
    deadline.reject(error)
    abort.abort(error)
  }, timeoutMs)
  try {
    await Promise.race([(async () => await body({ signal: abort.signal }))(), deadline.promise])
  } finally {
    clearTimeout(timer)
  }
}

function skipOne(account: Account, title: string, why: string): void {
  account.results.set(title, 'skipped')
  report({ event: 'skipped', title: `${account.name}: ${title}`, ms: 0, why })
}

function leave(account: Account, title: string, result: 'passed' | 'failed', ms: number): void {
  account.results.set(title, result)
  report({ event: result, title: `${account.name}: ${title}`, ms: Math.round(ms) })
}

function list(account: Account, title: string): void {
  account.results.set(title, 'listed')
  report({ event: 'listed', title: `${account.name}: ${title}` })
}

function fail(account: Account, title: string, message: string): void {
  say(message)
  leave(account, title, 'failed', 0)
}

/** uvu draws an error by its `name`, `stack` and `details`. If one of them is not a text, uvu swallows the failure. */
function toError(thrown: unknown): Error {
  if (!(thrown instanceof Error)) return new Error(`thrown, but not an Error: ${inspect(thrown)}`)
  const details = 'details' in thrown ? thrown.details : undefined
  const odd = [thrown.stack, thrown.name, details || ''].some((part) => typeof part !== 'string')
  if (odd) return new Error(inspect(thrown), { cause: thrown })
  if (thrown.cause !== undefined) say(`cause: ${inspect(thrown.cause)}`)
  return thrown
}

/** Something that a test leaves open would keep the process alive: names it, and fails. */
function endSoon(account: Account): void {
  setTimeout(() => {
    if (onlyLists) process.exit()
    const open = process.getActiveResourcesInfo().filter((kind) => kind !== 'TTYWrap' && kind !== 'PipeWrap')
    fail(account, 'end', `still open ${LINGER_MS} ms after the last test: ${open.join(', ') || 'a pipe'}`)
    process.exit(1)
  }, LINGER_MS).unref()
}

function report(entry: Report): void {
  if (reportPath !== undefined) appendFileSync(reportPath, `${JSON.stringify(entry)}\n`)
}

function say(message: string): void {
  writeSync(2, `${message}\n`)
}
