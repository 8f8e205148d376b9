// Makes the release of one version of a package: lock -> fetch -> signatures -> addons -> see -> compose -> try. What comes out lies in
// `out`, and is no release of the feed before the caller has put it there.
// Must hold: until then nothing that serves knows of it. What is refused is refused before any code of the package has run, if the
// registry or the lock file shows it.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { asBatonError, BatonError, compareTags, formatNames } from '../../agent/words.ts'
import { newestOf } from './asked.ts'
import type { PackageVersion } from './registry.ts'
import { type Recipe, withoutRecipe } from './recipe.ts'
import { formatBytes, formatPorts } from '../lib/progress.ts'
import { fetchPackages, inside, makeLockFile, manifestIn, signatures, type NpmTools } from './steps.ts'
import { differencesOf, type Locked, treeIn } from './tree.ts'
import { type ServiceRecord, readLock, type Workshop } from './workshop.ts'
import { AROUND, aroundText, configOf, mainOf, manifestOf } from './wrap.ts'

export interface Making {
  shop: Workshop
  tools: NpmTools
  kept: ServiceRecord
  version: PackageVersion
  registry: string
  /** whether `engines.node` leaves out the Node that Baton brings */
  excludesNode: (range: string | null) => boolean
  say: { stage(name: string, detail?: string): void; note(line: string): void }
}

export interface Made {
  out: string
  sizeBytes: number
  /** what one start of its source has shown; null: its recipe says it */
  shown: ServiceRecord['shown']
  /** a sentence each: what this version is, and what is otherwise than before */
  told: string[]
}

interface Seen {
  database: string | null
  healthPath: string | null
  cwd: 'app' | null
  otherPorts: number[]
  warnings: string[]
  notes: string[]
  failed?: { why: string; isFault: boolean }
}

/** as make/inside.ts says it */
interface Rebuilt {
  failures: string[]
  unbuilt: string[]
}

interface Tried {
  line: string
  warnings: string[]
  isEverywhere: boolean
}

export async function makeRelease(making: Making): Promise<Made> {
  const { shop, tools, kept, version: one, registry, say } = making
  const recipe = kept.recipe ?? withoutRecipe(kept.package)
  const { version } = one
  const tag = `v${version}`
  const told: string[] = []
  const tell = (...lines: readonly string[]) => {
    told.push(...lines)
    for (const line of lines) say.note(line)
  }
  say.stage('lock', `${kept.package} ${version}`)
  const { text, tree } = await makeLockFile(shop, tools, recipe, version, registry)
  const scripts = namesThatMayRun(tree, [...recipe.scripts, ...kept.allowed])
  const before = await treeBefore(shop, kept, version, registry)
  tell(...aboutVersion(kept, one), ...aboutTree(making, tree, scripts), ...differencesOf(before, tree))

  say.stage('fetch', `${tree.length} packages`)
  const work = await fetchPackages(shop, tools, recipe, version, text)
  tell(await signatures(shop, tools, work))
  const file = join(kept.package, mainOf(recipe, await manifestIn(work, kept.package)))
  const wrap = async (shown: ServiceRecord['shown']) =>
    await writeAround(work, { ...kept, shown }, recipe, file, version)
  await wrap(kept.shown)

  const out = join(shop.folder, 'out')
  await mkdir(out, { recursive: true, mode: 0o755 })
  const healthPath = kept.shown?.healthPath ?? null
  const about = { notes: notesOf(kept, one, told), publishedAt: new Date(one.publishedMs ?? 0).toISOString() }
  const asked = { work, tag, out, feed: shop.feed, file: AROUND, scripts, npm: tools.npm, healthPath, ...about }
  const act = async <T>(what: string, where: Parameters<typeof inside>[3]) =>
    await inside<T>(shop, tools, { ...asked, do: what }, where)
  const asPackage = { uid: shop.builder }
  say.stage('addons', scripts.join(', ') || 'no install scripts to run')
  const writes = [join(work, 'node_modules')]
  const { failures, unbuilt } = await act<Rebuilt>('rebuild', { ...asPackage, writes })
  refuseUnbuilt(kept, version, tree, scripts, { failures, unbuilt })
  tell(...failures.map((failure) => `warning: ${failure}`))
  let { shown } = kept
  if (kept.recipe === null) {
    const seen = await seeOnce(making, { failures, unbuilt }, () => act<Seen>('see', asPackage))
    const now = shownNow(kept, seen)
    for (const sentence of now.notes) say.note(`seen: ${sentence}`)
    tell(...now.changes, ...seen.warnings.map((one) => `warning: ${one}`))
    shown = now.shown
  }
  await wrap(shown)

  say.stage('compose', tag)
  // by nobody that a package's code runs as: a root that installs it runs what this has made
  const { sizeBytes } = await act<{ sizeBytes: number }>('compose', { uid: null, writes: [out] })
  say.stage('try', 'starting and switching it once, with an empty state directory')
  const tried = await act<Tried>('try', { ...asPackage, sees: [out] }).catch((cause: unknown) => {
    throw whyTryFailed(cause, { failures, unbuilt })
  })
  tell(`${formatBytes(sizeBytes)}; it ${tried.line}`, ...tried.warnings.map((one) => `warning: ${one}`))
  if (tried.isEverywhere) tell(TO_ONE_HOST)
  return { out, sizeBytes, shown, told }
}

