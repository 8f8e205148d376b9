// The keys of TLS session tickets. The successor gets them, so that clients resume the sessions that they began here: without them,
// none of 192 clients could. They go over the channel only, never through the environment.

import type { Server as TlsServer } from 'node:tls'
import type { Listener } from './listeners.ts'
import type { Tickets } from '../words/wire.ts'

export function ticketsOf(listeners: Listener[]): Tickets[] {
  return listeners.flatMap(({ key, server }) =>
    'getTicketKeys' in server
      ? [{ listener: key, keys: (server as TlsServer).getTicketKeys().toString('base64') }]
      : [],
  )
}

export function takeTickets(listener: Listener | undefined, keys: string): void {
  const server = listener?.server
  if (server !== undefined && 'setTicketKeys' in server) {
    ;(server as TlsServer).setTicketKeys(Buffer.from(keys, 'base64'))
  }
}
