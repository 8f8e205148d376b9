// Could this install be updated again? Asked of a release before it is committed: one that serves well and can no longer
// replace itself is a trap. Leaves nothing on the disk.

import { canMakeUnnamed, temporaryName } from '../disk/disk.ts'
import { reasonOf } from '../words/errors.ts'
import { updateDirectory } from '../disk/journal.ts'
import type { ManagedInstall } from '../disk/install.ts'

export interface Prospect {
  /** why the next update could not be put in place, one clause; null where it could */
  problem: string | null
  /** whether the feed answers: to be held against what the predecessor gets from it */
  feed: boolean
}

export const FEED_PATIENCE_MS = 10_000

/** Never throws. Takes at most FEED_PATIENCE_MS where the feed does not answer. */
export async function couldUpdate(install: ManagedInstall): Promise<Prospect> {
  const [problem, feed] = await Promise.all([unwritable(install), answers(install)])
  return { problem, feed }
}

/** As an update would: a file made and removed in each directory that it changes. */
async function unwritable({ disk, places, stateDirectory }: ManagedInstall): Promise<string | null> {
  for (const directory of [places.directory, updateDirectory(stateDirectory)]) {
    // of the names that the next start clears away, should this process be killed just here
    const path = temporaryName(`${directory}/could-update`)
    try {
      if (directory !== places.directory) await disk.makeDirectory(directory, 0o700)
      if (await canMakeUnnamed(directory)) continue
      await (await disk.create(path, 0o600)).close()
      await disk.remove(path)
    } catch (cause) {
      return `writing in ${directory}: ${reasonOf(cause)}`
    }
  }
  return null
}

/** Any failure counts, also that of trust: what the release could not use, it could not be updated to. */
async function answers({ feed }: ManagedInstall): Promise<boolean> {
  try {
    const { release, problem } = await feed.latest(() => false, AbortSignal.timeout(FEED_PATIENCE_MS))
    return release !== null || problem === null
  } catch {
    return false
  } finally {
    await feed.close().catch(() => {})
  }
}
