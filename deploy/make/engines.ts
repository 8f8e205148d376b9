// Names the packages that say of themselves that they do not run on the Node that Baton brings: `engines` of their package.json. The
// one importer of semver. Must hold: it starts on every Node that the package supports, because `baton init` asks it.

import { realpath } from 'node:fs/promises'
import { satisfies, validRange } from 'semver'
import { formatNames } from '../../agent/words.ts'
import { broughtVersion } from './node.ts'
import { packagesOf } from './packages.ts'

/** how many packages a message names */
const NAMED_MAX = 5
const RANGE_MAX_CHARS = 100

/** Whether `range` of `engines.node` leaves `version` out. What is no range says nothing. */
export function excludesNode(range: unknown, version: string): boolean {
  if (typeof range !== 'string' || range.length > RANGE_MAX_CHARS || validRange(range) === null) return false
  return !satisfies(version, range)
}

export function isVersionRange(text: string): boolean {
  return text.length <= RANGE_MAX_CHARS && validRange(text) !== null
}

export function isInRange(version: string, range: string): boolean {
  return satisfies(version, range)
}

/**
 * A sentence that names packages whose `engines` exclude the Node that Baton brings. Looks at the packages that `folder` needs to run.
 * Null: none excludes it.
 */
export async function foreignEngines(folder: string): Promise<string | null> {
  const version = broughtVersion()
  const { packages } = await packagesOf(await realpath(folder))
  const named = packages.flatMap(({ manifest: { name = '', version: own = '', engines } }) =>
    excludesNode(engines?.node, version) ? [`${name} ${own} (${String(engines?.node)})`] : [],
  )
  if (named.length === 0) return null
  return `the release runs on Node ${version}, which is excluded by \`engines\` in ${formatNames(named, NAMED_MAX)}: a newer package version may allow it`
}
