// Finds the packages that an application needs to run, by the package.json files, as Node would: no network, no package manager.
// Must hold: it starts on every Node that the package supports, because `baton init` asks it.

import { existsSync } from 'node:fs'
import { readFile, realpath } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'
import { jsonIn } from '../lib/json.ts'

export interface InstalledPackage {
  /** real path */
  folder: string
  manifest: PackageManifest
}

export interface PackageManifest {
  name?: string
  version?: string
  license?: unknown
  licenses?: unknown
  engines?: { node?: unknown }
  scripts?: Record<string, string>
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
}

export interface Packages {
  packages: InstalledPackage[]
  /** paths at which Node finds a link to a package, as pnpm lays them out */
  links: string[]
  /** a line for each package that is required and not installed */
  missing: string[]
}

/**
 * Every package that the application in `folder`, a real path, needs to run, and what the package in `also` needs, such as a member of a
 * workspace. Throws BatonError invalid_settings.
 */
export async function packagesOf(folder: string, also: string = folder): Promise<Packages> {
  const found: Packages = { packages: [], links: [], missing: [] }
  const seen = new Set<string>()
  const visit = async (from: string): Promise<void> => {
    if (seen.has(from)) return
    seen.add(from)
    const manifest = await readManifest(from)
    if (from !== folder) found.packages.push({ folder: from, manifest })
    const required = new Set(Object.keys(manifest.dependencies ?? {}))
    for (const name of Object.keys(manifest.optionalDependencies ?? {})) required.delete(name)
    const names = [manifest.dependencies, manifest.optionalDependencies, manifest.peerDependencies]
    for (const name of new Set(names.flatMap((some) => Object.keys(some ?? {})))) {
      const at = find(name, from)
      if (at === null) {
        if (required.has(name)) found.missing.push(`${name} (required by ${manifest.name ?? from})`)
        continue
      }
      const real = await realpath(at)
      if (real !== at) found.links.push(at)
      await visit(real)
    }
  }
  await visit(folder)
  await visit(also)
  return found
}

/** An absent file is an empty manifest. Throws BatonError invalid_settings. */
export async function readManifest(folder: string): Promise<PackageManifest> {
  return await readJsonObject(join(folder, 'package.json'))
}

/** An object without members if there is no such file. Throws BatonError invalid_settings. */
export async function readJsonObject(path: string): Promise<Record<string, unknown>> {
  const text = await readFile(path, 'utf8').catch(() => '{}')
  return jsonIn(text, path) as Record<string, unknown>
}

/** `…/node_modules/@scope/name/lib/a.js` -> `…/node_modules/@scope/name`; null: the file is in no package that was installed. */
export function packageRootOf(path: string): string | null {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/@.][^/]*(?=\/)/.exec(path.replaceAll(sep, '/'))?.[0] ?? null
}

/** Climbs as Node does: https://nodejs.org/api/modules.html#loading-from-node_modules-folders */
function find(name: string, from: string): string | null {
  const inside = join('node_modules', name)
  const folder = above(from, (at) => existsSync(join(at, inside, 'package.json')))
  return folder === null ? null : join(folder, inside)
}

/** The nearest folder, `folder` or above it, of which `holds` is true. */
export function above(folder: string, holds: (folder: string) => boolean): string | null {
  for (let at = folder; ; at = dirname(at)) {
    if (holds(at)) return at
    if (dirname(at) === at) return null
  }
}
