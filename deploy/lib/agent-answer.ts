// Tells whether Baton's agent has answered at its status endpoint: any server answers a path that it does not know, some with 200.

import type { HttpAnswer } from './http.ts'

/** True for a status, and for a refusal of the agent's: an unmanaged service answers 501, a wrong password 401. */
export function isFromAgent({ status, body }: HttpAnswer): boolean {
  const { instance, type } = recordOf(body)
  if (status === 200) return typeof recordOf(instance)['version'] === 'string'
  return typeof type === 'string' && type.startsWith('urn:baton:problem:')
}

/** An object as it is, anything else as an empty one. */
export function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
