// Starts a process as child_process does, without its fork: libuv copies this process's page tables, and a service stands still for that,
// some 34 ms for each gigabyte that it has. posix_spawn(3) copies none (CLONE_VM, CLONE_VFORK), and takes 0.25 ms at any size.
// What this Node, this platform or this call cannot do so is left to child_process.
// Must hold: the child has the descriptors it was given and no other, no signal blocked or ignored, and leaves no zombie.

import { type ChildProcess, spawn as fork } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { constants } from 'node:os'
import { getSystemErrorName } from 'node:util'
import { closeDescriptor } from './libc.ts'
import { addressOf, duplicateFrom, libcTable, pairOf, SOCK_CLOEXEC, SOCK_STREAM } from './libc-later.ts'

export interface SpawnOptions {
  cwd?: string
  env: NodeJS.ProcessEnv
  /** as of child_process; a number is a descriptor of this process */
  stdio: readonly ('ignore' | 'inherit' | 'pipe' | number)[]
  /** its own session */
  detached: boolean
}

/**
 * What this code needs of a child. Events: `error` (it could not be started, and its exit code is the negative number of the kernel's error)
 * or `exit`, and `close` once its pipes are closed too.
 */
export interface Spawned extends Pick<ChildProcess, 'pid' | 'exitCode' | 'signalCode'> {
  /** as of child_process: none if no descriptor is left for them */
  readonly stdio: readonly (Socket | null)[]
  on(event: 'error', told: (error: Error) => void): unknown
  once(event: 'exit' | 'close', told: (code: number | null, signal: NodeJS.Signals | null) => void): unknown
  kill(signal?: NodeJS.Signals): boolean
}

const SYMBOLS = {
  posix_spawn: { arguments: ['buffer', 'buffer', 'buffer', 'buffer', 'buffer', 'buffer'], return: 'i32' },
  posix_spawn_file_actions_init: { arguments: ['buffer'], return: 'i32' },
  posix_spawn_file_actions_adddup2: { arguments: ['buffer', 'i32', 'i32'], return: 'i32' },
  posix_spawn_file_actions_addchdir_np: { arguments: ['buffer', 'buffer'], return: 'i32' },
  posix_spawn_file_actions_destroy: { arguments: ['buffer'], return: 'i32' },
  posix_spawnattr_init: { arguments: ['buffer'], return: 'i32' },
  posix_spawnattr_setflags: { arguments: ['buffer', 'i16'], return: 'i32' },
  posix_spawnattr_setsigdefault: { arguments: ['buffer', 'buffer'], return: 'i32' },
  posix_spawnattr_setsigmask: { arguments: ['buffer', 'buffer'], return: 'i32' },
  waitpid: { arguments: ['i32', 'buffer', 'i32'], return: 'i32' },
} as const

/** of glibc and musl on 64-bit Linux, with room */
const [ACTIONS_BYTES, ATTRIBUTES_BYTES, SIGNALS_BYTES] = [128, 512, 128]
/** spawn.h, sys/wait.h */
const [SET_SIGNAL_DEFAULTS, SET_SIGNAL_MASK, SET_SESSION, WNOHANG] = [0x04, 0x08, 0x80, 1]
/** SIGCHLD tells when a child has ended; this is for an application that takes all handlers away */
const LOOK_EVERY_MS = 250
/** if somebody else has waited for it: exit code 255 */
const UNKNOWN = 0xff00

type Libc = Record<keyof typeof SYMBOLS, (...values: unknown[]) => number>
/** null: this Node or this C library lacks a function; undefined: not looked yet */
let libc: Libc | null | undefined

export function spawn(file: string, args: readonly string[], options: SpawnOptions): Spawned {
  if (libc === undefined) libc = libcTable(SYMBOLS) as Libc | null
  // child_process searches PATH for a plain name
  if (libc === null || process.platform !== 'linux' || !file.includes('/'))
    return fork(file, args, { ...options, stdio: [...options.stdio] }) as unknown as Spawned
  return new Child(file, args, options, libc)
}

class Child extends EventEmitter {
  pid: number | undefined
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null
  readonly stdio: (Socket | null)[] = []

  constructor(file: string, args: readonly string[], options: SpawnOptions, own: Libc) {
    super()
    const opened: number[] = []
    let fault: NodeJS.ErrnoException | null = null
    try {
      const given = options.stdio.map((one, at) => this.#descriptorFor(one, at, opened))
      // above all that the child gets, so that none is overwritten as the target of another; no higher, for the limit may be low
      const aside = given.map((fd) => keep(opened, duplicateFrom(fd, given.length)))
      this.pid = start(file, args, options, aside, own)
    } catch (cause) {
      fault = cause as NodeJS.ErrnoException
    } finally {
      for (const fd of opened) closeDescriptor(fd)
    }
    if (fault !== null) this.#failed(fault)
    else if (this.pid !== undefined) watch(this.pid, own, (status) => this.#ended(status))
  }

  #failed(fault: NodeJS.ErrnoException): void {
    this.exitCode = fault.errno ?? -constants.errno.EINVAL
    const streams = [...this.stdio]
    if (fault.code === 'EMFILE' || fault.code === 'ENFILE') this.stdio.length = 0
    for (const stream of streams) stream?.destroy()
    process.nextTick(() => {
      this.emit('error', fault)
      this.#closes(streams)
    })
  }

  kill(signal: NodeJS.Signals = 'SIGTERM'): boolean {
    if (this.pid === undefined || this.exitCode !== null || this.signalCode !== null) return false
    try {
      return process.kill(this.pid, signal)
    } catch {
      return false
    }
  }

  /** A descriptor of this process that the child gets as its number `at`; what is opened for it is closed here afterwards. */
  #descriptorFor(one: SpawnOptions['stdio'][number], at: number, opened: number[]): number {
    this.stdio[at] = null
    if (typeof one === 'number') return one
    if (one === 'inherit') return at
    if (one === 'ignore') return keep(opened, openSync('/dev/null', at === 0 ? 'r' : 'r+'))
    const [near, far] = pairOf(SOCK_STREAM, SOCK_CLOEXEC) // the child's end blocks, as programs expect
    keep(opened, far)
    try {
      this.stdio[at] = new Socket({ fd: near, readable: true, writable: true })
    } catch (cause) {
      closeSync(near)
      throw cause
    }
    return far
  }

