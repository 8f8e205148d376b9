// Names of images, `registry/repository:tag@digest`; and the names, tags and labels of the container route. Pure.
// Must hold: an image id, whole or short, is never taken for a repository.

export interface Reference {
  repository: string
  tag: string | null
  /** `sha256:…` */
  digest: string | null
}

/** Null if `text` is a whole image id, or no reference at all. A short id looks like a repository: see `repositoryIn`. */
export function parseReference(text: string): Reference | null {
  const match =
    /^(?<repository>[A-Za-z0-9][A-Za-z0-9._:/[\]-]*?)(?::(?<tag>\w[\w.-]{0,127}))?(?:@(?<digest>sha256:[0-9a-f]{64}))?$/.exec(
      text,
    )
  const { repository, tag, digest } = match?.groups ?? {}
  if (repository === undefined || isImageId(text)) return null
  return { repository, tag: tag ?? null, digest: digest ?? null }
}

/** The repository that a container was created from; null if `reference` is the id of its image, whole or the first digits of it. */
export function repositoryIn(reference: string, imageId: string): string | null {
  const digits = /^(?:sha256:)?([0-9a-f]{6,64})$/.exec(reference)?.[1]
  const isId = digits !== undefined && imageId.replace(/^sha256:/, '').startsWith(digits)
  return isId ? null : (parseReference(reference)?.repository ?? null)
}

export function isImageId(text: string): boolean {
  return /^(sha256:)?[0-9a-f]{64}$/.test(text)
}

/** `docker.io/library/beacon` for `beacon`: engines differ in which of the two they show. */
export function fullRepository(repository: string): string {
  const [first = '', ...rest] = repository.split('/')
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')
  if (isHost) return first === 'index.docker.io' ? ['docker.io', ...rest].join('/') : repository
  return rest.length > 0 ? `docker.io/${repository}` : `docker.io/library/${repository}`
}

/** Host and port of the registry, as `~/.docker/config.json` names it. */
export function registryOf(repository: string): string {
  const host = fullRepository(repository).split('/')[0] ?? ''
  return host === 'docker.io' ? 'https://index.docker.io/v1/' : host
}

/** The entry of `RepoDigests` for this repository, else null. */
export function digestIn(repoDigests: readonly string[], repository: string): string | null {
  const wanted = fullRepository(repository)
  const found = repoDigests.find((entry) => fullRepository(entry.split('@')[0] ?? '') === wanted)
  return found?.split('@')[1] ?? null
}

/** The names that containers have during a deployment. Each says where an interrupted one stopped (recreate.ts). */
export function namesFor(name: string) {
  return {
    /** created, never started */
    successor: `${name}-baton-successor`,
    /** the old one, stopped, until the new one has proved itself */
    predecessor: `${name}-baton-predecessor`,
    /** the old one after the commit */
    previous: `${name}-baton-previous`,
    /** the new one while the old one is being put back */
    reverting: `${name}-baton-reverting`,
    /** the new one that failed, for its logs */
    failed: `${name}-baton-failed`,
    /** the container that does the switch; an interrupted run leaves it, with its log, until the next deployment */
    switcher: `${name}-baton-switch`,
    /** where a release is tried on a copy of the data; an interrupted run leaves it until the next deployment */
    cage: `${name}-baton-trial`,
  }
}

/** Whether `name` is one that `namesFor` gave. */
export function isKept(name: string): boolean {
  return /-baton-(successor|predecessor|previous|reverting|failed|switch|trial)$/.test(name)
}

/** The tag that keeps the old image from `docker image prune`. */
export function rollbackTag(name: string): string {
  return `baton-rollback-${name}`.slice(0, 128)
}

/** The image that failed here last. Its container may be tidied away; this name no prune takes, and no registry has it. */
export function failedImage(name: string): { repository: string; tag: string } {
  return { repository: 'baton-failed', tag: name.slice(0, 128) }
}

/** On the successor: JSON of `JobOrigin`, all that is needed to finish or to undo the deployment. */
export const ORIGIN_LABEL = 'baton.recreated-from'
/** The holder's image has it, and so has every container of that. */
export const HOLDER_LABEL = 'baton.holder'
/** On a holder: JSON of what it took from its container, and gives back. */
export const TAKEN_LABEL = 'baton.holder-took'
/** Compose's labels about a container's image. They change with the image, and only this route changes them. */
export const COMPOSE_LABELS = ['com.docker.compose.config-hash', 'com.docker.compose.image'] as const

/** Whether only compose or this route may set this label: the files of the host that it names are trusted. */
export function isToolLabel(key: string): boolean {
  return key === ORIGIN_LABEL || key === TAKEN_LABEL || key.startsWith('com.docker.compose.')
}

/** The labels by which an image describes its service, so that no service has to be known here. */
export const IMAGE_LABELS = {
  /** name of the service */
  service: 'baton.service',
  /** the directory that must be on a volume */
  state: 'baton.state-directory',
  /** port inside, and a path that answers below 500 while the service is well */
  port: 'baton.port',
  healthPath: 'baton.health-path',
  /** JSON array: a command that copies the database to a file that it chooses, and prints its path */
  snapshot: 'baton.snapshot',
  /** which switch it asks for; a container of an image that says so waits at its gate (gate.ts) */
  order: 'baton.order',
  /** the oldest release from which a container may move to it, such as `>=1.4.0` */
  from: 'baton.from',
  version: 'org.opencontainers.image.version',
} as const
