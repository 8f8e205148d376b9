// Says of each native addon that goes into a release whether the Node that Baton brings can load it: that Node loads it, in a separate
// process, which may crash.
// Must hold: an addon is never loaded into this process. Root loads nothing that another user can change.

import { existsSync } from 'node:fs'
import { open, readFile, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { runBounded } from '../../agent/install.ts'
import { BatonError, type ReleaseKind } from '../../agent/words.ts'
import { formatBytes } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { temporaryFolder, trustIn, whoCanChange } from '../lib/trusted.ts'
import type { ArchiveFile } from './archive.ts'
import { provideNode } from './node.ts'
import { above, packageRootOf, readManifest } from './packages.ts'

/** the Node that goes into an executable */
export interface BroughtNode {
  /** absolute path */
  path: string
  version: string
  /** as `process.platform` */
  platform: string
  /** as `process.arch` */
  arch: string
  /** `process.versions.modules`: the ABI that addons must have, unless they use Node-API */
  modules: number
}

/** `node-api`: fits every Node. A number: only a Node of this ABI (`process.versions.modules`). `untold`: its file does not say. */
export type AddonAbi = 'node-api' | 'untold' | number

/**
 * `fails`: its ABI fits, and loading it fails or ends the process. `not-loaded`: its ABI fits, and root may not try it. `not-built`:
 * the package says how an addon is built, and has none.
 */
export type AddonVerdict = 'works' | 'not-loaded' | 'not-built' | 'fails' | 'other-abi'

export interface Addon {
  /** path in the release */
  path: string
  abi: AddonAbi
  verdict: AddonVerdict
  /** why it was not loaded */
  reason: string | null
}

export interface AddonPackage {
  name: string
  version: string | null
  /** on this disk */
  folder: string
  addons: Addon[]
  /** the worst of its addons */
  verdict: AddonVerdict
  /** whether it says how it is built */
  canBuild: boolean
}

export interface AddonReport {
  node: BroughtNode
  packages: AddonPackage[]
}

const VERDICTS: readonly AddonVerdict[] = ['works', 'not-loaded', 'not-built', 'fails', 'other-abi']
const FILE_MAX_BYTES = 1024 * 1024 * 1024
const LOAD_MS = 30_000
const REASON_MAX_CHARS = 300
/** a reason quotes the addon's path, which may be long */
const ANSWER_MAX_CHARS = 10_000
/** Node says this of an addon that registers itself by a constructor */
const COMPILED_FOR = /using\s+NODE_MODULE_VERSION (\d{1,6})\./
/** Node says this of what registers nothing for it: an addon for another ABI, or no addon */
const REGISTERS_NOTHING = /did not self-register/
/** the loaders say this of what was made for musl, and of other processors' on macOS */
const FOREIGN = /\blibc\.musl-|\blibc\.so: |not a mach-o file|incompatible architecture/
/** the name of the function that Node calls ends with the ABI */
const REGISTERS = 'node_register_module_v'
const ELF_MACHINES: Record<string, number> = { x64: 62, arm64: 183 }

/** Looks at every addon among `files`, the files of a release, that this host could load. */
export async function examineAddons(files: readonly ArchiveFile[]): Promise<AddonReport> {
  const node = await broughtNode()
  const packages: AddonPackage[] = []
  const optional = new Map<AddonPackage, string[]>()
  for (const [folder, own] of byPackage(files.filter(({ path }) => /\.node$|(^|\/)binding\.gyp$/.test(path)))) {
    const addons: Addon[] = []
    for (const alternatives of await candidatesAmong(own, node)) {
      const best = await bestOf(alternatives, node)
      if (best !== null) addons.push(best)
    }
    const hasRecipe = own.some(({ source }) => source === join(folder, 'binding.gyp'))
    if (addons.length === 0 && !hasRecipe) continue
    const manifest = await readManifest(folder)
    const { install, preinstall, postinstall } = manifest.scripts ?? {}
    const one: AddonPackage = {
      name: manifest.name ?? basename(folder),
      version: manifest.version ?? null,
      folder,
      addons,
      verdict: worstOf(addons),
      canBuild: hasRecipe || [install, preinstall, postinstall].some((script) => script !== undefined),
    }
    packages.push(one)
    optional.set(one, Object.keys(manifest.optionalDependencies ?? {}))
  }
  // a package may have its addons in others, one for each platform
  const isElsewhere = (one: AddonPackage) =>
    one.addons.length === 0 &&
    packages.some(({ name, addons }) => addons.length > 0 && optional.get(one)?.includes(name))
  return { node, packages: packages.filter((one) => !isElsewhere(one)) }
}

function worstOf(addons: readonly Addon[]): AddonVerdict {
  if (addons.length === 0) return 'not-built'
  return VERDICTS.findLast((one) => addons.some(({ verdict }) => verdict === one)) ?? 'works'
}

/** One line for a person, such as `better-sqlite3 11.1.2 is built for ABI 115 (Node 20), expected 147 (Node 26.10.0)`. */
export function formatAddons({ name, version, addons, verdict }: AddonPackage, node: BroughtNode): string {
  const named = version === null ? name : `${name} ${version}`
  const worst = addons.find((addon) => addon.verdict === verdict)
  if (verdict === 'works') return `${named} works${worst?.abi === 'node-api' ? ' (Node-API)' : ''}`
  if (verdict === 'other-abi')
    return `${named} is built for ${abiOf(worst?.abi)}, expected ${node.modules} (Node ${node.version})`
  if (verdict === 'not-built') return `${named} has not been built for this platform`
  const failed = verdict === 'fails' ? 'cannot be loaded' : 'was not loaded'
  return `${named} ${failed}: ${worst?.path ?? ''}: ${worst?.reason ?? 'no reason given'}`
}

/** of the Nodes that people still have: https://nodejs.org/api/n-api.html names the list */
const MAJORS: Record<number, number> = { 108: 18, 115: 20, 127: 22, 131: 23, 137: 24, 141: 25 }

function abiOf(abi: AddonAbi | undefined): string {
  const major = typeof abi === 'number' ? MAJORS[abi] : undefined
  return `ABI ${abi ?? 'unknown'}${major === undefined ? '' : ` (Node ${major})`}`
}

/** The warning about `packages`, which have native addons, in a release of one script, which holds none; null for no packages. */
export function formatLeftOut(kind: ReleaseKind, packages: readonly string[]): string | null {
  return packages.length === 0
    ? null
    : `a ${kind} release cannot contain native addons, but these packages have them: ${packages.join(', ')}`
}

export function addonHint({ packages }: AddonReport): string | null {
  const bad = packages.filter(({ verdict }) => verdict !== 'works' && verdict !== 'not-loaded')
  if (bad.length === 0) return null
  if (bad.some(({ canBuild }) => canBuild))
    return 'run `npx baton rebuild` to build native addons for the release’s Node; if your own Node cannot load them afterwards, start the application with `npx baton dev`'
  return `install another version of ${bad.map(({ name }) => name).join(', ')}, or use \`exclude\` to leave out what the application does not need`
}

/** Throws BatonError verify_failed that names each package whose addon is built for another Node. */
export function refuseOtherAbis(report: AddonReport): void {
  const bad = report.packages.filter(({ verdict }) => verdict === 'other-abi')
  if (bad.length === 0) return
  const hint = addonHint({ ...report, packages: bad })
  throw new BatonError(
    'verify_failed',
    `native addons: ${bad.map((one) => formatAddons(one, report.node)).join('; ')}`,
    hint === null ? {} : { hint },
  )
}

async function broughtNode(): Promise<BroughtNode> {
  const path = await provideNode()
  const script = `const { version, versions: { modules }, platform, arch } = process
    console.log(JSON.stringify({ version: version.slice(1), modules: Number(modules), platform, arch }))`
  const { stdout } = await run([path, '-e', script], { env: { NODE_OPTIONS: undefined }, timeoutMs: LOAD_MS })
  return { path, ...(JSON.parse(stdout) as Omit<BroughtNode, 'path'>) }
}

/** Folder of a package on this disk -> its files. What is in no package is in that of the application. */
function byPackage(files: readonly ArchiveFile[]): Map<string, ArchiveFile[]> {
  const packages = new Map<string, ArchiveFile[]>()
  for (const file of files) {
    const root = packageRootOf(file.path)
    const folder = root === null ? applicationOf(file.source) : file.source.slice(0, root.length - file.path.length)
    packages.set(folder, [...(packages.get(folder) ?? []), file])
  }
  return packages
}

function applicationOf(source: string): string {
  return above(dirname(source), (folder) => existsSync(join(folder, 'package.json'))) ?? dirname(source)
}

/**
 * The addons of one package that this host could load. A package may bring one addon several times, of which it chooses one when it
 * is loaded: those are alternatives.
 */
async function candidatesAmong(files: readonly ArchiveFile[], node: BroughtNode): Promise<ArchiveFile[][]> {
  const found: ArchiveFile[] = []
  for (const file of files) {
    // the compiler's intermediate files
    if (!file.path.endsWith('.node') || file.path.includes('/obj.target/')) continue
    const { size } = await stat(file.source)
    if (size > FILE_MAX_BYTES)
      throw new BatonError(
        'invalid_settings',
        `expected ${file.path} to be at most ${formatBytes(FILE_MAX_BYTES)}, got ${formatBytes(size)}`,
      )
    if (await isMadeFor(node, file.source)) found.push(file)
  }
  const isBuilt = found.some(({ path }) => /(^|\/)build\/(Release|Debug)\//.test(path))
  const groups = new Map<string, ArchiveFile[]>()
  for (const candidate of found) {
    const isPrebuilt = /(^|\/)prebuilds\//.test(candidate.path)
    // node-gyp-build looks into prebuilds/ only if nothing was built
    if (isPrebuilt && isBuilt) continue
    const group = isPrebuilt ? dirname(candidate.path) : basename(candidate.path)
    groups.set(group, [...(groups.get(group) ?? []), candidate])
  }
  return [...groups.values()]
}

/** False for what another system or processor needs: an ELF file's first bytes say so. On macOS the loader says it. */
async function isMadeFor({ platform, arch }: BroughtNode, source: string): Promise<boolean> {
  if (platform !== 'linux') return true
  await using file = await open(source)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(20), 0, 20, 0)
  return bytesRead === 20 && buffer.readUInt32BE(0) === 0x7f454c46 && buffer.readUInt16LE(18) === ELF_MACHINES[arch]
}

/** Null if none of them is an addon for this system. */
async function bestOf(alternatives: readonly ArchiveFile[], node: BroughtNode): Promise<Addon | null> {
  let best: Addon | null = null
  for (const candidate of alternatives) {
    const addon = await tried(candidate, node)
    if (addon === null) continue
    if (best === null || VERDICTS.indexOf(addon.verdict) < VERDICTS.indexOf(best.verdict)) best = addon
    if (best.verdict === 'works') break
  }
  return best
}

/** Null if it is no addon, or one for another C library or processor. */
async function tried({ path, source }: ArchiveFile, node: BroughtNode): Promise<Addon | null> {
  const abi = registeredIn(await readFile(source), node.modules)
  if (process.geteuid?.() === 0) {
    const trust = await trustIn(source)
    if (!trust.trusted) {
      const reason = `root does not load files that another user can change, and ${whoCanChange(trust)} can change ${trust.at}`
      return { path, abi, verdict: 'not-loaded', reason }
    }
  }
  const reason = await loadReason(source, node.path)
  if (reason === null) return { path, abi, verdict: 'works', reason }
  if (FOREIGN.test(reason) || (abi === 'untold' && REGISTERS_NOTHING.test(reason))) return null
  const told = COMPILED_FOR.exec(reason)?.[1]
  const other = told === undefined ? abi : Number(told)
  if (typeof other === 'number' && other !== node.modules)
    return { path, abi: other, verdict: 'other-abi', reason: null }
  return { path, abi, verdict: 'fails', reason }
}

/** What an addon's file says by the names of the functions that Node calls: https://nodejs.org/api/addons.html#context-aware-addons */
function registeredIn(file: Buffer, modules: number): AddonAbi {
  if (['napi_register_module_v1\0', 'napi_module_register\0'].some((name) => file.includes(name))) return 'node-api'
  if (file.includes(`${REGISTERS}${modules}\0`)) return modules
  const at = file.indexOf(REGISTERS)
  const [, abi] =
    at < 0 ? [] : (/^(\d{1,6})\0/.exec(file.toString('latin1', at + REGISTERS.length, at + REGISTERS.length + 7)) ?? [])
  return abi === undefined ? 'untold' : Number(abi)
}

/** Loads the addon in a separate process. Null if that goes well, else why not. */
async function loadReason(addon: string, node: string): Promise<string | null> {
  // a crash may leave a file behind in the process's working directory
  await using place = await temporaryFolder('baton-addon-')
  const script = `let reason = ''
    try { process.dlopen({ exports: {} }, process.argv[1]) } catch (error) { reason = error.message.slice(0, ${ANSWER_MAX_CHARS}) }
    require('node:fs').writeSync(3, '<' + reason + '>')
    process.reallyExit(0)`
  const ran = await runBounded([node, '-e', script, addon], {
    cwd: place.path,
    env: { PATH: process.env['PATH'] },
    timeMs: LOAD_MS,
    answer: { fd: 3, max: 2 * ANSWER_MAX_CHARS },
    said: { last: REASON_MAX_CHARS },
    group: 'own',
  })
  const [, reason] = /^<(.*)>$/s.exec(ran.answer) ?? []
  if (reason !== undefined) return reason === '' ? null : oneLine(reason.replaceAll(addon, basename(addon)))
  if (ran.stopped === 'late') return `it was still loading after ${LOAD_MS / 1000} s`
  const lastWords = ran.said.trim().split('\n')[0] ?? ''
  const ended = ran.signal ?? `exit code ${ran.code}`
  return `the process ended (${ended}) while loading it${lastWords === '' ? '' : `: ${oneLine(lastWords)}`}`
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, REASON_MAX_CHARS)
}
