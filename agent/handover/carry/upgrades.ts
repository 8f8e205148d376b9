// Remembers which connections have become WebSockets, with any library: a switch ends those that their author has not registered.

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
