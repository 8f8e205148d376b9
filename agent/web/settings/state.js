// The page's state: one record, changed by polling.js, actions.js and the gate; and what follows from it directly.

import { memory } from './memory.js'

const UNCONFIRMED_MS = 20000

/**
 * @typedef {import('../../words/state.ts').Status} Status
 * @typedef {import('../../words/state.ts').VersionReport} VersionReport
 * @typedef {import('./follow.js').Follow & { done?: boolean }} Follow
 * @typedef {ReturnType<typeof import('./follow.js').judge>} Judged
 * @typedef {ReturnType<typeof import('./follow.js').measure>} Speed
 */

/**
 * @type {{
 *   token: string | null, gate: string, gateVars: Record<string, string>, closed: boolean,
 *   unmanaged: Record<string, any> | null, status: Status | null, report: VersionReport | null,
 *   checking: boolean, starting: boolean, cancelling: string | null, starts: number, notice: string,
 *   tagTyped: string | null, tagProblem: string, refused: string | null,
 *   follow: Follow | null, phase: Judged | null, since: Record<string, number>,
 *   samples: { at: number, bytes: number }[], speed: Speed | null,
 *   failures: number, failingMs: number, allHistory: boolean, wasBusy: boolean, assetsOf: string | null,
 * }}
 */
export const state = {
  token: memory.get('token'),
  gate: '', // why the token is asked for: a key of the words
  gateVars: {},
  closed: false, // the 403: no token is set
  unmanaged: null, // the 501
  status: null,
  report: null, // of the last check
  checking: false,
  starting: false,
  cancelling: null, // the id of what was asked to stop
  starts: 0,
  notice: '',
  tagTyped: memory.get('typed'), // the tag that was asked for by name
  tagProblem: '',
  refused: null, // the tag of which the service has said that there is no way back from it
  follow: memory.get('follow'),
  phase: null, // what `judge` made of the last answer
  since: {}, // phase -> when it was first seen, milliseconds of performance.now()
  samples: [],
  speed: null,
  failures: 0,
  failingMs: 0,
  allHistory: false,
  wasBusy: false,
  assetsOf: null, // the instance whose page is known to be this one
}

export const sinceMs = (phase) => (state.since[phase] === undefined ? 0 : performance.now() - state.since[phase])

/** Whether an operation is in flight, or finished so recently that the new process has not answered yet. */
export function isBusy() {
  const { status, phase } = state
  if (status === null) return false
  return status.state === 'in_flight' || (phase?.phase === 'unconfirmed' && sinceMs('unconfirmed') < UNCONFIRMED_MS)
}

/** No answer for long enough to say so: a request made now would get lost. */
export const isSilent = () => state.failures > 0 && state.failingMs >= 2000
