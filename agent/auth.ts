// Who may ask. A bearer token, compared in constant time; an address that keeps failing is slowed down. The token is never
// kept, logged or put into an error.

import { createHash, timingSafeEqual } from 'node:crypto'
import { BatonError } from './errors.ts'

/** Failures that an address may make at once, and how fast they are forgotten. */
export const FAILURES_AT_ONCE = 20
export const FAILURE_FORGOTTEN_MS = 3000
const ADDRESSES_MAX = 10_000
const TOKEN_MAX_BYTES = 4096

/** Passes, or throws too_many_failures, no_password or unauthorized, in this order. */
export type Guard = (authorization: string | undefined, address: string) => void

export function makeGuard(password: string | null, now: () => number = Date.now): Guard {
  const expected = password === null ? null : digest(password)
  /** address -> when it will have been forgiven everything */
  const debts = new Map<string, number>()

  return (authorization, address) => {
    const at = now()
    const forgiven = debts.get(address) ?? at
    const waitMs = forgiven - at - (FAILURES_AT_ONCE - 1) * FAILURE_FORGOTTEN_MS
    if (waitMs > 0) {
      const retryAfterSeconds = Math.ceil(waitMs / 1000)
      throw new BatonError('too_many_failures', `too many failed attempts from this address`, {
        hint: `try again in ${retryAfterSeconds} s`,
        members: { retryAfterSeconds },
      })
    }
    if (expected === null) {
      throw new BatonError(
        'no_password',
        'the setting `dashboard.password` is empty, so nobody may update this service',
        {
          hint: 'set `dashboard.password` in the configuration and restart',
        },
      )
    }
    if (isBearer(authorization, expected)) return void debts.delete(address)
    if (!debts.has(address) && debts.size >= ADDRESSES_MAX) forgetOldest(debts)
    debts.set(address, Math.max(forgiven, at) + FAILURE_FORGOTTEN_MS)
    throw new BatonError(
      'unauthorized',
      'expected the header `Authorization: Bearer <token>` with the setting `dashboard.password`',
    )
  }
}

function isBearer(authorization: string | undefined, expected: Buffer): boolean {
  if (authorization === undefined || authorization.length > TOKEN_MAX_BYTES) return false
  const [, token] = /^bearer +(.+)$/i.exec(authorization) ?? []
  if (token === undefined) return false
  // digests are of equal length, so the comparison tells nothing about the length of the password either. Header bytes
  // arrive as latin1; a password with other letters is sent as UTF-8.
  const [asText, asBytes] = [digest(token), digest(Buffer.from(token, 'latin1'))]
  const same = [timingSafeEqual(asText, expected), timingSafeEqual(asBytes, expected)]
  return same.includes(true)
}

function digest(value: string | Buffer): Buffer {
  return createHash('sha256').update(value).digest()
}

function forgetOldest(debts: Map<string, number>): void {
  const [first] = debts.keys()
  if (first !== undefined) debts.delete(first)
}
