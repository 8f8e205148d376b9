// THE STORY. Start reading here. One update and one rollback, top to bottom; the effects are in `steps/`.
// Must never break: until `swap` the installed executable and the running service are untouched; after `swap`, every way
// out except success goes through `undo`.

import { asBatonError, BatonError, reasonOf } from '../words/errors.ts'
import type { Release } from '../words/release.ts'
import type { Outcome } from '../words/state.ts'

/** A downloaded executable that nothing runs yet. Disposing of it removes it from the disk, unless it was swapped in. */
export interface Candidate extends AsyncDisposable {
  path: string
  /** of the compressed asset as it came over the wire, hex */
  assetSha256: string
}

/** Puts back what `swap` or `restore` replaced. Safe to call more than once. */
export type Undo = () => Promise<void>

export interface Steps {
  /** The release to move to, or null if there is nothing newer. Throws if the feed or the release cannot be used. */
  check(tag: string | null, signal?: AbortSignal): Promise<Release | null>
  download(release: Release, signal?: AbortSignal): Promise<Candidate>
  verify(candidate: Candidate, release: Release, signal?: AbortSignal): Promise<void>
  /** Snapshots the database, keeps the running executable as `.backup`, puts the candidate in its place. */
  swap(candidate: Candidate, release: Release): Promise<Undo>
  /** Exchanges the executable and `.backup`. `to` is the tag of the restored one. */
  restore(): Promise<{ to: string; undo: Undo }>
  /** Hands over to the executable now in place. Resolves when it has proved itself; rejects when the old one serves again. */
  restart(to: string): Promise<void>
}

export interface StoryEnd {
  outcome: Outcome
  to: string | null
  error: BatonError | null
}

/** One update. `tag` null means the latest release. Throws only if nothing has changed. `signal` cancels it until the swap. */
export async function update(tag: string | null, steps: Steps, signal: AbortSignal): Promise<StoryEnd> {
  const release = await steps.check(tag, signal)
  if (release === null) return { outcome: 'up_to_date', to: null, error: null }
  await using candidate = await steps.download(release, signal) // removed again on every way out before the swap
  await steps.verify(candidate, release, signal)
  signal.throwIfAborted()
  const undo = await steps.swap(candidate, release) // the commit line: above it nothing has changed
  return await restartOrUndo('updated', release.tag, undo, steps)
}

/** One rollback: no check, no download. Throws only if nothing has changed. */
export async function rollBack(steps: Steps): Promise<StoryEnd> {
  const { to, undo } = await steps.restore()
  return await restartOrUndo('rolled_back', to, undo, steps)
}

async function restartOrUndo(success: Outcome, to: string, undo: Undo, steps: Steps): Promise<StoryEnd> {
  try {
    await steps.restart(to)
    return { outcome: success, to, error: null }
  } catch (cause) {
    const error = asBatonError(cause, 'restart_failed', 'restarting')
    try {
      await undo()
    } catch (second) {
      const message = `${error.message}; putting the previous executable back failed too: ${reasonOf(second)}`
      return { outcome: 'failed', to, error: new BatonError('undo_failed', message, { cause: second }) }
    }
    // the switch did not take place, which says nothing about the release
    const isNoTry = error.code === 'busy' || error.code === 'refused'
    return { outcome: isNoTry ? 'failed' : 'reverted', to, error }
  }
}
