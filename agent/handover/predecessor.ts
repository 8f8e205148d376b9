// The old process's side of a handover. At any moment one or two processes of the service exist, and one of them accepts:
// until the successor has proved itself this one can take everything back at once.
//
//   spawn -> hello -> probe -> accept -> ready -> half the probation -> move and drain -> the other half -> commit
//   anything wrong before `ready`: kill it; this process never stopped accepting
//   anything wrong after `ready`: kill it; listen again on the spare; nothing in the accept queue was lost

import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { request, type RequestOptions } from 'node:http'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../errors.ts'
import type { Log } from '../log.ts'
import { startTimeOf } from '../process.ts'
import type { HandoverReport } from '../state.ts'
import { drain } from './connections.ts'
import { closerOf } from './internals.ts'
import { inheritableFd, listenAgain, type Listener, stopAccepting } from './listeners.ts'
import {
  asToPredecessor,
  envelope,
  type Inheritance,
  INHERITANCE,
  PROBE_PATH,
  type ProbeAnswer,
  type ToPredecessor,
  type ToSuccessor,
} from './messages.ts'
import { notifySystemd } from './systemd.ts'

export interface HandoverOptions {
  command: { file: string; args: string[] }
  listeners: Listener[]
  service: string
  /** what the successor must say it is */
  tag: string
  operationId: string
  /** asked on the private socket before the successor may accept, must answer 2xx; null where the author names none */
  healthPath: string | null
  readyMs: number
  drainMs: number
  probationMs: number
  /** a successor that is silent for so long hangs */
  hangMs: number
  log: Log
  /** the author's hook: end what cannot move */
  onDrain: () => void
  /** called when the successor accepts connections: its probation begins */
  onAccepting?: () => void
  /** filled in as the handover goes on, and right in a failed one too */
  report: HandoverReport
}

export interface Handover {
  /** a person or systemd stopped the service during probation: nothing is proved, the next start goes on with it */
  stopped: boolean
  /** Tells the successor that it is on its own now. The caller exits afterwards. */
  commit(): Promise<void>
}

interface Successor {
  child: ChildProcess
  privateSocket: string
  nonce: string
  /** resolves once, with the reason, when it has exited, failed or disconnected */
  gone: Promise<string>
  /** resolves when the message has come; rejects when the successor is gone first */
  heard(type: ToPredecessor['type']): Promise<void>
  lastSign(): number
  tell(message: ToSuccessor, socket?: Socket): Promise<boolean>
  /** false where the successor is gone before it has acknowledged the connection */
  adopted(id: number): Promise<boolean>
  isStopping(): boolean
}

