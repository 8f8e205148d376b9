// Runs `main` as a program: turns a failure at the start into an error line, a hint line and an exit code.

import { keepLastWords } from '../first.ts'
import { BatonError, MEANINGS, reasonOf } from '../words.ts'
import { main, type Parts } from './main.ts'

export async function serve(argv: readonly string[], parts: Partial<Parts> = {}): Promise<void> {
  // A closed pipe to the log must not end the service: ignore its errors.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  try {
    keepLastWords() // before anything can fail: the predecessor tells why
    await main(argv, process.env, parts)
  } catch (error) {
    process.stderr.write(`error: ${reasonOf(error)}\n`)
    if (error instanceof BatonError && error.hint !== null) process.stderr.write(`hint: ${error.hint}\n`)
    process.exit(error instanceof BatonError ? MEANINGS[error.code].exit : 1)
  }
}
