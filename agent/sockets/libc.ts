// Calls the C library through node:ffi (26.1 and later, experimental) for what Node does not offer: a second descriptor of a
// socket, close-on-exec, pairs of sockets, messages with descriptors. Holds the one table of its functions, opened once.
// Must hold: if node:ffi is missing, only the callers that need it fail (`missingParts` in internals.ts reports it).

import { closeSync } from 'node:fs'
import { Socket } from 'node:net'

interface Ffi {
  dlopen(library: null, symbols: object): { functions: Functions }
  getRawPointer(buffer: Buffer): bigint
  getInt32(at: unknown, offset: number): number
}

type Functions = Record<string, (...values: unknown[]) => unknown>

const LINUX = process.platform === 'linux'
const int = 'i32'
const SYMBOLS = {
  dup: { arguments: [int], return: int },
  fcntl: { arguments: [int, int, int], return: int },
  shutdown: { arguments: [int, int], return: int },
  close: { arguments: [int], return: int },
  socket: { arguments: [int, int, int], return: int },
  bind: { arguments: [int, 'buffer', int], return: int },
  connect: { arguments: [int, 'buffer', int], return: int },
  socketpair: { arguments: [int, int, int, 'buffer'], return: int },
  sendmsg: { arguments: [int, 'buffer', int], return: 'i64' },
  recvmsg: { arguments: [int, 'buffer', int], return: 'i64' },
  getsockname: { arguments: [int, 'buffer', 'buffer'], return: int },
  getpeername: { arguments: [int, 'buffer', 'buffer'], return: int },
  getsockopt: { arguments: [int, int, int, 'buffer', 'buffer'], return: int },
  ioctl: { arguments: [int, 'u64', 'buffer'], return: int },
  ...(LINUX
    ? {
        lockf: { arguments: [int, int, 'i64'], return: int },
        prctl: { arguments: [int, 'u64', 'u64', 'u64', 'u64'], return: int },
        __errno_location: { arguments: [], return: 'pointer' },
      }
    : {}),
}

const [F_SETFD, F_SETFL, FD_CLOEXEC, F_DUPFD_CLOEXEC] = [2, 4, 1, 1030]
const SHUT_RD = 0
const [PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER] = [1, 4, 36]
const SIGKILL = 9n
export const [AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC, SOCK_NONBLOCK] = [1, 1, 0o2000000, 0o4000]

let functions: Functions | null | undefined

/** Calls a function of the C library by its name. Throws if this Node has no node:ffi. */
export function callLibc(name: string, ...values: unknown[]): number {
  const found = opened()
  if (found === null) throw new Error('this Node has no node:ffi')
  return Number(found[name]?.(...values))
}

/** The same, for functions that return a negative number if they fail. Throws with the error's number. */
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

export function hasLibc(): boolean {
  return opened() !== null
}

/** A second descriptor of the same socket; null if none is left, or if this Node has no node:ffi. */
export function duplicate(fd: number): number | null {
  if (!hasLibc()) return null
  // fcntl is variadic: only Linux passes such arguments like any other
  const copy = LINUX ? callLibc('fcntl', fd, F_DUPFD_CLOEXEC, 3) : callLibc('dup', fd)
  return copy >= 0 ? copy : null
}

/** A second descriptor of the same file, of at least this number, which no child inherits. Throws if none is left. */
export function duplicateFrom(fd: number, least: number): number {
  return callChecked('fcntl', fd, F_DUPFD_CLOEXEC, least)
}

/** Sets close-on-exec: an inherited descriptor must not leak into the service's children, which would hold the port. */
export function keepFromChildren(fd: number): void {
  if (LINUX && hasLibc()) callLibc('fcntl', fd, F_SETFD, FD_CLOEXEC)
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

/**
 * Makes a listening TCP socket refuse clients from now on, in every process that has it. It stays bound: `listen` begins anew.
 */
export function refuseClients(fd: number): void {
  if (hasLibc()) callLibc('shutdown', fd, SHUT_RD)
}

/** Closes a descriptor that is not inside a Node socket. */
export function closeDescriptor(fd: number): void {
  callLibc('close', fd)
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

function opened(): Functions | null {
  if (functions !== undefined) return functions
  try {
    functions = ffi().dlopen(null, SYMBOLS).functions
  } catch {
    functions = null
  }
  return functions
}

function ffi(): Ffi {
  return process.getBuiltinModule('node:ffi') as unknown as Ffi
}
