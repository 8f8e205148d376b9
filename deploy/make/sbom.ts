// The list of what a release's executable holds, for people who check licences and vulnerabilities: CycloneDX 1.6, beside the asset.
// Must hold: the same packages, tag and time of publication give the same bytes. What a package does not say is left out, never made up.
// https://cyclonedx.org/docs/1.6/json/

import { join, relative } from 'node:path'
import { type PackageManifest, packageRootOf, readJsonObject, readManifest } from './packages.ts'

export interface Package {
  name: string
  version: string
  /** as its package.json says, at best an SPDX expression; null if it names none */
  licence: string | null
  /** of the package's tarball, as in a lock file (`sha512-<base64>`); null if no lock file of npm's knows it */
  integrity: string | null
}

export interface BillOptions {
  /** the application itself; its licence is that of its package.json */
  service: string
  tag: string
  licence: string | null
  /** ISO 8601, UTC; null: unknown */
  publishedAt: string | null
  /** version of the Node inside, `26.10.0`; null: a script, which holds none */
  node: string | null
  packages: readonly Package[]
}

export function billName(asset: string): string {
  return `${asset}.cdx.json`
}

/** Pure: the file's text. */
export function billOf({ service, tag, licence, publishedAt, node, packages }: BillOptions): string {
  const version = tag.slice(1)
  const bill = {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      ...(publishedAt === null ? {} : { timestamp: publishedAt }),
      component: { type: 'application', 'bom-ref': 'application', name: service, version, ...licensesOf(licence) },
    },
    components: [...(node === null ? [] : [nodeComponent(node)]), ...unique(packages).map(component)],
  }
  return `${JSON.stringify(bill, null, 2)}\n`
}

/** Pure: sorted by purl as text. A package that lies in several folders counts once, with the integrity that one of them knows. */
export function unique(packages: readonly Package[]): Package[] {
  const known = new Map<string, Package>()
  for (const one of packages) {
    const before = known.get(purlOf(one))
    known.set(purlOf(one), { ...one, integrity: before?.integrity ?? one.integrity })
  }
  return [...known].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
}

/**
 * The packages that these files belong to, by the package.json at the root of each. `folder`: the project, whose lock file of npm's
 * knows their integrity.
 */
export async function packagesBehind(sources: Iterable<string>, folder: string): Promise<Package[]> {
  const locked = await lockedIn(folder)
  const roots = new Set([...sources].flatMap((path) => packageRootOf(path) ?? []))
  const found = await Promise.all([...roots].map((root) => packageAt(root, locked.get(relative(folder, root)) ?? null)))
  return unique(found.filter((one) => one !== null))
}

export async function licenceIn(folder: string): Promise<string | null> {
  return licenceOf(await readManifest(folder))
}

/** Null: a folder without a name and a version is no package. */
async function packageAt(root: string, integrity: string | null): Promise<Package | null> {
  const manifest = await readManifest(root)
  const { name, version } = manifest
  if (typeof name !== 'string' || typeof version !== 'string') return null
  return { name, version, licence: licenceOf(manifest), integrity }
}

const LICENCE_MAX_CHARS = 200

/** `license` as it is written today, and as it was written long ago: `{ type }`, or a list of these, of which one may choose. */
function licenceOf({ license, licenses }: PackageManifest): string | null {
  const all = [license, licenses].flat().flatMap((one) => {
    const text = typeof one === 'object' && one !== null && 'type' in one ? one.type : one
    return typeof text === 'string' && text.trim() !== '' ? [text.trim().slice(0, LICENCE_MAX_CHARS)] : []
  })
  return all.length === 0 ? null : [...new Set(all)].join(' OR ')
}

/** Folder of a package in the project -> integrity: https://docs.npmjs.com/cli/configuring-npm/package-lock-json */
async function lockedIn(folder: string): Promise<Map<string, string>> {
  type Lock = { packages?: Record<string, { integrity?: unknown }> }
  const { packages = {} } = (await readJsonObject(join(folder, 'package-lock.json'))) as Lock
  const pairs = Object.entries(packages).map(([path, { integrity }]) => [path, integrity] as const)
  return new Map(pairs.filter((pair): pair is readonly [string, string] => typeof pair[1] === 'string'))
}

function component(one: Package): object {
  const { name, version, licence } = one
  const purl = purlOf(one)
  return { type: 'library', 'bom-ref': purl, name, version, purl, ...licensesOf(licence), ...hashesOf(one) }
}

function nodeComponent(version: string): object {
  const purl = `pkg:generic/node@${version}`
  const cpe = `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`
  const licenses = [
    { license: { name: 'MIT, and the licenses of the components in Node', url: `${NODE}/blob/v${version}/LICENSE` } },
  ]
  return { type: 'platform', 'bom-ref': purl, name: 'node', version, cpe, purl, licenses }
}

const NODE = 'https://github.com/nodejs/node'

/** https://github.com/package-url/purl-spec/blob/main/types-doc/npm-definition.md */
function purlOf({ name, version }: Pick<Package, 'name' | 'version'>): string {
  return `pkg:npm/${name.replace(/^@/, '%40')}@${encodeURIComponent(version)}`
}

/** An SPDX expression as such, every other text as the name of a licence. */
function licensesOf(licence: string | null): object {
  if (licence === null) return {}
  const id = String.raw`\(*[A-Za-z0-9][A-Za-z0-9.+-]*\)*`
  const isExpression = new RegExp(`^${id}(?: (?:AND|OR|WITH) ${id})*$`).test(licence) && licence !== 'UNLICENSED'
  return { licenses: isExpression ? [{ expression: licence }] : [{ license: { name: licence } }] }
}

function hashesOf({ integrity }: Package): object {
  const base64 = /^sha512-([A-Za-z0-9+/]{86}==)/.exec(integrity ?? '')?.[1]
  if (base64 === undefined) return {}
  return { hashes: [{ alg: 'SHA-512', content: Buffer.from(base64, 'base64').toString('hex') }] }
}
