// @deadlineMs 600000
// Applications as people write them, each with a habit of the field (test/lab/habits.ts). Each is updated and rolled back under a light
// load, gets a broken release, and is killed: always as good as a plain restart, or better.

import { equal, is, match } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { type Stranger, stranger } from './fixtures/stranger.ts'
import { failing, type Habit, HABITS, type Kind } from './lab/habits.ts'
import { asOne, type Loads, startLoad } from './lab/load.ts'
import { isLong, suite } from './suite.ts'

const test = suite('habits', { timeoutMs: 120_000 })
const KINDS = ['stop-first', 'start-first'] as const

/** What a test runs: in CI each application with one kind of switch, in the long form with each, and with and without a supervision. */
interface Case {
  habit: Habit
  kind: Kind
  isSupervised: boolean
}

const CASES = HABITS.filter((one) => isLong || one.isLong !== true).flatMap((habit, at): Case[] => {
  const kinds = habit.kinds ?? KINDS
  const all = kinds.flatMap((kind) => [true, false].map((isSupervised) => ({ habit, kind, isSupervised })))
  const isInCi = ({ kind, isSupervised }: Case) => (isSupervised ? kind === kinds[at % kinds.length] : habit.isBare)
  return isLong ? all : all.filter(isInCi)
})

/** Two run at once: most of the time of one is waiting. */
const begun = new Map<number, Promise<void>>()
const begin = (at: number): Promise<void> => {
  const one = CASES[at]
  const running = begun.get(at) ?? (one === undefined ? Promise.resolve() : lives(one))
  running.catch(() => {}) // its own test says so
  begun.set(at, running)
  return running
}

for (const [at, { habit, kind, isSupervised }] of CASES.entries()) {
  const how = isSupervised ? kind : `${kind}, without a supervision`
  test(`${how}: an application that ${habit.name}: update, rollback, a broken release, and a kill`, async () => {
    if (at % 2 === 0) void begin(at + 1)
    await begin(at)
  })
}

test('the old release is not waited for longer than readyTimeout after a broken one: it serves as it is, and the update is reverted', async () => {
  const text = `import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
createServer((request, response) => {
  response.writeHead(request.url === '/healthz' && existsSync('ill') ? 503 : 200).end('TAG ' + process.pid)
}).listen(Number(process.env.PORT), process.env.HOST)`
  await using host = await stranger({ text, config: { order: 'stop-first' }, update: { readyTimeout: '3s' } })
  const first = await until('an answer', () => who(host, 'v1.0.0', null))
  await host.release(
    'v1.1.0',
    text.replace('createServer((', `writeFileSync('ill', '')\nthrow new Error('no')\ncreateServer((`),
  )
  const broken = await host.operate('/admin/update', { tag: 'v1.1.0' })
  is(broken.outcome, 'reverted', JSON.stringify(broken.error))
  match(broken.error?.message ?? '', /Error: no/)
  is((await until('an answer', () => who(host, 'v1.0.0', first.pid))).tag, 'v1.0.0')
})

test.run()

async function lives({ habit, kind, isSupervised }: Case): Promise<void> {
  const extra = await freePort()
  const text = habit.text(extra)
  const config = { order: kind, ...habit.config }
  await using host = await stranger({ ...habit, text, config, isSupervised })
  const well = async (tag: string, not: number | null) => {
    const now = await until(`${tag} to answer`, () => who(host, tag, not), 30_000)
    await habit.serves?.(host, { ...now, extra })
    return now.pid
  }
  const first = await well('v1.0.0', null)
  await using load = loadOn(host, habit)
  await host.release('v1.1.0', text)
  if (habit.refuses !== undefined) {
    const { status, text: why } = await host.ask('POST', '/admin/update', { tag: 'v1.1.0' })
    is(status, 501)
    match(why, habit.refuses)
    equal(await load.stop(), NOTHING)
    await host.kill(first)
    return void (await well('v1.0.0', first))
  }
  const updated = await host.operate('/admin/update', { tag: 'v1.1.0' })
  if (habit.misplaces) {
    is(updated.outcome, 'reverted')
    match(updated.error?.message ?? '', /expected it to listen on .*:\d+, got .*:\d+/)
    const again = await well('v1.0.0', null)
    if (kind === 'start-first') equal([again, await load.stop()], [first, NOTHING])
    await host.kill(again)
    return void (await well('v1.0.0', again))
  }
  is(updated.outcome, 'updated', JSON.stringify(updated.error))
  const second = await well('v1.1.0', first)
  const back = await host.operate('/admin/update/rollback')
  is(back.outcome, 'rolled_back', JSON.stringify(back.error))
  const third = await well('v1.0.0', second)
  await host.release('v1.2.0', (habit.broken ?? failing)(text))
  const broken = await host.operate('/admin/update', { tag: 'v1.2.0' })
  is(broken.outcome, 'reverted', JSON.stringify(broken.error))
  const fourth = await well('v1.0.0', null)
  if (kind === 'start-first') is(fourth, third)
  const seen = await load.stop()
  if (habit.diesServing) is(seen.refused, 0)
  else equal(seen, NOTHING)
  await host.kill(fourth)
  await well('v1.0.0', fourth)
  await habit.after?.(host)
}

/** Which process of this release answers, if it is another one than `not`. */
async function who(host: Stranger, tag: string, not: number | null): Promise<{ pid: number; tag: string } | null> {
  const [by, pid] = (await host.get('/').catch(() => '')).split(' ')
  return by === tag && Number(pid) !== not ? { pid: Number(pid), tag } : null
}

const NOTHING = { lost: 0, closed: 0, errors: {}, refused: 0 }

/** A client that opens a connection for each request, and one that keeps its own. */
function loadOn({ port }: Stranger, { scheme = 'http' }: Habit): Loads {
  const thinkMs: [number, number] = [20, 60]
  const modes = scheme === 'http' ? (['fresh', 'keepalive'] as const) : []
  return asOne(
    modes.map((mode) => startLoad({ mode, clients: 1, port, thinkMs, hangMs: 20_000, afterClose: 'reopen' })),
  )
}
