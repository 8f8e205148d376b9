// Reads JSON that a person has written.

import { BatonError, reasonOf } from '../../agent/words.ts'

/** Throws BatonError invalid_settings. `path`: of the file that the text is from. */
export function jsonIn(text: string, path: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new BatonError('invalid_settings', `${path} is not valid JSON: ${reasonOf(cause)}`, { cause })
  }
}
