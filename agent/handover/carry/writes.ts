// What an author writes to a response: how many bytes it is, and whether it gets there at once.

import { ServerResponse } from 'node:http'

/**
 * Checks each write from now on: middleware may wrap `response.write` and keep the data, to compress it or to send it in one piece.
 * The returned function says whether everything that was written so far reached the response at once.
 */
export function watchWrites(response: ServerResponse): () => boolean {
  const isBare = () => response.write === ServerResponse.prototype.write
  if (isBare()) return isBare
  const around = response.write
  let keeps = false
  const watched = ((...args: Parameters<typeof around>) => {
    const before = response.writableLength
    const isTaken = Reflect.apply(around, response, args)
    if (response.writableLength - before < sizeOfWrite(args[0], args[1])) keeps = true
    return isTaken
  }) as typeof around
  response.write = watched
  return () => !keeps && (response.write === watched || isBare())
}

/** Calls the callback that an author may have passed to a write, as if the bytes were written. */
export function callBack(args: readonly unknown[]): void {
  const written = args.findLast((value) => typeof value === 'function') as (() => void) | undefined
  if (written !== undefined) process.nextTick(written)
}

export function sizeOfWrite(data: unknown, coding: unknown): number {
  if (typeof data === 'string') return Buffer.byteLength(data, encodingIn(coding))
  return data instanceof Uint8Array ? data.byteLength : 0
}

export function encodingIn(coding: unknown): BufferEncoding {
  return typeof coding === 'string' && Buffer.isEncoding(coding) ? (coding.toLowerCase() as BufferEncoding) : 'utf8'
}
