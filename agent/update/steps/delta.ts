// A delta makes an executable from an older one. The new file is cut in segments; a segment that differs from what the old file has in
// its place is compressed by zstd, with a part of the old file as its dictionary. `deploy/make/delta.ts` makes it:
//   {"format":1,"segments":[[at,bytes,from,fromBytes,packedBytes],…]}\n  and the packed segments, one behind the other
// Must hold: memory is bounded whatever the bytes are, and nothing here trusts them: who applies a delta compares the sum of the result.

import type { FileHandle } from 'node:fs/promises'
import { promisify } from 'node:util'
import zlib from 'node:zlib' // not by name: a Node without zstd loads this file too
import { BatonError } from '../../words/errors.ts'
import { isCount, isObject, parsedJson } from '../../words/untrusted.ts'

/** where the segments of the new file begin: multiples of this */
export const SEGMENT_BYTES = 1024 * 1024
/** of the old file, before and behind what a segment is made from */
export const MARGIN_BYTES = 1024 * 1024
const HEADER_MAX_BYTES = 1024 * 1024
/** zstd's memory; no segment needs more */
const WINDOW_LOG_MAX = 23

/** A file or a buffer, read in parts. */
export interface Readable {
  sizeBytes: number
  /** exactly so many bytes from there on */
  read(at: number, bytes: number): Promise<Buffer>
}

export function readable(file: FileHandle, sizeBytes: number): Readable {
  return {
    sizeBytes,
    async read(at, bytes) {
      const buffer = Buffer.allocUnsafe(bytes)
      for (let done = 0; done < bytes;) {
        const { bytesRead } = await file.read(buffer, done, bytes - done, at + done)
        if (bytesRead === 0)
          throw new Error(
            `expected ${sizeBytes} bytes in the executable, got fewer: it changed while it was being read`,
          )
        done += bytesRead
      }
      return buffer
    },
  }
}

/** `at`, `bytes`: in the new file; `from`, `fromBytes`: the dictionary, in the old file; `packedBytes`: in the delta */
export type Segment = [at: number, bytes: number, from: number, fromBytes: number, packedBytes: number]

/** The bytes of the new file, in order; `sizeBytes` is its size. Throws download_failed if the delta does not fit. */
export async function* applyDelta(delta: Buffer, old: Readable, sizeBytes: number): AsyncGenerator<Buffer> {
  const { segments, begin } = parseHeader(delta, old.sizeBytes, sizeBytes)
  const unpack = promisify(zlib.zstdDecompress)
  let [done, body] = [0, begin]
  for (const [at, bytes, from, fromBytes, packedBytes] of segments) {
    yield* asItWas(old, done, at)
    const unpacked = await unpack(delta.subarray(body, body + packedBytes), {
      ...(fromBytes === 0 ? {} : { dictionary: await old.read(from, fromBytes) }),
      maxOutputLength: bytes,
      chunkSize: Math.max(64, bytes),
      params: { [zlib.constants.ZSTD_d_windowLogMax]: WINDOW_LOG_MAX },
    })
    if (unpacked.length !== bytes) throw misfit(`expected a segment of ${bytes} bytes, got ${unpacked.length}`)
    yield unpacked
    ;[done, body] = [at + bytes, body + packedBytes]
  }
  yield* asItWas(old, done, sizeBytes)
}

async function* asItWas(old: Readable, from: number, to: number): AsyncGenerator<Buffer> {
  for (let at = from; at < to; at += SEGMENT_BYTES) yield await old.read(at, Math.min(SEGMENT_BYTES, to - at))
}

/** Every segment lies in both files, behind the one before it; the packed ones fill the delta. */
function parseHeader(delta: Buffer, oldBytes: number, newBytes: number): { segments: Segment[]; begin: number } {
  const end = delta.subarray(0, HEADER_MAX_BYTES).indexOf('\n')
  const header = end < 0 ? null : parsedJson(delta.toString('latin1', 0, end))
  if (!isObject(header) || header['format'] !== 1 || !Array.isArray(header['segments']))
    throw misfit('expected format 1')
  const segments: Segment[] = []
  // what lies between the segments is the old file's
  const isOld = (from: number, to: number): boolean => from === to || to <= oldBytes
  let [done, body] = [0, end + 1]
  for (const entry of header['segments'] as unknown[]) {
    if (!Array.isArray(entry) || entry.length !== 5 || !entry.every(isCount))
      throw misfit('expected five numbers per segment')
    const segment = entry as Segment
    const [at, bytes, from, fromBytes, packedBytes] = segment
    const fits = at >= done && at + bytes <= newBytes && from + fromBytes <= oldBytes && isOld(done, at)
    const isBounded =
      bytes > 0 && at % SEGMENT_BYTES === 0 && bytes <= SEGMENT_BYTES && fromBytes <= SEGMENT_BYTES + 2 * MARGIN_BYTES
    if (!fits || !isBounded) throw misfit('a segment is out of bounds')
    segments.push(segment)
    ;[done, body] = [at + bytes, body + packedBytes]
  }
  if (!isOld(done, newBytes)) throw misfit('its segments do not cover the whole file')
  if (body !== delta.length) throw misfit(`expected ${delta.length} bytes in all, got ${body}`)
  return { segments, begin: end + 1 }
}

function misfit(why: string): BatonError {
  return new BatonError('download_failed', `the delta is not valid: ${why}`)
}
