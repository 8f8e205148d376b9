// Requests from one process of a handover to the other, or to itself, over connections that have no name: no other process can make
// them, and they leave nothing on the disk. They reach the author's own handler before any client's request does.

import { createServer, request, type Server } from 'node:http'
import type { Socket } from 'node:net'
import { socketPair } from '../sockets/libc-later.ts'
import type { Listener } from '../sockets/listeners.ts'
import { PROBE_PATH, type ProbeAnswer } from '../words/wire.ts'

const BODY_MAX = 65_536

export interface PrivateAnswer {
  status: number
  body: string
}

/** A server for requests over a socket pair (from `ask`). The author's handler answers, except PROBE_PATH, which names this process. */
export function privateServer(listeners: Listener[], own: Omit<ProbeAnswer, 'pid'>): Server {
  return createServer((asked, response) => {
    if (asked.url !== PROBE_PATH) {
      const real = listeners.find(({ movable }) => movable) ?? listeners.find(({ isHttp }) => isHttp)
      real?.server.emit('request', asked, response)
      return
    }
    const { service, tag, healthPath } = own
    const answer: ProbeAnswer = { service, tag, pid: process.pid, healthPath }
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify(answer))
  })
}

/** Makes one request to the process that gets the far end of a pair. Rejects if `give` returns false or no answer comes in time. */
export async function ask(give: (far: Socket) => boolean, path: string, timeoutMs: number): Promise<PrivateAnswer> {
  const [near, far] = socketPair()
  const late = AbortSignal.timeout(timeoutMs)
  try {
    if (!give(far)) throw new Error('it cannot accept requests')
    return await exchange(near, path, late)
  } catch (cause) {
    if (late.aborted) throw new Error(`no answer from ${path} within ${timeoutMs} ms`, { cause })
    throw cause
  } finally {
    near.destroy()
    far.destroy()
  }
}

function exchange(near: Socket, path: string, signal: AbortSignal): Promise<PrivateAnswer> {
  return new Promise((resolve, reject) => {
    // no `http.Agent`: the first one in a process compiles code for TLS names, which costs 7 ms here
    const asked = request({ path, createConnection: () => near, signal }, (response) => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => {
        if (body.length < BODY_MAX) body += part
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }))
      response.on('error', reject)
    })
    asked.on('error', reject)
    asked.end()
  })
}
