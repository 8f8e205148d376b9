// Provides the Node that goes into an executable: finds or fetches it, strips it once, keeps it in the cache.
// Must hold: a Node enters the cache only after it ran and printed its version.

import { copyFile, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { findProgram, run } from '../lib/shell.ts'
import { cacheFolder, provideNode } from './node.ts'
import { stripElf } from './strip.ts'
import { temporaryDirectory } from './temporary.ts'

export interface Base {
  /** the Node that builds, unstripped */
  node: string
  /** the Node that goes into the executable */
  executable: string
  version: string
  stripped: boolean
  sizeBytes: { before: number; after: number }
}

let prepared: Promise<Base> | null = null

/** Node 26, stripped. The cache keeps one for each version. */
export function prepareBase(): Promise<Base> {
  return (prepared ??= prepare())
}

async function prepare(): Promise<Base> {
  const node = await provideNode()
  const version = (await run([node, '--version'])).stdout.trim()
  const cached = join(cacheFolder(), 'node', `${version}-${process.platform}-${process.arch}`)
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

/** False if this machine cannot strip this file. */
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
