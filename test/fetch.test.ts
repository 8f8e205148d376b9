// A service downloads by another process of its executable: what that one does, and what is left of it, whoever of the two is killed.

import { existsSync, readdirSync, readlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { processesBelow, sha256Of, until } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease } from './fixtures/releases.ts'
import { type Faults, type ReleaseServer, releaseServer } from './lab/release-server.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const built = Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))
const test = suite('fetch', { timeoutMs: 60_000 })
/** the first connection brings so many bytes, and then nothing */
const STALLED: Faults = { turns: [{ stallAfter: 20_000 }] }

test('another process downloads: the service says how far it is, and has neither the connection nor the file', async () => {
  await using world = await withFeed(STALLED)
  const { home, server } = world
  const pid = await downloading(home)
  const [own = 0] = home.pids()
  ok(pid !== own)
  is((await statusOf(home)).operation?.stage, 'download')
  const opened = (of: number) => readdirSync(`/proc/${of}/fd`).map((fd) => linkOf(`/proc/${of}/fd/${fd}`))
  ok(opened(pid).some((path) => path.endsWith('.partial')))
  equal(
    opened(own).filter((path) => path.endsWith('.partial')),
    [],
  )
  server.heal()
  is((await home.api('POST', '/admin/update/cancel')).status, 200)
  await until('its end', () => !existsSync(`/proc/${pid}`))
  equal(
    readdirSync(dirname(home.executable)).filter((name) => name.includes('partial')),
    [],
  )
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
  is((await home.output()).includes('because the separate download process failed'), false)
})

test('if that process is killed, the service downloads by itself, and says so', async () => {
  await using world = await withFeed(STALLED)
  const { home } = world
  process.kill(await downloading(home), 'SIGKILL')
  const { outcome, error } = await home.settled()
  equal([outcome, error], ['updated', null])
  match(
    await home.output(),
    /the service is downloading v1\.1\.0 itself, because the separate download process failed: it was killed by SIGKILL/,
  )
})

test('if the service is killed, that process ends too, and the next start leaves nothing of it', async () => {
  await using world = await withFeed(STALLED)
  const { home } = world
  const before = await sha256Of(home.executable)
  const pid = await downloading(home)
  for (const own of home.pids()) process.kill(own, 'SIGKILL')
  await until('its end', () => !existsSync(`/proc/${pid}`))
  await home.start()
  await until('the end of the operation', async () => (await statusOf(home)).operation?.outcome ?? null)
  equal(
    readdirSync(dirname(home.executable)).filter((name) => name.includes('partial')),
    [],
  )
  is(await sha256Of(home.executable), before)
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
})

test.long('it asks a mirror for what the first source does not send as published, and tells of it', async () => {
  await using world = await withFeed({ wrongSha256: true }, 1)
  const { home, server } = world
  is((await home.api('POST', '/admin/update')).status, 202)
  const { outcome, error } = await home.settled()
  equal([outcome, error], ['updated', null])
  match(await home.output(), new RegExp(`${server.staticUrl}.* sent data that differs from what was published`))
  is((await home.output()).includes('because the separate download process failed'), false)
})

test('what fails there is told as if it had failed here', async () => {
  await using world = await withFeed({ shorterBy: 10 })
  const { home } = world
  is((await home.api('POST', '/admin/update')).status, 202)
  const { outcome, error } = await home.settled()
  equal([outcome, error?.code], ['failed', 'download_failed'])
  match(error?.message ?? '', /^downloading `\S+` of v1\.1\.0: expected \d+ bytes, got \d+$/)
  is((await home.output()).includes('because the separate download process failed'), false)
})

test.run()

/** '' for a descriptor that is closed by now. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

/** Begins an update. Resolves to the process that downloads, once some bytes have come. */
async function downloading(home: Install): Promise<number> {
  is((await home.api('POST', '/admin/update')).status, 202)
  await until('some bytes', async () => ((await statusOf(home)).operation?.bytes ?? 0) > 0)
  return await until('its process', () => processesBelow(join(home.home, 'opt'), '--version')[0] ?? null)
}

async function statusOf(home: Install): Promise<Status> {
  return (await home.api('GET', '/admin/update/status')).body as Status
}

/** v1.0.0 runs; v1.1.0 is in a feed with these faults, and in so many mirrors without. */
async function withFeed(
  faults: Faults,
  mirrors = 0,
): Promise<AsyncDisposable & { home: Install; server: ReleaseServer }> {
  await using stack = new AsyncDisposableStack()
  const list = await built
  const dir = await publishTo(stack.use(await temporary('fetch')).path, list)
  const server = stack.use(await releaseServer({ dir, ...faults }))
  const urls = [server.staticUrl]
  for (let count = 0; count < mirrors; count++) urls.push(stack.use(await releaseServer({ dir })).staticUrl)
  const home = stack.use(await install({ release: list[0] as TestRelease, feed: urls }))
  await home.start()
  const kept = stack.move()
  return { home, server, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
