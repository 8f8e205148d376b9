// The messages of a service whose clients can count (`numbered-service.ts`): each names its connection and has a number, and
// is as long as every other, so that not a byte can be missing or there twice without a connection's books being wrong.

/** a binary message, each way: the connection's name, the message's number, and the last number that came the other way */
export const MESSAGE_BYTES = 12
/** in a frame of the server's, and in a masked one */
export const [FRAME_BYTES, MASKED_FRAME_BYTES] = [MESSAGE_BYTES + 2, MESSAGE_BYTES + 6]

export interface Numbered {
  name: number
  number: number
  heard: number
}

/** What one connection remembers, in whichever process: it travels with it. */
export interface Ledger {
  name: number
  /** number of the last message that the service has sent */
  sent: number
  /** number of the last message that it has heard */
  heard: number
  /** messages that were not the next, or not of this connection */
  wrong: number
  /** switches that it has been carried over */
  hops: number
}

export function writeMessage({ name, number, heard }: Numbered): Buffer {
  const message = Buffer.allocUnsafe(MESSAGE_BYTES)
  message.writeUInt32BE(name, 0)
  message.writeUInt32BE(number, 4)
  message.writeUInt32BE(heard, 8)
  return message
}

/** null: it is none of these messages */
export function readMessage(data: Buffer): Numbered | null {
  if (data.length !== MESSAGE_BYTES) return null
  return { name: data.readUInt32BE(0), number: data.readUInt32BE(4), heard: data.readUInt32BE(8) }
}

const DIGITS = 8
const EVENT = /^1a\r\ndata: (\d{8}) (\d{8})\n\n\n\r\n$/
/** of an event as a chunk of a response */
export const EVENT_BYTES = 32

/** 26 bytes, which Node writes as one chunk */
export function writeEvent(name: number, number: number): string {
  return `data: ${String(name).padStart(DIGITS, '0')} ${String(number).padStart(DIGITS, '0')}\n\n\n`
}

/** Of `EVENT_BYTES` as they come over the wire, in Latin 1. null: not to the byte what was written. */
export function readEvent(chunk: string): { name: number; number: number } | null {
  const [, name, number] = EVENT.exec(chunk) ?? []
  return name === undefined || number === undefined ? null : { name: Number(name), number: Number(number) }
}
