// `GET /admin/update/status?wait=SECONDS`: a request that waits until there is something new to say.

import { stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ManagedInstall } from '../disk/managed-install.ts'
import { journalPath } from '../disk/places.ts'
import type { Status } from '../words/state.ts'
import type { Running } from './operation.ts'

const LOOK_EVERY_MS = 100

/** At most so long. `isNew`: whether the client has not seen this status yet. */
export interface LongPoll {
  mostMs: number
  isNew(status: Status): boolean
}

/**
 * The status, once it is new, or the operation or the journal has changed; at the latest after `mostMs`, or when `leaving` aborts, as this
 * process is to end. Beside a switch of this process it waits for a single look: an open request would be one more that the switch has to
 * wait for. `wait` null: at once.
 */
export async function changed(
  { stateDirectory }: Pick<ManagedInstall, 'stateDirectory'>,
  running: () => Running | null,
  status: () => Promise<Status>,
  wait: LongPoll | null,
  leaving: AbortSignal,
): Promise<Status> {
  if (wait === null) return await status()
  const look = async () => {
    const written = await stat(journalPath(stateDirectory)).catch(() => null)
    return `${written?.ino} ${written?.mtimeMs} ${JSON.stringify(running()?.operation)}`
  }
  const isSwitching = () => running()?.operation.outcome === null && running()?.operation.stage === 'restart'
  const deadline = performance.now() + wait.mostMs
  const first = await look()
  const now = await status()
  if (wait.isNew(now)) return now
  do await sleep(LOOK_EVERY_MS, undefined, { signal: leaving }).catch(() => {})
  while (!leaving.aborted && !isSwitching() && performance.now() < deadline && (await look()) === first)
  return await status()
}
