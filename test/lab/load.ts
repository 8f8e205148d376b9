// A load of raw-socket clients that never retry, never forgive and count everything they lose.
// Must never break: a request without a whole, right answer counts as lost, and a connection that the server ended counts as
// closed. An HTTP library would hide both (it opens another socket and sends the request again).
//
//   const load = startLoad({ mode: 'keepalive', clients: 64, port })   // in this process
//   const load = await spawnLoad({ … })                                // in a separate process, same interface
//   load.snapshot(); await load.mark('switch'); const totals = await load.stop()
//   node test/lab/load.ts --json '{"mode":"fresh","clients":64,"port":8080}'   // until stdin ends, ^C or `maxMs`

import { spawn } from 'node:child_process'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { createHistogram } from './histogram.ts'
import type { Histogram, Latency } from './histogram.ts'
import { OPCODE, clientFrame, createResponseReader, readFrames } from './response.ts'
import type { ResponseReader } from './response.ts'

/**
 * `fresh`: one connection for each request. `keepalive`: every client keeps one connection. `stream`: a connection and one long
 * response at a time; latency and stall are the gaps between its bytes. `websocket`: one echo connection for each client.
 */
export type Mode = 'fresh' | 'keepalive' | 'stream' | 'websocket'

/** Plain data, so that it can be sent to another process. */
export interface LoadOptions {
  mode: Mode
  clients: number
  /** default 127.0.0.1 */
  host?: string
  port?: number
  /** a unix socket instead of host and port */
  socketPath?: string
  /** request target, default `/` */
  path?: string
  method?: string
  body?: string
  headers?: Record<string, string>
  /** pause of a client between an answer and its next request; a pair is a random pause between the two. Default 0 */
  thinkMs?: number | [number, number]
  /** an answer (or its next bytes) that takes longer counts as lost. Default 7000 */
  hangMs?: number
  /** pause of a client after a lost request, so that a dead server does not give as many losses as a CPU can count. Default 10 */
  failurePauseMs?: number
  /** when its connection is gone, a keepalive or websocket client ends, or is counted and opens another one. Default end */
  afterClose?: 'end' | 'reopen'
  /** stops by itself after this many requests. Default: no bound */
  maxRequests?: number
  /** stops by itself after this time. Default 600000, at most 3600000 */
  maxMs?: number
  /** replaces every `every`th request by this one; `{id}` in path and body becomes the request's unique id */
  write?: { every: number; path: string; body: string; method?: string; headers?: Record<string, string> }
  /** the last totals (not the snapshots) carry the ids of all acknowledged writes */
  keepAcknowledgedIds?: boolean
  /** text at the end of a stream; one that ends properly but without it counts as closed, announced */
  expectTail?: string
  /** count the answers by the value of this response header, such as a version */
  tally?: string
}

/** What happened in the time that `mark` named. */
export interface Slice {
  ok: number
  lost: number
  closed: number
  longestStallMs: number
  latency: Latency
}

export interface Totals extends Slice {
  mode: Mode
  clients: number
  /** clients that are still running */
  alive: number
  requests: number
  /** requests that were sent, and neither answered nor lost when the load stopped (or at the snapshot) */
  unfinished: number
  /** lost requests by how far they had come */
  lostBy: { connect: number; sent: number; response: number }
  /** `phase: reason` -> count */
  errors: Record<string, number>
  /** connections opened */
  connections: number
  /** connections that the server ended while the client wanted to keep them; announced: with `Connection: close` or a close frame */
  closedBy: { idle: number; busy: number; announced: number }
  writes: { sent: number; acknowledged: number; ids: string[] }
  answeredBy: Record<string, number>
  durationMs: number
  slices: Record<string, Slice>
}

export interface Load {
  /** totals so far; those of another process are up to 100 ms old */
  snapshot(): Totals
  /** from now on, results also count for the slice of this name; null: for no slice */
  mark(slice: string | null): Promise<void>
  /** lets requests in flight finish (cuts streams), closes every connection, resolves to the totals; may be called again */
  stop(): Promise<Totals>
  /** resolves when the load ends: by `stop`, by a bound, or because no client is left */
  readonly done: Promise<Totals>
}

