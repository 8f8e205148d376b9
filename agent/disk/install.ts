// A managed install as every operation on it needs it: its files, its feed, its journal. One type and one builder for both
// callers, the agent inside a service and the command line where none runs.

import { stat } from 'node:fs/promises'
import { type Disk, makeDisk } from './disk.ts'
import { type OpenFeed, openFeed } from '../update/feed/open.ts'
import { type Journal, makeJournal } from './journal.ts'
import type { Log } from '../log.ts'
import { isSingleExecutable } from '../own-start.ts'
import { type Places, placesOf } from './places.ts'
import { type Settings, UPDATE_BOUNDS } from '../settings.ts'

export interface ManagedInstall {
  readonly service: string
  /** tag that runs, or that is installed where nothing runs */
  current: string
  readonly disk: Disk
  readonly places: Places
  readonly stateDirectory: string
  /** path of `<service>.db`, null where the service has none */
  readonly database: string | null
  readonly feed: OpenFeed
  readonly journal: Journal
  readonly stallMs: number
  readonly log: Log
  /** see SwapOptions */
  readonly runningImage: () => Promise<string | null>
  /** whether the application runs in this very process, and may have the database open in it */
  readonly serves: boolean
}

export interface InstallOptions {
  service: string
  /** absolute path */
  executable: string
  current: string
  stateDirectory: string
  database: string | null
  feed: OpenFeed
  /** default as in the settings of an update */
  stallMs?: number
  log: Log
  /** default: the file at `executable` is what runs, if anything does */
  runningImage?: () => Promise<string | null>
  /** default: a command, in which no application runs */
  serves?: boolean
}

/** Opens nothing yet. */
export function openInstall(options: InstallOptions): ManagedInstall {
  const { executable, stateDirectory, log } = options
  const disk = makeDisk()
  return {
    service: options.service,
    current: options.current,
    disk,
    places: placesOf(executable),
    stateDirectory,
    database: options.database,
    feed: options.feed,
    journal: makeJournal(disk, stateDirectory, (message) => log({ event: 'warning', message })),
    stallMs: options.stallMs ?? UPDATE_BOUNDS.stallMs[2],
    log,
    runningImage: options.runningImage ?? (() => Promise.resolve(null)),
    serves: options.serves ?? false,
  }
}

/** Path of what runs, or would where nothing does: an executable of ours that does as this release does. */
export async function imageOf({ places, runningImage }: ManagedInstall): Promise<string> {
  return (await runningImage()) ?? places.executable
}

/** The install that this very process is of. `receiptFeed` counts where the settings name none. */
export async function openOwnInstall(
  settings: Settings,
  executable: string,
  receiptFeed: string,
): Promise<ManagedInstall> {
  const { service, tag, stateDirectory, database, log } = settings
  const first = await stat(executable)
  if (settings.trust === null) {
    log({ event: 'warning', message: 'updates are not signed: whoever can write to the feed decides what runs here' })
  }
  const feed = openFeed(settings.feed ?? receiptFeed, {
    service,
    stateDirectory,
    trust: settings.trust,
    onPassedOver: (passed, why) => log({ event: 'warning', message: `not using ${passed}: ${why}` }),
  })
  const runningImage = async () => {
    const now = await stat(executable)
    const replacedByHand = now.dev !== first.dev || now.ino !== first.ino
    return replacedByHand && isSingleExecutable() && process.platform === 'linux' ? '/proc/self/exe' : null
  }
  const { stallMs } = settings.update
  const own = { service, executable, current: tag, stateDirectory, database, feed, stallMs, log }
  return openInstall({ ...own, runningImage, serves: true })
}
