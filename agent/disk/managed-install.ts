// A managed install as every operation needs it: its files, its feed, its journal. Both callers use this type and this builder:
// the agent inside a service, and the command line if no service runs.

import { UPDATE_BOUNDS } from '../words/bounds.ts'
import { type Disk, makeDisk } from './disk.ts'
import type { FeedChoice } from '../words/feed-choice.ts'
import type { Anchor, OpenFeed } from '../words/release.ts'
import type { NextSwitch } from '../words/order.ts'
import { type Journal, makeJournal } from './journal.ts'
import type { Log } from '../log.ts'
import type { Receipt } from './receipt.ts'
import { type Places, placesOf } from './places.ts'

export interface ManagedInstall {
  readonly service: string
  /** tag of the release that runs; if none runs, of the one that is installed */
  current: string
  readonly disk: Disk
  readonly places: Places
  readonly stateDirectory: string
  /** path of the database, null if the service has none */
  readonly database: string | null
  readonly feed: OpenFeed
  /** how another process opens the same feed, to download beside a service; absent: this process downloads */
  readonly feedAgain?: { choice: FeedChoice; trust: Anchor | null }
  readonly journal: Journal
  /** milliseconds that a release may take until it serves */
  readonly readyMs: number
  /** how the release that serves asks to be replaced; null: none serves */
  readonly next: Pick<NextSwitch, 'maxPauseMs' | 'order'> | null
  /** null: an operation without an installer, as in a test */
  readonly receipt: Pick<Receipt, 'supervisor' | 'configPath'> | null
  readonly log: Log
  /** see SwapOptions */
  readonly runningImage: () => Promise<string | null>
  /** whether the application runs in this process, and may have the database open in it */
  readonly serves: boolean
}

/** What may be left out: nothing serves, in a command, in which no application runs. */
type Usual = 'readyMs' | 'next' | 'receipt' | 'runningImage' | 'serves'

export interface InstallOptions
  extends Omit<ManagedInstall, 'disk' | 'places' | 'journal' | Usual>, Partial<Pick<ManagedInstall, Usual>> {
  /** absolute path */
  executable: string
}

/** Opens nothing yet. */
export function openInstall({ executable, ...options }: InstallOptions): ManagedInstall {
  const { stateDirectory, log } = options
  const disk = makeDisk()
  return {
    readyMs: UPDATE_BOUNDS.readyMs[2],
    next: null,
    receipt: null,
    runningImage: () => Promise.resolve(null),
    serves: false,
    ...options,
    disk,
    places: placesOf(executable),
    journal: makeJournal(disk, stateDirectory, (message) => log({ event: 'warning', message })),
  }
}

/** Path of a Baton executable of the running release: the one that runs, or the one that would run if nothing does. */
export async function imageOf({
  places,
  runningImage,
}: Pick<ManagedInstall, 'places' | 'runningImage'>): Promise<string> {
  return (await runningImage()) ?? places.executable
}