const TO_ONE_HOST =
  'to make it listen only at the `--listen` address, give it that address, for example with `-- --host {host}`, or set `"listensAt": "given-host"` in a recipe'

const MUST_SERVE =
  'only a package that answers over HTTP can be installed; if it needs arguments to do so, add them at the end of the command line, such as `-- serve --port {port}`'

const ON_NOTHING =
  'it starts with an empty state directory: if it needs files there, add them under `files` in a recipe (`--recipe FILE`); if it needs arguments, add them at the end of the command line, such as `-- --data {stateDirectory}`'

/** What does not even serve from its source would not serve as a release. Throws BatonError verify_failed. */
async function seeOnce({ kept, version, say }: Making, rebuilt: Rebuilt, see: () => Promise<Seen>): Promise<Seen> {
  say.stage('see', 'starting it once from source, with an empty state directory')
  const seen = await see()
  if (seen.failed === undefined) return seen
  const { why, isFault } = seen.failed
  const message = `starting ${kept.package} ${version.version} from source: ${why}`
  throw whyTryFailed(new BatonError('verify_failed', message, { hint: isFault ? ON_NOTHING : MUST_SERVE }), rebuilt)
}

/** Only this program writes there: the folder's other files are packages. */
async function writeAround(
  work: string,
  kept: ServiceRecord,
  recipe: Recipe,
  file: string,
  version: string,
): Promise<void> {
  const manifest = manifestOf(kept.service, recipe, version)
  const dependencies = { ...(manifest['dependencies'] as object), 'baton-kit': '*' }
  const files = {
    'package.json': JSON.stringify({ ...manifest, version, dependencies }),
    [AROUND]: aroundText(recipe, file),
    'baton.config.json': JSON.stringify(configOf(kept, recipe)),
  }
  for (const [name, text] of Object.entries(files)) await writeFile(join(work, name), text, { mode: 0o644 })
}

/**
 * Pure. What counts of what a start of its source has shown. It answers where it is seen now; its data stay where an update finds them.
 * `notes` of the first start, `changes` since the last: a sentence each. Throws BatonError invalid_settings.
 */
export function shownNow(
  { package: name, shown: last }: Pick<ServiceRecord, 'package' | 'shown'>,
  { database, healthPath, cwd, otherPorts, notes }: Seen,
): { shown: NonNullable<ServiceRecord['shown']>; notes: string[]; changes: string[] } {
  refuseOtherPorts({ package: name }, otherPorts)
  if (last === null) return { shown: { database, healthPath, cwd }, notes, changes: [] }
  const change = `its health path is now ${healthPath ?? 'none'}; it was ${last.healthPath ?? 'none'}`
  return { shown: { ...last, healthPath }, notes: [], changes: healthPath === last.healthPath ? [] : [change] }
}

/** An install would ask it where it does not listen. Throws BatonError invalid_settings. */
export function refuseOtherPorts({ package: name }: Pick<ServiceRecord, 'package'>, ports: readonly number[]): void {
  if (ports.length === 0) return
  throw new BatonError('invalid_settings', `${name} listens on ${formatPorts(ports)} and ignores PORT`, {
    hint: 'pass the port the way the package expects: as an argument, such as `-- --port {port}` at the end of the command line, or with `args`, `environment`, `files` or `port` in a recipe (`--recipe FILE`)',
  })
}

