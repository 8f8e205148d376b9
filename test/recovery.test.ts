// What nobody plans for: processes that are killed, stopped or told to stop in the middle of an operation, a journal that is
// garbage, a disk that cannot be written. The service comes back, and every operation gets its outcome under its own id.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { chmod, mkdir, open, readFile, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { UpdateSettings } from '../agent/settings.ts'
import { rescue } from '../agent/update/rescue.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { besides, journalOf, processesBelow, sha256Of, until } from './fixtures/evidence.ts'
import { ask, type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease, unpack } from './fixtures/releases.ts'
import { inTurns } from './fixtures/turns.ts'
import { conforms } from './lab/openapi.ts'
import { suite } from './suite.ts'

const AT_ONCE = 3

const built = Promise.all(['v0.9.0', 'v1.0.0', 'v1.1.0', 'v1.2.0'].map((tag) => scriptRelease(tag)))

/** The slowest first. */
const PROMISES: Record<string, () => Promise<void>> = {
  'a predecessor that hangs in probation is ended by its successor': async () => {
    const update = { drainTimeout: '100ms', readyTimeout: '3s' } as const
    await using home = await served({ update })
    const { predecessor, operation } = await handedOver(home)
    const gone = once(predecessor, 'exit')
    is(predecessor.exitCode, null, 'it must not have left yet')
    predecessor.kill('SIGSTOP')
    is((await ask(home.port ?? 0, 'GET', '/healthz', null)).status, 200, 'it serves meanwhile')
    await goesOn(home, operation, 'updated', 'v1.1.0')
    await gone
    match(await home.output(), /killing the previous process \(pid \d+\): it was unresponsive/)
  },

  'a predecessor that is killed in probation leaves a successor that finishes the operation': async () => {
    await using home = await served()
    const { predecessor, operation, successor } = await handedOver(home)
    predecessor.kill('SIGKILL')
    await goesOn(home, operation, 'updated', 'v1.1.0')
    is((await statusOf(home)).instance.pid, successor)
    await nextUpdateWorks(home)
  },

  'a predecessor that is told to stop in probation does too': async () => {
    await using home = await served()
    const { predecessor, operation } = await handedOver(home)
    predecessor.kill('SIGTERM')
    await goesOn(home, operation, 'updated', 'v1.1.0')
  },

  'a service that runs out of descriptors in an update lives, its operation ends, and the release is not blamed for it':
    async () => {
      for (const more of [0, 2, 5]) {
        await using home = await served()
        const pid = await processOf(home)
        const limit = (most: number) => is(spawnSync('prlimit', ['--pid', String(pid), `--nofile=${most}:`]).status, 0)
        await start(home)
        limit(readdirSync(`/proc/${pid}/fd`).length + more)
        // it need not be felt: what is left may be enough
        const felt = async () => /EMFILE|errno 24|finished/.test(await home.output())
        for (const by = performance.now() + 2500; performance.now() < by && !(await felt());) await sleep(50)
        limit(1024)
        const { outcome } = await home.settled()
        ok(outcome === 'failed' || outcome === 'reverted' || outcome === 'updated', String(outcome))
        is((await ask(home.port ?? 0, 'GET', '/healthz', null)).status, 200)
        equal((await journalOf(home)).bad, [])
        if (outcome !== 'updated') await nextUpdateWorks(home)
      }
    },

  'the first start of an install, and the next one, find nothing to clear up and say nothing of it': async () => {
    await using home = await served()
    await home.stop()
    await home.start()
    ok(!(await home.output()).includes('clean up'), await home.output())
    ok(existsSync(join(home.stateDirectory, 'update', 'reserve')), 'room to write down a rollback')
  },

  'a predecessor that is killed while its successor starts leaves one that serves': async () => {
    await using home = await served()
    const predecessor = await processOf(home)
    const operation = await start(home)
    await until('the successor', async () => /v1\.1\.0 \(pid \d+\) has started/.test(await home.output()))
    process.kill(predecessor, 'SIGKILL')
    await goesOn(home, operation, 'updated', 'v1.1.0')
    await nextUpdateWorks(home)
  },

  'when both are killed in probation the next start goes on with it, and commits': async () => {
    await using home = await served()
    const { operation } = await handedOver(home)
    await killAll(home)
    await home.start()
    const status = await statusOf(home)
    is(status.state, 'in_flight')
    is(status.operation?.id, operation.id)
    is(status.instance.version, 'v1.1.0')
    is((await call(home, 'POST', '/admin/update')).status, 409, 'the probation is an operation in flight')
    await goesOn(home, operation, 'updated', 'v1.1.0')
    await nextUpdateWorks(home)
  },

  'a release that fails twice in probation is given up by the rescue': async () => {
    await using home = await served()
    const { operation } = await handedOver(home)
    await killAll(home)
    equal(await rescue(home.receipt, { failed: true, reason: 'killed' }), { did: 'counted', failures: 1 })
    await home.start()
    is((await statusOf(home)).instance.version, 'v1.1.0', 'the first failure may have been chance')
    await killAll(home)
    const again = await rescue(home.receipt, { failed: true, reason: 'killed again' })
    equal(again, { did: 'reverted', from: 'v1.1.0', to: 'v1.0.0' })
    await isAsBefore(home)
    await home.start()
    const reverted = await goesOn(home, operation, 'reverted', 'v1.0.0')
    is(reverted.error?.code, 'probation_failed')
    match(reverted.error?.message ?? '', /v1\.1\.0 failed 2 times during probation: killed again/)
    equal(await rescue(home.receipt, { failed: true, reason: 'x' }), {
      did: 'nothing',
      why: 'no release is on probation',
    })
    equal(
      (await journalOf(home)).bad.map(({ tag }) => tag),
      ['v1.1.0'],
    )
    is((await statusOf(home)).backup, 'v0.9.0')
    await nextUpdateWorks(home)
  },

  'a rollback whose executable fails twice in probation is taken back by the rescue': async () => {
    await using home = await served()
    const before = await processOf(home)
    const operation = await start(home, '/admin/update/rollback')
    await until('the successor', async () => (await statusOf(home)).instance.version === 'v0.9.0')
    ok((await processOf(home)) !== before)
    await killAll(home)
    await rescue(home.receipt, { failed: true, reason: 'killed' })
    await home.start()
    await killAll(home)
    const again = await rescue(home.receipt, { failed: true, reason: 'killed again' })
    equal(again, { did: 'reverted', from: 'v0.9.0', to: 'v1.0.0' })
    await isAsBefore(home)
    await home.start()
    await goesOn(home, operation, 'reverted', 'v1.0.0')
  },

  'a stop in probation ends both processes, and the next start goes on with it': async () => {
    await using home = await served()
    const { operation, successor, predecessor } = await handedOver(home)
    const exited = once(predecessor, 'exit')
    process.kill(successor, 'SIGTERM')
    equal(await exited, [0, null])
    await until('both to leave', () => processesBelow(home.home).length === 0)
    const left = await journalOf(home)
    is(left.operation?.outcome, null, 'nothing is proved')
    is(left.probation?.to, 'v1.1.0')
    equal(left.bad, [])
    await home.start()
    await goesOn(home, operation, 'updated', 'v1.1.0')
  },

  'a stop of both at once does too': async () => {
    await using home = await served()
    const { operation } = await handedOver(home)
    await home.stop()
    is((await journalOf(home)).operation?.outcome, null)
    await home.start()
    await goesOn(home, operation, 'updated', 'v1.1.0')
  },

  'a stop lets requests in flight finish and takes no new ones': async () => {
    await using home = await served()
    const port = home.port ?? 0
    const stream = download(port, '/api/stream?intervalMs=20')
    const { first, finish } = upload(port)
    await Promise.all([stream.began, first])
    const pid = await processOf(home)
    process.kill(pid, 'SIGTERM')
    await until('the listener to be closed', () => isRefused(port))
    const answer = finish()
    match(
      await stream.whole,
      /event: drain\nretry: \d+\ndata: \{\}\n\n$/,
      'a stream ends with a word, not in the middle',
    )
    is(await answer, 201)
    await until('it to leave', () => processesBelow(home.home).length === 0)
    match(await home.output(), /stopping \(SIGTERM\)/)
  },

  'a journal that is garbage is kept aside, and the service starts afresh': async () => {
    await using home = await served({ isStarted: false })
    const garbage = Buffer.from('{"format":1,"operation":{"id":"x"},"history":[{\u0000\u0000\u0000')
    await mkdir(join(home.stateDirectory, 'update'), { recursive: true })
    const path = join(home.stateDirectory, 'update', 'journal.json')
    await writeFile(path, garbage)
    await home.start()
    const { state, operation, history } = await statusOf(home)
    equal({ state, operation, history }, { state: 'idle', operation: null, history: [] })
    equal(await readFile(`${path}.damaged`), garbage)
    match(await home.output(), /warning: cannot read the record of operations .*: started a new one/)
    await nextUpdateWorks(home)
  },

  'where the state directory cannot be written the service serves, and an update is refused with the reason':
    async () => {
      await using home = await served({ isStarted: false })
      const update = join(home.stateDirectory, 'update')
      await mkdir(update, { recursive: true })
      await startReadOnly(home, update)
      is((await ask(home.port ?? 0, 'GET', '/healthz', null)).status, 200)
      is((await statusOf(home)).state, 'idle')
      for (const path of ['/admin/update', '/admin/update/rollback']) {
        const { status, body } = await call(home, 'POST', path)
        const { code, detail, hint } = body as { code: string; detail: string; hint: string }
        is(`${status} ${code}`, '409 refused')
        ok(detail.includes(update), detail)
        match(detail, /read-only|readonly|permission|unable to open/i)
        match(hint, /state directory/)
      }
      await isAsBefore(home)
    },
}

