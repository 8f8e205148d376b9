// This process's own install: with the feed of its settings or its receipt, and the executable that it has started from. Loaded at the
// first question, or by a start that has something to clear up.

import type { Stats } from 'node:fs'
import { type ManagedInstall, openInstall } from '../disk/managed-install.ts'
import type { Receipt } from '../disk/receipt.ts'
import { isSingleExecutable } from '../own.ts'
import type { Settings } from '../settings.ts'
import { reasonOf } from '../words/errors.ts'
import { feedName } from '../words/feed-choice.ts'
import { nodeFiles, onceLoaded } from '../words/later.ts'
import type { OpenFeed } from '../words/release.ts'

/** Uses the receipt's feed if the settings name none. Opens no feed yet. `first`: the file at `executable` when this process started. */
export function openOwnInstall(
  settings: Settings,
  receipt: Receipt,
  executable: string,
  first: Pick<Stats, 'dev' | 'ino'>,
): ManagedInstall {
  const { service, tag: current, stateDirectory, database, log } = settings
  const choice = { ...settings.choice, feed: settings.feed ?? receipt.feed }
  const feed = openLater(feedName(choice), settings.trust !== null, async () => {
    const { openFeed } = await import('./feed/open.ts')
    const warn = (message: string) => log({ event: 'warning', message })
    const onPassedOver = (passed: string, why: string) => warn(`not using ${passed}: ${why}`)
    const told = { onPassedOver, onMoved: warn, onLeftOut: warn }
    return openFeed(choice, { service, stateDirectory, trust: settings.trust, ...told })
  })
  const runningImage = async () => {
    const now = await nodeFiles().stat(executable)
    const replacedByHand = now.dev !== first.dev || now.ino !== first.ino
    return replacedByHand && isSingleExecutable() && process.platform === 'linux' ? '/proc/self/exe' : null
  }
  const { readyMs, maxPauseMs } = settings.update
  const limits = { readyMs, next: { order: settings.order, maxPauseMs } }
  const known = { service, executable, current, stateDirectory, database, feed, receipt, log }
  const feedAgain = { choice, trust: settings.trust }
  return openInstall({ ...known, ...limits, runningImage, feedAgain, serves: true })
}

/** Opens the feed at the first question: a service that only serves needs none of its code. */
function openLater(description: string, signed: boolean, open: () => Promise<OpenFeed>): OpenFeed {
  let opened: Promise<OpenFeed> | null = null
  const feed = onceLoaded(() => (opened = open()))
  const close = async () => await (await opened?.catch(() => null))?.close()
  return {
    description,
    load: async () => await (await feed()).load(),
    latest: async (...asked) => await (await feed()).latest(...asked),
    notes: async (...asked) => await (await feed()).notes(...asked),
    trust: async () => {
      const usable = await feed().catch((cause: unknown) => reasonOf(cause))
      if (typeof usable !== 'string') return await usable.trust()
      // a feed that cannot be opened must not fail the status
      return { signed, metadata: [], yanked: [], warning: { code: 'unusable', message: usable } }
    },
    byTag: async (...asked) => await (await feed()).byTag(...asked),
    bytes: async (...asked) => await (await feed()).bytes(...asked),
    leaveOut: async () => (await (await feed()).leaveOut?.()) ?? false,
    close,
    [Symbol.asyncDispose]: close,
  }
}
