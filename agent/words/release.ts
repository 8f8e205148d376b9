// What a release is: its tag, its order among others, its asset; what a feed is. Pure; fuzzed.
// Whether a release may be used is decided in `trust/`.

import { BatonError } from './errors.ts'
import type { ReleaseNotes, TrustReport } from './state.ts'

/** `vX.Y.Z`, no leading zeros, each number at most nine digits. */
export type Tag = string

/** One compressed executable of a release. Sizes in bytes, sha256 in lower-case hex. */
export interface Asset {
  name: string
  url: string
  sizeBytes: number
  sha256: string
  compression: 'gzip' | 'zstd' | 'none'
  /** the executable inside; null where the feed does not tell (no release.json) */
  executable: { sizeBytes: number; sha256: string } | null
  /** what the executable writes beside itself before its first start, on a disk with blocks of 4 KiB; absent: nothing */
  unpackedBytes?: number
}

/** A release that can be installed on this machine: everything that the later stages need is here. */
export interface Release extends ReleaseNotes {
  /** the whole executable: what every release has */
  asset: Asset
  /** other ways to the same executable, such as a patch; none of them is needed. No feed fills it in yet */
  others: readonly Asset[]
  /** schema number of the state that this release writes (`PRAGMA user_version`); null where it does not tell */
  schema: number | null
  /** its container image, where the feed is signed and the maintainer has named it: pull `repository@digest` */
  image: { repository: string; digest: string } | null
}

/** Whether to pass a usable release over; asked from the newest on, until it says no. */
export type Skip = (release: Release) => boolean

/** What a feed has for whoever asks for the newest. */
export interface Newest {
  /** the newest that can be used; null: none */
  release: Release | null
  /**
   * Why a newer one that is published cannot be used: release_unusable. Null: `release` is the newest. A feed that keeps a release
   * back looks like this, so nobody with a problem is up to date.
   */
  problem: BatonError | null
}

/** Where releases are found. Implementations: `feed/signed.ts`, and for who is built without a root `feed/github.ts`, `feed/static.ts`. */
export interface Feed {
  /** for messages and receipts: `github:owner/name`, `https://…/`, `/folder` */
  readonly description: string
  /**
   * The newest usable release: not a draft, not a prerelease, not withdrawn, with our asset and its checksum, not one to `skip`.
   * Throws BatonError check_failed, rate_limited.
   */
  latest(skip: Skip, signal?: AbortSignal): Promise<Newest>
  /** Notes of what is newer than `after` and older than `before`, newest first, at most ten. Throws as `latest` does. */
  notes(range: { after: Tag; before: Tag }, signal?: AbortSignal): Promise<ReleaseNotes[]>
  /** What is known of the feed's signatures; asks nobody. */
  trust(): Promise<TrustReport>
  /** The release by its tag. Throws release_not_found, release_unusable (and says exactly why), check_failed, rate_limited. */
  byTag(tag: Tag, signal?: AbortSignal): Promise<Release>
  /**
   * The asset as it is stored, from byte `from` on, or from 0 where the source cannot or will not resume: see `Bytes.from`.
   * `validator` is the one that the first answer gave. Throws BatonError download_failed where another try is no use, and
   * any other error where it may be.
   */
  bytes(asset: Asset, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
}

/** An answer with bytes of an asset. Whoever takes it reads the stream to its end or aborts. */
export interface Bytes {
  stream: AsyncIterable<Uint8Array>
  /** where in the asset the stream begins */
  from: number
  /** of the whole asset as this answer has it; null where it does not tell */
  totalBytes: number | null
  /** for the next request, so that it does not go on in another file: an ETag or a date */
  validator: string | null
}

/** What `release.json` holds. */
export interface ReleaseManifest {
  format: 1
  service: string
  tag: Tag
  schema: number | null
  notes: string
  publishedAt: string | null
  /** of an author's application */
  kind?: ReleaseKind
  healthPath?: string | null
  port?: number
  assets: {
    name: string
    os: string
    arch: string
    compression: 'gzip' | 'zstd'
    sizeBytes: number
    sha256: string
    executable: { sizeBytes: number; sha256: string }
    unpackedBytes?: number
  }[]
}

/** What an install runs on. */
export interface Target {
  service: string
  /** as `process.platform` */
  os: string
  /** as `process.arch` */
  arch: string
}

/** A release as a feed lists it, before anybody has looked at its sums. */
export interface Listing {
  tag: Tag
  draft: boolean
  prerelease: boolean
  notes: string
  publishedAt: string | null
  /** see ReleaseNotes */
  url: string | null
  /** in the order of the feed */
  files: ListedFile[]
}

export interface ListedFile {
  name: string
  url: string
  /** null where the feed does not tell; release.json does then */
  sizeBytes: number | null
  /** lower-case hex, null where the feed does not tell */
  sha256: string | null
}

/** How a release is made: a folder inside an executable, one bundle inside an executable, or a bundle without one. */
export type ReleaseKind = 'app' | 'bundle' | 'script'

const TAG = /^v(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$/

export function isTag(value: unknown): value is Tag {
  return typeof value === 'string' && TAG.test(value)
}

/** The tag, or BatonError invalid_tag that shows what was got (cut to 40 characters). */
export function parseTag(value: unknown): Tag {
  if (isTag(value)) return value
  const got = typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : value === null ? 'null' : typeof value
  throw new BatonError('invalid_tag', `expected a tag of the form vX.Y.Z, got ${got}`)
}

/** Negative where `a` is older than `b`, 0 where equal, positive where newer. Both must be tags. */
export function compareTags(a: Tag, b: Tag): number {
  const [left, right] = [numbers(a), numbers(b)]
  for (let i = 0; i < 3; i++) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0)
    if (difference !== 0) return Math.sign(difference)
  }
  return 0
}

/**
 * What somebody at `current` may take for the latest. An older release that can be used is none while the newest cannot: it would
 * read as `up to date`. One that is newer than `current` is a step forward all the same. `current` null: nothing is known.
 */
export function latestFor({ release, problem }: Newest, current: Tag | null): Release | null {
  const isStep = release !== null && current !== null && compareTags(release.tag, current) > 0
  return problem === null || isStep ? release : null
}

function numbers(tag: Tag): number[] {
  return tag.slice(1).split('.').map(Number)
}

/** a service's name names its system user too, and 31 characters is what every host lets a user have */
export const SERVICE_MAX = 31

export function isService(value: unknown): value is string {
  return typeof value === 'string' && value.length <= SERVICE_MAX && /^[a-z][a-z0-9-]*$/.test(value)
}

/** What can name a service, from the name of a package: `@shop/Web.App` -> `web-app`. */
export function serviceName(text: string): string {
  const name = text
    .replace(/^@[^/]*\//, '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^[^a-z]+|-+$/g, '')
    .slice(0, SERVICE_MAX)
    .replace(/-+$/, '')
  return name === '' ? 'service' : name
}

/** What an executable was built to believe: the root that is compiled into it. */
export interface Anchor {
  /** text of a root.json */
  root: string
  /** when the executable was built, ISO 8601; a clock that is before it is wrong. Null where the build was not told */
  builtAt: string | null
}

/** A feed that is in use. */
export interface OpenFeed extends Feed, AsyncDisposable {
  /** Loads all that asking it can need: afterwards no file of this process's own release is read. */
  load(): Promise<void>
  /** Lets go of idle connections. The feed can be used again afterwards. */
  close(): Promise<void>
}
