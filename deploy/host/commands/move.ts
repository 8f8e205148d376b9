// `upgrade` moves to another release, or keeps the service from updating by itself; `rollback` goes back, `cancel` ends an operation
// before anything has changed.

import { join } from 'node:path'
import { ownCommand, snapshotDirectory, wayToAside } from '../../../agent/install.ts'
import {
  BatonError,
  durationText,
  formatLeft,
  type MadeCopy,
  parseTag,
  pauseFault,
  SHOWN_BY,
  type StateMoved,
} from '../../../agent/words.ts'
import { fromEnvironment, parseRelease } from '../place/choices.ts'
import { formatBytes } from '../../lib/progress.ts'
import { formatMoved, formatPause, rehearsalLines } from '../../lib/switch.ts'
import type { Foreseen, ForeseenSwitch } from '../service/foresee.ts'
import type { Operate, Operated } from '../service/request.ts'
import type { Step } from '../plan/step.ts'
import { type Context, locate, sideOf } from './context.ts'
import { assertGood, NOTHING, requestFor } from './deeds.ts'
import { scheduleLines } from './status.ts'

export async function upgrade(context: Context): Promise<number> {
  const { release } = fromEnvironment(context.service, context.environment)
  const tag = parseRelease(context.flags.release ?? release)
  if (context.flags.rehearse && !context.flags.dryRun) {
    throw new BatonError('invalid_request', '`--trial` works only with `--dry-run`', {
      hint: 'an upgrade runs the trial automatically, before it changes anything',
    })
  }
  return await move(context, requestFor(context, ownCommand('upgrade'), { kind: 'update', tag }))
}

/** Brings the backup executable back if no tag is named, or if the backup is that release; else fetches that release. */
export async function rollback(context: Context, tag: string | null): Promise<number> {
  const wanted = tag === null ? null : parseTag(tag)
  return await move(context, requestFor(context, ownCommand('rollback'), { kind: 'rollback', tag: wanted }))
}

export async function cancelCommand(context: Context): Promise<number> {
  const { service, report } = context
  const located = await locate(context)
  await using open = await sideOf(context, located)
  const done = await open.side.cancel(located.receipt)
  if (done === null)
    return report.result({ ...NOTHING, outcome: 'up_to_date' }, [`${service}: no operation is running`])
  const { outcome, from, to, id } = done
  if (outcome !== 'cancelled') {
    throw new BatonError(
      'too_late',
      `expected the operation to be cancelled, but its outcome was ${outcome ?? 'unknown'}`,
      {
        members: { outcome, from, to, operationId: id, operation: JSON.stringify(done) },
      },
    )
  }
  return report.result({ outcome, from, to, operationId: id, operation: done }, [
    `the ${done.kind} from ${from}${to === null ? '' : ` to ${to}`} was cancelled: nothing has changed`,
  ])
}

/** `upgrade --pause-until DAY` and `--unpause`: a person's own commands still work. `until` null: ends the pause. */
export async function pauseCommand(context: Context, until: string | null): Promise<number> {
  const located = await locate(context)
  await using open = await sideOf(context, located)
  const { schedule } = await open.side.pause({ receipt: located.receipt, until })
  const { pausedUntil } = schedule
  if (until !== null && pausedUntil === null)
    // an older service takes it, and it ends the pause that was there
    throw new BatonError('invalid_request', `expected a future time in \`--pause-until\`, got ${until}`)
  const said =
    pausedUntil === null
      ? 'automatic updates are no longer paused'
      : `nothing is installed automatically before ${pausedUntil}; \`${ownCommand('upgrade --unpause')}\` ends the pause`
  const outcome = pausedUntil === null ? 'unpaused' : 'paused'
  return context.report.result({ ...NOTHING, outcome, schedule }, [said, ...scheduleLines(schedule)])
}

