// Who may use the endpoints: whoever has the password, and whoever the application's own login lets in (`authorize`).
// Must hold: a page of another site can make a browser that is logged in ask for nothing; a login that throws or hangs lets nobody in.

import type { IncomingMessage } from 'node:http'
import { PASSWORD_HEADERS } from '../words/bounds.ts'
import { reasonOf } from '../words/errors.ts'
import { inTime } from '../words/in-time.ts'
import type { Log } from '../log.ts'
import { type Guard, unauthorized } from './auth.ts'

/** True: this request may use the endpoints. Null: the application has nothing to say, only the password counts. */
export type Authorize = (request: IncomingMessage) => boolean | null | Promise<boolean | null>

const AUTHORIZE_MS = 10_000

/** Resolves for a request that may pass. Throws as `guard` does, and unauthorized. */
export function makeAdmit(
  guard: Guard,
  authorize: Authorize | null,
  log: Log,
): (request: IncomingMessage) => Promise<void> {
  const asked = async (request: IncomingMessage): Promise<boolean | null> => {
    try {
      const late = () => new Error(`it did not respond within ${AUTHORIZE_MS / 1000} s`)
      return authorize === null ? null : await inTime(AUTHORIZE_MS, (async () => authorize(request))(), late)
    } catch (cause) {
      log({ event: 'warning', message: `the application's \`authorize\` failed: ${reasonOf(cause)}` })
      return false
    }
  }
  return async (request) => {
    if (guard.knows(request)) return
    const said = await asked(request)
    if (said === true) return refuseForged(request)
    const sent = PASSWORD_HEADERS.map((name) => String(request.headers[name] ?? ''))
    const hasBearer = sent.some((value) => /^bearer /i.test(value))
    if (said === null || hasBearer) return guard.pass(request)
    throw unauthorized(
      'the request has neither a valid password nor the login of a user who may update the application',
      'log in to the application as a user who is allowed to update it, or send the password',
    )
  }
}

/**
 * A browser sends a session's cookie whoever made it ask. It says who did, in `Sec-Fetch-Site`, or without TLS in `Origin`, which no page can
 * set itself, and for a request that reads in `Referer`. A read is refused if it says that it comes from elsewhere. One that says nothing passes:
 * a page can leave `Referer` out, but without `Origin` no other page can read the answer.
 */
function refuseForged({ headers, method = 'GET' }: IncomingMessage): void {
  const site = headers['sec-fetch-site']
  if (site === 'same-origin') return
  const isRead = method === 'GET' || method === 'HEAD'
  const origin = headers.origin ?? (isRead ? headers.referer : undefined)
  if (site === undefined && hostOf(origin) === headers.host?.toLowerCase()) return
  if (isRead && (site ?? origin ?? 'none') === 'none') return
  const from =
    site === undefined ? `Origin ${origin ?? 'none'}, Host ${headers.host ?? 'none'}` : `Sec-Fetch-Site ${site}`
  throw unauthorized(
    `expected a request from one of this service's pages, got ${from}`,
    'in a script, send the password; behind a proxy, configure the proxy to pass on `Host`',
  )
}

/** Of an origin, or of the address of a page. */
function hostOf(address: string | undefined): string | null {
  return /^https?:\/\/([^/?#]+)(?:[/?#]|$)/i.exec(address ?? '')?.[1]?.toLowerCase() ?? null
}
