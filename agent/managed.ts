// Decides whether this install is managed. It is managed only if a receipt names this executable: root's receipt for a service of
// the whole host, the user's own for a service of one user. Any other install gets the route to take instead (501).

import { existsSync, statSync } from 'node:fs'
import type { ManagedInstall } from './disk/managed-install.ts'
import { type Places, placesOf } from './disk/places.ts'
import type { Log } from './log.ts'
import { TRIAL } from './words/wire.ts'
import type { Settings } from './settings.ts'
import type { Unmanaged } from './words/other-way.ts'
import { reasonOf } from './words/errors.ts'
import { onceLoaded } from './words/later.ts'
import { missingParts } from './sockets/internals.ts'
import { isNamedBy, receiptFor, type Receipt } from './disk/receipt.ts'

interface Managed {
  managed: true
  receipt: Receipt
  executable: string
}

export type Management =
  | Managed
  | { managed: false; why: Unmanaged; reason: string; route: string; command: string | null }

export const NO_FIRST_CODE = 'this executable lacks the startup code that `baton build` puts into a release'

interface Surroundings {
  environment?: Readonly<Record<string, string | undefined>>
  platform?: NodeJS.Platform
  /** what a handover needs and this Node lacks */
  missing?: readonly string[]
  /** the release may only live as one process, but it lacks the first code, in which a successor would wait for its turn */
  lacksFirstCode?: boolean
}

/** `executable`: absolute path of the running executable, or null if the service runs from source. */
export async function decideManagement(
  service: string,
  executable: string | null,
  {
    environment = process.env,
    platform = process.platform,
    missing = missingParts(),
    lacksFirstCode = false,
  }: Surroundings = {},
): Promise<Management> {
  const refuse = async (why: Unmanaged, given?: string): Promise<Management> => {
    const loaded = Promise.all([import('./words/other-way.ts'), import('./sockets/process.ts')])
    const [{ REASONS, ROUTES, updateCommand }, { ownContainerId }] = await loaded
    const reason = given ?? REASONS[why] ?? why
    const command = why === 'container' ? updateCommand({ id: ownContainerId(), service }, environment) : null
    return { managed: false, why, reason, route: ROUTES[why], command }
  }
  if (environment[TRIAL] === '1') return refuse('source', 'this is only a trial run')
  if (platform === 'win32') return refuse('windows')
  // A handover goes from one process to one. Each of several would want to be the only one (docs/about/limits.md).
  if (isOneOfMany()) return refuse('cluster')
  // The image sets this variable. A host that happens to be a container may still be a managed install, by its receipt.
  if (environment['BATON_CONTAINER'] === '1') return refuse('container')
  if (executable === null) return refuse('source')
  let receipt: Receipt | null
  try {
    receipt = await receiptFor(service, executable)
  } catch (cause) {
    // A damaged receipt must not keep the service from serving.
    return refuse('other_executable', reasonOf(cause))
  }
  if (receipt === null) {
    return insideContainer()
      ? refuse('container')
      : refuse('by_hand', `${executable} was installed by hand, not by \`install.sh\``)
  }
  if (receipt.service !== service) {
    return refuse('other_executable', `${executable} is installed as the service ${receipt.service}, not as ${service}`)
  }
  if (!(await isNamedBy(receipt, executable))) {
    return refuse(
      'other_executable',
      `the installed executable is ${receipt.executable}, but the running one is ${executable}`,
    )
  }
  // Without these parts a revert would leave no process to serve. Each handover needs all of them.
  if (missing.length > 0)
    return refuse('node', `Node ${process.version} does not support handovers: it lacks ${missing.join(', ')}`)
  if (lacksFirstCode)
    return refuse('first_code', `only one process of this service may run at a time, but ${NO_FIRST_CODE}`)
  return { managed: true, receipt, executable }
}

/** This process's own install, as a start sees it. */
export interface OwnInstall {
  readonly places: Places
  readonly stateDirectory: string
  readonly log: Log
  /** All of it, which a service that only serves does not need. */
  open(): Promise<ManagedInstall>
}

export function ownInstall(settings: Settings, { executable, receipt }: Managed): OwnInstall {
  const { log, stateDirectory } = settings
  const first = statSync(executable)
  const open = async () =>
    (await import('./update/own-install.ts')).openOwnInstall(settings, receipt, executable, first)
  return { places: placesOf(executable), stateDirectory, log, open: onceLoaded(open) }
}

/** Whether `node:cluster` runs this service as several processes. A worker and a primary have loaded it: do not load it to ask. */
function isOneOfMany(): boolean {
  const { moduleLoadList: loaded } = process as { moduleLoadList?: readonly string[] }
  if (loaded?.includes('NativeModule cluster') === false) return false
  const { isWorker, workers } = process.getBuiltinModule('node:cluster')
  return isWorker || Object.keys(workers ?? {}).length > 0
}

function insideContainer(): boolean {
  return existsSync('/.dockerenv') || existsSync('/run/.containerenv')
}
