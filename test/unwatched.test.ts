// A release on probation that nobody watches: whoever watched it was killed, or it was restarted in its probation. It is asked whether it is
// well before it counts as proved. If it is not, the old release is put back; where nobody supervises, it stays, and the status says so.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { HandoverStep } from '../agent/handover/moments.ts'
import type { Status } from '../agent/words/state.ts'
import { bundle } from '../deploy/make/bundle.ts'
import { equal, is, match } from './assert.ts'
import { FAULTS_FILE } from './fixtures/at-steps.ts'
import { journalOf, until } from './fixtures/evidence.ts'
import { ask, type Install } from './fixtures/install.ts'
import { openWorld } from './fixtures/only-world.ts'
import { type Stranger, stranger, type StrangerOptions } from './fixtures/stranger.ts'
import { inTurns } from './fixtures/turns.ts'
import { isLong, suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('unwatched', { timeoutMs: 180_000 })
const AT_ONCE = 3
const [READY_MS, PROBATION_MS] = [4000, 500]
const NOT_WELL = /it was not healthy within 4000 ms: expected status 2xx from \/\w*, got 50[03]/

const HEALTHY = `import { createServer } from 'node:http'
let status = 200
createServer((request, response) => response.writeHead(status).end('TAG ' + process.pid))
  .listen(Number(process.env.PORT), process.env.HOST)`

const PROMISES: Record<string, () => Promise<void>> = {
  'stop-first, the holder is killed as it takes back a release that never got well: that one is not committed, and the old one is put back':
    async () => {
      await using world = await openWorld({ readyTimeout: `${READY_MS}ms`, probation: `${PROBATION_MS}ms` }, true)
      await world.faultAt('holder', [{ step: 'reverting', signal: 'SIGKILL' }])
      const { outcome, error } = await world.update('ill')
      equal(await world.left('holder'), [])
      equal([outcome, error?.code], ['reverted', 'probation_failed'])
      match(error?.message ?? '', /^v1\.1\.0 failed 2 times during probation: it was not healthy/)
      match(error?.message ?? '', NOT_WELL)
      await until('v1.0.0', async () => (await ask(world.port, 'GET', '/', null).catch(() => null))?.body === 'v1.0.0')
      await isHeldAgainst(world.home, 'v1.1.0')
      is((await world.update(null)).outcome, 'updated', 'with more time, or named, it is tried again')
      equal(await world.wrong(), [])
    },

  'a release that is restarted in its probation, and is not well from then on, is not committed: the old one is put back':
    async () => {
      await using world = await openWorld({ readyTimeout: `${READY_MS}ms`, probation: '4s' }, true)
      await world.faultAt('holder', [{ step: 'passed on', signal: 'SIGKILL' }])
      await world.begin(null)
      const status = async () => (await world.home.api('GET', '/admin/update/status')).body as Status
      await until('the holder to be killed', async () => (await world.left('holder')).length === 0, 20_000)
      const pid = await until('v1.1.0', async () => {
        const { instance } = await status()
        return instance.version === 'v1.1.0' && instance.pid
      })
      await writeFile(join(world.home.stateDirectory, 'fault'), 'ill')
      process.kill(pid, 'SIGKILL')
      const { outcome, error } = await world.home.settled(60_000)
      equal([outcome, error?.code], ['reverted', 'probation_failed'])
      match(error?.message ?? '', NOT_WELL)
      is((await status()).instance.version, 'v1.0.0')
    },

  'nobody supervises it: a release that is not well stays, the status says why, and a rollback puts the old one back':
    async () => {
      await using world = await openWorld({ readyTimeout: `${READY_MS}ms`, probation: `${PROBATION_MS}ms` })
      await world.faultAt('holder', [{ step: 'reverting', signal: 'SIGKILL' }])
      const { outcome, error } = await world.update('ill')
      equal(await world.left('holder'), [])
      equal([outcome, error?.code], ['failed', 'probation_failed'])
      match(error?.message ?? '', /^v1\.1\.0 keeps serving, but has not proved itself: it was not healthy/)
      match(error?.message ?? '', NOT_WELL)
      match(error?.message ?? '', /nothing supervises the service, so run `(?:[a-z]+ )?rollback` to put v1\.0\.0 back$/)
      const { instance, probation } = (await world.home.api('GET', '/admin/update/status')).body as Status
      equal([instance.version, probation ?? null], ['v1.1.0', null])
      await isHeldAgainst(world.home, 'v1.1.0')
      await world.beginRollback()
      is((await world.home.settled(30_000)).outcome, 'rolled_back')
      is((await ask(world.port, 'GET', '/', null)).body, 'v1.0.0')
      equal(await world.wrong(), [])
    },

  'alone, a release that gets well only after its probation is waited for, and is committed': async () => {
    await using world = await openWorld({ readyTimeout: '8s', probation: '100ms' }, true)
    await world.faultAt('holder', [{ step: 'opened', signal: 'SIGKILL' }])
    is((await world.update('warms-up')).outcome, 'updated')
    equal(await world.left('holder'), [])
    is((await ask(world.port, 'GET', '/', null)).body, 'v1.1.0')
  },

  'start-first, the old process is killed as it takes back a release that fell ill in its probation: the old one is put back':
    async () => {
      await using it = await killedAt('reverting', {})
      const { outcome, error } = await it.host.operate('/admin/update', { tag: 'v1.1.0' })
      equal([outcome, error?.code], ['reverted', 'probation_failed'])
      match(error?.message ?? '', NOT_WELL)
      is(await it.left(), '[]')
      match(await until('an answer', () => it.host.get('/').catch(() => null)), /^v1\.0\.0 /)
    },

  'start-first, and nobody supervises it: it stays, and a rollback puts the old one back': async () => {
    await using it = await killedAt('reverting', { isSupervised: false })
    const { outcome, error } = await it.host.operate('/admin/update', { tag: 'v1.1.0' })
    equal([outcome, error?.code], ['failed', 'probation_failed'])
    match(error?.message ?? '', NOT_WELL)
    is(await it.left(), '[]')
    is((await it.host.operate('/admin/update/rollback')).outcome, 'rolled_back')
    match(await it.host.get('/'), /^v1\.0\.0 /)
  },
}

// in CI one of each order
const chosen = Object.entries(PROMISES).filter((_, at) => isLong || at % 2 === 0)
const endings = inTurns(AT_ONCE, chosen, ([, body]) => body())
for (const [index, [title]] of chosen.entries()) test(title, () => endings[index])

test.run()

/** A release that has not proved itself is late, not bad: nobody was there to compare it with the old one. */
async function isHeldAgainst(home: Install, tag: string): Promise<void> {
  const { bad } = await journalOf(home)
  equal(
    bad.map((one) => [one.tag, one.hadMs]),
    [[tag, READY_MS]],
  )
}

interface Killed extends AsyncDisposable {
  host: Stranger
  /** the faults that have not happened */
  left(): Promise<string>
}

/** Serves v1.0.0, has v1.1.0, which falls ill a second after its start, and kills a process of it at this step of a switch start-first. */
async function killedAt(step: HandoverStep, options: Partial<StrangerOptions>): Promise<Killed> {
  await using scope = new AsyncDisposableStack()
  const made = scope.use(await temporary('unwatched'))
  const [preload, steps] = [join(made.path, 'heeds-steps.cjs'), join(made.path, 'steps')]
  await writeFile(preload, await bundle({ entry: join(import.meta.dirname, 'fixtures/heeds-steps.ts'), define: {} }))
  await writeFile(`${steps}.app`, JSON.stringify([{ step, signal: 'SIGKILL' }]))
  const environment = { NODE_OPTIONS: `--require=${preload}`, [FAULTS_FILE]: steps }
  const update = { probation: '3s', readyTimeout: `${READY_MS}ms` }
  const config = { order: 'start-first' }
  const host = scope.use(await stranger({ text: HEALTHY, config, update, environment, ...options }))
  await host.release('v1.1.0', `${HEALTHY}\nsetTimeout(() => (status = 503), 1000)`)
  const all = scope.move()
  return {
    host,
    left: async () => await readFile(`${steps}.app`, 'utf8'),
    [Symbol.asyncDispose]: async () => await all.disposeAsync(),
  }
}
