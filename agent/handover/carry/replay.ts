// The successor's half of carrying. This process's server reads the request that began the connection once more, and the author's
// handler answers it. The head of that answer is swallowed: the client got it long ago.
// Must hold: no byte of this process reaches the client before its head agrees with the predecessor's. If they disagree, a WebSocket
// is closed with 1012, and a stream ends short, which its client notices.

import { Socket } from 'node:net'
import type { Server } from 'node:net'
import type { Arrival, Carries } from './carry.ts'
import type { Entry } from './hand-on.ts'
import { adopt, breakOff } from '../../sockets/internals-moving.ts'
import type { CarryMessage } from '../../words/wire.ts'
import { framingIn, statusIn, whyNotGoneOnWith } from './stream.ts'
import { agreementIn } from './frames.ts'
import { callBack } from './writes.ts'

/** how long an author's handler may take to answer the repeated request */
const ANSWER_MS = 10_000
const HEAD_MAX_BYTES = 64 * 1024
/** of what the predecessor sends before this process's handler has registered the connection */
const LATE_MAX_BYTES = 16 * 1024 * 1024
/** a close frame with 1012, service restart (RFC 6455, 5.5.1; IANA's registry) */
const SERVICE_RESTART = Buffer.from([0x88, 2, 1012 >> 8, 1012 & 255])
const END_OF_HEAD = Buffer.from('\r\n\r\n')

export interface Replay {
  /** null if the connection goes on; else why it was closed */
  answer: Promise<string | null>
  closed: Promise<void>
  /** what the predecessor's author has sent since; null: the author has ended the response */
  late(data: string | Buffer | null): void
  /** ends the connection in a way that its client notices */
  cut(): void
}

/** Continues a connection of the predecessor. `fd` is its descriptor, which belongs to this process from now on. */
export function replay(server: Server, fd: number, message: CarryMessage, carries: Carries): Replay {
  const socket = new Socket({ fd, readable: true, writable: true })
  const { promise, resolve } = Promise.withResolvers<string | null>()
  const refuse = (why: string) => {
    clearTimeout(timer)
    resolve(why)
    if (message.kind === 'stream') endShort(socket, message)
    else socket.end(SERVICE_RESTART)
  }
  const timer = setTimeout(() => {
    stopSwallowing()
    refuse(`its handler did not answer within ${ANSWER_MS / 1000} s`)
  }, ANSWER_MS)
  const stopSwallowing = swallowHead(socket, (head) => {
    const why = disagreement(message, head)
    if (why !== null) return refuse(why)
    clearTimeout(timer)
    resolve(null)
  })
  const closed = new Promise<void>((resolveClosed) => {
    socket.once('close', () => {
      clearTimeout(timer)
      resolve('its client or handler closed it')
      resolveClosed()
    })
  })
  socket.on('error', () => {}) // a client that hangs up now is not an error of the service
  const { late, begins } = makeLate(refuse)
  carries.expect(socket, { state: message.state, begins })
  adopt(server, socket, null)
  socket.unshift(Buffer.concat([Buffer.from(message.request, 'latin1'), Buffer.from(message.unread, 'base64')]))
  return { answer: promise, closed, late, cut: () => refuse('part of its data was lost') }
}

/** Breaks the connection off if its body is framed by the end of the connection: a plain end would make the body seem whole. */
function endShort(socket: Socket, { agreement }: CarryMessage): void {
  if (agreement === 'until closed') breakOff(socket)
  else socket.destroy()
}

function disagreement({ kind, agreement, status }: CarryMessage, head: string): string | null {
  const answered = statusIn(head)
  if (kind === 'stream') {
    const isSame = status === undefined ? answered !== null && answered >= 200 && answered < 300 : answered === status
    if (!isSame) return `its handler responded with ${answered ?? 'nothing'}`
    const framing = framingIn(head)
    if (framing !== agreement) return `expected the body framing "${agreement}", got "${framing}"`
    return whyNotGoneOnWith(head)
  }
  if (answered !== 101) return `its handler responded with ${answered ?? 'nothing'}`
  return agreementIn(head) === agreement ? null : 'a different protocol or extension was negotiated'
}

/** Withholds the head of the answer and passes it to `heard`; what follows is written. Returns a function that ends the withholding. */
function swallowHead(socket: Socket, heard: (head: string) => void): () => void {
  let kept = Buffer.alloc(0)
  let isOver = false
  const stop = () => {
    isOver = true
    for (const own of ['write', 'end'] as const) delete (socket as { write?: unknown; end?: unknown })[own]
  }
  const write = (data: string | Uint8Array, ...rest: unknown[]): boolean => {
    const encoding = typeof rest[0] === 'string' ? (rest[0] as BufferEncoding) : 'utf8'
    kept = Buffer.concat([kept, typeof data === 'string' ? Buffer.from(data, encoding) : data])
    const end = kept.indexOf(END_OF_HEAD)
    callBack(rest)
    if (end < 0 && kept.length < HEAD_MAX_BYTES) return true
    stop()
    heard(kept.toString('latin1', 0, end < 0 ? kept.length : end))
    const behind = kept.subarray(end + END_OF_HEAD.length)
    return end < 0 || socket.destroyed || socket.writableEnded || behind.length === 0 || socket.write(behind)
  }
  const end = (data?: unknown, ...rest: unknown[]): Socket => {
    if (typeof data === 'string' || data instanceof Uint8Array) write(data, ...rest)
    if (!isOver) {
      stop()
      heard('')
    }
    return socket.end()
  }
  socket.write = write
  socket.end = end
  return stop
}

/** Keeps what the predecessor's author sends until this process's author has registered the connection. */
function makeLate(refuse: (why: string) => void): Pick<Replay, 'late'> & Pick<Arrival, 'begins'> {
  const waiting: (string | Buffer | null)[] = []
  let bytes = 0
  let target: Entry | null = null
  return {
    late(data) {
      if (target !== null) return send(target, data)
      waiting.push(data)
      bytes += (data?.length ?? 0) + 64 // overhead of one entry
      if (bytes > LATE_MAX_BYTES) refuse(`more than ${LATE_MAX_BYTES} bytes arrived before its handler was ready`)
    },
    begins(entry) {
      // this process does not count the bytes that the predecessor has sent of the body
      if (entry.response !== null) entry.response.strictContentLength = false
      target = entry
      for (const data of waiting.splice(0)) send(entry, data)
    },
  }
}

function send({ ws, response }: Entry, data: string | Buffer | null): void {
  if (ws !== null && data !== null) ws.send(data)
  // writing to a response that has ended or was destroyed would raise an unhandled error
  if (response === null || response.writableEnded || response.destroyed) return
  if (data === null) response.end()
  else response.write(data)
}
