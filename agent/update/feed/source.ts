// Reads the files of a feed, below an address or in a folder. Must hold: reads no file beyond its bound, and in a folder only regular
// files.

import { constants, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { addAbortSignal } from 'node:stream'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { BatonError, codeOf, reasonOf } from '../../words/errors.ts'
import type { ErrorCode } from '../../words/errors.ts'
import { isTag } from '../../words/release.ts'
import type { Bytes, Tag } from '../../words/release.ts'
import { isObject } from '../../words/untrusted.ts'
import { ifThere } from './answer.ts'
import type { Http } from './http.ts'

const LIST_MAX_BYTES = 8 * 1024 * 1024
/** how many small files are kept, and of what size */
const [KEPT_MAX, KEPT_MAX_BYTES, ETAG_MAX] = [32, 256 * 1024, 200]

export interface Source {
  /** Reads a whole small file; null if there is none. Throws BatonError check_failed, rate_limited. */
  file(path: string, maxBytes: number, signal: AbortSignal | undefined): Promise<Buffer | null>
  /** The tags that have a folder; null if this source cannot list folders. */
  tags(): Promise<Tag[] | null>
  /** the address of a file, to pass to `bytes` */
  url(path: string): string
  /** See `Feed.bytes`. */
  bytes(url: string, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
}

/** `base` ends with a slash. Keeps the files that it read last: an unchanged file costs a request, but no bytes. */
export function webSource(base: string, http: Http): Source {
  const url = (path: string): string => new URL(path, base).href
  const kept = new Map<string, { etag: string; content: Buffer }>()
  const keep = (path: string, { etag, content }: { etag: string | null; content: Buffer }): Buffer => {
    kept.delete(path)
    if (etag !== null && etag.length <= ETAG_MAX && content.length <= KEPT_MAX_BYTES) kept.set(path, { etag, content })
    for (const oldest of kept.keys()) if (kept.size > KEPT_MAX) kept.delete(oldest)
    return content
  }
  return {
    url,
    tags: () => Promise.resolve(null),
    async file(path, maxBytes, signal) {
      try {
        const last = kept.get(path)
        // one that is too large here, unlike where it was read, is asked for again: the error must say so
        const known = (last?.content.length ?? 0) > maxBytes ? undefined : last
        const request = {
          url: url(path),
          maxBytes,
          failure: 'check_failed',
          signal,
          known: known?.etag ?? null,
        } as const
        const answer = await http.file(request)
        if (answer === null) return known?.content ?? null
        return keep(path, answer)
      } catch (error) {
        if (!(error instanceof BatonError)) throw error
        if (error.code === 'release_not_found') return null
        // A bucket that may not be listed answers 403 for a missing file. Accept that for the next root only: it is usually missing.
        if (error.members['status'] === 403 && path.endsWith('.root.json')) return null
        throw error
      }
    },
    bytes: (address, from, validator, signal) => http.bytes(address, from, validator, signal),
  }
}

/**
 * The assets of a private GitHub repository, as `<tag>/<name>`. The API serves each asset under a number, which the release's
 * list of assets gives. `releases`: `<api>/repos/<owner>/<name>/releases`.
 */
export function assetSource(releases: string, http: Http): Source {
  const numbered = async (
    path: string,
    failure: ErrorCode,
    signal: AbortSignal | undefined,
  ): Promise<string | null> => {
    const [tag = '', name] = path.split('/').map(decodeURIComponent)
    const request = { url: `${releases}/tags/${tag}`, maxBytes: LIST_MAX_BYTES, failure, signal } as const
    const answer = await ifThere(http.json({ ...request, accept: 'application/vnd.github+json' }))
    const assets = isObject(answer?.value) ? answer.value['assets'] : null
    const found = (Array.isArray(assets) ? (assets as unknown[]) : []).find(
      (asset) => isObject(asset) && asset['name'] === name && asset['state'] !== 'open',
    )
    const url = isObject(found) ? (found['url'] ?? found['browser_download_url']) : null // Forgejo and Gitea have the second only
    return typeof url === 'string' ? url : null
  }
  return {
    url: (path) => `${releases}/${path}`,
    tags: () => Promise.resolve(null),
    async file(path, maxBytes, signal) {
      const url = await numbered(path, 'check_failed', signal)
      if (url === null) return null
      const accept = 'application/octet-stream'
      return (await http.file({ url, maxBytes, accept, failure: 'check_failed', signal }))?.content ?? null
    },
    async bytes(address, from, validator, signal) {
      const path = address.slice(releases.length + 1)
      const url = await numbered(path, 'download_failed', signal)
      if (url === null) throw new BatonError('download_failed', `\`${path}\`: there is no such asset`)
      return await http.bytes(url, from, validator, signal)
    },
  }
}

/** Files by GitHub's contents API, at `<base><path><query>`. */
export function fileSource(base: string, query: string, http: Http): Pick<Source, 'file'> {
  return {
    async file(path, maxBytes, signal) {
      const accept = 'application/vnd.github.raw+json'
      const request = { url: `${base}${path}${query}`, maxBytes, accept, failure: 'check_failed', signal } as const
      return (await ifThere(http.file(request)))?.content ?? null
    },
  }
}

export function folderSource(folder: string): Source {
  return {
    url: (path) => pathToFileURL(join(folder, path)).href,
    async tags() {
      try {
        return (await readdir(folder)).filter(isTag)
      } catch (error) {
        throw new BatonError('check_failed', `listing \`${folder}\`: ${reasonOf(error)}`, { cause: error })
      }
    },
    async file(path, maxBytes) {
      const full = join(folder, path)
      const opened = await openRegular(full, 'check_failed')
      if (opened === null) return null
      await using file = opened.file
      if (opened.size > maxBytes) {
        throw new BatonError('check_failed', `\`${full}\`: expected at most ${maxBytes} bytes, got ${opened.size}`, {
          members: { maxBytes },
        })
      }
      const content = Buffer.alloc(opened.size)
      const { bytesRead } = await file.read(content, 0, opened.size, 0) // the file may grow meanwhile: read no more than this
      return content.subarray(0, bytesRead)
    },
    async bytes(url, from, validator, signal) {
      const path = fileURLToPath(url)
      const opened = await openRegular(path, 'download_failed')
      if (opened === null) throw new BatonError('download_failed', `\`${path}\`: there is no such file`)
      const start = opened.validator === validator ? from : 0
      const stream = opened.file.createReadStream({ start, highWaterMark: 256 * 1024 })
      stream.on('error', () => {}) // it may be aborted before it is read
      return {
        stream: addAbortSignal(signal, stream) as AsyncIterable<Uint8Array>,
        from: start,
        totalBytes: opened.size,
        validator: opened.validator,
      }
    },
  }
}

/** Null if there is no such file. Refuses a pipe or a device: reading it could wait for ever. */
async function openRegular(path: string, failure: ErrorCode) {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await file.stat({ bigint: true })
    if (!stats.isFile()) {
      await file.close()
      throw new Error('expected a regular file')
    }
    const { ino, size, mtimeNs } = stats
    return { file, size: Number(size), validator: `${ino}-${size}-${mtimeNs}` }
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error))) return null
    throw new BatonError(failure, `reading \`${path}\`: ${reasonOf(error)}`, { cause: error })
  }
}
