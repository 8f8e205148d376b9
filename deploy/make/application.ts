// Builds a release of an author's application from its `baton.config.json`: make -> collect -> addons -> archive (or bundle) ->
// base -> inject -> check -> compress -> publish. Must hold: the same commit, packages and tag give the same bytes. Nothing is published
// before it has printed its tag, unpacked itself and answered a request.

import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { BatonError, formatNames, parseTag, reasonOf } from '../../agent/words.ts'
import type { OwnWords } from './first/release.ts'
import { formatBytes, type ProgressReport } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { archive, type Archive, type ArchiveFile } from './archive.ts'
import { type Base, prepareBase } from './base.ts'
import { bundle } from './bundle.ts'
import { detect } from './detect.ts'
import { addonHint, examineAddons, formatAddons, formatLeftOut, refuseOtherAbis } from './addons.ts'
import { noteOfDotEnv } from './dot-env.ts'
import { databasesOf, filesOf, formatDatabases, formatLinksOut, linksOut } from './files.ts'
import { type Bundled, keptBundle } from './kept-bundle.ts'
import { provideNode } from './node.ts'
import { IS_PACKAGED, PROJECT } from './place.ts'
import { PRELOAD, preloadText } from './preload.ts'
import { isPreload, type Project } from './project.ts'
import { commitOf, uncommittedIn } from './publication.ts'
import { type PublishedRelease, type PublishOptions, publishRelease } from './release-folder.ts'
import { readRoot } from './root.ts'
import { showBase } from './release.ts'
import { billOf, licenceIn, type Package, packagesBehind, unique } from './sbom.ts'
import { checkVersion, injectBundle, withoutFuse } from './sea.ts'
import { formatLargest, type Part } from './sizes.ts'
import { temporaryDirectory } from './temporary.ts'
import { traced } from './trace.ts'
import { startedAs, tryOut } from './trial-start.ts'

export interface ApplicationOptions extends Omit<PublishOptions, 'executable' | 'service' | 'schema' | 'about'> {
  project: Project
  /** first run `build` of the configuration */
  make: boolean
  /** start the application once, send it a request and switch it to itself */
  trial: boolean
  /** it mends a hole */
  security?: boolean
}

const MAKE_MS = 30 * 60_000
/**
 * The first lines of a script. `sh` reads them and starts Node at once; Node reads them as a comment and a string.
 * An older Node would fail with a syntax error. To ask Node for its version costs 40 ms, so only `--version` asks: every install
 * and update begins with it. The script is loaded with `require`: below a package.json with `"type": "module"`, Node refuses a
 * main script named `x.partial`.
 */
const scriptHead = (flags: string) => `#!/bin/sh
':' //; n=\${BATON_NODE-}; [ -x "$n" ] || n=$(command -v node) || { echo "error: expected Node 26 on PATH or in BATON_NODE to run $0, found none" >&2; exit 3; }; [ "\${1-}" != --version ] || case $("$n" --version) in v2[4-9].* | v[3-9][0-9].*) ;; *) echo "error: expected Node 26 to run $0, found $("$n" --version) at $n" >&2; exit 3 ;; esac; exec "$n" --disable-warning=ExperimentalWarning${flags} -e 'if (parseInt(process.versions.node, 10) < 24) { console.error("error: expected Node 26 to run " + process.argv[1] + ", found " + process.version + " at " + process.execPath); process.exit(3) } process.argv[1] = process.getBuiltinModule("fs").realpathSync(process.argv[1]); process.getBuiltinModule("module").createRequire("/")(process.argv[1])' -- "$0" "$@"
`

export interface BuiltApplication extends PublishedRelease {
  /** what the configuration does not say, or says otherwise than the trial start has shown; a sentence each */
  warnings: string[]
  /** what the executable holds beside the application's own files and Node, by name */
  packages: Package[]
  /** kind app: what the executable unpacks, and what is large in it; else null */
  contents: { files: number; sizeBytes: number; largest: Part[] } | null
}

async function tellUncommitted({ project: { folder }, tag, progress }: ApplicationOptions): Promise<void> {
  const changed = await uncommittedIn(folder)
  if (changed.length > 0)
    progress.note(`warning: ${tag} is built with changes that are in no commit: ${formatNames(changed, 5)}`)
}

