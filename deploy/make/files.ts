// Collects the files of an application's release: its folder as it is, and the packages that it needs to run, as they are installed:
// no network, no second install, native addons as they were built.
// Must hold: a release has no development dependency, no secret file of a developer, and nothing from outside the folder.

import { lstat, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises'
import { isAbsolute, join, matchesGlob, posix } from 'node:path'
import { isDatabase } from '../../agent/install.ts'
import { BatonError, formatNames } from '../../agent/words.ts'
import type { ArchiveFile } from './archive.ts'
import { isInside, layoutFault, packageWith, toArchive } from './layout.ts'
import { packagesOf } from './packages.ts'
import { CONFIG, type Project } from './project.ts'

/** a developer's own: never packed, from any folder */
const NEVER = ['.git', '.hg', '.svn', '.DS_Store', '.npmrc', '.yarnrc', '.cache', '.idea', '.vscode', '.env', '.baton']
/** what package managers leave in node_modules for themselves */
const NOT_OF_PACKAGES = ['.bin', '.cache', '.package-lock.json', '.modules.yaml', '.yarn-state.yml', '.yarn-integrity']
/** how many paths a message names */
const NAMED_MAX = 5

/** `leftOut`: called with each folder that stays out because releases are published into it. */
export async function filesOf(project: Project, leftOut: (folder: string) => void = () => {}): Promise<ArchiveFile[]> {
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
          hint: 'check that `build` in baton.config.json creates it',
        },
      )
    if (found.isFile()) add(to, source)
    else
      for (const path of await walk(source, source === project.folder, leftOut))
        if (!isOwnDatabase(join(to, path), project)) add(join(to, path), join(source, path))
    if (source === project.folder) for (const [path, file] of await packageFiles(project)) add(path, file)
  }
  return [...files].map(([path, source]) => ({ path, source }))
}

/** Paths of the author's own links that point to nothing in a release: on a host they find something else, or nothing. */
export async function linksOut(files: readonly ArchiveFile[]): Promise<string[]> {
  const out: string[] = []
  for (const { path, source } of files) {
    if (/(^|\/)node_modules\//.test(path) || !(await lstat(source)).isSymbolicLink()) continue
    const to = await readlink(source)
    if (isAbsolute(to) || posix.join(posix.dirname(path), to).startsWith('..')) out.push(path)
  }
  return out
}

/** Paths of SQLite databases among the author's own files: a copy of a service's data would be in every release. */
export async function databasesOf(files: readonly ArchiveFile[]): Promise<string[]> {
  const found: string[] = []
  for (const { path, source } of files) {
    if (/(^|\/)node_modules\//.test(path) || !(await lstat(source)).isFile()) continue
    if (await isDatabase(source)) found.push(path)
  }
  return found
}

/** A sentence about `databasesOf`; null for none. */
export function formatDatabases(paths: readonly string[]): string | null {
  if (paths.length === 0) return null
  const are = paths.length === 1 ? 'a database goes' : `${paths.length} databases go`
  return `${are} into the release, with all the data: ${formatNames(paths, NAMED_MAX)}`
}

/** A sentence about `linksOut`; null for none. */
export function formatLinksOut(links: readonly string[]): string | null {
  if (links.length === 0) return null
  return `${links.length === 1 ? 'a link points' : `${links.length} links point`} outside the release: ${formatNames(links, NAMED_MAX)}; files outside it are not packed`
}

function isExcluded(path: string, { exclude }: Project): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1)
  const isPackage = path.startsWith('node_modules/')
  if (path === CONFIG) return true // what `try` says is no release's
  if (!isPackage && (name.startsWith('.env.') || name.endsWith('.log'))) return true
  return exclude.some((glob) => matchesGlob(path, glob) || path.startsWith(`${glob}/`))
}

/** What the author's own runs have left where an install has its data. A file that `include` names is packed. */
function isOwnDatabase(path: string, { database }: Project): boolean {
  return database !== null && path.replace(/-(wal|shm|journal)$/, '') === posix.normalize(database)
}

/** Paths below `folder`; follows no links. `isProject`: leaves node_modules out, as `packageFiles` finds packages by name. */
async function walk(
  folder: string,
  isProject: boolean,
  leftOut: (folder: string) => void = () => {},
  below = '',
): Promise<string[]> {
  const paths: string[] = []
  for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`
    if (NEVER.includes(entry.name) || (isProject && entry.name === 'node_modules')) continue
    if (below.endsWith('node_modules') && NOT_OF_PACKAGES.includes(entry.name)) continue
    const isOut = entry.isDirectory() && isProject && (await isFeed(join(folder, path)))
    if (isOut) leftOut(path)
    else if (entry.isDirectory()) paths.push(...(await walk(folder, isProject, leftOut, path)))
    else if (entry.isFile() || entry.isSymbolicLink()) paths.push(path)
  }
  return paths
}

/** Whether releases are published here: each release would have all the former ones in it. */
async function isFeed(folder: string): Promise<boolean> {
  const text = await readFile(join(folder, 'releases.json'), 'utf8').catch(() => null)
  if (text === null) return false
  return /^\{\s*"format": 1,\s*"releases": \[/.test(text) // as `updateReleases` writes it
}

/** Path in the archive -> file on disk, for every package that the application needs to run. */
async function packageFiles({ folder, entry }: Project): Promise<Map<string, string>> {
  const root = await realpath(folder)
  const files = new Map<string, string>()
  const found = await packagesOf(root, packageWith(root, entry))
  const fault = await layoutFault(root, entry, found)
  if (fault !== null) throw fault
  const { packages, links, missing } = found
  for (const one of packages) await addPackage(root, one.folder, files)
  for (const at of links) if (isInside(root, at)) files.set(toArchive(root, at), at)
  if (missing.length > 0) {
    throw new BatonError('invalid_settings', `these packages are not installed: ${missing.join(', ')}`, {
      hint: 'install the dependencies first (`npm ci`)',
    })
  }
  return files
}

async function addPackage(root: string, folder: string, files: Map<string, string>): Promise<void> {
  for (const path of await walk(folder, true)) {
    // the part of the kit that only builds need
    if (/^lib\/(build|bin)\//.test(path) && folder.endsWith(join('node_modules', 'baton-kit'))) continue
    files.set(toArchive(root, join(folder, path)), join(folder, path))
  }
}
