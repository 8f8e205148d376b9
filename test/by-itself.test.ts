// @deadlineMs 600000
// The service updates itself, in real processes: what goes, what waits, and what is said about it.

import { spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Remembered } from '../agent/update/schedule/memory.ts'
import { equal, is, match, ok } from './assert.ts'
import { byItself } from './fixtures/by-itself.ts'
import { journalOf } from './fixtures/evidence.ts'
import { type Fault, programRelease, publishTo, scriptRelease } from './fixtures/releases.ts'
import { inTurns } from './fixtures/turns.ts'
import { startLoad } from './lab/load.ts'
import { releaseServer } from './lab/release-server.ts'
import { eventually } from './lab/systemd.ts'
import { isLong, suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const noMounts = process.getuid?.() === 0 ? null : 'needs root, to mount a small disk'
const test = suite('by itself', { timeoutMs: 240_000, skip: noMounts })
const ONLY = join(import.meta.dirname, 'fixtures/only.ts')
const ANY = { mode: 'patch', allow: ['untried', 'unsigned'] }
let home: string
test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-by-itself-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

test('a good patch that the operator allows is installed automatically, once, and the status says so', async () => {
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

test.long('a release from which somebody went back does not come again by itself', async () => {
  const [v100, v101] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1')]
  const feed = await publishTo(join(home, 'left'), [v100, v101])
  await using it = await byItself({ release: v100, feed, auto: ANY })
  await it.start()
  is((await it.deed()).outcome, 'updated')
  await it.until('the new release', ({ instance, state }) => instance.version === 'v1.0.1' && state === 'idle')
  is((await it.api('POST', '/admin/update/rollback')).status, 202)
  is((await it.settled()).outcome, 'rolled_back')
  await it.stop()
  // as after an update that a person asked for: the feed was last asked when there was nothing newer
  await it.remember((memory) => Object.assign(memory, { offer: null, asked: { ...memory.asked, next: 1e15 } }))
  await it.start()
  const said = await it.until('idle', ({ state }) => state === 'idle')
  is(said.schedule?.now.says, 'v1.0.1 is newer, but it was rolled back here')
  await restartedTwice(it)
  const { instance, schedule, history } = await it.until('idle', ({ state }) => state === 'idle')
  equal([instance.version, history.length], ['v1.0.0', 2])
  equal(
    schedule?.waits.map(({ code, says }) => [code, says]),
    [['went_back', 'v1.0.1 is waiting for you: it was rolled back here']],
  )
  equal(schedule?.since, [])
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
  const after = await it.until('the feed was asked again', ({ schedule }) => schedule?.now.code === 'current', 20_000)
  is(after.instance.version, 'v1.0.0')
  is(after.history.length, 1)
  equal(
    (await it.memory()).never.map(({ tag, from }) => [tag, from]),
    [['v1.0.1', null]],
  )
})

test.long(
  'a release that was late is installed automatically again once there is more time for it, and the status says why',
  async () => {
    const [v100, late] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1', 'hangs-before-ready')]
    const feed = await publishTo(join(home, 'late'), [v100, late])
    const update = { readyTimeout: '1500ms', hangTimeout: '30s' }
    await using it = await byItself({ release: v100, feed, auto: ANY, update })
    await it.start()
    const deed = await it.deed()
    match(deed.error?.message ?? '', /it was not ready within 1500 ms/)
    const due = (memory: Remembered) => void (memory.asked.next = 0)
    const restarted = async () => {
      await it.stop()
      await it.remember(due)
      await it.start()
    }
    await restarted()
    const same = await it.until('the feed was asked', ({ schedule }) => (schedule?.waits.length ?? 0) > 0)
    match(
      same.schedule?.waits[0]?.says ?? '',
      /^v1\.0\.1 is waiting for you: it failed here: .*not ready within 1500 ms/,
    )
    await it.rule({ readyTimeout: '2500ms' })
    await restarted()
    const again = 'it was not ready within 1.5 s last time; the limit is now 2.5 s'
    const says = `v1.0.1 will be installed automatically: the last attempt failed; ${again}`
    equal((await it.until('it goes again', ({ schedule }) => schedule?.now.says === says)).schedule?.waits, [])
    await it.stop()
    await it.remember(({ attempt }) => void (attempt !== null && (attempt.at -= 2 * 24 * 3_600_000)))
    await it.start()
    match((await it.deed(deed.id)).error?.message ?? '', /it was not ready within 2500 ms/)
    equal(
      (await journalOf(it)).bad.map(({ tag, hadMs }) => [tag, hadMs]),
      [['v1.0.1', 2500]],
    )
  },
)

test.long(
  'an automatic update of a stop-first release gives up where a request does not end, which goes on; no release is blamed',
  async () => {
    const [old, next] = [await programRelease('v1.0.0', ONLY), await programRelease('v1.0.1', ONLY)]
    const feed = await publishTo(join(home, 'busy'), [old, next])
    await using it = await byItself({ release: old, feed, auto: ANY, update: { quietTimeout: '100ms' } })
    await it.start()
    const asked = request({ port: it.port ?? 0, path: '/slow/200000' })
    let isCut = false
    asked.once('error', () => (isCut = true))
    asked.end()
    const deed = await it.deed(null, 180_000)
    equal([deed.outcome, deed.error?.code, deed.by], ['failed', 'busy', 'schedule'])
    is(isCut, false)
    equal((await journalOf(it)).bad, [])
    asked.destroy()
  },
)

const GOOD = isLong ? 12 : 2
test(`${isLong ? 'twelve' : 'two'} good releases, one after the other, go by themselves under load: nobody loses a request`, async () => {
  const tags = Array.from({ length: 1 + GOOD }, (_, n) => `v1.0.${n}`)
  const all = []
  for (const tag of tags) all.push(await scriptRelease(tag))
  const [first, ...others] = all
  ok(first !== undefined)
  const feed = await publishTo(join(home, 'one-after-the-other'), [first])
  await using it = await byItself({ release: first, feed, auto: ANY, update: { probation: '500ms' } })
  await it.start()
  const load = startLoad({ mode: 'fresh', clients: 4, port: it.port ?? 0, path: '/healthz', thinkMs: 20 })
  const kept = startLoad({ mode: 'keepalive', clients: 4, port: it.port ?? 0, path: '/healthz', thinkMs: 20 })
  for (const release of others) {
    await publishTo(feed, [release])
    await it.until(release.tag, ({ instance, state }) => instance.version === release.tag && state === 'idle')
  }
  const totals = [await load.stop(), await kept.stop()]
  equal(
    totals.map(({ lost, closed }) => [lost, closed]),
    [
      [0, 0],
      [0, 0],
    ],
  )
  ok(
    totals.every(({ ok: good }) => good > (isLong ? 1000 : 160)),
    JSON.stringify(totals.map(({ ok: good }) => good)),
  )
  const { history } = await it.status()
  equal(
    history.map(({ outcome, by, to }) => `${outcome} ${by} ${to}`).toReversed(),
    tags.slice(1).map((tag) => `updated schedule ${tag}`),
  )
})

interface Bad {
  what: string
  fault?: Fault
  update?: Record<string, unknown>
  /** found out at a stage that no other one here is */
  inCi?: true
  /** what the operation says */
  says: RegExp
  /** why it is never tried again by itself; null: it is, with more time */
  waits: RegExp | null
}

/**
 * Of the twelve bad shapes that must change no host. Below: a disk that is too small. In systemd-by-itself.test.ts: a migration that breaks,
 * that drops rows, that cannot be undone. In by-itself-signed.test.ts: a wrong signature, yanked, expired metadata.
 */
const BAD: Bad[] = [
  {
    what: 'dies at its start',
    inCi: true,
    fault: 'exits-at-once',
    says: /exited with code 3/,
    waits: /it failed here and was reverted/,
  },
  {
    what: 'dies after ten seconds',
    fault: 'dies-after-10s',
    update: { probation: '13s' },
    says: /killed by SIGKILL|no answer|unresponsive/,
    waits: /it failed here and was reverted/,
  },
  {
    what: 'is slow',
    fault: 'hangs-before-ready',
    update: { readyTimeout: '1500ms' },
    says: /not ready within 1500 ms/,
    waits: null,
  },
  {
    what: 'is ill',
    inCi: true,
    fault: 'unhealthy-in-probation',
    says: /503|health/,
    waits: /it failed here and was reverted/,
  },
  {
    what: 'could not update further',
    fault: 'cannot-update-further',
    update: { probation: '2s' },
    says: /cannot install later updates|not a managed install|cannot update|is not managed/,
    waits: /it failed here and was reverted/,
  },
  {
    what: 'is not what it says',
    inCi: true,
    fault: 'lies-to-verify',
    says: /got v0\.0\.1/,
    waits: /was not installed/,
  },
]

test.long('bad releases change no host without a person: each ends where it began, and says why it waits', async () => {
  const good = await scriptRelease('v1.0.0')
  const turns = inTurns(2, isLong ? BAD : BAD.filter(({ inCi }) => inCi), async (bad) => {
    const { what, fault = 'none', update = {}, says, waits } = bad
    const feed = await publishTo(join(home, `bad-${BAD.indexOf(bad)}`), [good, await scriptRelease('v1.0.1', fault)])
    await using it = await byItself({ release: good, feed, auto: ANY, update: { hangTimeout: '5s', ...update } })
    await it.start()
    const message = (await it.deed()).error?.message ?? ''
    match(message, says, `${what}: ${message}`)
    await restartedTwice(it)
    const status = await it.until(what, ({ state }) => state === 'idle')
    is(status.instance.version, 'v1.0.0', what)
    is(status.history.length, 1, `${what}: ${JSON.stringify(status.history)}`)
    const { never } = await it.memory()
    if (waits === null) equal(never, [], what)
    else match(never[0]?.why.says ?? '', waits, `${what}: ${JSON.stringify(never)}`)
    const told = status.schedule?.waits[0]?.says ?? ''
    match(told, /^v1\.0\.1 is waiting for you: it (failed here|was not installed)/, `${what}: ${told}`)
  })
  const ends = await Promise.allSettled(turns) // none is left behind if another fails
  equal(
    ends.flatMap((end) => (end.status === 'rejected' ? [String(end.reason)] : [])),
    [],
  )
})

/** Looks again after two restarts, with a feed that is due, until the feed has answered. */
async function restartedTwice(it: Awaited<ReturnType<typeof byItself>>): Promise<void> {
  for (let times = 0; times < 2; times++) {
    await it.stop()
    await it.remember((memory) => {
      memory.asked.next = 0
      if (times === 1) memory.failures = 0 // however long it was ago
    })
    const began = Date.now()
    await it.start()
    await it.until('a look', ({ schedule }) => Date.parse(schedule?.askedAt ?? '') >= began)
  }
}

test('a feed that never answers keeps nobody waiting: it serves, says what it allows, and stops; once the feed answers, the release goes', async () => {
  const [v100, v101] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1')]
  const dir = await publishTo(join(home, 'slow'), [v100, v101])
  await using server = await releaseServer({ dir, silent: true })
  await using it = await byItself({ release: v100, feed: server.staticUrl, auto: ANY })
  await it.start()
  await eventually('a question', async () => server.requests.length > 0)
  is((await it.api('GET', '/admin/update/policy')).status, 200)
  const { instance, state } = await it.status()
  equal([instance.version, state], ['v1.0.0', 'idle'])
  await it.stop()
  server.heal()
  await it.remember((memory) => void (memory.asked.next = 0))
  await it.start()
  is((await it.deed()).outcome, 'updated')
})

test.long('a release for which the disk has no room waits, says so, and goes once there is some', async () => {
  await using made = await temporary('by-itself-small')
  const folder = made.path
  is(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=44m', 'baton', folder]).status, 0)
  try {
    const [v100, v101] = [await scriptRelease('v1.0.0'), await scriptRelease('v1.0.1')]
    const feed = await publishTo(join(home, 'small'), [v100, v101])
    await using it = await byItself({ release: v100, feed, auto: ANY, home: folder })
    const ballast = join(folder, 'ballast')
    await writeFile(ballast, Buffer.alloc(8 * 1024 ** 2))
    await it.start()
    const says = /^v1\.0\.1 is waiting for you: only \d+ MiB free in /
    const { history } = await it.until('it waits', ({ schedule }) => says.test(schedule?.waits[0]?.says ?? ''))
    is(history.length, 0)
    await rm(ballast)
    await it.until('nothing waits any more', ({ schedule }) => schedule?.waits.length === 0)
    await it.stop()
    await it.start()
    is((await it.deed()).outcome, 'updated')
  } finally {
    spawnSync('umount', ['-l', folder])
  }
})

test.run()
