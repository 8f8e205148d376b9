// A WebSocket echo on a node:http server, for the benchmark: just enough of RFC 6455 for small text frames.

import { createHash } from 'node:crypto'
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

export interface Echo {
  /** Says goodbye (1012, service restart) on every connection and ends it. */
  drain(): void
}

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const SERVICE_RESTART = Buffer.from([0x88, 0x02, 0x03, 0xf4])

export function addEcho(server: Server): Echo {
  const open = new Set<Socket>()
  server.on('upgrade', (request, stream) => {
    const socket = stream as Socket
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}${GUID}`).digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
    open.add(socket)
    let pending: Buffer = Buffer.alloc(0)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => open.delete(socket))
    socket.on('data', (bytes: Buffer) => {
      if (socket.writableEnded) return // after a goodbye nothing is answered, only read
      pending = Buffer.concat([pending, bytes])
      while (pending.length >= 6) {
        const length = (pending[1] ?? 0) & 0x7f // the load sends short frames only
        if (pending.length < 6 + length) break
        answer(socket, pending.subarray(0, 6 + length))
        pending = pending.subarray(6 + length)
      }
    })
  })
  return {
    drain() {
      for (const socket of open) socket.end(SERVICE_RESTART)
    },
  }
}

function answer(socket: Socket, frame: Buffer): void {
  const opcode = (frame[0] ?? 0) & 0x0f
  if (opcode === 8) return void socket.end()
  if (opcode !== 1) return
  const mask = frame.subarray(2, 6)
  const payload = Buffer.from(frame.subarray(6).map((byte, i) => byte ^ (mask[i % 4] ?? 0)))
  socket.write(Buffer.concat([Buffer.from([0x81, payload.length]), payload]))
}
