// What predecessor and successor say to each other over the channel, and what the successor is told at its birth.

import type { InheritedListener } from './listeners.ts'

/** In the environment of a successor as JSON, under INHERITANCE. Holds no secret. */
export interface Inheritance {
  operationId: string
  listeners: InheritedListener[]
  predecessor: { pid: number; startTime: string | null }
  /** milliseconds after which a predecessor that lives but does not commit counts as stuck */
  patienceMs: number
  /** a predecessor that gives no sign of life for so long hangs */
  hangMs: number
}

export const INHERITANCE = 'BATON_INHERITANCE'

/** Path on private connections only, never on a public one. */
export const PROBE_PATH = '/.baton/probe'

export interface ProbeAnswer {
  service: string
  tag: string
  pid: number
}

/** What a TLS server needs so that the sessions that another process has begun can be resumed. */
export interface Tickets {
  listener: string
  /** 48 bytes, base64 */
  keys: string
}

/** Whether a process could make the next update. */
export interface Ability {
  /** what stands in its way on this host, null where nothing does */
  problem: string | null
  /** whether the feed answers it */
  feed: boolean
}

export type ToSuccessor =
  | { type: 'accept'; tickets: Tickets[] }
  /** with one end of a pair of sockets: a request of the predecessor's own will come on it */
  | { type: 'ask' }
  /** with a client's connection. `idleMs`: what is left of its idle time, 0 for ever; null where it has never sent a byte */
  | { type: 'connection'; listener: string; id: number; idleMs: number | null }
  | { type: 'alive' }
  /** could it be updated again? */
  | { type: 'prove' }
  | { type: 'commit' }

export type ToPredecessor =
  /** keys of all its listeners: what it does not name cannot be given to it */
  | { type: 'hello'; listeners: string[] }
  | { type: 'ready' }
  | { type: 'alive' }
  | { type: 'adopted'; id: number }
  | { type: 'failed'; message: string }
  | { type: 'stopping' }
  | ({ type: 'proved' } & Ability)
  /** from now on the successor answers for the operation: it ends it as soon as the predecessor is gone */
  | { type: 'committed' }

export const TO_SUCCESSOR = [
  'accept',
  'ask',
  'connection',
  'alive',
  'prove',
  'commit',
] as const satisfies ToSuccessor['type'][]
export const TO_PREDECESSOR = [
  'hello',
  'ready',
  'alive',
  'adopted',
  'failed',
  'stopping',
  'proved',
  'committed',
] as const satisfies ToPredecessor['type'][]
