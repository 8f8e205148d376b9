// The report of a fleet: one JSON object a line. plugins/callback/report.py writes it as results arrive; this file reads it as it
// grows. `--json` prints the same lines.

import { open } from 'node:fs/promises'

/** The state of a host. `taken_back`: it was moved and is back; `stuck`: it was to go back and did not. */
export interface Row {
  host: string
  wave: number | null
  from: string | null
  to: string | null
  /** what it runs at the end, if known */
  now?: string | null
  outcome: string
  ms: number | null
  why: string | null
  exit: number
}

export interface Seen {
  event: 'seen'
  host: string
  running: string | null
  installed: string | null
  backup: string | null
  from: string | null
  to: string | null
  route: string
  inFlight: { kind: string; from: string; to: string | null } | null
  unproven: { tag: string } | null
  /** which releases it takes without being asked; null: none. Absent: an older run */
  byItself?: string | null
  /** how a rehearsal of what it would take has ended there; null or absent: nothing is known */
  rehearsal?: { verdict: string; reason: string } | null
  refused: { why: string; exit: number } | null
  outcome?: 'gone'
  why?: string
}

export interface Plan {
  event: 'plan'
  release: string
  rollback: boolean
  /** all hosts, in the order of the inventory */
  hosts: string[]
  /** number of the first of `waves`; more than 1 if a run is resumed */
  first: number
  waves: string[][]
  upToDate: string[]
  refused: { host: string; why: string; exit: number }[]
  gone: string[]
  stop: { why: string; exit: number } | null
}

export interface HostResult {
  event: 'result'
  outcome: 'updated' | 'rolled_back' | 'up_to_date' | 'planned' | 'looked' | 'stopped' | 'refused'
  release: string
  exit: number
  why: string | null
  counts: Record<string, number>
  /** hosts that are not as they should be, the worst last */
  look: string[]
  hosts: Row[]
}

export type FleetEvent =
  | { event: 'run'; resumed: boolean; options: Record<string, unknown> }
  | Seen
  | Plan
  | { event: 'wave'; wave: number; of: number; step: 'begin' | 'soak' | 'good'; hosts: string[]; seconds?: number }
  | { event: 'start'; host: string; wave: number }
  | ({ event: 'host' | 'back' } & Row)
  | { event: 'stop'; why: string; exit: number; wave: number; hosts: string[]; back: string[]; onFailure: string }
  | HostResult

/** Objects from a text that may end in the middle of a line; `rest` is that end. */
export function readLines(text: string): { events: FleetEvent[]; rest: string } {
  const lines = text.split('\n')
  const rest = lines.pop() ?? ''
  const events = lines.flatMap((line) => {
    try {
      return [JSON.parse(line) as FleetEvent]
    } catch {
      return [] // cut off: its writer died
    }
  })
  return { events, rest }
}

/** Each call returns the events written since the call before. */
export function followRun(path: string, offset: number): () => Promise<FleetEvent[]> {
  let at = offset
  let kept = Buffer.alloc(0)
  return async () => {
    const file = await open(path, 'r').catch(() => null)
    if (file === null) return []
    try {
      const { size } = await file.stat()
      if (size <= at) return []
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - at), 0, size - at, at)
      at += bytesRead
      const text = Buffer.concat([kept, buffer.subarray(0, bytesRead)])
      const end = text.lastIndexOf(0x0a) + 1
      kept = Buffer.from(text.subarray(end))
      return readLines(text.subarray(0, end).toString()).events
    } finally {
      await file.close()
    }
  }
}
