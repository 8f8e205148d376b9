// The events of a deployment: one typed union, and one formatter for people. `--json` prints the events as they are.
// Must hold: the last line is `result`, or `error` with the code; its `exit` is the process's exit code.

import { basename } from 'node:path'
import {
  BatonError,
  type ErrorCode,
  EXIT,
  formatLeft,
  MEANINGS,
  type Outcome,
  type StateMoved,
} from '../../agent/words.ts'
import { formatBytes, formatDuration } from '../lib/progress.ts'
import { outcomeText } from '../lib/switch.ts'
import { formatDifference, type Difference } from './difference.ts'
import { shortId } from './inspection.ts'
import type { ContainerCopy, HoldWay, Unfinished } from './job.ts'

/** The steps, in this order. `revert` is done if `switch` or a later step fails. */
export const STEPS = [
  'resolve',
  'pull',
  'verify',
  'snapshot',
  'create',
  'compare',
  'trial',
  'keep',
  'switch',
  'health',
  'probation',
  'finish',
  'revert',
] as const
export type ContainerStep = (typeof STEPS)[number]

export interface Version {
  /** what `docker ps` shows */
  reference: string
  image: string
  digest: string | null
  /** from the image's own label, else the release asked for */
  version: string | null
}

export type DeployEvent =
  | {
      event: 'plan'
      container: string
      engine: string
      from: Version
      to: Version
      plan: string[]
      differences: Difference[]
    }
  | { event: 'step'; step: ContainerStep; detail: string }
  | { event: 'progress'; step: 'pull'; doneBytes: number; totalBytes: number }
  | { event: 'note'; message: string }
  | { event: 'warning'; message: string }
  | { event: 'log'; line: string }
  | EndEvent

/** What a container's own health check says now. `starting`: it has not passed since the start, and may yet. `unchecked`: there is none. */
export type Health = 'healthy' | 'starting' | 'unhealthy' | 'unchecked' | 'restarting' | 'stopped'

const HEALTHS: Record<Health, string> = {
  healthy: 'healthy',
  starting: 'starting (its health check has not passed yet)',
  unhealthy: 'not healthy',
  unchecked: 'without a health check',
  restarting: 'but its process has exited and will be restarted (until then, clients get no answer)',
  stopped: 'but is stopped',
}

/** Clients were, at a port that the container itself published. `holdable`: `--keep-port` has them wait from then on. */
export interface Refused {
  holdable: boolean
}

/** How a deployment ended. `planned`: `would` says what would be done. `status`: nothing was to be done. */
export interface ContainerEnd {
  outcome: Outcome | 'planned' | 'status'
  from: string | null
  to: string | null
  would: 'updated' | 'up_to_date' | 'rolled_back' | null
  /** id and digest of the image that runs now; for a plan, of the image that would run */
  image: string | null
  digest: string | null
  /** milliseconds in which the service gave no answer: the longest wait at a holder, else in total; null if not measured */
  downMs: number | null
  /** what was asked and how often; or why nothing was */
  downMeasured: string | null
  /** milliseconds in which clients were answered, and the health path answered with an error of the server; null if not measured */
  illMs: number | null
  /** that clients were refused while nobody answered; null: they were not, or that is not known */
  refused: Refused | null
  /** the container has moved behind a holder, or out again, or would; null for any other deployment */
  moved: HoldWay | null
  /** copy of the database from before the switch, as a path inside the container */
  snapshot: string | null
  /** the same copy as the engine's host has it; null: it is on no mount */
  snapshotOnHost: string | null
  /** copies of what is not in SQLite, from before the switch */
  copies: readonly ContainerCopy[]
  /**
   * the data of a release with no way back were exchanged for those of before, and lie aside; for `status`: by the last switch. Paths as
   * the engine's host has them. Null: nothing was exchanged
   */
  stateMoved: StateMoved | null
  /** whether what runs now passes its health check; null if not checked, or if it has none */
  healthy: boolean | null
  /** for `status`: the same in one word */
  health: Health | null
  /** if going back failed: whether the service answers nevertheless; null if unknown or not asked */
  serves: boolean | null
  /** for `status`: what is under way, no matter who began it; null if nothing is */
  inFlight: Unfinished['at'] | null
  /** for `status`: the release that failed here last, which `latest` passes over, or the id of its image; null: none that is known */
  failed: string | null
  /** for `status`: the container that holds its ports; null: none does */
  holder: { name: string; runs: boolean; isUsed: boolean } | null
  /** for `status`: names of containers that a killed run or a failed release has left; `--clean` removes them */
  left: string[]
  /** for `status`: id of the container that serves; null while no container has the name */
  containerId: string | null
  /** for `status`: when its process started, no matter who started it; ISO 8601, UTC */
  startedAt: string | null
  error: BatonError | null
}

