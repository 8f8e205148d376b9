// What a registry says of a package, and which version of it is taken. Pure.
// Must hold: a version that is deprecated, that may be too young, or whose bytes are no longer those that were seen under its number is
// not taken, and why is said. An answer that is not whole says nothing of what was unpublished.

import { BatonError, compareTags, formatNames, isTag } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'

/** how a note of a version that was passed over begins */
const SKIPPED = 'skipped: '
/** how many versions, and tags, a hint names */
const NAMED_MAX = 5

export interface PackageVersion {
  version: string
  /** the reason, as its publisher has written it; null: it is not deprecated */
  deprecated: string | null
  /** as its manifest says it */
  bin: unknown
  /** `engines.node` */
  node: string | null
  /** null: the registry does not tell */
  integrity: string | null
  /** who published it, as far as the registry tells */
  publisher: string | null
  hasProvenance: boolean
  isSigned: boolean
  /** milliseconds since 1970; null: the registry does not tell */
  publishedMs: number | null
}

export interface Listed {
  name: string
  /** of `latest` */
  latest: string
  /** name -> version */
  tags: Record<string, string>
  /** oldest first; only versions of the form X.Y.Z */
  versions: PackageVersion[]
}

/**
 * `answer`: `npm view NAME --json name dist-tags time`; `each`: `npm view NAME@RANGE --json …`, one object or a list of them. Throws
 * BatonError check_failed if they are not whole.
 */
