// `baton rebuild`: has the author's package manager build the native addons anew, for the Node that Baton brings, and looks again.
// Must hold: only packages whose addons do not work are built. Root runs no scripts of a folder that another user can change. Without an
// answer of the registry the report says less, and nothing fails.

import { realpath } from 'node:fs/promises'
import { delimiter, dirname, sep } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { ProgressReport } from '../lib/progress.ts'
import { findProgram, formatCommand, run } from '../lib/shell.ts'
import { assertTrusted } from '../lib/trusted.ts'
import { type AddonPackage, type AddonReport, examineAddons, formatAddons } from './addons.ts'
import type { Detected } from './detect.ts'
import { excludesNode } from './engines.ts'
import { filesOf } from './files.ts'
import { packagesOf, readManifest } from './packages.ts'
import { provideHeaders } from './node.ts'
import type { Project } from './project.ts'

export interface RebuildOptions {
  project: Project
  packageManager: Detected['packageManager']
  /** plans, and changes nothing */
  dryRun: boolean
  progress: ProgressReport
}

export interface RebuiltPackage extends Pick<AddonPackage, 'name' | 'version' | 'verdict'> {
  /** one line for a person */
  message: string
  /** why building it failed, or null */
  failure: string | null
  /** what to do next, or null */
  hint: string | null
}

export interface RebuildReport {
  /** the Node that the addons are for */
  node: { version: string; modules: number }
  /** the commands that were run, or would be, as a person would type them */
  commands: string[]
  /** every package with native addons, as it is now */
  packages: RebuiltPackage[]
}

const REBUILD_MS = 30 * 60_000
const VIEW_MS = 20_000
const REASON_MAX_CHARS = 500
/** what an outer npm says of itself, and what would choose an addon for another Node */
const FOREIGN =
  /^(npm_(lifecycle|package|command|execpath|node_execpath).*|npm_config_(target|runtime|disturl|dist_url|nodedir)|node|node_options)$/i

/** Throws BatonError refused or unsupported_host. A package that cannot be built is a line of the report. */
export async function rebuildAddons(options: RebuildOptions): Promise<RebuildReport> {
  const { project, dryRun, progress } = options
  progress.stage('look', project.folder)
  const before = await examineAddons(await filesOf(project))
  progress.end('done', `${before.packages.length} packages with native addons`)
  const ours = await realpath(project.folder)
  const wrong = before.packages.filter(({ verdict }) => verdict !== 'works' && verdict !== 'not-loaded')
  const steps = uniqueByName(wrong.filter((one) => one.canBuild && isInstalled(one)))
  const environment = rebuildEnvironment(before.node.path, steps.length === 0 ? null : await provideHeaders())
  const commands = steps.map((one) => rebuildCommand(options.packageManager, one))
  const typed = commands.map((command) => typedCommand(command, environment))
  const reportOf = (packages: RebuiltPackage[]): RebuildReport => {
    const { version, modules } = before.node
    return { node: { version, modules }, commands: typed, packages }
  }
  const asTheyAre = before.packages.map((one) => rebuilt(one, before, null, ownHint(one, typed)))
  if (dryRun || steps.length === 0) return reportOf(asTheyAre)
  if (options.packageManager !== 'npm' && options.packageManager !== 'pnpm') {
    throw new BatonError(
      'refused',
      `expected a project that npm or pnpm installs, to rebuild ${steps.map(({ name }) => name).join(', ')} in it, found ${options.packageManager}`,
      { hint: typed.map((command) => `\`${command}\``).join(', then ') },
    )
  }
  if ((await findProgram(options.packageManager)) === null)
    throw new BatonError(
      'unsupported_host',
      `expected \`${options.packageManager}\` on PATH, to rebuild with, found none`,
    )
  if (process.geteuid?.() === 0)
    await assertTrusted(ours, 'an application', 'run this as the user that the application belongs to')

  const failures = new Map<string, string>()
  for (const [i, one] of steps.entries()) {
    progress.stage('rebuild', nameOf(one))
    const failure = await failureOf(commands[i] ?? [], project.folder, environment)
    if (failure !== null) failures.set(nameOf(one), failure)
    progress.end(failure === null ? 'done' : 'failed', nameOf(one))
  }
  progress.stage('check')
  const after = await examineAddons(await filesOf(project))
  const packages: RebuiltPackage[] = []
  for (const one of after.packages) {
    const hint =
      one.verdict === 'works' ? null : await nextStep(one, { project, ours, typed, node: after.node.version })
    packages.push(rebuilt(one, after, failures.get(nameOf(one)) ?? null, hint))
  }
  progress.end('done', `${packages.filter(({ verdict }) => verdict === 'works').length} of ${packages.length} work`)
  return reportOf(packages)
}

