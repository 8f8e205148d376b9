// What the bench has measured, as docs/about/performance.json keeps it, and how its numbers are written.

import type { CarryResult } from './carry.ts'
import type { HandoverResult } from './handover.ts'
import type { Machine } from './machine.ts'
import type { OverheadResult } from './overhead.ts'
import type { StartResult } from './start.ts'
import type { StepsResult } from './steps.ts'
import type { StateResult } from './state.ts'
import type { DownloadResult } from './download.ts'
import type { ToldResult } from './told.ts'
import type { TrustResult } from './trust.ts'
import type { UpdateResult } from './update.ts'

export interface Section<T> {
  machine: Machine
  command: string
  result: T
}

export interface ContainerResult {
  /** for docs/about/performance.md, below a heading of its own */
  markdown: string
  /** absent: measured before there was a goal. The pause behind a holder, stop-first, and the start of the application in it */
  pauseMs?: number
  startMs?: number
}

export interface Wave {
  hosts: number
  seconds: number
  /** times what one host takes */
  ratio: number
}

export interface FleetResult {
  delaySeconds: number
  answerSeconds: number
  waves: Wave[]
  markdown: string
}

/** What docs/about/performance.json keeps: a run of one part leaves the others as they were. */
export interface Results {
  handover?: Section<HandoverResult>
  update?: Section<UpdateResult>
  overhead?: Section<OverheadResult>
  trust?: Section<TrustResult>
  carry?: Section<CarryResult>
  container?: Section<ContainerResult>
  fleet?: Section<FleetResult>
  state?: Section<StateResult>
  told?: Section<ToldResult>
  download?: Section<DownloadResult>
  start?: Section<StartResult>
  steps?: Section<StepsResult>
}

/** Each part from the longer of two runs, of equal ones from the later; `kept` are those that stay as they were. Pure. */
export function longerOf(before: Results, now: Results): { all: Results; kept: string[] } {
  const kept = Object.entries(now).filter(([part, section]: [string, Section<unknown>]) => {
    const earlier = before[part as keyof Results]
    return earlier !== undefined && lengthOf(earlier) > lengthOf(section)
  })
  const stays = Object.fromEntries(kept.map(([part]) => [part, before[part as keyof Results]]))
  return { all: { ...before, ...now, ...stays }, kept: kept.map(([part]) => part) }
}

/** Compared with others of the same part only: asked to be long or not, and how many switches that were. */
function lengthOf({ command, result }: Section<unknown>): number {
  const switches = (result as { switches?: unknown }).switches
  return (/ --long\b/.test(command) ? 1e6 : 0) + (typeof switches === 'number' ? switches : 0)
}

export const NAMES = {
  fresh: 'fresh connections',
  keepalive: 'keep-alive',
  stream: 'streams',
  websocket: 'WebSockets',
} as const

export function ratio(a: number, b: number): number {
  return Math.round((a / b) * 100) / 100
}

export function signed(share: number): string {
  return `${share < 0 ? '' : '+'}${(share * 100).toFixed(1)} %`
}

export function mib(kb: number): string {
  return `${Math.round(kb / 1024)} MiB`
}

export function mb(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`
}

export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`
}
