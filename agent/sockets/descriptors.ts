// Descriptors, below what Node offers: a second one of the same socket, close-on-exec, a pair of connected sockets, the end of
// listening. Through node:ffi; where that is missing there are no managed updates (`missingParts` in internals.ts).

import { closeSync } from 'node:fs'
import { Socket } from 'node:net'
import { openLibc } from './libc.ts'

const LINUX = process.platform === 'linux'
const [F_SETFD, FD_CLOEXEC, F_DUPFD_CLOEXEC] = [2, 1, 1030]
const SHUT_RD = 0
const [AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC, SOCK_NONBLOCK] = [1, 1, 0o2000000, 0o4000]

interface Descriptors {
  duplicate(fd: number): number
  keepFromChildren(fd: number): void
  refuse(fd: number): void
  pair(): [number, number]
}

let opened: Descriptors | null | undefined

function descriptors(): Descriptors | null {
  if (opened !== undefined) return opened
  try {
    const { dup, fcntl, shutdown, socketpair } = openLibc({
      dup: { arguments: ['i32'], return: 'i32' },
      fcntl: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
      shutdown: { arguments: ['i32', 'i32'], return: 'i32' },
      socketpair: { arguments: ['i32', 'i32', 'i32', 'buffer'], return: 'i32' },
    })
    if (!dup || !fcntl || !shutdown || !socketpair) throw new Error('not in the C library')
    opened = {
      // fcntl is variadic: only on Linux are such arguments passed like any other
      duplicate: (fd) => Number(LINUX ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : dup(fd)),
      keepFromChildren: (fd) => void (LINUX && fcntl(fd, F_SETFD, FD_CLOEXEC)),
      refuse: (fd) => void shutdown(fd, SHUT_RD),
      pair() {
        const both = Buffer.alloc(8)
        const type = LINUX ? SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK : SOCK_STREAM
        if (Number(socketpair(AF_UNIX, type, 0, both)) !== 0) throw new Error('socketpair: no descriptors left')
        return [both.readInt32LE(0), both.readInt32LE(4)]
      },
    }
  } catch {
    opened = null
  }
  return opened
}

export function hasDescriptors(): boolean {
  return descriptors() !== null
}

/** A second descriptor of the same socket, or null where Node cannot make one. */
export function duplicate(fd: number): number | null {
  const copy = descriptors()?.duplicate(fd) ?? -1
  return copy >= 0 ? copy : null
}

/** An inherited descriptor must not leak into every child that the service spawns: they would hold the port. */
export function keepFromChildren(fd: number): void {
  descriptors()?.keepFromChildren(fd)
}

/** A listening TCP socket refuses its clients from now on, in every process that has it, but stays bound: `listen` begins anew. */
export function refuse(fd: number): void {
  descriptors()?.refuse(fd)
}

/** Two sockets, each the other's peer: a connection that has no name, so nobody else can come by it and nothing is left of it. */
export function socketPair(): [Socket, Socket] {
  const pair = descriptors()?.pair()
  if (pair === undefined) throw new Error('this Node has no node:ffi')
  const [near, far] = pair
  const first = new Socket({ fd: near, readable: true, writable: true })
  try {
    return [first, new Socket({ fd: far, readable: true, writable: true })]
  } catch (error) {
    first.destroy()
    closeSync(far)
    throw error
  }
}
