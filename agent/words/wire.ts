// The messages between predecessor and successor on their channel, and what the predecessor hands the successor at its start. In a
// stop-first switch a holder stands between the two: it has a channel to each.

import type { HandoverReport, Kind } from './state.ts'

/**
 * The versions of these messages that this release speaks, as the old process, the holder and the new one. What an older side ignores, an
 * optional member or one more message, is no new version: docs/contributing/extend.md.
 */
export const WIRES: readonly number[] = [1]

/** A listening socket that a successor inherits: the key of its listener, and two descriptors. */
export interface InheritedListener {
  key: string
  accept: number
  spare: number
}

/** Passed in the successor's environment as JSON, under INHERITANCE. Holds no secret. */
export interface Inheritance {
  /** descriptors of the successor's ends of the channel */
  channel: { messages: number; packets: number }
  operationId: string
  listeners: InheritedListener[]
  predecessor: ProcessName
  /** milliseconds after which a predecessor that lives but does not commit counts as stuck */
  patienceMs: number
  /** milliseconds of silence after which a predecessor counts as hung */
  hangMs: number
  /** descriptor of the file with the values that the old process leaves: see `handover/values.ts` */
  values?: number
  /** what the successor's `oom_score_adj` is again once the old process is not needed any more; absent: it is not changed meanwhile */
  memoryRisk?: number
  /** present if the application may not begin yet */
  gate?: Gate
}

/**
 * Variable in the environment of a release that is started only to be tried: `1`, and `switch` if it is to be switched to itself too, for
 * which it must be a managed install.
 */
export const TRIAL = 'BATON_TRIAL'

export const INHERITANCE = 'BATON_INHERITANCE'

/** Where a successor waits in its first code until no process of the old release is left. */
export interface Gate {
  /** descriptor that gives a byte when the application may begin; it ends if the holder dies */
  descriptor: number
  /** the old process, to wait for if the holder dies */
  old: ProcessName
}

/** A process: the kernel reuses pids. `startTime` as `startTimeOf` gives it */
export interface ProcessName {
  pid: number
  startTime: string | null
}

/** Answered on private connections only, never on a public one. */
export const PROBE_PATH = '/.baton/probe'

export interface ProbeAnswer {
  service: string
  tag: string
  pid: number
  /** its own, where it is asked next; absent in older releases, which are asked where this one is */
  healthPath?: string | null | undefined
}

/** TLS session ticket keys, so that one process can resume the sessions that another one began. */
export interface Tickets {
  listener: string
  /** 48 bytes, base64 */
  keys: string
  /** what Node has made of the arguments: a session is resumed under the same one only. Absent: its author has chosen another */
  context?: string
}

/** Whether a process could run the next update. */
export interface Ability {
  /** what prevents it on this host, one clause; null if nothing does */
  problem: string | null
  /** whether the feed answers this process */
  feed: boolean
}

export type ToSuccessor =
  | { type: 'accept'; tickets: Tickets[] }
  /** comes with one end of a socket pair, on which the predecessor sends a request of its own */
  | { type: 'ask' }
  /** comes with as many client connections, each between two requests */
  | { type: 'connections'; listener: string; connections: IdleConnection[] }
  | CarryMessage
  /** data that the predecessor's author sent on a carried connection. Without `text` and `base64`: the response has ended */
  | { type: 'late'; id: number; text?: string; base64?: string }
  /** something could not be passed on to a carried connection: the successor ends it, so that its client notices */
  | { type: 'spoilt'; id: number }
  | { type: 'alive' }
  /** from now on the successor may do what only one process may do */
  | { type: 'turn' }
  /** asks whether the successor could install the next update */
  | { type: 'prove' }
  | { type: 'commit' }