/** Whether something is left that does not work. What was never built may never be needed. */
export function isLeft({ packages }: RebuildReport): boolean {
  return packages.some(({ verdict, failure }) => verdict === 'other-abi' || verdict === 'fails' || failure !== null)
}

/** The report, line by line, for a person. */
export function formatRebuild({ commands, packages }: RebuildReport, dryRun: boolean): string[] {
  if (packages.length === 0) return ['nothing to do: no native addons go into the release']
  return [
    ...(dryRun ? commands.map((command) => `would run ${command}`) : []),
    ...packages.flatMap(({ message, failure, hint }) => [
      message,
      ...(failure === null ? [] : [`      building it failed: ${failure}`]),
      ...(hint === null ? [] : [`      ${hint}`]),
    ]),
  ]
}

/** The command by which a package manager builds one package anew. Pure. */
export function rebuildCommand(
  packageManager: Detected['packageManager'],
  { name, version }: Pick<AddonPackage, 'name' | 'version'>,
): string[] {
  if (packageManager === 'pnpm') return ['pnpm', 'rebuild', name]
  // yarn 1 and bun have no such command; npm builds what they have installed
  if (packageManager !== 'npm') return ['npm', 'rebuild', name]
  return ['npm', 'rebuild', version === null ? name : `${name}@${version}`, '--ignore-scripts=false']
}

/** What is set for such a command, beside this process's own variables: `node` first on PATH, and its headers. Pure. */
export function rebuildEnvironment(
  node: string,
  headers: string | null,
  outer: NodeJS.ProcessEnv = process.env,
): Record<string, string | undefined> {
  const foreign = Object.keys(outer).filter((name) => FOREIGN.test(name))
  return {
    ...Object.fromEntries(foreign.map((name) => [name, undefined])),
    ...(headers === null ? {} : { npm_config_nodedir: headers }),
    PATH: [dirname(node), outer['PATH'] ?? ''].filter((one) => one !== '').join(delimiter),
  }
}

function typedCommand(command: readonly string[], environment: Record<string, string | undefined>): string {
  const { npm_config_nodedir: headers, PATH: path = '' } = environment
  const [folder = ''] = path.split(delimiter)
  const set = headers === undefined ? [] : [`npm_config_nodedir=${formatCommand([headers])}`]
  return [`PATH=${formatCommand([folder])}:"$PATH"`, ...set, formatCommand(command)].join(' ')
}

/** Null if the command went well, else why not, for a person. */
async function failureOf(
  command: readonly string[],
  cwd: string,
  env: Record<string, string | undefined>,
): Promise<string | null> {
  const { exitCode, stdout, stderr } = await run(command, { cwd, env, allowFailure: true, timeoutMs: REBUILD_MS })
  if (exitCode === 0) return null
  const lines = `${stdout}\n${stderr}`
    .split('\n')
    .map((line) => line.replace(/^npm (error|ERR!) ?/, '').trim())
    .filter((line) => line !== '' && !line.startsWith('command '))
  const log = lines.find((line) => /complete log of this run/.test(line))?.split(': ')[1]
  const compiling = lines.find((line) => /(^|\s)(fatal )?error: /.test(line)) ?? lines.slice(-3).join(' · ')
  const whole = log === undefined ? '' : ` (all of it: ${log})`
  return `${compiling.slice(0, REASON_MAX_CHARS)}${whole}`
}

interface Circumstances {
  project: Project
  /** real path of the project */
  ours: string
  typed: readonly string[]
  /** version of the Node that the addons are for */
  node: string
}

