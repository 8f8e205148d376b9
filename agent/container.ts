// Which container this process runs in, as the engine on the host knows it.

import { readFile } from 'node:fs/promises'
import { hostname } from 'node:os'

/** Id, or null outside of a container and where it cannot be told. */
export async function ownContainerId(): Promise<string | null> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')
  return containerIdIn(mounts, hostname())
}

/** The whole command that updates this container, to be run on its host. `id` null: where it cannot be told. Pure. */
export function updateCommand(id: string | null, environment: Readonly<Record<string, string | undefined>>): string {
  const image = environment['BATON_DEPLOY_IMAGE'] ?? ''
  const socket = '/var/run/docker.sock'
  const program = image === '' ? 'deploy-container.sh' : `docker run --rm -v ${socket}:${socket} ${image} deploy`
  return `${program}${id === null ? '' : ` --container ${id.slice(0, 12)}`} --release latest`
}

/** The engine mounts a container's own `hostname` and `resolv.conf` from a folder that has its id for a name. Pure. */
export function containerIdIn(mountinfo: string, host: string): string | null {
  const mounted = /\/(?:containers|overlay-containers)\/([0-9a-f]{64})\/\S*(?:hostname|resolv\.conf) \/etc\//.exec(
    mountinfo,
  )?.[1]
  if (mounted !== undefined) return mounted
  return mountinfo !== '' && /^[0-9a-f]{12}$/.test(host) ? host : null
}
