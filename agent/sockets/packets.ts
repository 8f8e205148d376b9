// Passes descriptors between two processes, which need not be parent and child: a unix SEQPACKET socket, SCM_RIGHTS, through
// node:ffi. A packet arrives whole or not at all. If it cannot be sent now, it is not sent: nothing here waits or polls (unix(7),
// sendmsg(2)).
// Must hold: a received descriptor belongs to the caller at once and to no child; a sent one stays the sender's.

import { callLibc, closeDescriptor, hasLibc } from './libc.ts'
import {
  addressOf,
  AF_UNIX,
  callChecked,
  errno,
  pairOf,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_STREAM,
} from './libc-later.ts'

export interface Packet {
  text: string
  descriptors: readonly number[]
}

export interface Packets {
  /** Returns false, with nothing sent, if the queue is full. Throws if the other end is gone. */
  send(packet: Packet): boolean
  /** Returns null if nothing waits. Throws if a packet arrived torn or the other end is gone. */
  receive(): { text: string; descriptors: number[] } | null
  close(): void
}

/** in one packet: more of them block the event loop of either process longer (100: 24 ms at the 99th percentile, 32: 2 ms) */
export const DESCRIPTORS_MAX = 32
/** of a packet's text; well below the smallest send buffer of a kernel */
export const TEXT_MAX_BYTES = 64 * 1024

const [SOCK_DGRAM, SOCK_SEQPACKET] = [2, 5]
/** struct sockaddr_un */
const ADDRESS_MAX = 110
const [MSG_CTRUNC, MSG_TRUNC, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC] = [0x8, 0x20, 0x40, 0x4000, 0x40000000]
const [SOL_SOCKET, SCM_RIGHTS, SO_PEERCRED] = [1, 1, 17]
const FIONREAD = 0x541bn
const [EAGAIN, EINTR, EMFILE, ENFILE] = [11, 4, 24, 23]
/** struct msghdr and struct cmsghdr on a 64-bit Linux */
const [MSGHDR_BYTES, CMSGHDR_BYTES, FLAGS_AT, CONTROL_LENGTH_AT] = [56, 16, 48, 40]

/**
 * Two ends, the second as a descriptor for another process: close it here as soon as that process has it. Throws if this Node or
 * platform cannot do this.
 */
export function packetPair(): [Packets, number] {
  const [near, far] = pairOf(SOCK_SEQPACKET)
  return [packetsOn(near), far]
}

/** The user at the other end of a connected unix socket, according to the kernel (struct ucred). */
function userAt(fd: number): number {
  const { option, length } = openBuffers()
  length.writeInt32LE(12, 0)
  callChecked('getsockopt', fd, SOL_SOCKET, SO_PEERCRED, option, length)
  return option.readUInt32LE(4)
}

/**
 * A mark of what any process has read from and written to a TCP connection; null for any other socket. If two marks are equal,
 * no process has touched it in between (TCP_INFO, and of the received bytes only those already read).
 */
export function markOf(fd: number): string | null {
  const { option, length } = openBuffers()
  const [IPPROTO_TCP, TCP_INFO] = [6, 11]
  const [RECEIVED_AT, SENT_AT, INFO_BYTES] = [128, 200, 208]
  length.writeInt32LE(option.length, 0)
  if (callLibc('getsockopt', fd, IPPROTO_TCP, TCP_INFO, option, length) < 0) return null
  if (length.readInt32LE(0) < INFO_BYTES) return null // a kernel before 5.5 does not count sent bytes
  const [received, sent] = [option.readBigUInt64LE(RECEIVED_AT), option.readBigUInt64LE(SENT_AT)]
  if (callLibc('ioctl', fd, FIONREAD, length) < 0) return null
  return `${received - BigInt(length.readInt32LE(0))} ${sent}`
}

/** Packets over the socket `fd`. Throws if another user has the other end. */
export function packetsOn(fd: number): Packets {
  const [uid, own] = [userAt(fd), process.geteuid?.() ?? 0]
  if (uid !== own) throw new Error(`expected the process at the other end to run as user ${own}, got user ${uid}`)
  return open(fd)
}

