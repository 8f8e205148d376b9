// @deadlineMs 600000
// A stop-first switch: an application that was written for one process is never two, and nobody is refused.

import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { startTimeOf } from '../agent/sockets/process.ts'
import type { Status } from '../agent/words/state.ts'
import { type Inheritance, INHERITANCE } from '../agent/words/wire.ts'
import { equal, is, match, ok } from './assert.ts'
import { journalOf, until } from './fixtures/evidence.ts'
import { ask } from './fixtures/install.ts'
import { openWorld } from './fixtures/only-world.ts'
import type { Totals } from './lab/load.ts'
import { suite } from './suite.ts'

const test = suite('alone', { timeoutMs: 300_000 })

/** after which a supervision has found that nobody is there, and has started the service */
const LOOKED_MS = 1500

test('under load, forth and back: two processes never live at once, nobody is refused, every row is kept', async () => {
  await using world = await openWorld()
  const load = world.load()
  await sleep(200)
  const done = await world.update(null)
  is(done.outcome, 'updated', JSON.stringify(done.error))
  ok((done.handover?.pauseMs ?? 0) > 0)
  await sleep(200)
  await world.home.api('POST', '/admin/update/rollback')
  is((await world.home.settled()).outcome, 'rolled_back')
  await sleep(200)
  equal(faultsOf(await load.stop()), [])
  equal(await world.wrong(), [])
  const said = (await world.lines()).map((line) => line.replace(/ \d+:/, ''))
  const ends = (tag: string) => [`${tag} jobs end`, `${tag} stop handover`, `${tag} stopped`]
  const begins = (tag: string) => [`${tag} began`, `${tag} jobs begin`]
  const [old, next] = ['v1.0.0', 'v1.1.0']
  equal(said, [...begins(old), ...ends(old), ...begins(next), ...ends(next), ...begins(old)])
})

test('a release that must be the only one replaces one that would live beside it, and goes back: stop-first, both ways', async () => {
  await using world = await openWorld({}, false, { TOGETHER: '1' })
  const load = world.load()
  await sleep(100)
  is((await world.update(null)).outcome, 'updated')
  await world.home.api('POST', '/admin/update/rollback')
  is((await world.home.settled()).outcome, 'rolled_back')
  await sleep(100)
  equal(faultsOf(await load.stop()), [])
  equal(await world.wrong(), [])
})

test('what was in memory goes along, there and back, and from a release that fails; what cannot is named', async () => {
  await using world = await openWorld()
  const count = async () => Number((await ask(world.port, 'GET', '/session/1', null)).body)
  is(await count(), 1)
  is((await world.update('throws-later')).outcome, 'reverted')
  is(await count(), 2)
  is((await world.update(null)).outcome, 'updated')
  is(await count(), 3)
  await world.home.api('POST', '/admin/update/rollback')
  is((await world.home.settled()).outcome, 'rolled_back')
  is(await count(), 4)
  match(await world.home.output(), /the value `what cannot travel` cannot be handed over: .*could not be cloned/)
})

test('what was in memory is there too for a new process whose holder has died before it began', async () => {
  await using world = await openWorld()
  const count = async () => Number((await ask(world.port, 'GET', '/session/1', null)).body)
  is(await count(), 1)
  await world.faultAt('holder', [{ step: 'locked', signal: 'SIGKILL' }])
  is((await world.update(null)).outcome, 'updated')
  is(await count(), 2)
})

test.long(
  'a request that does not end: the switch waits and tries again, then cuts it, or gives up if that is said',
  async () => {
    await using world = await openWorld({ quietTimeout: '200ms' })
    const slow = new Promise((resolve) => {
      const asked = request({ port: world.port, path: '/slow/200000' }, () => resolve('answered'))
      asked.once('error', () => resolve('cut'))
      asked.end()
    })
    await sleep(100)
    await world.begin(null)
    // three attempts, ten seconds apart, after a minute in which no request is younger
    await until('the first attempt', async () => /trying again in 10 s/.test(await world.home.output()), 90_000)
    is((await ask(world.port, 'GET', '/', null)).body, 'v1.0.0')
    const { operation } = (await world.home.api('GET', '/admin/update/status')).body as Status
    match(operation?.waits?.[0]?.says ?? '', /1 requests? .*did not finish within 200 ms|trying again in 10 s/)
    const done = await world.home.settled(60_000)
    is(done.outcome, 'updated')
    is(done.handover?.cut, 1)
    is(done.handover?.pausesMs?.length, 3, 'it told of each time in which nobody was served')
    is(await slow, 'cut')
    equal(await world.wrong(), [])
  },
)

