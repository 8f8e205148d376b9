// What the flags of the deploy scripts have in common. Throws BatonError invalid_request, which ends with exit code 2.

import { BatonError } from '../../agent/errors.ts'

/** Milliseconds from whole seconds, at most five digits. */
export function secondsOf(flag: string, text: string): number {
  if (/^[0-9]{1,5}$/.test(text)) return Number(text) * 1000
  throw usage(`expected whole seconds in ${flag}, got ${JSON.stringify(text.slice(0, 40))}`)
}

export function usage(message: string): BatonError {
  return new BatonError('invalid_request', message, { hint: 'see --help' })
}
