// Fetches and strictly parses the two texts of a release, SHA256SUMS and release.json, for all feeds. Fuzzed.
// Checks everything that a feed says before any of it becomes a path, a bound or a command. Refuses what it does not know, with the
// reason.

import { createHash } from 'node:crypto'
import { isService, isTag, type ReleaseManifest } from '../../words/release.ts'
import { barrierIn } from '../../words/which-release.ts'
import { ORDERS } from '../../words/order.ts'
import { isCount, isFileName, isObject, isSha256, isSize, isTime, parsedJson, quoted } from '../../words/untrusted.ts'

export const SUMS_NAME = 'SHA256SUMS'
export const MANIFEST_NAME = 'release.json'
/** of SHA256SUMS, release.json and releases.json */
export const TEXT_MAX_BYTES = 1024 * 1024
/** of notes; longer ones are cut */
export const NOTES_MAX_CHARS = 64 * 1024
export const ASSET_MAX_BYTES = 1024 ** 3
/** of an executable, even if no release.json announces its size */
export const EXECUTABLE_MAX_BYTES = 2 * 1024 ** 3
const ASSETS_MAX = 64
/** a delta is kept in memory until its sum is known */
export const DELTA_MAX_BYTES = 16 * 1024 ** 2
const DELTAS_MAX = 256
const SUMS_MAX_LINES = 1_000

/** The texts as the feed sent them. */
export interface ReleaseTexts {
  /** SHA256SUMS */
  sums: string
  /** release.json; null if the release has none */
  manifest: string | null
}

/** Fetches both texts, or says why this is no release. `fetch` gives null for a missing file. */
export async function readReleaseTexts(
  fetch: (name: string) => Promise<string | null>,
): Promise<ReleaseTexts | { why: string }> {
  const sums = await fetch(SUMS_NAME)
  if (sums === null) return { why: `it has no ${SUMS_NAME}` }
  return { sums, manifest: await fetch(MANIFEST_NAME) }
}

/**
 * The sha256 of bytes, or of a text in UTF-8, lower-case hex. If a text was not UTF-8 on the wire, its sha256 differs from that
 * of its bytes, so the release is refused.
 */
export function sha256Of(text: string | Buffer): string {
  return createHash('sha256').update(text).digest('hex')
}

/** Parses SHA256SUMS as `sha256sum` writes it. Maps each file's name to lower-case hex. Strict: one odd line refuses the whole. */
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

/** Parses release.json. Leaves out unknown members; refuses another `format`. */
export function parseManifest(text: string): { manifest: ReleaseManifest } | { why: string } {
  const refused = (why: string): { why: string } => ({ why: `${MANIFEST_NAME}: ${why}` })
  if (text.length > TEXT_MAX_BYTES) return refused(`expected at most ${TEXT_MAX_BYTES} bytes`)
  const value = parsedJson(text)
  if (!isObject(value)) return refused(`expected a JSON object, got ${quoted(text)}`)
  const { format, service, tag, schema = null, notes = '', publishedAt = null, assets, order } = value
  if (format !== 1) return refused(`expected format 1, got ${quoted(format)}`)
  if (!isService(service)) return refused(`\`service\`: expected a name, got ${quoted(service)}`)
  if (!isTag(tag)) return refused(`\`tag\`: expected vX.Y.Z, got ${quoted(tag)}`)
  if (schema !== null && !isCount(schema))
    return refused(`\`schema\`: expected a number or null, got ${quoted(schema)}`)
  if (typeof notes !== 'string') return refused(`\`notes\`: expected a string, got ${quoted(notes)}`)
  if (publishedAt !== null && !isTime(publishedAt)) {
    return refused(`\`publishedAt\`: expected a time or null, got ${quoted(publishedAt)}`)
  }
  if (!Array.isArray(assets) || assets.length > ASSETS_MAX) return refused(`\`assets\`: expected at most ${ASSETS_MAX}`)
  const known: ReleaseManifest['assets'] = []
  for (const [at, entry] of (assets as unknown[]).entries()) {
    const asset = parseAsset(entry)
    if ('why' in asset) return refused(`asset ${at + 1}: ${asset.why}`)
    if (known.some(({ name }) => name === asset.name)) return refused(`\`${asset.name}\` is listed twice`)
    known.push(asset)
  }
  const { from, security } = value
  // a barrier that is not understood must keep nobody from being stopped
  if (from !== undefined && from !== null && barrierIn(from) === null)
    return refused(`\`from\`: expected a range such as >=1.4.0, got ${quoted(from)}`)
  const deltas = parseDeltas(value['deltas'], known)
  const manifest = { format, service, tag, schema, notes: notes.slice(0, NOTES_MAX_CHARS), publishedAt, assets: known }
  const isKnown = ORDERS.some((one) => one === order)
  const more = {
    ...(typeof from === 'string' ? { from } : {}),
    ...(security === true ? { security } : {}),
    ...(isKnown ? { order } : {}),
    ...(deltas.length > 0 ? { deltas } : {}),
  }
  return { manifest: { ...manifest, ...more } as ReleaseManifest }
}

