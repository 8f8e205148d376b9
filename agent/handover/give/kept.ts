// The predecessor's own descriptors of the connections that it has given away. If the successor dies before the commit, this process
// serves each connection again that the successor never touched.
// Must hold: a kept descriptor is closed as soon as the successor has closed its own, or the client would never see the
// connection end. At the commit this process ends, and with it all kept descriptors.

import { duplicate, closeDescriptor } from '../../sockets/libc.ts'
import { markOf } from '../../sockets/packets.ts'

/** what is needed to serve a connection again */
export interface About {
  /** key of its listener */
  listener: string
  /** as in an IdleConnection */
  idleMs: number | null
}

export interface Kept {
  /** Keeps a second descriptor, and marks how much was read and written so far. If none can be had, the connection is only counted. */
  keep(id: number, fd: number, about: About): void
  /** Call it when the successor has closed the connection, or never had it: closes the kept descriptor. */
  release(id: number): void
  /** Stops keeping this connection and returns its descriptor, which the caller now owns; null if there is none. */
  take(id: number): (About & { fd: number }) | null
  /** `untouched`: connections that the successor never read or wrote; the caller owns them now. Closes and counts the others, also those without a descriptor. */
  takeBack(): { untouched: (About & { fd: number })[]; touched: number }
  readonly size: number
}

export function makeKept(): Kept {
  const kept = new Map<number, About & { fd: number | null; mark: string | null }>()
  const release = (id: number) => {
    const one = kept.get(id)
    kept.delete(id)
    if (typeof one?.fd === 'number') closeDescriptor(one.fd)
  }
  return {
    keep: (id, fd, about) => {
      const own = duplicate(fd)
      kept.set(id, { ...about, fd: own, mark: own === null ? null : markOf(own) })
    },
    release,
    take: (id) => {
      const one = kept.get(id)
      kept.delete(id)
      return one === undefined || one.fd === null ? null : { ...one, fd: one.fd }
    },
    takeBack: () => {
      const untouched: (About & { fd: number })[] = []
      let touched = 0
      for (const [id, { fd, mark, listener, idleMs }] of kept) {
        if (fd !== null && mark !== null && markOf(fd) === mark) untouched.push({ fd, listener, idleMs })
        else {
          touched++
          if (fd !== null) closeDescriptor(fd)
        }
        kept.delete(id)
      }
      return { untouched, touched }
    },
    get size() {
      return kept.size
    },
  }
}