test.long(
  'a release that listens on every address instead of one, and back: the socket stays, and nobody is refused',
  async () => {
    await using world = await openWorld({})
    const load = world.load()
    await sleep(100)
    is((await world.update('listens-everywhere')).outcome, 'updated')
    match(
      await world.home.output(),
      /still listening on 127\.0\.0\.1:\d+, as the previous release did; 0\.0\.0\.0:\d+ takes effect when/,
    )
    await sleep(200)
    await world.home.api('POST', '/admin/update/rollback')
    is((await world.home.settled(60_000)).outcome, 'rolled_back')
    await sleep(200)
    equal(faultsOf(await load.stop()), [])
    equal(await world.wrong(), [])
  },
)

for (const [fault, why] of [
  ['exits', /v1\.1\.0 did not take over: it exited with code 1 after printing: .*it does not start/],
  ['throws-later', /v1\.1\.0 failed during probation: it exited with code 1 after printing: .*TypeError/],
  ['never-listens', /v1\.1\.0 did not take over: it was not ready within 5000 ms/],
  ['listens-elsewhere', /v1\.1\.0 did not take over: expected it to listen on 127\.0\.0\.1:\d+, got 127\.0\.0\.1:0/],
  ['ill', /v1\.1\.0 did not take over: it was not ready within 5000 ms: expected status 2xx from \/, got 500/],
] as const) {
  const register = fault === 'throws-later' ? test : test.long
  register(
    `a new release that ${fault}: the old one begins again when it is gone, and answers whoever waited`,
    async () => {
      // a good release on a slow machine is ready within this time, too
      const isLate = fault === 'never-listens' || fault === 'ill'
      const readyMs = isLate ? 5000 : 20_000
      await using world = await openWorld({ readyTimeout: `${readyMs}ms` })
      const load = world.load()
      await sleep(100)
      const done = await world.update(fault)
      is(done.outcome, 'reverted', JSON.stringify(done))
      ok((done.handover?.pauseMs ?? 0) > (isLate ? readyMs : 0), 'until the old one serves again')
      // one that has served was the end of the first pause
      is(done.handover?.pausesMs?.length, fault === 'throws-later' ? 2 : 1)
      match(done.error?.message ?? '', why)
      await sleep(200)
      const totals = await load.stop()
      equal(await world.wrong(), [])
      // a process that dies takes with it what it had received
      if (fault !== 'throws-later') equal(faultsOf(totals), [])
      is((await ask(world.port, 'GET', '/', null)).body, 'v1.0.0')
      const { bad, history } = await journalOf(world.home)
      equal(
        bad.map(({ tag }) => tag),
        ['v1.1.0'],
      )
      is(history.length, 1)
      // it can be updated again
      is((await world.update(null)).outcome, 'updated')
      equal(await world.wrong(), [])
    },
  )
}

test.long('a release that answers 503 while it warms up is waited for, and nobody is refused', async () => {
  await using world = await openWorld()
  const load = world.load()
  await sleep(100)
  const done = await world.update('warms-up')
  equal([done.outcome, done.error], ['updated', null])
  equal((await journalOf(world.home)).bad, [])
  await load.stop()
  equal(await world.wrong(), [])
})

test.long(
  'a release that hangs in probation: the report says how long clients waited for it, not only for the two changes of hands',
  async () => {
    const hangMs = 1500
    await using world = await openWorld({ hangTimeout: `${hangMs}ms`, probation: '5s' })
    const done = await world.update('hangs-later')
    is(done.outcome, 'reverted', JSON.stringify(done))
    const [first = 0, second = 0, ...more] = done.handover?.pausesMs ?? []
    equal(more, [])
    ok(first > 0 && second >= hangMs, JSON.stringify(done.handover))
    is(done.handover?.pauseMs, Math.max(first, second))
    is((await ask(world.port, 'GET', '/', null)).body, 'v1.0.0')
  },
)

