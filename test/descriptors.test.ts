// What an update that was reverted leaves open in the process that goes on: nothing.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { install } from './fixtures/install.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { descriptorsOf } from './soak/subject.ts'
import { suite } from './suite.ts'

const built = Promise.all([scriptRelease('v1.0.0'), scriptRelease('v1.1.0', 'exits-at-once')])
const test = suite('descriptors', { timeoutMs: 60_000 })

test('a revert leaves no descriptor open, not even of the snapshot, which is whole', async () => {
  const [good, bad] = await built
  await using home = await install({ release: good })
  await publishTo(join(home.home, 'no-feed'), [good, bad])
  await home.start()
  is((await home.api('POST', '/admin/update/check')).status, 200)
  const { instance } = (await home.api('GET', '/admin/update/status')).body as Status
  const before = descriptorsOf(instance.pid, home.port ?? 0)
  for (let i = 0; i < 2; i++) {
    is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
    is((await home.settled()).outcome, 'reverted')
  }
  await until('as many as before', () => descriptorsOf(instance.pid, home.port ?? 0) <= before, 10_000)
  const folder = join(home.stateDirectory, 'update/snapshots')
  const [snapshot, ...rest] = readdirSync(folder)
  ok(rest.length <= 1)
  const database = new DatabaseSync(join(folder, snapshot ?? ''), { readOnly: true })
  equal({ ...database.prepare('pragma integrity_check').get() }, { integrity_check: 'ok' })
  is(Number(database.prepare('pragma user_version').get()?.['user_version']), 2)
  database.close()
})

test('a release that has taken over has no descriptor more than the one that was started, and gives back as many', async () => {
  const [good] = await built
  await using home = await install({ release: good })
  await publishTo(home.receipt.feed, [good, await scriptRelease('v1.2.0')])
  await home.start()
  const open = async () => {
    const { instance } = (await home.api('GET', '/admin/update/status')).body as Status
    return descriptorsOf(instance.pid, home.port ?? 0)
  }
  is((await home.api('POST', '/admin/update/check')).status, 200)
  const before = await open()
  for (const path of ['/admin/update', '/admin/update/rollback', '/admin/update']) {
    is((await home.api('POST', path)).status, 202)
    match((await home.settled()).outcome ?? '', /^updated$|^rolled_back$/)
    await until(`at most ${before} after ${path}`, async () => (await open()) <= before, 10_000)
  }
})

test.run()
