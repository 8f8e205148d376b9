// Who may ask. A bearer token, compared in constant time; an address that keeps failing is slowed down, but never the right
// token. The token is never kept, logged or put into an error.

import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { clientAddresses, type TrustedProxy } from './client-address.ts'
import { BatonError } from '../words/errors.ts'

/** a shorter password is warned of */
export const PASSWORD_USUAL_MIN = 16
/** Failures that an address may make at once, and how fast they are forgotten. */
export const FAILURES_AT_ONCE = 20
export const FAILURE_FORGOTTEN_MS = 3000
const ADDRESSES_MAX = 10_000
const TOKEN_MAX_BYTES = 4096

/** What of a request decides. */
export type Asking = Pick<IncomingMessage, 'headers'> & { socket: { remoteAddress?: string | undefined } }

/** Passes, or throws no_password, unauthorized or too_many_failures. */
export type Guard = (request: Asking) => void

export interface GuardOptions {
  /** null: nobody passes */
  password: string | null
  /** null: the address of the connection is the client's */
  trustedProxy?: TrustedProxy | null
  /** milliseconds of a clock that nobody sets */
  now?: () => number
}

export function makeGuard({ password, trustedProxy = null, now = () => performance.now() }: GuardOptions): Guard {
  const expected = password === null ? null : digest(password)
  const addressOf = clientAddresses(trustedProxy)
  /** address -> when it will have been forgiven everything */
  const debts = new Map<string, number>()

  return (request) => {
    if (expected === null) {
      throw new BatonError(
        'no_password',
        'the setting `dashboard.password` is empty, so nobody may update this service',
        {
          hint: 'set `dashboard.password` in the configuration and restart',
        },
      )
    }
    // The token first: whoever shares an address with somebody who guesses, behind a proxy or on this host, gets through.
    if (isBearer(request.headers.authorization, expected)) return
    const [address, at] = [addressOf(request), now()]
    const forgiven = debts.get(address) ?? at
    const waitMs = forgiven - at - (FAILURES_AT_ONCE - 1) * FAILURE_FORGOTTEN_MS
    if (waitMs > 0) {
      const retryAfterSeconds = Math.ceil(waitMs / 1000)
      throw new BatonError('too_many_failures', `too many failed attempts from this address`, {
        hint: `try again in ${retryAfterSeconds} s`,
        members: { retryAfterSeconds },
      })
    }
    // who failed last stands last: many other addresses do not push out somebody who goes on guessing
    if (!debts.delete(address) && debts.size >= ADDRESSES_MAX) forgetOldest(debts)
    debts.set(address, Math.max(forgiven, at) + FAILURE_FORGOTTEN_MS)
    throw new BatonError(
      'unauthorized',
      `expected the header \`Authorization: Bearer <token>\` with the setting \`dashboard.password\`, got ${request.headers.authorization === undefined ? 'none' : 'another'}`,
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
