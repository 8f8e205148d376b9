// Checks that the folder of the executable is writable, before a download rather than after it.

import { access, constants } from 'node:fs/promises'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'

/** Throws refused. */
export async function assertWritable(directory: string): Promise<void> {
  try {
    await access(directory, constants.W_OK)
  } catch (cause) {
    const found = codeOf(cause) === 'EROFS' ? 'it is on a read-only file system' : reasonOf(cause)
    throw new BatonError('refused', `expected to be able to write in ${directory}, where the executable is: ${found}`, {
      cause,
      hint: '`doctor` of its command says what a service needs there',
    })
  }
}
