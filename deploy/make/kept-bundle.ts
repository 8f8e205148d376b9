// What a clone bundles of its own code, kept for the next build in `.cache/bundles`. The installed package has it ready made.
// Must hold: a file's name contains the hash of all sources that can go in, so a changed source is never missed. A file that cannot be
// read, or that is not whole, is made again.

import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join, relative, resolve, sep } from 'node:path'
import { isObject, parsedJson } from '../../agent/words.ts'
import { PROJECT } from './place.ts'

export interface Bundled {
  script: Uint8Array
  /** absolute paths of what went in */
  sources: Set<string>
}

/** folders and files that decide what is bundled; the lock file stands for the packages */
const SOURCES = ['agent', 'deploy', 'package.json', 'package-lock.json']
/** entries before the oldest goes: each change of a source makes new ones */
const KEPT_MAX = 16

export interface Clone {
  project: string
  /** of all sources as they are now; null for a copy without a lock file */
  hash: Promise<string | null>
}

export function cloneIn(project: string): Clone {
  return { project, hash: hashOf(project).catch(() => null) }
}

/** This clone. Its sources are read once for a process, which runs what it has read. */
let own: Clone | null = null

/** The bundle that this very clone has made before, or the one that `make` makes. */
export async function keptBundle(
  name: string,
  make: () => Promise<Bundled>,
  clone = (own ??= cloneIn(PROJECT)),
): Promise<Bundled> {
  const [{ project }, hash] = [clone, await clone.hash]
  if (hash === null) return await make() // nothing says which packages it has
  const folder = join(project, '.cache', 'bundles')
  const path = join(folder, `${name}-${hash}.json`)
  const kept = parsedJson(await readFile(path, 'utf8').catch(() => ''))
  if (isObject(kept) && typeof kept['script'] === 'string' && Array.isArray(kept['sources'])) {
    const sources = new Set((kept['sources'] as string[]).map((source) => resolve(project, source)))
    return { script: Buffer.from(kept['script']), sources }
  }
  const made = await make()
  const sources = [...made.sources].map((source) => relative(project, source))
  const known = [...SOURCES, 'node_modules'].map((one) => one + sep)
  if (sources.every((source) => known.some((one) => source.startsWith(one)))) {
    const text = JSON.stringify({ script: Buffer.from(made.script).toString(), sources })
    await keep(folder, path, text).catch(() => {}) // a clone that this user may not write in
  }
  return made
}

async function keep(folder: string, path: string, text: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  const partial = `${path}.${randomUUID()}`
  await writeFile(partial, text)
  await rename(partial, path)
  const names = await readdir(folder)
  if (names.length <= KEPT_MAX) return
  const aged = await Promise.all(
    names.map(async (name) => [name, (await stat(join(folder, name)).catch(() => null))?.mtimeMs ?? 0] as const),
  )
  const oldest = aged.toSorted(([, a], [, b]) => b - a).slice(KEPT_MAX)
  for (const [name] of oldest) await rm(join(folder, name), { force: true })
}

async function hashOf(project: string): Promise<string> {
  const paths = await Promise.all(
    SOURCES.map(async (name) => {
      if (!(await stat(join(project, name))).isDirectory()) return [name]
      const entries = await readdir(join(project, name), { recursive: true, withFileTypes: true })
      const files = entries.filter((one) => one.isFile() && !one.parentPath.includes('__pycache__'))
      return files.map((one) => relative(project, join(one.parentPath, one.name)))
    }),
  )
  const hash = createHash('sha256')
  for (const path of paths.flat().toSorted()) {
    const content = await readFile(join(project, path))
    hash.update(`${path}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex').slice(0, 24)
}
