// The commit line of an update. The table names the files beside the executable, and what a power cut leaves at each point:
//
//   swap      1 .former  -> the earlier backup      executable old, .backup earlier  (cleared: .former goes)
//             2 .backup  -> the old executable      executable old, .backup the same file  (cleared: .former comes back)
//             3 executable -> the new one           executable new, .backup old: on probation at the next start
//   undo      4 executable -> .backup's file        executable old, .backup absent, .former earlier  (cleared: comes back)
//             5 .backup  -> .former
//   restore   6 .aside   -> the executable          executable new, .aside the same file  (cleared: .aside goes)
//             7 executable -> .backup's file        executable old, .backup absent  (cleared: .aside becomes .backup)
//             8 .backup  -> .aside
//   commit    9 .former is removed
//
// Must hold: the path of the executable names a whole, runnable executable at every moment.

import { type Disk, exists, sameFile } from '../../disk/disk.ts'
import { asBatonError, BatonError } from '../../words/errors.ts'
import { ownCommand } from '../own-command.ts'
import type { Places } from '../../disk/places.ts'
import type { Release } from '../../words/release.ts'
import type { Decision, InPlace } from '../decide.ts'
import type { Candidate } from '../story.ts'

export interface SwapOptions {
  disk: Disk
  places: Places
  /**
   * If a person has replaced the file at `places.executable` while the service runs: the path from which the running executable can
   * still be read. Else null. On Linux `/proc/self/exe` reads a file that has lost its name.
   */
  runningImage: () => Promise<string | null>
  /** snapshots the database; runs before anything changes */
  snapshot: () => Promise<void>
  /** tag of `.backup`; throws if it does not run */
  backupTag: () => Promise<string>
  /** notes on the disk that `to` is on probation; runs before the first rename that could make `to` run */
  enterProbation: (to: string) => Promise<void>
}

export interface Swap {
  swap(candidate: Candidate, release: Release): Promise<void>
  /** Resolves to the tag of the restored one. */
  restore(): Promise<string>
  /** Puts the old executable back, as decided. A second call does nothing: it would undo more than was done. A failed one may be repeated. */
  takeBack(how: Decision['disk']): Promise<void>
  /** Removes the earlier backup after the commit. */
  settle(): Promise<void>
  inPlace(): InPlace
}

export function makeSwap(options: SwapOptions): Swap {
  const { disk, places } = options
  let inPlace: InPlace = 'old'

  return {
    async swap(candidate, release) {
      let hasBegun = false
      try {
        await options.snapshot()
        await options.enterProbation(release.tag)
        hasBegun = true
        await disk.remove(places.former)
        if (await exists(places.backup)) await disk.linkOver(places.backup, places.former) // 1
        const image = await options.runningImage()
        if (image === null) await disk.linkOver(places.executable, places.backup) // 2
        else await disk.replace(places.backup, (temporary) => disk.copy(image, temporary, 0o755))
        await disk.rename(candidate.path, places.executable) // 3
        inPlace = 'new'
        await disk.flushDirectory(places.directory)
      } catch (cause) {
        if (hasBegun && inPlace === 'old') await clearLeftovers(disk, places)
        throw asBatonError(cause, 'swap_failed', `replacing ${places.executable} with ${release.tag}`)
      }
    },

    async restore() {
      if (!(await exists(places.backup))) throw noBackup(places)
      const to = await options.backupTag()
      try {
        await options.snapshot()
        await options.enterProbation(to)
        await exchange(disk, places, () => (inPlace = 'new'))
      } catch (cause) {
        if (inPlace === 'old') await clearLeftovers(disk, places)
        throw asBatonError(cause, 'swap_failed', `restoring ${places.backup}`)
      }
      return to
    },

    async takeBack(how) {
      if (inPlace === 'new') await takeBack(disk, places, how, () => (inPlace = 'old'))
    },

    async settle() {
      await disk.remove(places.former)
      await disk.flushDirectory(places.directory)
    },
    inPlace: () => inPlace,
  }
}

/** Puts the old executable back, as decided. `moved` is called once it is in place: what fails then, the next start clears up. */
export async function takeBack(
  disk: Disk,
  places: Places,
  how: Decision['disk'],
  moved: () => void = () => {},
): Promise<void> {
  if (how === 'undo') await undoSwap(disk, places, moved)
  if (how === 'exchange') await exchange(disk, places, moved)
}

/** Puts `.backup` in place of the new executable, and brings the earlier backup back. */
async function undoSwap(disk: Disk, places: Places, moved: () => void): Promise<void> {
  await disk.rename(places.backup, places.executable) // 4
  moved()
  if (await exists(places.former)) await disk.rename(places.former, places.backup) // 5
  await disk.flushDirectory(places.directory)
}

/** Exchanges the executable and `.backup`. To undo it, call it again: it first finishes one that was interrupted. */
async function exchange(disk: Disk, places: Places, moved: () => void): Promise<void> {
  await finishExchange(disk, places)
  await disk.link(places.executable, places.aside) // 6
  await disk.rename(places.backup, places.executable) // 7
  moved()
  await disk.rename(places.aside, places.backup) // 8
  await disk.flushDirectory(places.directory)
}

/** Repairs what an interrupted swap, undo or restore has left (see the table above). Changes nothing if nothing was left. */
export async function clearLeftovers(disk: Disk, places: Places): Promise<void> {
  await disk.remove(places.partial)
  await finishExchange(disk, places)
  if (await sameFile(places.backup, places.executable)) await disk.remove(places.backup)
  if (await exists(places.former)) {
    if (await exists(places.backup)) await disk.remove(places.former)
    else await disk.rename(places.former, places.backup)
  }
  await disk.flushDirectory(places.directory)
}

/** Finishes an exchange that was interrupted. Safe at any time, in probation too. */
export async function finishExchange(disk: Disk, places: Places): Promise<void> {
  if (!(await exists(places.aside))) return
  if (await exists(places.backup)) await disk.remove(places.aside)
  else await disk.rename(places.aside, places.backup)
  await disk.flushDirectory(places.directory)
}

export function noBackup(places: Places): BatonError {
  return new BatonError('no_backup', `there is no backup of the executable at ${places.backup}`, {
    hint: `only an update leaves a backup behind; \`${ownCommand('rollback TAG')}\` downloads a release by its tag instead`,
  })
}

/** Whether there is an executable to put back, if an exchange was interrupted too. */
export async function hasBackup({ backup, aside }: Places): Promise<boolean> {
  return (await exists(backup)) || (await exists(aside))
}
