// Turns an executable into a release folder: compressed assets, release.json, install.sh, SHA256SUMS; then updates releases.json.
// Must hold: a release appears in its folder whole or not at all. Without `force`, a different release never replaces one that
// is there. Assets that other machines built for the same tag stay part of the release.

import { existsSync } from 'node:fs'
import { link, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import {
  BatonError,
  compareTags,
  isPrerelease,
  isTag,
  parsedJson,
  parseTag,
  type ReleaseManifest,
} from '../../agent/words.ts'
import { type DeltaEntry, type DeltasFrom, writeDeltas } from './deltas.ts'
import { PROJECT } from './place.ts'
import { compress, type Effort, formatSums, measure } from './pack.ts'
import { formatBytes, type ProgressReport } from '../lib/progress.ts'
import { billName } from './sbom.ts'
import { temporaryDirectory } from './temporary.ts'

export interface PublishOptions {
  /** path of the executable, or of the script */
  executable: string
  tag: string
  /** folder of the release folders and releases.json */
  out: string
  service: string
  /** bytes that the executable unpacks beside itself before its first start; absent: none */
  unpackedBytes?: number | undefined
  /** feed in which installs of this release look for the next one; null leaves install.sh as it is */
  feed: string | null
  notes: string
  effort: Effort
  /** version of the database schema that this release writes; null if unknown */
  schema: number | null
  /** ISO 8601, UTC */
  publishedAt: string | null
  /** replace a different release with the same tag */
  force: boolean
  progress: ProgressReport
  /** the list of what the executable holds: see sbom.ts; absent: none */
  bill?: string
  /** the releases from which deltas are made; absent: none are */
  deltas?: DeltasFrom | null
  /** further fields of release.json, for images and installs */
  about?: Pick<ReleaseManifest, 'kind' | 'healthPath' | 'port' | 'basePath' | 'order' | 'unit' | 'from' | 'security'>
}

export interface PublishedRelease {
  tag: string
  service: string
  /** absolute */
  directory: string
  executable: { sizeBytes: number; sha256: string }
  files: { name: string; sizeBytes: number; sha256: string }[]
  /** false if the folder already held the same release */
  changed: boolean
}

export const RELEASES = 'releases.json'

export async function publishRelease(options: PublishOptions): Promise<PublishedRelease> {
  const { executable, tag, service, progress } = options
  const directory = join(options.out, parseTag(tag))
  const asset = assetName(service)
  await using work = await temporaryDirectory(options.out)

  const inside = await measure(executable)
  const release = join(work.path, 'release')
  await mkdir(release)
  const { zst, gz } = await compressed(options, join(release, asset), inside.sizeBytes)

  const to = { executable, tag, service, asset, assetBytes: zst.sizeBytes, folder: release, work: work.path, progress }
  const newDeltas = options.deltas ? await writeDeltas(options.deltas, to) : []

  progress.stage('write', directory)
  const { unpackedBytes } = options
  const unpacked = unpackedBytes === undefined ? {} : { unpackedBytes }
  const platform = { os: process.platform, arch: process.arch, executable: inside, ...unpacked }
  const own: ReleaseManifest['assets'] = [
    { name: `${asset}.gz`, compression: 'gzip', ...platform, ...gz },
    { name: `${asset}.zst`, compression: 'zstd', ...platform, ...zst },
  ]
  const assets = [...own, ...(await takeOtherPlatforms(directory, release, own, options))].toSorted(byName)
  const kept = await keepDeltas(directory, release, assets, newDeltas)
  // in the same order whichever platform was built last
  const deltas = [...newDeltas, ...kept].toSorted(byName)
  if (options.bill !== undefined) await writeFile(join(release, billName(asset)), options.bill)
  const documents = await documentsIn(release)
  const { schema, notes, publishedAt } = options
  const manifest: ReleaseManifest = {
    format: 1,
    service,
    tag,
    schema,
    notes,
    publishedAt,
    ...options.about,
    // of a build on another machine
    ...((await readManifest(directory))?.security === true && !options.force ? { security: true as const } : {}),
    assets,
    ...(deltas.length === 0 ? {} : { deltas }),
    ...(documents.length === 0 ? {} : { documents }),
  }
  await writeFile(join(release, 'release.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  const installer = await bakedInstaller(options, assets)
  if (installer === null) progress.note('warning: there is no install.sh yet, so the release does not include one')
  else await writeFile(join(release, 'install.sh'), installer, { mode: 0o755 })
  const files = await Promise.all(
    (await readdir(release)).toSorted().map(async (name) => ({ name, ...(await measure(join(release, name))) })),
  )
  await writeFile(join(release, 'SHA256SUMS'), formatSums(files))
  const changed = await publish(release, directory, options)
  await updateReleases(options.out, service)
  progress.end('done', `${directory}${changed ? '' : ' (already there, identical)'}`)

  files.push({ name: 'SHA256SUMS', ...(await measure(join(directory, 'SHA256SUMS'))) })
  return { tag, service, directory, executable: inside, files, changed }
}

async function compressed({ executable, effort, progress }: PublishOptions, to: string, sizeBytes: number) {
  progress.stage('compress')
  let bytes = 0
  const onBytes = (count: number) => progress.bytes((bytes += count), sizeBytes * 2)
  const [zst, gz] = await Promise.all([
    compress(executable, `${to}.zst`, 'zstd', effort, onBytes),
    compress(executable, `${to}.gz`, 'gzip', effort, onBytes),
  ])
  progress.end('done', `zstd ${formatBytes(zst.sizeBytes)}, gzip ${formatBytes(gz.sizeBytes)}`)
  return { zst, gz }
}

export function assetName(service: string): string {
  return `${service}-${process.platform}-${process.arch}`
}

/** Hard-links assets that other machines built for this tag into the new folder, so that one release serves all platforms. */
async function takeOtherPlatforms(
  directory: string,
  release: string,
  own: ReleaseManifest['assets'],
  { service, tag, force }: PublishOptions,
): Promise<ReleaseManifest['assets']> {
  const found = await readManifest(directory)
  if (found === null) return []
  if (found.service !== service)
    throw refused(`${directory} already contains a release of ${found.service}, not of ${service}`)
  const others = found.assets.filter(({ name }) => !own.some((asset) => asset.name === name))
  const different = own.filter(({ name, sha256 }) =>
    found.assets.some((asset) => asset.name === name && asset.sha256 !== sha256),
  )
  if (different.length > 0 && !force) {
    throw refused(
      `${directory} already contains a different ${tag}: ${different.map(({ name }) => name).join(', ')} would change`,
    )
  }
  const documents = (found.documents ?? []).filter(({ name }) => name !== billName(assetName(service)))
  for (const { name } of [...others, ...documents]) await link(join(directory, name), join(release, name))
  return others
}

/** Hard-links the deltas that an earlier build has made for these assets, on this machine or another one. */
async function keepDeltas(
  directory: string,
  release: string,
  assets: ReleaseManifest['assets'],
  made: readonly DeltaEntry[],
): Promise<DeltaEntry[]> {
  const isKept = ({ name, to }: DeltaEntry) =>
    !made.some((one) => one.name === name) && assets.some(({ executable }) => executable.sha256 === to)
  const kept = ((await readManifest(directory))?.deltas ?? []).filter(isKept)
  for (const { name } of kept) await link(join(directory, name), join(release, name))
  return kept
}

/** The files of a release that no install needs: release.json has their checksums too, and hosts never fetch them. */
async function documentsIn(release: string): Promise<NonNullable<ReleaseManifest['documents']>> {
  const names = (await readdir(release)).filter((name) => name.endsWith(billName(''))).toSorted()
  return await Promise.all(names.map(async (name) => ({ name, ...(await measure(join(release, name))) })))
}

/** Moves the finished folder to `directory`. False if the same release is there already. */
async function publish(release: string, directory: string, { tag, force }: PublishOptions): Promise<boolean> {
  const [before, after] = await Promise.all([sumsOf(directory), sumsOf(release)])
  if (before === after) return false
  if (existsSync(directory)) {
    const lines = after?.split('\n') ?? []
    const papers = / {2}(release\.json|install\.sh)$/
    const keepsAll = before !== null && before.split('\n').every((line) => papers.test(line) || lines.includes(line))
    const grows = keepsAll && lines.some((line) => !papers.test(line) && !before.includes(line))
    if (!grows && !force) throw refused(`${directory} already contains a different ${tag}`)
    await rename(directory, `${release}.former`) // removed with the temporary folder around it
  }
  await rename(release, directory)
  return true
}

function refused(message: string): BatonError {
  return new BatonError('refused', message, {
    hint: 'choose another tag, or pass `--force` if nobody has this release yet',
  })
}

async function sumsOf(directory: string): Promise<string | null> {
  return await readFile(join(directory, 'SHA256SUMS'), 'utf8').catch(() => null)
}

async function readManifest(directory: string): Promise<ReleaseManifest | null> {
  const text = await readFile(join(directory, 'release.json'), 'utf8').catch(() => '')
  return (parsedJson(text) ?? null) as ReleaseManifest | null
}

/** What `releases.json` holds, newest first. */
export interface ReleaseList {
  format: 1
  releases: { tag: string; draft: boolean; prerelease: boolean }[]
}

/** Writes `releases.json` from the release folders, newest first. Keeps the `draft` and `prerelease` marks of a maintainer. */
export async function updateReleases(out: string, service: string): Promise<void> {
  const path = join(out, RELEASES)
  const text = await readFile(path, 'utf8').catch(() => null)
  const former = text === null ? [] : ((JSON.parse(text) as Partial<ReleaseList>).releases ?? [])
  const tags = (await readdir(out)).filter(isTag)
  const manifests = await Promise.all(tags.map((tag) => readManifest(join(out, tag))))
  const releases = tags
    .filter((tag, i) => manifests[i]?.tag === tag && manifests[i]?.service === service)
    .toSorted((a, b) => compareTags(b, a))
    .map((tag) => {
      const { draft = false, prerelease = isPrerelease(tag) } = former.find((release) => release.tag === tag) ?? {}
      return { tag, draft, prerelease }
    })
  const list: ReleaseList = { format: 1, releases }
  const temporary = `${path}.${process.pid}.tmp`
  await writeFile(temporary, `${JSON.stringify(list, null, 2)}\n`)
  await rename(temporary, path)
}

/** install.sh with this release's values in its marked lines; null if there is no install.sh. */
async function bakedInstaller(options: PublishOptions, assets: ReleaseManifest['assets']): Promise<string | null> {
  const text = await readFile(join(PROJECT, 'install.sh'), 'utf8').catch(() => null)
  if (text === null) return null
  return bakeInstaller(text, {
    BATON_SERVICE: options.service,
    BATON_TAG: options.tag,
    ...(options.feed === null ? {} : { BATON_FEED: options.feed }),
    ...Object.fromEntries(
      assets
        .filter(({ compression }) => compression === 'gzip')
        .map(({ os, arch, sha256 }) => [`BATON_SHA256_${os}_${arch}`.toUpperCase(), sha256]),
    ),
  })
}

/** Pure: puts each value into the line that begins with `NAME=`. Throws if the script has no such line. */
export function bakeInstaller(text: string, values: Readonly<Record<string, string>>): string {
  let baked = text
  for (const [name, value] of Object.entries(values)) {
    const line = new RegExp(`^${name}=.*$`, 'm')
    if (!line.test(baked))
      throw new BatonError('unexpected', `install.sh has no \`${name}=\` line in which to set ${JSON.stringify(value)}`)
    const quoted = `'${value.replaceAll("'", String.raw`'\''`)}'`
    baked = baked.replace(line, () => `${name}=${quoted}`)
  }
  return baked
}

function byName(a: { name: string }, b: { name: string }): number {
  return a.name < b.name ? -1 : 1
}

/** Why a release's folder is not as its SHA256SUMS says, one sentence; null: every file is. Rejects if one is not there. */
export async function sumsFault(release: string): Promise<string | null> {
  const lines = (await readFile(join(release, 'SHA256SUMS'), 'utf8')).split('\n').filter(Boolean)
  if (lines.length === 0) return 'SHA256SUMS lists no files'
  for (const line of lines) {
    const [expected = '', name = ''] = line.split(/ [ *]/)
    const { sha256 } = await measure(join(release, basename(name)))
    if (sha256 !== expected) return `sha256 of ${name}: expected ${expected}, got ${sha256}`
  }
  return null
}
