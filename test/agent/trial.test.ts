// The watch over a successor by itself: when bad answers count. Whole switches are in test/probation.test.ts.

import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Successor } from '../../agent/handover/give/child.ts'
import { becomeReady, observe, type TrialOptions } from '../../agent/handover/give/trial.ts'
import { privateServer } from '../../agent/handover/private.ts'
import { makeListener } from '../../agent/sockets/listeners.ts'
import { equal, match, rejects } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('trial')
const SPAN_MS = 400
const RELEASE = { service: 'shop', tag: 'v1.1.0' }

/** Watches a successor for SPAN_MS, whose health route answers 503 while `isIll`. */
async function watched(isIll: () => boolean, busy?: Promise<void>): Promise<void> {
  const { successor, options } = scripted(isIll)
  await observe(successor, options, SPAN_MS, busy)
}

/** `told`: gets the type of each message to it. */
function scripted(isIll: () => boolean, readyMs = 5000, told: string[] = []) {
  const server = createServer((_request, response) => response.writeHead(isIll() ? 503 : 200).end())
  const own = privateServer([makeListener({ server, port: 0 })], RELEASE)
  const successor = {
    takeQuestion: (far) => own.emit('connection', far),
    isAlive: () => true,
    gone: new Promise<string>(() => {}),
    life: { sign: () => {}, silentMs: () => 0 },
    heard: (type: string) => Promise.resolve({ type, listeners: [] } as never),
    tell: ({ type }) => Promise.resolve(told.push(type) > 0),
  } as Partial<Successor> as Successor
  const about = { ...RELEASE, healthPath: '/healthz', readyMs, hangMs: 5000 }
  const options = { ...about, isOldWell: () => Promise.resolve(true) } as Partial<TrialOptions> as TrialOptions
  return { successor, options }
}

for (const [when, busy] of [
  ['before its end', () => Promise.resolve()],
  ['at its end', () => sleep(SPAN_MS)],
  ['after it', () => sleep(SPAN_MS + 150)],
] as const) {
  test(`a hiccup at the end of a span takes no release back, if what the switch waits for is done ${when}`, async () => {
    const from = performance.now() + SPAN_MS - 20
    await watched(() => performance.now() > from && performance.now() < from + 120, busy())
  })

  test(`one that is ill from the end of a span on is not waited for: done ${when}`, async () => {
    const from = performance.now() + SPAN_MS - 20
    const { message } = await rejects(watched(() => performance.now() > from, busy()))
    match(message, /expected status 2xx from \/healthz, got 503/)
  })
}

test('a successor that is well just after its time is over is not told to accept: it is about to be ended', async () => {
  const told: string[] = []
  let isIll = true
  const { successor, options } = scripted(() => isIll, 300, told)
  const { message } = await rejects(becomeReady(successor, options, []))
  match(message, /it was not ready within 300 ms: expected status 2xx from \/healthz, got 503/)
  isIll = false
  await sleep(500)
  equal(told, [])
})

test.run()
