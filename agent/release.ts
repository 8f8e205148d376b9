// What a release is: its tag, its order among others, its assets, and which one is "latest". Pure; fuzzed.
// Contract 4: a missing checksum is a failure, never a warning. Everything that a feed says is checked here, before any of it
// becomes a path, a bound or a command; what is not understood is refused, with the reason.

import { BatonError } from './errors.ts'

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
}

/** A release that can be installed on this machine: everything that the later stages need is here. */
export interface Release {
  tag: Tag
  notes: string
  /** ISO 8601 or null where the feed does not tell */
  publishedAt: string | null
  asset: Asset
  /** schema number of the state that this release writes (`PRAGMA user_version`); null where it does not tell */
  schema: number | null
}

/** Where releases are found. Implementations: `feed/github.ts`, `feed/static.ts`. */
export interface Feed {
  /** for messages and receipts: `github:owner/name`, `https://…/`, `/folder` */
  readonly description: string
  /**
   * The newest usable release: not a draft, not a prerelease, with our asset and its checksum, not in `skip`.
   * Null where the feed has none. Throws BatonError check_failed, rate_limited.
   */
  latest(skip: ReadonlySet<Tag>, signal?: AbortSignal): Promise<Release | null>
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

/** What `release.json` holds (contract 4). */
export interface ReleaseManifest {
  format: 1
  service: string
  tag: Tag
  schema: number | null
  notes: string
  publishedAt: string | null
  assets: {
    name: string
    os: string
    arch: string
    compression: 'gzip' | 'zstd'
    sizeBytes: number
    sha256: string
    executable: { sizeBytes: number; sha256: string }
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

/** What came with the release: the texts themselves, as the feed sent them. */
export interface Papers {
  /** text of SHA256SUMS */
  sums: string
  /** text of release.json, null where the release has none */
  manifest: string | null
  /** sha256 of that text, lower-case hex */
  manifestSha256: string | null
}

/** Either the release, or exactly why it cannot be used: one clause that follows `v1.1.0 cannot be used: `. */
export type Verdict = { release: Release } | { why: string }

export const SUMS_NAME = 'SHA256SUMS'
export const MANIFEST_NAME = 'release.json'
/** of SHA256SUMS, of release.json and of releases.json */
export const PAPER_MAX_BYTES = 1024 * 1024
/** of notes; what is longer is cut */
export const NOTES_MAX_CHARS = 64 * 1024
export const ASSET_MAX_BYTES = 1024 ** 3
/** of an executable, also where no release.json announces its size */
export const EXECUTABLE_MAX_BYTES = 2 * 1024 ** 3
const ASSETS_MAX = 64
const SUMS_MAX_LINES = 1_000

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

function numbers(tag: Tag): number[] {
  return tag.slice(1).split('.').map(Number)
}

// ---- may it be used ----------------------------------------------------------------------------------------------

/** What the assets of this target are called, the preferred one first: zstd is a quarter smaller than gzip. */
export function assetNames({ service, os, arch }: Target): { name: string; compression: 'zstd' | 'gzip' }[] {
  return [
    { name: `${service}-${os}-${arch}.zst`, compression: 'zstd' },
    { name: `${service}-${os}-${arch}.gz`, compression: 'gzip' },
  ]
}

/** Why the listing alone rules a release out; null where its sums are worth fetching. */
export function ruledOut(listing: Listing, target: Target): string | null {
  if (listing.draft) return 'it is a draft'
  if (listing.prerelease) return 'it is a prerelease'
  const names = listing.files.map(({ name }) => name)
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice !== undefined) return `it lists ${quoted(twice)} twice`
  const wanted = assetNames(target).map(({ name }) => name)
  if (!wanted.some((name) => names.includes(name))) {
    return `it has no asset for ${target.os}-${target.arch}: expected \`${wanted.join('` or `')}\`, got ${listed(names)}`
  }
  if (!names.includes(SUMS_NAME)) return `it has no ${SUMS_NAME}`
  return null
}

/** The decision. `ruledOut` comes first: it needs no papers. */
export function assess(listing: Listing, papers: Papers, target: Target): Verdict {
  const out = ruledOut(listing, target)
  if (out !== null) return { why: out }
  const sums = parseSums(papers.sums)
  if ('why' in sums) return sums
  const manifest = trustedManifest(listing, papers, sums.sums, target)
  if (manifest !== null && 'why' in manifest) return manifest
  const announced = manifest?.manifest ?? null

  for (const { name, compression } of assetNames(target)) {
    const file = listing.files.find((entry) => entry.name === name)
    if (file === undefined) continue
    const sha256 = sums.sums.get(name)
    if (sha256 === undefined) return { why: `${SUMS_NAME} has no line for \`${name}\`` }
    if (file.sha256 !== null && file.sha256 !== sha256) {
      return { why: disagree('sha256', name, SUMS_NAME, short(sha256), 'the digest of the feed', short(file.sha256)) }
    }
    const entry = announced?.assets.find((asset) => asset.name === name) ?? null
    if (announced !== null && entry === null) return { why: `${MANIFEST_NAME} does not name \`${name}\`` }
    if (entry !== null && entry.sha256 !== sha256) {
      return { why: disagree('sha256', name, SUMS_NAME, short(sha256), MANIFEST_NAME, short(entry.sha256)) }
    }
    if (entry !== null && file.sizeBytes !== null && entry.sizeBytes !== file.sizeBytes) {
      return { why: disagree('size', name, MANIFEST_NAME, entry.sizeBytes, 'the feed', file.sizeBytes) }
    }
    const sizeBytes = file.sizeBytes ?? entry?.sizeBytes ?? null
    if (sizeBytes === null) return { why: `nothing announces the size of \`${name}\`` }
    if (!(sizeBytes >= 1 && sizeBytes <= ASSET_MAX_BYTES)) {
      return { why: `size of \`${name}\`: expected 1 to ${ASSET_MAX_BYTES} bytes, got ${sizeBytes}` }
    }
    return {
      release: {
        tag: listing.tag,
        notes: (listing.notes || (announced?.notes ?? '')).slice(0, NOTES_MAX_CHARS),
        publishedAt: announced?.publishedAt ?? listing.publishedAt,
        asset: { name, url: file.url, sizeBytes, sha256, compression, executable: entry?.executable ?? null },
        schema: announced?.schema ?? null,
      },
    }
  }
  return { why: `it has no asset for ${target.os}-${target.arch}` }
}

/** Newest version first, whatever the order of the feed; each tag once. */
export function newestFirst(listings: readonly Listing[]): Listing[] {
  const seen = new Set<Tag>()
  return listings.toSorted((a, b) => compareTags(b.tag, a.tag)).filter(({ tag }) => !seen.has(tag) && seen.add(tag))
}

/** release_unusable, for somebody who named the tag. */
export function unusable(tag: Tag, why: string): BatonError {
  return new BatonError('release_unusable', `${tag} cannot be used: ${why}`)
}

function trustedManifest(
  listing: Listing,
  { manifest: text, manifestSha256 }: Papers,
  sums: ReadonlyMap<string, string>,
  target: Target,
): { manifest: ReleaseManifest } | { why: string } | null {
  if (text === null) {
    // a release.json that was summed and is gone was taken away
    return sums.has(MANIFEST_NAME) ? { why: `${SUMS_NAME} names ${MANIFEST_NAME}, which is missing` } : null
  }
  const sum = sums.get(MANIFEST_NAME)
  if (sum === undefined) return { why: `${SUMS_NAME} has no line for ${MANIFEST_NAME}` }
  if (sum !== manifestSha256) {
    return { why: `sha256 of ${MANIFEST_NAME}: expected ${short(sum)}, got ${short(manifestSha256 ?? '')}` }
  }
  const parsed = parseManifest(text)
  if ('why' in parsed) return parsed
  const { service, tag } = parsed.manifest
  if (service !== target.service) return { why: `it is a release of \`${service}\`, expected \`${target.service}\`` }
  if (tag !== listing.tag) return { why: `${MANIFEST_NAME} is of ${tag}, expected ${listing.tag}` }
  return parsed
}

// ---- the papers --------------------------------------------------------------------------------------------------

/** A file name and nothing else: no separator, no `..`, no NUL, not hidden, nothing that a shell or a terminal acts upon. */
export function isFileName(value: unknown): value is string {
  return typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/.test(value) && !value.includes('..')
}

export function isService(value: unknown): value is string {
  return typeof value === 'string' && /^[a-z][a-z0-9-]{0,31}$/.test(value)
}

/** SHA256SUMS as `sha256sum` writes it: each file's lower-case hex by its name. Strict: one odd line and none of it counts. */
export function parseSums(text: string): { sums: ReadonlyMap<string, string> } | { why: string } {
  const sums = new Map<string, string>()
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  if (lines.length > SUMS_MAX_LINES) return { why: `${SUMS_NAME} has more than ${SUMS_MAX_LINES} lines` }
  for (const [at, line] of lines.entries()) {
    const [, sha256, name] = /^([0-9a-f]{64}) [ *](.+)$/s.exec(line) ?? []
    if (sha256 === undefined)
      return { why: `${SUMS_NAME} line ${at + 1}: expected \`<sha256>  <file>\`, got ${quoted(line)}` }
    if (!isFileName(name))
      return { why: `${SUMS_NAME} line ${at + 1}: expected a plain file name, got ${quoted(name ?? '')}` }
    if ((sums.get(name) ?? sha256) !== sha256) return { why: `${SUMS_NAME} has two different sums for \`${name}\`` }
    sums.set(name, sha256)
  }
  return sums.size > 0 ? { sums } : { why: `${SUMS_NAME} is empty` }
}

/** release.json. Members it does not know are left out, another `format` is refused. */
export function parseManifest(text: string): { manifest: ReleaseManifest } | { why: string } {
  const refused = (why: string): { why: string } => ({ why: `${MANIFEST_NAME}: ${why}` })
  if (text.length > PAPER_MAX_BYTES) return refused(`expected at most ${PAPER_MAX_BYTES} bytes`)
  const value = parsedJson(text)
  if (!isObject(value)) return refused(`expected a JSON object, got ${quoted(text)}`)
  const { format, service, tag, schema = null, notes = '', publishedAt = null, assets } = value
  if (format !== 1) return refused(`expected format 1, got ${quoted(format)}`)
  if (!isService(service)) return refused(`\`service\`: expected a name, got ${quoted(service)}`)
  if (!isTag(tag)) return refused(`\`tag\`: expected vX.Y.Z, got ${quoted(tag)}`)
  if (schema !== null && !isCount(schema))
    return refused(`\`schema\`: expected a number or null, got ${quoted(schema)}`)
  if (typeof notes !== 'string') return refused(`\`notes\`: expected a text, got ${quoted(notes)}`)
  if (publishedAt !== null && !isTime(publishedAt)) {
    return refused(`\`publishedAt\`: expected a time or null, got ${quoted(publishedAt)}`)
  }
  if (!Array.isArray(assets) || assets.length > ASSETS_MAX) return refused(`\`assets\`: expected at most ${ASSETS_MAX}`)
  const known: ReleaseManifest['assets'] = []
  for (const [at, entry] of (assets as unknown[]).entries()) {
    const asset = parseAsset(entry)
    if ('why' in asset) return refused(`asset ${at + 1}: ${asset.why}`)
    if (known.some(({ name }) => name === asset.name)) return refused(`\`${asset.name}\` is there twice`)
    known.push(asset)
  }
  const manifest = { format, service, tag, schema, notes: notes.slice(0, NOTES_MAX_CHARS), publishedAt, assets: known }
  return { manifest: manifest as ReleaseManifest }
}

function parseAsset(value: unknown): ReleaseManifest['assets'][number] | { why: string } {
  if (!isObject(value)) return { why: `expected an object, got ${quoted(value)}` }
  const { name, os, arch, compression, sizeBytes, sha256, executable } = value
  if (!isFileName(name)) return { why: `expected a plain file name, got ${quoted(name)}` }
  if (typeof os !== 'string' || typeof arch !== 'string') return { why: '`os` and `arch`: expected texts' }
  if (compression !== 'gzip' && compression !== 'zstd') {
    return { why: `\`compression\`: expected gzip or zstd, got ${quoted(compression)}` }
  }
  if (!isSize(sizeBytes, ASSET_MAX_BYTES)) return { why: `\`sizeBytes\`: got ${quoted(sizeBytes)}` }
  if (!isSha256(sha256)) return { why: `\`sha256\`: got ${quoted(sha256)}` }
  if (!isObject(executable)) return { why: `\`executable\`: got ${quoted(executable)}` }
  const inner = { sizeBytes: executable['sizeBytes'], sha256: executable['sha256'] }
  if (!isSize(inner.sizeBytes, EXECUTABLE_MAX_BYTES))
    return { why: `executable's \`sizeBytes\`: got ${quoted(inner.sizeBytes)}` }
  if (!isSha256(inner.sha256)) return { why: `executable's \`sha256\`: got ${quoted(inner.sha256)}` }
  return { name, os, arch, compression, sizeBytes, sha256, executable: inner as { sizeBytes: number; sha256: string } }
}

/** The value, or undefined where the text is not JSON. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isSha256(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)
}

/** ISO 8601 with a date and a time, as releases carry it */
export function isTime(value: unknown): value is string {
  return (
    typeof value === 'string' &&
    /^\d{4}-\d\d-\d\dT[\d:.]{5,15}(Z|[+-]\d\d:\d\d)$/.test(value) &&
    !Number.isNaN(Date.parse(value))
  )
}

/** What a stranger wrote, fit for a message: JSON, at most 60 characters, no control characters. */
export function quoted(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value)
  const plain = text.replaceAll(/[^\x20-\x7e]/g, '?')
  return plain.length > 60 ? `${plain.slice(0, 60)}…` : plain
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isSize(value: unknown, max: number): value is number {
  return isCount(value) && value >= 1 && value <= max
}

function disagree(
  what: string,
  name: string,
  one: string,
  a: string | number,
  other: string,
  b: string | number,
): string {
  return `${what} of \`${name}\`: ${one} says ${a}, ${other} says ${b}`
}

function short(sha256: string): string {
  return `${sha256.slice(0, 12)}…`
}

function listed(names: readonly string[]): string {
  if (names.length === 0) return 'no files at all'
  const shown = names.slice(0, 6).map((name) => quoted(name))
  return names.length > shown.length ? `${shown.join(', ')} and ${names.length - shown.length} more` : shown.join(', ')
}