type Entry = ReleaseManifest['assets'][number]

/** Leaves out what is not valid: an update does without it. */
function parseDeltas(value: unknown, assets: readonly Entry[]): NonNullable<ReleaseManifest['deltas']> {
  const known: NonNullable<ReleaseManifest['deltas']> = []
  for (const entry of Array.isArray(value) ? (value as unknown[]).slice(0, DELTAS_MAX) : []) {
    if (!isObject(entry)) continue
    const { name, from, to, sizeBytes, sha256 } = entry
    if (!isFileName(name) || [...assets, ...known].some((one) => one.name === name)) continue
    if (!isSha256(from) || !isSha256(to) || !isSha256(sha256) || !isSize(sizeBytes, DELTA_MAX_BYTES)) continue
    known.push({ name, from, to, sizeBytes, sha256 })
  }
  return known
}

function parseAsset(value: unknown): Entry | { why: string } {
  if (!isObject(value)) return { why: `expected an object, got ${quoted(value)}` }
  const { name, os, arch, compression, sizeBytes, sha256, executable, unpackedBytes } = value
  if (!isFileName(name)) return { why: `expected a plain file name, got ${quoted(name)}` }
  if (typeof os !== 'string' || typeof arch !== 'string') return { why: '`os` and `arch`: expected strings' }
  if (compression !== 'gzip' && compression !== 'zstd') {
    return { why: `\`compression\`: expected gzip or zstd, got ${quoted(compression)}` }
  }
  if (!isSize(sizeBytes, ASSET_MAX_BYTES))
    return { why: `\`sizeBytes\`: expected a number of bytes, got ${quoted(sizeBytes)}` }
  if (!isSha256(sha256)) return { why: `\`sha256\`: expected 64 hex digits, got ${quoted(sha256)}` }
  if (!isObject(executable)) return { why: `\`executable\`: expected an object, got ${quoted(executable)}` }
  const inner = { sizeBytes: executable['sizeBytes'], sha256: executable['sha256'] }
  if (!isSize(inner.sizeBytes, EXECUTABLE_MAX_BYTES))
    return { why: `\`executable.sizeBytes\`: expected a number of bytes, got ${quoted(inner.sizeBytes)}` }
  if (!isSha256(inner.sha256))
    return { why: `\`executable.sha256\`: expected 64 hex digits, got ${quoted(inner.sha256)}` }
  const whole = inner as { sizeBytes: number; sha256: string }
  const known: Entry = { name, os, arch, compression, sizeBytes, sha256, executable: whole }
  if (unpackedBytes === undefined) return known
  if (!isSize(unpackedBytes, EXECUTABLE_MAX_BYTES))
    return { why: `\`unpackedBytes\`: expected a number of bytes, got ${quoted(unpackedBytes)}` }
  return { ...known, unpackedBytes }
}
