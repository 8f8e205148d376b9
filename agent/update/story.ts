// THE STORY. Start reading here. One update and one rollback, top to bottom; the effects are in `steps/`.
// Must never break: until `swap` the installed executable and the running service are untouched; whatever is thrown after it,
// `decide.ts` says how the operation ends, and `operation.ts` puts the old executable back.

import type { Release } from '../words/release.ts'

/** A downloaded executable that nothing runs yet. Disposing of it removes it from the disk, unless it was swapped in. */
export interface Candidate extends AsyncDisposable {
  path: string
  /** of the compressed asset as it came over the wire, hex */
  assetSha256: string
  /** of the file at `path`, read from the disk again by whoever has written it, hex; absent: nobody has yet */
  executableSha256?: string
}

export interface Steps {
  /** The release to move to, or null if there is nothing newer. Throws if the feed or the release cannot be used. */
  check(tag: string | null, signal?: AbortSignal): Promise<Release | null>
  download(release: Release, signal?: AbortSignal): Promise<Candidate>
  verify(candidate: Candidate, release: Release, signal?: AbortSignal): Promise<void>
  /** Waits for the work that the service has under way, which a switch would end. */
  rest(signal: AbortSignal): Promise<void>
  /** Snapshots the database, keeps the running executable as `.backup`, puts the candidate in its place. */
  swap(candidate: Candidate, release: Release): Promise<void>
  /** Exchanges the executable and `.backup`. Resolves to the tag of the restored one. */
  restore(): Promise<string>
  /** Hands over to the executable now in place. Resolves when it has proved itself; rejects when the old one serves again. */
  restart(to: string): Promise<void>
}

/** One update. `tag` null means the latest release. Resolves to the tag moved to, or null. `signal` cancels it until the swap. */
export async function update(tag: string | null, steps: Steps, signal: AbortSignal): Promise<string | null> {
  const release = await steps.check(tag, signal)
  if (release === null) return null
  await using candidate = await steps.download(release, signal) // removed again on every way out before the swap
  await steps.verify(candidate, release, signal)
  await steps.rest(signal)
  signal.throwIfAborted()
  await steps.swap(candidate, release) // the commit line: above it nothing has changed
  await steps.restart(release.tag)
  return release.tag
}

/** One rollback: no check, no download. Resolves to the tag moved to. */
export async function rollBack(steps: Steps, signal: AbortSignal): Promise<string> {
  await steps.rest(signal)
  signal.throwIfAborted()
  const to = await steps.restore()
  await steps.restart(to)
  return to
}
