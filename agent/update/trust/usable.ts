// Decides whether a release may be used: returns the release with everything that the later stages need, or exactly why not. Pure;
// fuzzed. A missing checksum is a failure, never a warning. If two sources contradict each other, the release is refused.

import { BatonError } from '../../words/errors.ts'
import {
  ASSET_MAX_BYTES,
  MANIFEST_NAME,
  NOTES_MAX_CHARS,
  SUMS_NAME,
  parseManifest,
  parseSums,
  sha256Of,
} from './release-texts.ts'
import type { ReleaseTexts } from './release-texts.ts'
import { compareTags } from '../../words/release.ts'
import { barrierIn, isPrerelease } from '../../words/which-release.ts'
import type { Delta, ListedFile, Listing, Release, ReleaseManifest, Tag, Target } from '../../words/release.ts'
import type { SignedRelease } from './signed-releases.ts'
import { formatNames } from '../../words/said.ts'
import { quoted } from '../../words/untrusted.ts'

/**
 * Either the release, or exactly why it cannot be used: one clause that follows `v1.1.0 cannot be used: `. `yanked`: the
 * maintainer has signed the yank.
 */
export type Judgement = { release: Release } | { why: string; yanked?: true }

/** The names of this target's assets, the preferred one first: zstd is a quarter smaller than gzip. */
export function assetNames({ service, os, arch }: Target): { name: string; compression: 'zstd' | 'gzip' }[] {
  return [
    { name: `${service}-${os}-${arch}.zst`, compression: 'zstd' },
    { name: `${service}-${os}-${arch}.gz`, compression: 'gzip' },
  ]
}

/** Why the listing alone rules a release out; null if its SHA256SUMS is worth fetching. */
export function ruledOut(listing: Listing, target: Target): string | null {
  if (listing.draft) return 'it is a draft'
  if (listing.prerelease && !isPrerelease(listing.tag)) return 'it is a prerelease'
  const names = listing.files.map(({ name }) => name)
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice !== undefined) return `it lists ${quoted(twice)} twice`
  const wanted = assetNames(target).map(({ name }) => name)
  if (!wanted.some((name) => names.includes(name))) {
    return `it has no asset for ${target.os}-${target.arch} (\`${wanted.join('` or `')}\`); it has ${filesIn(names)}`
  }
  if (!names.includes(SUMS_NAME)) return `it has no ${SUMS_NAME}`
  return null
}

/** Decides about an unsigned release. Call `ruledOut` first: it needs no texts. */
export function assess(listing: Listing, texts: ReleaseTexts, target: Target): Judgement {
  const sums = parseSums(texts.sums)
  if ('why' in sums) return sums
  const out = ruledOut(listing, target)
  if (out !== null) return { why: out }
  const manifest = trustedManifest(listing, texts, sums.sums, target)
  if (manifest !== null && 'why' in manifest) return manifest
  const announced = manifest?.manifest ?? null

  for (const { name, compression } of assetNames(target)) {
    const file = listing.files.find((entry) => entry.name === name)
    if (file === undefined) continue
    const sha256 = sums.sums.get(name)
    if (sha256 === undefined) return { why: `${SUMS_NAME} has no line for \`${name}\`` }
    if (file.sha256 !== null && file.sha256 !== sha256) {
      return { why: disagree('sha256', name, SUMS_NAME, short(sha256), "the feed's digest", short(file.sha256)) }
    }
    const entry = announced?.assets.find((asset) => asset.name === name) ?? null
    if (announced !== null && entry === null) return { why: `${MANIFEST_NAME} does not list \`${name}\`` }
    if (entry !== null && entry.sha256 !== sha256) {
      return { why: disagree('sha256', name, SUMS_NAME, short(sha256), MANIFEST_NAME, short(entry.sha256)) }
    }
    if (entry !== null && entry.compression !== compression) {
      return { why: `${MANIFEST_NAME} lists \`${name}\` as ${entry.compression}` }
    }
    if (entry !== null && file.sizeBytes !== null && entry.sizeBytes !== file.sizeBytes) {
      return { why: disagree('size', name, MANIFEST_NAME, entry.sizeBytes, 'the feed', file.sizeBytes) }
    }
    const sizeBytes = file.sizeBytes ?? entry?.sizeBytes ?? null
    if (sizeBytes === null) return { why: `the size of \`${name}\` is not known` }
    if (!(sizeBytes >= 1 && sizeBytes <= ASSET_MAX_BYTES)) {
      return { why: `size of \`${name}\`: expected 1 to ${ASSET_MAX_BYTES} bytes, got ${sizeBytes}` }
    }
    const unpacked = entry?.unpackedBytes === undefined ? {} : { unpackedBytes: entry.unpackedBytes }
    return {
      release: {
        tag: listing.tag,
        notes: (listing.notes || (announced?.notes ?? '')).slice(0, NOTES_MAX_CHARS),
        publishedAt: announced?.publishedAt ?? listing.publishedAt,
        url: listing.url,
        asset: {
          name,
          url: file.url,
          sizeBytes,
          sha256,
          compression,
          executable: entry?.executable ?? null,
          ...unpacked,
        },
        deltas: deltasOf(listing, announced, entry),
        schema: announced?.schema ?? null,
        ...(announced?.order === undefined ? {} : { order: announced.order }),
        ...barrierOf(announced),
        image: null,
      },
    }
  }
  return { why: `it has no asset for ${target.os}-${target.arch}` }
}

