// The proof that nothing was lost: compares the inspections before and after, and gives the reason for each difference. Pure.
// Must hold: it shares no rule with specification.ts. That file decides what to carry; this file finds what was lost.

import type { ContainerInspection, Endpoint, Fields, ImageConfig, ImageInspection } from './inspection.ts'
import { isEmpty, isSame, shortId } from './inspection.ts'
import { COMPOSE_LABELS, ORIGIN_LABEL } from './reference.ts'

/**
 * `image`: the old image's value gave way to the new image's. `identity`: follows from being another container.
 * `carried`: an unnamed volume is now named. `engine`: the engine hides more of the host than the one that made the old container.
 * `holder`: its holder takes it over, or gives it back. `unexplained`: something that a person set was lost or made up.
 */
export type Because = 'image' | 'identity' | 'carried' | 'engine' | 'holder' | 'unexplained'

export interface Difference {
  path: string
  before: unknown
  after: unknown
  because: Because
}

export interface Pair {
  before: ContainerInspection
  after: ContainerInspection
  oldImage: ImageInspection
  newImage: ImageInspection
}

/** labels that this route itself sets */
const OURS = new Set<string>([ORIGIN_LABEL, ...COMPOSE_LABELS])
const MAPS = ['Labels', 'ExposedPorts', 'Volumes'] as const
const ENDPOINT_FIELDS = ['IPAMConfig', 'Links', 'DriverOpts', 'GwPriority'] as const
const MOUNT_FIELDS = ['Type', 'Name', 'Source', 'Driver', 'RW', 'Propagation'] as const

/** All differences between values that a person or an image set. Ignores what the engine makes up at run time. */
export function compare(pair: Pair): Difference[] {
  return [...compareConfig(pair), ...compareHostConfig(pair), ...compareMounts(pair), ...compareNetworks(pair)]
}

export function unexplained(differences: readonly Difference[]): Difference[] {
  return differences.filter(({ because }) => because === 'unexplained')
}

/** What a container that moves behind a holder, or out again, gives up and gets. `after`: as it must be then. */
export function movedBy(before: ContainerInspection, after: ContainerInspection, image: ImageInspection): Difference[] {
  const found = compare({ before, after, oldImage: image, newImage: image })
  return found.map((difference) => ({ ...difference, because: 'holder' }))
}

export function formatDifference({ path, before, after, because }: Difference): string {
  const isNone = (value: unknown) => value === undefined || value === null || value === ''
  const shown = (value: unknown) => (isNone(value) ? '(none)' : JSON.stringify(value))
  return `${because.padEnd(11)} ${path}: ${shown(before)} -> ${shown(after)}`
}

function compareConfig({ before, after, oldImage, newImage }: Pair): Difference[] {
  const [old, fresh]: [ImageConfig, ImageConfig] = [oldImage.Config ?? {}, newImage.Config ?? {}]
  const found: Difference[] = []
  const keys = new Set([...Object.keys(before.Config), ...Object.keys(after.Config)])
  for (const key of ['Env', 'Image', 'Healthcheck', ...MAPS]) keys.delete(key)
  for (const key of keys) {
    const [was, is] = [before.Config[key], after.Config[key]]
    if (isSame(was, is)) continue
    found.push({ path: `Config.${key}`, before: was, after: is, because: becauseOf(key, was, is) })
  }
  if (before.Config.Image !== after.Config.Image) {
    found.push({ path: 'Config.Image', before: before.Config.Image, after: after.Config.Image, because: 'image' })
  }
  for (const key of MAPS) {
    found.push(...compareMap(`Config.${key}`, before.Config[key], after.Config[key], old[key], fresh[key]))
  }
  found.push(...compareMap('Config.Env', pairs(before), pairs(after), variables(old.Env), variables(fresh.Env)))
  const { Healthcheck: was } = before.Config
  const { Healthcheck: is } = after.Config
  found.push(
    ...compareMap('Config.Healthcheck', fields(was), fields(is), fields(old.Healthcheck), fields(fresh.Healthcheck)),
  )
  return found

  function becauseOf(key: string, was: unknown, is: unknown): Because {
    // a container in another container's network shows that container's host name once it runs
    const borrowed = before.HostConfig.NetworkMode.startsWith('container:')
    if (key === 'Hostname')
      return borrowed || (was === shortId(before.Id) && is === shortId(after.Id)) ? 'identity' : 'unexplained'
    return isSame(was, old[key]) && isSame(is, fresh[key]) ? 'image' : 'unexplained'
  }
}

/**
 * Compares entry by entry. An entry is the old image's if name and value agree. Only such an entry may change, and only to the
 * new image's value.
 */
function compareMap(path: string, was: unknown, is: unknown, old: unknown, fresh: unknown): Difference[] {
  const [before, after, oldImage, newImage] = [was, is, old, fresh].map((map) => (map ?? {}) as Fields) as [
    Fields,
    Fields,
    Fields,
    Fields,
  ]
  const found: Difference[] = []
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (OURS.has(key) || (key in before === key in after && isSame(before[key], after[key]))) continue
    const fromOld = key in before ? key in oldImage && isSame(before[key], oldImage[key]) : !(key in oldImage)
    const fromNew = key in after ? key in newImage && isSame(after[key], newImage[key]) : !(key in newImage)
    const because = fromOld && fromNew ? 'image' : 'unexplained'
    found.push({ path: `${path}.${key}`, before: before[key], after: after[key], because })
  }
  return found
}

