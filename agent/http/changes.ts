// Follows the status for an author's listener.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../words/errors.ts'
import type { Status } from '../words/state.ts'
import type { Updater } from './routes.ts'

const [MOST_MS, AGAIN_MS] = [60_000, 5_000]

/** Resolves when `signal` aborts, or at once if the install is not managed. Never rejects. */
export async function tellChanges(
  updater: Pick<Updater, 'status'>,
  heard: (status: Status) => void,
  signal: AbortSignal,
  warn: (message: string) => void,
): Promise<void> {
  const failed = (cause: unknown) => warn(`a listener of \`change\`: ${reasonOf(cause)}`)
  let last: string | null = null
  while (!signal.aborted) {
    try {
      const isNew = (status: Status) => last === null || textOfStatus(status) !== last
      const status = await updater.status({ mostMs: MOST_MS, isNew })
      if (signal.aborted) return
      const text = textOfStatus(status)
      const isFirst = last === null
      if (text === last) continue
      last = text
      if (!isFirst) void Promise.resolve<void>(heard(status)).catch(failed)
    } catch (cause) {
      if (cause instanceof BatonError && (cause.code === 'not_managed' || cause.code === 'node_unsupported')) return
      failed(cause)
      await sleep(AGAIN_MS, undefined, { signal, ref: false }).catch(() => {})
    }
  }
}

const textOfStatus = (status: Status): string => JSON.stringify(status)
