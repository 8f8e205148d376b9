// Where a host stands among all hosts, for one release: which share of them may go before it, and by how much it is late on purpose.
// Pure. Must hold: another release, another order; nobody but the host knows its id.

import { createHash } from 'node:crypto'
import type { RolloutStep } from '../../words/schedule.ts'

/** From 0 to below 1. `id`: this host's own, random. */
export function rankOf(id: string, tag: string): number {
  return createHash('sha256').update(`${id}\n${tag}`).digest().readUIntBE(0, 6) / 2 ** 48
}

/** When a host of this rank may go, in epoch milliseconds; null: the publisher has not said so yet. */
export function turnIn(steps: readonly RolloutStep[], rank: number): number | null {
  const own = steps.filter(({ percent }) => rank * 100 < percent).map(({ at }) => Date.parse(at))
  return own.length === 0 ? null : Math.min(...own)
}
