// Builds one release: `npm run build -- --tag v1.2.0` -> dist/v1.2.0/ and dist/releases.json.
// bundle -> base -> inject -> check -> compress -> publish, read top to bottom in `buildRelease`.
// Must hold: the same commit and tag give the same bytes; a release appears in its folder whole or not at all, and one that
// is there is never replaced by a different one without `--force`.

import { existsSync } from 'node:fs'
import { link, mkdir, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { asBatonError, BatonError, MEANINGS, reasonOf } from '../agent/errors.ts'
import { compareTags, isTag, parseTag, type ReleaseManifest } from '../agent/release.ts'
import { SCHEMA } from '../agent/service/schema.ts'
import { bundle, PROJECT } from './lib/bundle.ts'
import { compress, COMPRESSIONS, type Effort, formatSums, measure } from './lib/pack.ts'
import { createProgress, formatBytes, type Progress } from './lib/progress.ts'
import { checkVersion, injectBundle, prepareBase, temporaryDirectory } from './lib/sea.ts'
import { run } from './lib/shell.ts'

export interface BuildOptions {
  tag: string
  /** folder that holds the release folders and releases.json */
  out: string
  service: string
  /** where installs of this release look for the next one; null leaves install.sh as it is */
  feed: string | null
  notes: string
  effort: Effort
  /** absolute path of the module that is the executable's main */
  entry: string
  /** number of the schema that this release writes; null where it does not tell */
  schema: number | null
  /** ISO 8601, UTC */
  publishedAt: string | null
  /** replace a different release of the same tag */
  force: boolean
  progress: Progress
}

export interface BuiltRelease {
  tag: string
  service: string
  /** absolute */
  directory: string
  node: string
  stripped: boolean
  executable: { sizeBytes: number; sha256: string }
  files: { name: string; sizeBytes: number; sha256: string }[]
  /** false where the folder held this very release already */
  changed: boolean
}

export const DEFAULT_SERVICE = 'beacon'
export const DEFAULT_ENTRY = join(PROJECT, 'deploy', 'executable.ts')
const NOTES_MAX_BYTES = 64 * 1024
const SERVICE_NAME = /^[a-z][a-z0-9-]{0,30}$/
const RELEASES = 'releases.json'

export async function buildRelease(options: BuildOptions): Promise<BuiltRelease> {
  const { tag, service, progress } = options
  const directory = join(options.out, parseTag(tag))
  const asset = assetName(service)

  progress.stage('bundle')
  const script = await bundle({ entry: options.entry, define: definitions(service, tag) })
  progress.end('done', formatBytes(script.length))

  progress.stage('base')
  const base = await prepareBase()
  const { before, after } = base.sizeBytes
  progress.end(
    'done',
    base.stripped
      ? `Node ${base.version}, ${formatBytes(before)} stripped to ${formatBytes(after)}`
      : `Node ${base.version}`,
  )
  if (!base.stripped) progress.note('warning: there is no `strip` on this machine, the executable keeps its symbols')

  await using work = await temporaryDirectory(options.out)
  const executable = join(work.path, 'executable')
  progress.stage('inject')
  await injectBundle(base, script, executable)
  progress.end('done', formatBytes((await stat(executable)).size))

  progress.stage('check', `${service} ${tag}`)
  await checkVersion(executable, `${service} ${tag}`)

  progress.stage('compress')
  const inside = await measure(executable)
  const release = join(work.path, 'release')
  await mkdir(release)
  let bytes = 0
  const onBytes = (count: number) => progress.bytes((bytes += count), inside.sizeBytes * 2)
  const [zst, gz] = await Promise.all([
    compress(executable, join(release, `${asset}.zst`), 'zstd', options.effort, onBytes),
    compress(executable, join(release, `${asset}.gz`), 'gzip', options.effort, onBytes),
  ])
  progress.end('done', `zstd ${formatBytes(zst.sizeBytes)}, gzip ${formatBytes(gz.sizeBytes)}`)

  progress.stage('publish', directory)
  const platform = { os: process.platform, arch: process.arch, executable: inside }
  const own: ReleaseManifest['assets'] = [
    { name: `${asset}.gz`, compression: 'gzip', ...platform, ...gz },
    { name: `${asset}.zst`, compression: 'zstd', ...platform, ...zst },
  ]
  const assets = [...own, ...(await takeOtherPlatforms(directory, release, own, options))].toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  )
  const { schema, notes, publishedAt } = options
  const manifest: ReleaseManifest = { format: 1, service, tag, schema, notes, publishedAt, assets }
  await writeFile(join(release, 'release.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  const installer = await bakedInstaller(options, assets)
  if (installer === null) progress.note('warning: there is no install.sh yet, the release goes without')
  else await writeFile(join(release, 'install.sh'), installer, { mode: 0o755 })
  const files = await Promise.all(
    (await readdir(release)).toSorted().map(async (name) => ({ name, ...(await measure(join(release, name))) })),
  )
  await writeFile(join(release, 'SHA256SUMS'), formatSums(files))
  const changed = await publish(release, directory, options)
  await updateReleases(options.out, service)
  progress.end('done', `${directory}${changed ? '' : ' (was there already, the same)'}`)

  files.push({ name: 'SHA256SUMS', ...(await measure(join(directory, 'SHA256SUMS'))) })
  return { tag, service, directory, node: base.version, stripped: base.stripped, executable: inside, files, changed }
}

export function assetName(service: string): string {
  return `${service}-${process.platform}-${process.arch}`
}

export function definitions(service: string, tag: string): Record<string, string> {
  return { __BATON_SERVICE__: service, __BATON_TAG__: tag }
}

/** Assets that another machine built for the same tag: linked into the new folder, so that one release serves all platforms. */
async function takeOtherPlatforms(
  directory: string,
  release: string,
  own: ReleaseManifest['assets'],
  { service, tag, force }: BuildOptions,
): Promise<ReleaseManifest['assets']> {
  const found = await readManifest(directory)
  if (found === null) return []
  if (found.service !== service) throw refused(`${directory} holds a release of ${found.service}, this is ${service}`)
  const others = found.assets.filter(({ name }) => !own.some((asset) => asset.name === name))
  const different = own.filter(({ name, sha256 }) =>
    found.assets.some((asset) => asset.name === name && asset.sha256 !== sha256),
  )
  if (different.length > 0 && !force) {
    throw refused(`${directory} holds a different ${tag}: ${different.map(({ name }) => name).join(', ')} would change`)
  }
  for (const { name } of others) await link(join(directory, name), join(release, name))
  return others
}

/** Moves the finished folder into its place. False where it was there already, the same. */
async function publish(release: string, directory: string, { tag, force }: BuildOptions): Promise<boolean> {
  const [before, after] = await Promise.all([sumsOf(directory), sumsOf(release)])
  if (before === after) return false
  if (existsSync(directory)) {
    const grows =
      before !== null &&
      before.split('\n').every((line) => / {2}(release\.json|install\.sh)$/.test(line) || after?.includes(line))
    if (!grows && !force) throw refused(`${directory} holds a different ${tag}`)
    await rename(directory, `${release}.former`) // goes away with the folder that both are in
  }
  await rename(release, directory)
  return true
}

function refused(message: string): BatonError {
  return new BatonError('refused', message, { hint: 'choose another tag, or say `--force` where nobody has it yet' })
}

async function sumsOf(directory: string): Promise<string | null> {
  return await readFile(join(directory, 'SHA256SUMS'), 'utf8').catch(() => null)
}

async function readManifest(directory: string): Promise<ReleaseManifest | null> {
  try {
    return JSON.parse(await readFile(join(directory, 'release.json'), 'utf8')) as ReleaseManifest
  } catch {
    return null
  }
}

interface ReleaseList {
  format: 1
  releases: { tag: string; draft: boolean; prerelease: boolean }[]
}

/** `releases.json` says what the folders say, newest first; the marks that a maintainer set in it are kept. */
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
      const { draft = false, prerelease = false } = former.find((release) => release.tag === tag) ?? {}
      return { tag, draft, prerelease }
    })
  const list: ReleaseList = { format: 1, releases }
  const temporary = `${path}.${process.pid}.tmp`
  await writeFile(temporary, `${JSON.stringify(list, null, 2)}\n`)
  await rename(temporary, path)
}

