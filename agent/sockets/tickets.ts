// The keys of TLS session tickets. The successor gets them, so that clients resume the sessions that they began here: without them,
// none of 192 clients could. They go over the channel only, never through the environment.
// A session is also bound to a context, which Node makes of the arguments of the process. Each release of an application has an entry of
// its own there, so the successor gets the context as well; unless an author has chosen one, who then decides what is resumed.

import type { Server as TlsServer } from 'node:tls'
import { nodeCrypto } from '../words/later.ts'
import type { Tickets } from '../words/wire.ts'
import { type SessionBound, setSessionContext } from './internals-moving.ts'
import type { Listener } from './listeners.ts'

/** servers that have a predecessor's context */
const taken = new WeakSet<object>()

export function ticketsOf(listeners: Listener[]): Tickets[] {
  return listeners.flatMap(({ key, server }) => {
    if (!('getTicketKeys' in server)) return []
    const { sessionIdContext: context } = server as SessionBound
    const keys = (server as TlsServer).getTicketKeys().toString('base64')
    return [{ listener: key, keys, ...(context !== undefined && isNodes(server) ? { context } : {}) }]
  })
}

export function takeTickets(listener: Listener | undefined, { keys, context }: Omit<Tickets, 'listener'>): void {
  const server = listener?.server
  if (server === undefined || !('setTicketKeys' in server)) return
  ;(server as TlsServer).setTicketKeys(Buffer.from(keys, 'base64'))
  if (context === undefined || !isNodes(server)) return
  setSessionContext(server, context)
  taken.add(server)
}

/** Whether the context is the one that Node makes: https://nodejs.org/api/tls.html#tlscreateserveroptions-secureconnectionlistener */
function isNodes(server: SessionBound): boolean {
  if (taken.has(server)) return true
  const ofArguments = nodeCrypto().createHash('sha1').update(process.argv.join(' ')).digest('hex').slice(0, 32)
  return server.sessionIdContext === ofArguments
}
