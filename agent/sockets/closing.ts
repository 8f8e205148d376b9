// Asks the connections of a listener to end: with `Connection: close` on the next response, with GOAWAY, or at once if they are idle.

import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import { idleConnections, idleTimeLeft } from './internals.ts'
import type { Listener, Session } from './listeners.ts'

/** milliseconds between the GOAWAY that still accepts requests and the one that names the last accepted request */
const GOAWAY_MS = 300

/**
 * From now on every response ends its connection, unless the client has already sent another request behind it; HTTP/2 sessions get
 * a GOAWAY. Returns a function that takes this back.
 */
export function askToClose({ server, sessions }: Listener): () => void {
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
  server.prependListener('request', lastResponse)
  server.on('session', goAway)
  for (const session of sessions) goAway(session)
  return () => {
    server.off('request', lastResponse)
    server.off('session', goAway)
  }
}

/**
 * Closes the connections that wait between two requests: a process that stops for good has no successor to give them to.
 * `sparesNew`: keeps a connection that was accepted and has not sent a byte, since its request is on the way.
 */
export function closeIdle({ server, sockets, movable }: Listener, { sparesNew = false } = {}): void {
  if (movable) {
    for (const socket of idleConnections(server as HttpServer, sockets)) {
      if (!sparesNew || idleTimeLeft(socket) !== null) socket.destroy()
    }
  } else if (!sparesNew && 'closeIdleConnections' in server) (server as HttpServer).closeIdleConnections()
}
