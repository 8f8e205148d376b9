// Where this process keeps the last lines that it has written, while somebody may want them: see `handover/last-words.ts`.

export interface KeptWords {
  /** descriptor to send the lines on; null: nothing may be written now */
  descriptor: () => number | null
  over(): void
}

/** one per process, shared by symbol: the first code and the application each have a copy of this file */
const KEPT = Symbol.for('baton.last-words')
const shared = globalThis as { [KEPT]?: KeptWords }

export function keptWords(): KeptWords | undefined {
  return shared[KEPT]
}

export function noteKept(kept: KeptWords): void {
  shared[KEPT] = kept
}

/** Stops keeping lines: this process has taken over or has proved itself, or there is nobody to send them to. */
export function forgetLastWords(): void {
  shared[KEPT]?.over()
}