/** Several loads as one. */
export interface Loads extends AsyncDisposable {
  stop(): Promise<{ lost: number; closed: number; errors: Totals['errors']; refused: number }>
}

const HANG_MS = 7000
const FAILURE_PAUSE_MS = 10
const MAX_MS = 600_000
const MAX_MS_LIMIT = 3_600_000
const CLIENTS_MAX = 10_000
const SWEEP_MS = 100
const TAIL_CHARACTERS = 512

export function startLoad(options: LoadOptions): Load {
  const settings = settingsOf(options)
  const recorder = createRecorder(settings)
  const clients: Client[] = []
  const finished = Promise.withResolvers<Totals>()
  let stopping = false
  let ended = false

  const run: Run = {
    settings,
    recorder,
    mayStart: () => !stopping && recorder.started() < settings.maxRequests,
    clientEnded() {
      if (clients.every((client) => client.ended)) end()
    },
  }
  const end = (): void => {
    if (ended) return
    ended = true
    clearInterval(sweeper)
    clearTimeout(bound)
    for (const client of clients) client.abandon()
    finished.resolve(recorder.totals(clients, true))
  }
  const stop = (): Promise<Totals> => {
    if (!stopping) {
      stopping = true
      for (const client of clients) client.finish()
      if (clients.every((client) => client.ended)) end()
    }
    return finished.promise
  }
  const sweeper = setInterval(() => {
    const now = performance.now()
    for (const client of clients) client.sweep(now)
  }, SWEEP_MS)
  const bound = setTimeout(() => void stop(), settings.maxMs)

  for (let i = 0; i < settings.clients; i++) {
    clients.push(settings.mode === 'websocket' ? createWebSocketClient(run, i) : createHttpClient(run, i))
  }
  for (const client of clients) client.start()

  return {
    snapshot: () => recorder.totals(clients, false),
    mark: (slice) => {
      recorder.mark(slice)
      return Promise.resolve()
    },
    stop,
    done: finished.promise,
  }
}

/** What they have lost in all; `refused`: requests that got no connection. */
export function asOne(loads: readonly Load[]): Loads {
  const stop: Loads['stop'] = async () => {
    const all = await Promise.all(loads.map(async (load) => await load.stop()))
    const sum = (of: (one: Totals) => number) => all.reduce((total, one) => total + of(one), 0)
    const errors: Totals['errors'] = {}
    for (const [error, times] of all.flatMap((one) => Object.entries(one.errors)))
      errors[error] = (errors[error] ?? 0) + times
    return {
      lost: sum((one) => one.lost),
      closed: sum((one) => one.closed),
      errors,
      refused: sum((one) => one.lostBy.connect),
    }
  }
  return { stop, [Symbol.asyncDispose]: async () => void (await stop()) }
}

export interface SpawnOptions {
  /** goes before the command, such as `['ip', 'netns', 'exec', name]` */
  prefix?: string[]
}

/** The same load in a separate process, so that it shares no event loop with what it measures. Resolves once it runs. */
export async function spawnLoad(options: LoadOptions, spawnOptions: SpawnOptions = {}): Promise<Load> {
  const settings = settingsOf(options) // report faults here, not in the other process
  const [command = process.execPath, ...args] = [
    ...(spawnOptions.prefix ?? []),
    process.execPath,
    '--disable-warning=ExperimentalWarning',
    fileURLToPath(import.meta.url),
    '--ipc',
  ]
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const started = Promise.withResolvers<void>()
  const finished = Promise.withResolvers<Totals>()
  const marks: (() => void)[] = []
  let last: Totals = createRecorder(settings).totals([], false)

  const fail = (reason: string): void => {
    const error = new Error(`the load's process ${reason}`)
    started.reject(error)
    finished.reject(error)
    for (const marked of marks.splice(0)) marked()
  }
  finished.promise.catch(() => undefined) // a caller that awaits `done` or `stop` gets the error
  child.on('error', (error) => fail(`could not be started: ${error.message}`))
  child.on('exit', (code, signal) => fail(`ended early with ${signal ?? code}`))
  child.on('message', (message: Report) => {
    if (message.kind === 'started') started.resolve()
    else if (message.kind === 'marked') marks.shift()?.()
    else {
      last = message.totals
      if (message.kind === 'done') finished.resolve(message.totals)
    }
  })
  const tell = (order: Order): boolean => {
    if (!child.connected) return false
    child.send(order, () => undefined) // if it cannot be sent, `exit` says why
    return true
  }
  tell({ kind: 'start', options })
  await started.promise
  return {
    snapshot: () => last,
    mark: async (slice) => {
      const marked = Promise.withResolvers<void>()
      marks.push(marked.resolve)
      if (tell({ kind: 'mark', slice })) await marked.promise
    },
    stop: () => {
      tell({ kind: 'stop' })
      return finished.promise
    },
    done: finished.promise,
  }
}

