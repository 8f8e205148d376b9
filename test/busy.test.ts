// Work that belongs to no request: a switch and a stop wait for it, a person may go on, and work that never ends bars nobody for ever.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Operation, Status } from '../agent/index.ts'
import { makeWorks } from '../agent/handover/works.ts'
import { busyOf } from '../agent/handover/give/rest.ts'
import { equal, is, match, ok, rejects } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { askingOn } from './fixtures/evidence.ts'
import { ask } from './fixtures/install.ts'
import { CLOCK, EXPORT_MS, JOBS, jobsOf, polite } from './fixtures/jobs.ts'
import { isLong, suite } from './suite.ts'

const test = suite('busy', { timeoutMs: 180_000 })
const ROUNDS = isLong ? 25 : 2
const POLITE = polite(700)

for (const order of ['start-first', 'stop-first'] as const) {
  for (const [what, source] of [
    ['that wait for each other', POLITE],
    ['that come by a clock', CLOCK],
  ] as const) {
    const register = order === 'stop-first' && source === CLOCK ? test : test.long
    register(`${order}: jobs ${what} are whole over updates and rollbacks`, async () => {
      await using it = await adopted(source, { order })
      let waited = 0
      for (let round = 0; round < ROUNDS; round++) {
        for (const [path, body, outcome] of [
          ['/admin/update', { tag: 'v1.1.0' }, 'updated'],
          ['/admin/update/rollback', undefined, 'rolled_back'],
        ] as const) {
          await sleep(137 * round)
          const looks = new AbortController()
          const seen = seesWork(it, looks.signal)
          is((await it.operate(path, body)).outcome, outcome)
          looks.abort()
          waited += await seen
        }
      }
      is((await it.word('stop', '--user')).exitCode, 0)
      const jobs = await jobsOf(it)
      ok(jobs.begun.length > 3, `${jobs.begun.length} jobs`)
      equal(jobs.begun.toSorted(), jobs.ended.toSorted())
      if (source === POLITE) ok(waited > 0, 'it said what it waited for')
    })
  }
}

test.long(
  'work that never ends: a person is told what is waited for, cancels, or goes on; after `busyMax` the switch does',
  async () => {
    await using it = await adopted(JOBS, {}, { update: { busyMax: '2s' } })
    await ask(it.port, 'GET', '/hang', null)
    const cancelled = await it.operate('/admin/update', { tag: 'v1.1.0' }, async () => {
      const wait = await waits(it)
      equal([wait.code, wait.count], ['work', 1])
      match(wait.says, /^waiting for "hangs", under way for \d+(s|m)?$/)
      is((await ask(it.port, 'POST', '/admin/update/cancel', it.password)).status, 200)
    })
    equal([cancelled.outcome, cancelled.waits, cancelled.cutWork], ['cancelled', undefined, undefined])
    const proceeded = await it.operate('/admin/update', { tag: 'v1.1.0' }, async () => {
      await waits(it)
      is((await ask(it.port, 'POST', '/admin/update/proceed', it.password)).status, 200)
    })
    equal([proceeded.outcome, proceeded.cutWork], ['updated', ['hangs']])
    const nothing = await ask(it.port, 'POST', '/admin/update/proceed', it.password)
    equal([nothing.status, (nothing.body as { code: string }).code], [409, 'too_late'])
    await ask(it.port, 'GET', '/hang', null)
    const back = await it.operate('/admin/update/rollback', undefined, async () => void (await waits(it)))
    is(back.outcome, 'rolled_back', 'after two seconds')
    await ask(it.port, 'GET', '/hang', null)
    const began = performance.now()
    const now = await it.word('upgrade', '--user', '--now')
    equal([now.exitCode, /^the switch interrupted unfinished work: "hangs"$/m.test(now.stdout)], [0, true], now.stdout)
    is(String((await ask(it.port, 'GET', '/', null)).body), 'v1.1.0')
    ok(performance.now() - began < 60_000)
  },
)

test.long(
  'the commands tell a wait for work as a wait: no step has that time, and `cancel` says what it has cancelled',
  async () => {
    await using it = await adopted(JOBS)
    await ask(it.port, 'GET', '/hang', null)
    const upgrade = it.word('upgrade', '--user')
    await waits(it)
    await sleep(1000)
    const { stdout } = await it.word('status', '--user')
    match(stdout, /update v1\.0\.0 to v1\.1\.0: waiting for "hangs", under way for \ds$/m)
    const again = await it.word('upgrade', '--user')
    match(again.stderr, /the service is busy: update from v1\.0\.0 to v1\.1\.0, waiting for "hangs"/)
    const cancel = await it.word('cancel', '--user')
    equal([cancel.exitCode, cancel.stderr], [0, ''])
    is(cancel.stdout, 'the update from v1.0.0 to v1.1.0 was cancelled: nothing has changed\n')
    const { stderr } = await upgrade
    match(stderr, /^done verify .*\n(.*\n)*failed wait /m)
    const status = (await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status
    const { verify = Infinity, wait = 0 } = status.operation?.durations ?? {}
    ok(wait > 900 && verify < wait, `verify ${verify} ms, wait ${wait} ms`)
  },
)

test('`busy: give-up`: the update ends with nothing changed, and the work goes on; a restart meanwhile is refused', async () => {
  await using it = await adopted(JOBS, {}, { update: { busyMax: '5s', busy: 'give-up' } })
  await ask(it.port, 'GET', '/hang', null)
  const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' }, async () => {
    const { exitCode, stderr } = await it.word('restart', '--user')
    is(exitCode, 6, stderr)
    match(stderr, /^error: the service is busy: update from v1\.0\.0 to v1\.1\.0, /m)
  })
  equal([outcome, error?.code], ['failed', 'busy'])
  match(
    error?.message ?? '',
    /^the application's work did not finish within 5s \(`busyMax`\): "hangs", under way for \ds$/,
  )
  is(String((await ask(it.port, 'GET', '/', null)).body), 'v1.0.0')
  const said = await it.word('upgrade', '--user', '--json')
  is(said.exitCode, 7)
})

