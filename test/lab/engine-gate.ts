// A proxy between a deployment and the engine, on its own socket. It holds back one chosen change during the switch, so that the
// power can fail right there. Only `release` sends a held request on; without it, the sender must be gone before `close`.

import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http'
import { rm } from 'node:fs/promises'
import type { Socket } from 'node:net'

export interface EngineGate {
  socketPath: string
  /** the switch's changes that have arrived, as `rename`, `stop`, `remove`, … */
  readonly changes: readonly string[]
  /** resolves when the chosen change has arrived and is held */
  held: Promise<void>
  /** From now on holds nothing more; a held request stays unanswered. */
  open(): void
  /** Sends the held request on, and holds nothing more. */
  release(): void
  close(): Promise<void>
}

/**
 * Counts changes from the start of the container that does the switch, or from the first rename, with which a switch begins: where a trial
 * comes before, it starts a container too. `holdAt`: which one to hold, from 1; 0 holds none.
 */
export async function engineGate(
  engineSocket: string,
  socketPath: string,
  holdAt: number,
  from: 'start' | 'rename' = 'start',
): Promise<EngineGate> {
  const changes: string[] = []
  const { promise: held, resolve } = Promise.withResolvers<void>()
  let isSwitching = false
  let isOpen = false
  const sockets = new Set<Socket>()
  const isChange = ({ method = '', url = '' }: IncomingMessage): boolean =>
    method === 'DELETE' ||
    (method === 'POST' && /\/(start|stop|rename|update|tag|create)(\?|$)/.test(url) && !/\/exec\//.test(url))

  const pass = (request: IncomingMessage, response: ServerResponse): void => {
    const { method, url, headers } = request
    const onward = httpRequest({ socketPath: engineSocket, method, path: url, headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.on('error', () => response.destroy())
      answer.on('close', () => answer.complete || response.destroy())
      answer.pipe(response)
      response.flushHeaders()
    })
    onward.on('error', () => response.destroy())
    response.on('close', () => onward.destroy())
    request.pipe(onward)
  }
  let sendOn = (): void => {}
  const server = createServer((request, response) => {
    const { url = '' } = request
    if (isChange(request)) {
      const isFirst = !isSwitching && /\/(start|rename)(\?|$)/.exec(url)?.[1] === from
      isSwitching ||= isFirst
      // without a trial the deployment itself starts only the container that does the switch
      if (isSwitching && !(isFirst && from === 'start') && !isOpen) {
        changes.push(request.method === 'DELETE' ? 'remove' : (/\/(\w+)(?:\?.*)?$/.exec(url)?.[1] ?? ''))
        if (changes.length === holdAt) {
          sendOn = () => pass(request, response)
          return resolve()
        }
      }
    }
    pass(request, response)
  })
  server.keepAliveTimeout = 0 // an engine closes no connection that waits for the next request
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((done) => server.listen(socketPath, done))
  return {
    socketPath,
    changes,
    held,
    open: () => void (isOpen = true),
    release() {
      isOpen = true
      sendOn()
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((done) => server.close(done))
      await rm(socketPath, { force: true })
    },
  }
}
