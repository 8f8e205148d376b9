// A managed install as every operation on it needs it: its files, its feed, its journal. One type and one builder for both
// callers, the agent inside a service and the command line where none runs.

import { join } from 'node:path'
import { type Disk, makeDisk } from './disk.ts'
import type { OpenFeed } from '../words/release.ts'
import { type Journal, makeJournal, updateDirectory } from './journal.ts'
import type { Log } from '../log.ts'
import { type Places, placesOf } from './places.ts'

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
  /** as in the settings of an update */
  stallMs: number
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
    stallMs: options.stallMs,
    log,
    runningImage: options.runningImage ?? (() => Promise.resolve(null)),
    serves: options.serves ?? false,
  }
}

/** Path of what runs, or would where nothing does: an executable of ours that does as this release does. */
export async function imageOf({ places, runningImage }: ManagedInstall): Promise<string> {
  return (await runningImage()) ?? places.executable
}

/** The folders in which an operation makes temporary files. */
export function foldersOf({ places, stateDirectory }: ManagedInstall): string[] {
  const kept = updateDirectory(stateDirectory)
  return [places.directory, kept, join(kept, 'snapshots')]
}
