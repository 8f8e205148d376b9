// Provides the Node 26 that builds executables and goes into them: the installed package, else one fetched with npm, as a plain
// package of a fixed version from the registry in npm's settings. Must hold: a fetched Node is the one that the lock file of this
// project names.

import { createHash } from 'node:crypto'
import { constants, readFileSync } from 'node:fs'
import { access, chmod, mkdir, readFile, realpath, rename, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { BatonError } from '../../agent/words.ts'
import { findProgram, run } from '../lib/shell.ts'
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

/** Folder that builds share: inside a clone, or in the user's cache. */
export function cacheFolder(): string {
  const { BATON_CACHE, XDG_CACHE_HOME } = process.env
  if (BATON_CACHE !== undefined && isAbsolute(BATON_CACHE)) return BATON_CACHE
  if (!IS_PACKAGED) return join(PROJECT, '.cache')
  return join(
    XDG_CACHE_HOME !== undefined && isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(homedir(), '.cache'),
    'baton',
  )
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
    throw new BatonError('unsupported_host', `there is no Node ${NODE_MAJOR} for ${PLATFORM} to build with`, {
      hint: `run this with Node ${NODE_MAJOR}`,
    })
  }
  const kept = join(cacheFolder(), 'node', `${wanted.name}-${wanted.version}`, 'node')
  if (!(await isExecutable(kept))) await fetchNode(wanted, kept)
  return kept
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
  if (npm === null) throw new BatonError('unsupported_host', 'expected `npm` on PATH, to fetch Node with')
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
    throw new BatonError('check_failed', `fetching ${name}@${version} with npm`, { cause })
  })
  const [{ filename = '' } = {}] = JSON.parse(said.stdout.slice(said.stdout.indexOf('['))) as { filename?: string }[]
  const packed = await readFile(join(work.path, filename))
  const got = `sha512-${createHash('sha512').update(packed).digest('base64')}`
  if (got !== integrity)
    throw new BatonError('verify_failed', `sha512 of ${name}@${version}: expected ${integrity}, got ${got}`)
  const node = fileOf(gunzipSync(packed), 'package/bin/node')
  if (node === null) throw new BatonError('verify_failed', `expected bin/node in ${name}@${version}, found none`)
  const partial = join(work.path, 'node')
  await writeFile(partial, node)
  await chmod(partial, 0o755)
  await rename(partial, to)
}

/** One file of a tar. */
function fileOf(tar: Buffer, path: string): Buffer | null {
  for (let at = 0; at + 512 <= tar.length && tar[at] !== 0;) {
    const name = tar.toString('utf8', at, tar.indexOf(0, at))
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8)
    if (name === path) return tar.subarray(at + 512, at + 512 + size)
    at += 512 + Math.ceil(size / 512) * 512
  }
  return null
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
