// Listens on a socket that another process has too, as its successor or again after a revert; or refuses its clients for good.

import { BatonError } from '../words/errors.ts'
import type { InheritedListener } from '../words/wire.ts'
import { duplicate, refuseClients } from './libc.ts'
import { isNamed, listen, type Listener, stopAccepting } from './listeners.ts'

/** Successor: listens on the socket that it has inherited. */
export async function inherit(listener: Listener, inherited: InheritedListener): Promise<void> {
  listener.spare = inherited.spare
  await listen(listener, inherited.accept)
}

/** After a revert: listens again on the spare, and keeps a new one. The failed release may have removed the name of a unix socket. */
export async function listenAgain(listener: Listener): Promise<void> {
  const spare = listener.spare
  if (spare !== null) await isNamed(listener, spare).catch(() => false)
  if (listener.server.listening) return
  if (spare === null) throw new BatonError('undo_failed', `there is no spare of ${listener.key} to listen on again`)
  listener.spare = duplicate(spare)
  await listen(listener, spare)
}

/**
 * Stops accepting on a listener that no process will take over: over TCP, clients are refused at once instead of queueing until
 * this process ends. It can be listened on again. Connections that are in the queue at this moment are reset.
 */
export function turnAway(listener: Listener): void {
  stopAccepting(listener)
  if (listener.spare !== null && listener.isTcp) refuseClients(listener.spare)
}