/** The same for any user at the other end. Also over a stream: recvmsg(2) does not read past a message with descriptors. */
export function packetsOfAny(fd: number): Packets {
  return open(fd)
}

/** Whether the other end has sent what no process has read yet (FIONREAD); false if this Node has no node:ffi. */
export function hasUnread(fd: number): boolean {
  if (!hasLibc()) return false
  const { length } = openBuffers()
  return callLibc('ioctl', fd, FIONREAD, length) >= 0 && length.readInt32LE(0) > 0
}

/** The kind of a socket: a listening TCP socket or a UDP socket, of IPv4 or IPv6; null for any other descriptor. */
export function kindOfSocket(fd: number): 'tcp4' | 'tcp6' | 'udp4' | 'udp6' | null {
  const [SO_TYPE, SO_ACCEPTCONN, SO_DOMAIN, AF_INET, AF_INET6] = [3, 30, 39, 2, 10]
  const { option, length } = openBuffers()
  const asked = (name: number) => {
    length.writeInt32LE(4, 0)
    return callLibc('getsockopt', fd, SOL_SOCKET, name, option, length) < 0 ? -1 : option.readInt32LE(0)
  }
  const [type, domain] = [asked(SO_TYPE), asked(SO_DOMAIN)]
  const isTcp = type === SOCK_STREAM && asked(SO_ACCEPTCONN) === 1
  if (![AF_INET, AF_INET6].includes(domain) || !(isTcp || type === SOCK_DGRAM)) return null
  return `${isTcp ? 'tcp' : 'udp'}${domain === AF_INET ? 4 : 6}`
}

/**
 * Receives what any process with write permission sends to the socket `path`, which must not exist yet. Throws if it cannot be
 * made.
 */