export function listedIn(name: string, answer: unknown, each: unknown): Listed {
  const about = recordOf(answer)
  const time = recordOf(about['time'])
  const rows = (Array.isArray(each) ? each : [each]).map(recordOf)
  const latest = textIn(recordOf(about['dist-tags']), 'latest')
  const numbers = rows.map((row) => textIn(row, 'version'))
  if (
    about['name'] !== name ||
    latest === null ||
    numbers.includes(null) ||
    (isPlain(latest) && !numbers.includes(latest))
  )
    throw new BatonError('check_failed', `the registry sent an incomplete list of the versions of ${name}`, {
      hint: 'try again later; nothing has changed',
    })
  const versions = rows.flatMap((row) => {
    const [version, dist] = [textIn(row, 'version') ?? '', recordOf(row['dist'])]
    if (!isPlain(version)) return []
    const published = Date.parse(textIn(time, version) ?? '')
    return [
      {
        version,
        deprecated: textIn(row, 'deprecated'),
        bin: row['bin'],
        node: textIn(recordOf(row['engines']), 'node'),
        integrity: textIn(dist, 'integrity') ?? textIn(dist, 'shasum'),
        publisher: publisherOf(row['_npmUser']),
        hasProvenance: Object.keys(recordOf(dist['attestations'])).length > 0,
        isSigned: Object.keys(recordOf(dist['signatures'])).length > 0,
        publishedMs: Number.isNaN(published) ? null : published,
      },
    ]
  })
  return {
    name,
    latest,
    tags: recordOf(about['dist-tags']) as Record<string, string>,
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
  /** null: nothing newer is there yet */
  version: PackageVersion | null
  /** what was passed over, and why; a sentence each */
  notes: string[]
}

/** Throws BatonError release_not_found or refused. */
export function chooseVersion(listed: Listed, wanted: Wanted, nowMs = Date.now()): ChosenVersion {
  const { release, newerThan } = wanted
  const { name, latest } = listed
  if (release !== 'latest') {
    const one = listed.versions.find(({ version }) => version === release)
    if (one === undefined)
      throw new BatonError('release_not_found', `${name} ${release} is not in the registry`, whatThereIs(listed))
    const fault = faultOf(one, wanted, nowMs)
    if (fault === null) return { version: one, notes: [] }
    throw new BatonError('refused', `${name} ${fault}`, hintFor(listed, wanted, nowMs))
  }
  const notes: string[] = []
  const most = isPlain(latest) ? `v${latest}` : null
  for (const one of listed.versions.toReversed()) {
    const tag = `v${one.version}`
    if (!wanted.isInRange(one.version) || (most !== null && compareTags(tag, most) > 0)) continue
    if (newerThan !== null && compareTags(tag, `v${newerThan}`) <= 0) break
    const fault = faultOf(one, wanted, nowMs)
    if (fault === null) return { version: one, notes }
    notes.push(`${SKIPPED}${name} ${fault}`)
  }
  if (newerThan !== null) return { version: null, notes }
  const [first] = notes
  if (first !== undefined) throw new BatonError('refused', first.slice(SKIPPED.length), hintFor(listed, wanted, nowMs))
  const message = `the registry has no X.Y.Z version of ${name} in that range`
  throw new BatonError('release_not_found', message, whatThereIs(listed))
}

/** Whoever names no version gets the newest one or a refusal: the next that fits may be years old. Throws BatonError refused. */
export function refusePassedOver({ notes, version }: ChosenVersion): void {
  const [first] = notes
  if (first === undefined || version === null) return
  const since = version.publishedMs === null ? '' : ` from ${new Date(version.publishedMs).toISOString().slice(0, 10)}`
  throw new BatonError('refused', first.slice(SKIPPED.length), {
    hint: `the newest version without this problem is ${version.version}${since}: to install it, pass \`--release ${version.version}\``,
  })
}

/** For whoever has named what is not there. */
function whatThereIs({ versions, tags }: Listed): { hint: string } {
  const numbers = versions.map(({ version }) => version).toReversed()
  const tagged = Object.entries(tags).map(([tag, version]) => `${tag} is ${version}`)
  return { hint: `available versions: ${formatNames(numbers, NAMED_MAX) || 'none'}; ${formatNames(tagged, NAMED_MAX)}` }
}

function faultOf(one: PackageVersion, { fitsNode, nodeVersion, minAgeMs }: Wanted, nowMs: number): string | null {
  const { version, deprecated, node, publishedMs, integrity } = one
  if (integrity === null) return `${version} has no integrity hash in the registry`
  if (deprecated !== null) return `${version} is deprecated: ${deprecated.slice(0, 200)}`
  if (!fitsNode(one))
    return `${version} ${node === null ? 'does not support Node' : `requires Node ${node}, but releases run on Node`} ${nodeVersion}`
  if (minAgeMs > 0 && publishedMs === null)
    return `${version} may be younger than \`--min-age\`: the registry does not say when it was published; to accept any age, pass \`--min-age 0\``
  if (minAgeMs > 0 && publishedMs !== null && nowMs - publishedMs < minAgeMs)
    return `${version} is younger than \`--min-age\`: published ${new Date(publishedMs).toISOString().slice(0, 16)}Z`
  return null
}

/** The newest one that would work. */
function hintFor({ versions, name }: Listed, wanted: Wanted, nowMs: number): { hint: string } {
  const newestBy = (rules: Wanted) => versions.findLast((one) => faultOf(one, rules, nowMs) === null)
  const works = newestBy(wanted)
  if (works !== undefined)
    return { hint: `the newest usable version is ${works.version}: pass \`--release ${works.version}\`` }
  if (newestBy({ ...wanted, fitsNode: () => true }) === undefined)
    return { hint: `every version of ${name} is deprecated, is younger than \`--min-age\`, or lacks an integrity hash` }
  const [node] = wanted.nodeVersion.split('.')
  return { hint: `no version of ${name} supports Node ${node}; to try anyway, set \`"anyNode": true\` in a recipe` }
}

export function integritiesOf({ versions }: Listed): Record<string, string> {
  return Object.fromEntries(
    versions.flatMap(({ version, integrity }) => (integrity === null ? [] : [[version, integrity]])),
  )
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
    if (now.integrity !== null && now.integrity !== integrity)
      return told(
        `was replaced under the same version number: its integrity hash was ${integrity} and is now ${now.integrity}`,
      )
    return now.deprecated === null ? [] : told(`is now deprecated: ${now.deprecated.slice(0, 200)}`)
  })
}

function publisherOf(value: unknown): string | null {
  if (typeof value === 'string') return value.replace(/ <.*/, '')
  return textIn(recordOf(value), 'name')
}

function textIn(object: Record<string, unknown>, key: string): string | null {
  const value = object[key]
  return typeof value === 'string' && value !== '' ? value : null
}
