// What the service manager must be told: that the service is ready, which process is the main one, and which listening sockets
// it is to hold while no process lives. Never STOPPING=1: since systemd v259 it is final, and a predecessor that drains is not
// stopping. Protocol: sd_notify(3).

import { execFile } from 'node:child_process'
import { addressOf, openLibc } from './libc.ts'

type Send = (socketPath: string, text: string, descriptor: number | null) => boolean

let sender: Send | null | undefined

/** Sends one notification where a supervisor listens for it; does nothing elsewhere. Never throws. */
export async function notifySystemd(lines: string[]): Promise<void> {
  const path = process.env['NOTIFY_SOCKET']
  if (path === undefined || path === '') return
  if (loadSender()?.(path, lines.join('\n'), null) === true) return
  // The fallback is a process of its own: it needs NotifyAccess=all, or systemd ignores it for a service that is not root.
  await new Promise<void>((resolve) => {
    execFile('systemd-notify', lines, { timeout: 5000 }, () => resolve())
  })
}

/** Gives the manager a descriptor with the notification: it keeps one of its own. False where nobody takes it. Never throws. */
export function notifyWith(lines: string[], descriptor: number): boolean {
  const path = process.env['NOTIFY_SOCKET']
  if (path === undefined || path === '') return false
  return loadSender()?.(path, lines.join('\n'), descriptor) === true
}

function loadSender(): Send | null {
  if (sender !== undefined) return sender
  try {
    sender = process.platform === 'linux' ? makeSender() : null
  } catch {
    sender = null
  }
  return sender
}

const [AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC] = [1, 2, 0o2000000]
/** a manager that does not read must not stop the service */
const [MSG_DONTWAIT, MSG_NOSIGNAL] = [0x40, 0x4000]
const [SOL_SOCKET, SCM_RIGHTS] = [1, 1]

/** One datagram over AF_UNIX through node:ffi; node:dgram has no unix sockets. */
function makeSender(): Send {
  const { socket, sendmsg, close } = openLibc({
    socket: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
    sendmsg: { arguments: ['i32', 'buffer', 'i32'], return: 'i64' },
    close: { arguments: ['i32'], return: 'i32' },
  })
  if (socket === undefined || sendmsg === undefined || close === undefined)
    throw new Error('no sockets through node:ffi')
  return (path, text, descriptor) => {
    const fd = Number(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0))
    if (fd < 0) return false
    try {
      const body = Buffer.from(text)
      const { head, parts } = messageOf(path, body, descriptor)
      return Number(sendmsg(fd, head, MSG_DONTWAIT | MSG_NOSIGNAL)) === body.length && parts.length > 0
    } finally {
      close(fd)
    }
  }
}

interface Message {
  head: Buffer
  /** what it points to: as long as this is held, it is not collected */
  parts: readonly Buffer[]
}

/** struct msghdr of a 64-bit Linux: name, its length, one iovec, control with SCM_RIGHTS (cmsg(3)). */
function messageOf(path: string, text: Buffer, descriptor: number | null): Message {
  const address = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`)
  const name = Buffer.allocUnsafeSlow(2 + address.length)
  name.writeUInt16LE(AF_UNIX)
  address.copy(name, 2)
  const body = Buffer.allocUnsafeSlow(text.length)
  text.copy(body)
  const iovec = Buffer.allocUnsafeSlow(16)
  iovec.writeBigUInt64LE(addressOf(body), 0)
  iovec.writeBigUInt64LE(BigInt(body.length), 8)
  const control = Buffer.allocUnsafeSlow(24).fill(0)
  control.writeBigUInt64LE(20n, 0) // a header of 16 and one descriptor of 4
  control.writeInt32LE(SOL_SOCKET, 8)
  control.writeInt32LE(SCM_RIGHTS, 12)
  control.writeInt32LE(descriptor ?? -1, 16)
  const head = Buffer.allocUnsafeSlow(56).fill(0)
  head.writeBigUInt64LE(addressOf(name), 0)
  head.writeUInt32LE(name.length, 8)
  head.writeBigUInt64LE(addressOf(iovec), 16)
  head.writeBigUInt64LE(1n, 24)
  if (descriptor !== null) {
    head.writeBigUInt64LE(addressOf(control), 32)
    head.writeBigUInt64LE(BigInt(control.length), 40)
  }
  return { head, parts: [name, body, iovec, control] }
}
