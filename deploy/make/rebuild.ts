// `baton rebuild`: one `npm rebuild` builds the native addons anew, for the Node that Baton brings. Then it looks again.
// Must hold: only packages whose addons do not work are built. Root runs no scripts of a folder that another user can change.

import { realpath } from 'node:fs/promises'
import { delimiter, dirname, join, sep } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { ProgressReport } from '../lib/progress.ts'
import { findProgram, formatCommand, run } from '../lib/shell.ts'
import { assertTrusted } from '../lib/trusted.ts'
import { type AddonPackage, type AddonReport, examineAddons, formatAddons } from './addons.ts'
import type { Detected } from './detect.ts'
import { filesOf } from './files.ts'
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
  /** the command that was run, or would be, as a person would type it; empty: nothing is to be built */
  commands: string[]
  /** what is said of headers that are not there; null: they are, or nothing is to be built */
  headers: HeadersFault | null
  /** every package with native addons, as it is now */
  packages: RebuiltPackage[]
}

/** Two lines for a person. */
export interface HeadersFault {
  message: string
  hint: string
}

const REBUILD_MS = 30 * 60_000
const REASON_MAX_CHARS = 500
/** what an outer npm says of itself, and what would choose an addon for another Node */
const FOREIGN =
  /^(npm_(lifecycle|package|command|execpath|node_execpath).*|npm_config_(target|runtime|disturl|dist_url|nodedir)|node|node_options)$/i

/** Throws BatonError refused or unsupported_host. A package that cannot be built is a line of the report. */
export async function rebuildAddons(options: RebuildOptions): Promise<RebuildReport> {
  const { project, dryRun, progress } = options
  progress.stage('look', project.folder)
  const before = await examineAddons(await filesOf(project))
  progress.end('done', `packages with native addons: ${before.packages.length}`)
  const ours = await realpath(project.folder)
  const wrong = before.packages.filter(({ verdict }) => verdict !== 'works' && verdict !== 'not-loaded')
  const steps = uniqueByName(wrong.filter((one) => one.canBuild && isInstalled(one)))
  const found = steps.length === 0 ? null : await provideHeaders()
  const headers = steps.length === 0 ? null : headersFault(before.node, found)
  const environment = rebuildEnvironment(before.node.path, found)
  const command = rebuildCommand(options.packageManager, steps)
  const typed = steps.length === 0 ? [] : [typedCommand(command, environment)]
  const reportOf = (packages: RebuiltPackage[]): RebuildReport => {
    const { version, modules } = before.node
    return { node: { version, modules }, commands: typed, headers, packages }
  }
  const asTheyAre = before.packages.map((one) => rebuilt(one, before, null, ownHint(one, typed)))
  if (dryRun || steps.length === 0) return reportOf(asTheyAre)
  if (options.packageManager !== 'npm' && options.packageManager !== 'pnpm') {
    throw new BatonError(
      'refused',
      `rebuilding ${steps.map(({ name }) => name).join(', ')} requires npm or pnpm, but the project uses ${options.packageManager}`,
      { hint: `\`${typed[0]}\`` },
    )
  }
  if ((await findProgram(options.packageManager)) === null)
    throw new BatonError(
      'unsupported_host',
      `\`${options.packageManager}\`, which the rebuild needs, was not found on PATH`,
    )
  if (process.geteuid?.() === 0)
    await assertTrusted(ours, 'an application', 'run this command as the user that owns the application')

  const names = steps.map(nameOf)
  if (headers !== null) progress.note(headers.message)
  progress.stage('rebuild', names.join(', '))
  const failure = await failureOf(command, project.folder, environment)
  progress.end(failure === null ? 'done' : 'failed', names.join(', '))
  progress.stage('check')
  const after = await examineAddons(await filesOf(project))
  const packages = await Promise.all(
    after.packages.map(async (one) => {
      const isHere = one.verdict === 'works' || !names.includes(nameOf(one))
      return rebuilt(one, after, isHere ? null : failure, await nextStep(one, project, ours, typed))
    }),
  )
  progress.end('done', `${packages.filter(({ verdict }) => verdict === 'works').length} of ${packages.length} work`)
  return reportOf(packages)
}

