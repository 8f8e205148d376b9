// Ctrl-C and SIGTERM in a command. One may come twice in one moment: from the terminal, and from a parent that passes it on. So a
// second one counts only a moment later.

import { onSignals } from '../../lib/signals.ts'

const TWICE_MS = 500

/** Calls `first` at the first signal, and `again` at each that is a second one. The disposal leaves the signals to Node again. */
export function heedInterrupts(first: (signal: NodeJS.Signals) => void, again: () => void): Disposable {
  let firstAt: number | null = null
  const heed = (signal: NodeJS.Signals) => {
    if (firstAt === null) {
      firstAt = performance.now()
      first(signal)
    } else if (performance.now() - firstAt > TWICE_MS) again()
  }
  return onSignals(['SIGINT', 'SIGTERM'], heed)
}