export async function buildApplication(options: ApplicationOptions): Promise<BuiltApplication> {
  const { project, tag, progress } = options
  parseTag(tag)
  await tellUncommitted(options)
  if (options.make) await makeFirst(project, progress)
  await using work = await temporaryDirectory(options.out)
  const executable = join(work.path, project.service)
  const root = project.root === null ? null : join(project.folder, project.root)
  const trust = await readRoot(root, project.service, options.publishedAt)
  const words = wordsOf(project, tag, await commitOf(project.folder), trust)
  const { sources, unpackedBytes, doubt, contents } =
    project.kind === 'app'
      ? await writeApp(project, words, executable, progress)
      : await writeBundle(options, words, executable)
  const packages = unique([...(await packagesBehind(sources, project.folder)), ...(await kitPackages())])
  tellLicences(packages, progress)

  progress.stage('version', `${project.service} ${tag}`)
  await checkVersion(executable, `${project.service} ${tag}`, await provideNode())
  const dotEnv = await noteOfDotEnv(project.folder, project.environment)
  if (dotEnv !== null) progress.note(`note: ${dotEnv}`)
  const tried = options.trial
    ? await tryOut(project, executable, { stage: progress.stage, doubt: doubt ?? hintOfTry(project) })
    : null
  if (tried !== null) progress.end('done', tried.line)
  const warnings = tried?.warnings ?? []
  for (const warning of warnings) progress.note(`warning: ${warning}`)

  const { healthPath, port, kind, service, schema, basePath } = project
  const base = basePath === '' ? {} : { basePath }
  const bill = billOf({
    service,
    tag,
    licence: await licenceIn(project.folder),
    publishedAt: options.publishedAt,
    node: kind === 'script' ? null : (await prepareBase()).version.replace(/^v/, ''),
    packages,
  })
  const published = await publishRelease({
    ...options,
    deltas: options.deltas ? { ...options.deltas, trust } : null,
    executable,
    bill,
    unpackedBytes,
    service,
    schema,
    about: {
      kind,
      healthPath,
      port,
      ...base,
      ...(project.unit === null ? {} : { unit: project.unit }),
      order: project.order,
      ...(project.from === null ? {} : { from: project.from }),
      ...(options.security === true ? { security: true } : {}),
    },
  })
  return { ...published, warnings, packages, contents }
}

const hintOfTry = (project: Project) =>
  `${startedAs(project)}; to add variables, set \`try.environment\`; to skip this start, pass \`--no-try\``

function tellLicences(packages: readonly Package[], progress: ProgressReport): void {
  const silent = packages.filter(({ licence }) => licence === null).map(({ name, version }) => `${name}@${version}`)
  if (silent.length > 0) progress.note(`warning: no licence declared by ${silent.join(', ')}`)
}

export async function makeFirst({ build, folder }: Project, progress: ProgressReport): Promise<void> {
  if (build === null) return
  progress.stage('make', build)
  try {
    await run(['/bin/sh', '-c', build], { cwd: folder, timeoutMs: MAKE_MS })
  } catch (cause) {
    throw new BatonError('unexpected', `running \`build\` from the configuration: ${reasonOf(cause)}`, { cause })
  }
}

export function wordsOf(project: Project, tag: string, commit: string | null, trust: OwnWords['trust']): OwnWords {
  const { service, kind, healthPath, database, servers, order, environment, args, nodeFlags } = project
  const { commands, basePath, scheme, onStop, longLivedPaths, trial, state, before, snapshot, assets, unit } = project
  const own = { service, tag, commit, kind, healthPath, database, servers, order, commands, basePath, trust }
  // left out if they are not set: such a release keeps the bytes that it had before these settings existed
  const said = Object.fromEntries(
    Object.entries({
      scheme,
      onStop,
      longLivedPaths,
      rehearse: trial,
      state,
      snapshot,
      assets,
      unit,
      before: before.length === 0 ? null : before,
    }).filter(([, value]) => value !== null),
  )
  return { ...own, environment, args, nodeFlags: nodeFlags.filter((flag) => !isPreload(flag)), ...said }
}

