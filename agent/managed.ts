// Decides whether this install is managed. It is managed only if a receipt names this executable: root's receipt for a service of
// the whole host, the user's own for a service of one user. Any other install gets the route to take instead (501).

import { existsSync, statSync } from 'node:fs'
import { type ManagedInstall, openInstall } from './disk/managed-install.ts'
import { isSingleExecutable, ownContainerId } from './own.ts'
import { TRIAL } from './words/wire.ts'
import type { Settings } from './settings.ts'
import type { Unmanaged } from './words/other-way.ts'
import { feedName } from './words/feed-choice.ts'
import type { OpenFeed } from './words/release.ts'
import { reasonOf } from './words/errors.ts'
import { nodeFiles } from './words/later.ts'
import { missingParts } from './sockets/internals.ts'
import { names, receiptFor, type Receipt } from './disk/receipt.ts'

export type Management =
  | { managed: true; receipt: Receipt; executable: string }
  | { managed: false; why: Unmanaged; reason: string; route: string; command: string | null }

export const NO_FIRST_CODE = 'this executable has none of the first code with which `baton build` begins a release'

interface Ground {
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
  }: Ground = {},
): Promise<Management> {
  const refuse = async (why: Unmanaged, given?: string): Promise<Management> => {
    const { REASONS, ROUTES, updateCommand } = await import('./words/other-way.ts')
    const reason = given ?? REASONS[why] ?? why
    const command = why === 'container' ? updateCommand(await ownContainerId(), environment) : null
    return { managed: false, why, reason, route: ROUTES[why], command }
  }
  if (environment[TRIAL] === '1') return refuse('source', 'only a trial')
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
    return refuse('foreign_receipt', reasonOf(cause))
  }
  if (receipt === null) {
    return insideContainer()
      ? refuse('container')
      : refuse('no_receipt', `${executable} was put here by hand, not by \`install.sh\``)
  }
  if (receipt.service !== service) {
    return refuse('foreign_receipt', `the install of ${executable} is one of ${receipt.service}, this is ${service}`)
  }
  if (!(await names(receipt, executable))) {
    return refuse('foreign_receipt', `the install is of ${receipt.executable}, this is ${executable}`)
  }
  // Without these parts a revert would leave no process to serve, and no handover needs less.
  if (missing.length > 0)
    return refuse('node', `Node ${process.version} cannot hand over, it lacks ${missing.join(', ')}`)
  if (lacksFirstCode)
    return refuse('first_code', `only one process of this service may live at a time, and ${NO_FIRST_CODE}`)
  return { managed: true, receipt, executable }
}

/** This process's own install. Uses the receipt's feed if the settings name none. Opens no feed yet. */
export async function openOwnInstall(
  settings: Settings,
  executable: string,
  receipt: Receipt,
): Promise<ManagedInstall> {
  const { service, tag, stateDirectory, database, log } = settings
  const first = statSync(executable)
  if (settings.trust === null) {
    log({
      event: 'warning',
      message: 'updates are not signed: anybody who can write to the feed decides what runs here',
    })
  }
  const choice = { ...settings.choice, feed: settings.feed ?? receipt.feed }
  const feed = openLater(feedName(choice), settings.trust !== null, async () => {
    const { openFeed } = await import('./update/feed/open.ts')
    const onPassedOver = (passed: string, why: string) =>
      log({ event: 'warning', message: `not using ${passed}: ${why}` })
    const onMoved = (message: string) => log({ event: 'warning', message })
    const onLeftOut = onMoved
    return openFeed(choice, { service, stateDirectory, trust: settings.trust, onPassedOver, onMoved, onLeftOut })
  })
  const runningImage = async () => {
    const now = await nodeFiles().stat(executable)
    const replacedByHand = now.dev !== first.dev || now.ino !== first.ino
    return replacedByHand && isSingleExecutable() && process.platform === 'linux' ? '/proc/self/exe' : null
  }
  const { stallMs, readyMs, maxPauseMs } = settings.update
  const next = { order: settings.order, maxPauseMs }
  const own = {
    service,
    executable,
    current: tag,
    stateDirectory,
    database,
    feed,
    stallMs,
    readyMs,
    next,
    receipt,
    log,
  }
  return openInstall({ ...own, runningImage, serves: true })
}

/** Opens the feed at the first question: a service that only serves needs none of its code. */
function openLater(description: string, signed: boolean, open: () => Promise<OpenFeed>): OpenFeed {
  let opened: Promise<OpenFeed> | null = null
  const feed = async () => {
    try {
      return await (opened ??= open())
    } catch (cause) {
      opened = null // the next question tries again
      throw cause
    }
  }
  const close = async () => await (await opened?.catch(() => null))?.close()
  return {
    description,
    load: async () => await (await feed()).load(),
    latest: async (...asked) => await (await feed()).latest(...asked),
    notes: async (...asked) => await (await feed()).notes(...asked),
    trust: async () => {
      const usable = await feed().catch((cause: unknown) => reasonOf(cause))
      if (typeof usable !== 'string') return await usable.trust()
      return { signed, metadata: [], yanked: [], warning: usable } // a feed that cannot be opened must not fail the status
    },
    byTag: async (...asked) => await (await feed()).byTag(...asked),
    bytes: async (...asked) => await (await feed()).bytes(...asked),
    leaveOut: async () => (await (await feed()).leaveOut?.()) ?? false,
    close,
    [Symbol.asyncDispose]: close,
  }
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