async function move(context: Context, request: Operate): Promise<number> {
  const { service, report, flags } = context
  const located = await locate(context)
  const { receipt } = located
  await using open = await sideOf(context, located, true)
  if (flags.dryRun) return told(context, await open.side.foresee({ receipt, request }))
  const operated = await open.side.operate({ receipt, request })
  assertGood(operated)
  const { outcome, from, to, report: operation } = operated
  return report.result({ outcome, from, to, operationId: operation?.id ?? null, operation }, [
    lineOf(service, operated),
    ...rehearsalLines(operation?.trial ?? null),
    ...dataLines(operation?.stateMoved ?? null),
    ...copyLines(receipt.stateDirectory, operation?.copies ?? []),
    ...(operation?.cutWork ?? []).map((reason) => `the switch interrupted unfinished work: ${JSON.stringify(reason)}`),
  ])
}

function dataLines(moved: StateMoved | null): string[] {
  if (moved === null) return []
  return [
    `the database is now a copy of ${moved.restored}; the previous database was set aside as ${moved.aside}`,
    formatLeft(moved),
    wayToAside(),
  ]
}

function copyLines(stateDirectory: string, copies: readonly MadeCopy[]): string[] {
  const folder = snapshotDirectory(stateDirectory)
  return copies.map(
    ({ name, bytes, ms }) =>
      `the data from before the update is in ${join(folder, name)}: ${formatBytes(bytes)}, copied in ${ms} ms`,
  )
}

function lineOf(service: string, { outcome, from, to, report, skipped = [] }: Operated): string {
  if (skipped.length > 0)
    return `${service} stays on ${from}: ${skipped.join(', ')} failed here before, and there is no other newer release`
  if (outcome === 'up_to_date') return `${service} ${from} is ${to === null ? 'up to date' : 'already in place'}`
  const isLive = report !== null && report.switchMs !== null // one that was stopped may still be
  const moved = isLive ? `; ${formatMoved(report)}` : ''
  const pause = formatPause(report ?? {})
  return `${service} ${to ?? ''} is ${isLive ? 'running and healthy' : 'in place'}, replacing ${from}${moved}${pause === null ? '' : `; ${pause}`}`
}

function told({ service, report, flags: { rehearse: asked } }: Context, foreseen: Foreseen): number {
  const { would, from, to, sha256, switch: next, trial } = foreseen
  const steps: Step[] =
    would === 'up_to_date' ? [] : [{ do: sha256 === null ? 'rollback' : 'update', service, from, to }]
  report.note(`${service} ${from}, dry run`)
  report.plan(steps)
  if (would !== 'up_to_date') report.note(formatForeseen(next, to))
  if (asked && trial === null && would === 'updated')
    report.note('no trial was run, because the running release declares no database')
  const end = { outcome: 'planned', would, from, to, sha256, switch: next, operationId: null }
  return report.result({ ...end, ...(trial === null ? {} : { trial }) }, rehearsalLines(trial))
}

/** Pure. `to`: the release that would be in place. */
export function formatForeseen(next: ForeseenSwitch | null, to: string): string {
  if (next === null) return 'the service is not running, so it would be started without a switch'
  const { order, expectedMs, shownBy, maxPauseMs } = next
  if (order === 'start-first') return 'the switch: start-first, so no client would wait'
  const expected = expectedMs === null || shownBy === null ? null : { expectedMs, shownBy }
  const wait =
    expected === null ? null : `clients would wait about ${expected.expectedMs} ms (${SHOWN_BY[expected.shownBy]})`
  if (order === 'stop-first')
    return `the switch: ${order}; ${wait ?? 'how long clients would wait is not known until the first switch'}`
  const isTooLong = maxPauseMs !== null && pauseFault(expected, maxPauseMs) !== null
  const refused = isTooLong
    ? `, but \`maxPause\` allows ${durationText(maxPauseMs)}, so the switch would be refused`
    : ''
  const alone = wait === null ? '' : `: then ${wait}${refused}`
  return `the switch: start-first, without a wait, if ${to} also declares that; otherwise stop-first${alone}`
}
