// Cancelling: until the swap, and then nothing has changed; from the swap on it is too late.

import { existsSync, readdirSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { UpdateSettings } from '../agent/settings.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, match } from './assert.ts'
import { journalOf, processesBelow, sha256Of, until } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease } from './fixtures/releases.ts'
import { conforms } from './lab/openapi.ts'
import { type Faults, releaseServer } from './lab/release-server.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const built = Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))
const test = suite('cancel', { timeoutMs: 60_000 })

test('an update that is cancelled while it downloads has changed nothing, and the next one goes through', async () => {
  await using world = await withFeed({ turns: [{ stallAfter: 20_000 }] })
  const { home } = world
  const before = await statusOf(home)
  const [file, beside] = [await sha256Of(home.executable), readdirSync(join(home.home, 'opt'))]
  is((await home.api('POST', '/admin/update')).status, 202)
  await until('some bytes', async () => ((await statusOf(home)).operation?.bytes ?? 0) > 0)
  const answer = await home.api('POST', '/admin/update/cancel')
  conforms({ method: 'POST', path: '/admin/update/cancel', ...answer })
  is(answer.status, 200, JSON.stringify(answer.body))
  const cancelled = answer.body as Operation
  equal([cancelled.outcome, cancelled.error?.code, cancelled.stage], ['cancelled', 'cancelled', 'download'])
  const after = await statusOf(home)
  equal(after.instance, before.instance)
  equal([after.state, after.operation?.outcome, after.history.length], ['idle', 'cancelled', 1])
  is(await sha256Of(home.executable), file)
  equal(readdirSync(join(home.home, 'opt')), beside)
  is((await home.api('POST', '/admin/update')).status, 202, 'it is not a bad release for that')
  is((await home.settled()).outcome, 'updated')
})

test('cancelling takes effect while the feed says nothing at all', async () => {
  await using world = await withFeed({ silent: true })
  const { home } = world
  is((await home.api('POST', '/admin/update')).status, 202)
  const { status, body } = await home.api('POST', '/admin/update/cancel')
  is(status, 200)
  equal([(body as Operation).outcome, (body as Operation).stage], ['cancelled', 'check'])
})

test('a service that is told to stop in the middle of an update does not hold that against the release', async () => {
  await using world = await withFeed({ turns: [{ stallAfter: 20_000 }] }, { drainTimeout: '20s' })
  const { home } = world
  const before = await sha256Of(home.executable)
  is((await home.api('POST', '/admin/update')).status, 202)
  await until('some bytes', async () => ((await statusOf(home)).operation?.bytes ?? 0) > 0)
  // a request that has not ended keeps the process until its update comes to the restart
  const busy = connect(home.port ?? 0, '127.0.0.1')
  busy.on('error', () => {})
  busy.write('POST /api/logs HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{')
  is((await home.api('GET', '/version')).status, 200, 'a later connection: so the earlier one is accepted')
  for (const pid of home.pids()) process.kill(pid, 'SIGTERM')
  world.heal()
  const ended = await until('the end of the update', async () => {
    const { operation } = await journalOf(home)
    return operation !== null && operation.outcome !== null && operation
  })
  equal([ended.outcome, ended.error?.code, ended.stage], ['reverted', 'restart_failed', 'restart'])
  equal((await journalOf(home)).bad, [])
  match(ended.error?.message ?? '', /did not take over: the running process was told to stop/)
  is(await sha256Of(home.executable), before)
  busy.destroy()
  await until('it to leave', () => home.pids().length === 0)
  await home.start()
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
})

test('from the swap on it is too late, and where nothing is in flight', async () => {
  await using world = await withFeed({})
  const { home } = world
  const refused = async (why: RegExp) => {
    const answer = await home.api('POST', '/admin/update/cancel')
    conforms({ method: 'POST', path: '/admin/update/cancel', ...answer })
    equal([answer.status, (answer.body as { code: string }).code], [409, 'too_late'])
    match((answer.body as { detail: string }).detail, why)
  }
  await refused(/^no operation is running$/)
  is((await home.api('POST', '/admin/update')).status, 202)
  await until('its restart', async () => (await statusOf(home)).operation?.stage === 'restart')
  await refused(/is in the restart stage/)
  await until('the new process', async () => (await statusOf(home)).instance.version === 'v1.1.0')
  const { probation } = await until('its probation', async () => {
    const status = await statusOf(home)
    return status.probation !== null && status
  })
  equal([probation?.tag, Date.parse(probation?.until ?? '') - Date.parse(probation?.since ?? '')], ['v1.1.0', 1000])
  is((await home.settled()).outcome, 'updated')
  await refused(/^no operation is running: update \S+ has ended \(updated\)$/)
  is((await statusOf(home)).probation, null)
  await until('one process', () => processesBelow(home.home).length === 1)
  is(existsSync(home.backup), true)
})

test.run()

async function statusOf(home: Install): Promise<Status> {
  return (await home.api('GET', '/admin/update/status')).body as Status
}

/** v1.0.0 runs; v1.1.0 is in a feed that has these faults. */
async function withFeed(
  faults: Faults,
  update: UpdateSettings = {},
): Promise<AsyncDisposable & { home: Install; heal(): void }> {
  await using stack = new AsyncDisposableStack()
  const list = await built
  const folder = stack.use(await temporary('cancel')).path
  const server = stack.use(await releaseServer({ dir: await publishTo(folder, list), ...faults }))
  const home = stack.use(
    await install({ release: list[0] as TestRelease, feed: server.staticUrl, update: { ...update } }),
  )
  await home.start()
  const kept = stack.move()
  return { home, heal: () => server.heal(), [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
