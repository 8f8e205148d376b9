// A deterministic tar: the same files give the same bytes, on any machine, for any user, at any time. Files are in byte order,
// node_modules first and the application last: what changes most is then at the end, and a delta is small. It has no times, no
// owners, and two modes for files. Pure but for reading the files.

import { createHash } from 'node:crypto'
import { lstat, readFile, readlink } from 'node:fs/promises'
import { dirname } from 'node:path/posix'
import { BatonError } from '../../agent/words.ts'
import { largestOf, type Part } from './sizes.ts'
import { TAR_END, tarHeader, tarPadded } from '../lib/tar.ts'

export interface ArchiveFile {
  /** path in the archive, with slashes */
  path: string
  /** absolute path on this disk; a symbolic link stays one in the archive */
  source: string
}

export interface Archive {
  bytes: Buffer
  /** hex */
  sha256: string
  files: number
  /** size once unpacked, on a disk with blocks of 4 KiB */
  unpackedBytes: number
  /** what is large in it */
  largest: Part[]
}

const DISK_BLOCK = 4096

export async function archive(files: readonly ArchiveFile[]): Promise<Archive> {
  const rank = ({ path }: ArchiveFile) => (path.startsWith('node_modules/') ? 0 : 1)
  const sorted = files.toSorted((a, b) => rank(a) - rank(b) || Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)))
  const parts: Buffer[] = []
  const folders = new Set<string>()
  const sizes: Part[] = []
  let blocks = 0
  for (const { path, source } of sorted) {
    if (/[\n\r\0]/.test(path)) {
      const message = `expected file names without line breaks in the release, got ${JSON.stringify(path).slice(0, 300)}`
      throw new BatonError('invalid_settings', message, {
        hint: 'rename the file, or leave it out with `exclude` in baton.config.json',
      })
    }
    const found = await lstat(source)
    const link = found.isSymbolicLink() ? await readlink(source) : ''
    const body = link === '' ? await readFile(source) : Buffer.alloc(0)
    blocks += Math.ceil(body.length / DISK_BLOCK)
    sizes.push({ path, sizeBytes: body.length })
    for (let at = dirname(path); !folders.has(at); at = dirname(at)) folders.add(at)
    const mode = link !== '' ? 0o777 : found.mode & 0o100 ? 0o755 : 0o644
    const long = [
      ...(Buffer.byteLength(path) > 100 ? [record('path', path)] : []),
      ...(Buffer.byteLength(link) > 100 ? [record('linkpath', link)] : []),
    ].join('')
    if (long !== '') parts.push(tarHeader('pax', Buffer.byteLength(long), 0o644, 'x'), tarPadded(Buffer.from(long)))
    parts.push(tarHeader(path, body.length, mode, link === '' ? '0' : '2', link), tarPadded(body))
  }
  parts.push(TAR_END)
  const bytes = Buffer.concat(parts)
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  const unpackedBytes = (blocks + folders.size) * DISK_BLOCK
  return { bytes, sha256, files: sorted.length, unpackedBytes, largest: largestOf(sizes) }
}

/** POSIX.1-2001 pax: `<length of the record> <key>=<value>\n`, where the length counts itself. */
function record(key: string, value: string): string {
  const rest = Buffer.byteLength(` ${key}=${value}\n`)
  let length = rest
  while (length !== rest + String(length).length) length = rest + String(length).length
  return `${length} ${key}=${value}\n`
}