/** What to do about a package that does not work after all was tried. */
async function nextStep(one: AddonPackage, { project, ours, typed, node }: Circumstances): Promise<string | null> {
  if (one.verdict === 'not-loaded') return null
  const own = ownHint(one, typed)
  if (own !== null) return own
  if (!(await realpath(one.folder)).startsWith(`${ours}${sep}node_modules${sep}`) && project.build !== null)
    return `\`build\` of the configuration has copied it: \`npx baton build\` copies it anew`
  return await newerVersion(one, ours, node)
}

/** An addon of the application itself is no package that a package manager could build. */
function ownHint(one: AddonPackage, typed: readonly string[]): string | null {
  if (isInstalled(one) || one.verdict === 'works' || one.verdict === 'not-loaded') return null
  const [like] = typed
  return `it is the application's own: build it with Node 26 first on PATH${like === undefined ? '' : `, as in \`${like}\``}`
}

function isInstalled({ folder }: AddonPackage): boolean {
  return folder.split(sep).includes('node_modules')
}

/** What the registry says of newer versions; null if it says nothing. */
async function newerVersion({ name, version }: AddonPackage, cwd: string, node: string): Promise<string | null> {
  const command = ['npm', 'view', name, 'version', 'engines', '--json']
  const { exitCode, stdout } = await run(command, { cwd, allowFailure: true, timeoutMs: VIEW_MS })
  if (exitCode !== 0) return null
  const latest = latestOf(stdout)
  if (latest === null) return null
  if (latest.version === version) return `${name} ${version} is the newest version that there is`
  if (excludesNode(latest.range, node))
    return `the newest version, ${latest.version}, says that it does not run on Node ${node} (\`engines\`: ${latest.range})`
  const says = latest.range === null ? 'says nothing of Node in `engines`' : `allows it (\`engines\`: ${latest.range})`
  const install = `npm install ${name}@${latest.version}`
  const by = await dependentsOf(name, cwd)
  if (by === null) return `another version might: \`${install}\`, the newest, ${says}`
  return `another version might: ${latest.version}, the newest, ${says}. ${by} asks for this one, so all three: \`${install}\`, \`npm pkg set overrides.${name}='$${name}'\`, \`npm install\`. Then try it with your own client: ${by} was not written for it`
}

/** The packages that ask for `name`, for a person; null if the application itself does, or nobody is found. */
async function dependentsOf(name: string, folder: string): Promise<string | null> {
  if ((await readManifest(folder)).dependencies?.[name] !== undefined) return null
  const { packages } = await packagesOf(folder)
  const asking = packages.filter(({ manifest }) => manifest.dependencies?.[name] !== undefined)
  const names = [...new Set(asking.map(({ manifest }) => manifest.name ?? ''))].filter((one) => one !== '').slice(0, 3)
  return names.length === 0 ? null : names.join(', ')
}

function latestOf(text: string): { version: string; range: string | null } | null {
  let said: unknown
  try {
    said = JSON.parse(text)
  } catch {
    return null
  }
  // a text, if there are no engines
  const { version, engines } = (typeof said === 'string' ? { version: said } : (said ?? {})) as {
    version?: unknown
    engines?: { node?: unknown }
  }
  if (typeof version !== 'string' || !/^\d+\.\d+\.\d+[\w.+-]{0,40}$/.test(version)) return null
  const range = engines?.node
  return { version, range: typeof range === 'string' && range.length <= 100 ? range : null }
}

function rebuilt(
  one: AddonPackage,
  { node }: AddonReport,
  failure: string | null,
  hint: string | null,
): RebuiltPackage {
  const { name, version, verdict } = one
  return { name, version, verdict, message: formatAddons(one, node), failure, hint }
}

function nameOf({ name, version }: Pick<AddonPackage, 'name' | 'version'>): string {
  return version === null ? name : `${name} ${version}`
}

/** One entry for each name and version: a package manager builds every copy at once. */
function uniqueByName(packages: readonly AddonPackage[]): AddonPackage[] {
  return [...new Map(packages.map((one) => [nameOf(one), one])).values()]
}