const test = suite('recovery', { timeoutMs: 90_000 })

const titles = Object.keys(PROMISES)
const endings = inTurns(AT_ONCE, Object.values(PROMISES), (body) => body())
for (const [index, title] of titles.entries()) test(title, () => endings[index])

test.run()

interface Serving {
  update?: UpdateSettings
  isStarted?: boolean
}

/** v1.0.0 with v0.9.0 as its backup; the feed has v1.1.0 and v1.2.0. */
async function served({ update = {}, isStarted = true }: Serving = {}): Promise<Install> {
  const [before, old, next, after] = (await built) as [TestRelease, TestRelease, TestRelease, TestRelease]
  const home = await install({ release: old, update: { probation: '2500ms', ...update } })
  await unpack(before, home.backup)
  await publishTo(join(home.home, 'no-feed'), [next, after])
  children.set(home, isStarted ? await home.start() : null)
  return home
}

const children = new WeakMap<Install, ChildProcess | null>()

async function start(home: Install, path = '/admin/update', tag: string | null = 'v1.1.0'): Promise<Operation> {
  const { status, body } = await call(home, 'POST', path, path === '/admin/update' ? { tag } : undefined)
  is(status, 202, JSON.stringify(body))
  return body as Operation
}

/** An update to v1.1.0 that is on probation. */
async function handedOver(
  home: Install,
): Promise<{ predecessor: ChildProcess; successor: number; operation: Operation }> {
  const predecessor = children.get(home)
  if (!predecessor) throw new Error('it is not started')
  const operation = await start(home)
  const { pid } = await until('the successor to answer', async () => {
    const { instance, state } = await statusOf(home)
    is(state, 'in_flight')
    return instance.version === 'v1.1.0' && instance
  })
  return { predecessor, successor: pid, operation }
}

