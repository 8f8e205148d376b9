// A server of `node:http2` whose author listens to `stream` and not to `request`. For such a server Node makes no request and no response,
// which is what the agent answers. From here on it makes them, and what is not the agent's goes on to the author as the stream it was.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2Server, Http2ServerRequest, ServerHttp2Stream } from 'node:http2'
import type { Server } from 'node:net'
import { socketPair } from '../sockets/libc-later.ts'

type Heard = (this: Server, ...args: unknown[]) => void

/** Does nothing for any other server. The agent answers in `emit`, before the listener that this adds. */
export function takeStreams(server: Server): void {
  const authors = server.listeners('stream') as Heard[]
  if (authors.length === 0 || server.listenerCount('request') > 0) return
  const flags = new WeakMap<object, unknown>()
  server.removeAllListeners('stream')
  server.on('stream', (stream: object, _headers: unknown, given: unknown) => void flags.set(stream, given))
  const toAuthors: Heard = (...args) => {
    for (const author of authors) Reflect.apply(author, server, args)
  }
  server.on('request', (request: Http2ServerRequest | IncomingMessage, response: unknown) => {
    if (!('stream' in request)) return answerAsStream(toAuthors, request, response as ServerResponse)
    const { stream, headers, rawHeaders } = request
    Reflect.apply(toAuthors, server, [stream, headers, flags.get(stream), rawHeaders])
  })
}

/** A request of HTTP/1.1, which only another process of a handover makes: the author gets it as a stream, over a connection to itself. */
function answerAsStream(toAuthors: Heard, { url = '/' }: IncomingMessage, response: ServerResponse): void {
  const http2 = process.getBuiltinModule('node:http2')
  const [near, far] = socketPair()
  const inner: Http2Server = http2.createServer()
  inner.on('stream', (...args: [ServerHttp2Stream, ...unknown[]]) => Reflect.apply(toAuthors, inner, args))
  inner.emit('connection', far)
  const session = http2.connect('http://localhost', { createConnection: () => near })
  const end = () => {
    session.destroy()
    far.destroy()
  }
  session.on('error', () => response.destroy())
  const asked = session.request({ ':path': url })
  asked.on('error', () => response.destroy())
  asked.once('response', ({ ':status': status = 0 }) => {
    response.writeHead(status)
    asked.pipe(response)
  })
  response.once('close', end)
}
