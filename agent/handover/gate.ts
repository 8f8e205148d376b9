// A stop-first switch, in the first code of a release: the successor waits here until no process of the old release is left,
// before the application's first line.
// Must hold: the application does not begin while a process of the old release can still hold a lock, a port or a file.

import { readSync, writeSync } from 'node:fs'
import { pause } from '../disk/database-set.ts'
import type { Order } from '../words/order.ts'
import { type Gate, HOLDING, type ToPredecessor } from '../words/wire.ts'
import { neverBlock } from '../sockets/libc-later.ts'
import { riskAgain, riskMost } from '../sockets/memory.ts'
import { isGone, signalAll } from '../sockets/process.ts'
import { inheritanceHere } from './inheritance.ts'
import { keepInheritance } from './keep-inheritance.ts'
import { loadUsual } from './warm.ts'

const [LOOK_EVERY_MS, LOOK_AT_OLD_MS] = [1, 100]

/** Whether this process was started to hold the sockets between two processes of the application, which it must not load. */
export function isHolder(): boolean {
  return process.env[HOLDING] !== undefined
}

/**
 * Returns when the application may begin: at once if this process is not a successor. True if no other process of the service lives
 * then. Blocks the thread, since nothing else may run before. If this release must be the only process and its predecessor would
 * live beside it, this process exits.
 */
export function waitAtGate({ tag, order }: { tag: string; order: Order }): boolean {
  const inheritance = inheritanceHere(isGone)
  if (inheritance === null) return true
  const { channel, gate, predecessor, hangMs, memoryRisk } = inheritance
  keepInheritance(inheritance) // a process that the application starts in its first lines must not have it
  if (predecessor.pid !== process.ppid) {
    // The holder was killed before this process said that it waits. So the old process has not begun to leave, and serves on.
    if (gate !== undefined && !isGone(gate.old)) process.exit(0)
    return gate !== undefined
  }
  if (memoryRisk !== undefined) riskMost() // before its first line: the old process serves
  const say = (body: ToPredecessor) => void writeSync(channel.messages, `${JSON.stringify({ body })}\n`)
  if (gate === undefined) {
    if (order === 'start-first') return false
    say({ type: 'alone' })
    process.exit(0)
  }
  loadUsual()
  say({ type: 'waiting', tag })
  if (!isOpened(gate, hangMs)) {
    // The holder is dead or hangs. This process has the sockets too, so it goes on without the holder.
    signalAll([predecessor], 'SIGKILL')
    while (!isGone(gate.old)) pause(LOOK_EVERY_MS)
  }
  riskAgain(memoryRisk) // from now on the service is this process alone
  return true
}

/** Waits for the byte. False if the other end was closed first, or is silent although the old process is long gone. */
function isOpened({ descriptor, old }: Gate, hangMs: number): boolean {
  const byte = Buffer.alloc(1)
  neverBlock(descriptor)
  let goneSince: number | null = null
  for (let looked = 0; ; pause(LOOK_EVERY_MS)) {
    try {
      return readSync(descriptor, byte) === 1
    } catch (cause) {
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'EAGAIN')) return false
    }
    if (performance.now() - looked < LOOK_AT_OLD_MS) continue
    looked = performance.now()
    goneSince = isGone(old) ? (goneSince ?? looked) : null
    if (goneSince !== null && looked - goneSince > hangMs) return false
  }
}
