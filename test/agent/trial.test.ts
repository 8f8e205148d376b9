// The watch over a successor by itself: when bad answers count. Whole switches are in test/probation.test.ts.

import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Successor } from '../../agent/handover/give/child.ts'
import { observe, type TrialOptions } from '../../agent/handover/give/trial.ts'
import { privateServer } from '../../agent/handover/private.ts'
import { makeListener } from '../../agent/sockets/listeners.ts'
import { match, rejects } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('trial')
const SPAN_MS = 400
const RELEASE = { service: 'shop', tag: 'v1.1.0' }

/** Watches a successor for SPAN_MS, whose health route answers 503 while `isIll`. */
async function watched(isIll: () => boolean, busy?: Promise<void>): Promise<void> {
  const server = createServer((_request, response) => response.writeHead(isIll() ? 503 : 200).end())
  const own = privateServer([makeListener({ server, port: 0 })], RELEASE)
  const successor = {
    takeQuestion: (far) => own.emit('connection', far),
    isAlive: () => true,
    gone: new Promise<string>(() => {}),
    life: { sign: () => {}, silentMs: () => 0 },
  } as Partial<Successor> as Successor
  const about = { ...RELEASE, healthPath: '/healthz', readyMs: 5000, hangMs: 5000 }
  const options = { ...about, isOldWell: () => Promise.resolve(true) } as Partial<TrialOptions> as TrialOptions
  await observe(successor, options, SPAN_MS, busy)
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

test.run()
