// The containers that this route refuses to touch, and what to do instead. Pure.
// Must hold: a refusal comes before anything has changed.

import { BatonError } from '../../agent/words.ts'
import type { ContainerInspection, ImageInspection } from './inspection.ts'
import { labelsOf, nameOf } from './inspection.ts'
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
    refuse('is a holder of another container’s ports, which no release replaces', 'name that container')
  const unit = labels['PODMAN_SYSTEMD_UNIT']
  if (unit !== undefined) {
    refuse(
      `belongs to the systemd unit ${unit}`,
      `change the image there and run \`systemctl restart ${unit}\`, or use \`podman auto-update\``,
    )
  }
  if (labels['io.kubernetes.pod.uid'] !== undefined)
    refuse('belongs to a Kubernetes pod', 'change the image of its workload')
  if (container.HostConfig.AutoRemove === true) {
    refuse('was started with --rm: it is gone once it stops, and could not be put back', 'start it without --rm first')
  }
  if (container.State.Paused === true) refuse('is paused', `run \`docker unpause ${name}\` first`)
  if (!container.State.Running) {
    refuse(
      `is not running (${container.State.Status}), so the new one could not be compared with it`,
      `run \`docker start ${name}\` first`,
    )
  }
  const sharing = others.filter((other) => !isKept(nameOf(other)) && sharesWith(other, container)).map(nameOf)
  if (sharing.length > 0) {
    refuse(
      `lends its network, its processes or a link to ${sharing.join(', ')}, which would stay with the old container`,
      `remove ${sharing.join(', ')} first and create it anew afterwards`,
    )
  }
  const state = labelsOf(image)[IMAGE_LABELS.state]
  const lost = state === undefined ? undefined : changes.find((path) => path.startsWith(`${state}/`))
  if (lost !== undefined) {
    refuse(
      `keeps its state in its own layer (${lost}): it is not on a volume and would be left behind`,
      `copy it out (\`docker cp ${name}:${state} FOLDER\`) and start the container with a volume at ${state}`,
    )
  }
}

/**
 * A container inherits its image's labels, and a label of compose or of this route names files of the host. So an image with such
 * a label could choose what root reads and writes there. Throws BatonError refused.
 */
export function refuseClaims(image: ImageInspection, what: string): void {
  const claimed = claims(image)
  if (claimed.length === 0) return
  const message = `${what} carries the label ${claimed.slice(0, 3).join(', ')} itself, which only compose or this command gives to a container`
  throw new BatonError('refused', message, {
    hint: 'build it without: `docker compose build` leaves such labels in an image, `docker build` does not',
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
