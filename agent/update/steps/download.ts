// Stage 2, download: streams the asset, decompressed on the way, into `.partial` beside the executable. The compressed bytes
// are summed as they pass and the sum is for `verify` to judge; nothing here trusts them. Memory does not grow with the asset.
// Power cut or kill: a `.partial` is left, which nobody ever runs; the next start or the next download replaces it.

import { createHash } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { PassThrough } from 'node:stream'
import type { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import zlib from 'node:zlib' // not by name: a Node without zstd loads this file too
import { type Disk, mebibytes, ROOM_BYTES, roomIn } from '../../disk/disk.ts'
import { BatonError, reasonOf } from '../../words/errors.ts'
import { EXECUTABLE_MAX_BYTES } from '../trust/release-texts.ts'
import type { Asset, Bytes, Feed } from '../../words/release.ts'
import { assertRoom, type Need, needsOfAsset } from '../../disk/room.ts'
import type { Progress } from '../../words/state.ts'
import type { Candidate, Steps } from '../story.ts'
import { within } from './within.ts'

export interface DownloadOptions {
  feed: Pick<Feed, 'bytes'>
  disk: Disk
  /** where the executable is unpacked to, in the directory that it will be renamed in */
  partialPath: string
  /** a connection that brings less than PACE_MIN_BYTES in this time is given up */
  stallMs: number
  /** what the steps after this one are going to write; it is looked at before the first byte */
  alsoNeeds?: () => Promise<Need[]>
  onProgress: (progress: Progress) => void
  /** told of every piece that came over the wire, those that came twice included */
  onReceived?: (bytes: number) => void
  /** for the whole asset, however often it goes on; default by its size and the least pace */
  deadlineMs?: number
  /** before the first reconnect; doubles with each until RECONNECT_MAX_MS */
  reconnectMs?: number
}

/** in `stallMs`; a connection that trickles is as dead as a silent one */
const PACE_MIN_BYTES = 16 * 1024
/** connections in a row that bring less than that, before we give up */
const FRUITLESS_MAX = 5
const RECONNECTS_MAX = 100
const RECONNECT_MS = 250
const RECONNECT_MAX_MS = 8_000
const PROGRESS_EVERY_MS = 100
/** the whole asset must have come after this long at the latest: in its size at the least pace, and some patience */
const PACE_LEAST_BYTES_PER_S = 16 * 1024
const PATIENCE_MS = 600_000
/** how often, in bytes written, the disk is asked for what is left on it */
const ROOM_EVERY_BYTES = 8 * 1024 * 1024

export function makeDownload(options: DownloadOptions): Steps['download'] {
  const { disk, partialPath } = options
  return async ({ asset, tag }, signal = new AbortController().signal) => {
    const doing = `downloading \`${asset.name}\` of ${tag}`
    try {
      await assertRoom([...needsOfAsset(dirname(partialPath), asset), ...((await options.alsoNeeds?.()) ?? [])])
      await disk.remove(partialPath) // not written over: an earlier one may be running still, or be a link
      const file = await disk.create(partialPath, 0o600)
      try {
        const assetSha256 = await unpack(asset, file, options, signal)
        await disk.flush(file, partialPath)
        return candidate(assetSha256)
      } catch (error) {
        await disk.remove(partialPath)
        throw error
      } finally {
        await file.close()
      }
    } catch (error) {
      throw within(error, 'download_failed', doing)
    }
  }

  function candidate(assetSha256: string): Candidate {
    return { path: partialPath, assetSha256, [Symbol.asyncDispose]: () => disk.remove(partialPath) }
  }
}

/** The asset's bytes through the decompressor into `file`. The sha256 of what came over the wire. */
async function unpack(asset: Asset, file: FileHandle, options: DownloadOptions, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256')
  const wholeMs = options.deadlineMs ?? PATIENCE_MS + (asset.sizeBytes / PACE_LEAST_BYTES_PER_S) * 1000
  const late = new AbortController()
  const message = `expected the whole asset within ${Math.ceil(wholeMs / 1000)} s`
  const timer = setTimeout(() => late.abort(new BatonError('download_failed', message)), wholeMs)
  const wire = received(asset, hash, options, AbortSignal.any([signal, late.signal]))
  const directory = dirname(options.partialPath)
  let lookedAt = 0
  const bound = asset.executable?.sizeBytes ?? EXECUTABLE_MAX_BYTES
  let unpacked = 0
  let fault: Error | null = null // ours or the wire's; what else goes wrong in the pipeline is the decompressor's
  try {
    await pipeline(lent(wire), decompressor(asset), async (chunks: AsyncIterable<Buffer>) => {
      try {
        for await (const chunk of chunks) {
          unpacked += chunk.length
          if (unpacked > bound) throw new BatonError('download_failed', `expected ${bound} bytes unpacked, got more`)
          if (unpacked - lookedAt >= ROOM_EVERY_BYTES) {
            lookedAt = unpacked
            // all that is written until the next look
            const next = chunk.length + Math.min(ROOM_EVERY_BYTES, bound - unpacked)
            if ((await roomIn(directory)) < next) throw noRoom(directory, unpacked)
          }
          await writeWhole(file, chunk)
        }
      } catch (error) {
        if (!isDecompressors(error)) fault ??= asError(error)
        throw error
      }
    })
  } catch (error) {
    if (fault !== null) throw fault as Error // set in a callback, which the compiler does not see
    // bytes that do not unpack are most likely not the bytes that were published: read on, and let the sum tell
    for await (const _ of wire);
    const sha256 = hash.digest('hex')
    if (sha256 !== asset.sha256) return sha256
    throw new BatonError('download_failed', `it does not unpack: ${reasonOf(error)}`, { cause: error })
  } finally {
    clearTimeout(timer)
    await wire.return()
  }
  return hash.digest('hex')

  async function* lent(source: AsyncGenerator<Uint8Array>): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        const { value, done } = await source.next()
        if (done) return
        yield value
      }
    } catch (error) {
      fault ??= asError(error)
      throw error
    }
  }
}

