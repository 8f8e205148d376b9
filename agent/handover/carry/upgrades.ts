// Remembers which connections have become WebSockets, whatever library answers them: a switch ends those that nobody has registered.

import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'

const upgraded = new WeakSet<Socket>()

export function noteUpgrade({ headers, socket }: IncomingMessage): void {
  if (headers.upgrade?.toLowerCase() === 'websocket') upgraded.add(socket)
}

/** Whether the client of this connection has asked for a WebSocket. */
export function isWebSocket(socket: Socket): boolean {
  return upgraded.has(socket)
}
