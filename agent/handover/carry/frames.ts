// Turns a half-read WebSocket message back into frames at a switch: the successor's receiver reads them as if the client had sent
// them. Nothing is recorded while the service runs, so this costs nothing until a switch. RFC 6455.

import type { Socket } from 'node:net'
import { DEFLATE, type PrivateWebSocket, type Receiver, type WebSocketLike } from './websocket.ts'
import { valuesOf } from './stream.ts'
import { callBack } from './writes.ts'

const OPEN = 1
/** Receiver._state: what it reads next */
const [GET_INFO, GET_PAYLOAD_LENGTH_16, GET_PAYLOAD_LENGTH_64, GET_MASK, GET_DATA] = [0, 1, 2, 3, 4]
const [FIN, MASKED, NO_MASK] = [0x80, 0x80, Buffer.alloc(4)]

/** Whether this process has nothing left to do: the author has every whole message, and every send has left. */
export function isAtRest(ws: WebSocketLike): boolean {
  const { _receiver: receiver, _sender: sender, readyState } = ws as PrivateWebSocket
  return (
    readyState === OPEN &&
    receiver._state <= GET_DATA && // beyond: it inflates, or has put an event off
    receiver.writableLength === 0 &&
    sender._state === 0 &&
    sender._queue.length === 0 &&
    !isInFragments(ws)
  )
}

/**
 * Whether a message in fragments must end first. One from the client only if it is compressed: inflated bytes cannot become frames
 * again. One from the author always: the successor's `ws` would begin a new message in the middle of it.
 */
export function isInFragments(ws: WebSocketLike): boolean {
  const { _receiver: receiver, _sender: sender } = ws as PrivateWebSocket
  return (receiver._fragmented !== 0 && receiver._compressed) || !sender._firstFragment
}

/** What the handshake agreed on, to compare with what the successor's handshake agrees on. */
export function agreementOf(ws: WebSocketLike): string {
  const params = Object.entries((ws as PrivateWebSocket)._extensions[DEFLATE]?.params ?? {})
  const extension = params.map(([name, value]) => (value === true ? name : `${name}=${String(value)}`)).toSorted()
  return JSON.stringify([ws.protocol, params.length === 0 ? [] : [DEFLATE, ...extension]])
}

/** The same, from a response head that answers an upgrade. */
export function agreementIn(head: string): string {
  const [extensions = ''] = valuesOf(head, 'sec-websocket-extensions')
  const [protocol = ''] = valuesOf(head, 'sec-websocket-protocol')
  const [name, ...params] = extensions.split(/\s*;\s*/)
  return JSON.stringify([protocol, name === '' ? [] : [name, ...params.toSorted()]])
}

/** The bytes since the last whole message, as a client would send them: fragments, the start of a frame, and unread bytes. */
export function unreadOf(ws: WebSocketLike, socket: Socket): Buffer {
  const { _receiver: receiver } = ws as PrivateWebSocket
  const gathered = Buffer.concat(receiver._fragments)
  const parts: Buffer[] = []
  const inFrame = receiver._state !== GET_INFO
  // An open message gets a first frame of its own with what has arrived of it, even if that is empty: a control frame may follow.
  const isToldBefore = receiver._fragmented !== 0 && (gathered.length > 0 || !inFrame || receiver._opcode > 7)
  if (isToldBefore) parts.push(frameHead(false, receiver._fragmented, gathered.length), NO_MASK, gathered)
  if (inFrame) {
    const opcode = isToldBefore && receiver._opcode < 8 ? 0 : receiver._opcode
    parts.push(frameStart(receiver, opcode))
  }
  parts.push(...receiver._buffers)
  parts.push(...waitingIn(socket))
  return Buffer.concat(parts)
}

