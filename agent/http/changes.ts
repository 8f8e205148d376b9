// Follows the status for an author's listeners.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../words/errors.ts'
import type { Status } from '../words/state.ts'
import type { Updater } from './routes.ts'

const [MOST_MS, AGAIN_MS] = [60_000, 5_000]

type Listener = (status: Status) => void

/**
 * Follows until nobody listens any more, `leaving` aborts, or the install is not managed; one question at a time, however many listen.
 * Resolves to whether the first of these is why. Never rejects.
 */
export async function tellChanges(
  updater: Pick<Updater, 'status'>,
  listeners: ReadonlySet<Listener>,
  leaving: AbortSignal,
  warn: (message: string) => void,
): Promise<boolean> {
  const failed = (cause: unknown) => warn(`a \`change\` listener failed: ${reasonOf(cause)}`)
  let last: string | null = null
  while (!leaving.aborted && listeners.size > 0) {
    try {
      const isNew = (status: Status) => last === null || textOfStatus(status) !== last
      const status = await updater.status({ mostMs: MOST_MS, isNew })
      const text = textOfStatus(status)
      const isFirst = last === null
      if (text === last || leaving.aborted) continue
      last = text
      if (!isFirst) for (const heard of listeners) void (async () => heard(status))().catch(failed)
    } catch (cause) {
      if (cause instanceof BatonError && (cause.code === 'not_managed' || cause.code === 'node_unsupported'))
        return false
      failed(cause)
      await sleep(AGAIN_MS, undefined, { signal: leaving, ref: false }).catch(() => {})
    }
  }
  return !leaving.aborted
}

const textOfStatus = (status: Status): string => JSON.stringify(status)
