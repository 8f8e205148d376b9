// @long
// The short form of `npm run soak -- --carry`, and the proof that its judge condemns: numbered messages each way over switches,
// very many idle connections, a successor that is killed with everything in its hands, a carry that is wrong on purpose.

import { equal, match, ok } from './assert.ts'
import { carryFaultsOf } from './soak/carry/judge.ts'
import { runCarry } from './soak/carry/start.ts'
import { isLong, suite } from './suite.ts'

const test = suite('carry soak', { timeoutMs: 240_000 })
const PACE = { everyMs: 20, eventEveryMs: 50 }

test('numbered messages each way, and events, go on over switches: not one lost, doubled, late or of another, by the kernel’s count too', async () => {
  const report = await runCarry({ what: 'switches', clients: 60, times: isLong ? 3 : 2, fault: '', ...PACE })
  equal(carryFaultsOf(report), [])
})

test('a thousand idle connections go through switches, with memory and descriptors as before', async () => {
  const report = await runCarry({ what: 'idle', clients: 1000, times: isLong ? 2 : 1 })
  equal(carryFaultsOf(report), [])
})

test('a successor is killed with everything carried: each connection is served or closed within a second, none hangs, none gets another’s bytes', async () => {
  const report = await runCarry({ what: 'kills', clients: 30, times: isLong ? 2 : 1, ...PACE })
  equal(carryFaultsOf(report), [])
})

for (const fault of ['byte-lost', 'byte-doubled']) {
  test(`a carry that is wrong on purpose (${fault}) is condemned, by the clients and by the kernel’s count of bytes`, async () => {
    const report = await runCarry({ what: 'switches', clients: 10, times: 1, fault, ...PACE })
    const faults = carryFaultsOf(report).join('\n')
    match(faults, /websockets: expected closed 0, got [1-9]/)
    match(faults, /streams \d+: bytes by the kernel: expected \d+, got \d+/)
    ok(report.counting.websockets.lost + report.counting.streams.foreign > 0, faults)
  })
}

test.run()