/** Takes the unread bytes out of a paused socket. No `data` listener gets them: the successor reads them again. */
function waitingIn(socket: Socket): Buffer[] {
  if (socket.readableLength === 0) return []
  const heard = socket.listeners('data') as ((data: Buffer) => void)[]
  socket.removeAllListeners('data')
  const waiting: Buffer[] = []
  for (let more: Buffer | null; (more = socket.read() as Buffer | null) !== null;) waiting.push(more)
  for (const listener of heard) socket.on('data', listener)
  return waiting
}

/**
 * From now on the author's sends go to `forward`, each message whole. Anything else that the author does to this object has no
 * effect.
 */
export function letGoOfWebSocket(ws: WebSocketLike, forward: (data: string | Buffer) => void): void {
  const own = ws as PrivateWebSocket
  let begun: { isBinary: boolean; parts: Buffer[] } | null = null
  const heard = (data: string | Buffer, isBinary: boolean, isLast: boolean) => {
    if (begun === null && isLast) return forward(isBinary ? Buffer.from(data) : String(data))
    begun ??= { isBinary, parts: [] }
    begun.parts.push(Buffer.from(data))
    if (!isLast) return
    const whole = Buffer.concat(begun.parts)
    forward(begun.isBinary ? whole : whole.toString())
    begun = null
  }
  let reading: Promise<void> | null = null // a message behind a Blob waits until the Blob is read
  own.send = (data, ...rest) => {
    const given = typeof rest[0] === 'object' ? rest[0] : null
    const { binary, fin } = { binary: typeof data !== 'string' && typeof data !== 'number', fin: true, ...given }
    const hear = (bytes: string | Buffer) => heard(bytes, binary, fin)
    if (data instanceof Blob || reading !== null) {
      const before = reading ?? Promise.resolve()
      const read = async () => hear(data instanceof Blob ? asBuffer(await data.arrayBuffer()) : asData(data))
      reading = before.then(read).catch(() => {}) // a Blob's file may be gone
    } else hear(asData(data))
    callBack(rest)
  }
  // the author's heartbeat must not end a connection that lives on in the successor
  for (const verb of ['close', 'terminate', 'ping', 'pong', 'pause', 'resume'] as const) own[verb] = () => {}
}

function asData(data: unknown): string | Buffer {
  return typeof data === 'string' || typeof data === 'number' ? String(data) : asBuffer(data)
}

/** Converts data as `ws` does. */
function asBuffer(data: unknown): Buffer {
  if (Buffer.isBuffer(data)) return data
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  if (data === null || data === undefined) return Buffer.alloc(0)
  return data instanceof ArrayBuffer ? Buffer.from(data) : Buffer.from(data as string)
}

/** The head of the frame that is being read, as far as the receiver has consumed it. */
function frameStart({ _state: state, _fin, _payloadLength, _mask, _compressed }: Receiver, opcode: number): Buffer {
  const rsv1 = _compressed && opcode > 0 && opcode < 8 ? 0x40 : 0
  if (state === GET_PAYLOAD_LENGTH_16 || state === GET_PAYLOAD_LENGTH_64) {
    return Buffer.from([(_fin ? FIN : 0) | rsv1 | opcode, MASKED | _payloadLength])
  }
  const head = frameHead(_fin, opcode, _payloadLength)
  if (rsv1 !== 0) head[0] = (head[0] ?? 0) | rsv1
  return state === GET_MASK ? head : Buffer.concat([head, _mask ?? NO_MASK])
}

/** The first bytes of a masked frame, up to its mask. */
function frameHead(fin: boolean, opcode: number, length: number): Buffer {
  const first = (fin ? FIN : 0) | opcode
  if (length < 126) return Buffer.from([first, MASKED | length])
  const head = Buffer.alloc(length < 65_536 ? 4 : 10)
  head[0] = first
  head[1] = MASKED | (length < 65_536 ? 126 : 127)
  if (length < 65_536) head.writeUInt16BE(length, 2)
  else head.writeBigUInt64BE(BigInt(length), 2)
  return head
}
