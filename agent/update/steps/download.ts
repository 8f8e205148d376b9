// Stage 2, download: streams the asset into `.partial` beside the executable and decompresses it on the way. It hashes the
// compressed bytes as they pass; `verify` judges the hash, and nothing here trusts the bytes. If a delta leads from the installed
// executable to the release's, it takes that; with a delta that fails in any way, it takes the asset. Memory does not grow with the
// asset. A power cut or a kill leaves a `.partial`, which nothing ever runs; the next start or the next download replaces it.

import { createHash } from 'node:crypto'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { PassThrough } from 'node:stream'
import type { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import zlib from 'node:zlib' // not by name: a Node without zstd loads this file too
import { type Disk, mebibytes } from '../../disk/disk.ts'
import { ROOM_BYTES, roomIn } from '../../disk/reserve.ts'
import { BatonError, codeOf, reasonOf } from '../../words/errors.ts'
import { EXECUTABLE_MAX_BYTES } from '../trust/release-texts.ts'
import type { Asset, Bytes, Delta, Feed, Release } from '../../words/release.ts'
import { assertRoom, type Need, needsOfAsset } from '../../disk/room.ts'
import type { Progress } from '../../words/state.ts'
import type { Candidate } from '../story.ts'
import { deltaFor, sumOf } from '../chosen-delta.ts'
import { fromWhoeverHasIt, noteOther } from '../feed/mirrors.ts'
import { within } from '../rethrow.ts'
import { applyDelta, readable } from './delta.ts'

export interface DownloadOptions {
  feed: Pick<Feed, 'bytes' | 'leaveOut'>
  disk: Disk
  /** where the executable is unpacked: in the directory in which it will be renamed */
  partialPath: string
  /** the installed executable: if it is the release's already, it is copied, and nothing is downloaded; else a delta may begin at it */
  installedPath?: string
  /** the download ends a connection that brings less than PACE_MIN_BYTES in this time, and opens another */
  stallMs?: number
  /** the room that the later steps need; checked before the first byte */
  alsoNeeds?: () => Promise<Need[]>
  onProgress: (progress: Progress) => void
  /** told in a sentence why the asset is downloaded although there is a delta */
  onDeltaFailed?: (line: string) => void
  /** called with the size of every piece that came over the wire, also of one that came twice */
  onReceived?: (bytes: number) => void
  /** for the whole asset over all its connections; default: from its size and PACE_LEAST_BYTES_PER_S */
  deadlineMs?: number
  /** before the first reconnect; doubles with each until RECONNECT_MAX_MS */
  reconnectMs?: number
}

const STALL_MS = 30_000
/** in `stallMs`; a connection that trickles is as dead as a silent one */
const PACE_MIN_BYTES = 16 * 1024
/** connections in a row that bring less than that, before the download fails */
const FRUITLESS_MAX = 5
const RECONNECTS_MAX = 100
const RECONNECT_MS = 250
const RECONNECT_MAX_MS = 8_000
const PROGRESS_EVERY_MS = 100
/** the whole asset may take as long as its size needs at the least pace, plus some patience */
const PACE_LEAST_BYTES_PER_S = 16 * 1024
const PATIENCE_MS = 600_000
/** the same for a delta: the asset is there if it does not come */
const DELTA_PATIENCE_MS = 60_000
/** how many bytes are written between two checks of the free space */
const ROOM_EVERY_BYTES = 8 * 1024 * 1024

/** The stage needs no more of a release than its files. */
export type Download = (release: Pick<Release, 'asset' | 'deltas' | 'tag'>, signal?: AbortSignal) => Promise<Candidate>

export function makeDownload(options: DownloadOptions): Download {
  const { disk, partialPath, installedPath } = options
  return async ({ asset, deltas, tag }, signal = new AbortController().signal) => {
    const doing = `downloading \`${asset.name}\` of ${tag}`
    try {
      await assertRoom([...needsOfAsset(dirname(partialPath), asset), ...((await options.alsoNeeds?.()) ?? [])])
      await disk.remove(partialPath) // do not overwrite: the earlier file may still run, or be a link
      try {
        const isMade =
          installedPath !== undefined && (await madeFrom(installedPath, { asset, deltas }, options, signal))
        // `verify` compares the executable with its own sum once more
        return candidate(isMade ? asset.sha256 : await downloaded(asset, signal))
      } catch (error) {
        await disk.remove(partialPath)
        throw error
      }
    } catch (error) {
      throw within(error, 'download_failed', doing)
    }
  }

  async function downloaded(asset: Asset, signal: AbortSignal): Promise<string> {
    const once = async (isAgain: boolean) => {
      if (isAgain) await disk.remove(partialPath)
      await using file = await disk.create(partialPath, 0o600)
      const assetSha256 = await unpack(asset, file, options, signal)
      await disk.flush(file, partialPath)
      return assetSha256
    }
    return await fromWhoeverHasIt(options.feed, once, (sha256) => sha256 === asset.sha256)
  }

  function candidate(assetSha256: string): Candidate {
    return { path: partialPath, assetSha256, [Symbol.asyncDispose]: () => disk.remove(partialPath) }
  }
}

/** Whether the executable could be had from the installed one: it is that one already, or a delta leads to it. */
async function madeFrom(
  installed: string,
  { asset, deltas }: Pick<Release, 'asset' | 'deltas'>,
  options: DownloadOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const { disk, partialPath } = options
  if (await isHere(asset, installed)) {
    await disk.copy(installed, partialPath, 0o600)
    return true
  }
  const delta = await deltaFor({ deltas }, installed)
  return delta !== null && (await madeBy(delta, asset, installed, options, signal))
}

/** Whether the delta has made the executable. Else nothing is left of it. */
async function madeBy(
  delta: Delta,
  { executable }: Asset,
  from: string,
  options: DownloadOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const { disk, partialPath } = options
  try {
    const bytes = await fetched(delta, options, signal)
    await using old = await open(from)
    await using file = await disk.create(partialPath, 0o600)
    const hash = createHash('sha256')
    for await (const part of applyDelta(bytes, readable(old, (await old.stat()).size), executable?.sizeBytes ?? 0)) {
      signal.throwIfAborted()
      hash.update(part)
      await writeWhole(file, part)
    }
    const sha256 = hash.digest('hex')
    if (sha256 !== executable?.sha256) throw new Error(`the resulting executable has the wrong sha256, ${sha256}`)
    await disk.flush(file, partialPath)
    return true
  } catch (cause) {
    signal.throwIfAborted()
    await disk.remove(partialPath)
    options.onDeltaFailed?.(`\`${delta.name}\` cannot be used, so the whole asset is downloaded: ${reasonOf(cause)}`)
    return false
  }
}

/** Whether the installed executable is the one in the asset: somebody has put it there, and only a restart is missing. */
async function isHere({ executable }: Asset, path: string): Promise<boolean> {
  if (executable === null) return false
  const size = await stat(path).then(
    (found) => found.size,
    () => null,
  )
  return size === executable.sizeBytes && (await sumOf(path)) === executable.sha256
}

/** Sends the asset's bytes through the decompressor into `file`. Resolves to the sha256 of what came over the wire. */
async function unpack(asset: Asset, file: FileHandle, options: DownloadOptions, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256')
  using inTime = until('asset', options.deadlineMs ?? PATIENCE_MS + leastMs(asset), signal)
  const wire = received(asset, hash, options, inTime.signal)
  const directory = dirname(options.partialPath)
  let lookedAt = 0
  const bound = asset.executable?.sizeBytes ?? EXECUTABLE_MAX_BYTES
  let unpacked = 0
  let tooMuch: Error | null = null
  let fault: Error | null = null // an error of the wire or of writing; any other error of the pipeline is the decompressor's
  try {
    await pipeline(lent(wire), decompressor(asset), async (chunks: AsyncIterable<Buffer>) => {
      try {
        for await (const chunk of chunks) {
          unpacked += chunk.length
          if (unpacked > bound)
            throw (tooMuch = new BatonError('download_failed', `the asset unpacks to more than ${bound} bytes`))
          if (unpacked - lookedAt >= ROOM_EVERY_BYTES) {
            lookedAt = unpacked
            // what will be written until the next check
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
    if (tooMuch !== null && fault === tooMuch && (await restOf(wire)) && hash.digest('hex') !== asset.sha256)
      noteOther(tooMuch)
    if (fault !== null) throw fault as Error // set in a callback, which the compiler does not see
    // Bytes that do not unpack are probably not the published bytes. Read on, so that their sha256 shows that.
    for await (const _ of wire);
    const sha256 = hash.digest('hex')
    if (sha256 !== asset.sha256) return sha256
    throw new BatonError('download_failed', `the asset cannot be unpacked: ${reasonOf(error)}`, { cause: error })
  } finally {
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

/** Reads to the end; false if that fails. */
async function restOf(wire: AsyncGenerator<Uint8Array>): Promise<boolean> {
  try {
    for await (const _ of wire);
    return true
  } catch {
    return false
  }
}

/** The bytes of a delta, which have its sum. */
async function fetched(delta: Delta, options: DownloadOptions, signal: AbortSignal): Promise<Buffer> {
  const once = () => fetchedOnce(delta, options, signal)
  const { bytes, sha256 } = await fromWhoeverHasIt(options.feed, once, (got) => got.sha256 === delta.sha256)
  if (sha256 !== delta.sha256) throw new Error(`sha256 of the delta: expected ${delta.sha256}, got ${sha256}`)
  return bytes
}

async function fetchedOnce(delta: Delta, options: DownloadOptions, signal: AbortSignal) {
  using inTime = until('delta', DELTA_PATIENCE_MS + leastMs(delta), signal)
  const hash = createHash('sha256')
  const parts: Uint8Array[] = []
  for await (const part of received(delta, hash, options, inTime.signal)) parts.push(part)
  return { bytes: Buffer.concat(parts), sha256: hash.digest('hex') }
}

/** what a file needs at the least pace */
function leastMs({ sizeBytes }: Pick<Asset, 'sizeBytes'>): number {
  return (sizeBytes / PACE_LEAST_BYTES_PER_S) * 1000
}

/** Aborts with `signal`, and when a file has taken too long. */
function until(what: 'asset' | 'delta', wholeMs: number, signal: AbortSignal): Disposable & { signal: AbortSignal } {
  const late = new AbortController()
  const message = `expected the whole ${what} to arrive within ${Math.ceil(wholeMs / 1000)} s`
  const timer = setTimeout(() => late.abort(new BatonError('download_failed', message)), wholeMs)
  return { signal: AbortSignal.any([signal, late.signal]), [Symbol.dispose]: () => clearTimeout(timer) }
}

/**
 * The compressed bytes, from the first to the last, over as many connections as it takes. Each connection continues where the
 * previous one broke off (Range, If-Range). If a server starts again from 0, skips the bytes that it has; the sha256 shows whether
 * both parts belong to one file. Throws at once on more bytes than announced, and in the end on fewer.
 */
async function* received(
  asset: Pick<Asset, 'url' | 'sizeBytes'>,
  hash: { update(chunk: Uint8Array): unknown },
  { feed, stallMs = STALL_MS, onProgress, onReceived, reconnectMs = RECONNECT_MS }: DownloadOptions,
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
        const message = `${reasonOf(error)} (${bytes} of ${sizeBytes} bytes over ${connection + 1} connections)`
        throw new BatonError('download_failed', message, { cause: error })
      }
      if (fruitless === 0) wait = reconnectMs
    } finally {
      abort.abort() // closes the connection on every way out
    }
    await sleep(wait, undefined, { signal }).catch(() => signal.throwIfAborted())
    wait = Math.min(wait * 2, RECONNECT_MAX_MS)
  }
}

/** Waits for a source, and rejects if too little came in the time spent waiting. The consumer's own pauses do not count. */
function watched(stallMs: number, signal: AbortSignal): { next<T>(source: Promise<T>, bytes: number): Promise<T> } {
  let waited = 0
  let since: number | null = null
  return {
    async next(source, bytes) {
      source.catch(() => {}) // it may reject later, when it is aborted
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
  return /^Z(STD)?_/.test(codeOf(error))
}

async function writeWhole(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length;) at += (await file.write(chunk, at)).bytesWritten
}

function noRoom(directory: string, unpacked: number): BatonError {
  const message = `less than ${mebibytes(ROOM_BYTES)} would be left in \`${directory}\` for the service after unpacking ${mebibytes(unpacked)}`
  return new BatonError('download_failed', message, { hint: 'free up space on that disk' })
}

function wrongSize(expected: number, got: number | null): BatonError {
  const error = new BatonError('download_failed', `expected ${expected} bytes, got ${got ?? 'more'}`)
  return noteOther(error)
}

/** Forwards the first call, then at most one call per `ms`, and every call that is `due`. */
function atMostEvery(ms: number, act: (value: number) => void): (value: number, due: boolean) => void {
  let last = -Infinity
  return (value, due) => {
    const now = performance.now()
    if (!due && now - last < ms) return
    last = now
    act(value)
  }
}
