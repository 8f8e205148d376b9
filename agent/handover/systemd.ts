// What systemd must be told: that the service is ready, and which process is the main one. Never STOPPING=1: since systemd
// v259 it is final, and a predecessor that drains is not stopping. Protocol: sd_notify(3).

import { execFile } from 'node:child_process'
import { openLibc } from './ffi.ts'

type Send = (socketPath: string, text: string) => boolean

let sender: Send | null | undefined

/** Sends one notification where a supervisor listens for it; does nothing elsewhere. Never throws. */
export async function notifySystemd(lines: string[]): Promise<void> {
  const path = process.env['NOTIFY_SOCKET']
  if (path === undefined || path === '') return
  const text = lines.join('\n')
  if (loadSender()?.(path, text) === true) return
  // The fallback is a process of its own: it needs NotifyAccess=all, or systemd ignores it for a service that is not root.
  await new Promise<void>((resolve) => {
    execFile('systemd-notify', lines, { timeout: 5000 }, () => resolve())
  })
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

/** One datagram over AF_UNIX through node:ffi; node:dgram has no unix sockets. */
function makeSender(): Send {
  const { socket, sendto, close } = openLibc({
    socket: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
    sendto: { arguments: ['i32', 'buffer', 'u64', 'i32', 'buffer', 'u32'], return: 'i64' },
    close: { arguments: ['i32'], return: 'i32' },
  })
  if (socket === undefined || sendto === undefined || close === undefined)
    throw new Error('no sockets through node:ffi')
  const [AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC, MSG_NOSIGNAL] = [1, 2, 0o2000000, 0x4000]
  return (path, text) => {
    const fd = Number(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0))
    if (fd < 0) return false
    try {
      const body = Buffer.from(text)
      const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`)
      const family = Buffer.alloc(2)
      family.writeUInt16LE(AF_UNIX)
      const address = Buffer.concat([family, name])
      return Number(sendto(fd, body, BigInt(body.length), MSG_NOSIGNAL, address, address.length)) === body.length
    } finally {
      close(fd)
    }
  }
}
