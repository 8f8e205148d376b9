// Finds the image to run: the release asked for, pulled by digest, or the previous image. Reads and pulls; changes no container.
// Must hold: the same digest is resolved, verified and run; a rollback never goes by a tag.

import { readFile } from 'node:fs/promises'
import { openFeed } from '../../agent/install.ts'
import { barrierIn, BatonError, isBarred, isTag, parseTag, reasonOf, series } from '../../agent/words.ts'
import type { Engine, OnProgress, Platform } from './engine/engine.ts'
import type { ContainerInspection, ImageInspection } from './inspection.ts'
import { labelsOf, nameOf } from './inspection.ts'
import { parseOrigin } from './job.ts'
import { digestIn, IMAGE_LABELS, parseReference, repositoryIn, rollbackTag } from './reference.ts'
import type { ContainerReport } from './report.ts'
import { type ContainerRequest, notHere, type SignedBy, step, type Tools } from './request.ts'

export interface Pulled {
  image: ImageInspection
  /** what the new container's `Config.Image` says */
  reference: string
  repository: string | null
  digest: string | null
  /**
   * the tag in the image's label, else the release asked for, if that is a tag; after a rollback the one that the last deployment noted.
   * Null: not known, so nothing is compared with it
   */
  version: string | null
  /** name to give the image before it runs; null if it has its name already */
  tag: { repository: string; tag: string } | null
}

/** Throws release_not_found, check_failed, download_failed, verify_failed, refused. */
export async function resolveRelease(
  container: ContainerInspection,
  oldImage: ImageInspection,
  request: ContainerRequest,
  tools: Tools,
): Promise<Pulled> {
  const { engine, report, credentials, stop } = tools
  const asked = request.release ?? 'latest'
  const service = labelsOf(oldImage)[IMAGE_LABELS.service] ?? nameOf(container)
  const signed = request.signedBy === null ? null : await signedImage(request.signedBy, service, asked)
  const release = signed?.tag ?? asked
  const repository = request.repository ?? signed?.repository ?? repositoryOf(container, oldImage)
  const reference = `${repository}:${release}`
  const header = await credentials(repository)
  await step(tools, 'resolve', reference)
  const pull = request.pull ?? 'always'
  const local = pull === 'always' || signed !== null || request.digest !== null ? null : await engine.image(reference)
  if (local !== null) return await asItIsHere(local, { repository, release, reference }, oldImage, tools)
  if (pull === 'never') {
    throw notHere(reference, `run \`docker pull ${reference}\` or \`docker load\` first, or omit --pull`)
  }
  // if a trusted source gives the digest, the registry is not asked what the tag means
  let digest = signed?.digest ?? request.digest
  if (digest === null && engine.kind === 'docker') {
    const found = await engine.distribution(reference, header)
    digest = found.digest
    refuseArchitecture(reference, found.platforms, engine, oldImage)
  }
  const pinned = digest === null ? reference : `${repository}@${digest}`
  await step(tools, 'pull', pinned)
  // podman's compatible API cannot ask a registry for a digest: with podman, pull the tag and read the digest afterwards
  if (digest === null || (await engine.image(pinned)) === null) {
    await engine.pull(repository, digest ?? release, header, { progress: showing(report), signal: stop })
  }
  const image = await engine.image(pinned)
  if (image === null) throw new BatonError('download_failed', `${pinned} was pulled, but the engine cannot find it`)
  digest ??= digestIn(image.RepoDigests ?? [], repository)
  const version = await verified(image, { release, reference }, oldImage, tools)
  return { image, reference, repository, digest, version, tag: { repository, tag: release } }
}

/**
 * What the maintainer's signature says that a release is, not a registry: a signed feed's image of it, and never an unsigned one.
 * `release`: `latest` or a tag. Throws not_signed, release_not_found, release_unusable, yanked and the feed's other errors.
 */
async function signedImage({ feed, root }: SignedBy, service: string, release: string) {
  const trust = root === null ? {} : { trust: { root: await rootOf(root), builtAt: null } }
  await using open = openFeed(feed, { service, stateDirectory: null, ...trust })
  const { release: found, problem } =
    release === 'latest'
      ? await open.latest(() => false)
      : { release: await open.byTag(parseTag(release)), problem: null }
  if (problem !== null) throw problem // an older one is not what was asked for
  if (found === null) throw new BatonError('release_not_found', `${open.description} has no release of ${service}`)
  const { signed } = await open.trust()
  if (signed && found.image !== null) return { tag: found.tag, ...found.image }
  const what = signed ? `lists no image for ${found.tag}` : 'is not signed, or there is no trust root to verify it with'
  throw new BatonError('not_signed', `${open.description} ${what}`, {
    hint: signed
      ? 'ask the maintainer to sign an image with `baton trust sign --image`'
      : 'pass the trust root file with --root FILE',
  })
}

async function rootOf(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('invalid_request', `reading ${path}: ${reasonOf(cause)}`, { cause })
  })
}

/** The image that the engine has under this name, for `--pull missing` and `--pull never`. */
async function asItIsHere(
  image: ImageInspection,
  { repository, release, reference }: { repository: string; release: string; reference: string },
  oldImage: ImageInspection,
  tools: Tools,
): Promise<Pulled> {
  const version = await verified(image, { release, reference }, oldImage, tools)
  const digest = digestIn(image.RepoDigests ?? [], repository)
  return { image, reference, repository, digest, version, tag: null }
}

