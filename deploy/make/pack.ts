// Makes a release's assets from an executable: compressed copies and their checksums.
// Must hold: the same executable gives the same bytes. Every size and sha256 is that of the file on the disk.

import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createGzip, createZstdCompress } from 'node:zlib'

export const COMPRESSIONS = ['fast', 'normal', 'best'] as const
/** How hard to compress: docs/decisions/0002-reproducible-build.md says what each costs. */
export type Effort = (typeof COMPRESSIONS)[number] | typeof STORED
/** gzip that compresses nothing, for releases that never leave this machine */
export const STORED = 'stored'

export interface Packed {
  sizeBytes: number
  /** hex */
  sha256: string
}

const LEVELS = {
  [STORED]: { zstd: 1, gzip: 0 },
  fast: { zstd: 1, gzip: 1 },
  normal: { zstd: 12, gzip: 6 },
  best: { zstd: 19, gzip: 9 },
} as const satisfies Record<Effort, { zstd: number; gzip: number }>

/** what a compressor or decompressor gives at once: with Node's 16 kB, handing them on takes longer than storing does */
export const CHUNK_BYTES = 256 * 1024

/** A window of at most 8 MB keeps the updating service's memory small; 128 MB would save 1 % more. */
const WINDOW_LOG = 23

export async function compress(
  from: string,
  to: string,
  kind: 'zstd' | 'gzip',
  effort: Effort,
  onBytes: (bytes: number) => void = () => {},
): Promise<Packed> {
  const { size } = await stat(from)
  const level = LEVELS[effort][kind]
  const compressor =
    kind === 'gzip'
      ? createGzip({ level, chunkSize: CHUNK_BYTES }) // its header holds no time and no name
      : createZstdCompress({
          // no `ZSTD_c_nbWorkers`: with any, Node 26.10 ends the stream too early (ERR_STREAM_PUSH_AFTER_EOF)
          pledgedSrcSize: size,
          chunkSize: CHUNK_BYTES,
          params: {
            [constants.ZSTD_c_compressionLevel]: level,
            [constants.ZSTD_c_windowLog]: WINDOW_LOG,
            [constants.ZSTD_c_checksumFlag]: 1,
          },
        })
  const hash = createHash('sha256')
  let sizeBytes = 0
  await pipeline(
    createReadStream(from, { highWaterMark: 1 << 20 }),
    tap((chunk) => onBytes(chunk.length)),
    compressor,
    tap((chunk) => {
      sizeBytes += chunk.length
      hash.update(chunk)
    }),
    createWriteStream(to, { flags: 'wx', mode: 0o644, flush: true }),
  )
  return { sizeBytes, sha256: hash.digest('hex') }
}

export async function measure(path: string): Promise<Packed> {
  const hash = createHash('sha256')
  await using file = await open(path)
  let sizeBytes = 0
  for await (const chunk of file.createReadStream({ highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length
    hash.update(chunk)
  }
  return { sizeBytes, sha256: hash.digest('hex') }
}

/** Lines for `sha256sum --check`, sorted by name. */
export function formatSums(sums: readonly { name: string; sha256: string }[]): string {
  const sorted = sums.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return sorted.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join('')
}

function tap(see: (chunk: Buffer) => void): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      see(chunk)
      done(null, chunk)
    },
  })
}
