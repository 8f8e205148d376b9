// The agent's log events as one typed union, and their one formatter. No event ever has a secret in it.

import { fstatSync } from 'node:fs'
import type { ErrorCode } from './words/errors.ts'
import type { Kind, Outcome, Stage } from './words/state.ts'

export type LogEvent =
  | {
      event: 'serving'
      tag: string
      listeners: string[]
      managed: boolean
      missing: string[]
    }
  /** one more server of this process, after those of `serving` */
  | { event: 'listening'; address: string }
  | { event: 'unmanaged'; reason: string }
  | { event: 'operation'; id: string; kind: Kind; stage: Stage }
  | {
      event: 'finished'
      id: string
      kind: Kind
      outcome: Outcome
      to: string | null
      code: ErrorCode | null
      message: string | null
    }
  | {
      event: 'successor'
      pid: number
      tag: string
      doing: 'has started' | 'is accepting connections' | 'has passed its probation'
    }
  /** the process that keeps the sockets in a stop-first switch */
  | { event: 'holder'; pid: number; tag: string }
  | { event: 'drained'; moved: number; carried: number; ended: number; cut: number }
  | { event: 'reverting'; message: string }
  | { event: 'returned'; returned: number; cut: number }
  | { event: 'recovered'; message: string }
  | { event: 'stopping'; signal: string }
  /** what became of the connections of a process that stops without a successor */
  | { event: 'parted'; ended: number; idle: number; lost: number; cut: number }
  | { event: 'warning'; message: string }

export type Log = (event: LogEvent) => void

/** One line for a person or for the system's journal. */
export function formatEvent(event: LogEvent): string {
  switch (event.event) {
    case 'serving': {
      const how = event.managed ? ' (can update itself)' : '' // if not, the next line says why
      const lacks =
        event.missing.length === 0 ? '' : `; handovers are impossible: Node lacks ${event.missing.join(', ')}`
      // none: the application has closed the server with which it looked whether its port is free
      const where = event.listeners.length === 0 ? '' : ` on ${event.listeners.join(', ')}`
      return `serving ${event.tag}${where}${how}${lacks}`
    }
    case 'listening':
      return `also listening on ${event.address}`
    case 'unmanaged':
      return `cannot update itself: ${event.reason}`
    case 'operation':
      return `${event.kind} ${event.id}: ${event.stage}`
    case 'finished': {
      const to = event.to === null ? '' : ` to ${event.to}`
      const why = event.message === null ? '' : `: ${event.message} [${event.code ?? 'unexpected'}]`
      return `${event.kind} ${event.id}${to}: ${event.outcome}${why}`
    }
    case 'successor':
      return `${event.tag} (pid ${event.pid}) ${event.doing}`
    case 'holder':
      return `a helper process (pid ${event.pid}) holds the sockets until ${event.tag} starts`
    case 'drained':
      return `drained connections: ${event.moved} moved to the new process (${event.carried} in use), ${event.ended} asked to reconnect, ${event.cut} cut off`
    case 'returned':
      return `${event.returned} connections handed back, ${event.cut} cut off`
    case 'stopping':
      return `stopping (${event.signal})`
    case 'parted':
      return `closed connections: ${event.ended} long-lived (asked to reconnect), ${event.idle} idle (${event.lost} of them with a request in transit); requests cut off: ${event.cut}`
    case 'reverting':
      return `reverting ${event.message}`
    case 'recovered':
    case 'warning':
      return `${event.event}: ${event.message}`
    default:
      return event satisfies never
  }
}

export const logToStdout: Log = (event) => {
  process.stdout.write(`${isInFile() ? `${new Date().toISOString()} ` : ''}baton: ${formatEvent(event)}\n`)
}

/** A journal and an engine note the time of each line themselves. */
function isInFile(): boolean {
  try {
    return fstatSync(1).isFile()
  } catch {
    return false
  }
}
