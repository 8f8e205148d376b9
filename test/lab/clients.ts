// Clients of every kind that a service meets, all on raw sockets. They never retry, never forgive, and count what a switch does to
// them. Must never break: a request without a whole, right answer counts as lost; an unannounced end as closed; an answer without
// a request as doubled. The report lists the acknowledged writes, so that a test can count their rows.
//
//   const clients = await spawnClients({ host, port, socketPath, tls, http2 })   // in a separate process
//   …switches…
//   const report = await clients.stop()

import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { connect as connectHttp2, type ClientHttp2Session, constants } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { createResponseReader, type ResponseReader } from './response.ts'

export interface ClientsOptions {
  host: string
  port: number
  socketPath: string
  /** these two are paths of unix sockets: at the end of TLS the last bytes meet a closed port, which the kernel counts as a reset */
  tls: string
  http2: string
  /** duration of a slow response */
  slowMs: number
  /** number of connections that send one request, are silent until the end, and send one more */
  idle: number
}

export interface Counted {
  requests: number
  lost: number
  closed: number
  doubled: number
  /** ends that the last answer announced, or (HTTP/2) sessions that the server ended with GOAWAY */
  told: number
  /** HTTP/2 requests that the server says it has not begun */
  refused: number
  errors: Record<string, number>
}

export interface ClientsReport {
  kinds: Record<string, Counted>
  /** texts of the acknowledged rows */
  acknowledged: string[]
}

export interface Clients {
  stop(): Promise<ClientsReport>
}

const START_MS = 60_000

/** Resolves when every client has had its first answer. */
export async function spawnClients(options: ClientsOptions, prefix: string[] = []): Promise<Clients> {
  const [command = '', ...args] = [
    ...prefix,
    process.execPath,
    '--disable-warning=ExperimentalWarning',
    fileURLToPath(import.meta.url),
    JSON.stringify(options),
  ]
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const next = <T>() =>
    new Promise<T>((resolve, reject) => {
      child.once('message', (message) => resolve(message as T))
      child.once('exit', (code) => reject(new Error(`the clients ended with ${code}`)))
    })
  const late = setTimeout(() => child.kill('SIGKILL'), START_MS)
  await next()
  clearTimeout(late)
  return {
    async stop() {
      const report = next<ClientsReport>()
      child.send('stop')
      return await report
    },
  }
}

// ---- one connection

interface Answer {
  status: number
  persistent: boolean
  header(name: string): string | null
}

interface Connection {
  write(bytes: string | Buffer): void
  /** the next whole answer; call it before you send the last byte. Rejects with the reason if there is none */
  answer(): Promise<Answer>
  /** resolves when the server says that it goes on (RFC 9110, 15.2.1) */
  goOn(): Promise<void>
  isGone(): boolean
  end(): Promise<void>
}

const HANG_MS = 20_000

