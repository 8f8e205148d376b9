// What a start says of its long work (handover/progress.ts). Another process writes it, perhaps of a release that nobody knows yet.

import type { Operation, StartProgress } from '../words/state.ts'
import { isCount } from '../words/untrusted.ts'
import { readSmall } from './disk.ts'
import { progressPath } from './places.ts'

const READ_MAX_BYTES = 2048

/** Null: the release that the operation leads to has said nothing since the operation began. Never rejects. */
export async function readProgress(
  stateDirectory: string,
  { to, startedAt }: Pick<Operation, 'to' | 'startedAt'>,
): Promise<StartProgress | null> {
  try {
    const told = JSON.parse(
      (await readSmall(progressPath(stateDirectory), READ_MAX_BYTES)) ?? '',
    ) as Partial<StartProgress>
    const { tag, at, text, done, total } = told
    if (tag !== to || typeof at !== 'string' || at < startedAt || typeof text !== 'string') return null
    const counts = { ...(isCount(done) ? { done } : {}), ...(isCount(total) ? { total } : {}) }
    return { tag, at, text, ...counts }
  } catch {
    return null
  }
}
