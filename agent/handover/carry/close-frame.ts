// Ends a WebSocket that its author has not registered, of any library, with a close frame, so that the client knows why and
// reconnects. Must hold: the frame goes between two frames of the library, or not at all. RFC 6455, 5.2 and 5.5.1.

import type { Socket } from 'node:net'
import { isUpgraded } from '../../sockets/internals-moving.ts'
import type { Listener } from '../../sockets/listeners.ts'
import type { Carries } from './carry.ts'
import { isWebSocket } from './upgrades.ts'
import { callBack } from './writes.ts'

/** close code of a WebSocket (IANA's registry) */
export const SERVICE_RESTART = 1012
export const REASON = 'service restart'
/** FIN and opcode 8, the length, the code, the reason; a server masks nothing */
const CLOSE_FRAME = Buffer.concat([
  Buffer.from([0x88, 2 + REASON.length, SERVICE_RESTART >> 8, SERVICE_RESTART & 0xff]),
  Buffer.from(REASON),
])

export interface Frames {
  /** call it with everything that the server writes, in order */
  see(bytes: Buffer): void
  /** `lost`: the server wrote something that is not a frame */
  at(): 'between' | 'inside' | 'lost'
}

/** Follows what a server writes, from the beginning of a frame on. */
export function makeFrames(): Frames {
  let head: number[] = []
  let left = 0 // bytes of the body that are still to come
  let isLost = false
  return {
    see(bytes) {
      for (let at = 0; at < bytes.length && !isLost;) {
        if (left > 0) {
          const seen = Math.min(left, bytes.length - at)
          left -= seen
          at += seen
          continue
        }
        head.push(bytes[at++] ?? 0)
        const body = bodyOf(head)
        if (body === 'wrong') isLost = true
        else if (body !== 'more') [left, head] = [body, []]
      }
    },
    at: () => (isLost ? 'lost' : left > 0 || head.length > 0 ? 'inside' : 'between'),
  }
}

/** How many bytes follow this head of a frame. `more`: the head is incomplete; `wrong`: no server may send it. */
function bodyOf(head: readonly number[]): number | 'more' | 'wrong' {
  const [first = 0, second] = head
  const opcode = first & 0x0f
  const isControl = opcode > 7
  // the first reserved bit belongs to compression
  if ((first & 0x30) !== 0 || (opcode > 2 && opcode < 8) || opcode > 10) return 'wrong'
  if (second === undefined) return 'more'
  if (second > 127 || (isControl && (second > 125 || first < 0x80))) return 'wrong'
  if (second < 126) return second
  if (head.length < (second === 126 ? 4 : 10)) return 'more'
  const bytes = Buffer.from(head)
  return second === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
}

interface Followed {
  frames: Frames
  /** Writes the close frame, now or after the frame that is being written, and nothing behind it. Calls `sent` when the kernel has it. */
  end(sent: () => void): void
}

const followed = new WeakMap<Socket, Followed>()

/** From now on follows the writes of every WebSocket that its author has not registered. Called only when a switch begins. */
export function followWebSockets(listeners: readonly Pick<Listener, 'sockets'>[], carries: Carries): void {
  for (const { sockets } of listeners)
    for (const socket of sockets) if (isOpen(socket) && !carries.entries().has(socket)) follow(socket)
}

/** Ends the connection with a close frame. False if it is no open WebSocket, or if its server writes something else than frames. */
export function endWebSocket(socket: Socket, sent: () => void): boolean {
  if (!isOpen(socket)) return false
  const { frames, end } = follow(socket)
  if (frames.at() === 'lost') return false
  end(sent)
  return true
}

/** Calls `say` when the kernel has all that was written: at once unless the client does not read, never if the connection fails. */
export function whenOut(socket: Socket, write: (...args: unknown[]) => boolean, say: () => void): void {
  if (socket.writableLength === 0) say()
  else write('', (error?: Error | null) => (error === null || error === undefined ? say() : undefined))
}

function isOpen(socket: Socket): boolean {
  return isWebSocket(socket) && isUpgraded(socket) && socket.writable
}

function follow(socket: Socket): Followed {
  const already = followed.get(socket)
  if (already !== undefined) return already
  const frames = makeFrames()
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean
  let isSent = false
  let sayWhenSent: (() => void) | null = null
  const send = () => {
    if (sayWhenSent === null || isSent || frames.at() !== 'between') return
    isSent = true
    write(CLOSE_FRAME)
    whenOut(socket, write, sayWhenSent)
  }
  // Every library writes whole frames in one turn, so this begins at the start of one.
  socket.write = (data: string | Uint8Array, ...rest: unknown[]) => {
    if (isSent) {
      callBack(rest)
      return true
    }
    const [coding] = rest
    frames.see(typeof data === 'string' ? Buffer.from(data, coding as BufferEncoding) : Buffer.from(data))
    const isRoom = write(data, ...rest)
    send()
    return isRoom
  }
  const end = (sent: () => void) => {
    sayWhenSent = sent
    send()
  }
  followed.set(socket, { frames, end })
  return { frames, end }
}