/** Calls `unasked` for bytes that answer no request. */
function opened(socket: Socket, unasked: () => void): Promise<Connection> {
  interface Wait {
    reader: ResponseReader
    resolve(answer: Answer): void
    reject(error: Error): void
  }
  const waits: Wait[] = []
  const interim = Promise.withResolvers<void>()
  let gone: string | null = null
  socket.setNoDelay(true)
  const take = (chunk: Buffer): void => {
    if (chunk.toString('latin1', 0, 12) === 'HTTP/1.1 100') interim.resolve()
    const [wait] = waits
    if (wait === undefined) return unasked()
    const reading = wait.reader.push(chunk)
    if (reading === 'incomplete') return
    waits.shift()
    if (reading === 'invalid') return wait.reject(new Error('not HTTP'))
    const { status, persistent, surplus, header } = wait.reader
    wait.resolve({ status, persistent, header })
    if (surplus !== null) take(surplus)
  }
  const end = (why: string) => {
    gone ??= why
    for (const wait of waits.splice(0)) wait.reject(new Error(`${wait.reader.started ? 'response' : 'sent'}: ${why}`))
    interim.resolve()
  }
  socket.on('data', take)
  socket.on('end', () => end('ended'))
  socket.on('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message))
  socket.on('close', () => end('closed'))
  const connection: Connection = {
    write: (bytes) => void socket.write(bytes),
    answer: () => {
      if (gone !== null) return Promise.reject(new Error(`sent: ${gone}`))
      const { promise, resolve, reject } = Promise.withResolvers<Answer>()
      promise.catch(() => {}) // it may fail before the last byte is sent
      waits.push({ reader: createResponseReader(), resolve, reject })
      return promise
    },
    goOn: () => interim.promise,
    isGone: () => gone !== null,
    end: async () => {
      const closed = new Promise((resolve) => socket.once('close', resolve))
      if (socket.destroyed) return
      socket.end()
      await Promise.race([closed, sleep(2000, undefined, { ref: false })])
      socket.destroy()
    },
  }
  return new Promise((resolve, reject) => {
    socket.once('encrypted' in socket ? 'secureConnect' : 'connect', () => resolve(connection))
    socket.once('error', (error: NodeJS.ErrnoException) => reject(new Error(`connect: ${error.code ?? error.message}`)))
  })
}

// ---- the kinds

interface Kind {
  count: number
  /** pause between two requests, random between these bounds, in milliseconds */
  think: [number, number]
  /** default: the HTTP port */
  to?: 'unix' | 'tls'
  /** opens a connection for every request */
  isFresh?: true
  /** pause before the first byte on a connection, random between these bounds, in milliseconds */
  late?: [number, number]
  /** Sends a request with this id and reads its answers. Throws if something is wrong with them. */
  ask(connection: Connection, id: string): Promise<Answer>
}

const UPLOAD = randomBytes(300_000)
const UPLOAD_SUM = createHash('sha256').update(UPLOAD).digest('hex')

function kindsOf({ slowMs }: ClientsOptions): Record<string, Kind> {
  const get = (path: string) => (connection: Connection, id: string) => {
    connection.write(head('GET', path, id))
    return connection.answer()
  }
  const version = get('/version')
  return {
    fresh: { count: 8, think: [0, 20], isFresh: true, ask: version },
    'keep-alive, back to back': { count: 4, think: [0, 0], ask: version },
    'keep-alive, 20 ms': { count: 8, think: [0, 40], ask: version },
    'keep-alive, 500 ms': { count: 16, think: [300, 700], ask: version },
    'POST with length': { count: 4, think: [10, 50], ask: (to, id) => write(to, id, (body) => to.write(body)) },
    'POST in chunks': {
      count: 4,
      think: [10, 50],
      ask: async (to, id) => {
        const body = rowOf(id)
        const answer = to.answer()
        to.write(head('POST', '/api/logs', id, 'Transfer-Encoding: chunked\r\n'))
        for (const part of [body.slice(0, 10), body.slice(10)]) {
          to.write(`${part.length.toString(16)}\r\n${part}\r\n`)
          await sleep(3)
        }
        to.write('0\r\n\r\n')
        return await answer
      },
    },
    'POST, expects 100': {
      count: 4,
      think: [10, 50],
      isFresh: true,
      ask: async (to, id) => {
        const body = rowOf(id)
        const answer = to.answer()
        to.write(head('POST', '/api/logs', id, `Expect: 100-continue\r\nContent-Length: ${body.length}\r\n`))
        await to.goOn()
        to.write(body)
        return await answer
      },
    },
    'POST in ten slow parts': {
      count: 4,
      think: [10, 50],
      ask: (to, id) =>
        write(to, id, async (body) => {
          const size = Math.ceil(body.length / 10)
          for (let at = 0; at < body.length; at += size) {
            to.write(body.slice(at, at + size))
            await sleep(40)
          }
        }),
    },
    pipelined: {
      count: 4,
      think: [10, 50],
      ask: async (to, id) => {
        const ids = [1, 2, 3, 4].map((number) => `${id}.${number}`)
        to.write(ids.map((one) => head('GET', '/version', one)).join(''))
        const answers = await Promise.all(ids.map(() => to.answer()))
        for (const [at, one] of ids.entries()) rightly(answers[at], one)
        return answers[3] as Answer
      },
    },
    'byte by byte': {
      count: 2,
      think: [10, 50],
      ask: async (to, id) => {
        const answer = to.answer()
        for (const byte of head('GET', '/version', id)) {
          to.write(byte)
          await sleep(1)
        }
        return await answer
      },
    },
    'late first byte': { count: 8, think: [0, 20], isFresh: true, late: [0, 2500], ask: version },
    'stray CRLF': {
      count: 4,
      think: [10, 100],
      ask: async (to, id) => {
        to.write(`${head('GET', '/version', id)}\r\n`)
        return await to.answer()
      },
    },
    '300 kB upload': {
      count: 4,
      think: [10, 50],
      ask: async (to, id) => {
        const coming = to.answer()
        to.write(head('POST', '/echo', id, `Content-Length: ${UPLOAD.length}\r\n`))
        for (let at = 0; at < UPLOAD.length; at += 30_000) {
          to.write(UPLOAD.subarray(at, at + 30_000))
          await sleep(5)
        }
        const answer = await coming
        if (answer.header('x-sum') !== UPLOAD_SUM) throw new Error('response: another sum')
        return answer
      },
    },
    'slow responses, back to back': { count: 8, think: [0, 0], ask: get(`/slow?ms=${slowMs}`) },
    'unix socket': { count: 8, think: [0, 20], to: 'unix', ask: version },
    'unix socket, fresh': { count: 4, think: [0, 20], to: 'unix', isFresh: true, ask: version },
    TLS: { count: 8, think: [5, 50], to: 'tls', ask: version },
    'TLS, fresh': { count: 2, think: [20, 60], to: 'tls', isFresh: true, ask: version },
  }
}

function head(method: string, path: string, id: string, more = ''): string {
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: ${id}\r\n${more}\r\n`
}

function rowOf(id: string): string {
  return JSON.stringify({ level: 'info', message: id })
}

async function write(to: Connection, id: string, send: (body: string) => unknown): Promise<Answer> {
  const body = rowOf(id)
  to.write(head('POST', '/api/logs', id, `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`))
  const answer = to.answer()
  await send(body)
  return await answer
}

function rightly(answer: Answer | undefined, id: string): void {
  if (answer === undefined || answer.status < 200 || answer.status > 299) {
    throw new Error(`response: status ${answer?.status}`)
  }
  if (answer.header('x-request-id') !== id) throw new Error("response: another request's answer")
}

// ---- the load

function run(options: ClientsOptions): void {
  const { host, port, socketPath, tls } = options
  const report: ClientsReport = { kinds: {}, acknowledged: [] }
  const name = `c${process.pid}`
  let isStopping = false
  let lastId = 0
  const countOf = (kind: string): Counted =>
    (report.kinds[kind] ??= { requests: 0, lost: 0, closed: 0, doubled: 0, told: 0, refused: 0, errors: {} })
  const failed = (counted: Counted, error: unknown) => {
    const why = error instanceof Error ? error.message : String(error)
    counted.lost++
    counted.errors[why] = (counted.errors[why] ?? 0) + 1
  }
  const open = (to: Kind['to'], counted: Counted) =>
    opened(
      to === 'unix'
        ? connect(socketPath)
        : to === 'tls'
          ? connectTls({ path: tls, rejectUnauthorized: false })
          : connect(port, host),
      () => void counted.doubled++,
    )
  const one = async (kind: Kind, counted: Counted, connection: Connection): Promise<boolean> => {
    const id = `${name}-${++lastId}`
    counted.requests++
    const late = new AbortController()
    try {
      const hang = sleep(HANG_MS, undefined, { signal: late.signal }).then(() => {
        throw new Error('hang')
      })
      hang.catch(() => {})
      const answer = await Promise.race([kind.ask(connection, id), hang])
      if (answer.header('x-request-id')?.startsWith(id) !== true || answer.status > 299) rightly(answer, id)
      if (answer.status === 201) report.acknowledged.push(id)
      if (!answer.persistent && kind.isFresh !== true) {
        if (kind.to === 'tls') counted.told++
        else counted.closed++
      }
      return answer.persistent && kind.isFresh !== true
    } catch (error) {
      failed(counted, error)
      return false
    } finally {
      late.abort()
    }
  }
  const client = async (kind: Kind, counted: Counted, started: () => void): Promise<void> => {
    let connection: Connection | null = null
    while (!isStopping) {
      if (connection?.isGone() === true) {
        counted.closed++
        connection = null
      }
      try {
        if (connection === null) {
          connection = await open(kind.to, counted)
          if (kind.late !== undefined) await sleep(between(kind.late))
        }
      } catch (error) {
        failed(counted, error)
        await sleep(20)
        continue
      }
      const isKept = await one(kind, counted, connection)
      started()
      if (!isKept) {
        await connection.end()
        connection = null
      }
      await sleep(between(kind.think))
    }
    await connection?.end()
  }
  const idle = async (counted: Counted, started: () => void): Promise<void> => {
    const kind: Kind = {
      count: 0,
      think: [0, 0],
      ask: (to, id) => (to.write(head('GET', '/version', id)), to.answer()),
    }
    const connection = await open(undefined, counted)
    await one(kind, counted, connection)
    started()
    while (!isStopping) await sleep(100)
    if (connection.isGone()) counted.closed++
    else await one(kind, counted, connection)
    await connection.end()
  }
  const all: Promise<void>[] = []
  const starts: Promise<void>[] = []
  const begin = (act: (started: () => void) => Promise<void>) =>
    starts.push(new Promise((resolve, reject) => all.push(act(resolve).catch(reject))))
  for (const [kindName, kind] of Object.entries(kindsOf(options))) {
    const counted = countOf(kindName)
    for (let at = 0; at < kind.count; at++) begin((started) => client(kind, counted, started))
  }
  for (let at = 0; at < 4; at++) begin((started) => http2(options, countOf('HTTP/2'), () => isStopping, started))
  for (let at = 0; at < options.idle; at++) begin((started) => idle(countOf('idle pool'), started))
  void Promise.all(starts).then(
    () => process.send?.('started'),
    (error: unknown) => {
      process.stderr.write(`${String(error)}\n`)
      process.exit(1)
    },
  )
  process.on('message', () => {
    isStopping = true
    void Promise.all(all).then(() => process.send?.(report, undefined, undefined, () => process.exit(0)))
  })
  process.on('disconnect', () => process.exit(1))
}

/** One session after the other, four requests at once on each. */
async function http2(
  { http2: path }: ClientsOptions,
  counted: Counted,
  isStopping: () => boolean,
  started: () => void,
): Promise<void> {
  while (!isStopping()) {
    const createConnection = () => connectTls({ path, ALPNProtocols: ['h2'], rejectUnauthorized: false })
    const session = connectHttp2('https://localhost', { createConnection })
    const closed = new Promise<void>((resolve) => session.once('close', () => resolve()))
    let isGoing = false
    session.on('error', () => {}).on('goaway', () => (isGoing = true))
    while (!isStopping() && !isGoing && !session.closed && !session.destroyed) {
      const answers = await Promise.all([1, 2, 3, 4].map(() => requestOn(session)))
      for (const answer of answers) {
        counted.requests++
        if (answer === 'refused') counted.refused++
        else if (answer !== 'ok') {
          counted.lost++
          counted.errors[answer] = (counted.errors[answer] ?? 0) + 1
        }
      }
      started()
      await sleep(20)
    }
    if (isGoing) counted.told++
    else if (!isStopping()) counted.closed++
    if (!session.closed) session.close()
    await Promise.race([closed, sleep(2000, undefined, { ref: false })])
    session.destroy()
  }
}

/** Resolves to `ok`, `refused` or a fault. `refused`: the server has not begun it, so a client may retry it (RFC 9113, 8.7). */
function requestOn(session: ClientHttp2Session): Promise<string> {
  return new Promise((resolve) => {
    try {
      const stream = session.request({ ':path': '/version' })
      let status = 0
      stream.setTimeout(HANG_MS, () => resolve('hang'))
      stream.on('response', (headers) => (status = headers[':status'] ?? 0))
      stream.on('end', () => resolve(status === 200 ? 'ok' : `status ${status}`))
      stream.on('error', (error: NodeJS.ErrnoException) =>
        resolve(
          stream.rstCode === constants.NGHTTP2_REFUSED_STREAM || isUnsent(error)
            ? 'refused'
            : `${error.code} ${error.message}`,
        ),
      )
      stream.on('close', () => resolve(`closed with ${stream.rstCode}`))
      stream.resume()
    } catch (error) {
      resolve(isUnsent(error as NodeJS.ErrnoException) ? 'refused' : String(error))
    }
  })
}

/** This client did not send the request: the server has ended the session with GOAWAY. */
function isUnsent({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ERR_HTTP2_GOAWAY_SESSION' || code === 'ERR_HTTP2_INVALID_SESSION'
}

function between([least, most]: [number, number]): number {
  return least + Math.random() * (most - least)
}

if (import.meta.main) run(JSON.parse(process.argv[2] ?? '') as ClientsOptions)