function compareHostConfig({ before, after, newImage }: Pair): Difference[] {
  const found: Difference[] = []
  for (const key of new Set([...Object.keys(before.HostConfig), ...Object.keys(after.HostConfig)])) {
    if (key === 'ContainerIDFile') continue
    const [was, is] = [before.HostConfig[key], after.HostConfig[key]].map((value) =>
      key === 'Links' ? linkTargets(value) : value,
    )
    if (isSame(was, is)) continue
    found.push({
      path: `HostConfig.${key}`,
      before: was,
      after: is,
      because: nowNamed(key, was, is) ? 'carried' : hidesMore(key, was, is) ? 'engine' : 'unexplained',
    })
  }
  return found

  function hidesMore(key: string, was: unknown, is: unknown): boolean {
    const [old, now] = [was, is].map((list) => (list ?? []) as string[]) as [string[], string[]]
    return key === 'MaskedPaths' && old.length > 0 && old.every((path) => now.includes(path))
  }

  /** Whether the only change is that unnamed volumes now have names, and each name is the volume that was mounted there. */
  function nowNamed(key: string, was: unknown, is: unknown): boolean {
    const mounted = (name: string, destination: string) =>
      before.Mounts.some((mount) => mount.Type === 'volume' && mount.Name === name && mount.Destination === destination)
    // podman's `Binds` also lists the volumes that it makes for a `VOLUME` of the image
    const madeFor = (destination: string) =>
      destination in (newImage.Config?.Volumes ?? {}) &&
      !before.Mounts.some((mount) => mount.Destination === destination)
    if (key === 'Binds') {
      const [old, now] = [was, is].map((list) => (list ?? []) as string[]) as [string[], string[]]
      const added = now.filter((bind) => !old.includes(bind))
      const good = added.every((bind) => {
        const [name = '', destination = ''] = bind.split(':')
        return mounted(name, destination) || madeFor(destination)
      })
      return good && old.every((bind) => now.includes(bind))
    }
    if (key === 'Mounts') {
      const [old, now] = [was, is].map((list) => (list ?? []) as Fields[]) as [Fields[], Fields[]]
      if (old.length !== now.length) return false
      return old.every((mount, i) => {
        const { Source: source = '', ...rest } = now[i] as Fields & { Source?: string }
        if (isSame(mount, now[i])) return true
        return (
          isEmpty(mount['Source']) && isSame({ ...mount, Source: '' }, rest) && mounted(source, String(mount['Target']))
        )
      })
    }
    return false
  }
}

function compareMounts({ before, after, newImage }: Pair): Difference[] {
  const found: Difference[] = []
  const [was, is] = [before, after].map(({ Mounts }) => new Map(Mounts.map((mount) => [mount.Destination, mount])))
  for (const destination of new Set([...(was?.keys() ?? []), ...(is?.keys() ?? [])])) {
    const [old, now] = [was?.get(destination), is?.get(destination)]
    for (const key of MOUNT_FIELDS) {
      if (old !== undefined && now !== undefined && isSame(old[key], now[key])) continue
      // where the engine has put it for this container; which image it is stands in `HostConfig.Mounts`
      if (key === 'Source' && old?.Type === 'image' && now?.Type === 'image') continue
      if (isEmpty(old?.[key]) && isEmpty(now?.[key])) continue
      const added = old === undefined && now?.Type === 'volume' && destination in (newImage.Config?.Volumes ?? {})
      found.push({
        path: `Mounts.${destination}.${key}`,
        before: old?.[key],
        after: now?.[key],
        because: added ? 'image' : 'unexplained',
      })
    }
  }
  return found
}

function compareNetworks({ before, after }: Pair): Difference[] {
  const found: Difference[] = []
  const [was, is] = [before, after].map(({ NetworkSettings }) => NetworkSettings.Networks ?? {}) as [
    Record<string, Endpoint>,
    Record<string, Endpoint>,
  ]
  for (const network of new Set([...Object.keys(was), ...Object.keys(is)])) {
    const path = `NetworkSettings.Networks.${network}`
    const [old, now] = [was[network], is[network]]
    if (old === undefined || now === undefined) {
      found.push({ path, before: old && 'joined', after: now && 'joined', because: 'unexplained' })
      continue
    }
    for (const key of ENDPOINT_FIELDS) {
      if (isSame(old[key], now[key])) continue
      found.push({ path: `${path}.${key}`, before: old[key], after: now[key], because: 'unexplained' })
    }
    const [oldAliases, newAliases] = [ownAliases(before, old), ownAliases(after, now)]
    if (!isSame(oldAliases, newAliases)) {
      found.push({ path: `${path}.Aliases`, before: oldAliases, after: newAliases, because: 'unexplained' })
    }
  }
  return found
}

function ownAliases({ Id }: ContainerInspection, { Aliases }: Endpoint): string[] {
  return (Aliases ?? []).filter((alias) => alias !== shortId(Id)).toSorted()
}

/** Leaves this container's name out of `/other:/this/alias`: it differs while the deployment is under way. */
function linkTargets(links: unknown): string[] {
  return ((links ?? []) as string[]).map((link) => link.replace(/^\/?([^:]+):(?:.*\/)?([^/]+)$/, '$1:$2')).toSorted()
}

function pairs({ Config }: ContainerInspection): Fields {
  return variables(Config.Env)
}

function variables(env: readonly string[] | null | undefined): Fields {
  return Object.fromEntries(
    (env ?? []).map((entry) => {
      const at = entry.indexOf('=')
      // `NAME` without `=` removes the image's variable: compare it as a distinct value
      return at < 0 ? [entry, ['removed']] : [entry.slice(0, at), `=${entry.slice(at + 1)}`]
    }),
  )
}

function fields(healthcheck: unknown): Fields {
  return Object.fromEntries(Object.entries((healthcheck ?? {}) as Fields).filter(([, value]) => !isEmpty(value)))
}
