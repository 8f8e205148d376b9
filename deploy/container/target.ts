// Which image to run: the release asked for, pulled by digest, or the one before. Reads and pulls; changes no container.
// Must hold: what was resolved, what is verified and what is run is the same digest; a rollback never goes by a tag.

import { BatonError, isTag } from '../../agent/words.ts'
import type { Engine, Platform } from './engine.ts'
import type { ContainerInspection, ImageInspection } from './inspection.ts'
import { labelsOf, nameOf } from './inspection.ts'
import { parseOrigin } from './job.ts'
import { digestIn, parseReference, rollbackTag, VERSION_LABEL } from './reference.ts'
import type { Tools } from './recreate.ts'

export interface Pulled {
  image: ImageInspection
  /** what the new container's `Config.Image` says */
  reference: string
  repository: string | null
  digest: string | null
  /** what the image says of itself, or the release asked for */
  version: string | null
  /** name to give the image before it is run; null where it has it */
  tag: { repository: string; tag: string } | null
}

/** Throws release_not_found, check_failed, download_failed, verify_failed, refused. */
export async function resolveRelease(
  container: ContainerInspection,
  oldImage: ImageInspection,
  release: string,
  wantedRepository: string | null,
  { engine, report, credentials }: Pick<Tools, 'engine' | 'report' | 'credentials'>,
): Promise<Pulled> {
  const repository = wantedRepository ?? repositoryOf(container, oldImage)
  const reference = `${repository}:${release}`
  const header = await credentials(repository)
  await report({ event: 'step', step: 'resolve', detail: reference })
  let digest: string | null = null
  if (engine.kind === 'docker') {
    const found = await engine.distribution(reference, header)
    digest = found.digest
    refuseArchitecture(reference, found.platforms, engine, oldImage)
  }
  const pinned = digest === null ? reference : `${repository}@${digest}`
  await report({ event: 'step', step: 'pull', detail: pinned })
  // podman's compatible API cannot ask a registry for a digest: there the tag is pulled and the digest read afterwards
  if (digest === null || (await engine.image(pinned)) === null) {
    await engine.pull(repository, digest ?? release, header, (doneBytes, totalBytes) => {
      void report({ event: 'progress', step: 'pull', doneBytes, totalBytes })
    })
  }
  const image = await engine.image(pinned)
  if (image === null) throw new BatonError('download_failed', `${pinned} was pulled, but is not here`)
  digest ??= digestIn(image.RepoDigests ?? [], repository)
  await report({ event: 'step', step: 'verify', detail: 'architecture and version of the image' })
  refuseArchitecture(reference, [{ architecture: image.Architecture, os: image.Os }], engine, oldImage)
  const said = versionOf(image)
  if (release !== 'latest' && said !== null && said !== release) {
    throw new BatonError('verify_failed', `expected ${reference} to be version ${release}, its label says ${said}`)
  }
  return {
    image,
    reference,
    repository,
    digest,
    version: said ?? (isTag(release) ? release : null),
    tag: { repository, tag: release },
  }
}

/** The image that the last deployment left: by its id, else by its digest. Throws refused, download_failed. */
export async function resolveRollback(
  container: ContainerInspection,
  { engine, report, credentials }: Pick<Tools, 'engine' | 'report' | 'credentials'>,
): Promise<Pulled> {
  const origin = parseOrigin(container)
  if (origin === null) {
    throw new BatonError(
      'no_backup',
      `\`${nameOf(container)}\` was not deployed by this command, so nothing says what ran before`,
      {
        hint: 'name the release with --release',
      },
    )
  }
  const parsed = parseReference(origin.reference)
  const repository = parsed?.repository ?? null
  await report({
    event: 'step',
    step: 'resolve',
    detail: `${origin.from ?? origin.reference} (${origin.image.slice(0, 19)})`,
  })
  let image = await engine.image(origin.image)
  if (image === null && repository !== null && origin.digest !== null) {
    await report({ event: 'step', step: 'pull', detail: `${repository}@${origin.digest}` })
    await engine.pull(repository, origin.digest, await credentials(repository), (doneBytes, totalBytes) => {
      void report({ event: 'progress', step: 'pull', doneBytes, totalBytes })
    })
    image = await engine.image(`${repository}@${origin.digest}`)
  }
  if (image === null || image.Id !== origin.image) {
    throw new BatonError(
      'no_backup',
      `the image that ran before (${origin.image}) is no longer here, and its registry does not have it`,
    )
  }
  const reference = await nameForId(origin.reference, repository, origin.digest, image, engine)
  return { image, reference, repository, digest: origin.digest, version: origin.from, tag: null }
}

/** Version in the image's label, as a tag; null where it has none. */
export function versionOf(image: ImageInspection): string | null {
  const label = labelsOf(image)[VERSION_LABEL]
  if (label === undefined) return null
  return [label, `v${label}`].find((text) => isTag(text)) ?? null
}

/** The name that the person used, where it still means this image; else one that cannot mean another. */
async function nameForId(
  reference: string,
  repository: string | null,
  digest: string | null,
  image: ImageInspection,
  engine: Engine,
): Promise<string> {
  for (const candidate of [reference, ...(repository !== null && digest !== null ? [`${repository}@${digest}`] : [])]) {
    if ((await engine.image(candidate))?.Id === image.Id) return candidate
  }
  return image.Id
}

function repositoryOf(container: ContainerInspection, image: ImageInspection): string {
  const own = parseReference(container.Config.Image)?.repository
  if (own !== undefined) return own
  const names = [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])]
    .filter((name) => !name.endsWith(`:${rollbackTag(nameOf(container))}`))
    .map((name) => parseReference(name)?.repository)
  const [only, ...others] = new Set(names.filter((name) => name !== undefined))
  if (only !== undefined && others.length === 0) return only
  throw new BatonError(
    'invalid_request',
    `\`${nameOf(container)}\` was created from an image id, which names no repository`,
    {
      hint: 'name it with --image',
    },
  )
}

/** An image of another architecture cannot run, unless the one that runs now is of another one too (emulation). */
function refuseArchitecture(
  reference: string,
  platforms: readonly Platform[],
  engine: Engine,
  oldImage: ImageInspection,
): void {
  const wanted = new Set([engineArchitecture(engine.architecture), oldImage.Architecture])
  if (platforms.length === 0 || platforms.some(({ architecture, os }) => os === 'linux' && wanted.has(architecture)))
    return
  const offered = platforms.map(({ os, architecture }) => `${os}/${architecture}`).join(', ')
  throw new BatonError(
    'verify_failed',
    `expected ${reference} to be for linux/${[...wanted].join(' or ')}, got ${offered}`,
  )
}

function engineArchitecture(name: string): string {
  const names: Record<string, string> = { x86_64: 'amd64', aarch64: 'arm64', armv7l: 'arm' }
  return names[name] ?? name
}