/** The content of an executable script file: `text` below its first lines. `isKeptFlag` holds for each flag: none needs quotes. */
export function scriptOf(text: string, nodeFlags: readonly string[]): string {
  return scriptHead(nodeFlags.map((flag) => ` ${flag}`).join('')) + text
}

interface Written {
  /** absolute paths of the files that went in */
  sources: Iterable<string>
  /** on the disk, once unpacked; undefined: nothing is unpacked */
  unpackedBytes: number | undefined
  /** what may keep it from starting, and what to do about it; null: nothing is known */
  doubt: string | null
  contents: BuiltApplication['contents']
}

async function writeApp(project: Project, words: OwnWords, to: string, progress: ProgressReport): Promise<Written> {
  progress.stage('collect', project.folder)
  const all = await filesOf(project, (folder) =>
    progress.note(`note: ${folder}/ is left out of the release, because releases are published to it`),
  )
  const files = project.trace ? await traced(project, all) : all
  for (const [what, file] of filesNamedBy(project)) {
    if (files.some(({ path }) => path === file)) continue
    throw new BatonError('invalid_settings', `expected the release to contain ${file} (\`${what}\`)`, {
      hint: `\`${what}\` is a path in the release: add the file to \`include\`, and make sure that \`build\` creates it`,
    })
  }
  const preload = preloadText(project.nodeFlags)
  const ours: ArchiveFile[] = preload === null ? [] : [{ path: PRELOAD, source: join(dirname(to), PRELOAD) }]
  if (preload !== null) await writeFile(join(dirname(to), PRELOAD), preload)
  const links = formatLinksOut(await linksOut(files))
  if (links !== null) progress.note(`warning: ${links}`)
  const databases = formatDatabases(await databasesOf(files))
  if (databases !== null) progress.note(`warning: ${databases}`)
  const doubt = await checkAddons(files, progress)
  const packed: Archive = await archive([...files.filter(({ path }) => path !== PRELOAD), ...ours])
  progress.end('done', `${packed.files} files, ${formatBytes(packed.bytes.length)}`)
  const large = formatLargest(packed.largest)
  if (large !== null) progress.note(large)

  const base = await showBase(progress)
  progress.stage('embed')
  const { bytes, fuses } = withoutFuse(packed.bytes)
  const { entry, cwd } = project
  const release: OwnWords = {
    ...words,
    archive: {
      sha256: packed.sha256,
      sizeBytes: bytes.length,
      unpackedBytes: packed.unpackedBytes,
      entry,
      cwd,
      ...(preload === null ? {} : { preload: PRELOAD }),
      ...(fuses.length > 0 ? { fuses } : {}),
    },
  }
  await injectBundle(base, await ourScript('app'), to, {
    nodeOptions: true,
    nodeFlags: words.nodeFlags,
    assets: { release: JSON.stringify(release), operator: await ourScript('operator'), app: bytes },
  })
  const contents = { files: packed.files, sizeBytes: packed.bytes.length, largest: packed.largest }
  return { sources: files.map(({ source }) => source), unpackedBytes: packed.unpackedBytes, doubt, contents }
}

/** What the configuration says of a file, and its path in the release. */
function filesNamedBy({ entry, before, nodeFlags }: Project): [string, string][] {
  const preloaded = nodeFlags.flatMap((flag) => /^--(?:import|require)=\.\/(.+)$/.exec(flag)?.[1] ?? [])
  return [
    ['entry', entry],
    ...before.map(([file = '']): [string, string] => ['before', file]),
    ...preloaded.map((file): [string, string] => ['nodeFlags', file]),
  ]
}

/**
 * Refuses addons for another Node. Only warns of one that does not load: it may never be needed, and the trial start decides. Resolves
 * to what to do if that fails; null if every addon works.
 */
async function checkAddons(files: readonly ArchiveFile[], progress: ProgressReport): Promise<string | null> {
  const report = await examineAddons(files)
  refuseOtherAbis(report)
  const doubtful = report.packages.filter(({ verdict }) => verdict !== 'works')
  const lines = doubtful.map((one) => formatAddons(one, report.node))
  for (const line of lines) progress.note(`warning: ${line}`)
  const hint = addonHint(report)
  return hint === null ? null : `${lines.join('; ')}: ${hint}`
}

