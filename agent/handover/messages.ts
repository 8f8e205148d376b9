// What predecessor and successor say to each other over the channel, and what the successor is told at its birth.

import type { InheritedListener } from './listeners.ts'

/** In the environment of a successor as JSON, under INHERITANCE. Holds no secret. */
export interface Inheritance {
  /** descriptors of its ends of the channel */
  channel: { messages: number; packets: number }
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
  /** with as many clients' connections between two requests */
  | { type: 'connections'; listener: string; connections: IdleConnection[] }
  | CarryMessage
  /** what the author of the predecessor has sent on a connection that was carried; neither: it has ended its response */
  | { type: 'late'; id: number; text?: string; base64?: string }
  | { type: 'alive' }
  /** could it be updated again? */
  | { type: 'prove' }
  | { type: 'commit' }

export type ToPredecessor =
  /** keys of all its listeners: what it does not name cannot be given to it */
  | { type: 'hello'; listeners: string[] }
  | { type: 'ready' }
  | { type: 'alive' }
  /** connections that are its own now */
  | { type: 'adopted'; ids: number[] }
  /** connections whose descriptors did not arrive */
  | { type: 'missing'; ids: number[] }
  /** adopted connections that have ended since: nobody need keep them */
  | { type: 'ended'; ids: number[] }
  /** a carried connection goes on; or why it was closed */
  | { type: 'carried'; id: number; refused: string | null }
  | { type: 'failed'; message: string }
  /** what it wrote last, as it exits before it has taken over */
  | { type: 'last words'; lines: string[] }
  | { type: 'stopping' }
  | ({ type: 'proved' } & Ability)
  /** from now on the successor answers for the operation: it ends it as soon as the predecessor is gone */
  | { type: 'committed' }

/** `idleMs`: what is left of its idle time, 0 for ever; null where it has never sent a byte */
export interface IdleConnection {
  id: number
  idleMs: number | null
}

/** A connection in the middle of something. Its descriptor has come with the message. */
export interface CarryMessage {
  type: 'carry'
  id: number
  /** key of the listener that it belongs to */
  listener: string
  kind: 'websocket' | 'stream'
  /** the head of the request that began it */
  request: string
  /** base64: what the client has sent since the last whole message */
  unread: string
  /** what a handshake agreed on, or how a body is framed */
  agreement: string
  /** the author's own; absent where there is none */
  state?: unknown
}
