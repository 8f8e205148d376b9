// What a process does with its spares that has given its sockets to another one: it listens on them again, or refuses their clients.

import { closeSync } from 'node:fs'
import { BatonError } from '../words/errors.ts'
import { duplicate, refuseClients } from './libc.ts'
import { bindPath, isNamed, leaveForNew, listen, type Listener, stopAccepting } from './listeners.ts'
import { storeSockets } from './store.ts'

/**
 * After a revert: listens again on the spare, and keeps a new one. Somebody may have removed the name of a unix socket: it is made again,
 * or the path is bound anew. Where neither is possible, the connections that wait in its queue are served all the same.
 */
export async function listenAgain(listener: Listener): Promise<void> {
  const spare = listener.spare
  // if another process listens there, the name is that one's
  const hasLost = spare !== null && !(await isNamed(listener, spare).catch(() => true))
  if (hasLost && (await bindAnew(listener, spare))) return
  if (listener.server.listening) return
  if (spare === null)
    throw new BatonError('undo_failed', `cannot listen on ${listener.key} again: its reserved socket is gone`)
  await listen(listener, { accept: spare, spare: duplicate(spare) })
}

/** Whether clients find the listener at its path again. Until then it keeps `lost`, and does not accept on it. */
async function bindAnew(listener: Listener, lost: number): Promise<boolean> {
  stopAccepting(listener)
  try {
    await bindPath(listener, listener.key)
  } catch {
    if (listener.spare !== null && listener.spare !== lost) closeSync(listener.spare)
    listener.spare = lost
    return false
  }
  await leaveForNew(listener, { accept: lost, spare: null })
  await storeSockets([listener])
  return true
}

/**
 * Stops accepting on a listener that no process will take over: over TCP, clients are refused at once instead of queueing until
 * this process ends. It can be listened on again. Connections that are in the queue at this moment are reset.
 */
export function turnAway(listener: Listener): void {
  stopAccepting(listener)
  if (listener.spare !== null && listener.isTcp) refuseClients(listener.spare)
}