/** Whether something is left that does not work. What was never built may never be needed. */
export function isLeft({ packages }: RebuildReport): boolean {
  return packages.some(({ verdict, failure }) => verdict === 'other-abi' || verdict === 'fails' || failure !== null)
}

/** The report, line by line, for a person. */
export function formatRebuild(report: RebuildReport, dryRun: boolean): string[] {
  const { commands, headers, packages } = report
  if (packages.length === 0) return ['nothing to do: the release will contain no native addons']
  return [
    ...(dryRun ? commands.map((command) => `would run ${command}`) : []),
    ...(headers !== null && isLeft(report) ? [headers.message, `      ${headers.hint}`] : []),
    ...packages.flatMap(({ message, failure, hint }) => [
      message,
      ...(failure === null ? [] : [`      building it failed: ${failure}`]),
      ...(hint === null ? [] : [`      ${hint}`]),
    ]),
  ]
}

/** The command by which a package manager builds the packages anew. Pure. */
export function rebuildCommand(
  packageManager: Detected['packageManager'],
  packages: readonly Pick<AddonPackage, 'name' | 'version'>[],
): string[] {
  const names = packages.map(({ name }) => name)
  if (packageManager === 'pnpm') return ['pnpm', 'rebuild', ...names]
  // yarn 1 and bun have no such command; npm builds what they have installed
  if (packageManager !== 'npm') return ['npm', 'rebuild', ...names]
  const exact = packages.map(({ name, version }) => (version === null ? name : `${name}@${version}`))
  return ['npm', 'rebuild', ...exact, '--ignore-scripts=false']
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

/** What is said of this Node if its headers were not found; null: they were. Pure. */
export function headersFault(
  { path, version }: Pick<AddonReport['node'], 'path' | 'version'>,
  headers: string | null,
): HeadersFault | null {
  if (headers !== null) return null
  const folder = dirname(path)
  const archive = `https://nodejs.org/dist/v${version}/node-v${version}-headers.tar.gz`
  return {
    message: `the headers of Node ${version} are not in ${join(folder, 'include/node')}: to compile, npm fetches them from nodejs.org`,
    hint: `if npm cannot, download them yourself: \`curl -fsSL ${archive} | tar -xz --strip-components=1 -C ${formatCommand([folder])}\``,
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
  const whole = log === undefined ? '' : ` (full log: ${log})`
  return `${compiling.slice(0, REASON_MAX_CHARS)}${whole}`
}

/** What to do about a package that does not work after all was tried; null: its failure says it. */
async function nextStep(
  one: AddonPackage,
  { build }: Project,
  ours: string,
  typed: readonly string[],
): Promise<string | null> {
  const own = ownHint(one, typed)
  if (own !== null || one.verdict === 'works' || one.verdict === 'not-loaded') return own
  if (build === null || (await realpath(one.folder)).startsWith(`${ours}${sep}node_modules${sep}`))
    return 'another build of the package may work with Node 26: reinstall the package with Node 26 first on PATH'
  return `\`build\` in the configuration copied this file: run \`npx baton build\` to copy it again`
}

/** An addon of the application itself is no package that a package manager could build. */
function ownHint(one: AddonPackage, typed: readonly string[]): string | null {
  if (isInstalled(one) || one.verdict === 'works' || one.verdict === 'not-loaded') return null
  const [like] = typed
  return `the addon belongs to the application itself: build it with Node 26 first on PATH${like === undefined ? '' : `, as in \`${like}\``}`
}

function isInstalled({ folder }: AddonPackage): boolean {
  return folder.split(sep).includes('node_modules')
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
