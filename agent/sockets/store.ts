// Listening sockets that are held while no process of the service runs: by the service manager, or by a process that starts another
// one in its place. Connections wait in their queues meanwhile, and no client is refused. A process receives them as sd_listen_fds(3)
// says: LISTEN_FDS of them from descriptor 3 on, their names in LISTEN_FDNAMES, for the process LISTEN_PID.

import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { duplicate, keepFromChildren, refuseClients } from './libc.ts'
import { LISTEN_VARIABLES } from './environment.ts'
import type { HeldSockets, Keeper } from './keeper.ts'
import { bind, type Held, isSameAddress, type Listener } from './listeners.ts'
import { keyOfName, storedNameOf } from './stored-names.ts'
import { hasSupervisor, notifySystemd, notifyWith } from './systemd.ts'

const FIRST = 3
export const WAITING_MAX_MS = 30_000
/** how long sockets that were held for this process are kept for servers that listen later */
const UNCLAIMED_MS = 10_000
const [STORE_TRIES, STORE_EVERY_MS] = [100, 20]

/** The sockets, by the key of their listener. Removes them from the environment: neither a child nor a second call finds them. */
export function heldSockets(environment: NodeJS.ProcessEnv = process.env): HeldSockets {
  const { LISTEN_PID: pid, LISTEN_FDS: count, LISTEN_FDNAMES: names } = environment
  for (const name of LISTEN_VARIABLES) delete environment[name]
  const held: HeldSockets = new Map()
  if (Number(pid) !== process.pid || !/^[0-9]{1,4}$/.test(count ?? '')) return held
  for (let accept = FIRST; accept < FIRST + Number(count); accept++) {
    keepFromChildren(accept)
    const key = keyOfName(names?.split(':')[accept - FIRST] ?? '')
    if (key === null || held.has(key)) closeSync(accept)
    else held.set(key, { accept, spare: duplicate(accept) })
  }
  return held
}

let kept: HeldSockets | null = null

/** Call it before the application's first line: an application that reads LISTEN_FDS itself would take these sockets. */
export function keepHeldSockets(): string[] {
  kept ??= heldSockets()
  return [...kept.keys()]
}

export interface StoreKeeper extends Keeper {
  /** Lets go of what it holds for this process, if another keeper has the sockets. */
  letGo(): void
}

export interface StoreOptions {
  warn(message: string): void
  /** Called with the keys of what was let go because no server of the application had listened there UNCLAIMED_MS after it served. */
  missed(keys: string[]): void
  patienceMs?: number
}

/**
 * The manager, or nobody. Until this process serves, the end of this process lets go of what the manager holds. Connections wait in the
 * queues for at most `patienceMs`; a start that takes longer refuses them.
 */
export function storeKeeper({ warn, missed, patienceMs = WAITING_MAX_MS }: StoreOptions): StoreKeeper {
  const { LISTEN_PID, LISTEN_FDNAMES, NOTIFY_SOCKET } = process.env
  const held = kept ?? heldSockets()
  kept = null
  // armed by the first code of a release, or by the adapter that listens by itself; only a program without both arms it here
  const lastResort = held.size === 0 ? null : import('./last-resort.ts')
  void lastResort?.then((last) => last.letGoUnlessServing({ LISTEN_PID, LISTEN_FDNAMES, NOTIFY_SOCKET }))
  const release = async () => {
    clearTimeout(timer)
    const left = [...held]
    held.clear()
    await Promise.all(left.map(([key, socket]) => letGo(key, socket)))
    return left.map(([key]) => key)
  }
  const late = () => {
    warn(`still not serving after ${patienceMs} ms, so waiting connections are refused`)
    void release()
  }
  let timer = held.size === 0 ? undefined : setTimeout(late, patienceMs).unref()
  let isHeld: boolean | null = null
  let isServing = false
  return {
    ownsQueue: false,
    gone: null,
    letGo: () => void release(),
    async listen(listener, spec, mayShare) {
      clearTimeout(timer)
      // A process that was handed sockets is the service, and may share a port that it holds at another address. Without handed
      // sockets, a second process of a managed install is a mistake, such as the service started by hand beside itself: do not share.
      isHeld ??= held.size > 0
      listener.key = [...held.keys()].find((key) => isSameAddress(key, listener.key)) ?? listener.key
      const own = held.get(listener.key) ?? null
      held.delete(listener.key)
      await bind(listener, spec, own, isHeld || mayShare)
      if (isHeld || isServing || !listener.isShared) return
      warn(
        `another process is already listening on ${listener.address}: the kernel splits connections between the two processes`,
      )
    },
    async serve() {
      isServing = true
      // a server of this process may listen later
      if (held.size > 0) timer = setTimeout(() => void release().then(missed), UNCLAIMED_MS).unref()
      void lastResort?.then((last) => last.serves())
    },
  }
}

/** Gives the listening sockets to the manager, which holds them from now on, even if this process dies. */
export async function storeSockets(listeners: readonly Listener[]): Promise<void> {
  if (!hasSupervisor()) return
  for (const listener of listeners) {
    if (listener.isAnew) await forget(listener.key) // of two with one name the next process would get the first
    const isStored = async () =>
      listener.spare === null ||
      (await notifyWith(['FDSTORE=1', `FDNAME=${storedNameOf(listener.key)}`], listener.spare))
    // the manager takes only a few messages at once
    for (let tries = 0; !(await isStored()) && tries < STORE_TRIES; tries++) await sleep(STORE_EVERY_MS)
  }
}

interface Open {
  listeners: Listener[]
  freed: Set<string>
}

/** Frees the socket of a listener whose server its author has closed, and forgets it. */
export function freeSocket(listener: Listener, { listeners, freed }: Open): void {
  const at = listeners.indexOf(listener)
  if (at >= 0) listeners.splice(at, 1)
  freed.add(listener.key)
  if (listener.spare === null) return
  // The manager keeps the socket a moment longer. It must not get connections that belong to the next server on this address.
  if (listener.isTcp) refuseClients(listener.spare)
  closeSync(listener.spare)
  listener.spare = null
  void forget(listener.key)
}

/** Closes a socket that was held for a listener which this release does not have, and makes the manager drop it. */
export async function letGo(key: string, { accept, spare }: Held): Promise<void> {
  await forget(key)
  for (const fd of [accept, spare]) if (fd !== null) closeSync(fd)
}

/** Makes the manager drop what it holds for this listener. */
export async function forget(key: string): Promise<void> {
  await notifySystemd(['FDSTOREREMOVE=1', `FDNAME=${storedNameOf(key)}`])
}
