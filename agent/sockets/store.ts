// Listening sockets that are held while no process of the service runs: by the service manager, or by a process that starts another
// one in its place. Connections wait in their queues meanwhile, and no client is refused. A process receives them as sd_listen_fds(3)
// says: LISTEN_FDS of them from descriptor 3 on, their names in LISTEN_FDNAMES, for the process LISTEN_PID.

import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { keepFromChildren, refuseClients } from './libc.ts'
import { LISTEN_VARIABLES } from './environment.ts'
import type { Listener } from './listeners.ts'
import { hasSupervisor, notifySystemd, notifyWith } from './systemd.ts'

const FIRST = 3
const NAME_MAX = 255
export const WAITING_MAX_MS = 30_000
const [STORE_TRIES, STORE_EVERY_MS] = [100, 20]

/** The sockets, by the key of their listener. Removes them from the environment: neither a child nor a second call finds them. */
export function heldSockets(environment: NodeJS.ProcessEnv = process.env): Map<string, number> {
  const { LISTEN_PID: pid, LISTEN_FDS: count, LISTEN_FDNAMES: names } = environment
  for (const name of LISTEN_VARIABLES) delete environment[name]
  const held = new Map<string, number>()
  if (Number(pid) !== process.pid || !/^[0-9]{1,4}$/.test(count ?? '')) return held
  for (let i = 0; i < Number(count); i++) {
    keepFromChildren(FIRST + i)
    const key = keyOfName(names?.split(':')[i] ?? '')
    if (key === null || held.has(key)) closeSync(FIRST + i)
    else held.set(key, FIRST + i)
  }
  return held
}

let kept: Map<string, number> | null = null

/** Call it before the application's first line: an application that reads LISTEN_FDS itself would take these sockets. */
export function keepHeldSockets(): string[] {
  kept ??= heldSockets()
  return [...kept.keys()]
}

export interface Door {
  /** sockets by the key of their listener; from now on they are the caller's */
  take(): Map<string, number>
  /** call it when this process serves: until then its end lets the sockets go */
  served(): void
}

/**
 * Keeps the sockets that were held for this process until it serves. Connections wait in their queues for at most `patienceMs`;
 * a start that takes longer refuses them. `take` gives the sockets to the caller, once.
 */
export function openDoor(warn: (message: string) => void, patienceMs = WAITING_MAX_MS): Door {
  let held = kept ?? heldSockets()
  const keys = kept === null ? [...held.keys()] : [] // else the adapter does the same, from its first line on
  const serves =
    keys.length === 0
      ? null
      : import('./last-resort.ts').then(({ letGoUnlessServing }) => letGoUnlessServing(keys, storedNameOf))
  kept = null
  const take = () => {
    const taken = held
    held = new Map()
    clearTimeout(timer)
    return taken
  }
  const shut = () => {
    warn(`it does not serve after ${patienceMs} ms: connections that wait are refused`)
    for (const [key, fd] of take()) void letGo(key, fd)
  }
  const timer = held.size === 0 ? undefined : setTimeout(shut, patienceMs).unref()
  return { take, served: () => void serves?.then((end) => end()) }
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
export async function letGo(key: string, fd: number): Promise<void> {
  await forget(key)
  closeSync(fd)
}

/** Makes the manager drop what it holds for this listener. */
export async function forget(key: string): Promise<void> {
  await notifySystemd(['FDSTOREREMOVE=1', `FDNAME=${storedNameOf(key)}`])
}

/** A listening socket that is held for the next process. */
export interface HeldSocket {
  name: string
  fd: number
}

export function spares(listeners: readonly Listener[]): HeldSocket[] {
  return listeners.flatMap(({ key, spare }) => (spare === null ? [] : [{ name: storedNameOf(key), fd: spare }]))
}

/** The command that starts a process of the service. */
export interface Command {
  file: string
  args: string[]
  /** default: this process's working directory */
  cwd?: string
}

/** A name that systemd accepts: visible ASCII without `:`, at most 255 characters. */
export function storedNameOf(key: string): string {
  const name = `baton-${encodeURIComponent(key)}`
  return name.length <= NAME_MAX ? name : name.slice(0, NAME_MAX)
}

function keyOfName(name: string): string | null {
  try {
    return name.startsWith('baton-') ? decodeURIComponent(name.slice('baton-'.length)) : null
  } catch {
    return null
  }
}
