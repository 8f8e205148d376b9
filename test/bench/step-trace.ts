// In the bench's service: which step of a switch it took when, and how long its thread was busy at most in one turn of its loop since the
// step before. Processor time, so that what else the machine does is not in it.

import { subscribe } from 'node:diagnostics_channel'
import { appendFileSync } from 'node:fs'
import type { Server } from 'node:http'
import { STEPS_CHANNEL } from '../../agent/handover/moments.ts'

export interface StepSeen {
  pid: number
  step: string
  /** in ms since 1970 */
  at: number
  /** processor time since the step before, and the most of it in one turn, ms */
  usedMs: number
  longestMs: number
}

/** Variable with the file that gets them, one a line. */
export const STEPS_FILE = 'BENCH_STEPS'

/** asked for a second before the order, so that the time before ORDERED is one without a switch */
export const STEADY_PATH = '/steady'
export const ORDERED = 'ordered'

/** A turn is seen as long as the time between two looks; they are this far apart at least. */
const LOOK_EVERY_MS = 1

export function traceSteps(server: Server, path: string | undefined = process.env[STEPS_FILE]): void {
  if (path === undefined) return
  let [sinceStep, sinceTurn, longestMs] = [usedMs(), usedMs(), 0]
  const look = () => {
    const used = usedMs()
    longestMs = Math.max(longestMs, used - sinceTurn)
    return used
  }
  setInterval(() => (sinceTurn = look()), LOOK_EVERY_MS).unref()
  const note = (step: string) => {
    const used = look()
    const at = performance.timeOrigin + performance.now()
    const seen: StepSeen = { pid: process.pid, step, at, usedMs: used - sinceStep, longestMs }
    appendFileSync(path, `${JSON.stringify(seen)}\n`)
    const noted = usedMs() - used // what this takes is not the service's
    ;[sinceStep, sinceTurn, longestMs] = [used + noted, sinceTurn + noted, 0]
  }
  subscribe(STEPS_CHANNEL, (step) => note(String(step)))
  server.prependListener('request', ({ url }) => {
    if (url === '/admin/update/rollback') note(ORDERED)
    if (url === STEADY_PATH) note('steady')
  })
}

function usedMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
