// One helper of the steps: makes an error say what was being done, and keeps its code, its hint and its cause.

import { BatonError, reasonOf } from '../words/errors.ts'
import type { ErrorCode } from '../words/errors.ts'

/** The same error with `doing` in front of its message. An error that is no BatonError gets the code `code`. */
export function within(error: unknown, code: ErrorCode, doing: string): BatonError {
  const message = `${doing}: ${reasonOf(error)}`
  if (!(error instanceof BatonError)) return new BatonError(code, message, { cause: error })
  const { hint, members } = error
  return new BatonError(error.code, `${doing}: ${error.message}`, {
    cause: error,
    members,
    ...(hint === null ? {} : { hint }),
  })
}
