// Defines a release (its tag, its order among others, its asset) and a feed. Pure; fuzzed.
// `trust/` decides whether a release may be used.

import { BatonError } from './errors.ts'
import type { Beyond, ReleaseNotes, TrustReport } from './state.ts'
import type { RolloutStep } from './schedule.ts'
import type { Order } from './order.ts'
import type { UnitWishes } from './unit.ts'

/**
 * `vX.Y.Z`, no leading zeros, each number at most nine digits; or a prerelease of it, `vX.Y.Z-beta.1`: one to three identifiers as of
 * semver, without hyphens. `-deploy` and `-holder` are the ends of the tags of two images.
 */
export type Tag = string

/** One compressed executable of a release. Sizes in bytes, sha256 in lower-case hex. */
export interface Asset {
  name: string
  url: string
  sizeBytes: number
  sha256: string
  compression: 'gzip' | 'zstd' | 'none'
  /** the executable inside; null if the release has no release.json */
  executable: { sizeBytes: number; sha256: string } | null
  /** bytes that the executable writes beside itself before its first start, on a disk with blocks of 4 KiB; absent: none */
  unpackedBytes?: number
}

/** Makes the executable of a release from another one, whose sha256 is `from`. No release needs it. */
export interface Delta extends Pick<Asset, 'name' | 'url' | 'sizeBytes' | 'sha256'> {
  from: string
}

/** A release that can be installed on this machine. It holds everything that the later stages need. */
export interface Release extends ReleaseNotes {
  /** the whole executable; every release has it */
  asset: Asset
  /** other ways to get the same executable, smaller than the asset */
  deltas: readonly Delta[]
  /** schema number of the state that this release writes (`PRAGMA user_version`); null if it does not say */
  schema: number | null
  /** how it replaces another; absent if it does not say */
  order?: Order
  /** steps of a staged release: from when on which share of the hosts installs it by itself; absent: all at once. Signed feeds only */
  rollout?: RolloutStep[]
  /** the oldest release from which a host may move to it; absent: from any */
  from?: Tag
  /** it mends a hole, so no minimum age keeps it: signed feeds only */
  security?: true
  /** its container image, if the feed is signed and the maintainer has named the image: pull `repository@digest` */
  image: { repository: string; digest: string } | null
}

/** Says whether to skip a usable release. The feed asks from the newest release on, until the answer is no. */
export interface Skip {
  (release: Release): boolean
  /** whether a release is skipped unseen, at no cost */
  isOut?(tag: Tag): boolean
  /** what this host runs: a release that takes hosts from a newer one only is passed over. Absent: from anywhere */
  from?: Tag | null
}

/** A feed's answer to "which release is the newest?" */
export interface Newest {
  /** the newest usable release; null: none */
  release: Release | null
  /**
   * Why a newer published release cannot be used (release_unusable), or null if `release` is the newest. A feed that withholds
   * a release looks like this, so an install that sees a problem is never `up to date`.
   */
  problem: BatonError | null
  /** the newest release that comes only after `release`, which then is the way to it; null or absent: there is none */
  beyond?: Beyond | null
}

/**
 * Where releases are found. Implementations: `feed/signed-feed.ts`; for a build without a root, `feed/github-feed.ts` and `feed/static-feed.ts`.
 */
export interface Feed {
  /** for messages and receipts: `github:owner/name`, `https://…/`, `/folder` */
  readonly description: string
  /**
   * The newest usable release: not a draft, not a prerelease, not yanked, with this install's asset and its checksum, and not
   * one that `skip` rejects.
   * Throws BatonError check_failed, rate_limited.
   */
  latest(skip: Skip, signal?: AbortSignal): Promise<Newest>
  /** Notes of the releases newer than `after` and older than `before`, newest first, at most ten. Throws as `latest` does. */
  notes(range: { after: Tag; before: Tag }, signal?: AbortSignal): Promise<ReleaseNotes[]>
  /** What this process already knows about the feed's signatures. Makes no request. */
  trust(): Promise<TrustReport>
  /**
   * The release with this tag. Throws release_not_found, release_unusable (with the exact reason), check_failed, rate_limited.
   */
  byTag(tag: Tag, signal?: AbortSignal): Promise<Release>
  /**
   * The asset as it is stored, from byte `from` on. Starts at 0 if the source cannot or will not resume: see `Bytes.from`.
   * `validator` is the one from the first answer. Throws BatonError download_failed if another try is useless, and any other
   * error if it may help.
   */
  bytes(asset: Pick<Asset, 'url'>, from: number, validator: string | null, signal: AbortSignal): Promise<Bytes>
  /**
   * The last bytes were not the published ones: their source is named and left out until `close`. False: there is no other one, as
   * there is none without this.
   */
  leaveOut?(): Promise<boolean>
  /** The files of this release may be asked for, though this feed has not been asked for the release. Not needed without this. */
  expect?(release: Pick<Release, 'asset' | 'deltas' | 'tag'>): void
  /** if there are several, each alone; asked for what `latest` and `byTag` have named */
  readonly sources?: readonly FeedSource[]
}

/** A place that the bytes may come from. */
export interface FeedSource {
  /** for messages */
  name: string
  bytes: Feed['bytes']
}

/** An answer with bytes of an asset. The caller reads the stream to its end or aborts. */
export interface Bytes {
  stream: AsyncIterable<Uint8Array>
  /** where in the asset the stream begins */
  from: number
  /** size of the whole asset according to this answer; null if the answer has none */
  totalBytes: number | null
  /** an ETag or a date; the next request sends it, so that it does not continue in a different file */
  validator: string | null
}

