// Makes a delta (`agent/update/steps/delta.ts` has its form and applies it). Must hold: memory does not grow with the files; the same
// two files give the same bytes.

import { availableParallelism } from 'node:os'
import { promisify } from 'node:util'
import { constants, zstdCompress } from 'node:zlib'
import { MARGIN_BYTES, type Readable, type Segment, SEGMENT_BYTES } from '../../agent/publish.ts'

/** docs/decisions/0048-an-update-weighs-its-change.md has what other values cost */
const LEVEL = 12
const WINDOW_LOG = 23
/** so many are compressed at a time: each takes some 100 MB */
const AT_ONCE = Math.min(2, availableParallelism())

/** Anchors: a position whose last 32 bytes have such a hash is found again in the other file. One in 256 has. */
const ANCHOR_MASK = 0xff_00_00_00
const TABLE_BITS = 21
/** shifts are counted in such steps; the dictionary reaches far beyond one */
const SHIFT_BYTES = 64 * 1024

const compress = promisify(zstdCompress)

/** Throws the reason of `signal` when that is aborted. */
export async function makeDelta(old: Readable, made: Readable, signal?: AbortSignal): Promise<Buffer> {
  const anchors = await anchorsOf(old, signal)
  const begins = Array.from({ length: Math.ceil(made.sizeBytes / SEGMENT_BYTES) }, (_, i) => i * SEGMENT_BYTES)
  const packed: ({ segment: Segment; body: Buffer } | null)[] = []
  let next = 0
  const work = async () => {
    for (let i = next++; i < begins.length; i = next++) {
      signal?.throwIfAborted()
      packed[i] = await pack(old, made, begins[i] ?? 0, anchors)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  const changed = packed.filter((one) => one !== null)
  const header = JSON.stringify({ format: 1, segments: changed.map(({ segment }) => segment) })
  return Buffer.concat([Buffer.from(`${header}\n`), ...changed.map(({ body }) => body)])
}

/** Null: the old file has the same bytes in the same place. */
async function pack(old: Readable, made: Readable, at: number, anchors: Int32Array) {
  const bytes = Math.min(SEGMENT_BYTES, made.sizeBytes - at)
  const segment = await made.read(at, bytes)
  if (at + bytes <= old.sizeBytes && segment.equals(await old.read(at, bytes))) return null
  const middle = at + shiftOf(segment, at, anchors)
  const from = Math.min(Math.max(0, middle - MARGIN_BYTES), old.sizeBytes)
  const fromBytes = Math.max(0, Math.min(old.sizeBytes, middle + bytes + MARGIN_BYTES) - from)
  const body = await compress(segment, {
    ...(fromBytes === 0 ? {} : { dictionary: await old.read(from, fromBytes) }),
    pledgedSrcSize: bytes,
    params: {
      [constants.ZSTD_c_compressionLevel]: LEVEL,
      [constants.ZSTD_c_windowLog]: WINDOW_LOG,
      [constants.ZSTD_c_hashLog]: 22,
      [constants.ZSTD_c_chainLog]: 23,
    },
  })
  return { segment: [at, bytes, from, fromBytes, body.length] satisfies Segment, body }
}

/** How far most of a segment has moved since the old file, in bytes: a package that was added moves all that comes behind it. */
function shiftOf(segment: Buffer, at: number, anchors: Int32Array): number {
  const votes = new Map<number, number>()
  scan(segment, 0, (i, slot) => {
    const was = (anchors[slot] ?? 0) - 1
    const shift = Math.round((was - at - i) / SHIFT_BYTES)
    if (was >= 0) votes.set(shift, (votes.get(shift) ?? 0) + 1)
  })
  let best: [shift: number, votes: number] = [0, votes.get(0) ?? 0]
  for (const vote of votes) if (vote[1] > best[1]) best = vote
  const shift = best[0] * SHIFT_BYTES
  return Math.abs(shift) <= MARGIN_BYTES / 2 ? 0 : shift // a short way is in the margin
}

/** Slot of an anchor -> its position in the file, and 1; 0: there is none; -1: there are several. */
async function anchorsOf(file: Readable, signal?: AbortSignal): Promise<Int32Array> {
  const anchors = new Int32Array(1 << TABLE_BITS)
  let hash = 0
  for (let at = 0; at < file.sizeBytes; at += SEGMENT_BYTES) {
    signal?.throwIfAborted()
    const part = await file.read(at, Math.min(SEGMENT_BYTES, file.sizeBytes - at))
    // the padding between functions would vote for where it was last
    hash = scan(part, hash, (i, slot) => void (anchors[slot] = anchors[slot] === 0 ? at + i + 1 : -1))
  }
  return anchors
}

/** Tells each anchor; returns the hash at the end. A byte's share of the hash is gone 32 bytes later. */
function scan(bytes: Buffer, begin: number, tell: (at: number, slot: number) => void): number {
  let hash = begin
  for (let i = 0; i < bytes.length; i++) {
    hash = ((hash << 1) + (GEAR[bytes[i] ?? 0] ?? 0)) | 0
    if ((hash & ANCHOR_MASK) === 0) tell(i, Math.imul(hash, 0x9e3779b1) >>> (32 - TABLE_BITS))
  }
  return hash
}

/** a random number for each value of a byte, always the same ones */
const GEAR = Int32Array.from({ length: 256 }, (_, i) => {
  let x = (i + 1) * 0x9e3779b1
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b)
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
  return x ^ (x >>> 16)
})
