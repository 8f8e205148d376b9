// Decides which requests may pass: the password as a bearer token, compared in constant time. Slows down an address that keeps failing,
// but never the right password. Never keeps or logs the password, and never puts it into an error.

import type { IncomingMessage } from 'node:http'
import { clientAddresses } from './client-address.ts'
import type { TrustedProxy } from './trusted-proxy.ts'
import { PASSWORD_HEADERS, type PasswordHeader } from '../words/bounds.ts'
import { BatonError } from '../words/errors.ts'
import { nodeCrypto } from '../words/later.ts'

/** An address may fail this often in a row before it must wait; one of its failures is forgotten after this time. */
export const FAILURES_AT_ONCE = 20
export const FAILURE_FORGOTTEN_MS = 3000
const ADDRESSES_MAX = 10_000
const TOKEN_MAX_BYTES = 4096

/** The part of a request that decides. */
export type Asking = Pick<IncomingMessage, 'headers'> & { socket: { remoteAddress?: string | undefined } }

export interface Guard {
  /** whether the request has the password */
  knows(request: Asking): boolean
  /** Passes, or throws no_password, unauthorized or too_many_failures. */
  pass(request: Asking): void
}

export interface GuardOptions {
  /** null: nobody passes */
  password: string | null
  /** null: the connection's address is the client's */
  trustedProxy?: TrustedProxy | null
  /** see PASSWORD_HEADERS; default `authorization` */
  passwordHeader?: PasswordHeader
  /** milliseconds of a monotonic clock */
  now?: () => number
}

export function makeGuard({
  password,
  trustedProxy = null,
  passwordHeader = 'authorization',
  now = () => performance.now(),
}: GuardOptions): Guard {
  const read = passwordHeader === 'authorization' ? [passwordHeader] : PASSWORD_HEADERS
  let expected: Buffer | null = null // made for the first request with a token
  const addressOf = clientAddresses(trustedProxy)
  /** address -> when all its failures are forgotten */
  const debts = new Map<string, number>()

  const knows = (request: Asking): boolean =>
    password !== null &&
    read.some((name) => isBearer([request.headers[name]].flat()[0], () => (expected ??= digest(password))))
  const pass = (request: Asking): void => {
    if (password === null) {
      throw new BatonError(
        'no_password',
        'the setting `dashboard.password` is empty, so nobody can update this service',
        {
          hint: 'set `dashboard.password` in the configuration and restart',
        },
      )
    }
    // Checks the token first: a client with the right token gets through even if it shares its address, behind a proxy or on this
    // host, with a client that guesses.
    if (knows(request)) return
    const [address, at] = [addressOf(request), now()]
    const forgiven = debts.get(address) ?? at
    const waitMs = forgiven - at - (FAILURES_AT_ONCE - 1) * FAILURE_FORGOTTEN_MS
    if (waitMs > 0) {
      const retryAfterSeconds = Math.ceil(waitMs / 1000)
      throw new BatonError('too_many_failures', `too many wrong passwords from this address`, {
        hint: `try again in ${retryAfterSeconds} s`,
        members: { retryAfterSeconds },
      })
    }
    // The address that failed last goes to the end: many other addresses do not push out one that goes on guessing.
    if (!debts.delete(address) && debts.size >= ADDRESSES_MAX) forgetOldest(debts)
    debts.set(address, Math.max(forgiven, at) + FAILURE_FORGOTTEN_MS)
    throw withoutPassword(request, read)
  }
  return { knows, pass }
}

export function unauthorized(message: string, hint: string): BatonError {
  return new BatonError('unauthorized', message, { hint })
}

function withoutPassword({ headers }: Asking, read: readonly string[]): BatonError {
  const got = read.every((name) => headers[name] === undefined) ? 'none' : 'another value'
  const isProxys = /^(?!bearer )/i.test(headers.authorization ?? 'bearer ')
  return new BatonError(
    'unauthorized',
    `expected the header \`Authorization: Bearer <password>\` with the value of \`dashboard.password\`, got ${got}`,
    isProxys && read.length === 1
      ? {
          hint: 'if a proxy uses the `Authorization` header itself, set `dashboard.passwordHeader` to send the password in another header',
          members: { isProxys },
        }
      : {},
  )
}

function isBearer(authorization: string | undefined, expected: () => Buffer): boolean {
  if (authorization === undefined || authorization.length > TOKEN_MAX_BYTES) return false
  const [, token] = /^bearer +(.+)$/i.exec(authorization) ?? []
  if (token === undefined) return false
  // Digests have equal lengths, so the comparison does not reveal the password's length either. Node reads header bytes as
  // latin1, but a client sends a password with other letters as UTF-8: compare both.
  const [asText, asBytes] = [digest(token), digest(Buffer.from(token, 'latin1'))]
  const same = [asText, asBytes].map((one) => nodeCrypto().timingSafeEqual(one, expected()))
  return same.includes(true)
}

function digest(value: string | Buffer): Buffer {
  return nodeCrypto().createHash('sha256').update(value).digest()
}

function forgetOldest(debts: Map<string, number>): void {
  const [first] = debts.keys()
  if (first !== undefined) debts.delete(first)
}
