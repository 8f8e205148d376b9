// An open loop: each request begins when it is due, not when the last answer came. The time that a request waits for a connection
// counts as time to its answer, so that a server that stands still cannot hide it (no coordinated omission).
// Must never break: every request that was due is answered or counted as lost. No request is sent twice.
//
//   const load = await spawnOpenLoad({ port, rate: 2000, connections: 32 })   // in a separate process
//   load.mark('switch 1'); … load.mark(null); const slices = await load.stop()

import { fork } from 'node:child_process'
import { connect, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { createResponseReader, type ResponseReader } from './response.ts'

export interface OpenLoadOptions {
  port: number
  host?: string
  path?: string
  /** requests a second, whatever the server does */
  rate: number
  /** keep-alive connections; one that the server ends is counted and replaced */
  connections: number
  /** milliseconds after which a connection that does not answer is given up; default 7000 */
  hangMs?: number
  /** a command to start it with, such as one that enters a network */
  through?: readonly string[]
}

/** The requests that were due while a mark was set. */
export interface OpenSlice {
  name: string
  requests: number
  lost: number
  closed: number
  /** milliseconds since each request was due */
  longestMs: number
  p50Ms: number
  p999Ms: number
}

export interface OpenLoad {
  mark(name: string | null): void
  stop(): Promise<OpenSlice[]>
}

const HANG_MS = 7000
const TICK_MS = 1
const START_MS = 10_000

export async function spawnOpenLoad({ through = [], ...options }: OpenLoadOptions): Promise<OpenLoad> {
  const [execPath = '', ...execArgv] = [...through, process.execPath, '--disable-warning=ExperimentalWarning']
  const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(options)], {
    execPath,
    execArgv,
    serialization: 'advanced',
  })
  const next = <T>() =>
    new Promise<T>((resolve, reject) => {
      child.once('message', (message) => resolve(message as T))
      child.once('exit', (code) => reject(new Error(`the open load ended with ${code}`)))
    })
  await Promise.race([
    next(),
    new Promise((_, reject) => setTimeout(() => reject(new Error('the open load did not start')), START_MS).unref()),
  ])
  return {
    mark: (name) => void child.send({ mark: name }),
    stop: async () => {
      const slices = next<OpenSlice[]>()
      child.send({ stop: true })
      const result = await slices
      child.kill()
      return result
    },
  }
}

interface Request {
  due: number
  slice: Slice | null
}

interface Slice {
  name: string
  waits: number[]
  lost: number
  closed: number
}

interface Connection {
  socket: Socket
  reader: ResponseReader
  request: Request | null
  hang: NodeJS.Timeout | null
}

function run(options: OpenLoadOptions): void {
  const { port, host = '127.0.0.1', path = '/', rate, connections, hangMs = HANG_MS } = options
  const text = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`
  const slices: Slice[] = []
  const free: Connection[] = []
  const waiting: Request[] = []
  let current: Slice | null = null
  let isOver = false
  let busy = 0

  const open = (): void => {
    const socket = connect(port, host)
    socket.setNoDelay(true)
    const connection: Connection = { socket, reader: createResponseReader(), request: null, hang: null }
    let isGone = false
    const gone = () => {
      if (isGone) return
      isGone = true
      socket.destroy()
      const at = free.indexOf(connection)
      if (at >= 0) free.splice(at, 1)
      const { request } = connection
      if (isOver) return
      const slice = request?.slice ?? current
      if (slice !== null) slice.closed++
      if (request !== null) end(connection, false)
      setTimeout(open, 10)
    }
    socket.on('connect', () => {
      free.push(connection)
      next()
    })
    socket.on('data', (chunk: Buffer) => {
      const reading = connection.reader.push(chunk)
      if (reading === 'incomplete') return
      const isGood = reading === 'complete' && connection.reader.status === 200
      const isKept = isGood && connection.reader.persistent && connection.reader.surplus === null
      connection.reader = createResponseReader()
      if (connection.request !== null) end(connection, isGood)
      if (!isKept) return gone()
      free.push(connection)
      next()
    })
    socket.on('error', gone)
    socket.on('close', gone)
    connection.hang = null
  }
  const end = (connection: Connection, isGood: boolean): void => {
    const { request } = connection
    if (connection.hang !== null) clearTimeout(connection.hang)
    connection.request = null
    connection.hang = null
    busy--
    const slice = request?.slice ?? null
    if (request === null || slice === null) return
    if (isGood) slice.waits.push(performance.now() - request.due)
    else slice.lost++
  }
  const next = (): void => {
    while (waiting.length > 0) {
      const connection = free.shift() // in turns: an unused connection would end by its keep-alive timeout
      if (connection === undefined) return
      const request = waiting.shift()
      if (request === undefined) return
      busy++
      connection.request = request
      connection.hang = setTimeout(() => connection.socket.destroy(), hangMs)
      connection.socket.write(text)
    }
  }
  const began = performance.now()
  let due = 0
  const timer = setInterval(() => {
    const now = performance.now()
    for (let at; (at = began + (due * 1000) / rate) <= now; due++) waiting.push({ due: at, slice: current })
    next()
  }, TICK_MS)
  for (let count = 0; count < connections; count++) open()

  process.on('message', (message: { mark?: string | null; stop?: boolean }) => {
    if (message.mark !== undefined) {
      current = message.mark === null ? null : { name: message.mark, waits: [], lost: 0, closed: 0 }
      if (current !== null) slices.push(current)
    }
    if (message.stop !== true) return
    clearInterval(timer)
    const report = () => {
      isOver = true
      process.send?.(slices.map(summary))
    }
    const deadline = performance.now() + hangMs
    const drained = setInterval(() => {
      if (waiting.length + busy > 0 && performance.now() < deadline) return
      clearInterval(drained)
      for (const { slice } of waiting) if (slice !== null) slice.lost++
      report()
    }, 5)
  })
  process.on('disconnect', () => process.exit(0))
  process.send?.('ready')
}

function summary({ name, waits, lost, closed }: Slice): OpenSlice {
  const sorted = waits.toSorted((a, b) => a - b)
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0
  return {
    name,
    requests: sorted.length + lost,
    lost,
    closed,
    longestMs: sorted.at(-1) ?? 0,
    p50Ms: at(0.5),
    p999Ms: at(0.999),
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) run(JSON.parse(process.argv[2] ?? '') as OpenLoadOptions)
