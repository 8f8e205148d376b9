// The containers that this route refuses to touch, and what to do instead. Pure.
// Must hold: a refusal comes before anything has changed.

import { BatonError, series } from '../../agent/words.ts'
import type { ContainerInspection, ImageInspection } from './inspection.ts'
import { isSame, labelsOf, nameOf } from './inspection.ts'
import { saidPort, tcpPorts } from './ports.ts'
import { HOLDER_LABEL, isKept, IMAGE_LABELS, isToolLabel } from './reference.ts'

/** Throws BatonError refused. `others` are all other containers; `changes` the paths changed in the container's own layer. */
export function refuseUnfit(
  container: ContainerInspection,
  image: ImageInspection,
  others: readonly ContainerInspection[],
  changes: readonly string[],
): void {
  const [name, labels] = [nameOf(container), labelsOf(container)]
  const refuse = (message: string, hint: string): never => {
    throw new BatonError('refused', `\`${name}\` ${message}`, { hint })
  }
  if (labels['com.docker.swarm.task.id'] !== undefined) {
    const service = labels['com.docker.swarm.service.name'] ?? 'SERVICE'
    refuse(
      'is a task of a swarm service',
      `run \`docker service update --image IMAGE:TAG --update-failure-action rollback ${service}\``,
    )
  }
  if (labelsOf(image)[HOLDER_LABEL] !== undefined)
    refuse(
      'is the holder of another container’s ports and cannot be replaced by a release',
      'choose the container behind it',
    )
  const unit = labels['PODMAN_SYSTEMD_UNIT']
  if (unit !== undefined) {
    refuse(
      `belongs to the systemd unit ${unit}`,
      `change the image in the unit and run \`systemctl restart ${unit}\`, or use \`podman auto-update\``,
    )
  }
  if (labels['io.kubernetes.pod.uid'] !== undefined)
    refuse('belongs to a Kubernetes pod', 'change the image in the workload that owns the pod')
  if (container.HostConfig.AutoRemove === true) {
    refuse(
      'was started with --rm: it would be removed as soon as it stops, and could not be restored',
      'start it without --rm first',
    )
  }
  if (container.State.Paused === true) refuse('is paused', `run \`docker unpause ${name}\` first`)
  if (!container.State.Running) {
    refuse(
      `is not running (${container.State.Status}), so the new container cannot be compared with it`,
      `run \`docker start ${name}\` first`,
    )
  }
  const sharing = others.filter((other) => !isKept(nameOf(other)) && sharesWith(other, container)).map(nameOf)
  if (sharing.length > 0) {
    refuse(
      `cannot be replaced while ${sharing.join(', ')} ${sharing.length === 1 ? 'is linked to it or shares its' : 'are linked to it or share its'} network or PID namespace: the link would stay with the old container`,
      `remove ${sharing.join(', ')} first, and recreate ${sharing.length === 1 ? 'it' : 'them'} afterwards`,
    )
  }
  const state = labelsOf(image)[IMAGE_LABELS.state]
  const lost = state === undefined ? undefined : changes.find((path) => path.startsWith(`${state}/`))
  if (lost !== undefined) {
    refuse(
      `keeps its state in its own layer (${lost}), not on a volume, so the state would be left behind`,
      `copy it out (\`docker cp ${name}:${state} FOLDER\`) and start the container with a volume at ${state}`,
    )
  }
}

/** What replaces what. `door`: the container that publishes the ports, its holder if it has one. */
export interface Exchange {
  container: ContainerInspection
  oldImage: ImageInspection
  door: ContainerInspection
  newImage: ImageInspection
  /** name of the new image */
  reference: string
}

/**
 * Another service's image may listen on a port that nobody publishes, and keep its state where the data are not: it would be well, and
 * off the air. Nothing is refused where a person may have told it other places. Throws BatonError refused, with all that does not fit.
 */
export function refuseMisfit(exchange: Exchange): void {
  const faults = [misledPort(exchange), dataLeftBehind(exchange)].filter((fault) => fault !== null)
  if (faults.length === 0 || isConfigured(exchange)) return
  const ways = series(
    faults.map(({ way }) => way),
    'and',
  )
  throw new BatonError('refused', faults.map(({ message }) => message).join('; '), {
    hint: `recreate the container from that image, by hand or with compose, using ${ways}`,
  })
}

interface Misfit {
  message: string
  way: string
}