/** The version that its label says, else the release asked for, if that is a tag. Throws verify_failed. */
async function verified(
  image: ImageInspection,
  { release, reference }: { release: string; reference: string },
  oldImage: ImageInspection,
  tools: Tools,
): Promise<string | null> {
  await step(tools, 'verify', 'image architecture and version')
  refuseArchitecture(reference, [{ architecture: image.Architecture, os: image.Os }], tools.engine, oldImage)
  const said = versionOf(image)
  if (release !== 'latest' && said !== null && said !== release) {
    throw new BatonError('verify_failed', `the version label of ${reference} says ${said}, not ${release}`)
  }
  const [from, current] = [barrierIn(labelsOf(image)[IMAGE_LABELS.from]), versionOf(oldImage)]
  if (from !== null && isBarred({ from }, current))
    throw new BatonError(
      'refused',
      `${said ?? reference} can only replace ${from} or later, but this container runs ${current}`,
      {
        hint: `deploy an intermediate release first, such as \`--release ${from}\``,
      },
    )
  return said ?? (isTag(release) ? release : null)
}

/**
 * The image that ran before the last deployment: by its id, else by its digest. `backTo`: the release that it must be; if that
 * release runs already, the result is its image. Throws no_backup, download_failed.
 */
export async function resolveRollback(
  container: ContainerInspection,
  backTo: string | null,
  tools: Tools,
): Promise<Pulled> {
  const { engine, report, credentials, stop } = tools
  const present = backTo === null ? null : await engine.image(container.Image)
  if (present !== null && versionOf(present) === backTo) {
    return {
      image: present,
      reference: container.Config.Image,
      repository: null,
      digest: null,
      version: backTo,
      tag: null,
    }
  }
  const origin = parseOrigin(container)
  if (origin === null) {
    const message = `\`${nameOf(container)}\` was created by hand or by compose since the last deployment, so there is no record of what ran before`
    throw new BatonError('no_backup', message, { hint: 'specify the release with --release' })
  }
  if (backTo !== null && origin.from !== backTo) {
    throw new BatonError(
      'no_backup',
      `expected ${backTo} as the previous release, got ${origin.from ?? origin.reference}`,
      {
        hint: `deploy it with \`--release ${backTo}\` instead of --rollback`,
      },
    )
  }
  const repository = repositoryIn(origin.reference, origin.image)
  await step(tools, 'resolve', `${origin.from ?? origin.reference} (${origin.image.slice(0, 19)})`)
  let image = await engine.image(origin.image)
  if (image === null && repository !== null && origin.digest !== null) {
    await step(tools, 'pull', `${repository}@${origin.digest}`)
    await engine.pull(repository, origin.digest, await credentials(repository), {
      progress: showing(report),
      signal: stop,
    })
    image = await engine.image(`${repository}@${origin.digest}`)
  }
  if (image === null || image.Id !== origin.image) {
    const message = `the previous image (${origin.image}) is neither on this host nor in its registry`
    throw new BatonError('no_backup', message, { hint: 'specify a release with --release' })
  }
  const reference = await nameForId(origin.reference, repository, origin.digest, image, engine)
  return { image, reference, repository, digest: origin.digest, version: origin.from, tag: null }
}

/**
 * The image that the container runs. `reference` is the name in its configuration, if that name still means this image; else it is the
 * digest or the id.
 */
export async function presentImage(
  container: ContainerInspection,
  image: ImageInspection,
  engine: Engine,
): Promise<Pulled> {
  const repository = repositoryIn(container.Config.Image, container.Image)
  const digest = repository === null ? null : digestIn(image.RepoDigests ?? [], repository)
  const reference = await nameForId(container.Config.Image, repository, digest, image, engine)
  return { image, reference, repository, digest, version: versionOf(image), tag: null }
}

function showing(report: ContainerReport): OnProgress {
  return (doneBytes, totalBytes) => void report({ event: 'progress', step: 'pull', doneBytes, totalBytes })
}

/** Version in the image's label, as a tag; null if it has none. */
export function versionOf(image: Pick<ImageInspection, 'Config'> | ContainerInspection): string | null {
  const label = labelsOf(image)[IMAGE_LABELS.version]
  if (label === undefined) return null
  return [label, `v${label}`].find((text) => isTag(text)) ?? null
}

/** The name that the person used, if it still means this image; else a name that cannot mean another image. */
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
  const own = repositoryIn(container.Config.Image, container.Image)
  if (own !== null) return own
  const names = [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])]
    .filter((name) => !name.endsWith(`:${rollbackTag(nameOf(container))}`))
    .map((name) => parseReference(name)?.repository)
  const [only, ...others] = new Set(names.filter((name) => name !== undefined))
  if (only !== undefined && others.length === 0) return only
  throw new BatonError(
    'invalid_request',
    `\`${nameOf(container)}\` was created from an image ID, so its repository is unknown`,
    {
      hint: 'specify the repository with --image',
    },
  )
}

/**
 * Throws BatonError verify_failed for another architecture than the engine's, unless the image that runs now has it too
 * (emulation).
 */
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
    `expected ${reference} to be for linux/${series([...wanted], 'or')}, got ${offered}`,
  )
}

function engineArchitecture(name: string): string {
  const names: Record<string, string> = { x86_64: 'amd64', aarch64: 'arm64', armv7l: 'arm' }
  return names[name] ?? name
}
