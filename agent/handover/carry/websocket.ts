// Every private part of `ws` (8.x) that carrying a WebSocket needs, each checked before use. Only the predecessor needs them. If one
// is missing, the connection is closed with 1012, as it would be without carrying.

/** The public part of the `ws` WebSocket that an author passes. */
export interface WebSocketLike {
  readonly readyState: number
  readonly protocol: string
  send(data: unknown, ...rest: unknown[]): void
  close(code?: number, reason?: string): void
  pause(): void
  resume(): void
}

export interface Receiver {
  _state: number
  _buffers: Buffer[]
  _fragments: Buffer[]
  /** opcode of the message whose fragments are being collected; 0: none */
  _fragmented: number
  _compressed: boolean
  _fin: boolean
  _opcode: number
  _mask: Buffer | undefined
  _payloadLength: number
  writableLength: number
}

export interface PrivateWebSocket extends WebSocketLike {
  _receiver: Receiver
  _sender: { _state: number; _queue: unknown[]; _firstFragment: boolean }
  _extensions: Record<string, { params?: Record<string, unknown> | null } | undefined>
  terminate(): void
  ping(): void
  pong(): void
}

export const DEFLATE = 'permessage-deflate'

/** Why this WebSocket can never be carried, for people; null if it can. */
export function whyNotCarried(ws: WebSocketLike): string | null {
  const { _receiver: receiver, _sender: sender, _extensions: extensions } = ws as PrivateWebSocket
  const numbers = [receiver?._state, receiver?._fragmented, receiver?._opcode, receiver?._payloadLength, sender?._state]
  const lists = [receiver?._buffers, receiver?._fragments, sender?._queue]
  const isKnown = numbers.every((value) => typeof value === 'number') && lists.every(Array.isArray)
  if (!isKnown || typeof sender?._firstFragment !== 'boolean') {
    return 'Baton does not know where this version of `ws` keeps its state'
  }
  const deflate = extensions?.[DEFLATE]?.params
  if (deflate === undefined || deflate === null) return null
  const forgetsBetweenMessages =
    deflate['client_no_context_takeover'] === true && deflate['server_no_context_takeover'] === true
  return forgetsBetweenMessages ? null : 'its compression keeps context between messages'
}