type Order = { kind: 'start'; options: LoadOptions } | { kind: 'mark'; slice: string | null } | { kind: 'stop' }
type Report =
  | { kind: 'started' }
  | { kind: 'marked' }
  | { kind: 'totals'; totals: Totals }
  | { kind: 'done'; totals: Totals }

const PUSH_MS = 100
/**
 * How many times longer clients pause than they are told. run.ts sets it for short forms: each connection meets each switch all the
 * same, and what a load asks for besides is processor time that other tests wait for.
 */
const CALM = Number(process.env['BATON_TEST_CALM'] ?? 1)

function serveOrders(send: (report: Report, sent?: () => void) => void): void {
  let load: Load | null = null
  process.on('disconnect', () => process.exit(0)) // the parent is gone
  process.on('message', (order: Order) => {
    if (order.kind === 'start') {
      const running = startLoad(order.options)
      load = running
      const pusher = setInterval(() => send({ kind: 'totals', totals: running.snapshot() }), PUSH_MS)
      void running.done.then((totals) => {
        clearInterval(pusher)
        send({ kind: 'done', totals }, () => process.disconnect?.())
      })
      send({ kind: 'started' })
    } else if (order.kind === 'mark') {
      void load?.mark(order.slice)
      if (load !== null) send({ kind: 'totals', totals: load.snapshot() }) // a mark is exact: not the last push
      send({ kind: 'marked' })
    } else void load?.stop()
  })
}

// ---- the clients

interface Settings extends Required<
  Omit<LoadOptions, 'port' | 'socketPath' | 'body' | 'write' | 'tally' | 'thinkMs' | 'expectTail'>
> {
  address: { host: string; port: number } | { path: string }
  hostHeader: string
  body: string | null
  write: NonNullable<LoadOptions['write']> | null
  tally: string | null
  expectTail: string | null
  think: [number, number]
}

interface Run {
  settings: Settings
  recorder: Recorder
  mayStart(): boolean
  clientEnded(): void
}

interface Client {
  readonly ended: boolean
  readonly busy: boolean
  /** since when the client has waited for an answer; null if it waits for none */
  readonly wantingSince: number | null
  start(): void
  /** no further request; end when the one in flight is answered */
  finish(): void
  /** end now, count nothing more */
  abandon(): void
  /** looks for a hang */
  sweep(now: number): void
}

type Phase = 'connect' | 'sent' | 'response'

/** What all clients share: one request at a time, its clock, and a pause before the next. */
function createCourse(run: Run, next: () => void) {
  const { settings, recorder } = run
  let timer: NodeJS.Timeout | null = null
  const course = {
    ended: false,
    busy: false,
    finishing: false,
    since: 0,
    progressAt: 0,
    wantingSince: null as number | null,
    begin() {
      course.busy = true
      course.since = course.progressAt = performance.now()
      course.wantingSince ??= course.since
    },
    answered(now: number) {
      recorder.stall(now - (course.wantingSince ?? now))
      course.wantingSince = null
      course.busy = false
    },
    lost(phase: Phase, reason: string) {
      recorder.lost(phase, reason)
      course.busy = false
    },
    pause(afterFailure: boolean) {
      const [least, most] = settings.think
      const ms = afterFailure ? settings.failurePauseMs : least + Math.random() * (most - least)
      if (course.finishing || !run.mayStart()) course.end()
      else if (ms <= 0) next()
      else timer = setTimeout(() => (run.mayStart() ? next() : course.end()), ms)
    },
    end() {
      if (course.ended) return
      course.ended = true
      if (timer !== null) clearTimeout(timer)
      run.clientEnded()
    },
  }
  return course
}

