// `upgrade --dry-run --trial`: fetches and verifies the release, tries it on a copy of the data as the update would, and ends there.
// Runs as the service's user, beside the running service.
// Must hold: it changes nothing but the verdict in the journal, which spares the update a second rehearsal. It always removes the
// executable, what that has unpacked and the copy; if this process is killed, the next start or the next operation removes them.

import {
  foreseeOtherWire,
  type ManagedInstall,
  makeDownload,
  makeVerify,
  needsBeside,
  newOperation,
  rehearse,
  type Receipt,
  sweep,
  takeLock,
} from '../../../agent/install.ts'
import {
  type BatonError,
  cancellation,
  EXIT,
  type Progress,
  type Rehearsal,
  type Release,
} from '../../../agent/words.ts'
import { heedInterrupts } from './interrupts.ts'
import { installOf } from './offline.ts'
import type { Outside } from './outside.ts'
import type { Operate } from './request.ts'

/** Null if the service keeps no database. Throws what the update would throw: verify_failed, irreversible, locked, and refused if it `serves`. */
export async function rehearseAhead(
  receipt: Receipt,
  { who, allowIrreversible }: Pick<Operate, 'who' | 'allowIrreversible'>,
  release: Release,
  feed: ManagedInstall['feed'],
  serves: boolean,
  outside: Outside,
): Promise<Rehearsal | null> {
  const install = await installOf(receipt, feed, outside)
  await using _lock = await takeLock(install.disk, install.stateDirectory, who, { refusal: 'locked' })
  const abort = new AbortController()
  using _interrupts = heedInterrupts(
    () => abort.abort(cancellation('by a signal')),
    () => process.exit(EXIT.unexpected),
  )
  try {
    return await tryRelease(install, release, { allowIrreversible, serves }, abort.signal, outside)
  } catch (cause) {
    throw abort.signal.aborted ? (abort.signal.reason as BatonError) : cause
  } finally {
    await sweep(install)
  }
}

async function tryRelease(
  install: ManagedInstall,
  release: Release,
  { allowIrreversible, serves }: { allowIrreversible: boolean; serves: boolean },
  signal: AbortSignal,
  outside: Outside,
): Promise<Rehearsal | null> {
  const { feed, disk, places, service, current } = install
  const download = makeDownload({
    feed,
    disk,
    partialPath: places.partial,
    installedPath: places.executable,
    alsoNeeds: () => needsBeside(install),
    onProgress: ({ bytes, totalBytes }: Progress) => outside.bytes(bytes, totalBytes),
    onDeltaFailed: (line) => outside.note(line),
  })
  outside.stage('download')
  await using candidate = await download(release, signal)
  outside.stage('verify')
  await makeVerify({ service, disk })(candidate, release, signal)
  if (serves) await foreseeOtherWire(install, candidate.path, release.tag, `upgrade ${release.tag}`)
  const startedAt = new Date().toISOString()
  const operation = newOperation({ id: 'a dry run', kind: 'update', from: current, to: release.tag, startedAt })
  await rehearse({ install, operation, release, candidate: candidate.path, allowIrreversible, again: true, signal })
  return operation.trial ?? null
}
