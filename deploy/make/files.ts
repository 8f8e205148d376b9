// Collects the files of an application's release: its folder as it is, and the packages that it needs to run. It finds those by
// the package.json files, as Node would: no network, no second install, native addons as they were built.
// Must hold: a release has no development dependency, no secret file of a developer, and nothing from outside the folder.

import { existsSync } from 'node:fs'
import { readdir, readFile, realpath, stat } from 'node:fs/promises'
import { dirname, join, matchesGlob, relative, sep } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { ArchiveFile } from './archive.ts'
import type { Project } from './project.ts'

/** a developer's own: never packed, from any folder */
const NEVER = ['.git', '.hg', '.svn', '.DS_Store', '.npmrc', '.yarnrc', '.cache', '.idea', '.vscode', '.env', '.baton']
/** what package managers leave in node_modules for themselves */
const NOT_OF_PACKAGES = ['.bin', '.cache', '.package-lock.json', '.modules.yaml', '.yarn-state.yml', '.yarn-integrity']

interface Manifest {
  name?: string
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
}

export async function filesOf(project: Project): Promise<ArchiveFile[]> {
  const files = new Map<string, string>()
  const add = (path: string, source: string) => {
    if (!isExcluded(path, project)) files.set(path, source)
  }
  for (const [to, from] of Object.entries(project.include)) {
    const source = join(project.folder, from)
    const found = await stat(source).catch(() => null)
    if (found === null)
      throw new BatonError(
        'invalid_settings',
        `expected a file or a folder at ${source} (\`include\`), found nothing`,
        {
          hint: 'does `build` of baton.config.json make it?',
        },
      )
    if (found.isFile()) add(to, source)
    else for (const path of await walk(source, source === project.folder)) add(join(to, path), join(source, path))
    if (source === project.folder) for (const [path, file] of await packagesOf(project.folder)) add(path, file)
  }
  return [...files].map(([path, source]) => ({ path, source }))
}

function isExcluded(path: string, { exclude }: Project): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1)
  const isPackage = path.startsWith('node_modules/')
  if (!isPackage && (name.startsWith('.env.') || name.endsWith('.log'))) return true
  return exclude.some((glob) => matchesGlob(path, glob) || path.startsWith(`${glob}/`))
}

/** Paths below `folder`; follows no links. `isProject`: leaves node_modules out, as `packagesOf` finds packages by name. */
async function walk(folder: string, isProject: boolean, below = ''): Promise<string[]> {
  const paths: string[] = []
  for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`
    if (NEVER.includes(entry.name) || (isProject && entry.name === 'node_modules')) continue
    if (below.endsWith('node_modules') && NOT_OF_PACKAGES.includes(entry.name)) continue
    if (entry.isDirectory()) paths.push(...(await walk(folder, isProject, path)))
    else if (entry.isFile() || entry.isSymbolicLink()) paths.push(path)
  }
  return paths
}

/** Path in the archive -> file on disk, for every package that `folder` needs to run. */
async function packagesOf(folder: string): Promise<Map<string, string>> {
  const root = await realpath(folder)
  const files = new Map<string, string>()
  const seen = new Set<string>()
  const missing: string[] = []
  const visit = async (from: string, isRoot: boolean): Promise<void> => {
    if (seen.has(from)) return
    seen.add(from)
    const manifest = await readManifest(from)
    if (!isRoot) await addPackage(root, from, files)
    const required = new Set(Object.keys(manifest.dependencies ?? {}))
    for (const name of Object.keys(manifest.optionalDependencies ?? {})) required.delete(name)
    const names = [manifest.dependencies, manifest.optionalDependencies, manifest.peerDependencies]
    for (const name of new Set(names.flatMap((some) => Object.keys(some ?? {})))) {
      const at = find(name, from)
      if (at === null) {
        if (required.has(name)) missing.push(`${name} (of ${manifest.name ?? from})`)
        continue
      }
      const real = await realpath(at)
      // with pnpm, Node finds a link to the package's real folder
      if (real !== at && isInside(root, at)) files.set(toArchive(root, at), at)
      await visit(real, false)
    }
  }
  await visit(root, true)
  if (missing.length > 0) {
    throw new BatonError('invalid_settings', `expected installed packages, missing: ${missing.join(', ')}`, {
      hint: 'install the dependencies first (`npm ci`)',
    })
  }
  return files
}

/** Climbs as Node does: https://nodejs.org/api/modules.html#loading-from-node_modules-folders */
function find(name: string, from: string): string | null {
  for (let folder = from; ; folder = dirname(folder)) {
    const at = join(folder, 'node_modules', name)
    if (existsSync(join(at, 'package.json'))) return at
    if (dirname(folder) === folder) return null
  }
}

async function addPackage(root: string, folder: string, files: Map<string, string>): Promise<void> {
  if (!isInside(root, folder)) {
    throw new BatonError('invalid_settings', `expected every package inside ${root}, found ${folder}`, {
      hint: 'in a workspace build with an installed copy of the application (`pnpm deploy`, or `npm install --install-links`), or name a bundled folder in `include`',
    })
  }
  for (const path of await walk(folder, true)) {
    // what only builds need of us
    if (/^lib\/(build|bin)\//.test(path) && folder.endsWith(join('node_modules', 'baton-kit'))) continue
    files.set(toArchive(root, join(folder, path)), join(folder, path))
  }
}

async function readManifest(folder: string): Promise<Manifest> {
  const text = await readFile(join(folder, 'package.json'), 'utf8').catch(() => '{}')
  try {
    return JSON.parse(text) as Manifest
  } catch (cause) {
    throw new BatonError('invalid_settings', `expected JSON in ${join(folder, 'package.json')}`, { cause })
  }
}

function isInside(root: string, path: string): boolean {
  return path === root || path.startsWith(root + sep)
}

function toArchive(root: string, path: string): string {
  return relative(root, path).replaceAll(sep, '/')
}
