// What a deployment has to say: one typed union, and one formatter for people. `--json` prints the events as they are.

import { type BatonError, MEANINGS, type Outcome } from '../../agent/words.ts'
import { formatBytes, formatDuration } from '../lib/progress.ts'
import { formatDifference, type Difference } from './difference.ts'

/** What is done, in this order. `revert` is done where `switch` or one after it fails. */
export const STEPS = [
  'resolve',
  'pull',
  'verify',
  'create',
  'compare',
  'keep',
  'switch',
  'health',
  'probation',
  'commit',
  'revert',
] as const
export type Step = (typeof STEPS)[number]

export interface Version {
  /** what `docker ps` shows */
  reference: string
  image: string
  digest: string | null
  /** of the image's own label, or the release asked for */
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
  | { event: 'step'; step: Step; detail: string }
  | { event: 'progress'; step: 'pull'; doneBytes: number; totalBytes: number }
  | { event: 'note'; message: string }
  | { event: 'warning'; message: string }
  | { event: 'log'; line: string }
  | ResultEvent

export interface ResultEvent {
  event: 'result'
  container: string
  outcome: Outcome
  from: string | null
  to: string | null
  /** milliseconds between the stop of the old container and the health of the one that serves now; null where nothing was stopped */
  downMs: number | null
  code: BatonError['code'] | null
  message: string | null
  exitCode: number
}

/** May be slow: the work waits for it. */
export type Report = (event: DeployEvent) => void | Promise<void>

export interface Ended {
  outcome: Outcome
  from: string | null
  to: string | null
  downMs: number | null
  error: BatonError | null
}

export function resultEvent(container: string, { error, ...ended }: Ended): ResultEvent {
  const code = error?.code ?? null
  const exitCode = ended.outcome === 'reverted' ? 8 : code === null ? 0 : MEANINGS[code].exit
  return { event: 'result', container, ...ended, code, message: error?.message ?? null, exitCode }
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
        event.differences.length === 0 ? 'difference  none but the image' : 'difference',
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
    case 'result': {
      const gap = event.downMs === null ? '' : `, ${formatDuration(event.downMs)} without service`
      return [`${event.outcome.replaceAll('_', ' ')}: ${event.container} runs ${runsNow(event)}${gap}`]
    }
    default:
      return event satisfies never
  }
}

function runsNow({ outcome, from, to }: ResultEvent): string {
  if (outcome === 'failed') return 'nothing'
  return (outcome === 'reverted' ? from : to) ?? 'what it ran before'
}

function formatVersion({ reference, image, digest, version }: Version): string {
  const shown = digest === null ? image.slice(0, 19) : digest.slice(0, 19)
  return `${reference} (${[version, shown].filter((part) => part !== null).join(', ')})`
}