/**
 * Decides about a signed release. `text`: its release.json as the feed has it, which holds everything that counts. Ignores everything
 * else that the feed says.
 */
export function assessSigned(
  signed: SignedRelease,
  text: string,
  target: Target,
  urlOf: (name: string) => string,
): Judgement {
  const { tag, sha256, image, rollout } = signed
  const got = sha256Of(text)
  if (got !== sha256)
    return { why: `sha256 of ${MANIFEST_NAME}: expected ${short(sha256)} (as signed), got ${short(got)}` }
  if (signed.service !== target.service) {
    return { why: `it is signed as a release of ${quoted(signed.service)}, not of \`${target.service}\`` }
  }
  const parsed = parseManifest(text)
  if ('why' in parsed) return parsed
  const { assets, deltas = [] } = parsed.manifest
  const sums = [{ name: MANIFEST_NAME, sha256 }, ...assets].map((file) => `${file.sha256}  ${file.name}\n`).join('')
  const files = [SUMS_NAME, MANIFEST_NAME].map((name): ListedFile => ({ name, url: '', sizeBytes: null, sha256: null }))
  for (const { name, sizeBytes, sha256 } of [...assets, ...deltas])
    files.push({ name, url: urlOf(name), sizeBytes, sha256 })
  const listing: Listing = { tag, draft: false, prerelease: false, notes: '', publishedAt: null, url: null, files }
  const verdict = assess(listing, { sums, manifest: text }, target)
  return 'why' in verdict
    ? verdict
    : {
        release: {
          ...verdict.release,
          image,
          ...(rollout === null ? {} : { rollout }),
          // whoever can write to an unsigned feed must not decide that nobody waits
          ...(parsed.manifest.security === true ? { security: true } : {}),
        },
      }
}

/** Makes a listing for a feed that lists only tags: it has the files that the texts name, at the addresses of `urlOf`. */
export function listingOf(
  { tag, draft, prerelease }: { tag: Tag; draft: boolean; prerelease: boolean },
  texts: ReleaseTexts,
  urlOf: (name: string) => string,
): Listing {
  const sums = parseSums(texts.sums)
  const manifest = texts.manifest === null ? null : parseManifest(texts.manifest)
  const named = new Set([
    SUMS_NAME,
    ...('why' in sums ? [] : sums.sums.keys()),
    ...(manifest === null || 'why' in manifest ? [] : manifest.manifest.assets.map(({ name }) => name)),
  ])
  const files = [...named].map((name) => ({ name, url: urlOf(name), sizeBytes: null, sha256: null }))
  return { tag, draft, prerelease, notes: '', publishedAt: null, url: null, files }
}

/** Newest version first, whatever the order of the feed; each tag once. */
export function newestFirst<Listed extends { tag: Tag }>(listings: readonly Listed[]): Listed[] {
  const seen = new Set<Tag>()
  return listings.toSorted((a, b) => compareTags(b.tag, a.tag)).filter(({ tag }) => !seen.has(tag) && seen.add(tag))
}

/** The error for a caller who named the tag: release_unusable. */
export function unusable(tag: Tag, why: string): BatonError {
  return new BatonError('release_unusable', `${tag} cannot be used: ${why}`)
}

/** The release of a caller who named the tag. Throws release_unusable. */
export function usableOf(tag: Tag, verdict: Judgement): Release {
  if ('why' in verdict) throw unusable(tag, verdict.why)
  return verdict.release
}

function barrierOf(manifest: ReleaseManifest | null): Pick<Release, 'from'> {
  const from = barrierIn(manifest?.from)
  return from === null ? {} : { from }
}

/** Those that make the executable of this asset, and are smaller. */
function deltasOf(listing: Listing, manifest: ReleaseManifest | null, asset: ReleaseManifest['assets'][number] | null) {
  return (manifest?.deltas ?? []).flatMap(({ name, from, to, sizeBytes, sha256 }): Delta[] => {
    const file = listing.files.find((one) => one.name === name)
    if (file === undefined || asset === null || to !== asset.executable.sha256) return []
    return sizeBytes < asset.sizeBytes ? [{ name, url: file.url, sizeBytes, sha256, from }] : []
  })
}

function trustedManifest(
  listing: Listing,
  { manifest: text }: ReleaseTexts,
  sums: ReadonlyMap<string, string>,
  target: Target,
): { manifest: ReleaseManifest } | { why: string } | null {
  if (text === null) {
    // SHA256SUMS has its sum, so the file was removed
    return sums.has(MANIFEST_NAME) ? { why: `${SUMS_NAME} lists ${MANIFEST_NAME}, which is missing` } : null
  }
  const sum = sums.get(MANIFEST_NAME)
  if (sum === undefined) return { why: `${SUMS_NAME} has no line for ${MANIFEST_NAME}` }
  const got = sha256Of(text)
  if (got !== sum) return { why: `sha256 of ${MANIFEST_NAME}: expected ${short(sum)}, got ${short(got)}` }
  const parsed = parseManifest(text)
  if ('why' in parsed) return parsed
  const { service, tag } = parsed.manifest
  if (service !== target.service) return { why: `it is a release of \`${service}\`, not of \`${target.service}\`` }
  if (tag !== listing.tag) return { why: `${MANIFEST_NAME} is for ${tag}, not for ${listing.tag}` }
  return parsed
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

function filesIn(names: readonly string[]): string {
  return names.length === 0 ? 'no files at all' : formatNames(names.map(quoted), 6)
}