function createHttpClient(run: Run, index: number): Client {
  const { settings, recorder } = run
  const { mode } = settings
  let socket: Socket | null = null
  let connected = false
  let reader: ResponseReader | null = null
  let job: Job | null = null
  let tail = ''
  const course = createCourse(run, () => request())

  const request = (): void => {
    job = recorder.nextJob(index)
    course.begin()
    tail = ''
    reader = createResponseReader()
    if (socket === null) open()
    socket?.write(job.bytes)
  }
  const open = (): void => {
    const opened = connect({ ...settings.address, noDelay: true })
    socket = opened
    connected = false
    recorder.connection()
    opened.on('connect', () => {
      connected = true
      course.progressAt = performance.now()
    })
    opened.on('data', (chunk) => {
      if (opened === socket) receive(chunk as Buffer)
    })
    opened.on('end', () => {
      if (opened !== socket) return
      if (course.busy && reader?.started === true && reader.end() === 'complete') finishRequest()
      else gone('ended')
    })
    opened.on('error', (error: NodeJS.ErrnoException) => {
      if (opened === socket) gone(error.code ?? error.message)
    })
    opened.on('close', () => {
      if (opened === socket) gone('closed')
    })
  }
  const drop = (): void => {
    const dropped = socket
    socket = null
    dropped?.destroy()
  }
  const phase = (): Phase => (!connected ? 'connect' : reader?.started === true ? 'response' : 'sent')
  const receive = (chunk: Buffer): void => {
    const now = performance.now()
    if (!course.busy || reader === null) {
      recorder.error('idle: bytes nobody asked for')
      gone('ended')
      return
    }
    if (mode === 'stream') {
      recorder.latency(now - course.progressAt)
      recorder.stall(now - course.progressAt)
      course.wantingSince = now
      if (settings.expectTail !== null) tail = (tail + chunk.toString('latin1')).slice(-TAIL_CHARACTERS)
    }
    course.progressAt = now
    const reading = reader.push(chunk)
    if (reading === 'complete') finishRequest()
    else if (reading === 'invalid') fail('not HTTP')
  }
  const finishRequest = (): void => {
    if (reader === null || job === null) return
    const now = performance.now()
    const wrong = wrongAnswer(reader, job)
    const persistent = reader.persistent && reader.surplus === null
    if (wrong !== null) return fail(wrong)
    course.answered(now)
    recorder.ok(job, mode === 'stream' ? null : now - course.since)
    if (settings.tally !== null) recorder.answeredBy(reader.header(settings.tally) ?? '')
    if (mode !== 'keepalive') {
      drop()
      if (settings.expectTail !== null && !tail.includes(settings.expectTail)) recorder.closed('announced')
    } else if (!persistent) {
      recorder.closed('announced')
      drop()
      if (settings.afterClose === 'end') return course.end()
    } else if (course.finishing) drop()
    course.pause(false)
  }
  /** the server has ended the connection */
  const gone = (reason: string): void => {
    const wanted = connected && mode !== 'fresh' && !(mode === 'stream' && !course.busy)
    if (wanted) recorder.closed(course.busy ? 'busy' : 'idle')
    if (course.busy) return fail(reason)
    drop()
    if (settings.afterClose === 'end') course.end()
    // else the client opens a new connection after the pending pause, like a new client
  }
  /** this client gives up the request in flight */
  const fail = (reason: string): void => {
    course.lost(phase(), reason)
    drop()
    if (mode === 'keepalive' && settings.afterClose === 'end') course.end()
    else course.pause(true)
  }

  return {
    get ended() {
      return course.ended
    },
    get busy() {
      return course.busy
    },
    get wantingSince() {
      return course.wantingSince
    },
    start: () => {
      if (run.mayStart()) request()
      else course.end()
    },
    finish() {
      course.finishing = true
      if (course.busy && mode !== 'stream') return
      drop()
      course.end()
    },
    abandon() {
      drop()
      course.ended = true
    },
    sweep(now) {
      if (course.busy && now - course.progressAt > settings.hangMs) fail('hang')
    },
  }
}

