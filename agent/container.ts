// Which container this process runs in, as the engine on the host knows it.

import { readFile } from 'node:fs/promises'
import { hostname } from 'node:os'

/** Id, or null outside of a container and where it cannot be told. */
export async function ownContainerId(): Promise<string | null> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')
  return containerIdIn(mounts, hostname())
}

/** The engine mounts a container's own `hostname` and `resolv.conf` from a folder that has its id for a name. Pure. */
export function containerIdIn(mountinfo: string, host: string): string | null {
  const mounted = /\/(?:containers|overlay-containers)\/([0-9a-f]{64})\/\S*(?:hostname|resolv\.conf) \/etc\//.exec(
    mountinfo,
  )?.[1]
  if (mounted !== undefined) return mounted
  return mountinfo !== '' && /^[0-9a-f]{12}$/.test(host) ? host : null
}