async function writeBundle(options: ApplicationOptions, words: OwnWords, to: string): Promise<Written> {
  const { project, progress } = options
  const sources = new Set<string>()
  const written = { sources, unpackedBytes: undefined, doubt: null, contents: null }
  progress.stage('bundle', project.entry)
  const left = formatLeftOut(project.kind, detect(project.folder).natives)
  if (left !== null) progress.note(`warning: ${left}`)
  const operator = Buffer.from(await ourScript('operator')).toString()
  const first = IS_PACKAGED
    ? join(PROJECT, 'lib', 'first', 'bundle.js')
    : join(PROJECT, 'deploy', 'make', 'first', 'bundle.ts')
  const entry = `./${relative(project.folder, join(project.folder, project.entry))}`
  const isScript = project.kind === 'script'
  const texts = { operator }
  const script = await bundle({
    entry: project.entry,
    folder: project.folder,
    inputs: sources,
    text: `import { beginBundle } from ${JSON.stringify(first)}
      beginBundle(() => require(${JSON.stringify(entry)}), () => batonText('operator'))`,
    ...(isScript ? { own: texts } : { texts }),
    define: isScript ? { __BATON_RELEASE__: JSON.stringify(words) } : {},
  })
  progress.end('done', formatBytes(script.length))
  if (isScript) {
    await writeFile(to, scriptOf(Buffer.from(script).toString(), project.nodeFlags), { mode: 0o755 })
    return written
  }
  const base: Base = await showBase(progress)
  progress.stage('embed')
  const { nodeFlags } = project
  await injectBundle(base, script, to, {
    nodeOptions: true,
    nodeFlags,
    assets: { ...texts, release: JSON.stringify(words) },
  })
  return written
}

/**
 * One of the kit's own scripts in one file: `operator` goes into each release, `app` into one of kind `app`, `source` into one of
 * `baton dev`. The installed package contains it ready made; a clone makes it now.
 */
export async function ourScript(name: 'app' | 'operator' | 'source'): Promise<Uint8Array> {
  if (IS_PACKAGED) return await readFile(join(PROJECT, 'lib', 'first', `${name}.cjs`))
  return await bundleOurScript(name)
}

/** Bundled once for a process that builds several releases. */
const ourScripts = new Map<string, Promise<Bundled>>()

export async function bundleOurScript(
  name: 'app' | 'operator' | 'source',
  inputs: Set<string> = new Set(),
): Promise<Uint8Array> {
  const begun = ourScripts.get(name) ?? keptBundle(name, () => bundleScript(name))
  ourScripts.set(name, begun)
  const { script, sources } = await begun
  for (const source of sources) inputs.add(source)
  return script
}

async function bundleScript(name: string): Promise<Bundled> {
  const entry = join(PROJECT, 'deploy', name === 'operator' ? 'operator.ts' : `make/first/${name}.ts`)
  const sources = new Set<string>()
  return { script: await bundle({ entry, define: {}, inputs: sources }), sources }
}

let packagesOfKit: Promise<Package[]> | null = null

/** This kit and its packages, which are in every release. The installed package has the list ready made. */
export async function kitPackages(): Promise<Package[]> {
  return await (packagesOfKit ??= findKitPackages())
}

async function findKitPackages(): Promise<Package[]> {
  if (IS_PACKAGED) return JSON.parse(await readFile(join(PROJECT, 'lib', 'first', KIT_PACKAGES), 'utf8')) as Package[]
  const inputs = new Set<string>([join(PROJECT, 'node_modules/marked/index.js')]) // the panel's: taken from its source map
  await bundleOurScript('operator', inputs)
  const text = await readFile(join(PROJECT, 'package.json'), 'utf8')
  const { name, packed, license } = JSON.parse(text) as { name: string; packed: { version: string }; license: string }
  const own: Package = { name, version: packed.version, licence: license, integrity: null }
  return unique([own, ...(await packagesBehind(inputs, PROJECT))])
}

export const KIT_PACKAGES = 'packages.json'