/** The operation gets this outcome under its own id, and one process serves this version. */
async function goesOn(
  home: Install,
  operation: Operation,
  outcome: Operation['outcome'],
  version: string,
): Promise<Operation> {
  const ended = await home.settled(40_000)
  is(ended.id, operation.id)
  is(ended.outcome, outcome, ended.error?.message ?? '')
  await until('one process', () => processesBelow(home.home).length === 1)
  const status = await statusOf(home)
  is(status.instance.version, version)
  is(status.history[0]?.id, operation.id)
  is((await journalOf(home)).probation, null)
  is((await ask(home.port ?? 0, 'GET', '/healthz', null)).status, 200)
  const files = ['beacon', 'beacon.backup', 'receipt.json'].join()
  // the receipt is written last of all
  await until(`${files} alone`, async () => (await besides(home)).join() === files)
  ok((await sha256Of(home.executable)) !== (await sha256Of(home.backup)), 'backup and executable')
  return ended
}

async function isAsBefore(home: Install): Promise<void> {
  const [before, old] = await built
  is(await sha256Of(home.executable), old?.sha256 ?? '', 'executable')
  is(await sha256Of(home.backup), before?.sha256 ?? '', 'backup')
}

async function nextUpdateWorks(home: Install): Promise<void> {
  const operation = await start(home, '/admin/update', 'v1.2.0')
  await goesOn(home, operation, 'updated', 'v1.2.0')
}

