// A WebSocket echo on a node:http server, made of `ws` as an author's would be: every Node peer of the benchmark has the same.

import type { IncomingMessage, Server } from 'node:http'
import { type WebSocket, WebSocketServer } from '../lab/ws.ts'

export interface Echo {
  /** Says goodbye (1012, service restart) on every connection and ends it. */
  drain(): void
}

const SERVICE_RESTART = 1012

/** `opened` hears of each connection before its first message. */
export function addEcho(server: Server, opened?: (request: IncomingMessage, ws: WebSocket) => void): Echo {
  const wss = new WebSocketServer({ server })
  wss.on('connection', (ws: WebSocket, request: IncomingMessage) => {
    opened?.(request, ws)
    ws.on('error', () => ws.terminate())
    ws.on('message', (data: Buffer, isBinary: boolean) => ws.send(data, { binary: isBinary }))
  })
  return {
    drain() {
      for (const ws of wss.clients) ws.close(SERVICE_RESTART)
    },
  }
}
