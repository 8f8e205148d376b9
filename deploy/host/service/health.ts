// The address that an operator names: the release counts as good only when it answers 2xx. It is asked from the moment the new
// process serves, while the old one still stands by.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import { httpStatusOf } from '../../lib/http.ts'

export interface HealthGate {
  /** Begins to ask; nothing happens where it has begun already. */
  begin(): void
  /** Why it is not well, or null. Waits until that is known. */
  fault(): Promise<string | null>
}

const POLL_MS = 250
const ANSWER_MS = 5000

export function healthGate(url: string, timeoutMs: number): HealthGate {
  let asking: Promise<string | null> | null = null
  const begin = () => (asking ??= askUntilWell(url, timeoutMs).then(() => null, reasonOf))
  return { begin: () => void begin(), fault: begin }
}

/** Resolves at the first 2xx. Throws probation_failed after `timeoutMs` without one. */
export async function askUntilWell(url: string, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const said = await httpStatusOf(url, ANSWER_MS).then(String, reasonOf)
    if (/^2\d\d$/.test(said)) return
    if (performance.now() > deadline) throw new BatonError('probation_failed', `expected 2xx from ${url}, got ${said}`)
    await sleep(POLL_MS)
  }
}
