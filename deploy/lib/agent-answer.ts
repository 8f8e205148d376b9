// Tells whether Baton's agent has answered at its status endpoint: any server answers a path that it does not know, some with 200.

import { ERRORS_PAGE } from '../../agent/words.ts'
import type { HttpAnswer } from './http.ts'

/** how the `type` of a problem begins; older releases have a name there instead of an address */
const PROBLEMS = [`${ERRORS_PAGE}#`, 'urn:baton:problem:']

/** True for a status, and for a refusal of the agent's: an unmanaged service answers 501, a wrong password 401. */
export function isFromAgent({ status, body }: HttpAnswer): boolean {
  const { instance, type } = recordOf(body)
  if (status === 200) return typeof recordOf(instance)['version'] === 'string'
  return typeof type === 'string' && PROBLEMS.some((prefix) => type.startsWith(prefix))
}

/** An object as it is, anything else as an empty one. */
export function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
