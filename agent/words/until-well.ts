// The one loop that waits until something is well: a release that starts, an address, a container.
// Must hold: *not yet* is no verdict. Nothing listens, there is no answer, the status is another: only the time limit ends that.

import { setTimeout as sleep } from 'node:timers/promises'

/** the first pause, in milliseconds; each is twice as long as the one before, at most `everyMs`. A look at a container starts a process in it */
const FIRST_MS = 20
const EVERY_MS = 100

/**
 * `look` resolves to null once all is well, else to why it is not yet. It throws what no later look can change: an end, or another
 * release than expected. Resolves to null, or after `forMs` to what the last look said.
 */
export async function untilWell(
  look: () => Promise<string | null>,
  forMs: number,
  everyMs: number = EVERY_MS,
): Promise<string | null> {
  const deadline = performance.now() + forMs
  for (let pauseMs = Math.min(FIRST_MS, everyMs); ; pauseMs = Math.min(everyMs, pauseMs * 2)) {
    const why = await look()
    const leftMs = deadline - performance.now()
    if (why === null || leftMs <= 0) return why
    await sleep(Math.min(pauseMs, leftMs))
  }
}