/** Resolves when the successor has passed probation. Rejects when this process serves again: restart_failed, probation_failed. */
export async function handOver(options: HandoverOptions): Promise<Handover> {
  const { listeners, log, report } = options
  const began = performance.now()
  const directory = await makePrivateDirectory()
  try {
    const successor = await introduce(options, directory)
    report.switchMs = Math.round(performance.now() - began)
    await notifySystemd([`MAINPID=${successor.child.pid}`, `STATUS=handed over to ${options.tag}, on probation`])
    for (const listener of listeners) stopAccepting(listener)
    options.onAccepting?.()
    const abandon = new AbortController()
    // before anything else hears of it: no connection may be given to a process that is gone
    void successor.gone.then(() => abandon.abort())
    let draining = Promise.resolve()
    try {
      // New connections first: a release that dies at once takes none of the clients with it that are still here. Then all
      // of them, while there is still time to take them back: a release must prove itself under the whole load.
      await probation(successor, options, options.probationMs / 2)
      options.onDrain()
      draining = drain(listeners, giveTo(successor), options.drainMs, abandon.signal).then((drained) => {
        report.moved = drained.moved
        report.cut = drained.cut
        log({ event: 'drained', ...drained })
      })
      await probation(successor, options, options.probationMs / 2, draining)
      await probe(successor, options)
    } catch (cause) {
      abandon.abort()
      if (successor.isStopping()) {
        // the successor is the service now, so this process just leaves
        return { stopped: true, commit: async () => {} }
      }
      const reason = await whyOf(cause, successor)
      log({ event: 'reverting', message: reason })
      // first the main pid: a unit whose main process is gone, with this one not claiming it, ends and is not restarted
      await notifySystemd([`MAINPID=${process.pid}`, `STATUS=reverting from ${options.tag}`])
      await end(successor)
      for (const listener of listeners) await listenAgain(listener)
      await draining.catch(() => {})
      throw new BatonError('probation_failed', `${options.tag} failed in probation: ${reason}`, { cause })
    }
    return { stopped: false, commit: () => commit(successor, log, options.tag) }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** From spawn to `ready`. On any failure the successor is ended and restart_failed thrown: this process never stopped accepting. */
async function introduce(options: HandoverOptions, directory: string): Promise<Successor> {
  let successor: Successor | null = null
  try {
    successor = spawnSuccessor(options, directory)
    options.log({ event: 'successor', pid: successor.child.pid ?? 0, tag: options.tag, doing: 'spawned' })
    const late = new AbortController()
    const deadline = sleep(options.readyMs, undefined, { signal: late.signal }).then(() => {
      throw new Error(`it was not ready within ${options.readyMs} ms`)
    })
    deadline.catch(() => {})
    const ready = async (candidate: Successor) => {
      const hello = candidate.heard('hello')
      // made ready while the successor starts: the first request of a process costs it some milliseconds
      await probe(candidate, options, hello)
      await candidate.tell({ type: 'accept' })
      await candidate.heard('ready')
    }
    try {
      await Promise.race([ready(successor), deadline])
    } finally {
      late.abort()
    }
    options.log({ event: 'successor', pid: successor.child.pid ?? 0, tag: options.tag, doing: 'accepting' })
    return successor
  } catch (cause) {
    const reason = successor === null ? reasonOf(cause) : await whyOf(cause, successor)
    if (successor !== null) await end(successor)
    throw new BatonError('restart_failed', `${options.tag} did not take over: ${reason}`, { cause })
  }
}

/** Passes after `spanMs`, and not before `draining` has, in which the successor lived, answered and was healthy. */
async function probation(
  successor: Successor,
  options: HandoverOptions,
  spanMs: number,
  draining: Promise<void> = Promise.resolve(),
): Promise<void> {
  const over = Date.now() + spanMs
  const lookEveryMs = Math.min(1000, Math.max(100, spanMs / 4))
  let failures = 0
  let isDrained = false
  const drained = draining.finally(() => (isDrained = true)).catch(() => {})
  while (Date.now() < over || !isDrained) {
    const left = over - Date.now()
    const pause = left > 0 ? sleep(Math.min(lookEveryMs, left)) : Promise.race([sleep(lookEveryMs), drained])
    await Promise.race([pause, successor.gone.then(rejected)])
    // Signs of life may wait in this process's own queue, if it was this process that stood still: read them first.
    await new Promise((resolve) => setImmediate(resolve))
    const silentMs = Date.now() - successor.lastSign()
    if (silentMs > options.hangMs) throw new Error(`it gave no sign of life for ${silentMs} ms`)
    try {
      await Promise.race([probe(successor, options), successor.gone.then(rejected)])
      failures = 0
    } catch (cause) {
      if (successor.child.exitCode !== null || successor.child.signalCode !== null || successor.isStopping())
        throw cause
      if (++failures >= 3) throw cause
    }
  }
  await draining
}

/** Asks the successor on its private socket, once `listens` has resolved, who it is and whether it is healthy. */
async function probe(
  successor: Successor,
  options: HandoverOptions,
  listens: Promise<void> = Promise.resolve(),
): Promise<void> {
  const timeoutMs = Math.min(options.readyMs, options.hangMs)
  const asking = (path: string) => ask(successor.privateSocket, path, timeoutMs, listens)
  const [identity, healthy] = [asking(PROBE_PATH), options.healthPath === null ? null : asking(options.healthPath)]
  healthy?.catch(() => {}) // who it is comes first
  const who = await identity
  if (who.status !== 200) throw new Error(`expected status 200 from its probe, got ${who.status}`)
  const answer = JSON.parse(who.body) as ProbeAnswer
  if (answer.nonce !== successor.nonce) throw new Error('another process answers on its private socket')
  if (answer.service !== options.service || answer.tag !== options.tag) {
    throw new Error(`expected ${options.service} ${options.tag}, it says it is ${answer.service} ${answer.tag}`)
  }
  const health = await healthy
  if (health === null) return
  if (health.status < 200 || health.status > 299) {
    throw new Error(`expected status 2xx from ${options.healthPath}, got ${health.status}`)
  }
}

function spawnSuccessor(options: HandoverOptions, directory: string): Successor {
  const nonce = randomBytes(16).toString('hex')
  const descriptors: number[] = []
  const inheritance: Inheritance = {
    nonce,
    operationId: options.operationId,
    listeners: options.listeners.map((listener) => {
      const fd = inheritableFd(listener)
      if (fd === null) throw new Error(`the listening socket of ${listener.key} has no descriptor`)
      // twice: one to accept on, and the spare that stays behind when that one is closed
      const accept = 3 + descriptors.length
      descriptors.push(fd, fd)
      return { key: listener.key, accept, spare: accept + 1 }
    }),
    privateDirectory: directory,
    predecessor: { pid: process.pid, startTime: startTimeOf(process.pid) },
    patienceMs: options.probationMs + options.drainMs + options.readyMs + 10_000,
  }
  // spawn, never fork: a single executable that forks itself runs its own main with a shifted argv
  const child = spawn(options.command.file, options.command.args, {
    stdio: ['ignore', 'inherit', 'inherit', ...descriptors, 'ipc'],
    env: { ...process.env, [INHERITANCE]: JSON.stringify(inheritance) },
    // its own session: a Ctrl-C meant for the predecessor's terminal group must not kill the successor
    detached: true,
    serialization: 'json',
  })
  return follow(child, join(directory, 'probe.sock'), nonce)
}

function follow(child: ChildProcess, privateSocket: string, nonce: string): Successor {
  const awaited = new Map<string, () => void>()
  const came = new Set<string>()
  const acknowledgements = new Map<number, () => void>()
  let sign = Date.now()
  let stopping = false
  let failure: string | null = null
  const gone = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(`it could not be started: ${reasonOf(error)}`))
    child.once('exit', (code, signal) => {
      resolve(failure ?? (signal === null ? `it exited with code ${code}` : `it was ended by ${signal}`))
    })
  })
  child.on('message', (raw) => {
    const message = asToPredecessor(raw)
    if (message === null) return
    sign = Date.now()
    if (message.type === 'adopted') acknowledgements.get(message.id)?.()
    if (message.type === 'failed') failure = `it says: ${message.message.slice(0, 2000)}`
    if (message.type === 'stopping') stopping = true
    came.add(message.type)
    awaited.get(message.type)?.()
  })
  const heard = (type: ToPredecessor['type']) =>
    Promise.race([
      new Promise<void>((resolve) => {
        if (came.has(type)) resolve()
        else awaited.set(type, resolve)
      }),
      gone.then(rejected),
    ])
  return {
    child,
    privateSocket,
    nonce,
    gone,
    heard,
    lastSign: () => sign,
    isStopping: () => stopping,
    tell: (message, socket) =>
      new Promise((resolve) => {
        if (!child.connected) return resolve(false)
        child.send(envelope(message), socket, {}, (error) => resolve(error === null))
      }),
    adopted: (id) =>
      Promise.race([
        new Promise<boolean>((resolve) => {
          acknowledgements.set(id, () => {
            acknowledgements.delete(id)
            resolve(true)
          })
        }),
        gone.then(() => false),
      ]),
  }
}

