// The health URL that an operator names: a release counts as good only once that URL answers 2xx. The command asks it from the
// moment the successor serves, while the predecessor still stands by.

import { BatonError, reasonOf, untilWell } from '../../../agent/words.ts'
import { httpStatusOf } from '../../lib/http.ts'

const POLL_MS = 250
const ANSWER_MS = 5000

/** Begins to ask at the first call. Each call resolves to null if the URL answered 2xx, else to why it did not. */
export function healthGate(url: string, timeoutMs: number): () => Promise<string | null> {
  let asking: Promise<string | null> | null = null
  return () => (asking ??= askUntilWell(url, timeoutMs).then(() => null, reasonOf))
}

/** Resolves at the first 2xx. Throws probation_failed after `timeoutMs` without one. */
export async function askUntilWell(url: string, timeoutMs: number): Promise<void> {
  const look = async () => {
    const said = await httpStatusOf(url, ANSWER_MS).then(String, reasonOf)
    return /^2\d\d$/.test(said) ? null : `expected 2xx from ${url}, got ${said}`
  }
  const fault = await untilWell(look, timeoutMs, POLL_MS)
  if (fault !== null) throw new BatonError('probation_failed', fault)
}
