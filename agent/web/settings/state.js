// The page's state: one record, which polling.js, actions.js and settings.js change; and functions of it.

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
 *   foreign: boolean, failures: number, failingMs: number, allHistory: boolean, opened: Set<string>, wasBusy: boolean, assetsOf: string | null,
 * }}
 */
export const state = {
  token: memory.get('token'),
  gate: '', // why the page asks for the token: a key of en.js
  gateVars: {},
  closed: false, // the 403: no token is set
  unmanaged: null, // the 501
  status: null,
  report: null, // of the last check
  checking: false,
  starting: false,
  cancelling: null, // id of the operation that the page has asked to cancel
  starts: 0,
  notice: '',
  tagTyped: memory.get('typed'), // the tag that the operator typed for the operation in flight
  tagProblem: '',
  refused: null, // tag of the release that the service has refused with irreversible
  follow: memory.get('follow'),
  phase: null, // what `judge` made of the last answer
  since: {}, // phase -> when it was first seen, milliseconds of performance.now()
  samples: [],
  speed: null,
  foreign: false, // the last answer was that of a login in front of the service
  failures: 0,
  failingMs: 0,
  allHistory: false,
  opened: new Set(), // ids of the operations whose whole reason is shown
  wasBusy: false,
  assetsOf: null, // id of the instance that is known to serve this very page
}

export const sinceMs = (phase) => (state.since[phase] === undefined ? 0 : performance.now() - state.since[phase])

/** Whether an operation is in flight, or finished so recently that the new process has not answered yet. */
export function isBusy() {
  const { status, phase } = state
  if (status === null) return false
  return status.state === 'in_flight' || (phase?.phase === 'unconfirmed' && sinceMs('unconfirmed') < UNCONFIRMED_MS)
}

/** Whether the service has not answered for so long that the page says so: a request made now would get lost. */
export const isSilent = () => state.failures > 0 && state.failingMs >= 2000