function wrongAnswer(reader: ResponseReader, job: Job): string | null {
  if (reader.status < 200 || reader.status > 299) return `status ${reader.status}`
  const id = reader.header('x-request-id')
  return id !== null && id !== job.id ? "another request's answer" : null
}

function createWebSocketClient(run: Run, index: number): Client {
  const { settings, recorder } = run
  let socket: Socket | null = null
  let connected = false
  let upgraded = false
  let reader = createResponseReader()
  let unread: Buffer = Buffer.alloc(0)
  let job: Job | null = null
  const course = createCourse(run, () => request())

  const request = (): void => {
    job = recorder.nextJob(index)
    course.begin()
    if (socket === null) open(job)
    else socket.write(clientFrame(OPCODE.text, Buffer.from(job.id)))
  }
  const open = (handshake: Job): void => {
    const opened = connect({ ...settings.address, noDelay: true })
    socket = opened
    connected = upgraded = false
    reader = createResponseReader()
    unread = Buffer.alloc(0)
    recorder.connection()
    opened.write(handshake.bytes)
    opened.on('connect', () => {
      connected = true
      course.progressAt = performance.now()
    })
    opened.on('data', (chunk) => {
      if (opened === socket) receive(chunk as Buffer)
    })
    opened.on('end', () => {
      if (opened === socket) gone('ended')
    })
    opened.on('error', (error: NodeJS.ErrnoException) => {
      if (opened === socket) gone(error.code ?? error.message)
    })
    opened.on('close', () => {
      if (opened === socket) gone('closed')
    })
  }
  const drop = (): void => {
    const dropped = socket
    socket = null
    dropped?.destroy()
  }
  const phase = (): Phase => (!connected ? 'connect' : !upgraded && reader.started ? 'response' : 'sent')
  const receive = (chunk: Buffer): void => {
    course.progressAt = performance.now()
    if (!upgraded) {
      const reading = reader.push(chunk)
      if (reading === 'incomplete') return
      if (reading === 'invalid') return gone('not HTTP')
      if (reader.status !== 101) return gone(`status ${reader.status}`)
      upgraded = true
      unread = reader.surplus ?? unread
      answered()
    } else unread = Buffer.concat([unread, chunk])
    const read = readFrames(unread)
    if (read === null) return gone('not a frame')
    unread = read.rest
    for (const frame of read.frames) {
      if (frame.opcode === OPCODE.ping) socket?.write(clientFrame(OPCODE.pong, frame.payload))
      else if (frame.opcode === OPCODE.close) return gone(`close frame ${closeCode(frame.payload)}`, true)
      else if (frame.opcode === OPCODE.text && course.busy) {
        if (frame.payload.toString() !== job?.id) return gone('another echo')
        answered()
      }
    }
  }
  const answered = (): void => {
    const now = performance.now()
    course.answered(now)
    if (job !== null) recorder.ok(job, now - course.since)
    if (course.finishing) drop()
    course.pause(false)
  }
  const gone = (reason: string, announced = false): void => {
    if (connected) recorder.closed(announced ? 'announced' : course.busy ? 'busy' : 'idle')
    if (course.busy) return fail(reason)
    drop()
    if (settings.afterClose === 'end') course.end()
  }
  const fail = (reason: string): void => {
    course.lost(phase(), reason)
    drop()
    if (settings.afterClose === 'end') course.end()
    else course.pause(true)
  }

  return {
    get ended() {
      return course.ended
    },
    get busy() {
      return course.busy
    },
    get wantingSince() {
      return course.wantingSince
    },
    start: () => {
      if (run.mayStart()) request()
      else course.end()
    },
    finish() {
      course.finishing = true
      if (course.busy) return
      drop()
      course.end()
    },
    abandon() {
      drop()
      course.ended = true
    },
    sweep(now) {
      if (course.busy && now - course.progressAt > settings.hangMs) fail('hang')
    },
  }
}