/** install.sh with what this release is in its marked lines, or null where there is none. */
async function bakedInstaller(options: BuildOptions, assets: ReleaseManifest['assets']): Promise<string | null> {
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

/** Pure: puts each value into the line that begins with `NAME=`. A name without its line is a fault of the script. */
export function bakeInstaller(text: string, values: Readonly<Record<string, string>>): string {
  let baked = text
  for (const [name, value] of Object.entries(values)) {
    const line = new RegExp(`^${name}=.*$`, 'm')
    if (!line.test(baked))
      throw new BatonError('unexpected', `install.sh has no line \`${name}=\` to put ${JSON.stringify(value)} into`)
    const quoted = `'${value.replaceAll("'", String.raw`'\''`)}'`
    baked = baked.replace(line, () => `${name}=${quoted}`)
  }
  return baked
}

// ---- the command line

const USAGE = `usage: npm run build -- --tag vX.Y.Z [options]

  --tag TAG          the release to build
  --out DIR          where release folders go (dist)
  --service NAME     name of the service (${DEFAULT_SERVICE})
  --feed FEED        where installs look for the next release; put into install.sh
  --notes TEXT|FILE  release notes
  --compress EFFORT  fast, normal or best (normal)
  --entry FILE       main module of the executable (deploy/executable.ts)
  --schema N         number of the state's schema, for release.json
  --force            replace a different release of the same tag
  --json             print one JSON object
  -n, --dry-run      say what would be built
  -q, --quiet        draw nothing
`

interface Command {
  options: Omit<BuildOptions, 'progress'>
  json: boolean
  dryRun: boolean
  quiet: boolean
  help: boolean
}

async function readCommand(argv: readonly string[], environment: NodeJS.ProcessEnv): Promise<Command> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      tag: { type: 'string' },
      out: { type: 'string', default: 'dist' },
      service: { type: 'string', default: DEFAULT_SERVICE },
      feed: { type: 'string' },
      notes: { type: 'string', default: '' },
      compress: { type: 'string', default: 'normal' },
      entry: { type: 'string' },
      schema: { type: 'string' },
      force: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      'dry-run': { type: 'boolean', short: 'n', default: false },
      quiet: { type: 'boolean', short: 'q', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  const effort = COMPRESSIONS.find((one) => one === values.compress)
  const entry = values.entry === undefined ? DEFAULT_ENTRY : resolve(values.entry)
  const faults: string[] = []
  if (!isTag(values.tag) && !values.help)
    faults.push(`expected a tag of the form vX.Y.Z in --tag, got ${JSON.stringify(values.tag ?? null)}`)
  if (!SERVICE_NAME.test(values.service))
    faults.push(`expected a name such as \`beacon\` in --service, got ${JSON.stringify(values.service)}`)
  if (effort === undefined)
    faults.push(`expected ${COMPRESSIONS.join(', ')} in --compress, got ${JSON.stringify(values.compress)}`)
  if (!existsSync(entry)) faults.push(`expected a file in --entry, got ${entry}`)
  if (values.schema !== undefined && !/^[0-9]{1,9}$/.test(values.schema))
    faults.push(`expected a number in --schema, got ${values.schema}`)
  const notes = await readNotes(values.notes)
  if (Buffer.byteLength(notes) > NOTES_MAX_BYTES) faults.push(`expected notes of at most ${NOTES_MAX_BYTES} bytes`)
  if (faults.length > 0) throw new BatonError('invalid_request', faults.join('; '))
  const ownSchema = entry === DEFAULT_ENTRY ? SCHEMA.length : null
  return {
    options: {
      tag: values.tag ?? '',
      out: resolve(values.out),
      service: values.service,
      feed: values.feed ?? null,
      notes,
      effort: effort ?? 'normal',
      entry,
      schema: values.schema === undefined ? ownSchema : Number(values.schema),
      publishedAt: await publicationTime(environment),
      force: values.force,
    },
    json: values.json,
    dryRun: values['dry-run'],
    quiet: values.quiet,
    help: values.help,
  }
}

async function readNotes(textOrFile: string): Promise<string> {
  if (textOrFile === '' || textOrFile.includes('\n') || !existsSync(textOrFile)) return textOrFile
  return await readFile(textOrFile, 'utf8')
}

/** The commit's time, never the clock's: https://reproducible-builds.org/docs/source-date-epoch/ */
async function publicationTime(environment: NodeJS.ProcessEnv): Promise<string | null> {
  const given = environment['SOURCE_DATE_EPOCH']
  const seconds = given ?? (await commitTime())
  if (seconds === null || !/^[0-9]{1,12}$/.test(seconds)) {
    if (given === undefined) return null
    throw new BatonError('invalid_request', `expected seconds in SOURCE_DATE_EPOCH, got ${JSON.stringify(given)}`)
  }
  return new Date(Number(seconds) * 1000).toISOString()
}

async function commitTime(): Promise<string | null> {
  try {
    const { exitCode, stdout } = await run(['git', '-C', PROJECT, 'log', '-1', '--format=%ct'], { allowFailure: true })
    return exitCode === 0 && stdout.trim() !== '' ? stdout.trim() : null
  } catch {
    return null // no git on this machine
  }
}

function plan({ options }: Command): string {
  const { tag, service, out, effort, entry, publishedAt } = options
  const asset = assetName(service)
  const files = [`${asset}.gz`, `${asset}.zst`, 'SHA256SUMS', 'install.sh', 'release.json']
  return [
    `would build ${service} ${tag} from ${entry}, compression ${effort}, dated ${publishedAt ?? 'not at all'}`,
    ...files.map((name) => `would write ${join(out, tag, name)}`),
    `would update ${join(out, RELEASES)}`,
  ].join('\n')
}

async function runBuild(argv: readonly string[]): Promise<number> {
  try {
    const command = await readCommand(argv, process.env)
    if (command.help) {
      process.stdout.write(USAGE)
      return 0
    }
    if (command.dryRun) {
      process.stdout.write(command.json ? `${JSON.stringify(command.options)}\n` : `${plan(command)}\n`)
      return 0
    }
    const progress = createProgress({ quiet: command.quiet })
    try {
      const release = await buildRelease({ ...command.options, progress })
      if (command.json) process.stdout.write(`${JSON.stringify(release)}\n`)
      else if (!command.quiet) process.stdout.write(release.files.map(formatFile).join(''))
      return 0
    } catch (error) {
      progress.end('failed')
      throw error
    }
  } catch (error) {
    const usage = error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
    const problem = asBatonError(
      error,
      usage ? 'invalid_request' : 'unexpected',
      usage ? 'reading the arguments' : 'building',
    )
    process.stderr.write(`error: ${usage ? problem.message : reasonOf(problem)}\n`)
    if (problem.hint !== null) process.stderr.write(`hint: ${problem.hint}\n`)
    return MEANINGS[problem.code].exit
  }
}

function formatFile({ name, sizeBytes, sha256 }: BuiltRelease['files'][number]): string {
  return `${sha256}  ${name.padEnd(28)} ${formatBytes(sizeBytes).padStart(9)}\n`
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  process.exitCode = await runBuild(process.argv.slice(2))
