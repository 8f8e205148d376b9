// Holds the listening sockets of a service while no process of it runs, for a supervisor other than systemd. Works like systemd's
// descriptor store, with the same messages (sd_notify(3): FDSTORE=1 with FDNAME=, FDSTOREREMOVE=1, READY=1, EXTEND_TIMEOUT_USEC=).
// Must hold: only a process that may write in the directory of its socket can reach it; what it accepts is bounded.

import { rmSync } from 'node:fs'
import type { ProcessName } from '../words/wire.ts'
import { isAlive, startTimeOf } from './process.ts'
import type { HeldSocket } from './start-with.ts'
import { letterbox, type Packets } from './packets.ts'
import { closeDescriptor } from './libc.ts'

export interface DescriptorStore extends Disposable {
  /** value of NOTIFY_SOCKET for the service */
  path: string
  /** the sockets that it holds now */
  held(): HeldSocket[]
  /** Whether a process has reported that it serves since the last call. */
  isReady(): boolean
  /** the process that last reported itself as the main one (MAINPID=), if it lives; else null */
  main(): ProcessName | null
  /** For how long from now a process has asked to be waited for since the last call, in milliseconds; 0: none has. */
  longerMs(): number
  /** Closes the held sockets, so that no client waits if no process will come. */
  letGo(): void
}

const HELD_MAX = 64
const NAME = /^[!-9;-~]{1,255}$/

/** Throws if this host cannot pass descriptors, or the path is too long for a socket. */
export function openDescriptorStore(path: string): DescriptorStore {
  rmSync(path, { force: true }) // left by a supervisor that was killed
  const letters = letterbox(path)
  const shelf = makeShelf()
  let ready = false
  let longerMs = 0
  let main: ProcessName | null = null
  const read = () => {
    for (let letter; (letter = next(letters)) !== null;) {
      const [fd, ...others] = letter.descriptors
      for (const other of others) closeDescriptor(other)
      const { lines, name, pid, ...said } = readLetter(letter.text)
      ready ||= lines.includes('READY=1')
      longerMs = Math.max(longerMs, said.longerMs)
      const startTime = startTimeOf(pid)
      if (startTime !== null) main = { pid, startTime } // else it has ended since
      if (lines.includes('FDSTOREREMOVE=1')) shelf.drop(name)
      if (fd === undefined) continue
      if (!lines.includes('FDSTORE=1') || !shelf.put(name, fd)) closeDescriptor(fd)
    }
  }
  const letGo = () => {
    read()
    for (const { name } of shelf.all()) shelf.drop(name)
  }
  return {
    path,
    held: () => {
      read()
      return shelf.all()
    },
    isReady: () => {
      read()
      const was = ready
      ready = false
      return was
    },
    longerMs: () => {
      read()
      const asked = longerMs
      longerMs = 0
      return asked
    },
    main: () => {
      read()
      return main !== null && isAlive(main.pid, main.startTime) ? main : null
    },
    letGo,
    [Symbol.dispose]: () => {
      letGo()
      letters.close()
      rmSync(path, { force: true })
    },
  }
}

function makeShelf() {
  const kept = new Map<string, number>()
  const drop = (name: string) => {
    const fd = kept.get(name)
    if (fd !== undefined) closeDescriptor(fd)
    kept.delete(name)
  }
  return {
    drop,
    /** False if it does not take the descriptor. */
    put(name: string, fd: number): boolean {
      if (!NAME.test(name) || (!kept.has(name) && kept.size >= HELD_MAX)) return false
      drop(name)
      kept.set(name, fd)
      return true
    },
    all: (): HeldSocket[] => [...kept].map(([name, fd]) => ({ name, fd })),
  }
}

function readLetter(text: string) {
  const lines = text.split('\n')
  const name = lines.find((line) => line.startsWith('FDNAME='))?.slice('FDNAME='.length) ?? ''
  const pid = Number(/^MAINPID=([0-9]{1,10})$/m.exec(text)?.[1] ?? 0)
  const longerMs = Number(/^EXTEND_TIMEOUT_USEC=([0-9]{1,15})$/m.exec(text)?.[1] ?? 0) / 1000
  return { lines, name, pid, longerMs }
}

/** The next letter that arrived whole; null if none waits. */
function next(letters: Packets): ReturnType<Packets['receive']> {
  for (let torn = 0; torn < HELD_MAX; torn++) {
    try {
      return letters.receive()
    } catch {
      continue // torn, or empty
    }
  }
  return null
}