function misledPort({ container, oldImage, door, newImage, reference }: Exchange): Misfit | null {
  const { NetworkMode: mode, PortBindings, PublishAllPorts } = door.HostConfig
  const [port, published] = [saidPort(newImage), tcpPorts(PortBindings)]
  if (port === null || published.length === 0 || PublishAllPorts === true) return null
  if (/^(host$|none$|container:)/.test(mode)) return null
  // whoever exposes the port without publishing it is asked there by its neighbours, before and after
  const exposed = [container.Config, oldImage.Config].flatMap((config) => tcpPorts(config?.ExposedPorts))
  if ([...published, ...exposed].includes(port)) return null
  const numbers = ownWords(container, oldImage).split(/\D+/)
  if (published.some((one) => numbers.includes(String(one)))) return null
  return {
    message: `${reference} listens on port ${port}, but \`${nameOf(door)}\` publishes ${published.join(', ')}`,
    way: `\`-p HOST_PORT:${port}\` (or build it with \`"port": ${published[0]}\` in baton.config.json)`,
  }
}

function dataLeftBehind({ container, oldImage, newImage, reference }: Exchange): Misfit | null {
  const state = labelsOf(newImage)[IMAGE_LABELS.state]
  const { Mounts, HostConfig } = container
  const mounted = [...Mounts.map(({ Destination }) => Destination), ...Object.keys(HostConfig['Tmpfs'] ?? {})]
  if (state === undefined || mounted.some((path) => overlaps(path, state))) return null
  const knows = newImage.Config?.Volumes ?? {}
  const words = ownWords(container, oldImage)
  const left = Mounts.find(
    ({ Type, Destination }) =>
      Type === 'volume' &&
      Destination in (oldImage.Config?.Volumes ?? {}) &&
      !(Destination in knows) &&
      !words.includes(Destination),
  )
  if (left === undefined) return null
  return {
    message: `${reference} keeps its state in ${state}, but the data of \`${nameOf(container)}\` is in a volume at ${left.Destination} and would be left behind`,
    way: `\`-v ${left.Name}:${state}\` (the files in it must belong to \`${newImage.Config?.User || 'root'}\`)`,
  }
}

/** Whether a person gives the new image a configuration, or sets a variable by which it finds its configuration or its state. */
function isConfigured({ container, oldImage, newImage }: Exchange): boolean {
  const { [IMAGE_LABELS.service]: service = '', [IMAGE_LABELS.state]: state = '' } = labelsOf(newImage)
  const configuration = `/etc/${service}`
  const places = [configuration, state].filter((place) => place !== '')
  const variables = (newImage.Config?.Env ?? []).filter((entry) => places.some((place) => entry.includes(`=${place}`)))
  const own = ownVariables(container, oldImage)
  const isSet = (name: string) => own.some((entry) => entry.startsWith(`${name}=`))
  return (
    container.Mounts.some(({ Destination }) => overlaps(Destination, configuration)) ||
    variables.some((entry) => isSet(entry.split('=', 1)[0] ?? ''))
  )
}

function overlaps(one: string, other: string): boolean {
  return `${one}/`.startsWith(`${other}/`) || `${other}/`.startsWith(`${one}/`)
}

function ownVariables({ Config }: ContainerInspection, { Config: old }: ImageInspection): string[] {
  return (Config.Env ?? []).filter((entry) => !(old?.Env ?? []).includes(entry))
}

/** All that a person has said to the application. */
function ownWords(container: ContainerInspection, image: ImageInspection): string {
  const { Entrypoint, Cmd } = container.Config
  const said = [
    isSame(Entrypoint, image.Config?.Entrypoint) ? [] : Entrypoint,
    isSame(Cmd, image.Config?.Cmd) ? [] : Cmd,
    ownVariables(container, image),
  ]
  return said.flatMap((words) => words ?? []).join('\n')
}

/**
 * A container inherits its image's labels, and a label of compose or of this route names files of the host. So an image with such
 * a label could choose what root reads and writes there. Throws BatonError refused.
 */
export function refuseClaims(image: ImageInspection, what: string): void {
  const claimed = claims(image)
  if (claimed.length === 0) return
  const message = `${what} has labels that are reserved for containers created by compose or by this command: ${claimed.slice(0, 3).join(', ')}`
  throw new BatonError('refused', message, {
    hint: 'build the image without them: `docker compose build` adds such labels to an image, but `docker build` does not',
  })
}

/** Labels of an image that only a tool may give to a container. */
export function claims(image: ImageInspection): string[] {
  return Object.keys(labelsOf(image)).filter(isToolLabel)
}

function sharesWith(other: ContainerInspection, container: ContainerInspection): boolean {
  const mine = [`container:${container.Id}`, `container:${nameOf(container)}`]
  const modes: unknown[] = [other.HostConfig.NetworkMode, other.HostConfig['PidMode'], other.HostConfig['IpcMode']]
  const joined = modes.some((mode) => typeof mode === 'string' && mine.includes(mode))
  const linked = (other.HostConfig.Links ?? []).some(
    (link) => link.split(':')[0]?.replace(/^\//, '') === nameOf(container),
  )
  return joined || linked
}
