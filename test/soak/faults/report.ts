// What many faults have shown, as a table, and which promises were broken.

import type { StepFault } from '../../fixtures/at-steps.ts'
import { type GroundName, HANG_MS } from './ground.ts'
import { brokenIn, nameOf, type World } from './run.ts'
import type { Plan, Side, Trial } from './trial.ts'

/** one line of the table */
export interface Line {
  ground: GroundName
  signal: StepFault['signal']
  side: Side
  at: 'steps' | 'instants'
  trials: number
  updated: number
  reverted: number
  failed: number
  /** nobody was left, and somebody (or something) had to start it again */
  startedAgain: number
  /** until it answered again; null where all were started by hand */
  backMs: { median: number; longest: number } | null
}

export interface FaultsReport {
  lines: Line[]
  worlds: Omit<World, 'trials'>[]
  broken: string[]
}

const BACK_MS = 1000

export function reportOf(worlds: readonly World[]): FaultsReport {
  const lines = new Map<string, { of: Plan; ground: GroundName; trials: Trial[] }>()
  for (const { ground, trials } of worlds) {
    for (const trial of trials) {
      const { signal, side, at } = trial.plan
      const key = [ground, signal, side, typeof at].join(' ')
      const line = lines.get(key) ?? { of: trial.plan, ground, trials: [] }
      line.trials.push(trial)
      lines.set(key, line)
    }
  }
  return {
    lines: [...lines.values()].map(({ of, ground, trials }) => lineOf(of, ground, trials)),
    worlds: worlds.map(({ trials: _, ...rest }) => rest),
    broken: worlds.flatMap(brokenIn),
  }
}

function lineOf({ signal, side, at }: Plan, ground: GroundName, trials: Trial[]): Line {
  const count = (outcome: string) => trials.filter((trial) => trial.outcome === outcome).length
  const back = trials.flatMap(({ backMs }) => (backMs === null ? [] : [backMs])).toSorted((a, b) => a - b)
  return {
    ground,
    signal,
    side,
    at: typeof at === 'number' ? 'instants' : 'steps',
    trials: trials.length,
    updated: count('updated') + count('rolled_back'), // an update to an older release ends as `rolled_back`
    reverted: count('reverted'),
    failed: count('failed'),
    startedAgain: trials.filter(({ isNobodyLeft }) => isNobodyLeft).length,
    backMs: back.length === 0 ? null : { median: back[back.length >> 1] ?? 0, longest: back.at(-1) ?? 0 },
  }
}

/** What took longer than it may on a machine that is quiet, in words. */
export function lateIn(worlds: readonly World[]): string[] {
  return worlds.flatMap(({ ground, trials }) =>
    trials.flatMap(({ plan, backMs, isNobodyLeft, isSole }) => {
      // who is started again takes as long as a start does; what is stopped altogether goes on when it is let go on
      if (backMs === null || isNobodyLeft || isSole) return []
      const mostMs = BACK_MS + (plan.signal === 'SIGSTOP' ? HANG_MS : 0)
      return backMs > mostMs ? [`${ground}, ${nameOf(plan)}: back after ${backMs} ms`] : []
    }),
  )
}

export function markdownOf({ lines, worlds, broken }: FaultsReport): string {
  const head = [
    '| ground | signal | to | at | trials | updated | reverted | failed | started again | back: median, longest (ms) |',
    '| --- | --- | --- | --- | --: | --: | --: | --: | --: | --: |',
  ]
  const rows = lines.map(
    ({ ground, signal, side, at, trials, updated, reverted, failed, startedAgain, backMs }) =>
      `| ${[ground, signal, side, at, trials, updated, reverted, failed, startedAgain].join(' | ')} | ${backMs === null ? 'by hand' : `${backMs.median}, ${backMs.longest}`} |`,
  )
  const rest = worlds.map(
    (world) =>
      `${world.ground}: ${world.rowsAcknowledged} rows acknowledged, ${world.rowsMissing} missing, ${world.rowsDoubled} doubled; ${world.refused} connections refused; a switch without a fault takes ${world.spanMs} ms`,
  )
  return [...head, ...rows, '', ...rest, '', `broken promises: ${broken.length}`, ...broken].join('\n')
}

/** What the page keeps of it: a row for each signal. */
export function summaryOf({ lines, worlds, broken }: FaultsReport, late: readonly string[]): string {
  const head = [
    '| signal | trials | updated | started again | longest time back, ms |',
    '| --- | --: | --: | --: | --: |',
  ]
  const rows = [...new Set(lines.map(({ signal }) => signal))].map((signal) => {
    const of = lines.filter((line) => line.signal === signal)
    const sum = (count: (line: Line) => number) => of.reduce((total, line) => total + count(line), 0)
    const longest = Math.max(...of.map(({ backMs }) => backMs?.longest ?? 0))
    const counts = [sum(({ trials }) => trials), sum(({ updated }) => updated), sum(({ startedAgain }) => startedAgain)]
    return `| ${signal} | ${counts.join(' | ')} | ${longest} |`
  })
  const sum = (count: (one: FaultsReport['worlds'][number]) => number) =>
    worlds.reduce((total, one) => total + count(one), 0)
  const told = `Rows acknowledged ${sum((one) => one.rowsAcknowledged)}, missing ${sum((one) => one.rowsMissing)}, doubled ${sum((one) => one.rowsDoubled)}; broken promises ${broken.length}, late ${late.length}.`
  return [...head, ...rows, '', told, ...broken].join('\n')
}
