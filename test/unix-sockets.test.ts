// A service behind a proxy on a unix socket, as people write it: it removes its path before it listens, or when it stops, and opens it for
// the proxy's user once it listens. No switch takes the name from the living socket, and a start gives it back if somebody else has.

import { spawn } from 'node:child_process'
import { rm, stat, unlink } from 'node:fs/promises'
import { request } from 'node:http'
import { mkdtemp, mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, ok } from './assert.ts'
import { askingOn } from './fixtures/evidence.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('unix sockets', { timeoutMs: 120_000 })
const ADAPTER = join(PROJECT, 'agent/adapters/auto.ts')

interface Ways {
  /** before it listens */
  clear: string
  /** once more of the application's */
  more?: string
}

/** How applications clear their path. */
const ways: Record<string, Ways> = {
  'removes its path long before it listens': {
    clear: `try { unlinkSync(path) } catch {}
      await new Promise((resolve) => setTimeout(resolve, 400))`,
  },
  'looks whether its path is there, removes it with promises, and again when it stops': {
    clear: `if (existsSync(path)) await rm(path)`,
    more: `onStop(() => new Promise((resolve) => server.close(() => unlink(path).then(resolve, resolve))))
      process.on('exit', () => { try { unlinkSync(path) } catch {} })`,
  },
  'removes its path through another process': {
    clear: `execFileSync('rm', ['-f', path])`,
  },
}

function application(path: string, { clear, more = '' }: Ways): string {
  return `import { onStop } from '${ADAPTER}'
    import { execFileSync } from 'node:child_process'
    import { chmodSync, existsSync, unlinkSync } from 'node:fs'
    import { rm, unlink } from 'node:fs/promises'
    import { createServer } from 'node:http'
    const path = ${JSON.stringify(path)}
    const answer = (request, response) => response.end(String(process.pid))
    ${clear}
    const server = createServer(answer).listen(path, () => chmodSync(path, 0o666))
    ${more}
    createServer(answer).listen(Number(process.env.PORT), process.env.HOST)`
}

for (const kind of ['stop-first', 'start-first'] as const)
  for (const [way, given] of Object.entries(ways)) {
    const isShort = kind === 'stop-first' && way.includes('promises')
    const register = isShort ? test : test.long
    register(
      `${kind}: an application that ${way} is updated, rolled back, gets a broken release, and is killed: its path leads to it`,
      async () => {
        await using folder = await socketFolder()
        const { path } = folder
        await using it = await adopted(application(path, given), { order: kind })
        const well = async () => {
          const pid = await eventually('an answer', () => pidOf(it), 30_000)
          is(await pidAt(path), pid)
          is((await stat(path)).mode & 0o777, 0o666)
          return pid
        }
        const first = await well()
        const isKept = !given.clear.includes('execFileSync')
        const client = askingOn(() => pidAt(path))
        const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(updated.outcome, 'updated', JSON.stringify(updated.error))
        const second = await well()
        ok(second !== first)
        is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
        const third = await well()
        const broken = application(path, given).replace('const server', 'process.exit(3)\nconst server')
        await it.release('v1.2.0', broken)
        is((await it.operate('/admin/update', { tag: 'v1.2.0' })).outcome, 'reverted')
        const fourth = await well()
        if (kind === 'start-first') is(fourth, third)
        const { answered, refused } = await client.stop()
        ok(answered > 20, `${answered} answered`)
        if (isKept) equal(refused, [])
        process.kill(fourth, 'SIGKILL')
        await eventually('another process', async () => ((await pidOf(it)) ?? fourth) !== fourth, 30_000)
        await well()
      },
    )
  }

