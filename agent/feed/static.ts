// Releases in a folder: behind any web server (S3, nginx), or on a disk, a share or a USB stick. Layout:
//   releases.json   { "format": 1, "releases": [{ "tag": "v1.0.0", "draft": false, "prerelease": false }] }
//   v1.0.0/         SHA256SUMS release.json <service>-linux-x64.zst …
// A folder on disk without releases.json is taken to hold what its `vX.Y.Z` folders say.

import { constants, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { addAbortSignal } from 'node:stream'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { BatonError, reasonOf } from '../errors.ts'
import type { ErrorCode } from '../errors.ts'
import { MANIFEST_NAME, PAPER_MAX_BYTES, SUMS_NAME } from '../trust/papers.ts'
import { isTag, parseTag } from '../release.ts'
import type { Bytes, Feed, Tag, Target } from '../release.ts'
import { isObject, parsedJson, quoted } from '../trust/untrusted.ts'
import { assess, listingOf, unusable } from '../trust/verdict.ts'
import type { Verdict } from '../trust/verdict.ts'
import type { Http } from './http.ts'
import { newestUsable } from './newest.ts'
import type { OnPassedOver } from './newest.ts'

export interface StaticOptions {
  description: string
  source: Source
  target: Target
  onPassedOver: OnPassedOver
}

/** Where the folder is. */
export interface Source {
  /** A whole small file; null where there is none. Throws BatonError check_failed, rate_limited. */
  text(path: string, signal: AbortSignal | undefined): Promise<string | null>
  /** What to do without releases.json; null where the folder cannot be listed. */
  tags(): Promise<Tag[] | null>
  url(path: string): string
  bytes(url: string, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
}

interface Listed {
  tag: Tag
  draft: boolean
  prerelease: boolean
}

const LIST_NAME = 'releases.json'

export function makeStaticFeed({ description, source, target, onPassedOver }: StaticOptions): Feed {
  const list = async (signal: AbortSignal | undefined): Promise<Listed[]> => {
    const text = await source.text(LIST_NAME, signal)
    if (text !== null) return parseReleases(text)
    const tags = await source.tags()
    if (tags === null) throw new BatonError('check_failed', `${source.url(LIST_NAME)}: there is no such file`)
    return tags.map((tag) => ({ tag, draft: false, prerelease: false }))
  }

  const judge = async (listed: Listed, signal: AbortSignal | undefined): Promise<Verdict> => {
    const { tag } = listed
    const sums = await source.text(`${tag}/${SUMS_NAME}`, signal)
    if (sums === null) return { why: `it has no ${SUMS_NAME}` }
    const manifest = await source.text(`${tag}/${MANIFEST_NAME}`, signal)
    if (manifest === null) return { why: `it has no ${MANIFEST_NAME}` }
    const papers = { sums, manifest }
    return assess(
      listingOf(listed, papers, (name) => source.url(`${tag}/${name}`)),
      papers,
      target,
    )
  }

  return {
    description,
    async latest(skip, signal) {
      return await newestUsable(await list(signal), skip, (listed) => judge(listed, signal), onPassedOver)
    },
    async byTag(value, signal) {
      const tag = parseTag(value)
      const listed = (await list(signal)).find((entry) => entry.tag === tag)
      if (listed === undefined) throw new BatonError('release_not_found', `${description} has no release ${tag}`)
      const verdict = await judge(listed, signal)
      if ('why' in verdict) throw unusable(tag, verdict.why)
      return verdict.release
    },
    bytes: (asset, from, validator, signal) => source.bytes(asset.url, from, validator, signal),
  }
}

/** The tags of releases.json; entries whose tag is not one of ours are left out. */
export function parseReleases(text: string): Listed[] {
  const value = parsedJson(text)
  if (!isObject(value) || value['format'] !== 1 || !Array.isArray(value['releases'])) {
    const got = quoted(isObject(value) ? value['format'] : text)
    throw new BatonError(
      'check_failed',
      `${LIST_NAME}: expected an object with \`format\` 1 and \`releases\`, got ${got}`,
    )
  }
  return (value['releases'] as unknown[]).flatMap((entry) => {
    if (!isObject(entry) || !isTag(entry['tag'])) return []
    const { tag, draft = false, prerelease = false } = entry
    return [{ tag, draft: draft !== false, prerelease: prerelease !== false }]
  })
}

/** `base` ends with a slash. */
export function webSource(base: string, http: Http): Source {
  const url = (path: string): string => new URL(path, base).href
  return {
    url,
    tags: () => Promise.resolve(null),
    async text(path, signal) {
      try {
        const request = { url: url(path), maxBytes: PAPER_MAX_BYTES, failure: 'check_failed', signal } as const
        return (await http.text(request))?.text ?? null
      } catch (error) {
        if (error instanceof BatonError && error.code === 'release_not_found') return null
        throw error
      }
    },
    bytes: (address, from, validator, signal) => http.bytes(address, from, validator, signal),
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
    async text(path) {
      const full = join(folder, path)
      const opened = await openRegular(full, 'check_failed')
      if (opened === null) return null
      await using file = opened.file
      if (opened.size > PAPER_MAX_BYTES) {
        throw new BatonError(
          'check_failed',
          `\`${full}\`: expected at most ${PAPER_MAX_BYTES} bytes, got ${opened.size}`,
        )
      }
      return await file.readFile('utf8')
    },
    async bytes(url, from, validator, signal) {
      const path = fileURLToPath(url)
      const opened = await openRegular(path, 'download_failed')
      if (opened === null) throw new BatonError('download_failed', `\`${path}\`: there is no such file`)
      const start = opened.validator === validator ? from : 0
      const stream = opened.file.createReadStream({ start, highWaterMark: 256 * 1024 })
      stream.on('error', () => {}) // where it is given up before anybody reads it
      return {
        stream: addAbortSignal(signal, stream) as AsyncIterable<Uint8Array>,
        from: start,
        totalBytes: opened.size,
        validator: opened.validator,
      }
    },
  }
}

/** Null where there is none. A pipe or a device, which could be waited upon for ever, is refused. */
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
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) return null
    throw new BatonError(failure, `reading \`${path}\`: ${reasonOf(error)}`, { cause: error })
  }
}
