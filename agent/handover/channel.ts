// The channel between two processes of one service: two pairs of unix sockets. One pair is a stream that Node polls; it carries
// messages, a line of JSON each. The other (`packets.ts`) carries descriptors, and is read when a message says that some have
// come. The channel does not depend on how the other process was started.
// Must hold: messages arrive in order while both processes live; a message that arrives before there is a listener waits for it;
// a descriptor is received or known to be lost.

import type { Socket } from 'node:net'
import { DESCRIPTORS_MAX, type Packets } from '../sockets/packets.ts'
import { closeDescriptor } from '../sockets/libc.ts'

/** One end of the channel. `Said` messages go out, `Heard` messages come in. */
export interface Channel<Said, Heard> {
  /** Resolves to false if no message can reach the other process any more. */
  tell(message: Said): Promise<boolean>
  /**
   * Sends a message with at most DESCRIPTORS_MAX descriptors; the caller still has to close them. False if the other process
   * cannot take them now, or ever: then nothing was sent. A `message` function is called only once the descriptors are on their
   * way; if it throws, the other process closes them.
   */
  give(message: Said | (() => Said), descriptors: readonly number[]): boolean
  /** Call it once: the listener gets every message, also earlier ones. Null: the descriptors did not arrive. */
  hear(listener: (message: Heard, descriptors: number[] | null) => void): void
  /** resolves when the other process has hung up, or is dead */
  closed: Promise<void>
  hangUp(): void
}

/** of one message; the largest message holds the unread part of a WebSocket message */
const LINE_MAX_BYTES = 24 * 1024 * 1024
const NEW_LINE = 10

interface Line {
  /** absent if making the message failed: the receiver then closes the descriptors */
  body?: unknown
  /** number of the packet in the other socket; `descriptors`: how many it holds */
  packet?: number
  descriptors?: number
}

export function channelOver<Said, Heard>(messages: Socket, packets: Packets): Channel<Said, Heard> {
  let sent = 0
  let listener: ((message: Heard, descriptors: number[] | null) => void) | null = null
  const waiting: [Heard, number[] | null][] = []
  const { promise: closed, resolve } = Promise.withResolvers<void>()
  messages.on('error', () => {}) // `close` follows
  messages.once('close', () => {
    resolve()
    packets.close()
  })
  eachLine(messages, (text) => {
    const line = parsed(text)
    if (line === null) return void messages.destroy()
    const descriptors = line.packet === undefined ? [] : received(packets, line)
    if (line.body === undefined) {
      for (const fd of descriptors ?? []) closeDescriptor(fd)
    } else if (listener === null) waiting.push([line.body as Heard, descriptors])
    else listener(line.body as Heard, descriptors)
  })
  const write = (line: Line): Promise<boolean> =>
    new Promise((told) => {
      if (!messages.writable) return told(false)
      messages.write(`${JSON.stringify(line)}\n`, (error) => told(!error))
    })
  return {
    closed,
    tell: (body) => write({ body }),
    give: (message, descriptors) => {
      if (descriptors.length > DESCRIPTORS_MAX) throw new RangeError(`expected at most ${DESCRIPTORS_MAX} descriptors`)
      if (!messages.writable) return false
      try {
        if (!packets.send({ text: String(sent + 1), descriptors })) return false
      } catch {
        return false // the other end is gone
      }
      const line = { packet: ++sent, descriptors: descriptors.length }
      try {
        void write({ body: typeof message === 'function' ? (message as () => Said)() : message, ...line })
      } catch (cause) {
        void write(line)
        throw cause
      }
      return true
    },
    hear: (heard) => {
      listener = heard
      for (const [message, descriptors] of waiting.splice(0)) heard(message, descriptors)
    },
    hangUp: () => void messages.destroy(),
  }
}

/** The descriptors of `line`; null if they did not arrive. Closes descriptors of earlier packets that no message claimed. */
function received(packets: Packets, { packet = 0, descriptors = 0 }: Line): number[] | null {
  try {
    for (let one; (one = packets.receive()) !== null;) {
      const number = Number(one.text)
      if (number === packet && one.descriptors.length === descriptors) return one.descriptors
      for (const fd of one.descriptors) closeDescriptor(fd)
      if (number >= packet) return null
    }
  } catch {
    // the packet was torn (no descriptors are left here), or the other end is gone
  }
  return null
}

/** Not node:readline: it also ends a line at U+2028, and has no bound. */
function eachLine(socket: Socket, heard: (text: string) => void): void {
  let parts: Buffer[] = []
  let bytes = 0
  socket.on('data', (chunk: Buffer) => {
    let from = 0
    for (let end; (end = chunk.indexOf(NEW_LINE, from)) >= 0; from = end + 1) {
      const text = Buffer.concat([...parts, chunk.subarray(from, end)]).toString()
      parts = []
      bytes = 0
      heard(text)
    }
    if (from === chunk.length) return
    parts.push(chunk.subarray(from))
    bytes += chunk.length - from
    if (bytes > LINE_MAX_BYTES) socket.destroy()
  })
}

function parsed(text: string): Line | null {
  try {
    const line = JSON.parse(text) as Line | null
    return typeof line === 'object' && line !== null && ('body' in line || 'packet' in line) ? line : null
  } catch {
    return null
  }
}
