// The messages of `numbered-service.ts` and its clients. Each names its connection, has a number and is as long as every other. So
// if one byte is missing or comes twice, the counts of a connection are wrong.

/** size of a binary message, each way: the connection's name, the message's number, and the last number received */
export const MESSAGE_BYTES = 12
/** size of the message in a server's frame, and in a client's masked frame */
export const [FRAME_BYTES, MASKED_FRAME_BYTES] = [MESSAGE_BYTES + 2, MESSAGE_BYTES + 6]

export interface Numbered {
  name: number
  number: number
  heard: number
}

/** The service's state of one connection. A switch carries it to the new process. */
export interface Ledger {
  name: number
  /** number of the last message that the service sent */
  sent: number
  /** number of the last message that the service received */
  heard: number
  /** received messages that had not the next number, or belonged to another connection */
  wrong: number
  /** switches that carried the connection */
  hops: number
}

export function writeMessage({ name, number, heard }: Numbered): Buffer {
  const message = Buffer.allocUnsafe(MESSAGE_BYTES)
  message.writeUInt32BE(name, 0)
  message.writeUInt32BE(number, 4)
  message.writeUInt32BE(heard, 8)
  return message
}

/** Null if `data` is no such message. */
export function readMessage(data: Buffer): Numbered | null {
  if (data.length !== MESSAGE_BYTES) return null
  return { name: data.readUInt32BE(0), number: data.readUInt32BE(4), heard: data.readUInt32BE(8) }
}

const DIGITS = 8
const EVENT = /^1a\r\ndata: (\d{8}) (\d{8})\n\n\n\r\n$/
/** size of an event as a chunk of a response */
export const EVENT_BYTES = 32

/** An event of 26 bytes, which Node writes as one chunk. */
export function writeEvent(name: number, number: number): string {
  return `data: ${String(name).padStart(DIGITS, '0')} ${String(number).padStart(DIGITS, '0')}\n\n\n`
}

/** Parses `EVENT_BYTES` of the wire, in Latin 1. Null if they differ in a byte from what was written. */
export function readEvent(chunk: string): { name: number; number: number } | null {
  const [, name, number] = EVENT.exec(chunk) ?? []
  return name === undefined || number === undefined ? null : { name: Number(name), number: Number(number) }
}
