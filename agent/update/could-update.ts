// Whether this install could make the next update. The predecessor asks the new release before the commit: a release that serves
// well but can no longer replace itself is a trap. Leaves nothing on the disk.

import { canMakeUnnamed } from '../disk/disk.ts'
import { reasonOf } from '../words/errors.ts'
import { temporaryName, updateDirectory } from '../disk/places.ts'
import type { ManagedInstall } from '../disk/managed-install.ts'
import type { Ability } from '../words/wire.ts'

export const FEED_PATIENCE_MS = 10_000

/** Never throws. Takes at most FEED_PATIENCE_MS if the feed does not answer. */
export async function couldUpdate(install: ManagedInstall): Promise<Ability> {
  const [problem, feed] = await Promise.all([unwritable(install), answers(install)])
  return { problem, feed }
}

/** Makes and removes a file in each directory that an update changes. */
async function unwritable({ disk, places, stateDirectory }: ManagedInstall): Promise<string | null> {
  for (const directory of [places.directory, updateDirectory(stateDirectory)]) {
    // a temporary name: if this process is killed here, the next start removes the file
    const path = temporaryName(`${directory}/could-update`)
    try {
      if (directory !== places.directory) await disk.makeDirectory(directory, 0o700)
      if (canMakeUnnamed(directory)) continue
      await (await disk.create(path, 0o600)).close()
      await disk.remove(path)
    } catch (cause) {
      return `writing to ${directory}: ${reasonOf(cause)}`
    }
  }
  return null
}

/**
 * Whether this process can use the feed. A feed without releases counts: that is not the update's fault. False if the feed fails, does not
 * answer in time, is not trusted, or has releases of which this process can use none.
 */
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