test.long(
  'a socket whose folder was emptied while no process lived is bound anew, and the next crash and update find that one',
  async () => {
    await using folder = await socketFolder()
    const { path } = folder
    const text = application(path, { clear: '' }).replace(
      'const server',
      `await new Promise((resolve) => setTimeout(resolve, 500))\nconst server`,
    )
    await using it = await adopted(text, { order: 'start-first' })
    for (let crashes = 0; crashes < 2; crashes++) {
      const pid = await eventually('an answer', () => pidOf(it), 30_000)
      is(await pidAt(path), pid)
      process.kill(pid, 'SIGKILL')
      // as systemd does with RuntimeDirectory=
      await rm(dirname(path), { recursive: true })
      await mkdir(dirname(path))
      await eventually('another process', async () => ((await pidOf(it)) ?? pid) !== pid, 30_000)
      await eventually('the same at its path', async () => (await pidAt(path)) === (await pidOf(it)))
    }
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    is(await pidAt(path), await pidOf(it))
  },
)

for (const kind of ['start-first', 'stop-first'] as const) {
  const register = kind === 'start-first' ? test : test.long
  register(
    `${kind}: a folder that somebody empties while the service runs: after a release that fails, clients find the old one there`,
    async () => {
      await using folder = await socketFolder()
      const { path } = folder
      const text = application(path, { clear: '' })
      await using it = await adopted(text, { order: kind })
      const early = text.replace('const server', 'process.exit(3)\nconst server')
      const late = `${text}\nsetTimeout(() => process.exit(3), 200)`
      const ends = [early, late].slice(0, kind === 'start-first' ? 2 : 1)
      for (const [at, broken] of ends.entries()) {
        await eventually('an answer', () => pidOf(it), 30_000)
        await eventually('its own permissions', async () => ((await stat(path)).mode & 0o777) === 0o666)
        await new Promise((resolve) => setTimeout(resolve, 1200)) // it looks at them a second after it listens
        await rm(dirname(path), { recursive: true })
        await mkdir(dirname(path))
        await it.release(`v1.2.${at}`, broken)
        is((await it.operate('/admin/update', { tag: `v1.2.${at}` })).outcome, 'reverted')
        const pid = await eventually('an answer', () => pidOf(it), 30_000)
        is(await pidAt(path), pid)
        is((await stat(path)).mode & 0o777, 0o666)
      }
      // the socket that the manager holds is the new one
      const last = await pidOf(it)
      process.kill(last ?? 0, 'SIGKILL')
      await eventually('another process', async () => ((await pidOf(it)) ?? last) !== last, 30_000)
      await eventually('the same at its path', async () => (await pidAt(path)) === (await pidOf(it)))
      is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
      is(await pidAt(path), await pidOf(it))
    },
  )
}

test('a path that another process has taken meanwhile is not taken from it', async () => {
  await using folder = await socketFolder()
  const { path } = folder
  await using it = await adopted(application(path, { clear: '' }), { order: 'start-first' })
  const pid = await eventually('an answer', () => pidOf(it), 30_000)
  await unlink(path)
  const other = createOther(path)
  await eventually('the other', async () => (await stat(path)).isSocket())
  const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal(
    [outcome, /EADDRINUSE, another process is already listening on this address/.test(error?.message ?? '')],
    ['reverted', true],
    error?.message,
  )
  is(await pidOf(it), pid)
  is(await pidAt(path), other.pid)
  other.end()
})

test.run()

async function socketFolder(): Promise<AsyncDisposable & { path: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-unix-'))
  await mkdir(join(folder, 'run'))
  return {
    path: join(folder, 'run', 'app.sock'),
    [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true, force: true }),
  }
}

async function pidOf({ port }: Adopted): Promise<number | null> {
  const answer = await ask(port, 'GET', '/', null).catch(() => null)
  return answer?.status === 200 ? Number(answer.body) : null
}

async function pidAt(socketPath: string): Promise<number> {
  return await new Promise((resolve, reject) => {
    request({ socketPath, path: '/', agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (more: string) => (text += more))
      response.once('end', () => resolve(Number(text)))
    })
      .once('error', reject)
      .end()
  })
}

/** A process of somebody else that listens there. */
function createOther(path: string): { pid: number; end(): void } {
  const text = `require('node:http').createServer((request, response) => response.end(String(process.pid))).listen(${JSON.stringify(path)})`
  const child = spawn(process.execPath, ['-e', text], { stdio: 'inherit' })
  return { pid: child.pid ?? 0, end: () => void child.kill('SIGKILL') }
}
