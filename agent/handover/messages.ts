// What predecessor and successor say to each other over the IPC channel, and what the successor is told at its birth.

import type { InheritedListener } from './listeners.ts'

/** In the environment of a successor as JSON, under INHERITANCE. Holds no secret but the nonce, which dies with the handover. */
export interface Inheritance {
  /** proves on the private socket that it is this very successor that answers */
  nonce: string
  operationId: string
  listeners: InheritedListener[]
  /** folder of mode 0700 for the private socket */
  privateDirectory: string
  predecessor: { pid: number; startTime: string | null }
  /** milliseconds after which a silent predecessor counts as stuck */
  patienceMs: number
}

export const INHERITANCE = 'BATON_INHERITANCE'

/** Path on the private socket only, never on a public one. */
export const PROBE_PATH = '/.baton/probe'

export interface ProbeAnswer {
  service: string
  tag: string
  nonce: string
  pid: number
}

export type ToSuccessor = { type: 'accept' } | { type: 'connection'; listener: number; id: number } | { type: 'commit' }

export type ToPredecessor =
  | { type: 'hello' }
  | { type: 'ready' }
  | { type: 'alive' }
  | { type: 'adopted'; id: number }
  | { type: 'failed'; message: string }
  | { type: 'stopping' }
  | { type: 'committed' }

/** null for anything that is not one of ours: other code in the process may use the channel too. */
export function asToPredecessor(message: unknown): ToPredecessor | null {
  return isTyped(message, ['hello', 'ready', 'alive', 'adopted', 'failed', 'stopping', 'committed'])
    ? (message.baton as ToPredecessor)
    : null
}

export function asToSuccessor(message: unknown): ToSuccessor | null {
  return isTyped(message, ['accept', 'connection', 'commit']) ? (message.baton as ToSuccessor) : null
}

/** The envelope that tells our messages from the author's. */
export function envelope<T extends ToSuccessor | ToPredecessor>(message: T): { baton: T } {
  return { baton: message }
}

function isTyped(message: unknown, types: string[]): message is { baton: { type: string } } {
  if (typeof message !== 'object' || message === null || !('baton' in message)) return false
  const inner = message.baton
  return typeof inner === 'object' && inner !== null && 'type' in inner && types.includes(String(inner.type))
}
