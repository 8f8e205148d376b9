// The tests' assertions: uvu's, without two traps. `throws` and `rejects` compare a text (uvu takes it for the assertion's message)
// and return the error. There is no `not.throws`: it passes if another error is thrown.

import { Assertion } from 'uvu/assert'
import * as uvu from 'uvu/assert'

export { equal, instance, is, match, ok, type, unreachable } from 'uvu/assert'

type Not = ((value: unknown, message?: string) => void) &
  Record<'equal' | 'match' | 'instance' | 'type', (actual: unknown, expected: unknown, message?: string) => void>

export const not: Not = uvu.not as unknown as Not

/** A part of the message, a pattern for it, or a condition on the error. */
export type Expected = string | RegExp | ((error: Error) => boolean)

/** Returns the error that `body` throws. */
export function throws(body: () => unknown, expected?: Expected): Error {
  let thrown: unknown
  try {
    body()
  } catch (error) {
    thrown = error
    return matching(thrown, expected)
  }
  throw failure('Expected function to throw', 'throws', expected)
}

/** Resolves to the error that rejects `body`, or the promise that `body` returns. */
export async function rejects(body: Promise<unknown> | (() => Promise<unknown>), expected?: Expected): Promise<Error> {
  try {
    await (typeof body === 'function' ? body() : body)
  } catch (error) {
    return matching(error, expected)
  }
  throw failure('Expected promise to be rejected', 'rejects', expected)
}

/** For `throws` and `rejects`: an error with this `code`. */
export function withCode(code: string): (error: Error) => boolean {
  return Object.assign((error: Error) => 'code' in error && error.code === code, { toString: () => `code \`${code}\`` })
}

function matching(thrown: unknown, expected: Expected | undefined): Error {
  if (!(thrown instanceof Error)) throw failure('Expected an Error to be thrown', 'throws', expected, thrown)
  if (expected === undefined) return thrown
  const good =
    typeof expected === 'string'
      ? thrown.message.includes(expected)
      : expected instanceof RegExp
        ? expected.test(thrown.message)
        : expected(thrown)
  if (good) return thrown
  const code = 'code' in thrown ? ` (code \`${String(thrown.code)}\`)` : ''
  const message = `Expected an error with ${String(expected)}, got: ${thrown.message}${code}`
  throw Object.assign(failure(message, 'throws', expected, thrown), { cause: thrown })
}

function failure(message: string, operator: string, expects: unknown, actual?: unknown): Assertion {
  return new Assertion({ message, operator, expects, actual })
}