/**
 * The compressed bytes, from the first to the last, over as many connections as it takes. Each one goes on where the one
 * before broke off (Range, If-Range). A server that starts again from 0 instead is read over up to there; whether both parts
 * are of one file is told by the sum. Throws where there are more bytes than announced, at once, or fewer, in the end.
 */
async function* received(
  asset: Asset,
  hash: { update(chunk: Uint8Array): unknown },
  { feed, stallMs, onProgress, onReceived, reconnectMs = RECONNECT_MS }: DownloadOptions,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  const { sizeBytes } = asset
  const report = atMostEvery(PROGRESS_EVERY_MS, (bytes) => onProgress({ bytes, totalBytes: sizeBytes }))
  let bytes = 0
  let validator: string | null = null
  let fruitless = 0
  let wait = reconnectMs
  report(0, true)
  for (let connection = 0; ; connection++) {
    const before = bytes
    const abort = new AbortController()
    try {
      signal.throwIfAborted()
      const pace = watched(stallMs, signal)
      const answer: Bytes = await pace.next(feed.bytes(asset, bytes, validator, abort.signal), bytes)
      validator ??= answer.validator
      const chunks = answer.stream[Symbol.asyncIterator]()
      let at = answer.from
      if (answer.totalBytes !== null && answer.totalBytes !== sizeBytes) throw wrongSize(sizeBytes, answer.totalBytes)
      for (;;) {
        const { value, done } = await pace.next(chunks.next(), bytes)
        if (done) break
        onReceived?.(value.length)
        const chunk = at < bytes ? value.subarray(bytes - at) : value
        at += value.length
        if (at > sizeBytes) throw wrongSize(sizeBytes, null)
        if (chunk.length === 0) continue
        bytes = at
        hash.update(chunk)
        report(bytes, bytes === sizeBytes)
        yield chunk
      }
      if (bytes === sizeBytes) return
      throw new Error(`the connection ended after ${bytes} of ${sizeBytes} bytes`)
    } catch (error) {
      if (error instanceof BatonError) throw error // another connection would bring the same
      fruitless = bytes - before >= PACE_MIN_BYTES ? 0 : fruitless + 1
      if (fruitless === FRUITLESS_MAX || connection === RECONNECTS_MAX) {
        const message = `${reasonOf(error)} (${bytes} of ${sizeBytes} bytes, ${connection + 1} connections)`
        throw new BatonError('download_failed', message, { cause: error })
      }
      if (fruitless === 0) wait = reconnectMs
    } finally {
      abort.abort() // lets go of the connection, whichever way we leave
    }
    await sleep(wait, undefined, { signal }).catch(() => signal.throwIfAborted())
    wait = Math.min(wait * 2, RECONNECT_MAX_MS)
  }
}

/** Waits for a source, and gives it up when too little came in the time spent waiting. Our own pauses do not count. */
function watched(stallMs: number, signal: AbortSignal): { next<T>(source: Promise<T>, bytes: number): Promise<T> } {
  let waited = 0
  let since: number | null = null
  return {
    async next(source, bytes) {
      source.catch(() => {}) // it is aborted when we have given it up
      signal.throwIfAborted()
      since ??= bytes
      if (bytes - since >= PACE_MIN_BYTES) [waited, since] = [0, bytes]
      const came = bytes - since
      const started = performance.now()
      let timer: NodeJS.Timeout | undefined
      let cancel = () => {}
      const cancelled = new Promise<never>((_, reject) => {
        cancel = () => reject(signal.reason as Error)
        signal.addEventListener('abort', cancel)
      })
      const stalled = new Promise<never>((_, reject) => {
        const message = `stalled: expected at least ${PACE_MIN_BYTES} bytes in ${stallMs / 1000} s, got ${came}`
        timer = setTimeout(() => reject(new Error(message)), Math.max(1, stallMs - waited))
      })
      try {
        return await Promise.race([source, stalled, cancelled])
      } finally {
        clearTimeout(timer)
        signal.removeEventListener('abort', cancel)
        waited += performance.now() - started
      }
    },
  }
}

function decompressor({ compression }: Asset): Transform {
  const chunkSize = 256 * 1024
  switch (compression) {
    case 'zstd':
      return zlib.createZstdDecompress({ chunkSize })
    case 'gzip':
      return zlib.createGunzip({ chunkSize })
    case 'none':
      return new PassThrough()
    default:
      return compression satisfies never
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

/** zlib's own codes: `Z_DATA_ERROR`, `ZSTD_error_checksum_wrong`, … */
function isDecompressors(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^Z(STD)?_/.test(String(error.code))
}

async function writeWhole(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length;) at += (await file.write(chunk, at)).bytesWritten
}

function noRoom(directory: string, unpacked: number): BatonError {
  const message = `expected ${mebibytes(ROOM_BYTES)} to stay free in \`${directory}\` for the service, after ${mebibytes(unpacked)} unpacked`
  return new BatonError('download_failed', message, { hint: 'free some space on its disk' })
}

function wrongSize(expected: number, got: number | null): BatonError {
  return new BatonError('download_failed', `expected ${expected} bytes, got ${got ?? 'more'}`)
}

/** Passes on the first call, then at most one each `ms`, and every call that is `due`. */
function atMostEvery(ms: number, act: (value: number) => void): (value: number, due: boolean) => void {
  let last = -Infinity
  return (value, due) => {
    const now = performance.now()
    if (!due && now - last < ms) return
    last = now
    act(value)
  }
}