  #ended(status: number): void {
    const signal = status & 0x7f
    if (signal === 0) this.exitCode = (status >> 8) & 0xff
    else this.signalCode = nameOf(signal)
    this.emit('exit', this.exitCode, this.signalCode)
    this.#closes(this.stdio)
  }

  /** Says so once these pipes are closed. */
  #closes(streams: readonly (Socket | null)[]): void {
    const open = streams.filter((stream) => stream !== null && !stream.closed)
    let left = open.length
    const close = () => void (left-- <= 1 && this.emit('close', this.exitCode, this.signalCode))
    if (left === 0) close()
    for (const stream of open) stream?.once('close', close)
  }
}

function keep(opened: number[], fd: number): number {
  opened.push(fd)
  return fd
}

/** Resolves to the pid. Throws an error with the `code` of the kernel's. */
function start(
  file: string,
  args: readonly string[],
  { cwd, env, detached }: SpawnOptions,
  descriptors: readonly number[],
  own: Libc,
): number {
  const strings: Buffer[] = []
  const text = (value: string): Buffer => {
    if (value.includes('\0'))
      throw new TypeError(`expected text without null bytes, got ${JSON.stringify(value.slice(0, 100))}`)
    const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(value) + 1).fill(0) // outside Node's pool, whose memory may move to another owner
    bytes.write(value)
    strings.push(bytes)
    return bytes
  }
  const list = (values: readonly string[]): Buffer => {
    const pointers = Buffer.alloc(8 * (values.length + 1))
    for (const [at, value] of values.entries()) pointers.writeBigUInt64LE(addressOf(text(value)), 8 * at)
    return pointers
  }
  const [actions, attributes, pid] = [Buffer.alloc(ACTIONS_BYTES), Buffer.alloc(ATTRIBUTES_BYTES), Buffer.alloc(4)]
  const environment = Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]))
  const [path, argv, envp] = [text(file), list([file, ...args]), list(environment)]
  own.posix_spawnattr_init(attributes)
  own.posix_spawnattr_setflags(attributes, SET_SIGNAL_DEFAULTS | SET_SIGNAL_MASK | (detached ? SET_SESSION : 0))
  own.posix_spawnattr_setsigdefault(attributes, Buffer.alloc(SIGNALS_BYTES, 0xff))
  own.posix_spawnattr_setsigmask(attributes, Buffer.alloc(SIGNALS_BYTES))
  own.posix_spawn_file_actions_init(actions)
  try {
    if (cwd !== undefined) own.posix_spawn_file_actions_addchdir_np(actions, text(cwd))
    for (const [to, fd] of descriptors.entries()) own.posix_spawn_file_actions_adddup2(actions, fd, to)
    const failed = own.posix_spawn(pid, path, actions, attributes, argv, envp)
    if (failed === 0) return pid.readInt32LE(0)
    const code = getSystemErrorName(-failed)
    throw Object.assign(new Error(`spawn ${file} ${code}`), {
      code,
      errno: -failed,
      syscall: `spawn ${file}`,
      path: file,
    })
  } finally {
    own.posix_spawn_file_actions_destroy(actions)
    strings.length = 0 // until here C has read them
  }
}

const living = new Map<number, (status: number) => void>()
let looking: NodeJS.Timeout | null = null

/** Calls `ended` with the status of waitpid(2). A child that lives keeps this process alive, as with child_process. */
function watch(pid: number, own: Libc, ended: (status: number) => void): void {
  living.set(pid, ended)
  const look = (): void => {
    const status = Buffer.alloc(4)
    for (const [one, tell] of living) {
      const seen = own.waitpid(one, status, WNOHANG)
      if (seen === 0) continue
      living.delete(one)
      tell(seen === one ? status.readInt32LE(0) : UNKNOWN)
    }
    if (living.size > 0 || looking === null) return
    clearInterval(looking)
    looking = null
    process.off('SIGCHLD', look)
  }
  if (looking !== null) return
  looking = setInterval(look, LOOK_EVERY_MS)
  process.on('SIGCHLD', look)
  setImmediate(look) // it may have ended already
}

function nameOf(signal: number): NodeJS.Signals {
  const found = Object.entries(constants.signals).find(([, number]) => number === signal)
  return (found?.[0] ?? 'SIGKILL') as NodeJS.Signals
}
