// An update that names its release, in a real service: one that the feed does not have, an older one, and one that is on the disk already.

import { existsSync } from 'node:fs'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { leftIn } from '../agent/update/schedule/facts.ts'
import type { Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { journalOf } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease, unpack } from './fixtures/releases.ts'
import { conforms } from './lab/openapi.ts'
import { releaseServer } from './lab/release-server.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const built = Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))
const test = suite('named tag', { timeoutMs: 60_000 })

test('a tag that the feed does not have is refused before an operation exists: nobody else sees it', async () => {
  const [v100] = await both()
  await using folder = await temporary('named')
  await using home = await install({ release: v100, feed: await publishTo(join(folder.path, 'feed'), await both()) })
  await home.start()
  const refused = await home.api('POST', '/admin/update', { tag: 'v9.9.9' })
  conforms({ method: 'POST', path: '/admin/update', ...refused })
  const { code, detail, hint } = refused.body as Record<string, string>
  equal([refused.status, code, hint], [404, 'release_not_found', 'the newest releases in the feed: v1.1.0, v1.0.0'])
  match(detail ?? '', /has no release v9\.9\.9$/)
  const { operation, history } = await statusOf(home)
  equal([operation, history], [null, []])
  is(existsSync(join(home.stateDirectory, 'update/journal.json')), false)
  is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
  is((await home.settled()).outcome, 'updated')
})

test('a feed that is away does not say so: the operation begins, and tells why it failed', async () => {
  const [v100] = await both()
  await using folder = await temporary('named')
  await publishTo(folder.path, await both())
  const feed = await releaseServer({ dir: folder.path })
  await using home = await install({ release: v100, feed: feed.feed })
  await home.start()
  await feed.close()
  is((await home.api('POST', '/admin/update', { tag: 'v9.9.9' })).status, 202)
  const { outcome, error } = await home.settled()
  equal([outcome, error?.code], ['failed', 'check_failed'])
})

test('a configuration that no release takes is told as the cause, and is not held against the release', async () => {
  const [v100, v110] = await both()
  await using folder = await temporary('named')
  await using home = await install({ release: v100, feed: await publishTo(join(folder.path, 'feed'), [v100, v110]) })
  await home.start()
  const text = await readFile(home.configPath, 'utf8')
  await writeFile(home.configPath, JSON.stringify({ ...(JSON.parse(text) as object), auto: {} }))
  is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
  const { outcome, error } = await home.settled()
  is(outcome, 'reverted')
  match(
    error?.message ?? '',
    /it exited with code 2 after printing: error: the configuration \(\S+\) is not valid: unknown setting `auto`/,
  )
  match(error?.message ?? '', /; the configuration of this host is not valid, so v1\.1\.0 is not marked as failed$/)
  equal((await journalOf(home)).bad, [])
})

test('an update to an older release is a rollback: it is recorded as one, and the service does not go forward again by itself', async () => {
  const [v100, v110] = await both()
  await using folder = await temporary('named')
  await using home = await install({ release: v110, feed: await publishTo(join(folder.path, 'feed'), [v100, v110]) })
  await home.start()
  is((await home.api('POST', '/admin/update', { tag: 'v1.0.0' })).status, 202)
  const { kind, outcome, from, to } = await home.settled()
  equal([kind, outcome, from, to], ['rollback', 'rolled_back', 'v1.1.0', 'v1.0.0'])
  const answer = await home.api('GET', '/admin/update/status')
  conforms({ method: 'GET', path: '/admin/update/status', ...answer })
  const { history, bad } = await journalOf(home)
  equal([leftIn(history), bad], [['v1.1.0'], []])
  match(await home.output(), /rollback \S+ to v1\.0\.0: rolled_back/)
})

test('what is on the disk already is not downloaded again: only the restart was missing', async () => {
  const [v100, v110] = await both()
  await using folder = await temporary('named')
  await publishTo(folder.path, [v100, v110])
  await using feed = await releaseServer({ dir: folder.path })
  await using home = await install({ release: v100, feed: feed.feed })
  await home.start()
  await unpack(v110, `${home.executable}.by-hand`)
  await rename(`${home.executable}.by-hand`, home.executable)
  const before = feed.requests.filter(({ path }) => path.includes('beacon-linux')).length
  is((await home.api('POST', '/admin/update')).status, 202)
  const { outcome, bytes, to } = await home.settled()
  equal([outcome, bytes, to], ['updated', 0, 'v1.1.0'])
  is(feed.requests.filter(({ path }) => path.includes('beacon-linux')).length, before)
  is((await statusOf(home)).instance.version, 'v1.1.0')
})

async function both(): Promise<[TestRelease, TestRelease]> {
  const [v100, v110] = await built
  ok(v100 && v110)
  return [v100, v110]
}

async function statusOf(home: Install): Promise<Status> {
  return (await home.api('GET', '/admin/update/status')).body as Status
}

test.run()