async function killAll(home: Install): Promise<void> {
  for (const pid of processesBelow(home.home)) process.kill(pid, 'SIGKILL')
  await until('all to be gone', () => processesBelow(home.home).length === 0)
}

async function processOf(home: Install): Promise<number> {
  return (await statusOf(home)).instance.pid
}

async function statusOf(home: Install): Promise<Status> {
  const { status, body } = await call(home, 'GET', '/admin/update/status')
  is(status, 200, JSON.stringify(body))
  return body as Status
}

async function call(home: Install, method: string, path: string, body?: unknown) {
  const answer = await home.api(method, path, body)
  conforms({ method, path, ...answer })
  return answer
}

/** The whole of an endless response, as far as the server lets it go. */
function download(port: number, path: string): { began: Promise<void>; whole: Promise<string> } {
  const began = Promise.withResolvers<void>()
  const whole = Promise.withResolvers<string>()
  let text = ''
  const asked = request({ host: '127.0.0.1', port, path, agent: false }, (response) => {
    response.on('data', (part: Buffer) => {
      text += part.toString()
      if (text.includes('id: 1')) began.resolve()
    })
    response.on('end', () => whole.resolve(text))
    response.on('error', whole.reject)
  })
  asked.on('error', (error) => {
    began.reject(error)
    whole.reject(error)
  })
  asked.end()
  whole.promise.catch(() => {}) // heard later
  return { began: began.promise, whole: whole.promise }
}

/** A request whose body comes in two parts, the second when it is told to. */
function upload(port: number): { first: Promise<void>; finish: () => Promise<number> } {
  const body = JSON.stringify({ message: 'sent slowly' })
  const first = Promise.withResolvers<void>()
  const status = Promise.withResolvers<number>()
  const headers = { 'content-length': body.length, expect: '100-continue' }
  const asked = request({ host: '127.0.0.1', port, path: '/api/logs', method: 'POST', agent: false, headers })
  asked.on('continue', () => asked.write(body.slice(0, 5), () => first.resolve()))
  asked.on('response', (response) => {
    response.resume()
    response.on('end', () => status.resolve(response.statusCode ?? 0))
  })
  asked.on('error', (error) => {
    first.reject(error)
    status.reject(error)
  })
  asked.flushHeaders()
  status.promise.catch(() => {}) // heard by whoever finishes it
  return {
    first: first.promise,
    finish: () => {
      asked.end(body.slice(5))
      return status.promise
    },
  }
}

function isRefused(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.once('error', () => resolve(true))
  })
}

/** Root may write everywhere but on a read-only mount, which goes with the process; for others the mode is enough. */
async function startReadOnly(home: Install, folder: string): Promise<void> {
  if (process.getuid?.() !== 0) {
    await chmod(folder, 0o555)
    await home.start()
    return
  }
  const script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" --config "$3"'
  const log = await open(home.logPath, 'a')
  spawn('unshare', ['-m', 'sh', '-c', script, 'sh', folder, home.executable, home.configPath], {
    stdio: ['ignore', log.fd, log.fd],
  })
  await log.close()
  await until('the service to start', async () => /serving v/.test(await home.output()))
}
