// One helper of the steps: an error says what was being done, and keeps its code, its hint and its cause.

import { BatonError, reasonOf } from '../../words/errors.ts'
import type { ErrorCode } from '../../words/errors.ts'

/** The same error with what was being done in front of its message; `code` where it is not one of ours. */
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