function giveTo(successor: Successor): (listener: number, socket: Socket) => Promise<boolean> {
  let id = 0
  return async (listener, socket) => {
    const own = ++id
    const close = closerOf(socket)
    const adopted = successor.adopted(own)
    // not awaited: what Node still has in its queue when the successor is killed is neither sent nor refused
    const sent = successor.tell({ type: 'connection', listener, id: own }, socket).then((isSent) => isSent && adopted)
    if (await Promise.race([adopted, sent])) return true
    close()
    return false
  }
}

async function commit(successor: Successor, log: Log, tag: string): Promise<void> {
  await successor.tell({ type: 'commit' })
  await Promise.race([successor.heard('committed').catch(() => {}), sleep(2000)])
  log({ event: 'successor', pid: successor.child.pid ?? 0, tag, doing: 'committed' })
}

/** Kills the successor, hung or not, and waits until the kernel has taken it away: nobody else must accept. */
async function end(successor: Successor): Promise<void> {
  successor.child.kill('SIGKILL')
  await Promise.race([successor.gone, sleep(5000)])
  if (successor.child.connected) successor.child.disconnect()
}

/** A connection that breaks says little: where the successor has died in this moment, say that. */
async function whyOf(cause: unknown, successor: Successor): Promise<string> {
  return await Promise.race([successor.gone, sleep(50).then(() => reasonOf(cause))])
}

function ask(
  socketPath: string,
  path: string,
  timeoutMs: number,
  listens: Promise<void>,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    // without an agent: the first one of a process compiles what it needs for TLS names, 7 ms here
    const createConnection: RequestOptions['createConnection'] = (_options, connected) => {
      listens.then(() => connected(null, connect({ path: socketPath, timeout: timeoutMs })), reject)
      return undefined
    }
    const asked = request({ path, createConnection, timeout: timeoutMs }, (response) => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => {
        if (body.length < 65_536) body += part
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }))
      response.on('error', reject)
    })
    asked.on('timeout', () => asked.destroy(new Error(`no answer from ${path} within ${timeoutMs} ms`)))
    asked.on('error', reject)
    asked.end()
  })
}

/** A folder of mode 0700. In the temporary folder: a unix socket's path has at most 107 bytes. */
function makePrivateDirectory(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'baton-'))
}

function rejected(reason: string): never {
  throw new Error(reason)
}