export type ToPredecessor =
  /** it waits at its gate */
  | { type: 'waiting'; tag: string }
  /** the successor must be the only process, but the predecessor would live beside it: the successor has begun nothing, and exits */
  | { type: 'alone' }
  /** the keys of all its listeners. The predecessor can give it no other */
  | { type: 'hello'; listeners: string[] }
  | { type: 'ready' }
  | { type: 'alive' }
  /** connections that the successor owns now */
  | { type: 'adopted'; ids: number[] }
  /** connections whose descriptors did not arrive */
  | { type: 'missing'; ids: number[] }
  /** adopted connections that have ended since: the predecessor need not keep them */
  | { type: 'ended'; ids: number[] }
  /** a carried connection goes on, or was closed for the reason in `refused` */
  | { type: 'carried'; id: number; refused: string | null }
  /** `isBlameless`: from a holder only, if the failure says nothing about the release */
  | { type: 'failed'; message: string; isBlameless?: boolean }
  /** its last output, sent if it exits before it has taken over. `isOwnLock`: see `words/blame.ts` */
  | { type: 'last words'; lines: string[]; isOwnLock?: boolean }
  | { type: 'stopping' }
  | ({ type: 'proved' } & Ability)
  /** the successor owns the operation from now on, and ends it as soon as the predecessor is gone */
  | { type: 'committed' }

/** Passed in the holder's environment as JSON, under HOLDING. Holds no secret. */
export interface Holding {
  /** descriptors of the holder's ends of the channel to the old process */
  channel: { messages: number; packets: number }
  listeners: { key: string; spare: number }[]
  /** as in an Inheritance */
  values?: number
  old: ProcessName
  /** processes that the application has started so far */
  children: ProcessName[]
  service: string
  /** tag of the new release, and of the old one */
  tag: string
  from: string
  operationId: string
  kind: Kind
  /** starts either release: the one in the place of the executable */
  command: { file: string; args: string[]; cwd?: string }
  executable: string
  stateDirectory: string
  healthPath: string | null
  readyMs: number
  hangMs: number
  probationMs: number
  drainMaxMs: number
  stopMs: number
  /** milliseconds after which an old process that reads no more must be gone */
  pauseMaxMs: number
  /** whether the last switch had to let the sockets go before any release started */
  letsGo: boolean
}

export const HOLDING = 'BATON_HOLDING'

/** what gives connections, and tells of them */
export type Given = Extract<ToSuccessor, { type: 'connections' | 'carry' | 'late' | 'spoilt' }>

export type ToHolder =
  | Given
  | { type: 'alive' }
  /** comes with client connections that have been told their end: they stay open a while longer */
  | { type: 'ending' }
  /** this process reads and accepts no more: from now on its silence is a hang */
  | { type: 'pause' }
  /** this process serves again: forget the connections that were given */
  | { type: 'resume' }
  /** no handover: end the successor, and exit */
  | { type: 'drop' }
  | Leaving

/** The old process's last message: it is about to exit. */
export interface Leaving {
  type: 'leaving'
  report: HandoverReport
  /** milliseconds since the restart stage began */
  restartMs: number
  /** milliseconds since this process read its last byte */
  pausedMs: number
  tickets: Tickets[]
  ability: Ability
  /** why the old release was not healthy before the pause; null if it was */
  illness: string | null
  /** processes that the application has started and that still live */
  children: ProcessName[]
}

export type FromHolder = Extract<
  ToPredecessor,
  { type: 'waiting' | 'alive' | 'failed' | 'adopted' | 'missing' | 'carried' | 'ended' | 'last words' }
>

/** `idleMs`: what is left of its idle time; 0: no limit; null: it has never sent a byte */
export interface IdleConnection {
  id: number
  idleMs: number | null
}

/** why a connection is refused if its descriptor was lost: no process can end it as its protocol foresees. Another release compares it, so it stays */
export const NOT_ARRIVED = 'its descriptor did not arrive'

/** A connection in the middle of something. Its descriptor comes with the message. */
export interface CarryMessage {
  type: 'carry'
  id: number
  /** key of its listener */
  listener: string
  kind: 'websocket' | 'stream'
  /** the head of the request that began it */
  request: string
  /** base64: what the client has sent since its last complete message */
  unread: string
  /** what the handshake agreed on, or how the body is framed */
  agreement: string
  /** status in the head of a stream, which the successor must answer too; absent from a predecessor of an earlier release */
  status?: number
  /** the author's state; absent if there is none */
  state?: unknown
}