/** An addon that somebody has named is needed: what lacks it is no release. Throws BatonError refused. */
export function refuseUnbuilt(
  kept: ServiceRecord,
  version: string,
  tree: readonly Locked[],
  scripts: readonly string[],
  { failures, unbuilt }: Rebuilt,
): void {
  const needed = scripts.filter(
    (name) => unbuilt.includes(name) && tree.some((one) => one.name === name && !one.isOptional),
  )
  if (needed.length === 0) return
  const works = newestOf(kept, (one) => compareTags(`v${one}`, `v${version}`) < 0)
  const next =
    works === null
      ? 'if these are installed, an older version may work: `--release X.Y.Z`'
      : `or use the newest version that already works here, ${works}`
  throw new BatonError(
    'refused',
    `the native addons of ${needed.join(', ')} could not be built for ${kept.package} ${version}: ${failures.join('; ')}`,
    { hint: `to build them, install python3, make and a C++ compiler; ${next}` },
  )
}

/** Pure. Why a try failed, as an operator can use it. */
export function whyTryFailed(cause: unknown, { failures, unbuilt }: Rebuilt): BatonError {
  const { code, message, hint } = asBatonError(cause, 'unexpected', 'trying the package')
  const build = `to build what is missing, pass \`--allow-scripts ${unbuilt.join(',')}\``
  const named = namesAddon(message, unbuilt) ? build : hint
  const addons = failures.length === 0 ? '' : `; ${failures.join('; ')}`
  return new BatonError(code, `${message}${addons}`, { cause, ...(named === null ? {} : { hint: named }) })
}

/** Whether an error may be of an addon that is not there: it says so in Node's words or a loader's, or names its package. */
function namesAddon(message: string, unbuilt: readonly string[]): boolean {
  if (unbuilt.length === 0) return false
  const words = /\.node(?![\w.])|\bbindings\b|ERR_DLOPEN|NODE_MODULE_VERSION|build\/Release|node-gyp|prebuilds?\b/
  const isNamed = (name: string) => message.split(/[^\w@./-]+/).some((word) => `/${word}/`.includes(`/${name}/`))
  return words.test(message) || unbuilt.some(isNamed)
}

/** Those of `named` that the tree has. */
function namesThatMayRun(tree: readonly Locked[], named: readonly string[]): string[] {
  const names = new Set(tree.map(({ name }) => name))
  return [...new Set(named)].filter((name) => names.has(name))
}

function aboutVersion({ package: name }: ServiceRecord, one: PackageVersion): string[] {
  const since =
    one.publishedMs === null
      ? 'published on an unknown date'
      : `published ${new Date(one.publishedMs).toISOString().slice(0, 10)}`
  const by = one.publisher === null ? '' : ` by ${one.publisher}`
  const proof = one.hasProvenance
    ? 'with provenance'
    : one.isSigned
      ? 'signed by the registry, without provenance'
      : 'unsigned and without provenance'
  return [`${name} ${one.version}, ${since}${by}, ${proof}`]
}

function aboutTree({ excludesNode }: Making, tree: readonly Locked[], scripts: readonly string[]): string[] {
  const nameOf = ({ name, version }: Locked) => `${name}@${version}`
  const unrun = tree.filter(({ hasScript, name }) => hasScript && !scripts.includes(name)).map(nameOf)
  const foreign = tree.filter(({ node }) => excludesNode(node)).map((one) => `${nameOf(one)} (${one.node})`)
  const list = (all: readonly string[]) => formatNames(all, 8)
  return [
    `${tree.length} packages`,
    ...(scripts.length === 0
      ? []
      : [`install scripts that run, isolated from this host and without network access: ${scripts.join(', ')}`]),
    ...(unrun.length === 0
      ? []
      : [`install scripts that do not run: ${list(unrun)} (to run one, pass \`--allow-scripts NAME\`)`]),
    ...(foreign.length === 0
      ? []
      : [`packages whose \`engines\` exclude the Node version in the release: ${list(foreign)}`]),
  ]
}

async function treeBefore(
  shop: Workshop,
  kept: ServiceRecord,
  version: string,
  registry: string,
): Promise<Locked[] | null> {
  const last = newestOf(kept, (one) => one !== version)
  const text = last === null ? null : await readLock(shop, last)
  return text === null ? null : treeIn(text, registry)
}

function notesOf({ package: name }: ServiceRecord, { version }: PackageVersion, told: readonly string[]): string {
  return [`${name} ${version}, from npm.`, '', ...told.map((line) => `- ${line}`)].join('\n')
}
