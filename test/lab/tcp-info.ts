// The kernel's byte counts of one TCP connection: an oracle that no code of this repository can fool. Linux, node:ffi.

import type { Socket } from 'node:net'
import { callLibc } from '../../agent/sockets/libc.ts'

export interface TcpBytes {
  /** bytes received from the peer, and how many of them wait to be read */
  received: number
  waiting: number
  /** bytes that the peer's kernel has acknowledged */
  acknowledged: number
}

const [IPPROTO_TCP, TCP_INFO, FIONREAD] = [6, 11, 0x541bn]
/** offsets in struct tcp_info (linux/tcp.h) */
const [ACKNOWLEDGED_AT, RECEIVED_AT] = [120, 128]

let opened: ((fd: number) => TcpBytes) | null = null

export function tcpBytesOf(socket: Socket): TcpBytes {
  return (opened ??= open())((socket as unknown as { _handle: { fd: number } })._handle.fd)
}

function open(): (fd: number) => TcpBytes {
  const [info, length] = [Buffer.allocUnsafeSlow(1024), Buffer.allocUnsafeSlow(1024)]
  return (fd) => {
    length.writeInt32LE(info.length)
    const got = callLibc('getsockopt', fd, IPPROTO_TCP, TCP_INFO, info, length)
    if (got !== 0 || length.readInt32LE() < RECEIVED_AT + 8) throw new Error('the kernel tells no TCP_INFO')
    if (callLibc('ioctl', fd, FIONREAD, length) !== 0) throw new Error('ioctl FIONREAD')
    return {
      received: Number(info.readBigUInt64LE(RECEIVED_AT)),
      waiting: length.readInt32LE(),
      acknowledged: Number(info.readBigUInt64LE(ACKNOWLEDGED_AT)),
    }
  }
}
