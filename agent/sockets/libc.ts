// Calls the C library through node:ffi (26.1 and later, experimental) for what Node does not offer: a second descriptor of a
// socket, close-on-exec, pairs of sockets, messages with descriptors. Holds the one table of its functions, opened once.
// Must hold: if node:ffi is missing, only the callers that need it fail (`missingParts` in internals.ts reports it).

interface Ffi {
  dlopen(library: null, symbols: object): { functions: Functions }
  getRawPointer(buffer: Buffer): bigint
  getInt32(at: unknown, offset: number): number
}

export type Functions = Record<string, (...values: unknown[]) => unknown>

export const LINUX = process.platform === 'linux'
const int = 'i32'
const takes = (...types: string[]) => ({ arguments: types, return: int })
const SYMBOLS = {
  dup: takes(int),
  fcntl: takes(int, int, int),
  shutdown: takes(int, int),
  close: takes(int),
  socket: takes(int, int, int),
  bind: takes(int, 'buffer', int),
  connect: takes(int, 'buffer', int),
  socketpair: takes(int, int, int, 'buffer'),
  sendmsg: { ...takes(int, 'buffer', int), return: 'i64' },
  recvmsg: { ...takes(int, 'buffer', int), return: 'i64' },
  getsockname: takes(int, 'buffer', 'buffer'),
  getpeername: takes(int, 'buffer', 'buffer'),
  getsockopt: takes(int, int, int, 'buffer', 'buffer'),
  ioctl: takes(int, 'u64', 'buffer'),
  ...(LINUX
    ? {
        lockf: takes(int, int, 'i64'),
        prctl: takes(int, 'u64', 'u64', 'u64', 'u64'),
        __errno_location: { ...takes(), return: 'pointer' },
      }
    : {}),
}

export const F_DUPFD_CLOEXEC = 1030
const [F_SETFD, FD_CLOEXEC] = [2, 1]
const SHUT_RD = 0

let functions: Functions | null | undefined

/** Calls a function of the C library by its name. Throws if this Node has no node:ffi. */
export function callLibc(name: string, ...values: unknown[]): number {
  const found = opened()
  if (found === null) throw new Error('node:ffi is not available')
  return Number(found[name]?.(...values))
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

/** Sets close-on-exec: an inherited descriptor must not leak into the service's children, which would hold the port. */
export function keepFromChildren(fd: number): void {
  if (LINUX && hasLibc()) callLibc('fcntl', fd, F_SETFD, FD_CLOEXEC)
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

export function opened(): Functions | null {
  if (functions !== undefined) return functions
  try {
    functions = ffi().dlopen(null, SYMBOLS).functions
  } catch {
    functions = null
  }
  return functions
}

export function ffi(): Ffi {
  return process.getBuiltinModule('node:ffi') as unknown as Ffi
}
