// Provides the Node 26 that builds executables and goes into them: the installed package, else one fetched with npm, as a plain
// package of a fixed version from the registry in npm's settings. It keeps the headers of that Node too, for `baton rebuild`.
// Must hold: a fetched Node is the one that the lock file of this project names.

import { hash } from 'node:crypto'
import { constants, existsSync, readFileSync } from 'node:fs'
import { access, chmod, mkdir, readdir, readFile, realpath, rename, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { findProgram, run, runInPlace } from '../lib/shell.ts'
import { END_SIGNALS } from '../lib/signals.ts'
import { xdgFolder } from '../lib/xdg.ts'
import { IS_PACKAGED, PROJECT } from './place.ts'
import { temporaryDirectory } from './temporary.ts'

interface NodePackage {
  name: string
  version: string
  /** as in a lock file: `sha512-<base64>` */
  integrity: string
}

declare const __BATON_NODES__: Record<string, NodePackage> | undefined

export const NODE_MAJOR = 26
const PLATFORM = `${process.platform}-${process.arch}`
const FETCH_MS = 10 * 60_000
/** the names that OpenSSL has for the platforms */
const OPENSSL_SYSTEMS: Record<string, string> = {
  'linux-x64': 'linux-x86_64',
  'linux-arm64': 'linux-aarch64',
  'darwin-x64': 'darwin64-x86_64-cc',
  'darwin-arm64': 'darwin64-arm64-cc',
}

/** Folder that builds share: inside a clone, or in the user's cache. */
export function cacheFolder(): string {
  const { BATON_CACHE } = process.env
  if (BATON_CACHE !== undefined && isAbsolute(BATON_CACHE)) return BATON_CACHE
  if (!IS_PACKAGED) return join(PROJECT, '.cache')
  return join(xdgFolder('XDG_CACHE_HOME', { home: homedir(), environment: process.env }), 'baton')
}

let found: Promise<string> | null = null

/** Absolute path of a Node 26. Throws BatonError unsupported_host, check_failed or verify_failed. */
export function provideNode(): Promise<string> {
  return (found ??= provide())
}

async function provide(): Promise<string> {
  const installed = await installedNode()
  if (installed !== null) return installed
  const wanted = nodePackages()[PLATFORM]
  if (wanted === undefined) {
    if (isRightMajor()) return process.execPath
    throw new BatonError('unsupported_host', `Baton cannot download Node ${NODE_MAJOR} for ${PLATFORM}`, {
      hint: `run this command with Node ${NODE_MAJOR}`,
    })
  }
  const kept = keptNode(wanted)
  if (!(await isExecutable(kept))) await fetchNode(wanted, kept)
  return kept
}

/**
 * Folder with `include/node`, the headers of that Node, as node-gyp expects it in `nodedir`. Null if the Node came without them: then
 * node-gyp fetches them itself. Throws BatonError as `provideNode` does.
 */
export async function provideHeaders(): Promise<string | null> {
  const node = await provideNode()
  const wanted = nodePackages()[PLATFORM]
  const [beside, above] = [dirname(node), dirname(dirname(node))]
  for (const folder of [beside, above]) if (hasHeaders(folder)) return folder
  if (wanted === undefined || node !== keptNode(wanted)) return null
  await fetchNode(wanted, node) // an earlier release of Baton has fetched it, and kept only the executable
  return hasHeaders(beside) ? beside : null
}

/** The version of the Node that Baton brings, without running it: it may not be fetched yet. */
export function broughtVersion(): string {
  return nodePackages()[PLATFORM]?.version ?? process.versions.node
}

function keptNode({ name, version }: NodePackage): string {
  return join(cacheFolder(), 'node', `${name}-${version}`, 'node')
}

function hasHeaders(folder: string): boolean {
  return existsSync(join(folder, 'include', 'node', 'node_version.h'))
}

/** Looks in node_modules of this project or of the author's project. Never takes the host's own Node by accident. */
async function installedNode(): Promise<string | null> {
  const require = createRequire(join(PROJECT, 'package.json'))
  for (const name of [`node-${PLATFORM}`, `node-bin-${PLATFORM}`]) {
    try {
      const node = await realpath(join(dirname(require.resolve(`${name}/package.json`)), 'bin', 'node'))
      if (await isExecutable(node)) return node
    } catch {
      continue
    }
  }
  return null
}

async function fetchNode({ name, version, integrity }: NodePackage, to: string): Promise<void> {
  const npm = await findProgram('npm')
  if (npm === null) throw new BatonError('unsupported_host', '`npm` was not found on PATH, so Node cannot be fetched')
  process.stderr.write(`fetching Node ${version} for ${PLATFORM} (once, about 60 MB)\n`)
  await mkdir(dirname(to), { recursive: true })
  await using work = await temporaryDirectory(dirname(to))
  const said = await run(
    [npm, 'pack', `${name}@${version}`, '--json', '--ignore-scripts', '--pack-destination', work.path],
    {
      cwd: work.path,
      timeoutMs: FETCH_MS,
    },
  ).catch((cause: unknown) => {
    throw new BatonError('check_failed', `fetching ${name}@${version} with npm: ${reasonOf(cause)}`, {
      cause,
      hint: `make sure that this machine can reach npm’s registry, or run \`npm install --save-dev ${name}@${version}\` where it can`,
    })
  })
  const [{ filename = '' } = {}] = JSON.parse(said.stdout.slice(said.stdout.indexOf('['))) as { filename?: string }[]
  const packed = join(work.path, filename)
  const got = `sha512-${hash('sha512', await readFile(packed), 'base64')}`
  if (got !== integrity)
    throw new BatonError('verify_failed', `sha512 of ${name}@${version}: expected ${integrity}, got ${got}`)
  await run(['tar', '-xzf', packed, '-C', work.path, '--no-same-owner'])
  const [node, headers] = [join(work.path, 'package/bin/node'), join(work.path, 'package/include')]
  if (!existsSync(node)) throw new BatonError('verify_failed', `there is no bin/node in ${name}@${version}`)
  await keepHeaders(headers, dirname(to))
  await chmod(node, 0o755)
  await rename(node, to)
}

/** Moves the headers into the folder, without those of OpenSSL for other platforms (64 of 67 MB). Of two builds at once the first wins. */
async function keepHeaders(headers: string, folder: string): Promise<void> {
  const systems = join(headers, 'node', 'openssl', 'archs')
  for (const name of await readdir(systems).catch(() => []))
    if (name !== OPENSSL_SYSTEMS[PLATFORM]) await rm(join(systems, name), { recursive: true })
  if (!existsSync(headers) || hasHeaders(folder)) return
  await rename(headers, join(folder, 'include')).catch((error: unknown) => {
    if (!hasHeaders(folder)) throw error
  })
}

/** Platform -> package, as this project's lock file names it. */
export function nodePackages(): Record<string, NodePackage> {
  if (typeof __BATON_NODES__ !== 'undefined') return __BATON_NODES__
  const lock = JSON.parse(readFileSync(join(PROJECT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version?: string; integrity?: string }>
  }
  const nodes: Record<string, NodePackage> = {}
  for (const [path, { version, integrity }] of Object.entries(lock.packages)) {
    const [, name, platform] = /^node_modules\/(node-(?:bin-)?((?:linux|darwin)-(?:x64|arm64)))$/.exec(path) ?? []
    if (name !== undefined && platform !== undefined && version !== undefined && integrity !== undefined)
      nodes[platform] = { name, version, integrity }
  }
  return nodes
}

export function isRightMajor(): boolean {
  return Number(process.versions.node.split('.')[0]) === NODE_MAJOR
}

async function isExecutable(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
}

/** Runs a script of this kit with Node 26, with this process's terminal; resolves to its exit code. */
export async function runUnderNode(file: string, argv: readonly string[]): Promise<number> {
  const node = isRightMajor() ? process.execPath : await provideNode()
  // this clone's own: the working folder may be an application's
  const loader = file.endsWith('.ts') ? ['--import', import.meta.resolve('tsx')] : []
  // another sender than a terminal knows only this process's pid, and means the program
  const command = [node, '--disable-warning=ExperimentalWarning', ...loader, file, ...argv]
  return await runInPlace(command, {}, END_SIGNALS).catch((cause: unknown) => {
    throw new BatonError('unsupported_host', `running Node ${NODE_MAJOR}: ${reasonOf(cause)}`, { cause })
  })
}