/** Content of `release.json`. */
export interface ReleaseManifest {
  format: 1
  service: string
  tag: Tag
  schema: number | null
  notes: string
  publishedAt: string | null
  /** `>=1.4.0`: the oldest release from which a host may move to it; absent: from any */
  from?: string
  /** it mends a hole */
  security?: true
  /** absent: not built by Baton, or the reference service */
  order?: Order
  /** only for an author's application, as are the next three */
  kind?: ReleaseKind
  healthPath?: string | null
  port?: number
  /** for the image's configuration; absent: '' */
  basePath?: string
  /** what it asks of its unit, for people to see beforehand; absent: nothing */
  unit?: UnitWishes
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
  /** make the executable `to` from the executable `from`, both by sha256; absent: none. `sizeBytes` and `sha256` are the delta's own */
  deltas?: { name: string; from: string; to: string; sizeBytes: number; sha256: string }[]
  /** files for people, such as what an executable holds (`….cdx.json`). No install reads them */
  documents?: { name: string; sizeBytes: number; sha256: string }[]
}

/** The platform that an install runs on. */
export interface Target {
  service: string
  /** as `process.platform` */
  os: string
  /** as `process.arch` */
  arch: string
}

/** A release as a feed lists it, before its checksums have been looked at. */
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
  /** null if the feed does not list it; release.json has it then */
  sizeBytes: number | null
  /** lower-case hex; null if the feed does not list it */
  sha256: string | null
}

/** How a release is made: a folder inside an executable, one bundle inside an executable, or a bundle without one. */
export type ReleaseKind = 'app' | 'bundle' | 'script'

const NUMBER = '(0|[1-9][0-9]{0,8})'
const IDENTIFIER = '(0|[1-9][0-9]{0,8}|[0-9]{0,8}[A-Za-z][0-9A-Za-z]{0,15})'

export const TAG = new RegExp(
  `^v${NUMBER}\\.${NUMBER}\\.${NUMBER}(-(?!(deploy|holder)$)${IDENTIFIER}(\\.${IDENTIFIER}){0,2})?$`,
)

export function isTag(value: unknown): value is Tag {
  return typeof value === 'string' && TAG.test(value)
}

/** Returns the tag, or throws BatonError invalid_tag that shows the value (cut to 40 characters). */
export function parseTag(value: unknown): Tag {
  if (isTag(value)) return value
  const got =
    typeof value === 'string'
      ? JSON.stringify(value.slice(0, 40))
      : value === null
        ? 'null'
        : `a value of type ${typeof value}`
  throw new BatonError('invalid_tag', `expected a tag of the form vX.Y.Z, got ${got}`)
}

/** Negative if `a` is older than `b`, 0 if equal, positive if newer, as semver orders them (11). Both must be tags. */
export function compareTags(a: Tag, b: Tag): number {
  const [left, right] = [identifiers(a), identifiers(b)]
  const at = [...left, ...right].findIndex((_, i) => left[i] !== right[i])
  const [one, other] = [left[at], right[at]]
  if (one === other) return 0
  // a prerelease is older than its release; of two prereleases, the one with fewer identifiers
  if (!one || !other) return !one === (at === NUMBERS) ? 1 : -1
  const isWord = /\D/.test(one)
  if (isWord !== /\D/.test(other)) return isWord ? 1 : -1
  return (isWord ? one > other : Number(one) > Number(other)) ? 1 : -1
}

/** what stands before a prerelease's identifiers */
const NUMBERS = 3

/**
 * The release that an install at `current` may treat as the latest, or null. If the newest release cannot be used, an older one
 * does not count: the install would report `up to date`. It does count if it is newer than `current`: it is still a step
 * forward. `current` null: the running release is unknown.
 */
export function latestFor({ release, problem }: Newest, current: Tag | null): Release | null {
  const isStep = release !== null && current !== null && compareTags(release.tag, current) > 0
  return problem === null || isStep ? release : null
}

/** the three numbers, then what is behind the hyphen */
function identifiers(tag: Tag): string[] {
  return tag.slice(1).split(/[.-]/)
}

/** A service's name is also the name of its system user. Every host accepts user names of up to 31 characters. */
export const SERVICE_MAX = 31

/** ends of the names of units and folders that an install of `<service>` makes: a service of such a name would take another's */
const TAKEN = /-(rescue|trial)$/

export function isService(value: unknown): value is string {
  return (
    typeof value === 'string' && value.length <= SERVICE_MAX && /^[a-z][a-z0-9-]*$/.test(value) && !TAKEN.test(value)
  )
}

/** Makes a service's name from the name of a package: `@shop/Web.App` -> `web-app`. */
export function serviceName(text: string): string {
  const name = text
    .replace(/^@[^/]*\//, '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^[^a-z]+|-+$/g, '')
    .slice(0, SERVICE_MAX)
    .replace(TAKEN, '')
    .replace(/-+$/, '')
  return name === '' ? 'service' : name
}

/** What an executable trusts: the root that was compiled into it. */
export interface Anchor {
  /** text of a root.json */
  root: string
  /** when the executable was built, ISO 8601; a clock that shows an earlier time is wrong. Null if the build did not know it */
  builtAt: string | null
}

/** A feed that is in use. */
export interface OpenFeed extends Feed, AsyncDisposable {
  /** Loads all code that a question to the feed can need. Afterwards it reads no file of this process's release. */
  load(): Promise<void>
  /** Closes idle connections. The feed can be used again afterwards. */
  close(): Promise<void>
}
