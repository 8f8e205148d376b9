// One request to a server on this host: by a command to its service, by a trial to what it has started. The server may speak HTTP/1.1 or
// HTTP/2, in the clear or over TLS; which of them is seen by asking, so that nobody has to say it and no two places can differ.
// Must hold: the application gets a request at most once. No certificate is checked: nobody is between two processes of one host.

import type * as Http2 from 'node:http2'
import type * as Net from 'node:net'
import type { Readable } from 'node:stream'
import type { TLSSocket } from 'node:tls'

export type LocalPlace = { host: string; port: number } | { path: string }

/** `h2c` is HTTP/2 in the clear, `https` HTTP/1.1 over TLS */
export type Protocol = 'http' | 'https' | 'h2' | 'h2c'

export interface LocalRequest {
  method?: string
  /** path and query */
  path: string
  headers?: Record<string, string>
  body?: string
  signal: AbortSignal
  /** whether TLS is tried first; default: what was seen there last, else no */
  tls?: boolean
  /** called with the open connection before the request is sent; rejects if the server must not have it */
  vet?: (socket: Net.Socket) => Promise<void>
}

export interface LocalAnswer extends Disposable {
  status: number
  protocol: Protocol
  /** the end of the scope breaks off what has not been read */
  body: Readable
}

const http = () => process.getBuiltinModule('node:http')
const http2 = () => process.getBuiltinModule('node:http2')
const net = () => process.getBuiltinModule('node:net')
const tls = () => process.getBuiltinModule('node:tls')

/** what to begin with: over TLS, the client and the server agree on the rest (RFC 7301) */
type Layer = 'http' | 'tls' | 'h2c'

/** what was seen to be spoken at a place, for as long as this process lives */
const seen = new Map<string, Layer>()

/** Resolves once the head of the answer is there. Rejects without one, and when the signal aborts. */
export async function askHere(place: LocalPlace, request: LocalRequest): Promise<LocalAnswer> {
  const key = JSON.stringify(place)
  const first = seen.get(key) ?? (request.tls === true ? 'tls' : 'http')
  try {
    return await ask(first, place, request)
  } catch (cause) {
    if (request.signal.aborted || !isAnotherProtocol(cause)) throw cause
    const spoken = await spokenAt(place, first, request.signal)
    if (spoken === null || spoken === first) throw cause
    seen.set(key, spoken)
    return await ask(spoken, place, request)
  }
}

/** `http` or `https`: how a person's browser reaches it. */
export function schemeOf(protocol: Protocol): 'http' | 'https' {
  return protocol === 'https' || protocol === 'h2' ? 'https' : 'http'
}

/** A server that is asked in a protocol that it does not speak closes the connection, answers in its own, or sends an alert. */
function isAnotherProtocol(cause: unknown): boolean {
  return /^(ECONNRESET|EPIPE|EPROTO|HPE_|ERR_SSL_|ERR_HTTP2_)/.test(String((cause as NodeJS.ErrnoException).code))
}

/** Asks nothing of the application. Null: none of those that are known. */
async function spokenAt(place: LocalPlace, not: Layer, signal: AbortSignal): Promise<Layer | null> {
  if (await opens(secureTo(place), 'secureConnect', signal)) return 'tls'
  const session = http2().connect('http://localhost', { createConnection: () => net().connect(place) })
  if (await opens(session, 'remoteSettings', signal)) return 'h2c'
  return not === 'http' ? null : 'http'
}

function secureTo(place: LocalPlace): TLSSocket {
  return tls().connect({ ...place, ALPNProtocols: ['h2', 'http/1.1'], rejectUnauthorized: false })
}

type Connection = Net.Socket | Http2.ClientHttp2Session

async function opens(one: Connection, event: string, signal: AbortSignal): Promise<boolean> {
  const isOpen = await opened(one, event, signal).then(
    () => true,
    () => false,
  )
  one.destroy()
  return isOpen
}

async function opened(one: Connection, event: string, signal: AbortSignal): Promise<void> {
  const leave = () => void one.destroy(new Error('no answer in time', { cause: signal.reason }))
  signal.addEventListener('abort', leave, { once: true })
  await new Promise<void>((resolve, reject) => {
    one.once(event, resolve)
    one.once('close', reject)
    one.on('error', reject)
  }).finally(() => signal.removeEventListener('abort', leave))
}

async function ask(layer: Layer, place: LocalPlace, request: LocalRequest): Promise<LocalAnswer> {
  const isSecure = layer === 'tls'
  const socket = isSecure ? secureTo(place) : net().connect(place)
  try {
    await opened(socket, isSecure ? 'secureConnect' : 'connect', request.signal)
    await request.vet?.(socket)
    // a request on it would wait for ever, whatever its signal says
    if (socket.destroyed) throw socket.errored ?? new Error('it was closed')
  } catch (cause) {
    socket.destroy()
    throw cause
  }
  if (layer === 'h2c') return await askHttp2({ protocol: layer, place, socket }, request)
  if (layer === 'http') return await askHttp1({ protocol: layer, place, socket }, request)
  return (socket as TLSSocket).alpnProtocol === 'h2'
    ? await askHttp2({ protocol: 'h2', place, socket }, request)
    : await askHttp1({ protocol: 'https', place, socket }, request)
}

interface Way {
  protocol: Protocol
  place: LocalPlace
  socket: Net.Socket
}

function askHttp1({ protocol, place, socket }: Way, request: LocalRequest): Promise<LocalAnswer> {
  const { method = 'GET', path, body, signal } = request
  const headers = { host: hostOf(place), connection: 'close', ...request.headers }
  const options = { method, path, headers, signal, createConnection: () => socket }
  return new Promise((resolve, reject) => {
    const asked = http().request(options, (answer) => {
      answer.on('error', () => {}) // whoever reads it is told
      const end = () => void answer.destroy()
      resolve({ status: answer.statusCode ?? 0, protocol, body: answer, [Symbol.dispose]: end })
    })
    asked.on('error', reject)
    asked.end(body)
  })
}

function askHttp2({ protocol, place, socket }: Way, request: LocalRequest): Promise<LocalAnswer> {
  const { method = 'GET', path, headers, body, signal } = request
  const session = http2().connect(`${schemeOf(protocol)}://localhost`, { createConnection: () => socket })
  return new Promise((resolve, reject) => {
    const fail = (cause: unknown) => {
      session.destroy()
      reject(cause)
    }
    session.on('error', fail)
    const asked = session.request(
      { ...headers, ':authority': hostOf(place), ':method': method, ':path': path },
      { signal },
    )
    asked.on('error', fail)
    asked.once('close', () => fail(Object.assign(new Error('no answer'), { code: 'ECONNRESET' })))
    asked.once('response', ({ ':status': status = 0 }) =>
      resolve({ status, protocol, body: asked, [Symbol.dispose]: () => session.destroy() }),
    )
    asked.end(body)
  })
}

/** For the request: some applications answer only to a name that they know. */
function hostOf(place: LocalPlace): string {
  if ('path' in place) return 'localhost'
  return `${place.host.includes(':') ? `[${place.host}]` : place.host}:${place.port}`
}
