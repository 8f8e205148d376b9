// What a holder knows of its switch, and what it writes down of it.

import type { Journal } from '../../disk/journal.ts'
import { logToStdout } from '../../log.ts'
import type { Blame } from '../../words/blame.ts'
import { type BatonError, reasonOf } from '../../words/errors.ts'
import type { HandoverReport } from '../../words/state.ts'
import type { FromHolder, Holding, Leaving, ProcessName, ToHolder } from '../../words/wire.ts'
import type { Channel } from '../channel.ts'
import { spawnSuccessor, type Successor } from '../give/child.ts'
import type { TrialOptions } from '../give/trial.ts'
import type { Passing } from './passing.ts'

const UNKNOWN = { problem: 'it is gone', feed: false }

export interface Hold {
  /** its listeners are none once they are let go */
  holding: Holding
  /** where the old process listened */
  places: Holding['listeners']
  up: Channel<FromHolder, ToHolder>
  passing: Passing
  report: HandoverReport
  journal: Journal
  /** the old process's last message; null if it was killed before it sent one */
  left: Leaving | null
  /** processes that the old application had started when this process last looked */
  children: ProcessName[]
  /** in `performance.now()`: when the old process stopped reading; null while it serves */
  pausedAt: number | null
  /** in `performance.now()`: since when a successor in probation answers nobody, if that is why it fails; else null */
  silentSince: number | null
  /** aborts when this process gets a signal to stop, or the old process drops it */
  stop: AbortController
}

/** Starts a release behind the sockets that are held; it waits at its gate. */
export function spawnFor(holding: Holding): Successor {
  const { command, listeners, old, values = null } = holding
  return spawnSuccessor(command, listeners, holding, { gate: old, values })
}

export function trialOf(own: Hold): TrialOptions {
  const { service, tag, healthPath, readyMs, hangMs } = own.holding
  return {
    service,
    tag,
    healthPath,
    readyMs,
    hangMs,
    log: logToStdout,
    isOldWell: () => Promise.resolve(true),
    excused: own.left?.illness ?? null,
    couldUpdate: () => Promise.resolve(own.left?.ability ?? UNKNOWN),
    note: () => note(own),
    leaving: own.stop.signal,
    silent: (since) => (own.silentSince = since),
  }
}

export type Failed = Blame & { code: BatonError['code']; message: string }

/** Writes the report and the durations to the journal, for the process that ends the operation. */
export async function note(own: Hold, failed?: Failed) {
  await own.journal.change(({ operation, probation }) => {
    if (operation !== null) {
      operation.handover = own.report
      operation.durations.restart = restartMs(own)
    }
    if (probation !== null && failed !== undefined) probation.failed = failed
  })
}

/** Milliseconds since the restart stage began; since the pause if the old process was killed before it sent that time. */
export function restartMs({ left, pausedAt }: Hold): number {
  const sinceMs = performance.now() - (pausedAt ?? performance.now())
  return Math.round(left === null ? sinceMs : left.restartMs - left.pausedMs + sinceMs)
}

export function warn(cause: unknown): void {
  logToStdout({ event: 'warning', message: reasonOf(cause) })
}
