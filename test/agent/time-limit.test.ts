// The author's one time limit for a start, `readyMs`: whoever waits for a start waits as long. Without a process; a real start that
// systemd waits for is in test/systemd-long-start.test.ts.

import { startMsAfter } from '../../agent/update/rehearsal/budget.ts'
import { UPDATE_BOUNDS } from '../../agent/words/bounds.ts'
import type { Operation, Status } from '../../agent/words/state.ts'
import { inTime } from '../../agent/words/in-time.ts'
import { type Client, follow, silenceFor, tellsOnce } from '../../deploy/host/service/client.ts'
import { equal, is, match, ok, rejects, withCode } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('time limit')
const HOUR_MS = 3_600_000

test('it is at most an hour, and everything that waits for a start waits that long', () => {
  const [, most, normal] = UPDATE_BOUNDS.readyMs
  is(most, HOUR_MS)
  for (const readyMs of [normal, 150_000, HOUR_MS]) {
    ok(startMsAfter(0, readyMs) >= readyMs, 'the rehearsal')
    ok(silenceFor(readyMs) > 2 * readyMs, 'the command: a release that is late, and then the old one again')
  }
  equal(
    [startMsAfter(0, 100), startMsAfter(2000, 60_000)],
    [60_000, 120_000],
    'a short limit does not shorten a rehearsal',
  )
})

const SERVING = { instance: { id: '1' }, operation: null, history: [] } as unknown as Status

test('a service that is silent for less than it may is waited for; beyond that it is down', async () => {
  const operation = {
    id: 'x',
    outcome: 'updated',
    stage: 'restart',
    progress: null,
    durations: {},
  } as unknown as Operation
  const answers = [null, null, null, { ...SERVING, operation }]
  const client = { status: async () => answers.shift() ?? null } as Partial<Client> as Client
  const ended = await follow(client, 'x', { stage: () => {}, bytes: () => {} }, silenceFor(60_000))
  is(ended.outcome, 'updated')
  const silent = { status: async () => null } as Partial<Client> as Client
  const fault = await rejects(follow(silent, 'x', { stage: () => {}, bytes: () => {} }, 300), withCode('service_down'))
  match(fault.message, /the service has not responded for/)
})

test('a wait is told when what it is for changes; that the same lasts longer, once a minute', async () => {
  const looks = ['"export", under way for 1s', '"export", under way for 2s', '"import", under way for 1s, and 1 more']
  const waiting = { id: 'x', outcome: null, stage: 'verify', progress: null, durations: {} } as unknown as Operation
  const shown = looks.map((why) => ({ ...waiting, waits: [{ code: 'work', says: `waiting for ${why}` }] }))
  const answers = [...shown, { ...waiting, outcome: 'updated' }].map((operation) => ({ ...SERVING, operation }))
  const client = { status: async () => answers.shift() ?? null } as Partial<Client> as Client
  const notes: string[] = []
  await follow(client, 'x', { stage: () => {}, bytes: () => {}, note: (said) => void notes.push(said) })
  equal(notes, [`waiting for ${looks[0]}`, `waiting for ${looks[2]}`])

  let at = 0
  const told: number[] = []
  const tell = tellsOnce(
    () => void told.push(at),
    () => at * 1000,
  )
  for (; at < 150; at++) tell(`waiting for "export", under way for ${at}s`)
  equal(told, [0, 60, 120])
})

test('each look at a download is told once, and its end before the next stage', async () => {
  const at = (stage: string, bytes: number, outcome: string | null = null) =>
    ({ id: 'x', outcome, stage, progress: { bytes, totalBytes: 10 }, durations: {} }) as unknown as Operation
  const looks = [at('download', 1), at('download', 5), at('verify', 10), at('swap', 3), at('restart', 3, 'updated')]
  const answers = looks.map((operation) => ({ ...SERVING, operation }))
  const client = { status: async () => answers.shift() ?? null } as Partial<Client> as Client
  const told: (string | number)[] = []
  await follow(client, 'x', { stage: (stage) => void told.push(stage), bytes: (done) => void told.push(done) })
  equal(told, ['download', 1, 5, 10, 'verify', 'swap', 3, 'restart'])
})

test('a stage that began and ended between two looks is told too, each with the time that the service gives', async () => {
  const at = (stage: string, durations: object, outcome: string | null = null) =>
    ({ id: 'x', outcome, stage, progress: null, durations }) as unknown as Operation
  const early = { check: 12, download: 900 }
  const looks = [at('download', { check: 12 }), at('restart', { ...early, verify: 176, swap: 79 }, 'updated')]
  const answers = looks.map((operation) => ({ ...SERVING, operation }))
  const client = { status: async () => answers.shift() ?? null } as Partial<Client> as Client
  const told: unknown[] = []
  await follow(client, 'x', { stage: (stage, tookMs) => void told.push([stage, tookMs]), bytes() {} })
  equal(told, [
    ['check', undefined],
    ['download', 12],
    ['verify', undefined], // a download shows its bytes
    ['swap', 176],
    ['restart', 79],
  ])
})

test('what is awaited under a limit gives what it gives, or its own fault; beyond the limit it is late, and a later fault is not heard', async () => {
  const late = () => new Error('late')
  is(await inTime(60_000, Promise.resolve(1), late), 1)
  await rejects(inTime(60_000, Promise.reject(new Error('ill')), late), /ill/)
  const work = Promise.withResolvers<number>()
  await rejects(inTime(10, work.promise, late), /late/)
  work.reject(new Error('ill')) // nobody awaits it: unheard, it would end this process
  await new Promise(setImmediate)
})

test.run()
