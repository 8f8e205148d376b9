// Which servers only seem to listen, as `questions.ts` makes them.

import type { Server } from 'node:net'

export type Handled = Server & { _handle: object | null }

/** what stands for the socket of each */
export const asking = new WeakMap<Server, object>()

/** Whether it listens, and does not only seem to. */
export function listens(server: Server): boolean {
  return server.listening && !isAsking(server)
}

export function isAsking(server: Server): boolean {
  const handle = asking.get(server)
  return handle !== undefined && (server as Handled)._handle === handle
}
