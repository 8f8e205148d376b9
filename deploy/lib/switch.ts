// Formats an operation, its switch and a rehearsal for people. Pure.

import {
  compareTags,
  formatRehearsal,
  isTag,
  type Operation,
  type Rehearsal,
  type Status,
  withoutWords,
} from '../../agent/words.ts'

/** what most load balancers and webhook senders bear before they give a request up, milliseconds */
const BORNE_MS = [3000, 10_000] as const

export const BORNE = `load balancers and webhook senders give up after ${BORNE_MS[0] / 1000} to ${BORNE_MS[1] / 1000} s`

export function isBorne(pauseMs: number): boolean {
  return pauseMs < BORNE_MS[0]
}

/** `rolled back`: how an operation ended, in words. For a person, a rollback of a rollback goes forward. */
export function outcomeText(
  outcome: string,
  { from, to }: { from: string | null; to: string | null } = NO_WAY,
): string {
  const isForward = outcome === 'rolled_back' && isTag(from) && isTag(to) && compareTags(to, from) > 0
  return isForward ? 'restored' : outcome.replaceAll('_', ' ')
}

const NO_WAY = { from: null, to: null }

/** Why a release failed, for a line that begins with its tag. */
export function whyBeside(tag: string, reason: string): string {
  const why = withoutWords(reason)
  return why.startsWith(`${tag} `) ? why.slice(tag.length + 1) : why
}

/** What an operation under way is doing, for a person: `in the download stage`. `probation`: what is on probation, null: nothing. */
export function stageText({ stage }: Pick<Operation, 'stage'>, probation: Status['probation']): string {
  if (stage !== 'restart') return `in the ${stage} stage`
  return probation === null ? 'switching' : 'on probation'
}

interface Paused {
  /** see HandoverReport */
  pauseMs?: number | null
  pausesMs?: readonly number[]
  letGo?: true
}

/** `requests waited 108 ms, then another 95 ms`; null: nobody had to wait, as far as it is known. */
export function formatPause({ pauseMs, pausesMs, letGo }: Paused): string | null {
  if (pauseMs === null || pauseMs === undefined) return null
  const refused = letGo ? ', and connections were refused for part of that time' : ''
  return `requests waited ${(pausesMs ?? [pauseMs]).map((ms) => `${ms} ms`).join(', then another ')}${refused}`
}

/** Of the next stop-first switch: the last ones say it together (`lastPause`), so it need not be the pause of the last one. */
export function nextPause(expectedMs: number): string {
  return `at the next switch, clients would wait about ${expectedMs} ms`
}

/** `6 connections were cut off`; null: none was. */
export function formatCut({ cut }: { cut: number }): string | null {
  return cut === 0 ? null : `${cut} ${cut === 1 ? 'connection was' : 'connections were'} cut off`
}

interface Moved {
  moved: number
  carried: number
  cut: number
  /** absent: the release is older than this count */
  ended?: number
}

/** `128 connections moved to the new process (64 in use), 3 asked to reconnect, 0 cut off`. */
export function formatMoved({ moved, carried, ended = 0, cut }: Moved): string {
  const inUse = carried > 0 ? ` (${carried} in use)` : ''
  const what = `${moved} ${moved === 1 ? 'connection' : 'connections'} moved to the new process${inUse}`
  return [what, ...(ended > 0 ? [`${ended} asked to reconnect`] : []), `${cut} cut off`].join(', ')
}

/** How a rehearsal went, and what to do about it. */
export function rehearsalLines(rehearsal: Rehearsal | null): string[] {
  if (rehearsal === null) return []
  return [formatRehearsal(rehearsal), ...(rehearsal.hint === undefined ? [] : [`hint: ${rehearsal.hint}`])]
}