export function letterbox(path: string): Packets {
  const fd = callChecked('socket', AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
  try {
    const address = addressAt(path)
    callChecked('bind', fd, address, address.length)
    return open(fd)
  } catch (cause) {
    closeDescriptor(fd)
    throw cause
  }
}

/**
 * Sends one packet, with at most one descriptor, to the reader at `path` (`@` for an abstract name). False if none takes it now.
 */
export function sendLetter(path: string, text: string, descriptor: number | null): boolean {
  const fd = callLibc('socket', AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)
  if (fd < 0) return false
  try {
    return sendOn(fd, { text, descriptors: descriptor === null ? [] : [descriptor] }, addressAt(path)) >= 0
  } finally {
    closeDescriptor(fd)
  }
}

/** Descriptor of a blocking stream to the socket `path`. Throws if no process accepts it. */
export function connectTo(path: string): number {
  const fd = callChecked('socket', AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
  try {
    const address = addressAt(path)
    callChecked('connect', fd, address, address.length)
    return fd
  } catch (cause) {
    closeDescriptor(fd)
    throw cause
  }
}

/** struct sockaddr_un. Throws if the path is too long for one. */
function addressAt(path: string): Buffer {
  const bytes = Buffer.from(path.startsWith('@') ? `\0\0\0${path.slice(1)}` : `\0\0${path}\0`)
  if (bytes.length > ADDRESS_MAX) throw new Error(`expected a path of at most ${ADDRESS_MAX - 3} bytes`)
  const address = Buffer.allocUnsafeSlow(bytes.length) // the kernel gets its address, so it must not be one of Node's pool
  bytes.copy(address)
  address.writeUInt16LE(AF_UNIX)
  return address
}

/** Bytes sent; negative if the kernel refuses. */
function sendOn(fd: number, { text: words, descriptors }: Packet, to: Buffer | null = null): number {
  const { text, control, head, prepare } = openBuffers()
  if (descriptors.length > DESCRIPTORS_MAX) throw new RangeError(`expected at most ${DESCRIPTORS_MAX} descriptors`)
  const bytes = Buffer.byteLength(words)
  if (bytes === 0 || bytes > TEXT_MAX_BYTES) throw new RangeError(`expected 1 to ${TEXT_MAX_BYTES} bytes`)
  text.write(words)
  const length = CMSGHDR_BYTES + descriptors.length * 4
  control.writeBigUInt64LE(BigInt(length), 0)
  control.writeInt32LE(SOL_SOCKET, 8)
  control.writeInt32LE(SCM_RIGHTS, 12)
  for (const [at, one] of descriptors.entries()) control.writeInt32LE(one, CMSGHDR_BYTES + at * 4)
  prepare(bytes, descriptors.length === 0 ? 0 : (length + 7) & ~7, to)
  return callLibc('sendmsg', fd, head, MSG_DONTWAIT | MSG_NOSIGNAL)
}

function open(fd: number): Packets {
  const { text, control, head, prepare } = openBuffers()
  let isOpen = true
  return {
    send: (packet) => {
      if (sendOn(fd, packet) >= 0) return true
      const cause = errno()
      if (cause === EAGAIN || cause === EINTR) return false
      throw new Error(`sendmsg: errno ${cause}`)
    },
    receive: () => {
      prepare(text.length, control.length)
      const got = callLibc('recvmsg', fd, head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
      if (got < 0) {
        const cause = errno()
        if (cause === EAGAIN || cause === EINTR) return null
        throw new Error(
          `recvmsg: errno ${cause}${cause === EMFILE || cause === ENFILE ? ' (too many open files)' : ''}`,
        )
      }
      if (got === 0) throw new Error('recvmsg: the other end is closed')
      const controlBytes = Number(head.readBigUInt64LE(CONTROL_LENGTH_AT))
      const count = controlBytes === 0 ? 0 : (Number(control.readBigUInt64LE(0)) - CMSGHDR_BYTES) / 4
      const descriptors = Array.from({ length: count }, (_, at) => control.readInt32LE(CMSGHDR_BYTES + at * 4))
      if ((head.readInt32LE(FLAGS_AT) & (MSG_CTRUNC | MSG_TRUNC)) !== 0) {
        for (const one of descriptors) closeDescriptor(one)
        throw new Error('recvmsg: a packet arrived incomplete (too many open files?)')
      }
      return { text: text.toString('utf8', 0, got), descriptors }
    },
    close: () => {
      if (isOpen) closeDescriptor(fd)
      isOpen = false
    },
  }
}

interface Buffers {
  text: Buffer
  control: Buffer
  head: Buffer
  option: Buffer
  length: Buffer
  prepare(textBytes: number, controlBytes: number, to?: Buffer | null): void
}

let buffers: Buffers | null = null

/** The buffers that the kernel reads and writes. Shared, since every call is over when it returns. */
function openBuffers(): Buffers {
  if (buffers !== null) return buffers
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch))
    throw new Error('passing sockets between processes is supported only on 64-bit Linux')
  // Never pooled, and larger than what V8 keeps on its own heap: the kernel gets their addresses, and they must not move.
  const [text, control, head, iovec, option, length] = [TEXT_MAX_BYTES, 1024, 1024, 1024, 1024, 1024].map((size) =>
    Buffer.allocUnsafeSlow(size),
  ) as [Buffer, Buffer, Buffer, Buffer, Buffer, Buffer]
  const prepare = (textBytes: number, controlBytes: number, to: Buffer | null = null): void => {
    iovec.writeBigUInt64LE(addressOf(text), 0)
    iovec.writeBigUInt64LE(BigInt(textBytes), 8)
    head.fill(0, 0, MSGHDR_BYTES)
    head.writeBigUInt64LE(addressOf(iovec), 16)
    head.writeBigUInt64LE(1n, 24)
    if (to !== null) {
      head.writeBigUInt64LE(addressOf(to), 0)
      head.writeUInt32LE(to.length, 8)
    }
    if (controlBytes === 0) return
    head.writeBigUInt64LE(addressOf(control), 32)
    head.writeBigUInt64LE(BigInt(controlBytes), CONTROL_LENGTH_AT)
  }
  buffers = { text, control, head, option, length, prepare }
  return buffers
}
