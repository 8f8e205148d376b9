// How a switch and a rehearsal are told to people. Pure.

import { formatRehearsal, type Rehearsal, type Switch } from '../../agent/words.ts'

/** what most load balancers and webhook senders bear before they give a request up, milliseconds */
const BORNE_MS = [3000, 10_000] as const

export const BORNE = `load balancers and webhook senders bear ${BORNE_MS[0] / 1000} to ${BORNE_MS[1] / 1000} s`

export function isBorne(pauseMs: number): boolean {
  return pauseMs < BORNE_MS[0]
}

export function formatSwitch(kind: Switch): string {
  return kind === 'together' ? 'together' : 'one at a time'
}

/** `nobody was served for 108 ms`; null: nobody had to wait, as far as it is known. `pauseMs`: see OperationReport. */
export function formatPause(pauseMs: number | null | undefined): string | null {
  return pauseMs === null || pauseMs === undefined ? null : `nobody was served for ${pauseMs} ms`
}

/** How a rehearsal went, and what to do about it. */
export function rehearsalLines(rehearsal: Rehearsal | null): string[] {
  if (rehearsal === null) return []
  return [formatRehearsal(rehearsal), ...(rehearsal.hint === undefined ? [] : [`hint: ${rehearsal.hint}`])]
}
