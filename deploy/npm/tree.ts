// The tree of packages that a lock file names. Pure. Must hold: every package comes from the registry by its name, with an integrity.

import { BatonError, formatNames } from '../../agent/words.ts'
import { isPackageName } from './recipe.ts'

export interface Locked {
  /** `node_modules/a/node_modules/b` */
  path: string
  name: string
  version: string
  node: string | null
  hasScript: boolean
  /** whoever needs it can do without */
  isOptional: boolean
}

/** Throws BatonError refused that names what comes from elsewhere. `registry`: its address. */
export function treeIn(text: string, registry: string): Locked[] {
  const { packages = {} } = JSON.parse(text) as { packages?: Record<string, Record<string, unknown>> }
  const faults: string[] = []
  // npm writes the addresses of the public registry whatever mirror it has, and asks the mirror
  const isRegistry = (address: string) =>
    hostOf(address) === hostOf(registry) || /(^|\.)npmjs\.org$/.test(hostOf(address))
  const all = Object.entries(packages).flatMap(([path, one]) => {
    if (path === '') return []
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    const { resolved, integrity, version, link, inBundle, engines, hasInstallScript, optional } = one
    const from = typeof resolved === 'string' ? resolved : ''
    const isInside = /^(node_modules\/(@[^/]+\/)?[^/]+\/?)+$/.test(path) && !path.split('/').includes('..')
    const isOurs = path === 'node_modules/baton-kit'
    if (!isInside || isOurs || !isPackageName(name.toLowerCase()))
      faults.push(isOurs ? `${path} was installed from a local copy of Baton` : `${path} is a local package`)
    else if (link === true || (inBundle !== true && (!/^https?:/.test(from) || !isRegistry(from))))
      faults.push(`\`${name}\` comes from ${from === '' ? 'this disk' : from.slice(0, 100)}`)
    else if (inBundle !== true && typeof integrity !== 'string') faults.push(`\`${name}\` has no integrity hash`)
    const node = (engines as { node?: unknown } | undefined)?.node
    return [
      {
        path,
        name,
        version: String(version),
        node: typeof node === 'string' ? node : null,
        hasScript: hasInstallScript === true,
        isOptional: optional === true,
      },
    ]
  })
  if (faults.length === 0) return all
  throw new BatonError('refused', `every package must come from the registry, but ${formatNames(faults, 5, '; ')}`)
}

function hostOf(address: string): string {
  return URL.canParse(address) ? new URL(address).host : ''
}

/** What is otherwise in `now` than in `before`; a sentence each. `before`: null if there was none. */
export function differencesOf(before: readonly Locked[] | null, now: readonly Locked[]): string[] {
  if (before === null) return []
  const nameOf = ({ name, version }: Locked) => `${name}@${version}`
  const [old, fresh] = [new Set(before.map(nameOf)), new Set(now.map(nameOf))]
  const added = [...fresh].filter((one) => !old.has(one))
  const removed = [...old].filter((one) => !fresh.has(one))
  const strangers = [...new Set(now.map(({ name }) => name))].filter((name) => before.every((one) => one.name !== name))
  const scripts = now.filter(
    (one) => one.hasScript && !before.some((other) => other.hasScript && other.name === one.name),
  )
  const list = (names: readonly string[]) => formatNames(names, 12)
  return [
    ...(added.length === 0 && removed.length === 0 ? ['its packages have not changed'] : []),
    ...(added.length === 0 ? [] : [`packages added: ${list(added)}`]),
    ...(removed.length === 0 ? [] : [`packages removed: ${list(removed)}`]),
    ...(strangers.length === 0 ? [] : [`package names not seen before: ${list(strangers)}`]),
    ...(scripts.length === 0 ? [] : [`packages that now have an install script: ${list(scripts.map(nameOf))}`]),
  ]
}