test.long(
  '`busy: give-up`, and a person goes on at once: the switch waits for that work no longer, nor has clients wait for it',
  async () => {
    await using it = await adopted(JOBS, {}, { update: { busy: 'give-up' } })
    await ask(it.port, 'GET', '/hang', null)
    const { outcome, error, handover } = await it.operate('/admin/update', { tag: 'v1.1.0', now: true })
    equal([outcome, error], ['updated', null])
    ok((handover?.pauseMs ?? 0) < 2000, `${handover?.pauseMs} ms`)
  },
)

test('it is restarted, and stopped: it serves until its work has ended; in a restart clients wait then, after a stop they are refused', async () => {
  await using it = await adopted(JOBS)
  const during = async (word: string): Promise<number[]> => {
    const refusedAt: number[] = []
    await ask(it.port, 'GET', '/export', null)
    const began = performance.now()
    const get = () => ask(it.port, 'GET', '/', null).catch(() => refusedAt.push(performance.now() - began))
    const clients = Array.from({ length: 4 }, () => askingOn(get))
    is((await it.word(word, '--user')).exitCode, 0)
    await Promise.all(clients.map((client) => client.stop()))
    return refusedAt
  }
  const instance = async () =>
    ((await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status).instance
  const { pid } = await instance()
  equal(await during('restart'), [])
  ok((await instance()).pid !== pid)
  const [first = Infinity] = await during('stop')
  ok(first > EXPORT_MS * 0.9, `refused after ${Math.round(first)} ms`)
  const { begun, ended } = await jobsOf(it)
  equal([begun.length, ended], [2, begun])
})

test('an automatic update gives up five times', () => {
  const ended = { by: 'schedule', to: 'v1.1.0', error: { code: 'busy', message: '' } } as Operation
  const next = { by: 'schedule', kind: 'update', to: 'v1.1.0' } as const
  const times = (count: number) => Array.from({ length: count }, () => ended)
  for (const count of [0, 4]) is(busyOf(null, next, times(count)), 'give-up')
  is(busyOf(null, next, times(5)), 'cut')
  is(busyOf('give-up', next, times(5)), 'give-up', 'an operator has said so')
  is(busyOf(null, { ...next, to: 'v1.2.0' }, times(5)), 'give-up', 'another release')
  is(busyOf(null, { kind: 'update', to: 'v1.1.0' }, []), 'cut', 'a person')
  is(busyOf('give-up', { kind: 'rollback', to: 'v1.0.0' }, []), 'cut', 'a way back')
})

test('what the author calls: the result and the error are those of the work, and `whenQuiet` waits only while a switch is asked for', async () => {
  const works = makeWorks()
  is(await works.busy('a', async () => 7), 7)
  await rejects(
    works.busy('b', () => {
      throw new Error('own')
    }),
    (error) => error instanceof Error && error.message === 'own',
  )
  equal(works.underWay(), [])
  await (works.busy as (reason: string, work: unknown) => Promise<unknown>)('nothing', undefined)
  equal(works.underWay(), [])
  const end = works.busy('c'.repeat(500))
  is(works.underWay()[0]?.reason.length, 100)
  let isQuiet = false
  works.hold()
  void works.whenQuiet().then(() => (isQuiet = true))
  const resting = works.rest(60_000)
  await sleep(50)
  end()
  end()
  await resting
  is(isQuiet, false)
  works.resume()
  await works.whenQuiet()
  is(isQuiet, true)
  works.busy('d')
  await works.rest(30)
})

test.run()

async function waits(it: Adopted): Promise<NonNullable<Operation['waits']>[number]> {
  for (const deadline = Date.now() + 30_000; Date.now() < deadline; await sleep(20)) {
    const { body } = await ask(it.port, 'GET', '/admin/update/status', it.password)
    const [wait] = (body as Status).operation?.waits ?? []
    if (wait !== undefined) return wait
  }
  throw new Error('it waits for nothing')
}

/** How many looks at the status have shown that the operation waits for work. */
async function seesWork(it: Adopted, signal: AbortSignal): Promise<number> {
  let seen = 0
  while (!signal.aborted) {
    const { body } = await ask(it.port, 'GET', '/admin/update/status', it.password).catch(() => ({ body: null }))
    if ((body as Status | null)?.operation?.waits?.[0]?.code === 'work') seen++
    await sleep(20)
  }
  return seen
}
