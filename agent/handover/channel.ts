// What two processes of one service speak over: two pairs of unix sockets. One is a stream that Node polls and that carries
// messages, a line of JSON each; the other (`packets.ts`) carries descriptors, and is read when a message says that some have
// come. Nothing here knows how the second process came into the world: whoever has the other ends is the other process.
// Must hold: what is told arrives in order while both live; what comes before somebody hears it waits; a descriptor is
// received or known to be lost.

import type { Socket } from 'node:net'
import { DESCRIPTORS_MAX, type Packets } from '../sockets/packets.ts'
import { closeDescriptor } from '../sockets/libc.ts'

/** One end. `Said` goes out, `Heard` comes in. */
export interface Channel<Said, Heard> {
  /** Resolves to false where the other side can be told nothing any more. */
  tell(message: Said): Promise<boolean>
  /**
   * A message with descriptors, at most DESCRIPTORS_MAX, which stay the caller's to close. False where they cannot be taken
   * now, or ever: then nothing was sent. What makes the message is called once the descriptors are on their way, and not
   * otherwise; where it throws they are taken back.
   */
  give(message: Said | (() => Said), descriptors: readonly number[]): boolean
  /** Once for each end: the listener hears every message, also those that came before. Null: descriptors that did not arrive. */
  hear(listener: (message: Heard, descriptors: number[] | null) => void): void
  /** resolves when the other side has hung up, or is dead */
  closed: Promise<void>
  hangUp(): void
}

/** of one message; the largest holds the unread part of a WebSocket message */
const LINE_MAX_BYTES = 24 * 1024 * 1024
const NEW_LINE = 10

interface Line {
  /** absent where there is nothing to say of the descriptors: they are to be closed */
  body?: unknown
  /** how many descriptors wait in the other socket, and as what they were sent */
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

/** The descriptors of `line`; null where they did not arrive. Those of an earlier message that nobody asked for are closed. */
function received(packets: Packets, { packet = 0, descriptors = 0 }: Line): number[] | null {
  try {
    for (let one; (one = packets.receive()) !== null;) {
      const number = Number(one.text)
      if (number === packet && one.descriptors.length === descriptors) return one.descriptors
      for (const fd of one.descriptors) closeDescriptor(fd)
      if (number >= packet) return null
    }
  } catch {
    // torn (no descriptors left here), or the other end is gone
  }
  return null
}

/** Not node:readline, which also ends a line at U+2028, and knows no bound. */
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