function closeCode(payload: Buffer): number {
  return payload.length >= 2 ? payload.readUInt16BE(0) : 1005
}

// ---- the books

interface Job {
  id: string
  write: boolean
  bytes: string
}

interface Recorder {
  started(): number
  nextJob(client: number): Job
  connection(): void
  ok(job: Job, latencyMs: number | null): void
  lost(phase: Phase, reason: string): void
  closed(how: 'idle' | 'busy' | 'announced'): void
  error(what: string): void
  stall(ms: number): void
  latency(ms: number): void
  answeredBy(value: string): void
  mark(slice: string | null): void
  totals(clients: readonly Client[], withIds: boolean): Totals
}

interface Book {
  ok: number
  lost: number
  closed: number
  longestStallMs: number
  histogram: Histogram
}

const newBook = (): Book => ({ ok: 0, lost: 0, closed: 0, longestStallMs: 0, histogram: createHistogram() })

function createRecorder(settings: Settings): Recorder {
  const run = Math.random().toString(36).slice(2, 8)
  const began = performance.now()
  const books = new Map<string, Book>()
  const total = newBook()
  let current: Book | null = null
  let requests = 0
  let connections = 0
  const lostBy = { connect: 0, sent: 0, response: 0 }
  const closedBy = { idle: 0, busy: 0, announced: 0 }
  const errors: Record<string, number> = {}
  const writes = { sent: 0, acknowledged: 0, ids: [] as string[] }
  const answeredBy: Record<string, number> = {}
  const increase = (record: Record<string, number>, key: string): void => {
    record[key] = (record[key] ?? 0) + 1
  }

  return {
    started: () => requests,
    nextJob(client) {
      const id = `${run}-${client}-${requests++}`
      const write = settings.write !== null && requests % settings.write.every === 0
      if (write) writes.sent++
      return { id, write, bytes: requestBytes(settings, id, write) }
    },
    connection() {
      connections++
    },
    ok(job, latencyMs) {
      total.ok++
      if (current !== null) current.ok++
      if (latencyMs !== null) this.latency(latencyMs)
      if (!job.write) return
      writes.acknowledged++
      if (settings.keepAcknowledgedIds) writes.ids.push(job.id)
    },
    lost(phase, reason) {
      total.lost++
      if (current !== null) current.lost++
      lostBy[phase]++
      increase(errors, `${phase}: ${reason}`)
    },
    closed(how) {
      total.closed++
      if (current !== null) current.closed++
      closedBy[how]++
    },
    error: (what) => increase(errors, what),
    stall(ms) {
      if (ms > total.longestStallMs) total.longestStallMs = ms
      if (current !== null && ms > current.longestStallMs) current.longestStallMs = ms
    },
    latency(ms) {
      total.histogram.record(ms)
      current?.histogram.record(ms)
    },
    answeredBy: (value) => increase(answeredBy, value),
    mark(slice) {
      if (slice === null) current = null
      else {
        current = books.get(slice) ?? newBook()
        books.set(slice, current)
      }
    },
    totals(clients, withIds) {
      const now = performance.now()
      for (const client of clients) if (client.wantingSince !== null) this.stall(now - client.wantingSince)
      return {
        ...sliceOf(total),
        mode: settings.mode,
        clients: settings.clients,
        alive: clients.filter((client) => !client.ended).length,
        requests,
        unfinished: requests - total.ok - total.lost,
        lostBy: { ...lostBy },
        errors: { ...errors },
        connections,
        closedBy: { ...closedBy },
        writes: { ...writes, ids: withIds ? writes.ids : [] },
        answeredBy: { ...answeredBy },
        durationMs: Math.round(now - began),
        slices: Object.fromEntries([...books].map(([name, book]) => [name, sliceOf(book)])),
      }
    },
  }
}

