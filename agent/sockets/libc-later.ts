// What most of the code that serves does not ask of the C library: it is for a switch, a command, a message to the manager, and a start
// beside another process.

import { closeSync } from 'node:fs'
import { Socket } from 'node:net'
import { callLibc, F_DUPFD_CLOEXEC, ffi, type Functions, hasLibc, LINUX, opened } from './libc.ts'

const F_SETFL = 4
const [PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER] = [1, 4, 36]
const SIGKILL = 9n
export const [AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC, SOCK_NONBLOCK] = [1, 1, 0o2000000, 0o4000]

/** As `callLibc`, for functions that return a negative number if they fail. Throws with the error's number. */
export function callChecked(name: string, ...values: unknown[]): number {
  const result = callLibc(name, ...values)
  if (result >= 0) return result
  const number = errno()
  // the name is that of Node's own errors, by which a lack of this host is known
  const code = number === 0 ? 'UNKNOWN' : process.getBuiltinModule('node:util').getSystemErrorName(-number)
  throw Object.assign(new Error(`${name}: ${code}`), { code, errno: -number })
}

/** Error number of the last call; 0 if it cannot be read. */
export function errno(): number {
  return LINUX ? ffi().getInt32(opened()?.['__errno_location']?.(), 0) : 0
}

/** Address of the bytes of `buffer`. Keep a reference while C uses the address, and allocate the buffer outside Node's pool. */
export function addressOf(buffer: Buffer): bigint {
  return ffi().getRawPointer(buffer)
}

/** A second descriptor of the same file, of at least this number, which no child inherits. Throws if none is left. */
export function duplicateFrom(fd: number, least: number): number {
  return callChecked('fcntl', fd, F_DUPFD_CLOEXEC, least)
}

/** From now on this process becomes the parent of every process below it whose own parent ends: prctl(2), PR_SET_CHILD_SUBREAPER. */
export function adoptOrphans(): void {
  if (LINUX && hasLibc()) callLibc('prctl', PR_SET_CHILD_SUBREAPER, 1n, 0n, 0n, 0n)
}

/** From now on the kernel ends this process when the one that has started it ends, however that ends: prctl(2), PR_SET_PDEATHSIG. */
export function endWithParent(): void {
  if (LINUX && hasLibc()) callLibc('prctl', PR_SET_PDEATHSIG, SIGKILL, 0n, 0n, 0n)
}

/** From now on no other process of this user can trace this one, read or write its memory, or open its descriptors: prctl(2), PR_SET_DUMPABLE. */
export function standAlone(): void {
  if (LINUX && hasLibc()) callLibc('prctl', PR_SET_DUMPABLE, 0n, 0n, 0n, 0n)
}

/** Makes reading from a descriptor fail with EAGAIN if there is nothing to read. */
export function neverBlock(fd: number): void {
  if (LINUX && hasLibc()) callLibc('fcntl', fd, F_SETFL, SOCK_NONBLOCK)
}

/** Descriptors of two connected unix sockets. Throws if none are left. `flags`: of both, on Linux. */
export function pairOf(type: number, flags = SOCK_CLOEXEC | SOCK_NONBLOCK): [number, number] {
  const both = Buffer.allocUnsafeSlow(1024)
  callChecked('socketpair', AF_UNIX, LINUX ? type | flags : type, 0, both)
  return [both.readInt32LE(0), both.readInt32LE(4)]
}

/**
 * Two sockets, each the other's peer. The connection has no name, so no other process can reach it, and it leaves nothing behind.
 */
export function socketPair(): [Socket, Socket] {
  const [near, far] = pairOf(SOCK_STREAM)
  const first = new Socket({ fd: near, readable: true, writable: true })
  try {
    return [first, new Socket({ fd: far, readable: true, writable: true })]
  } catch (error) {
    first.destroy()
    closeSync(far)
    throw error
  }
}

/** More functions, for a caller that can do without; null if this Node or this C library lacks one of them. */
export function libcTable(symbols: object): Functions | null {
  try {
    return ffi().dlopen(null, symbols).functions
  } catch {
    return null
  }
}
