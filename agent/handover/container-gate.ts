// A stop-first switch of containers, in the first code of a release: the new container waits here, before its application's first
// line, until the command that replaces the old container reports that container's end (deploy/container/gate.ts).
// Must hold: the application begins only after the gate has opened. If the gate closes instead, the old container may live: throw.

import { readdirSync, readSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { closeDescriptor } from '../sockets/libc.ts'
import { ownContainerId } from '../sockets/process.ts'
import { connectTo } from '../sockets/packets.ts'
import { containerGate, gateGreeting, HOLDER } from '../words/lent.ts'
import { loadUsual } from './warm.ts'

/** The message, and a mark in the executable of every release that has this gate: deploy/image.ts looks for it in older ones too, so it stays. */
export const GATE_MARK = 'the command that replaces the old container is gone'

/**
 * Returns when the application may begin: at once if there is no gate for this container. Blocks the thread, since nothing else may
 * run before. Throws if this process must end instead.
 */
export function waitAtContainerGate({ tag }: { tag: string }): void {
  const holder = process.env[HOLDER]
  if (holder === undefined) return
  const name = gateHere(dirname(holder))
  if (name === null) return
  const fd = connectTo(join(dirname(holder), name))
  try {
    loadUsual()
    writeSync(fd, gateGreeting(tag))
    if (readSync(fd, Buffer.alloc(1)) === 1) return
  } finally {
    closeDescriptor(fd)
  }
  throw new Error(GATE_MARK)
}

/** Name of this container's gate; null if there is none. */
function gateHere(folder: string): string | null {
  const gates = filesIn(folder).filter((name) => name.startsWith(containerGate('')))
  if (gates.length === 0) return null
  const id = ownContainerId()
  if (id === null) throw new Error(`could not find this container's gate in ${folder}: its ID is unknown`)
  return gates.find((name) => name === containerGate(id)) ?? null
}

function filesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
