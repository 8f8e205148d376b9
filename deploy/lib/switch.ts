// How a switch is told to people: which kind it is, and how long nobody is served. Pure.

import type { Switch } from '../../agent/words.ts'

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
