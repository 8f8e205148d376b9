// What a client is told of an internal error: the error itself belongs in the log. Apart from the other errors, as no service loads it
// to serve. Pure.

import { BatonError } from './errors.ts'

export function unexpectedAnswer(): BatonError {
  return new BatonError('unexpected', "an unexpected error occurred; see the service's log")
}
