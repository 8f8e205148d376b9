// What a release is blamed for, and what not; and what becomes of clients and service where either process ends in a moment in
// which the other one counts on it.

import { readFileSync, writeFileSync, rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import type { UpdateSettings } from '../agent/settings.ts'
import { startTimeOf } from '../agent/sockets/process.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { FAULTS_FILE, type StepFault } from './fixtures/at-steps.ts'
import { besides, isStopped, journalOf, processesBelow, sha256Of, until } from './fixtures/evidence.ts'
import { ILL_FILE } from './fixtures/faults.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, unpack } from './fixtures/releases.ts'
import { inTurns } from './fixtures/turns.ts'
import { CLOCK } from './fixtures/wild-clock.ts'
import { startLoad } from './lab/load.ts'
import { suite } from './suite.ts'

const AT_ONCE = 3
const NO_VERDICT =
  /v1\.1\.0 is not healthy \(.*\), but neither is this process, so v1\.1\.0 may not be at fault: waiting/

const built = Promise.all(['v0.9.0', 'v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))

const PROMISES: Record<string, () => Promise<void>> = {
  'a release that is ill from the start with its predecessor is waited for, and is updated to once both are well':
    async () => {
      await using world = await served()
      world.ill(true)
      await world.update()
      await world.said(NO_VERDICT)
      is((await world.status()).instance.version, 'v1.0.0', 'it does not accept before it is well')
      world.ill(false)
      is((await world.home.settled()).outcome, 'updated')
    },

  'a release that answers 503 while it warms up is waited for: not yet is no verdict': async () => {
    await using world = await served()
    await publishTo(join(world.home.home, 'no-feed'), [await scriptRelease('v1.1.0', 'warms-up')])
    await world.update()
    const { outcome, error } = await world.home.settled()
    equal([outcome, error], ['updated', null])
  },

  'until the commit the new process is the one that the kernel would end for lack of memory; then no longer':
    async () => {
      await using world = await served()
      const { pid } = (await world.status()).instance
      const riskOf = (one: number) => Number(readFileSync(`/proc/${one}/oom_score_adj`, 'utf8'))
      const usual = riskOf(pid)
      await world.update()
      await world.said(/v1\.1\.0 \(pid \d+\) is accepting/)
      const next = processesBelow(world.home.home).find((one) => one !== pid) ?? 0
      equal([riskOf(pid), riskOf(next)], [usual, 1000])
      is((await world.home.settled()).outcome, 'updated')
      is(riskOf(next), usual)
    },

  'one that falls ill with its predecessor in probation is waited for too': async () => {
    await using world = await served()
    await world.update()
    await world.said(/v1\.1\.0 \(pid \d+\) is accepting/)
    world.ill(true)
    await world.said(NO_VERDICT)
    world.ill(false)
    is((await world.home.settled()).outcome, 'updated')
  },

  'where neither gets well it is taken back in the end, and is not blamed: the next try may have it': async () => {
    for (const isLate of [false, true]) {
      await using world = await served({ hangTimeout: '500ms', readyTimeout: '3s' })
      if (!isLate) world.ill(true)
      await world.update()
      if (isLate) await world.said(/v1\.1\.0 \(pid \d+\) is accepting/)
      world.ill(true)
      const ended = await world.home.settled(40_000)
      is(ended.outcome, 'reverted')
      match(ended.error?.message ?? '', /neither process is healthy/)
      equal((await journalOf(world.home)).bad, [])
      await world.isAsBefore()
      world.ill(false)
      await world.update(null)
      is((await world.home.settled()).outcome, 'updated', '`latest` does not skip it')
    }
  },

  'a predecessor that is told to stop in probation gives its connections away: none is closed, nothing is lost':
    async () => {
      await using world = await served({ probation: '3s', drainTimeout: '5s' })
      const port = world.home.port ?? 0
      const common = { port, path: '/version' }
      const loads = [
        startLoad({ ...common, mode: 'keepalive', clients: 150, thinkMs: [500, 1500] }),
        startLoad({ ...common, mode: 'keepalive', clients: 8, thinkMs: [0, 10] }),
        startLoad({ ...common, mode: 'fresh', clients: 4, thinkMs: [0, 10] }),
      ]
      await until('all of them connected', () => (loads[0]?.snapshot().ok ?? 0) > 150)
      const { pid } = (await world.status()).instance
      await world.update()
      await world.said(/v1\.1\.0 \(pid \d+\) is accepting/)
      process.kill(pid, 'SIGTERM')
      is((await world.home.settled()).outcome, 'updated')
      await until('the predecessor to leave', () => !processesBelow(world.home.home).includes(pid))
      const asked = loads.map((load) => load.snapshot().ok)
      await until('answers to all of them', () =>
        loads.every((load, at) => load.snapshot().ok > (asked[at] ?? 0) + 150),
      )
      for (const load of loads) {
        const { lost, closed, errors, mode, clients } = await load.stop()
        equal({ lost, closed }, { lost: 0, closed: 0 }, `${clients} ${mode}: ${JSON.stringify(errors)}`)
      }
    },

  'a successor that dies when its predecessor has closed its state already: the previous release is started, nobody is refused':
    async () => {
      await using world = await served({ hangTimeout: '20s' })
      const load = startLoad({
        port: world.home.port ?? 0,
        path: '/version',
        mode: 'fresh',
        clients: 4,
        thinkMs: [5, 20],
      })
      const { pid } = (await world.status()).instance
      await world.arm([{ step: 'committed', signal: 'SIGSTOP' }])
      const operation = await world.update()
      await world.said(new RegExp(`^${startTimeOf(pid)} committed$`, 'm'), world.taken)
      const successor = processesBelow(world.home.home).find((one) => one !== pid) ?? 0
      process.kill(successor, 'SIGKILL')
      await until('it to be dead', () => startTimeOf(successor) === null)
      await until('its predecessor to be stopped', () => isStopped(pid))
      process.kill(pid, 'SIGCONT')
      const ended = await world.home.settled()
      equal([ended.id, ended.outcome], [operation.id, 'reverted'])
      const { instance } = await world.status()
      is(instance.version, 'v1.0.0')
      ok(instance.pid !== pid && instance.pid !== successor, 'another process')
      await world.isAsBefore()
      const { errors, ok: answered } = await load.stop()
      equal(
        Object.keys(errors).filter((error) => error.startsWith('connect')),
        [],
      )
      ok(answered > 20)
    },

  'a wall clock that is set an hour forward at every step, and between them, shortens no wait: nothing is cut early':
    () => atAnyHour('forward'),

  'nor does one that is set back prolong any: the switch ends, and the stop does': () => atAnyHour('back'),
}

const test = suite('probation', { timeoutMs: 90_000 })

const endings = inTurns(AT_ONCE, Object.values(PROMISES), (body) => body())
for (const [index, title] of Object.keys(PROMISES).entries()) test(title, () => endings[index])

test.run()

interface World extends AsyncDisposable {
  home: Install
  /** whether every process of it is ill */
  ill(isIll: boolean): void
  arm(faults: StepFault[]): Promise<void>
  /** where the steps that were taken stand */
  taken: string
  update(tag?: string | null): Promise<Operation>
  status(): Promise<Status>
  /** waits until it has said so; in its log, or in this file */
  said(words: RegExp, file?: string): Promise<void>
  isAsBefore(): Promise<void>
}

/** v1.0.0 with v0.9.0 as its backup; the feed has v1.1.0. */
async function served(update: UpdateSettings = {}, environment: Record<string, string> = {}): Promise<World> {
  const [before, old, next] = await built
  if (before === undefined || old === undefined || next === undefined) throw new Error('no releases')
  const home = await install({ release: old, update: { probation: '1500ms', ...update } })
  await unpack(before, home.backup)
  await publishTo(join(home.home, 'no-feed'), [next])
  const [illness, faults] = [join(home.home, 'ill'), join(home.home, 'faults.json')]
  await home.start({ [ILL_FILE]: illness, [FAULTS_FILE]: faults, ...environment })
  return {
    home,
    taken: `${faults}.taken`,
    ill: (isIll) => (isIll ? writeFileSync(illness, '') : rmSync(illness)),
    arm: (list) => writeFile(faults, JSON.stringify(list)),
    async update(tag = 'v1.1.0') {
      const { status, body } = await home.api('POST', '/admin/update', tag === null ? undefined : { tag })
      is(status, 202, JSON.stringify(body))
      return body as Operation
    },
    status: async () => (await home.api('GET', '/admin/update/status')).body as Status,
    said: async (words, file) => {
      const text = () => (file === undefined ? home.output() : readFile(file, 'utf8').catch(() => ''))
      await until(String(words), async () => words.test(await text()))
    },
    async isAsBefore() {
      is(await sha256Of(home.executable), old.sha256, 'executable')
      is(await sha256Of(home.backup), before.sha256, 'backup')
      await until('nothing beside it', async () => (await besides(home)).join() === 'beacon,beacon.backup,receipt.json')
      await until('one process', () => processesBelow(home.home).length === 1)
    },
    [Symbol.asyncDispose]: () => home[Symbol.asyncDispose](),
  }
}

/** One request ends in the drain, and one never does: in a handover, and when the service is stopped. */
async function atAnyHour(way: 'forward' | 'back'): Promise<void> {
  const probationMs = 1500
  await using world = await served({ probation: `${probationMs}ms`, drainTimeout: '4s' }, { [CLOCK]: way })
  const { home } = world
  const { pid } = (await world.status()).instance
  const [slow] = [await halfPosted(home), await halfPosted(home)]
  await world.update()
  await world.said(new RegExp(`^clock: ${pid} half at`, 'm'))
  await manyJumps(home, pid)
  is(await slow.finished(), 201)
  const { outcome, handover } = await home.settled()
  equal([outcome, handover?.cut], ['updated', 1])
  const output = await home.output()
  const at = (step: string) => Number(new RegExp(`^clock: ${pid} ${step} at (\\d+)$`, 'm').exec(output)?.[1])
  ok(at('stood') - at('ready') >= probationMs, `it was on probation for ${at('stood') - at('ready')} ms`)

  const next = (await world.status()).instance.pid
  const [last] = [await halfPosted(home), await halfPosted(home)]
  process.kill(next, 'SIGTERM')
  await world.said(/stopping \(SIGTERM\)/)
  await manyJumps(home, next)
  is(await last.finished(), 201)
  await until('it to stop', () => processesBelow(home.home).length === 0)
}

/** Whoever looks at the clock now and then has seen it jump. */
async function manyJumps({ output }: Install, pid: number): Promise<void> {
  const count = async () => (await output()).split(`clock: ${pid} in between`).length
  const before = await count()
  await until('the clock to jump', async () => (await count()) > before + 10)
}

/** A request whose body has come by half, so that it stays where it is; `finished` sends the rest, and resolves to the status. */
async function halfPosted({ port }: Install): Promise<{ finished(): Promise<number> }> {
  const body = '{"name":"slow"}'
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const call = request({ port: port ?? 0, method: 'POST', path: '/api/tokens', agent: false, headers })
  const status = new Promise<number>((resolve, reject) => {
    call.once('response', (response) => resolve(response.resume().statusCode ?? 0)).once('error', reject)
  })
  status.catch(() => {})
  await new Promise<void>((resolve) => call.write(body.slice(0, 5), () => resolve()))
  return {
    finished: () => {
      call.end(body.slice(5))
      return status
    },
  }
}
