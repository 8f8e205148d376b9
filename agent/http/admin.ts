// The endpoints' door: tells their requests from the application's. What answers them is loaded at the first one, so that a process that
// nobody asks has none of it.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Log } from '../log.ts'
import { pathOf } from './answer.ts'
import type { Authorize } from './admit.ts'
import type { TrustedProxy } from './trusted-proxy.ts'
import type { Updater } from './routes.ts'
import type { PasswordHeader } from '../words/bounds.ts'
import { onceLoaded } from '../words/later.ts'

/** As in `settings.ts`, checked. */
export interface AdminSettings {
  readonly basePath: string
  readonly password: string | null
  readonly trustedProxy: TrustedProxy | null
  readonly passwordHeader: PasswordHeader
  readonly authorize: Authorize | null
  readonly log: Log
}

/** Answers requests below `<basePath>/admin/update`. Returns false, untouched, for any other request. */
export function makeAdmin(
  settings: AdminSettings,
  open: () => Promise<Updater>,
): (request: IncomingMessage, response: ServerResponse) => boolean {
  const prefix = `${settings.basePath}/admin/update`
  const load = onceLoaded(async () => {
    const parts = Promise.all([import('./routes.ts'), import('./auth.ts'), import('./admit.ts')])
    const [[{ makeRoutes }, { makeGuard }, { makeAdmit }], updater] = await Promise.all([parts, open()])
    const { authorize, log } = settings
    return makeRoutes(prefix, makeAdmit(makeGuard(settings), authorize, log), updater, log)
  })
  return (request, response) => {
    const whole = pathOf(request)
    if (!whole.startsWith(prefix)) return false
    const path = whole.slice(prefix.length)
    if (path !== '' && !path.startsWith('/')) return false
    const answered = load().then((answer) => answer(path, request, response))
    answered.catch((cause: unknown) => response.destroy(cause instanceof Error ? cause : undefined))
    return true
  }
}
