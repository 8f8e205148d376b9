// Finds the container that is meant, what an interrupted deployment left beside it, and what else a deployment must know.
// Reads only.

import { BatonError } from '../../agent/words.ts'
import type { Engine } from './engine/engine.ts'
import type { ContainerInspection, ImageInspection } from './inspection.ts'
import { nameOf } from './inspection.ts'
import type { Site } from './job.ts'
import { failedImage, IMAGE_LABELS, isKept, namesFor } from './reference.ts'

/** `wanted`: name, id, `label=KEY=VALUE`; null: the only container with the label `baton.service`. Throws refused. */
export async function resolveName(wanted: string | null, engine: Engine): Promise<string> {
  if (wanted === null) return await onlyName(engine)
  const label = /^label=(.+)$/.exec(wanted)?.[1]
  if (label !== undefined) {
    const names = await namesWith(label, engine)
    const [only] = names
    if (only !== undefined && names.length === 1) return only
    throw new BatonError(
      'refused',
      `expected one container with the label ${label}, got ${names.length === 0 ? 'none' : names.join(', ')}`,
      names.length === 0 ? {} : { hint: 'choose one of them with `--container NAME`' },
    )
  }
  const found = await engine.container(wanted)
  // a container found by its name keeps that name here, even if a deployment is just renaming it
  const name = found !== null && found.Id.startsWith(wanted) ? nameOf(found) : wanted
  if (isKept(name)) {
    throw new BatonError('refused', `\`${name}\` is an old container kept by an earlier deployment`, {
      hint: 'choose the current container of the service',
    })
  }
  return name
}

async function onlyName(engine: Engine): Promise<string> {
  const names = await namesWith(IMAGE_LABELS.service, engine)
  const [only] = names
  if (only !== undefined && names.length === 1) return only
  const got = names.length === 0 ? 'there is none' : `there are ${names.length}: ${names.join(', ')}`
  throw new BatonError('invalid_request', `expected --container, or exactly one service container here; ${got}`, {
    hint: 'list them with `docker ps`',
  })
}

/** Of the containers with this label, without those that a deployment keeps. */
async function namesWith(label: string, engine: Engine): Promise<string[]> {
  const all = await Promise.all((await engine.containers(label)).map((id) => nameNow(id, engine)))
  return all.filter((name) => name !== null && !isKept(name)) as string[]
}

export async function surveyContainer(name: string, engine: Engine): Promise<Site> {
  const { cage: _, ...names } = namesFor(name)
  const byName = async (wanted: string) => {
    const container = await engine.container(wanted)
    return container !== null && nameOf(container) === wanted ? container : null // the engine also finds by the start of an id
  }
  const found = Object.entries({ main: name, ...names }).map(async ([role, wanted]) => [role, await byName(wanted)])
  return Object.fromEntries(await Promise.all(found)) as Site
}

/** Changed files, without the folders above them, without mounts, and without what the engine itself makes. */
export function ownChanges(paths: readonly string[], { Mounts, HostConfig }: ContainerInspection): string[] {
  const engines = [
    '/etc/hosts',
    '/etc/hostname',
    '/etc/resolv.conf',
    '/etc/mtab',
    '/dev',
    '/proc',
    '/sys',
    '/run',
    '/tmp',
    '/.dockerenv',
    ...(HostConfig['Init'] === true ? ['/sbin/docker-init'] : []),
  ]
  const covered = [...engines, ...Mounts.map(({ Destination }) => Destination)]
  const isCovered = (path: string) => covered.some((place) => path === place || path.startsWith(`${place}/`))
  const isFolder = (path: string) =>
    paths.some((other) => other.startsWith(`${path}/`)) || covered.some((place) => place.startsWith(`${path}/`))
  return paths.filter((path) => !isCovered(path) && !isFolder(path))
}

/** Throws BatonError refused if the image was removed. */
export async function imageOfContainer(container: ContainerInspection, engine: Engine): Promise<ImageInspection> {
  const image = await engine.image(container.Image)
  if (image !== null) return image
  throw new BatonError('refused', `the image of \`${nameOf(container)}\` (${container.Image}) no longer exists`, {
    hint: 'without the image, settings made by hand cannot be distinguished from the image’s own: recreate the container yourself',
  })
}

export async function inheritedVolumes(container: ContainerInspection, engine: Engine): Promise<Map<string, string>> {
  const inherited = new Map<string, string>()
  for (const source of container.HostConfig.VolumesFrom ?? []) {
    const lender = await engine.container(source.split(':')[0] ?? '')
    for (const mount of lender?.Mounts ?? []) if (mount.Name !== undefined) inherited.set(mount.Destination, mount.Name)
  }
  return inherited
}

/** The release that failed here last, however its container was tidied; null: none, or it is not here any more. */
export async function failedHere(name: string, engine: Engine): Promise<ImageInspection | null> {
  const { repository, tag } = failedImage(name)
  return await engine.image(`${repository}:${tag}`)
}

/** The name that the container has now; null if it is gone. */
export async function nameNow(id: string, engine: Engine): Promise<string | null> {
  const container = await engine.container(id)
  return container === null ? null : nameOf(container)
}

export async function otherContainers(id: string, engine: Engine): Promise<ContainerInspection[]> {
  const ids = (await engine.containers()).filter((other) => other !== id)
  const all = await Promise.all(ids.map((other) => engine.container(other)))
  return all.filter((container) => container !== null)
}