export interface EndEvent extends Omit<ContainerEnd, 'error'> {
  event: 'result' | 'error'
  container: string
  code: ErrorCode | null
  message: string | null
  hint: string | null
  exit: number
}

/** May be slow: the deployment waits for it. */
export type ContainerReport = (event: DeployEvent) => void | Promise<void>

/** how the end of `downMeasured` says that clients waited, where others are refused */
export const HELD = 'through the container’s holder'

const NOTHING: Omit<ContainerEnd, 'outcome'> = {
  from: null,
  to: null,
  would: null,
  image: null,
  digest: null,
  downMs: null,
  downMeasured: null,
  illMs: null,
  refused: null,
  moved: null,
  snapshot: null,
  snapshotOnHost: null,
  copies: [],
  stateMoved: null,
  healthy: null,
  health: null,
  serves: null,
  inFlight: null,
  failed: null,
  holder: null,
  left: [],
  containerId: null,
  startedAt: null,
  error: null,
}

export function ended(outcome: ContainerEnd['outcome'], known: Partial<ContainerEnd> = {}): ContainerEnd {
  return { ...NOTHING, ...known, outcome }
}

export function endEvent(container: string, { error, ...rest }: ContainerEnd): EndEvent {
  const { code = null, message = null, hint = null } = error ?? {}
  const isBad = rest.outcome === 'reverted' || rest.outcome === 'failed'
  const exit = exitOf(rest.outcome, code, rest.serves)
  return { event: isBad ? 'error' : 'result', container, ...rest, code, message, hint, exit }
}

function exitOf(outcome: ContainerEnd['outcome'], code: ErrorCode | null, serves: boolean | null): number {
  if (outcome === 'reverted') return EXIT.reverted
  if (code === null) return EXIT.done
  const { exit } = MEANINGS[code]
  return exit === EXIT.down && serves === true ? EXIT.unexpected : exit // a service that answers is not down
}

/** The end that another process of this program has printed as its last line. */
export function endedOf({ event: _, container: __, exit: ___, code, message, hint, ...rest }: EndEvent): ContainerEnd {
  const details = hint === null ? {} : { hint }
  return { ...rest, error: code === null ? null : new BatonError(code, message ?? '', details) }
}

/** Lines for a person. Steps and bytes are drawn by progress.ts. */
export function formatDeployEvent(event: DeployEvent): string[] {
  switch (event.event) {
    case 'plan':
      return [
        `container   ${event.container} (${event.engine})`,
        `from        ${formatVersion(event.from)}`,
        `to          ${formatVersion(event.to)}`,
        'plan',
        ...event.plan.map((line, i) => `  ${String(i + 1).padStart(2)}. ${line}`),
        event.differences.length === 0 ? 'difference  only the image' : 'difference',
        ...event.differences.map((difference) => `  ${formatDifference(difference)}`),
      ]
    case 'step':
      return [`${event.step}: ${event.detail}`]
    case 'progress':
      return [`${formatBytes(event.doneBytes)} of ${formatBytes(event.totalBytes)}`]
    case 'note':
      return [event.message]
    case 'warning':
      return [`warning: ${event.message}`]
    case 'log':
      return [`  | ${event.line}`]
    case 'result':
    case 'error':
      return formatEnd(event)
    default:
      return event satisfies never
  }
}

