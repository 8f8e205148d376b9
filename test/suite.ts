// The guard around uvu. uvu runs the tests and draws them; this file decides whether they passed.
// Must never break: what is registered is accounted for. uvu 0.5.6 exits 0 after a throwing `before` or `after.each`, after
// `throw 'text'` and after a forgotten `.run()` (its issues 60, 80 and 191); here each of these fails the file.
//
//   const test = suite('feed', { timeoutMs: 60_000 })
//   test('skips a release without our asset', async () => { … })
//   test.run()

import { appendFileSync, writeSync } from 'node:fs'
import { inspect } from 'node:util'

/** Handed to every test; `signal` aborts when the deadline has passed. */
export interface Context {
  signal: AbortSignal
}

export type Body = (context: Context) => unknown

export interface SuiteOptions {
  /** deadline of each test and each hook, in milliseconds */
  timeoutMs?: number
  /** why every test here is skipped on this machine, such as `needs root`; null or absent runs them */
  skip?: string | null
}

export interface TestOptions {
  timeoutMs?: number
}

export interface Hook {
  (body: Body): void
  each(body: Body): void
}

export interface Suite {
  (title: string, body: Body, options?: TestOptions): void
  only(title: string, body: Body, options?: TestOptions): void
  skip(title: string, body?: Body, options?: TestOptions): void
  before: Hook
  after: Hook
  run(): void
}

/** What a test file appends, a line of JSON each, to the file that `test/run.ts` names in BATON_TEST_REPORT. */
export type Report =
  | { event: 'started'; title: string }
  | { event: 'passed' | 'failed' | 'skipped'; title: string; ms: number }
  | { event: 'finished' }

export const TIMEOUT_MS = 30_000
/** how long sockets, timers and processes may outlive the last test */
const LINGER_MS = 10_000

type Result = 'passed' | 'failed' | 'skipped'

interface Account {
  name: string
  running: boolean
  /** every title in; null until it is out */
  results: Map<string, Result | null>
  errors: Error[]
}

const accounts: Account[] = []
const reportPath = process.env['BATON_TEST_REPORT']
delete process.env['BATON_TEST_REPORT'] // belongs to this process alone
const neverSkip = process.env['BATON_TEST_NO_SKIP'] === '1'

// uvu looks at these when it is loaded: it leaves its queue to us
const queue: (() => Promise<[string | true, ...number[]]>)[] = []
Object.assign(globalThis, { UVU_DEFER: 1, UVU_INDEX: 0, UVU_QUEUE: [queue] })
const uvu = await import('uvu')

let turn: Promise<void> = new Promise((resolve) => setImmediate(resolve))
let finishedRuns = 0

export function suite(name: string, { timeoutMs = TIMEOUT_MS, skip = null }: SuiteOptions = {}): Suite {
  const inner = uvu.suite(name)
  const account: Account = { name, running: false, results: new Map(), errors: [] }
  const beforeEach: Body[] = []
  const afterEach: Body[] = []
  let only: Set<string> | null = null
  accounts.push(account)

  const enter = (title: string): void => {
    if (account.running) throw new Error(`suite \`${name}\`: \`${title}\` is registered after \`.run()\``)
    if (account.results.has(title)) throw new Error(`suite \`${name}\`: two tests are called \`${title}\``)
    account.results.set(title, null)
  }

  const guarded = (title: string, body: Body, deadlineMs: number) => async () => {
    report({ event: 'started', title: `${name}: ${title}` })
    const startedAt = performance.now()
    let result: Result = 'failed'
    try {
      for (const hook of beforeEach) {
        const failure = await failureOf(hook, timeoutMs, `before each \`${title}\``)
        if (failure) throw failure
      }
      const failures = [await failureOf(body, deadlineMs, title)]
      for (const hook of afterEach) failures.push(await failureOf(hook, timeoutMs, `after each \`${title}\``))
      const [first, ...others] = failures.filter((failure) => failure !== null)
      for (const other of others) say(inspect(other))
      if (first) throw first
      result = 'passed'
    } catch (error) {
      account.errors.push(toError(error))
      throw error
    } finally {
      leave(account, title, result, performance.now() - startedAt)
    }
  }

  const hooked = (kind: 'before' | 'after', body: Body) => async () => {
    const failure = await failureOf(body, timeoutMs, kind)
    if (failure === null) return
    fail(account, kind, inspect(failure))
    if (kind === 'before') throw failure // no test runs; each stays unaccounted for, and fails
  }

  const test = (title: string, body: Body, options: TestOptions = {}): void => {
    if (skip !== null) return test.skip(title)
    enter(title)
    inner(title, guarded(title, body, options.timeoutMs ?? timeoutMs))
  }
  test.only = (title: string, body: Body, options: TestOptions = {}): void => {
    if (skip !== null) return test.skip(title)
    enter(title)
    only = (only ?? new Set()).add(title)
    inner.only(title, guarded(title, body, options.timeoutMs ?? timeoutMs))
  }
  test.skip = (title: string): void => {
    enter(title)
    leave(account, title, 'skipped', 0)
  }
  test.before = Object.assign((body: Body) => inner.before(skip === null ? hooked('before', body) : nothing), {
    each: (body: Body) => void beforeEach.push(body),
  })
  test.after = Object.assign((body: Body) => inner.after(skip === null ? hooked('after', body) : nothing), {
    each: (body: Body) => void afterEach.push(body),
  })
  test.run = (): void => {
    if (account.running) throw new Error(`suite \`${name}\`: \`.run()\` is called twice`)
    account.running = true
    for (const title of account.results.keys()) {
      if (only !== null && !only.has(title) && account.results.get(title) === null) leave(account, title, 'skipped', 0)
    }
    inner.run()
    const run = queue.pop()
    turn = turn.then(async () => {
      const [errors] = (await run?.()) ?? ['uvu gave no runner']
      if (errors !== true) process.stdout.write(`\n${errors}\n`)
      else for (const error of account.errors) say(inspect(error)) // uvu could not draw them
      if (skip !== null) process.stdout.write(`  skipped: ${skip}\n`)
      finishedRuns++
      if (finishedRuns === accounts.length) endSoon()
    })
  }
  return test
}

