// Two processes call each other, one JSON object a line. One may run as root while an attacker controls the other.
// Must hold: a line is bounded; an answer is data and never code; at root's end no text keeps a control character, which a
// terminal would obey.

import type { Readable, Writable } from 'node:stream'
import { asBatonError, BatonError, type ErrorCode, MEANINGS } from '../../../agent/words.ts'

export type Handlers = Readonly<Record<string, (parameter: unknown) => unknown>>

export interface WorkerChannel {
  /** Asks the other process. Throws what it threw; unexpected if it has ended. */
  call(name: string, parameter: unknown): Promise<unknown>
  /** Sends a message that needs no answer. */
  tell(name: string, parameter: unknown): void
  /** resolves when the other process has ended */
  readonly closed: Promise<void>
  /** the error that rejects a call once the other process has ended; null until then */
  gone(): Error | null
}

interface Ask {
  ask: string
  id: number
  with: unknown
}
interface Answer {
  to: number
  value?: unknown
  error?: unknown
}

export const LINE_MAX_BYTES = 4 * 1024 * 1024
const UNREAD_MAX_BYTES = 2 * LINE_MAX_BYTES
const DEPTH_MAX = 12
const TEXT_MAX = 4000
const ENDED = 'this command’s helper process exited'

/**
 * `clean`: removes control characters from everything that arrives; for root's end. `asksMax`: refuses every question after so
 * many. Gives up the other process if it asks and reads no answers.
 */
export function makeChannel(
  input: Readable,
  output: Writable,
  handlers: Handlers,
  { clean, asksMax = Infinity }: { clean: boolean; asksMax?: number },
): WorkerChannel {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let last = 0
  let asks = 0
  let gone: Error | null = null
  let unheard: unknown = null
  const send = (message: Ask | Answer | { tell: string; with: unknown }) => {
    if (gone !== null || unheard !== null) return
    output.write(`${JSON.stringify(message)}\n`)
    if (output.writableLength > UNREAD_MAX_BYTES)
      input.destroy(new BatonError('unexpected', 'this command’s helper process has stopped reading responses'))
  }
  const receive = async (line: string): Promise<void> => {
    const value = objectFrom(line)
    const message = clean ? (cleaned(value) as typeof value) : value
    if (typeof message['tell'] === 'string') return void (await handlerOf(handlers, message['tell'])(message['with']))
    if (typeof message['ask'] === 'string' && typeof message['id'] === 'number') {
      const may = ++asks <= asksMax
      return send(await answerTo(message as unknown as Ask, handlers, may))
    }
    const { to, value: answer, error } = message as unknown as Answer
    const asked = waiting.get(to)
    waiting.delete(to)
    if (error === undefined || error === null) asked?.resolve(answer)
    else asked?.reject(errorFrom(error))
  }
  const closed = new Promise<void>((resolve) => {
    const end = (cause: Error) => {
      if (gone !== null) return
      gone = cause
      for (const { reject } of waiting.values()) reject(cause)
      waiting.clear()
      resolve()
    }
    const broken = (cause?: unknown) => end(new BatonError('unexpected', ENDED, { cause }))
    // read on after a failed write: the other process may have sent something before it stopped reading
    output.on('error', (cause) => void (unheard ??= cause))
    lines(input, (line) => void receive(line).catch(broken)).then(() => broken(unheard), broken)
  })
  return {
    closed,
    gone: () => gone,
    call(name, parameter) {
      if (gone !== null) return Promise.reject(gone)
      if (unheard !== null) return Promise.reject(new BatonError('unexpected', ENDED, { cause: unheard }))
      const id = ++last
      const asked = Promise.withResolvers<unknown>()
      waiting.set(id, asked)
      send({ ask: name, id, with: parameter })
      return asked.promise
    },
    tell: (name, parameter) => send({ tell: name, with: parameter }),
  }
}

async function answerTo({ ask, id, with: parameter }: Ask, handlers: Handlers, may: boolean): Promise<Answer> {
  try {
    if (!may) throw new BatonError('refused', 'this command made too many requests to its helper process')
    return { to: id, value: (await handlerOf(handlers, ask)(parameter)) ?? null }
  } catch (cause) {
    const { code, message: text, hint, members } = asBatonError(cause, 'unexpected', ask)
    return { to: id, error: { code, message: text, hint, members } }
  }
}

/** Replaces what a terminal would obey: control characters, new lines included, and characters that turn the direction of text. */
export function cleaned(value: unknown, depth = 0): unknown {
  if (depth > DEPTH_MAX) return null
  if (typeof value === 'string') {
    return value.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?')
  }
  if (Array.isArray(value)) return value.map((one) => cleaned(one, depth + 1))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [cleaned(key), cleaned(one, depth + 1)]))
}

async function lines(input: Readable, each: (line: string) => void): Promise<void> {
  let parts: Buffer[] = []
  let size = 0
  for await (const chunk of input as AsyncIterable<Buffer>) {
    for (let rest = chunk; rest.length > 0;) {
      const end = rest.indexOf(0x0a)
      const part = end === -1 ? rest : rest.subarray(0, end)
      size += part.length
      if (size > LINE_MAX_BYTES)
        throw new BatonError('unexpected', `expected a line of at most ${LINE_MAX_BYTES} bytes`)
      parts.push(part)
      if (end === -1) break
      each(Buffer.concat(parts).toString('utf8'))
      ;[parts, size, rest] = [[], 0, rest.subarray(end + 1)]
    }
  }
}

function objectFrom(line: string): Record<string, unknown> {
  const value: unknown = JSON.parse(line)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new BatonError('unexpected', "the worker's answer is not a JSON object")
}

function handlerOf(handlers: Handlers, name: string): (parameter: unknown) => unknown {
  const handler = Object.hasOwn(handlers, name) ? handlers[name] : undefined
  if (handler !== undefined) return handler
  throw new BatonError(
    'unexpected',
    `unknown request ${JSON.stringify(name.slice(0, 40))} from this command’s helper process`,
  )
}

/** The error that the other process sent. An unknown code becomes `unexpected`; members that are not scalars are dropped. */
function errorFrom(said: unknown): BatonError {
  const { code, message, hint, members } = (typeof said === 'object' ? said : {}) as Record<string, unknown>
  const known = typeof code === 'string' && Object.hasOwn(MEANINGS, code) ? (code as ErrorCode) : 'unexpected'
  const scalars = typeof members === 'object' && members !== null ? Object.entries(members).filter(isScalar) : []
  return new BatonError(known, textFrom(message) ?? 'this command’s helper process failed without an error message', {
    ...(textFrom(hint) === null ? {} : { hint: textFrom(hint) as string }),
    members: Object.fromEntries(scalars),
  })
}

function textFrom(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value.slice(0, TEXT_MAX) : null
}

function isScalar(entry: [string, unknown]): entry is [string, string | number | boolean | null] {
  const [, value] = entry
  return value === null || ['string', 'number', 'boolean'].includes(typeof value)
}
