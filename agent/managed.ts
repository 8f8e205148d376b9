// Managed or not: only a receipt that names this very executable makes a managed install: root's for a service of the whole host,
// the user's own for a service of one user. Everything else is told which route to take instead (501).

import cluster from 'node:cluster'
import { access } from 'node:fs/promises'
import { ownContainerId, updateCommand } from './container.ts'
import { reasonOf } from './words/errors.ts'
import { missingParts } from './sockets/internals.ts'
import { names, receiptFor, type Receipt } from './disk/receipt.ts'

export type Unmanaged = 'windows' | 'container' | 'source' | 'no_receipt' | 'foreign_receipt' | 'node' | 'cluster'

export type Management =
  | { managed: true; receipt: Receipt; executable: string }
  | { managed: false; why: Unmanaged; reason: string; route: string; command: string | null }

const ROUTES: Record<Unmanaged, string> = {
  windows: 'download the new release asset, replace the executable, restart the process (docs/guides/manual-binary.md)',
  container: 'pull the new image, then recreate the container, from its host (docs/guides/container.md)',
  source: 'pull the source, rebuild and restart: `deploy-source.sh --ref <tag>` (docs/guides/from-source.md)',
  cluster: 'restart the service as a whole with the new executable, or serve from one process',
  no_receipt:
    'download the new release asset, replace the executable, restart the process, or run `install.sh` for a managed install (docs/guides/manual-binary.md)',
  foreign_receipt:
    'update the executable that the receipt names, or run `install.sh` to make this one a managed install',
  node: 'replace the executable by one that is built on Node 26.1 or later, and restart (docs/guides/manual-binary.md)',
}

/** `executable`: absolute path of the running executable, or null where the service runs from source. */
export async function decideManagement(
  service: string,
  executable: string | null,
  environment: Readonly<Record<string, string | undefined>>,
  platform: NodeJS.Platform = process.platform,
  missing: readonly string[] = missingParts(),
): Promise<Management> {
  const refuse = async (why: Unmanaged, reason: string): Promise<Management> => {
    const command = why === 'container' ? updateCommand(await ownContainerId(), environment) : null
    return { managed: false, why, reason, route: ROUTES[why], command }
  }
  if (platform === 'win32') return refuse('windows', 'on Windows a running executable cannot be replaced')
  // a handover is from one process to one; several would each want to be the only one (docs/adopt.md)
  if (cluster.isWorker || Object.keys(cluster.workers ?? {}).length > 0)
    return refuse('cluster', 'this service is several processes (node:cluster), which are not handed over')
  // The image says so itself; a host that happens to be a container may still be a managed install, by its receipt.
  if (environment['BATON_CONTAINER'] === '1')
    return refuse('container', 'this is a container; its image is what gets updated')
  if (executable === null) return refuse('source', 'this process runs from source, not from an executable')
  let receipt: Receipt | null
  try {
    receipt = await receiptFor(service, executable)
  } catch (cause) {
    // a damaged receipt must not keep the service from serving
    return refuse('foreign_receipt', reasonOf(cause))
  }
  if (receipt === null) {
    return (await insideContainer())
      ? refuse('container', 'this is a container without a receipt; its image is what gets updated')
      : refuse('no_receipt', `there is no receipt beside ${executable}: this executable was put here by hand`)
  }
  if (receipt.service !== service) {
    return refuse('foreign_receipt', `the receipt beside ${executable} is for ${receipt.service}, this is ${service}`)
  }
  if (!(await names(receipt, executable))) {
    return refuse('foreign_receipt', `the receipt names ${receipt.executable}, this is ${executable}`)
  }
  // A revert without them would leave nobody to serve: no second-best handover.
  if (missing.length > 0)
    return refuse('node', `Node ${process.version} cannot hand over, it lacks ${missing.join(', ')}`)
  return { managed: true, receipt, executable }
}

async function insideContainer(): Promise<boolean> {
  const marks = await Promise.allSettled([access('/.dockerenv'), access('/run/.containerenv')])
  return marks.some((mark) => mark.status === 'fulfilled')
}
