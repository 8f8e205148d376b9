// @deadlineMs 600000
// The service updates itself, in real processes: what goes, what waits, and what is said about it.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { equal, is } from './assert.ts'
import { byItself } from './fixtures/by-itself.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { suite } from './suite.ts'

const test = suite('by itself', { timeoutMs: 120_000 })
let home: string
test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-by-itself-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

test('a good patch that the operator allows goes by itself, once, and the status says so', async () => {
  const [v100, v101] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1')]
  const feed = await publishTo(join(home, 'good'), [v100, v101])
  await using it = await byItself({ release: v100, feed, auto: { mode: 'patch', allow: ['untried', 'unsigned'] } })
  await it.start()
  const deed = await it.deed()
  equal([deed.outcome, deed.to, deed.by], ['updated', 'v1.0.1', 'schedule'])
  const status = await it.until('the new release', ({ instance }) => instance.version === 'v1.0.1')
  equal(
    status.schedule?.since.map(({ to, outcome }) => [to, outcome]),
    [['v1.0.1', 'updated']],
  )
  equal(status.schedule?.waits, [])
})

test('a release that is put back is never tried again by itself', async () => {
  const [v100, bad] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1', 'exits-in-probation')]
  const feed = await publishTo(join(home, 'bad'), [v100, bad])
  await using it = await byItself({ release: v100, feed, auto: { mode: 'patch', allow: ['untried', 'unsigned'] } })
  await it.start()
  const deed = await it.deed()
  equal([deed.outcome, deed.to], ['reverted', 'v1.0.1'])
  await it.stop()
  await it.remember((memory) => void (memory.asked.next = 0))
  await it.start()
  const after = await it.until(
    'the feed was asked again',
    ({ schedule }) => schedule?.says === 'there is no newer release',
    20_000,
  )
  is(after.instance.version, 'v1.0.0')
  is(after.history.length, 1)
  equal(
    (await it.memory()).never.map(({ tag, from }) => [tag, from]),
    [['v1.0.1', null]],
  )
})

test.run()
