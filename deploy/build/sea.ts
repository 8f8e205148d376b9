// Makes a Node single executable application: a stripped Node 26 with the bundle inside.
// Must hold: the base is stripped before the bundle goes in (after it: SIGSEGV); no code cache (its bytes differ each time);
// no absolute path goes into the file. So the same bundle and the same Node give the same bytes.

import { constants, rmSync } from 'node:fs'
import {
  access,
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { PROJECT } from './bundle.ts'
import { findProgram, run } from '../lib/shell.ts'
import { stripElf } from './strip.ts'

export interface Base {
  /** the Node that builds, unstripped */
  node: string
  /** the Node that goes into the executable */
  executable: string
  version: string
  stripped: boolean
  sizeBytes: { before: number; after: number }
}

const NODE_MAJOR = 26
const CACHE = join(PROJECT, '.cache')

let prepared: Promise<Base> | null = null

/** The Node 26 of node_modules, stripped and kept in `.cache` by version. */
export function prepareBase(): Promise<Base> {
  return (prepared ??= prepare())
}

async function prepare(): Promise<Base> {
  const node = await findNode()
  const version = (await run([node, '--version'])).stdout.trim()
  const cached = join(CACHE, 'node', `${version}-${process.platform}-${process.arch}`)
  const executable = join(cached, 'node')
  const before = (await stat(node)).size
  const found = await stat(executable).catch(() => null)
  if (found !== null) return { node, executable, version, stripped: true, sizeBytes: { before, after: found.size } }

  await mkdir(cached, { recursive: true })
  await using work = await temporaryDirectory(cached)
  const candidate = join(work.path, 'node')
  if (!(await strip(node, candidate)))
    return { node, executable: node, version, stripped: false, sizeBytes: { before, after: before } }
  const says = await run([candidate, '--version'], { allowFailure: true })
  if (says.stdout.trim() !== version) {
    throw new BatonError(
      'unexpected',
      `the stripped Node does not run: expected ${version}, got ${JSON.stringify(says.stdout.trim())}`,
    )
  }
  const after = (await stat(candidate)).size
  await rename(candidate, executable)
  return { node, executable, version, stripped: true, sizeBytes: { before, after } }
}

/** Writes `output`: the base with `bundle` inside. */
export async function injectBundle(base: Base, bundle: Uint8Array, output: string): Promise<void> {
  await using work = await temporaryDirectory(dirname(output))
  // Relative names, and the same ones each time: the path of the main script is stored in the executable.
  await writeFile(join(work.path, 'main.cjs'), bundle)
  await writeFile(
    join(work.path, 'sea.json'),
    JSON.stringify({
      main: 'main.cjs',
      mainFormat: 'commonjs',
      executable: base.executable,
      output: 'executable',
      disableExperimentalSEAWarning: true,
      useCodeCache: false,
      useSnapshot: false,
      execArgv: ['--disable-warning=ExperimentalWarning'],
      execArgvExtension: 'none', // NODE_OPTIONS and the like stay without effect on the service's executable
    }),
  )
  await run([base.node, '--build-sea', 'sea.json'], { cwd: work.path, env: { NODE_OPTIONS: undefined } })
  const built = join(work.path, 'executable')
  await chmod(built, 0o755)
  if (process.platform === 'darwin') await run(['codesign', '--sign', '-', '--force', built])
  await rename(built, output)
}

/** Runs the executable and holds what it says against what it must say. */
export async function checkVersion(executable: string, expected: string): Promise<void> {
  const { stdout, stderr, exitCode } = await run([executable, '--version'], { allowFailure: true, timeoutMs: 30_000 })
  if (exitCode === 0 && stdout === `${expected}\n`) return
  const got = `${JSON.stringify(stdout.slice(0, 200))} and exit code ${exitCode}`
  throw new BatonError(
    'unexpected',
    `running the executable with --version: expected \`${expected}\`, got ${got} ${stderr.slice(0, 500)}`,
  )
}

const temporaries = new Set<string>()

/** A fresh directory inside `parent` that goes away with its scope. */
export async function temporaryDirectory(parent: string): Promise<AsyncDisposable & { path: string }> {
  await mkdir(parent, { recursive: true })
  const path = await mkdtemp(join(parent, '.partial-'))
  temporaries.add(path)
  const remove = async () => {
    await rm(path, { recursive: true, force: true })
    temporaries.delete(path)
  }
  return { path, [Symbol.asyncDispose]: remove }
}

/** For a process that is about to be ended by a signal: scopes do not end then. */
export function removeTemporaries(): void {
  for (const path of temporaries) rmSync(path, { recursive: true, force: true })
}

/** The Node 26 that `npm ci` installed, else the one that runs this. Never the host's own by accident. */
async function findNode(): Promise<string> {
  const require = createRequire(import.meta.url)
  const platform = `${process.platform}-${process.arch}`
  for (const name of [`node-${platform}`, `node-bin-${platform}`]) {
    try {
      const node = await realpath(join(dirname(require.resolve(`${name}/package.json`)), 'bin', 'node'))
      await access(node, constants.X_OK)
      return node
    } catch {
      continue
    }
  }
  if (Number(process.versions.node.split('.')[0]) === NODE_MAJOR) return process.execPath
  throw new BatonError('unsupported_host', `expected Node ${NODE_MAJOR} in node_modules for ${platform}, got none`, {
    hint: `run \`npm ci --ignore-scripts\`, or run this with Node ${NODE_MAJOR}`,
  })
}

/** False where this machine cannot strip this file. */
async function strip(node: string, output: string): Promise<boolean> {
  try {
    const stripped = stripElf(await readFile(node))
    if (stripped !== null) {
      await writeFile(output, stripped, { mode: 0o755 })
      return true
    }
    if ((await findProgram('strip')) === null) return false
    await copyFile(node, output)
    await run(['strip', ...(process.platform === 'darwin' ? ['-x'] : []), output])
    return true
  } catch (cause) {
    throw new BatonError('unexpected', `stripping ${node}: ${reasonOf(cause)}`, { cause })
  }
}
