// Reads one HTTP/1.1 response, or WebSocket frames, from the bytes of a raw socket. For clients that must see everything
// that a server does wrong: it forgives nothing and repairs nothing.

export type Reading = 'incomplete' | 'complete' | 'invalid'

export interface ResponseReader {
  /** Takes bytes. Those after the end of the response are in `surplus`. */
  push(chunk: Buffer): Reading
  /** The server ended the connection: the response is complete only if the end of the connection ends the body. */
  end(): Reading
  /** true after the first byte */
  readonly started: boolean
  readonly status: number
  /** true if the connection can be used again */
  readonly persistent: boolean
  readonly surplus: Buffer | null
  header(name: string): string | null
}

const HEAD_MAX_BYTES = 65_536
type State = 'head' | 'length' | 'until_end' | 'chunk_size' | 'chunk_data' | 'chunk_end' | 'trailer' | 'done'

export function createResponseReader(): ResponseReader {
  let state: State = 'head'
  let pending: Buffer | null = null // bytes of an unfinished head or line
  let head = ''
  let status = 0
  let persistent = false
  let left = 0
  let started = false
  let surplus: Buffer | null = null

  const header = (name: string): string | null => {
    const match = patternOf(name).exec(head)
    return match === null ? null : (match[1] ?? '').trim()
  }

  const readHead = (text: string): State | null => {
    const first = /^HTTP\/1\.([01]) ([1-5][0-9][0-9])(?: |\r)/.exec(text)
    if (first === null) return null
    head = text
    status = Number(first[2])
    if (status === 101) return 'done'
    if (status < 200) return 'head' // 100 and 103 come before the answer
    const connection = (header('connection') ?? '').toLowerCase()
    persistent = first[1] === '1' ? !connection.includes('close') : connection.includes('keep-alive')
    if (status === 204 || status === 304) return 'done'
    if ((header('transfer-encoding') ?? '').toLowerCase().includes('chunked')) return 'chunk_size'
    const length = header('content-length')
    if (length === null) {
      persistent = false
      return 'until_end'
    }
    if (!/^[0-9]+$/.test(length)) return null
    left = Number(length)
    return left === 0 ? 'done' : 'length'
  }

  const push = (chunk: Buffer): Reading => {
    started = true
    let bytes = pending === null ? chunk : Buffer.concat([pending, chunk])
    pending = null
    while (state !== 'done') {
      if (bytes.length === 0) return 'incomplete'
      switch (state) {
        case 'head': {
          const end = bytes.indexOf('\r\n\r\n')
          if (end < 0) {
            pending = bytes
            return bytes.length > HEAD_MAX_BYTES ? 'invalid' : 'incomplete'
          }
          const next = readHead(bytes.toString('latin1', 0, end + 2))
          if (next === null) return 'invalid'
          state = next
          bytes = bytes.subarray(end + 4)
          break
        }
        case 'until_end':
          return 'incomplete'
        case 'length':
        case 'chunk_data': {
          const taken = Math.min(left, bytes.length)
          left -= taken
          bytes = bytes.subarray(taken)
          if (left > 0) return 'incomplete'
          state = state === 'length' ? 'done' : 'chunk_end'
          break
        }
        case 'chunk_size':
        case 'chunk_end':
        case 'trailer': {
          const end = bytes.indexOf('\r\n')
          if (end < 0) {
            pending = bytes
            return bytes.length > HEAD_MAX_BYTES ? 'invalid' : 'incomplete'
          }
          const line = bytes.toString('latin1', 0, end)
          bytes = bytes.subarray(end + 2)
          if (state === 'trailer') {
            if (line === '') state = 'done'
          } else if (state === 'chunk_end') {
            if (line !== '') return 'invalid'
            state = 'chunk_size'
          } else {
            const size = /^([0-9a-f]{1,8})[ \t]*(?:;.*)?$/i.exec(line)
            if (size === null) return 'invalid'
            left = Number.parseInt(size[1] ?? '', 16)
            state = left === 0 ? 'trailer' : 'chunk_data'
          }
          break
        }
        default:
          state satisfies never
      }
    }
    surplus = bytes.length > 0 ? bytes : null
    return 'complete'
  }

  return {
    push,
    end: () => (state === 'until_end' || state === 'done' ? 'complete' : 'incomplete'),
    header,
    get started() {
      return started
    },
    get status() {
      return status
    },
    get persistent() {
      return persistent
    },
    get surplus() {
      return surplus
    },
  }
}

const patterns = new Map<string, RegExp>()

function patternOf(name: string): RegExp {
  const known = patterns.get(name)
  if (known !== undefined) return known
  const pattern = new RegExp(`\\r\\n${name}:[ \\t]*([^\\r]*)`, 'i')
  patterns.set(name, pattern)
  return pattern
}

export interface Frame {
  opcode: number
  payload: Buffer
}

export const OPCODE = { text: 1, close: 8, ping: 9, pong: 10 } as const

/** The whole frames, and the rest of the bytes. Null if the bytes cannot be a server's frames. */
export function readFrames(bytes: Buffer): { frames: Frame[]; rest: Buffer } | null {
  const frames: Frame[] = []
  let rest = bytes
  while (rest.length >= 2) {
    const first = rest[0] ?? 0
    const second = rest[1] ?? 0
    if ((first & 0x70) !== 0 || (second & 0x80) !== 0) return null // reserved bits; a server must not mask
    const short = second & 0x7f
    const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10
    if (rest.length < headBytes) break
    const length = short < 126 ? short : short === 126 ? rest.readUInt16BE(2) : Number(rest.readBigUInt64BE(2))
    if (length > 1 << 24) return null
    if (rest.length < headBytes + length) break
    frames.push({ opcode: first & 0x0f, payload: rest.subarray(headBytes, headBytes + length) })
    rest = rest.subarray(headBytes + length)
  }
  return { frames, rest }
}

/** A client's frame. Its mask is all zeros: the protocol allows that, and it keeps the load cheap. */
export function clientFrame(opcode: number, payload: Buffer): Buffer {
  const length = payload.length
  if (length > 65_535) throw new RangeError(`expected a payload of at most 65535 bytes, got ${length}`)
  const head = Buffer.alloc(length < 126 ? 6 : 8)
  head[0] = 0x80 | opcode
  head[1] = 0x80 | (length < 126 ? length : 126)
  if (length >= 126) head.writeUInt16BE(length, 2)
  return Buffer.concat([head, payload])
}