function formatEnd(event: EndEvent): string[] {
  const { outcome, container, downMs, downMeasured, illMs, refused, snapshot, snapshotOnHost } = event
  const { copies, stateMoved, healthy } = event
  if (outcome === 'planned') {
    const would = event.would === 'up_to_date' ? 'is already up to date' : `would be ${wordOf(event.would, event)}`
    return [`planned: ${container} ${would}; nothing has changed, but the image may have been pulled`]
  }
  if (outcome === 'status') return formatStatus(event)
  const told = wordOf(outcome, event)
  if (outcome === 'failed') return [`${told}: ${container} ${formatFailed(event)}`]
  const image = event.image === null ? 'its previous image' : nameOfImage(event.image)
  const version = (outcome === 'reverted' ? event.from : event.to) ?? image
  const state = outcome === 'reverted' && healthy === false ? ' again, but is not healthy' : ''
  const ill = illMs === null || illMs === 0 ? '' : `, ${formatDuration(illMs)} with errors from its health path`
  const isHeld = downMeasured?.endsWith(HELD) === true
  const down = `${isHeld ? 'requests waited up to' : 'no requests were served for'} ${formatDuration(downMs ?? 0)}`
  const pause = downMs ? down : 'no pause was seen'
  const gap = downMs === null || (state !== '' && downMs === 0) ? '' : `; ${pause}${ill}`
  return [
    `${told}: ${container} runs ${version}${state}${gap}`,
    ...(downMeasured === null
      ? []
      : [`  ${downMs === null ? 'the pause was not measured: ' : 'measured with '}${downMeasured}`]),
    ...(refused === null ? [] : [`  clients were refused in the meantime${whatOfIt(refused, event)}`]),
    ...(snapshot === null
      ? []
      : [`  the database from before the switch: ${snapshotOnHost ?? `${snapshot} in the container`}`]),
    ...copies.map(
      ({ path, onHost, bytes, ms }) =>
        `  a copy of the data from before the switch, ${formatBytes(bytes)}, made in ${formatDuration(ms)}: ${onHost ?? `${path} in the container`}`,
    ),
    ...(stateMoved === null ? [] : [`  ${formatMoved(stateMoved)}`]),
  ]
}

function formatStatus({ container, from, to, health, holder, failed, inFlight, left, stateMoved }: EndEvent): string[] {
  const behind = holder === null ? '' : formatHolder(holder)
  const backup = from === null ? '' : `; previously ${from}`
  const busy = inFlight === null ? '' : `; a deployment is in progress (${inFlight})`
  const bad = failed === null ? '' : `; ${nameOfImage(failed)} has failed here`
  const over = left.length === 0 ? '' : `; left over: ${left.join(', ')}, which \`--clean\` removes`
  return [
    `${container} ${health === 'stopped' ? 'has' : 'runs'} ${to ?? 'an image of unknown version'}, ${HEALTHS[health ?? 'unhealthy']}${behind}${backup}${bad}${busy}${over}`,
    ...(stateMoved === null ? [] : [`  ${formatMoved(stateMoved)}`]),
  ]
}

function formatHolder({ name, runs, isUsed }: NonNullable<ContainerEnd['holder']>): string {
  if (isUsed) return `, behind its holder ${name}${runs ? '' : ', which is not running'}`
  return `, but does not use its holder ${name}, whose clients get no answer: BATON_HOLDER is not set`
}

/** A version stays as it is. */
function nameOfImage(text: string): string {
  return text.startsWith('sha256:') ? `the image ${shortId(text.slice('sha256:'.length))}` : text
}

/** A container that moves is of the same release before and after. */
function wordOf(outcome: ContainerEnd['outcome'] | null, { moved, from, to }: EndEvent): string {
  if (outcome !== 'updated' || moved === null)
    return outcome === null ? 'left as it is' : outcomeText(outcome, { from, to })
  return moved === 'hold' ? 'moved behind a holder' : 'moved out from behind its holder'
}

function whatOfIt({ holdable }: Refused, { moved, outcome }: EndEvent): string {
  if (moved !== null && outcome !== 'updated') return ''
  if (moved !== null)
    return moved === 'hold'
      ? '; from now on, the holder keeps them waiting instead'
      : ', as they will be at every switch from now on'
  return holdable ? '; with `--keep-port`, a holder container would keep them waiting instead' : ''
}

function formatMoved(moved: StateMoved): string {
  return `the data from before the update was restored; ${formatLeft(moved)}; \`--restore-state ${basename(moved.aside)}\` restores the replaced data`
}

/** Never calls a service down that was not asked. */
function formatFailed({ code, serves }: EndEvent): string {
  if (code === null || MEANINGS[code].exit !== EXIT.down) return 'is unchanged'
  if (serves === null) return 'could not be checked, and may or may not be serving'
  return serves ? 'answers, but not as expected' : 'is down'
}

function formatVersion({ reference, image, digest, version }: Version): string {
  const shown = digest === null ? image.slice(0, 19) : digest.slice(0, 19)
  return `${reference} (${[version, shown].filter((part) => part !== null).join(', ')})`
}