function sliceOf(book: Book): Slice {
  const { ok, lost, closed, histogram } = book
  return { ok, lost, closed, longestStallMs: Math.round(book.longestStallMs * 10) / 10, latency: histogram.latency() }
}

const WEBSOCKET_KEY = 'dGhlIHNhbXBsZSBub25jZQ==' // the example of RFC 6455; nothing depends on it

function requestBytes(settings: Settings, id: string, write: boolean): string {
  const plan = write && settings.write !== null ? { method: 'POST', headers: {}, ...settings.write } : settings
  const body = plan.body === null ? null : plan.body.replaceAll('{id}', id)
  const headers: Record<string, string> = {
    Host: settings.hostHeader,
    'X-Request-Id': id,
    ...settings.headers,
    ...plan.headers,
  }
  if (settings.mode === 'websocket') {
    headers['Connection'] = 'Upgrade'
    headers['Upgrade'] = 'websocket'
    headers['Sec-WebSocket-Version'] = '13'
    headers['Sec-WebSocket-Key'] = WEBSOCKET_KEY
  } else if (settings.mode !== 'keepalive') headers['Connection'] = 'close'
  if (body !== null) headers['Content-Length'] = String(Buffer.byteLength(body))
  let head = `${plan.method} ${plan.path.replaceAll('{id}', id)} HTTP/1.1\r\n`
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`
  return `${head}\r\n${body ?? ''}`
}

function settingsOf(options: LoadOptions): Settings {
  const { clients, port, socketPath, host = '127.0.0.1', thinkMs = 0 } = options
  if (!Number.isInteger(clients) || clients < 1 || clients > CLIENTS_MAX) {
    throw new RangeError(`clients: expected 1 to ${CLIENTS_MAX}, got ${clients}`)
  }
  if ((port === undefined) === (socketPath === undefined)) throw new TypeError('expected either `port` or `socketPath`')
  const maxMs = options.maxMs ?? MAX_MS
  if (!(maxMs > 0 && maxMs <= MAX_MS_LIMIT))
    throw new RangeError(`maxMs: expected at most ${MAX_MS_LIMIT}, got ${maxMs}`)
  return {
    mode: options.mode,
    clients,
    host,
    address: socketPath !== undefined ? { path: socketPath } : { host, port: port ?? 0 },
    hostHeader: socketPath !== undefined ? 'localhost' : `${host.includes(':') ? `[${host}]` : host}:${port}`,
    path: options.path ?? '/',
    method: options.method ?? 'GET',
    body: options.body ?? null,
    headers: options.headers ?? {},
    think: (typeof thinkMs === 'number' ? [thinkMs, thinkMs] : thinkMs).map((ms) => ms * CALM) as [number, number],
    hangMs: options.hangMs ?? HANG_MS,
    failurePauseMs: options.failurePauseMs ?? FAILURE_PAUSE_MS,
    afterClose: options.afterClose ?? 'end',
    maxRequests: options.maxRequests ?? Number.POSITIVE_INFINITY,
    maxMs,
    write: options.write ?? null,
    keepAcknowledgedIds: options.keepAcknowledgedIds ?? false,
    tally: options.tally ?? null,
    expectTail: options.expectTail ?? null,
  }
}

// ---- as a program

if (import.meta.main) {
  const [flag, json] = process.argv.slice(2)
  const send = process.send?.bind(process)
  if (flag === '--ipc' && send !== undefined)
    serveOrders((report, sent) => void send(report, undefined, undefined, () => sent?.()))
  else if (flag === '--json' && json !== undefined) {
    const load = startLoad(JSON.parse(json) as LoadOptions)
    process.stdin.resume().on('end', () => void load.stop())
    process.once('SIGINT', () => void load.stop())
    process.once('SIGTERM', () => void load.stop())
    process.stdout.write(`${JSON.stringify(await load.done)}\n`)
    process.stdin.destroy()
  } else {
    process.stderr.write(`usage: node test/lab/load.ts --json '{"mode":"fresh","clients":64,"port":8080}'\n`)
    process.exitCode = 2
  }
}
