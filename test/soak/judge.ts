// What a soak must find, whatever was soaked: the same judgement is passed on Baton and on a handover that is wrong on purpose.

import type { Counters } from '../lab/netns.ts'

export interface SoakReport {
  subject: 'baton' | 'naive'
  switches: number
  requests: number
  lost: number
  closed: number
  rowsAcknowledged: number
  /** of the acknowledged ones */
  rowsFound: number
  integrity: string
  /** descriptors of the serving process after the first switch and after the last */
  fdsAfterFirst: number
  fdsAtEnd: number
  processesAtEnd: number
  /** what the kernel counted meanwhile; null where this host has no network namespaces */
  kernel: Counters | null
  switchMs: number[]
  longestStallMs: number
  errors: Record<string, number>
}

/** Every broken promise, in words; none where all is well. */
export function faultsOf(report: SoakReport): string[] {
  const faults: string[] = []
  const expect = (holds: boolean, fault: string) => void (holds || faults.push(fault))
  expect(
    report.requests > report.switches * 50,
    `expected more than ${report.switches * 50} requests, got ${report.requests}`,
  )
  expect(report.lost === 0, `expected no request lost, got ${report.lost}: ${JSON.stringify(report.errors)}`)
  expect(report.closed === 0, `expected no connection closed by the server, got ${report.closed}`)
  expect(report.rowsAcknowledged > 0, 'expected acknowledged rows, got none')
  expect(
    report.rowsFound === report.rowsAcknowledged,
    `expected all ${report.rowsAcknowledged} acknowledged rows, found ${report.rowsFound}`,
  )
  expect(report.integrity === 'ok', `expected integrity_check to say ok, got ${report.integrity}`)
  expect(
    report.fdsAtEnd === report.fdsAfterFirst,
    `expected ${report.fdsAfterFirst} file descriptors as after the first switch, got ${report.fdsAtEnd}`,
  )
  expect(report.processesAtEnd === 1, `expected one process at the end, got ${report.processesAtEnd}`)
  for (const [counter, by] of Object.entries(report.kernel ?? {})) {
    expect(by === 0, `expected the kernel's ${counter} not to move, it moved by ${by}`)
  }
  return faults
}
