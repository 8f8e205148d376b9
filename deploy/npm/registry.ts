// What a registry says of a package, and which version of it is taken. Pure.
// Must hold: a version that is deprecated, that is too young, or whose bytes are no longer those that were seen under its number is
// not taken, and why is said.

import { BatonError, compareTags, isTag } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'

export interface PackageVersion {
  version: string
  /** the reason, as its publisher has written it; null: it is not deprecated */
  deprecated: string | null
  /** `engines.node` */
  node: string | null
  integrity: string
  /** who published it, as far as the registry tells */
  publisher: string | null
  hasProvenance: boolean
  isSigned: boolean
  /** milliseconds since 1970; null: the registry does not tell */
  publishedMs: number | null
  unpackedBytes: number | null
}

export interface Listed {
  name: string
  /** of `latest` */
  latest: string | null
  /** oldest first; only versions of the form X.Y.Z */
  versions: PackageVersion[]
}

type Json = Record<string, unknown>

/** `about`: `npm view NAME --json name dist-tags time`; `each`: `npm view NAME@RANGE --json …`, one object or a list of them. */
export function listedIn(about: Json, each: unknown): Listed {
  const time = recordOf(about['time'])
  const rows = (Array.isArray(each) ? each : [each]) as Json[]
  const versions = rows.flatMap((row) => {
    const [version, dist] = [textIn(row, 'version') ?? '', recordOf(row['dist'])]
    const integrity = textIn(dist, 'integrity') ?? textIn(dist, 'shasum')
    if (!isPlain(version) || integrity === null) return []
    const published = Date.parse(textIn(time, version) ?? '')
    return [
      {
        version,
        deprecated: textIn(row, 'deprecated'),
        node: textIn(recordOf(row['engines']), 'node'),
        integrity,
        publisher: publisherOf(row['_npmUser']),
        hasProvenance: Object.keys(recordOf(dist['attestations'])).length > 0,
        isSigned: Object.keys(recordOf(dist['signatures'])).length > 0,
        publishedMs: Number.isNaN(published) ? null : published,
        unpackedBytes: typeof dist['unpackedSize'] === 'number' ? dist['unpackedSize'] : null,
      },
    ]
  })
  return {
    name: textIn(about, 'name') ?? '',
    latest: textIn(recordOf(about['dist-tags']), 'latest'),
    versions: versions.toSorted((a, b) => compareTags(`v${a.version}`, `v${b.version}`)),
  }
}

/** Only these become releases. */
export function isPlain(version: string): boolean {
  return /^\d+\.\d+\.\d+$/.test(version) && isTag(`v${version}`)
}

export interface Wanted {
  /** `latest`, or one version */
  release: string
  /** whether a version is in the operator's range */
  isInRange: (version: string) => boolean
  /** whether the Node that Baton brings may run it */
  fitsNode: (version: PackageVersion) => boolean
  nodeVersion: string
  /** an older version is not taken; null: none is installed */
  newerThan: string | null
  /** milliseconds that a version must have been there; 0: any */
  minAgeMs: number
}

export interface ChosenVersion {
  version: PackageVersion
  /** what was passed over, and why; a sentence each */
  notes: string[]
}

/** Throws BatonError release_not_found or refused. Null: nothing newer is there yet. */
export function chooseVersion(listed: Listed, wanted: Wanted, nowMs = Date.now()): ChosenVersion | null {
  const { release, newerThan } = wanted
  const { name, latest } = listed
  if (release !== 'latest') {
    const one = listed.versions.find(({ version }) => version === release)
    if (one === undefined) throw new BatonError('release_not_found', `${name} ${release} is not in the registry`)
    const fault = faultOf(one, wanted, nowMs)
    if (fault === null) return { version: one, notes: [] }
    throw new BatonError('refused', `${name} ${fault}`, hintFor(listed, wanted, nowMs))
  }
  const notes: string[] = []
  const mostly = latest !== null && isPlain(latest) ? `v${latest}` : null
  for (const one of listed.versions.toReversed()) {
    const tag = `v${one.version}`
    if (!wanted.isInRange(one.version) || (mostly !== null && compareTags(tag, mostly) > 0)) continue
    if (newerThan !== null && compareTags(tag, `v${newerThan}`) <= 0) return null
    const fault = faultOf(one, wanted, nowMs)
    if (fault === null) return { version: one, notes }
    notes.push(`passed over: ${name} ${fault}`)
  }
  if (newerThan !== null) return null
  const [first] = notes
  if (first !== undefined)
    throw new BatonError('refused', first.replace('passed over: ', ''), hintFor(listed, wanted, nowMs))
  throw new BatonError('release_not_found', `expected a version of ${name} of the form X.Y.Z in that range, found none`)
}

function faultOf(one: PackageVersion, { fitsNode, nodeVersion, minAgeMs }: Wanted, nowMs: number): string | null {
  const { version, deprecated, node, publishedMs } = one
  if (deprecated !== null) return `${version} is deprecated: ${deprecated.slice(0, 200)}`
  if (!fitsNode(one)) return `${version} requires Node ${node ?? ''} but releases run on Node ${nodeVersion}`
  if (minAgeMs > 0 && publishedMs !== null && nowMs - publishedMs < minAgeMs)
    return `${version} is younger than \`--min-age\`: published ${new Date(publishedMs).toISOString().slice(0, 16)}Z`
  return null
}

/** The newest one that would work. */
function hintFor({ versions, name }: Listed, wanted: Wanted, nowMs: number): { hint: string } {
  const newestBy = (rules: Wanted) => versions.findLast((one) => faultOf(one, rules, nowMs) === null)
  const works = newestBy(wanted)
  if (works !== undefined)
    return { hint: `the newest one that would work is ${works.version}: \`--release ${works.version}\`` }
  if (newestBy({ ...wanted, fitsNode: () => true }) === undefined)
    return { hint: `no version of ${name} is both old enough and not deprecated` }
  const [node] = wanted.nodeVersion.split('.')
  return { hint: `no version of ${name} supports Node ${node}; to try anyway, set \`"anyNode": true\` in a recipe` }
}

export function integritiesOf({ versions }: Listed): Record<string, string> {
  return Object.fromEntries(versions.map(({ version, integrity }) => [version, integrity]))
}

/** What the registry says otherwise than it did before, of versions that are kept; `what`: a sentence. */
export function changedSince(
  { name, versions }: Listed,
  seen: Readonly<Record<string, string>>,
): { version: string; what: string }[] {
  return Object.entries(seen).flatMap(([version, integrity]) => {
    const now = versions.find((one) => one.version === version)
    const told = (what: string) => [{ version, what: `${name} ${version} ${what}` }]
    if (now === undefined) return told('was unpublished')
    if (now.integrity !== integrity)
      return told(`was replaced under the same number: its integrity was ${integrity}, it is ${now.integrity}`)
    return now.deprecated === null ? [] : told(`is deprecated by now: ${now.deprecated.slice(0, 200)}`)
  })
}

function publisherOf(value: unknown): string | null {
  if (typeof value === 'string') return value.replace(/ <.*/, '')
  return textIn((value ?? {}) as Json, 'name')
}

function textIn(object: Json, key: string): string | null {
  const value = object[key]
  return typeof value === 'string' && value !== '' ? value : null
}
