// What is large in a release: by package, and by the first folder of everything else. Pure.

import { formatBytes } from '../lib/progress.ts'

export interface Part {
  /** `node_modules/sharp`, `data/` or `model.bin` */
  path: string
  sizeBytes: number
}

const PARTS_MAX = 5
/** what is smaller changes nobody's mind */
const [LEAST_BYTES, LEAST_SHARE] = [1e6, 0.05]

/** The largest first; none if no part is worth a word. */
export function largestOf(files: readonly Part[]): Part[] {
  const parts = new Map<string, number>()
  for (const { path, sizeBytes } of files) {
    const part = /^(?:.*?\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? /^[^/]+\/?/.exec(path)?.[0] ?? path
    parts.set(part, (parts.get(part) ?? 0) + sizeBytes)
  }
  const least = Math.max(LEAST_BYTES, LEAST_SHARE * [...parts.values()].reduce((sum, bytes) => sum + bytes, 0))
  return [...parts]
    .map(([path, sizeBytes]) => ({ path, sizeBytes }))
    .filter(({ sizeBytes }) => sizeBytes >= least)
    .toSorted((a, b) => b.sizeBytes - a.sizeBytes)
    .slice(0, PARTS_MAX)
}

export function formatLargest(parts: readonly Part[]): string | null {
  if (parts.length === 0) return null
  return `  largest parts: ${parts.map(({ path, sizeBytes }) => `${path} ${formatBytes(sizeBytes)}`).join(', ')}`
}
