// What the schedule costs a feed: what has not changed costs no bytes, a service that is restarted in a loop asks once, and a feed that
// is away is asked less and less. And what it hears from a signed feed: steps, yanks, expiry.

import { createHash } from 'node:crypto'
import { execFile } from 'node:child_process'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { askFeed } from '../agent/update/schedule/ask.ts'
import { ASK_MS, askAgainAt, newMemory } from '../agent/update/schedule/memory.ts'
import { next } from '../agent/update/schedule/next.ts'
import { USUAL } from '../agent/update/schedule/policy.ts'
import { equal, is, match, ok } from './assert.ts'
import type { LookOptions } from './crash/by-itself.ts'
import { makeWorld } from './crash/world.ts'
import { makeDist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { makeSignedDist, PAST, targetsOf } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('schedule and feed', { timeoutMs: 60_000 })
const [HOUR, DAY] = [3_600_000, 86_400_000]
const NOW = Date.parse('2026-11-24T02:10:00Z')
const ASKED = { running: 'v1.0.0', policy: { ...USUAL, mode: 'all' as const }, bad: [], readyMs: 60_000, left: [] }

/** Serves a folder with ETags, and counts. */
async function counting(folder: string) {
  const asked: { path: string; status: number; bytes: number }[] = []
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(request.url ?? '/'))
    void readFile(join(folder, path)).then(
      (content) => {
        const etag = `"${createHash('sha256').update(content).digest('hex').slice(0, 20)}"`
        const isSame = request.headers['if-none-match'] === etag
        asked.push({ path, status: isSame ? 304 : 200, bytes: isSame ? 0 : content.length })
        response.writeHead(isSame ? 304 : 200, { etag }).end(isSame ? undefined : content)
      },
      () => {
        asked.push({ path, status: 404, bytes: 0 })
        response.writeHead(404).end()
      },
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

test('the second question to an unchanged feed, signed or not, brings no byte; a changed one is seen', async () => {
  await using signed = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using plain = await makeDist(['v1.0.0', 'v1.1.0'])
  for (const [folder, trust] of [
    [signed.dist.dir, signed.anchor],
    [plain.dir, null],
  ] as const) {
    await using server = await counting(folder)
    await using feed = labFeed(server.url, { trust })
    const first = await askFeed(feed, newMemory([], NOW), ASKED, NOW)
    is(first.offer?.tag, 'v1.1.0')
    const before = server.asked.length
    const second = await askFeed(feed, first, ASKED, NOW + HOUR)
    equal(second.offer, first.offer)
    const more = server.asked.slice(before)
    ok(more.length <= 4, JSON.stringify(more))
    is(
      more.reduce((sum, { bytes }) => sum + bytes, 0),
      0,
      JSON.stringify(more),
    )
  }
  await using server = await counting(signed.dist.dir)
  await using feed = labFeed(server.url, { trust: signed.anchor })
  is((await askFeed(feed, newMemory([], NOW), ASKED, NOW)).offer?.tag, 'v1.1.0')
  await signed.publish({
    targets: await targetsOf(signed.dist.dir, 'beacon', { 'v1.1.0': { yanked: 'eats data' } }),
  })
  const after = await askFeed(feed, newMemory([], NOW), ASKED, NOW)
  equal([after.offer, after.asked.problem], [null, null])
})

test('steps of a staged release reach the host; those it does not understand let nobody go by itself', async () => {
  await using signed = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  const heard = async (rollout: unknown) => {
    await signed.publish({ targets: await targetsOf(signed.dist.dir, 'beacon', { 'v1.1.0': { rollout } }) })
    await using feed = labFeed(signed.dist.dir, { trust: signed.anchor })
    return (await askFeed(feed, newMemory([], NOW), ASKED, NOW)).offer?.rollout
  }
  const steps = [{ at: '2026-11-24T00:00:00Z', percent: 5 }]
  equal(await heard(steps), steps)
  for (const odd of [
    [],
    'all',
    [{ at: 'now', percent: 5 }],
    [{ at: '2026-11-24T00:00:00Z', percent: 500 }],
    [{ percent: 5 }],
    Array.from({ length: 65 }, () => steps[0]),
  ])
    equal(await heard(odd), [{ at: '2000-01-01T00:00:00Z', percent: 0 }], JSON.stringify(odd).slice(0, 60))
})

test('a release that is young, or whose turn has not come, keeps no older one from going; if none may go, the first that may is told', async () => {
  await using signed = await makeSignedDist(['v1.0.0'])
  const { dist } = signed
  const daysAgo = (days: number) => new Date(NOW - days * DAY).toISOString()
  // one a day, as a busy project has it
  for (const [tag, days] of [
    ['v1.0.1', 4],
    ['v1.0.2', 3.5],
    ['v1.0.3', 2],
    ['v1.0.4', 1],
  ] as const)
    await dist.add(tag, { publishedAt: daysAgo(days) })
  const asked = async (rules: object, custom: Record<string, Record<string, unknown>> = {}) => {
    await signed.publish({ targets: await targetsOf(dist.dir, 'beacon', custom) })
    await using feed = labFeed(dist.dir, { trust: signed.anchor })
    const { offer, passed } = await askFeed(
      feed,
      newMemory([], NOW),
      { ...ASKED, policy: { ...USUAL, mode: 'all', ...rules } },
      NOW,
    )
    return [offer?.tag, ...passed]
  }
  equal(await asked({ minAgeMs: 3 * DAY }), ['v1.0.2'])
  equal(await asked({ minAgeMs: 5 * DAY }), ['v1.0.1'])
  equal(await asked({ minAgeMs: 3 * DAY, mode: 'notify' }), ['v1.0.4'])
  const later = { rollout: [{ at: new Date(NOW + DAY).toISOString(), percent: 100 }] }
  const nobody = { rollout: [{ at: daysAgo(1), percent: 0 }] }
  equal(await asked({}, { 'v1.0.4': later, 'v1.0.3': nobody }), ['v1.0.2'])
  equal(await asked({}, { 'v1.0.4': later, 'v1.0.3': nobody, 'v1.0.2': nobody, 'v1.0.1': nobody }), ['v1.0.4'])
})

test('a feed that lies about its times, or does not tell them, keeps a release back for its age here, and not for ever', async () => {
  for (const publishedAt of ['9999-12-31T23:59:59Z', null, '0000-01-01T00:00:00Z']) {
    await using dist = await makeDist(['v1.0.0'])
    let [memory, day] = [newMemory([], NOW), 0]
    const policy = { ...USUAL, mode: 'all' as const, minAgeMs: 3 * DAY }
    for (; day < 10; day++) {
      await dist.add(`v1.0.${day + 1}`, { publishedAt, executable: (tag) => `#!/bin/sh\n# ${tag}\n` })
      await using feed = labFeed(dist.dir, { trust: null })
      memory = await askFeed(feed, memory, { ...ASKED, policy }, NOW + day * DAY)
      const facts = {
        ...memory,
        running: 'v1.0.0',
        asks: null,
        left: null,
        problem: null,
        askedAt: 0,
        askAt: Infinity,
        isInFlight: false,
      }
      if (next(policy, { ...facts, lastAt: null, tookMs: 60_000 }, NOW + day * DAY).do === 'update') break
    }
    equal([memory.offer?.tag, day], ['v1.0.1', publishedAt?.startsWith('0') === true ? 0 : 3], `${publishedAt}`)
  }
})

test('a feed with very many releases beyond the policy costs a few requests, and what fits is found below them', async () => {
  await using dist = await makeDist(['v1.0.0', 'v1.0.1', 'v2.0.0', 'v2.0.1', 'v2.0.2', 'v2.0.3', 'v2.0.4'])
  const path = join(dist.dir, 'releases.json')
  const list = JSON.parse(await readFile(path, 'utf8')) as { releases: object[] }
  const more = Array.from({ length: 10_000 }, (_, n) => ({ tag: `v1.${n + 1}.0`, draft: false, prerelease: false }))
  await writeFile(path, JSON.stringify({ ...list, releases: [...more, ...list.releases] }))
  await using server = await counting(dist.dir)
  await using feed = labFeed(server.url, { trust: null })
  const asking = { ...ASKED, policy: { ...USUAL, mode: 'patch' as const } }
  const { offer, passed, asked } = await askFeed(feed, newMemory([], NOW), asking, NOW)
  equal([offer?.tag, passed.length, asked.problem], ['v1.0.1', 5, null])
  ok(server.asked.length < 20, `${server.asked.length} requests`)
})

test('a feed whose signatures have expired, or that is away, offers nothing, and is asked again later and later', async () => {
  await using signed = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await signed.publish({ edit: { timestamp: (file) => void (file.expires = PAST) } })
  await using feed = labFeed(signed.dist.dir, { trust: signed.anchor })
  let memory = newMemory([], NOW)
  const pauses: number[] = []
  for (let times = 0; times < 8; times++) {
    memory = await askFeed(feed, memory, ASKED, NOW)
    pauses.push((memory.asked.next - NOW) / 60_000)
  }
  match(memory.asked.problem ?? '', /timestamp\.json expired/)
  equal(pauses, [15, 30, 60, 120, 240, 360, 360, 360])
  is(memory.offer, null)
  const steps = Array.from({ length: 500 }, (_, n) => askAgainAt(`host ${n}`, 0, NOW) - NOW)
  ok(Math.min(...steps) >= 0.75 * ASK_MS && Math.max(...steps) <= 1.25 * ASK_MS)
})

test('a host asks at most six times a day, eight where the feed does not answer, and a fleet four times on average', () => {
  const asks = (id: string, failures: (nth: number) => number) => {
    const times: number[] = []
    for (let at = NOW, nth = 1; at < NOW + 100 * DAY; at = askAgainAt(id, failures(nth), at), nth++) times.push(at)
    return times
  }
  const mostInDay = (times: readonly number[]) =>
    Math.max(...times.map((start) => times.filter((at) => at >= start && at < start + DAY).length))
  const fleet = Array.from({ length: 200 }, (_, n) => asks(`host ${n}`, () => 0))
  ok(fleet.every((times) => mostInDay(times) <= 6))
  const perDay = fleet.reduce((sum, times) => sum + times.length, 0) / fleet.length / 100
  ok(perDay > 3.9 && perDay < 4.1, `${perDay}`)
  is(mostInDay(asks('host', (nth) => nth)), 8)
  const firsts = Array.from({ length: 500 }, () => newMemory([], NOW).asked.next - NOW)
  ok(Math.min(...firsts) >= HOUR / 6 && Math.max(...firsts) <= HOUR)
})

test('a service that is restarted in a loop asks the feed once, even if it is killed while it asks', async () => {
  const world = await makeWorld()
  try {
    await using server = await counting(world.options.feed)
    const configPath = join(world.root, 'config.json')
    await writeFile(configPath, JSON.stringify({ update: { auto: { mode: 'notify' } } }))
    const program = fileURLToPath(new URL('crash/by-itself.ts', import.meta.url))
    const look = async (now: number, dieAt: LookOptions['dieAt'] = null) => {
      const options: LookOptions = { ...world.options, feed: server.url, configPath, now, dieAt }
      await promisify(execFile)(process.execPath, [program, JSON.stringify(options)], { timeout: 30_000 }).catch(
        () => {},
      )
    }
    const lists = () => server.asked.filter(({ path }) => path === '/releases.json').length
    for (let start = 0; start < 5; start++) await look(NOW)
    ok(lists() <= 1, `${lists()} questions`)
    const before = lists()
    // killed in the write of the answer, again and again
    for (let start = 0; start < 5; start++) await look(NOW + DAY, { change: 10, moment: 'before' })
    ok(lists() - before <= 1, `${lists() - before} questions`)
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
})

test.run()
