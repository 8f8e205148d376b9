// What a download or a patch costs.

import { median } from './statistics.ts'

export interface Transfer {
  /** medians */
  ms: number
  peakKb: number
}

export function middle(some: readonly Transfer[]): Transfer {
  return { ms: Math.round(median(some.map(({ ms }) => ms))), peakKb: median(some.map(({ peakKb }) => peakKb)) }
}