test.long('a release that starts more slowly than an update may is left by a rollback all the same', async () => {
  await using world = await openWorld({ maxPause: '100ms' })
  const done = await world.update('starts-slowly')
  is(done.outcome, 'updated', JSON.stringify(done.error))
  await world.beginRollback()
  const back = await world.home.settled()
  is(back.outcome, 'rolled_back', JSON.stringify(back.error))
  equal(await world.wrong(), [])
})

test.long(
  'a supervision takes the holder for the service: it starts no second one while a release is put back',
  async () => {
    await using world = await openWorld({}, true)
    // nobody but the holder lives: this is how it looks on a slow disk
    await world.faultAt('holder', [{ step: 'ended', signal: 'SIGSTOP' }])
    await world.begin('exits')
    await until('the holder to be stopped', async () => (await world.left('holder')).length === 0)
    const [holder = 0, ...others] = world.home.pids()
    equal(others, [])
    await sleep(LOOKED_MS)
    equal(world.home.pids(), [holder])
    process.kill(holder, 'SIGCONT')
    is((await world.home.settled()).outcome, 'reverted')
    equal(await world.wrong(), [])
  },
)

for (const how of ['throws', 'hangs', 'blocks']) {
  test.long(`an old one whose onStop ${how} is waited for, and ended: the new one begins when it is gone`, async () => {
    await using world = await openWorld({ stopTimeout: '1s' })
    await writeFile(join(world.home.stateDirectory, 'stop'), how)
    const load = world.load()
    await sleep(100)
    const done = await world.update(null)
    is(done.outcome, 'updated', JSON.stringify(done.error))
    equal(faultsOf(await load.stop()), [])
    equal(await world.wrong(), [])
  })
}

test.long('a holder that is told to stop in the probation leaves, and the new process goes on without it', async () => {
  await using world = await openWorld()
  await world.faultAt('holder', [{ step: 'passed on', signal: 'SIGTERM' }])
  const load = world.load()
  is((await world.update(null)).outcome, 'updated')
  equal(faultsOf(await load.stop()), [])
  is((await ask(world.port, 'GET', '/', null)).body, 'v1.1.0')
  equal(await world.wrong(), [])
})

test('a successor whose holder was dead before it began does not begin beside the old process', async () => {
  const living = (pid: number) => ({ pid, startTime: startTimeOf(pid) })
  const dead = { pid: process.ppid, startTime: '1' } // the kernel has given the pid to another
  const [own, parent] = [living(process.pid), living(process.ppid)]
  is(await atGate({ predecessor: dead, gate: { descriptor: 9, old: own } }), '')
  is(await atGate({ predecessor: dead, gate: { descriptor: 9, old: dead } }), 'began')
  // not its parent, and alive: it is a child of the application's
  is(await atGate({ predecessor: parent, gate: { descriptor: 9, old: own } }), 'began')
})

test.run()

/** What the first code of a release says after its gate, if it comes through. */
async function atGate(given: Pick<Inheritance, 'predecessor' | 'gate'>): Promise<string> {
  const inheritance = { ...given, channel: { messages: 7, packets: 8 }, hangMs: 1000, listeners: [] }
  const gate = new URL('../agent/handover/gate.ts', import.meta.url).href
  const code = `import { waitAtGate } from '${gate}'
    waitAtGate({ tag: 'v1.1.0', order: 'stop-first' })
    process.stdout.write('began')`
  const env = { ...process.env, [INHERITANCE]: JSON.stringify(inheritance) }
  const args = ['--input-type=module', '--eval', code]
  return (await promisify(execFile)(process.execPath, args, { env, timeout: 20_000 })).stdout
}

function faultsOf({ ok: answered, lost, closed, errors, closedBy }: Totals): string[] {
  const faults = answered > 50 ? [] : [`only ${answered} requests were answered`]
  if (lost > 0) faults.push(`lost ${lost}: ${JSON.stringify(errors)}`)
  if (closed > 0) faults.push(`closed ${closed}: ${JSON.stringify(closedBy)}`)
  return faults
}
