// The connection to the engine: HTTP on its unix socket, repeated questions, and whether the engine was away meanwhile.
// Must hold: an answer that is not a success throws with the engine's message; a lost connection throws a different error
// (`isUnreachable`), so that the caller can look again when the engine is back.

import { stat } from 'node:fs/promises'
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, isObject, parsedJson, reasonOf } from '../../../agent/words.ts'
import { tellsOfFullDisk } from '../../lib/refusal.ts'

export interface CallOptions {
  body?: unknown
  /** instead of `body`: a tar */
  upload?: Readable
  credentials?: string | null
  /** for this status, the result is null */
  absent?: number
  timeoutMs?: number
  signal?: AbortSignal
}

const AWAKE_TIMEOUT_MS = 60_000
const ANSWER_TIMEOUT_MS = 60_000
/** a container decides how many paths of it have changed, and with them how long that answer is */
const ANSWER_MAX_BYTES = 256 * 1024 ** 2
const REQUEST_LOST = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'])

export type Connection = ReturnType<typeof openConnection>

/** `prefix`: `/v1.41` */
export function openConnection(socketPath: string, prefix: string) {
  const events = watchEvents(socketPath, prefix)

  /** The answer as a stream. Throws if its status is not a success. */
  const open = async (method: string, path: string, options: CallOptions = {}): Promise<IncomingMessage> => {
    events.watch()
    const response = await send(socketPath, method, `${prefix}${path}`, options)
    const status = response.statusCode ?? 0
    if (status < 200 || status > 399) throw refusal(method, path, status, await textOf(response))
    return response
  }
  /** The whole answer as JSON; null if it is empty. After a lost connection the act may have been done or not. */
  const call = async (method: string, path: string, options: CallOptions = {}): Promise<unknown> => {
    try {
      const text = await textOf(await open(method, path, options))
      return text.trim() === '' ? null : JSON.parse(text) // podman ends an empty answer with a line end
    } catch (error) {
      if (options.absent !== undefined && engineStatusOf(error) === options.absent) return null
      throw error
    }
  }
  /** Resolves when the engine answers again. Throws BatonError unsupported_host (`isAway`) after `timeoutMs`, or if it never will. */
  const awake = async (timeoutMs = AWAKE_TIMEOUT_MS): Promise<void> => {
    for (const deadline = performance.now() + timeoutMs; ; await sleep(100)) {
      try {
        const response = await send(socketPath, 'GET', '/_ping', { timeoutMs: 2000 })
        const said = (await textOf(response)).trim().slice(0, 200)
        if (response.statusCode === 200) return
        throw new Error(`GET /_ping returned ${response.statusCode ?? 0}: ${said}`)
      } catch (cause) {
        if (performance.now() <= deadline && !(await isReplaced(socketPath))) continue
        const message = `the engine at ${socketPath} is not available: ${reasonOf(cause)}`
        throw new BatonError('unsupported_host', message, { cause, members: { engine: 'away' } })
      }
    }
  }
  /** A GET that is repeated when the engine is back. */
  const ask = async (path: string, options: CallOptions = {}): Promise<unknown> => {
    for (const deadline = performance.now() + AWAKE_TIMEOUT_MS; ; await awake()) {
      try {
        return await call('GET', path, options)
      } catch (error) {
        const passing = isUnreachable(error) || engineStatusOf(error) === 503
        if (!passing || performance.now() > deadline) throw error
      }
    }
  }
  return { call, ask, open, awake, epoch: events.epoch, close: events.close }
}

/**
 * Whether an engine that was started anew has put another socket in this one's place, in the folder that it was mounted from: this
 * one never answers again. Under live-restore, containers outlive their engine's socket.
 */
export async function isReplaced(socketPath: string): Promise<boolean> {
  return await stat(socketPath).then(
    ({ nlink }) => nlink === 0,
    () => false,
  )
}

/** Whether the engine went away rather than refused. */
export function isUnreachable(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if ('code' in at && typeof at.code === 'string' && REQUEST_LOST.has(at.code)) return true
  }
  return false
}

