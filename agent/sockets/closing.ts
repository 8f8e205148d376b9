// Asks the connections of a listener to end: with `Connection: close` on the next response, or with GOAWAY.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { isHalfRead } from './internals-moving.ts'
import { responseOf } from './internals.ts'
import type { Listener, Session } from './listeners.ts'

/** milliseconds between the GOAWAY that still accepts requests and the one that names the last accepted request */
const GOAWAY_MS = 300

/**
 * From now on every response ends its connection, unless the client has already sent another request behind it; HTTP/2 sessions get
 * a GOAWAY. Returns a function that takes this back.
 */
export function askToClose({ server, sockets, sessions }: Listener): () => void {
  const last = new WeakMap<object, ServerResponse>()
  const lastResponse = ({ socket, httpVersionMajor }: IncomingMessage, response: ServerResponse) => {
    if (response.headersSent || httpVersionMajor > 1) return
    const before = last.get(socket)
    if (before?.headersSent === false) before.removeHeader('Connection') // the client pipelines
    last.set(socket, response.setHeader('Connection', 'close'))
  }
  const goAway = (session: Session) => {
    if (session.destroyed) return
    // RFC 9113, 6.8: send the largest number first, so that requests on their way are still accepted; `close` sends the real one later.
    session.goaway(0, 2 ** 31 - 1)
    setTimeout(() => session.close(), GOAWAY_MS).unref()
  }
  for (const socket of sockets) {
    const response = responseOf(socket)
    if (response !== null && !isHalfRead(socket, response.req)) lastResponse(response.req, response)
  }
  server.prependListener('request', lastResponse)
  server.on('session', goAway)
  for (const session of sessions) goAway(session)
  return () => {
    server.off('request', lastResponse)
    server.off('session', goAway)
  }
}
