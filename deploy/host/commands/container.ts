// The operator's commands in a container of `baton image`. There is no install in it: its image is what gets updated, by a command that
// runs on its host.

import { IN_CONTAINER, ownContainerId, updateCommand } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import type { Environment } from '../place/choices.ts'

/** Null if this is no such container. */
export function wayInContainer(
  service: string,
  environment: Environment,
): { why: string; command: string; id: string | null } | null {
  if (environment['BATON_CONTAINER'] !== '1') return null
  const id = ownContainerId()
  return { why: IN_CONTAINER, command: updateCommand({ id, service }, environment), id }
}

/** Throws BatonError not_managed, with what to do on the host instead. */
export function refuseInContainer(service: string, environment: Environment): void {
  const way = wayInContainer(service, environment)
  if (way === null) return
  const id = way.id?.slice(0, 12) ?? 'CONTAINER'
  throw new BatonError('not_managed', way.why, {
    hint: `on the container's host, run \`${way.command}\` to update; replace \`--release latest\` with \`--status\` to see what is running, or with \`--rollback\` to go back; for the log, run \`docker logs ${id}\``,
  })
}