/** Whether the engine is away: then it cannot say whether a service runs. */
export function isAway(error: unknown): boolean {
  return isUnreachable(error) || (error instanceof BatonError && error.members['engine'] === 'away')
}

/** HTTP status of the engine's refusal; 0 if the error is no refusal. */
export function engineStatusOf(error: unknown): number {
  return error instanceof BatonError ? Number(error.members['status'] ?? 0) : 0
}

/** The answer of an engine whose version is not known yet. */
export async function rawJson(socketPath: string, path: string): Promise<unknown> {
  const response = await send(socketPath, 'GET', path, { timeoutMs: 10_000 })
  const text = await textOf(response)
  if (response.statusCode !== 200) throw new Error(`GET ${path}: ${response.statusCode}: ${text.slice(0, 200)}`)
  return JSON.parse(text)
}

/** Null if there are more than `maxBytes`. */
export async function bytesOf(response: IncomingMessage, maxBytes: number): Promise<Buffer | null> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/**
 * Keeps a stream of events open that ends only when the engine does: the only sign of a restart between two requests. `epoch` goes up
 * each time contact is lost: a container that ran before may not run after.
 */
function watchEvents(socketPath: string, prefix: string) {
  let epoch = 0
  let stream: ClientRequest | null = null
  const watch = (): void => {
    if (stream !== null) return
    const filters = encodeURIComponent(JSON.stringify({ type: ['daemon'] }))
    const own = httpRequest({ socketPath, path: `${prefix}/events?filters=${filters}`, agent: false })
    stream = own
    const lost = (): void => {
      if (stream !== own) return
      stream = null
      epoch++
    }
    own.on('socket', (socket) => socket.unref())
    own.on('response', (response) => response.resume().on('close', lost).on('error', lost))
    own.on('error', lost)
    own.end()
  }
  const close = (): void => {
    const own = stream
    stream = null
    own?.destroy()
  }
  return { watch, close, epoch: () => epoch }
}

function send(socketPath: string, method: string, path: string, options: CallOptions): Promise<IncomingMessage> {
  const body = options.body === undefined ? null : JSON.stringify(options.body)
  const timeout = options.timeoutMs ?? ANSWER_TIMEOUT_MS
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      socketPath,
      method,
      path,
      agent: false,
      timeout,
      headers: {
        host: 'engine',
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
        ...(options.upload === undefined ? {} : { 'content-type': 'application/x-tar' }),
        ...(options.credentials ? { 'x-registry-auth': options.credentials } : {}),
      },
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    })
    request.on('timeout', () =>
      request.destroy(new Error(`no answer from the engine for ${timeout} ms: ${method} ${path}`)),
    )
    request.on('error', reject)
    request.on('response', resolve)
    if (options.upload === undefined) request.end(body ?? undefined)
    else pipeline(options.upload, request).catch(reject)
  })
}

async function textOf(response: IncomingMessage): Promise<string> {
  const bytes = await bytesOf(response, ANSWER_MAX_BYTES)
  if (bytes !== null) return bytes.toString()
  throw new BatonError('unexpected', `expected at most ${ANSWER_MAX_BYTES} bytes from the engine, got more`)
}

function refusal(method: string, path: string, status: number, text: string): BatonError {
  const told = parsedJson(text)
  const message = isObject(told) ? String(told['message']) : text.trim()
  const said = `the engine returned ${status} for ${method} ${path.split('?')[0]}${message && `: ${message.slice(0, 500)}`}`
  if (!tellsOfFullDisk(message)) return new BatonError('unexpected', said, { members: { status } })
  return new BatonError('refused', said, {
    members: { status },
    hint: 'free up disk space where the container engine keeps its data',
  })
}

/** Lines of an answer that goes on. Not by `readline`: a stream that is cut off after its last line was read would end this process. */
export async function* linesIn(response: IncomingMessage): AsyncGenerator<string> {
  response.setEncoding('utf8')
  let rest = ''
  for await (const piece of response as AsyncIterable<string>) {
    const lines = (rest + piece).split(/\r?\n/)
    rest = lines.pop() ?? ''
    yield* lines
  }
  if (rest !== '') yield rest
}
