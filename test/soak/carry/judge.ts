// What a carry must stand, held against what was seen: one judgement for the soak, for CI's short form, and for the carry that is
// wrong on purpose.

import type { IdleRunReport, KillsReport, Report, SwitchesReport } from './runs.ts'

const MEMORY_GROWTH_MAX = 1.3
/** a timer, a socket of the moment */
const DESCRIPTORS_MORE_MAX = 4
const ANSWERED_MS_MAX = 1000

/** Every broken promise, in words; none where all is well. */
export function carryFaultsOf(report: Report): string[] {
  const faults: string[] = []
  const expect = (holds: boolean, fault: string) => void (holds || faults.push(fault))
  if (report.what === 'switches') judgeSwitches(report, expect)
  else if (report.what === 'idle') judgeIdle(report, expect)
  else judgeKills(report, expect)
  if (report.what === 'kills') return faults
  for (const [counter, by] of Object.entries(report.kernel ?? {}))
    expect(by === 0, `expected the kernel's ${counter} not to move, it moved by ${by}`)
  return faults
}

type Expect = (holds: boolean, fault: string) => void

function judgeSwitches({ times, counting, carried, cut }: SwitchesReport, expect: Expect): void {
  const { websockets, streams, differing, hops } = counting
  for (const [kind, counted] of Object.entries({ websockets, streams })) {
    for (const key of ['lost', 'doubled', 'reordered', 'foreign', 'closed'] as const)
      expect(counted[key] === 0, `${kind}: expected ${key} 0, got ${counted[key]}`)
    expect(counted.messages > counted.clients * times, `${kind}: only ${counted.messages} messages`)
  }
  const all = websockets.clients + streams.clients
  expect(
    carried.every((one) => one === all),
    `expected ${all} carried at each switch, got ${carried.join(', ')}`,
  )
  expect(cut === 0, `expected no connection cut, got ${cut}`)
  expect(
    hops.every((one) => one === times),
    `expected every ledger to have come through ${times} switches, got ${hops.join(' to ')}`,
  )
  for (const one of differing) expect(false, one)
}

function judgeIdle(report: IdleRunReport, expect: Expect): void {
  const { clients, moved, cut, closed, lost, served, memoryKb, descriptors } = report
  expect(cut + closed + lost === 0, `expected no connection cut, closed or lost, got ${cut}, ${closed} and ${lost}`)
  expect(
    moved.every((one) => one >= clients),
    `expected at least ${clients} moved at each switch, got ${moved.join(', ')}`,
  )
  expect(served >= clients, `expected all ${clients} to be served by the last release, got ${served}`)
  const [first = 0, ...later] = memoryKb
  const most = Math.max(...later)
  expect(most <= first * MEMORY_GROWTH_MAX, `expected memory as before, ${first} kB, got ${most} kB`)
  const [before = 0, ...after] = descriptors
  const more = Math.max(...after) - before
  expect(more <= DESCRIPTORS_MORE_MAX, `expected descriptors as before, ${before}, got ${more} more`)
}

function judgeKills({ times, rounds, foreign, reordered, doubled, lost }: KillsReport, expect: Expect): void {
  expect(rounds.length === times, `expected ${times} kills, got ${rounds.length}`)
  for (const [at, { carried, served, closed, hung, answeredMs, idleServed, returned, outcome }] of rounds.entries()) {
    const round = `kill ${at + 1}`
    expect(
      carried > 0 && served + closed >= carried,
      `${round}: ${carried} carried, ${served} served, ${closed} closed`,
    )
    expect(hung === 0, `${round}: expected every connection to be served or closed within a second, ${hung} hang`)
    expect(answeredMs <= ANSWERED_MS_MAX, `${round}: the predecessor answered after ${answeredMs} ms`)
    expect(returned > 0 && idleServed === returned, `${round}: ${returned} taken back, ${idleServed} of them served`)
    expect(outcome === 'reverted', `${round}: expected reverted, got ${outcome}`)
  }
  for (const [key, value] of Object.entries({ foreign, reordered, doubled, lost }))
    expect(value === 0, `expected ${key} 0, got ${value}`)
}