process.on('exit', (code) => {
  for (const account of accounts) {
    const { name, running, results } = account
    if (!running) fail(account, '.run()', `suite \`${name}\`: \`.run()\` is never called`)
    if (results.size === 0) fail(account, 'no tests', `suite \`${name}\` has no tests`)
    for (const [title, result] of results) {
      if (result === null) fail(account, title, `suite \`${name}\`: \`${title}\` never ended`)
      if (result === 'skipped' && neverSkip)
        fail(account, title, `suite \`${name}\`: \`${title}\` is skipped, here nothing may be`)
    }
  }
  const all = accounts.flatMap(({ results }) => [...results.values()])
  if (accounts.length === 0) say('this file has no suite')
  report({ event: 'finished' })
  if (accounts.length === 0 || all.includes('failed')) process.exitCode = code || 1
})

/** Runs the body and waits; what it throws, or that its deadline has passed, as an Error that uvu can draw. */
async function failureOf(body: Body, timeoutMs: number, title: string): Promise<Error | null> {
  const abort = new AbortController()
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const error = new Error(`\`${title}\` is not done after ${timeoutMs} ms`)
      reject(error)
      abort.abort(error)
    }, timeoutMs)
  })
  try {
    await Promise.race([(async () => await body({ signal: abort.signal }))(), deadline])
    return null
  } catch (thrown) {
    return toError(thrown)
  } finally {
    clearTimeout(timer)
  }
}

function leave(account: Account, title: string, result: Result, ms: number): void {
  account.results.set(title, result)
  report({ event: result, title: `${account.name}: ${title}`, ms: Math.round(ms) })
}

function fail(account: Account, title: string, message: string): void {
  say(message)
  leave(account, title, 'failed', 0)
}

/** uvu draws an error by its `name`, `stack` and `details`, and swallows the failure where one of them is not what it expects. */
function toError(thrown: unknown): Error {
  if (!(thrown instanceof Error)) return new Error(`thrown, but not an Error: ${inspect(thrown)}`)
  const details = 'details' in thrown ? thrown.details : undefined
  const drawable =
    typeof thrown.stack === 'string' &&
    typeof thrown.name === 'string' &&
    (details === undefined || details === false || typeof details === 'string')
  if (!drawable) return new Error(inspect(thrown), { cause: thrown })
  if (thrown.cause !== undefined) say(`cause: ${inspect(thrown.cause)}`)
  return thrown
}

/** A test that leaves something open would keep the process: name it, and fail. */
function endSoon(): void {
  const account = accounts.at(-1)
  setTimeout(() => {
    const open = process.getActiveResourcesInfo().filter((kind) => kind !== 'TTYWrap' && kind !== 'PipeWrap')
    if (account) fail(account, 'end', `still open ${LINGER_MS} ms after the last test: ${open.join(', ') || 'a pipe'}`)
    process.exit(1)
  }, LINGER_MS).unref()
}

function report(entry: Report): void {
  if (reportPath !== undefined) appendFileSync(reportPath, `${JSON.stringify(entry)}\n`)
}

function say(message: string): void {
  writeSync(2, `${message}\n`)
}

function nothing(): void {}
