// Names of unix sockets. A socket is bound once, and its path is only a name, which anybody may remove: an application that clears its
// path before it listens or when it stops, a manager that empties the folder. So each socket has a second, hidden name beside its path,
// made of the path's and of the name that it was bound to. By that one its path is recognised, and made again.
// Must hold: no name of a socket on which another process listens is taken.

import {
  chmodSync,
  chownSync,
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
} from 'node:fs'
import { Server as HttpServer } from 'node:http'
import { connect, createServer, type Server } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { nodeCrypto } from '../words/later.ts'
import { taken } from './denied.ts'
import { descriptorOf } from './internals-moving.ts'
import { callLibc, closeDescriptor, hasLibc } from './libc.ts'
import { AF_UNIX } from './libc-later.ts'

export interface NameOptions {
  /** permissions; default 0660 */
  mode?: number
  /** name or number of a group that this process is in; default: the process's own */
  group?: string | number
}

/** what a socket is bound to: see `SOCKET_NAME_BYTES` of listeners.ts */
const BOUND = /^\.[0-9a-f]{6}$/
/** how long the connections in the queue of a socket without a name are taken */
const QUEUE_MS = 200
/** an application opens its socket for others right after it listens */
const SETTLED_MS = 1000

/** A name to bind beside `path`. libuv removes the name that it has bound when it closes, so that must not be the clients' name. */
export function nameToBind(path: string): string {
  return join(dirname(path), `.${nodeCrypto().randomBytes(3).toString('hex')}`)
}

/** Makes way for a new socket at `path`. Throws EADDRINUSE if a process listens there, or if it is no socket. */
export async function makeWay(path: string): Promise<void> {
  if (lookAt(path)?.isSocket() === false) throw taken('the existing file is not a socket')
  if ((await listensAt(path)) !== null) throw taken()
  rmSync(path, { force: true })
  const old = `.${basename(path)}.`
  for (const name of namesIn(dirname(path)))
    if (name.startsWith(old) && BOUND.test(name.slice(old.length - 1)))
      rmSync(join(dirname(path), name), { force: true })
}

/**
 * Gives the socket that was bound to `bound` the name `path`, and its hidden one. At once: nothing may be told before it has them.
 * Without options the name is as this process has last seen the one that is lost.
 */
export function nameSocket(bound: string, path: string, options: NameOptions = seen.get(path) ?? {}): void {
  const { mode = 0o660, group } = options
  chmodSync(bound, mode)
  if (group !== undefined) giveToGroup(bound, group)
  try {
    linkSync(bound, hiddenName(path, bound))
  } catch {
    // a file system without links: the path is all that there is
  }
  renameSync(bound, path)
  seeLater(path)
}

/** the permissions of each name, which an application may change once it listens */
const seen = new Map<string, NameOptions>()

function seeLater(path: string): void {
  const see = () => {
    const there = lookAt(path)
    const group = there?.gid === process.getegid?.() ? {} : { group: there?.gid ?? 0 }
    if (there?.isSocket() === true) seen.set(path, { mode: there.mode & 0o777, ...group })
  }
  setTimeout(see, SETTLED_MS).unref()
}

/** Whether the socket `fd` has the name `path`, if need be again. Throws EADDRINUSE if another process listens there. */
export async function hasName(path: string, fd: number): Promise<boolean> {
  const bound = addressBy('getsockname', fd)
  if (bound === null || !BOUND.test(basename(bound))) return lookAt(path)?.isSocket() === true
  const hidden = hiddenName(path, bound)
  seeLater(path)
  if (isSame(lookAt(path), lookAt(hidden))) return true
  const there = await listensAt(path)
  if (there !== null && there !== bound && (there !== UNKNOWN || lookAt(hidden) !== null)) throw taken()
  try {
    if (there === null) rmSync(path, { force: true })
    if (there === null) linkSync(hidden, path)
    else linkSync(path, hidden) // somebody has removed that one, or an earlier release had none
    return true
  } catch {
    return there !== null
  }
}

/** Has the server take the connections that wait in the queue of a socket that has lost its name, and closes that socket. */
export async function takeQueue(server: Server, fd: number): Promise<void> {
  const old = createServer({ allowHalfOpen: server instanceof HttpServer }, (socket) =>
    server.emit('connection', socket),
  ).on('error', () => closeDescriptor(fd))
  old.listen({ fd })
  await sleep(QUEUE_MS, undefined, { ref: false })
  old.close()
}

function hiddenName(path: string, bound: string): string {
  return join(dirname(path), `.${basename(path)}${basename(bound)}`)
}

/** somebody listens, and cannot be asked: the queue is full, or the socket is for others */
const UNKNOWN = ''

/** The name that the socket which listens at `path` was bound to; null: nobody listens there. */
async function listensAt(path: string): Promise<string | null> {
  return await new Promise((resolve) => {
    const socket = connect(path, () => {
      resolve(addressBy('getpeername', descriptorOf(socket) ?? -1) ?? UNKNOWN)
      socket.destroy()
    }).once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code === 'ENOENT' || code === 'ECONNREFUSED' ? null : UNKNOWN),
    )
  })
}

/** unix(7): the name that a socket was bound to, which no rename and no link changes; null: it has none, or this Node cannot ask. */
function addressBy(call: 'getsockname' | 'getpeername', fd: number): string | null {
  if (!hasLibc()) return null
  const [address, length] = [Buffer.allocUnsafeSlow(1024).fill(0), Buffer.allocUnsafeSlow(1024)]
  length.writeInt32LE(112, 0) // struct sockaddr_un, and a zero
  if (callLibc(call, fd, address, length) < 0 || address.readUInt16LE(0) !== AF_UNIX) return null
  const name = address.subarray(2, length.readInt32LE(0))
  const end = name.indexOf(0)
  return name.toString('utf8', 0, end < 0 ? name.length : end) || null
}

function lookAt(path: string): Stats | null {
  return lstatSync(path, { throwIfNoEntry: false }) ?? null
}

function isSame(one: Stats | null, other: Stats | null): boolean {
  return one !== null && one.ino === other?.ino && one.dev === other.dev
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return [] // one may bind in a folder that one may not list
  }
}

function giveToGroup(path: string, group: string | number): void {
  const id = /^\d+$/.test(String(group)) ? Number(group) : idOf(String(group))
  if (id === null) throw new Error(`expected a group that exists on this host, got ${JSON.stringify(group)}`)
  try {
    chownSync(path, process.geteuid?.() ?? -1, id)
  } catch (cause) {
    throw new Error(
      `expected a group that this process belongs to, got ${JSON.stringify(group)}: add it to the unit with SupplementaryGroups=`,
      { cause },
    )
  }
}

function idOf(name: string): number | null {
  const line = readFileSync('/etc/group', 'utf8')
    .split('\n')
    .find((one) => one.startsWith(`${name}:`))
  const id = line?.split(':')[2]
  return id === undefined ? null : Number(id)
}
