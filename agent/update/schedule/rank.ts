// A host's position among all hosts for one release: decides its step of a staged release, and its delay within the jitter. Pure.
// Must hold: each release orders the hosts differently; a host's id stays on the host.

import { createHash } from 'node:crypto'
import type { RolloutStep } from '../../words/schedule.ts'

/** From 0 to below 1. `id`: this host's own, random. */
export function rankOf(id: string, tag: string): number {
  return createHash('sha256').update(`${id}\n${tag}`).digest().readUIntBE(0, 6) / 2 ** 48
}

/** When a host of this rank may install the release by itself, epoch milliseconds; null: no step includes it yet. */
export function turnIn(steps: readonly RolloutStep[], rank: number): number | null {
  const own = steps.filter(({ percent }) => rank * 100 < percent).map(({ at }) => Date.parse(at))
  return own.length === 0 ? null : Math.min(...own)
}
