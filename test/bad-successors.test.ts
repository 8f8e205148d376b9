// Releases that are broken, each in its own way. Each ends with the old version serving, its executable and its backup as they
// were, the reason in the operation, the tag remembered as bad, and nothing left over; and then a good update works.
// The cases run three at a time: most of their time is waiting for something that is not going to happen.

import { readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { UpdateSettings } from '../agent/settings.ts'
import type { ErrorCode } from '../agent/words/errors.ts'
import type { Operation, Status, VersionReport } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { besides, journalOf, processesBelow, sha256Of } from './fixtures/evidence.ts'
import { type Answer, ask, freePort, type Install, install } from './fixtures/install.ts'
import { type Fault, publishTo, releases, scriptRelease, type TestRelease, unpack } from './fixtures/releases.ts'
import { inTurns } from './fixtures/turns.ts'
import { type Load, startLoad, type Totals } from './lab/load.ts'
import { conforms } from './lab/openapi.ts'
import { isLong, suite } from './suite.ts'

const AT_ONCE = 3
const BAD_TAG = 'v1.2.0'
const GOOD_TAG = 'v1.3.0'

type Phase = 'verify' | 'before ready' | 'probation'

const ENDINGS: Record<Phase, { outcome: 'failed' | 'reverted'; code: ErrorCode }> = {
  verify: { outcome: 'failed', code: 'verify_failed' },
  'before ready': { outcome: 'reverted', code: 'restart_failed' },
  probation: { outcome: 'reverted', code: 'probation_failed' },
}

interface Case {
  title: string
  release: () => Promise<TestRelease>
  /** where it must be found out */
  phase: Phase
  /** what the operation must say */
  reason: RegExp
  /** where it is not that of the phase */
  code?: ErrorCode
  update?: UpdateSettings
  /** of the long form: another one here is found out in the same way */
  long?: boolean
  /** whether somebody tries it once more, by its name */
  isNamed?: boolean
  /** whether it lives on and answers nobody, so that the report says how long clients have waited for it */
  isSilent?: boolean
  /** makes the world worse; disposing of it makes it good again */
  arrange?: (home: Install) => Promise<AsyncDisposable>
}

const ALL: Case[] = [
  // the slow ones first
  script('hangs-on-version', 'verify', /it did not respond within 10 s/),
  { ...script('dies-after-5s', 'probation', /killed by SIGKILL/, { probation: '6s' }), long: true },
  script('hangs-before-ready', 'before ready', /not ready within 4000 ms/, { readyTimeout: '4s' }),
  { ...script('lies-to-verify', 'verify', /expected v1\.2\.0, got v0\.0\.1/), isNamed: true },
  script('lies-to-probe', 'before ready', /expected beacon v1\.2\.0, got beacon v0\.0\.1/),
  // by-itself.test.ts has it
  { ...script('exits-at-once', 'before ready', /exited with code 3/), isNamed: true, long: true },
  { ...script('cannot-open-state', 'before ready', /exited with code 7/), long: true },
  { ...script('dies-after-1s', 'probation', /killed by SIGKILL/), long: true },
  { ...script('exits-in-probation', 'probation', /exited with code 3/), isNamed: true },
  { ...script('hangs-in-probation', 'probation', /unresponsive|no answer from/), isSilent: true },
  { ...script('answers-nothing-in-probation', 'probation', /no answer from \S+ within \d+ ms/), isSilent: true },
  {
    ...script(
      'cannot-update-further',
      'probation',
      /cannot install later updates: it does not recognize this as a managed install/,
    ),
    code: 'cannot_update_further',
  },
  script('unhealthy-in-probation', 'probation', /expected status 2xx from \/healthz, got 503/),
  script('not-executable', 'verify', /not an executable for this platform/),
  {
    ...script('other-platform', 'verify', /its interpreter or loader is not on this host/),
    long: true,
  },
  { ...script('truncated', 'verify', /expected exit code 0, got 1/), long: true },
  { ...executable('truncated', /exec format error|killed by SIG|expected exit code 0/), long: true },
  { ...executable('other-platform', /exec format error: it was built for (arm64|x64), expected/), long: true },
  {
    title: 'a port that the new version wants and somebody else has',
    release: () => scriptRelease(BAD_TAG),
    phase: 'before ready',
    reason: /cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/,
    arrange: takeItsPort,
  },
]

const CASES = ALL.filter(({ long }) => isLong || long !== true)
const test = suite('bad successors', { timeoutMs: 60_000 })

const common = Promise.all([scriptRelease('v0.9.0'), scriptRelease('v1.0.0'), scriptRelease(GOOD_TAG)])
const endings = inTurns(AT_ONCE, CASES, conduct)
for (const [index, { title, phase }] of CASES.entries()) {
  test(`${title}: found out in ${phase}, and the old version goes on`, () => endings[index])
}

test.run()

async function conduct({ release, phase, reason, update, isNamed, isSilent, arrange, code: own }: Case): Promise<void> {
  const [before, old, good] = await common
  const bad = await release()
  await using home = await install({ release: old, update: { probation: '2s', ...update } })
  const feed = join(home.home, 'no-feed')
  await publishTo(feed, [bad])
  await unpack(before, home.backup)
  const { pid } = await home.start()
  const instance = (await statusOf(home)).instance
  await using _arranged = await arrange?.(home)
  const loads = startLoads(home)

  // the latest
  const operation = await operate(home)
  for (const load of loads) await load.mark('after')
  const { outcome, code } = { ...ENDINGS[phase], ...(own && { code: own }) }
  is(operation.outcome, outcome, operation.error?.message ?? 'no error')
  is(operation.to, BAD_TAG)
  is(operation.error?.code, code)
  match(operation.error?.message ?? '', reason)
  match(operation.error?.message ?? '', BAD_TAG)
  equal(
    operation.handover?.pausesMs?.length,
    isSilent === true ? 1 : undefined,
    'whether clients waited for a release that hangs',
  )

  // it is as it was
  const status = await statusOf(home)
  equal(status.instance, instance, 'expected the very process of before')
  equal(processesBelow(home.home), [pid], 'expected no other process')
  is(await sha256Of(home.executable), old.sha256, 'executable')
  is(await sha256Of(home.backup), before.sha256, 'backup')
  equal(await besides(home), ['beacon', 'beacon.backup', 'receipt.json'])
  const journal = await journalOf(home)
  is(journal.probation, null)
  equal(
    journal.bad.map(({ tag }) => tag),
    [BAD_TAG],
  )
  match(journal.bad[0]?.reason ?? '', reason)
  is(journal.history[0]?.id, operation.id)

  // nobody walks into it again
  const { latest, updateAvailable } = (await call(home, 'POST', '/admin/update/check')).body as VersionReport
  equal({ latest, updateAvailable }, { latest: null, updateAvailable: false })
  is((await operate(home)).outcome, 'up_to_date')

  const totals = await Promise.all(loads.map((load) => load.stop()))
  for (const total of totals) judge(total, phase)

  // but who names it gets it
  await _arranged?.[Symbol.asyncDispose]()
  if (arrange !== undefined) {
    is((await operate(home, BAD_TAG)).outcome, 'updated')
    equal((await journalOf(home)).bad, [], 'expected a release that has proved itself to be no longer bad')
    return
  }
  if (isNamed === true) is((await operate(home, BAD_TAG)).error?.code, code)

  await publishTo(feed, [good])
  const last = await operate(home)
  is(last.outcome, 'updated', last.error?.message ?? 'no error')
  is(await sha256Of(home.executable), good.sha256)
  is(await sha256Of(home.backup), old.sha256)
}

/** What was lost. A successor that never became ready has had no connection: then nothing. */
function judge({ mode, ok: answered, lost, closed, errors, slices }: Totals, phase: Phase): void {
  const said = `${mode}: ${JSON.stringify(errors)}`
  // found out in verify it is over at once: there was load, is all that can be said
  ok(answered > 5, `${said}: expected more than 5 answers, got ${answered}`)
  is(slices['after']?.lost, 0, `${said}: lost after the old version took over again`)
  ok((slices['after']?.ok ?? 0) > 0, `${said}: expected answers after the end`)
  if (phase === 'probation') return
  is(lost, 0, `${said}: lost`)
  is(closed, 0, `${said}: closed`)
}

function startLoads(home: Install): Load[] {
  const common = { port: home.port ?? 0, path: '/version', clients: 3, thinkMs: [20, 50] as [number, number] }
  return [startLoad({ ...common, mode: 'fresh' }), startLoad({ ...common, mode: 'keepalive', afterClose: 'reopen' })]
}

/** One update to its end. */
async function operate(home: Install, tag?: string): Promise<Operation> {
  const { status, body } = await call(home, 'POST', '/admin/update', tag === undefined ? undefined : { tag })
  is(status, 202, JSON.stringify(body))
  const operation = await home.settled(40_000)
  is(operation.id, (body as Operation).id)
  return operation
}

async function statusOf(home: Install): Promise<Status> {
  return (await call(home, 'GET', '/admin/update/status')).body as Status
}

async function call(home: Install, method: string, path: string, body?: unknown): Promise<Answer> {
  const answer = await home.api(method, path, body)
  conforms({ method, path, ...answer })
  return answer
}

/** The configuration gets a second listener, for the next process to read, on a port that this process has. */
async function takeItsPort(home: Install): Promise<AsyncDisposable> {
  const port = await freePort()
  const taker = createServer((socket) => socket.destroy())
  await new Promise<void>((resolve, reject) => {
    taker.once('error', reject)
    taker.listen(port, '127.0.0.1', resolve)
  })
  const config = JSON.parse(await readFile(home.configPath, 'utf8')) as { listen: object }
  const listen = [config.listen, { host: '127.0.0.1', port }]
  await writeFile(home.configPath, JSON.stringify({ ...config, listen }), { mode: 0o600 })
  is((await ask(home.port ?? 0, 'GET', '/version', null)).status, 200)
  return {
    [Symbol.asyncDispose]: async () => {
      if (taker.listening) await new Promise((resolve) => taker.close(resolve))
    },
  }
}

function script(fault: Fault, phase: Phase, reason: RegExp, update?: UpdateSettings): Case {
  const title = fault.replaceAll('-', ' ')
  return { title, release: () => scriptRelease(BAD_TAG, fault), phase, reason, ...(update && { update }) }
}

/** Where the format of a real executable matters. It never gets to run, so what it replaces can be a script. */
function executable(fault: Fault, reason: RegExp): Case {
  const release = async () => {
    const [built] = await releases([{ tag: BAD_TAG, fault }])
    if (built === undefined) throw new Error('no release')
    return built
  }
  return { title: `a real executable that is ${fault.replaceAll('-', ' ')}`, release, phase: 'verify', reason }
}
