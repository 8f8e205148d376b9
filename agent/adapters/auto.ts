// `import 'baton-kit/auto'` as the first line of an application: the agent then serves every HTTP server that listens later. For
// frameworks that listen by themselves (NestJS, Next.js), and for authors who want to change one line only.
// It replaces `net.Server.prototype.listen`, which every way of listening goes through; node:cluster does the same.
// Must hold: a worker thread and a child process listen as they would without Baton. A process of
// node:cluster listens as node:cluster wants, and its endpoints say why nothing is updated.

import cluster from 'node:cluster'
import type { IncomingMessage } from 'node:http'
import { isIP, type ListenOptions as NetListenOptions, Server } from 'node:net'
import { networkInterfaces } from 'node:os'
import { isMainThread } from 'node:worker_threads'
import { type Agent, embed } from '../embed.ts'
import { EXIT, reasonOf } from '../words/errors.ts'
import { HOLDER } from '../words/lent.ts'
import type { InheritedListener } from '../words/wire.ts'
import { isDatagrams, keepDatagrams } from '../sockets/datagrams.ts'
import { keyOf, type ListenerSpec, speaksHttp } from '../sockets/listeners.ts'
import { spareNames } from '../sockets/clearing.ts'
import { letGoUnlessServing } from '../sockets/last-resort.ts'
import { answerQuestions, asks, endQuestion, isUnused, placeIn } from '../sockets/questions.ts'
import { keepHeldSockets, storedNameOf } from '../sockets/store.ts'
import type { WebSocketLike } from '../handover/carry/websocket.ts'
import { isRehearsal } from '../handover/turn.ts'
import { inheritanceHere } from '../handover/inheritance.ts'
import { ownValues, type Memory } from '../handover/values.ts'
import { ownRelease, ownStart } from '../own.ts'
import type { StopReason } from '../settings.ts'
import { attach } from './attach.ts'
import { takeSignalHandlers } from './on-signal.ts'

export interface Auto extends Pick<Agent, 'carry' | 'carried' | 'singleton'>, Memory {
  /** resolves once the first servers of this process serve; never if none listens, or if one finds its port taken */
  readonly agent: Promise<Agent>
  /** Registers `act`, which is called when this process stops accepting: there the author ends what cannot move. */
  onDrain(act: () => void): void
  /** called when this process accepts again after `onDrain`, because the next release was reverted */
  onResume(act: () => void): void
  /** called last before this process exits, with the reason: close the database */
  onStop(act: (reason: StopReason) => void | Promise<void>): void
}

interface State extends Auto {
  /** set before the first connection */
  embedded: Agent | null
  drains: (() => void)[]
  resumes: (() => void)[]
  stops: ((reason: StopReason) => void | Promise<void>)[]
}

/** the public part of a `ws` WebSocketServer */
export interface WebSocketServerLike {
  on(event: 'connection', heard: (ws: WebSocketLike, request: IncomingMessage) => void): unknown
}

export interface CarryAllOptions {
  state?(ws: WebSocketLike, request: IncomingMessage): unknown
}

type Listen = typeof Server.prototype.listen

/** what `listen()` accepts; frameworks pass `false` for what they do not have */
type ListenOptions = Omit<NetListenOptions, 'port' | 'path'> & { fd?: unknown; port?: unknown; path?: unknown }

type Place = Omit<ListenerSpec, 'server'>

interface Wanted extends ListenerSpec {
  /** arguments of `listen()`, without the callback */
  args: unknown[]
}

const { listen } = Server.prototype

/** how long a successor waits for a server that its predecessor had: this release may no longer have that server */
const ONE_MORE_MS = 1000

/** one state for each process, even if the package is loaded both as ESM and by require */
const STATE = Symbol.for('baton.auto')
const shared = globalThis as { [STATE]?: State }

const auto: State = (shared[STATE] ??= install())
export const agent: Promise<Agent> = auto.agent
/** As `agent.carry` of docs/author/websockets.md. Does nothing in a worker or a child, which hands nothing over. */
export const carry: Auto['carry'] = (request, options) => auto.carry(request, options)
export const carried: Auto['carried'] = (request) => auto.carried(request)
/** Registers every WebSocket of a `ws` server, as `carry` does one. `state`: what the next process's `carried(request)` gives. */
export function carryAll(server: WebSocketServerLike, { state = () => undefined }: CarryAllOptions = {}): void {
  server.on('connection', (ws, request) => carry(request, { ws, state: () => state(ws, request) }))
}
/**
 * As `agent.singleton`, `agent.handOver` and `agent.inherited` of docs/author/background-work.md. For the main thread of the service: in a worker or a
 * child `singleton` never starts its work, `handOver` hands nothing over, and `inherited` gives undefined.
 */
export const singleton: Auto['singleton'] = (...work) => auto.singleton(...work)
export const handOver: Auto['handOver'] = (key, value) => auto.handOver(key, value)
export const inherited: Auto['inherited'] = (key) => auto.inherited(key)
export const onDrain: Auto['onDrain'] = (act) => auto.onDrain(act)
export const onResume: Auto['onResume'] = (act) => auto.onResume(act)
export { isRehearsal }
export const onStop: Auto['onStop'] = (act) => auto.onStop(act)

function install(): State {
  let begun: (agent: Agent | null) => void = () => {} // not `Promise.withResolvers`: Node 20 serves too, and has none
  const first = new Promise<Agent | null>((served) => (begun = served))
  const agent = first.then((served) => served ?? new Promise<never>(() => {}))
  const state: State = {
    agent,
    embedded: null,
    drains: [],
    resumes: [],
    stops: [],
    carry: (request, options) => state.embedded?.carry(request, options),
    carried: (request) => state.embedded?.carried(request),
    singleton: (...work) => void agent.then((ready) => ready.singleton(...work)),
    handOver: (key, value) => ownValues().handOver(key, value),
    // a worker has a copy of the environment, but the values are the main thread's, and nobody tells a worker when they are complete
    inherited: async (key) => (isMainThread ? await ownValues().inherited(key) : undefined),
    onDrain: (act) => void state.drains.push(act),
    onResume: (act) => void state.resumes.push(act),
    onStop: (act) => void state.stops.push(act),
  }
  const isChild = !isMainThread || (ownStart()?.isChild === true && !cluster.isWorker)
  if (!isChild && ownRelease().onStop === 'SIGTERM') state.stops.push(takeSignalHandlers())
  if (!isChild) takeListening(state, first, begun)
  return state
}

/** `first` resolves to the agent of the servers that listen first; to null if they could not and the application goes on. */
function takeListening(state: State, first: Promise<Agent | null>, served: (agent: Agent | null) => void): void {
  const held = pausedUntil(first)
  const { servers: most } = ownRelease()
  const gathered: Wanted[] = []
  const taken = new WeakSet<Server>()
  let begun = false
  const begin = () => {
    if (begun) return
    begun = true
    void serve(gathered, state).then(served)
  }
  const left = inheritanceHere()?.listeners ?? []
  const inherited = most === null ? left : []
  const keys = [...held, ...left.filter((one) => !isDatagrams(one)).map(({ key }) => key)]
  const questions = answerQuestions(keys)
  const unspare = spareNames(keys.flatMap((key) => placeIn(key).path ?? []))
  if (most === null || process.env[HOLDER]) keepDatagrams(inherited)
  const soon = most === null ? whenGathered(inherited, begin) : () => void (gathered.length === most && begin())
  const take = (spec: Wanted): void => {
    const { server } = spec
    questions.claim(spec)
    if (spec.path !== undefined) unspare(spec.path)
    const isNext = most === null || gathered.length < most
    if (!isNext || !isHandedOver(server, spec, most, gathered.length)) {
      if (!isNext && speaksHttp(server)) warnOfOneMore(spec, most ?? 0)
      return listenPlainly(spec)
    }
    taken.add(server)
    server.once('close', () => taken.delete(server))
    // serve every later server by itself: if it does not get its port, its author decides, and the others go on
    if (begun || !speaksHttp(server)) void serveMore(spec, first)
    else gathered.push(spec)
    soon(spec)
  }
  // The first server that listens would begin the takeover, or would be lent the socket of a holder in another container.
  const isAwaited = held.length > 0 || left.length > 0 || Boolean(process.env[HOLDER])
  Server.prototype.listen = function (this: Server, ...args: unknown[]): Server {
    const where = taken.has(this) || this.listening ? null : placeOf(args)
    if (where === null) {
      if (taken.has(this)) endQuestion(this)
      return Reflect.apply(listen, this, args) as Server
    }
    const heard = args.at(-1)
    const isHeard = typeof heard === 'function'
    if (isHeard) this.once('listening', heard as () => void)
    const spec: Wanted = { server: this, args: isHeard ? args.slice(0, -1) : args, ...where }
    const mayAsk = !speaksHttp(this) || this.listenerCount('request') === 0 // it answers nobody
    const isPort = isAwaited && mayAsk && where.path === undefined
    if (isPort && (questions.isLeft(where) || (!begun && isUnused(where))))
      void asks(this, where).then((isOpen) => isOpen && take(spec))
    else if (isPort && !begun && where.port !== 0 && isIP(where.host ?? '') > 0) listenPlainly(spec) // Node says why it cannot
    else take(spec)
    return this
  } as Listen
}

/** Keys of the sockets that are held for this process, which lets them go if it ends before it serves. */
function pausedUntil(first: Promise<Agent | null>): string[] {
  const held = keepHeldSockets()
  const serves = letGoUnlessServing(held, storedNameOf)
  void first.then((agent) => agent !== null && serves())
  return held
}

/** `most`: how many HTTP servers the author wants handed over; null: everything that listens. `before`: how many listen already. */
function isHandedOver(server: Server, { port, path }: Place, most: number | null, before: number): boolean {
  if (most !== null) return speaksHttp(server)
  if (speaksHttp(server)) return port !== 0 || before === 0 // a further server on "any port" may get another port
  return path === undefined && port !== 0 // a unix socket that is not for HTTP is between a program and its children
}

/**
 * Returns what to call for each server that listens. The first process begins with the servers of one turn of the event loop. A
 * successor waits for all servers that its predecessor had: the predecessor probes it as soon as it has named its servers.
 */
function whenGathered(inherited: readonly InheritedListener[], begin: () => void): (spec: ListenerSpec) => void {
  const expected = new Set(inherited.filter((one) => !isDatagrams(one)).map(({ key }) => key))
  if (expected.size === 0) return () => void setImmediate(begin)
  let timer: NodeJS.Timeout | undefined
  let hasHttp = false // the predecessor probes by HTTP
  return (spec) => {
    clearTimeout(timer)
    expected.delete(keyOf(spec))
    hasHttp ||= speaksHttp(spec.server)
    if (expected.size === 0) begin()
    else if (hasHttp) timer = setTimeout(begin, ONE_MORE_MS)
  }
}

/** The extra server does listen, but a successor may find its port taken. */
function warnOfOneMore({ port, path }: Place, most: number): void {
  const message = `baton hands over ${most} of the servers of this process, and one more listens on ${path ?? port}: an update may find that taken; without \`servers\` in baton.config.json it is handed over too`
  if (port !== 0) process.emitWarning(message)
}

/** Warns if the application handles SIGTERM: more than the one handler of the agent. */
function warnOfUncalled(): void {
  if (process.listenerCount('SIGTERM') < 2) return
  process.emitWarning(
    'the application handles SIGTERM, which an update does not send: what it saves there is lost; `"onStop": "SIGTERM"` in baton.config.json has an update call that',
  )
}

/** If Baton does not serve, the server listens as Node does. */
async function serveMore(spec: Wanted, first: Promise<Agent | null>): Promise<void> {
  const { server } = spec
  try {
    const agent = await first
    if (agent !== null && speaksHttp(server)) attach(agent, server)
    if (agent === null || cluster.isWorker) listenPlainly(spec)
    else await agent.serve([spec])
  } catch (cause) {
    if (server.listenerCount('error') === 0) fail(heardOf(cause), server, reasonOf(cause))
    else server.emit('error', heardOf(cause))
  }
}

/** If a server cannot listen, it gets an `error` event. If it handles that, the others listen as Node does; the result is null. */
async function serve(specs: readonly Wanted[], state: State): Promise<Agent | null> {
  try {
    const agent = await embed({
      onDrain: () => together(state.drains),
      onResume: () => together(state.resumes),
      onStop: (reason) => {
        if (reason === 'handover' && state.stops.length === 0) warnOfUncalled()
        return inTurn(state.stops, reason)
      },
    })
    state.embedded = agent
    for (const { server } of specs) if (speaksHttp(server)) attach(agent, server)
    // A worker of node:cluster: its endpoints say why they update nothing, and node:cluster listens.
    if (cluster.isWorker) for (const spec of specs) listenPlainly(spec)
    else await agent.serve([...specs])
    return agent
  } catch (cause) {
    // Servers are bound one after the other, so the first that does not listen is the one that failed.
    const [failed, ...others] = specs.filter(({ server }) => !server.listening)
    if (failed === undefined || failed.server.listenerCount('error') === 0) {
      fail(state.embedded === null ? cause : heardOf(cause), failed?.server, reasonOf(cause))
      return null
    }
    for (const other of others) listenPlainly(other)
    // the application decides what to do about it
    failed.server.emit('error', state.embedded === null ? cause : heardOf(cause))
    return null
  }
}

/**
 * Fails as Node does, by an `error` event that nobody hears, and not by a rejected promise: many applications log those and go on. One that
 * goes on all the same has the reason in its log, and its exit code says that it has failed.
 */
function fail(heard: unknown, server: Server | undefined, reason: string): void {
  process.stderr.write(`baton: ${reason}\n`)
  process.exitCode = EXIT.unexpected
  process.nextTick(() => {
    if (server === undefined) throw heard
    server.emit('error', heard)
  })
}

/** As without Baton. */
function listenPlainly({ server, args }: Wanted): void {
  endQuestion(server)
  Reflect.apply(listen, server, args)
}

/** What a server's `error` event gives without Baton, with the code that authors look at. */
function heardOf(cause: unknown): unknown {
  return cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
}

/** Calls all at once: this process gives its connections away meanwhile, and a slow hook must not delay the others. */
async function together(acts: readonly (() => void)[]): Promise<void> {
  const ends = await Promise.allSettled(acts.map(async (act) => act()))
  throwAny(ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : [])))
}

/** Calls one after the other, and all of them even if one fails. */
async function inTurn(acts: State['stops'], reason: StopReason): Promise<void> {
  const failures: unknown[] = []
  for (const act of acts) {
    try {
      await act(reason)
    } catch (cause) {
      failures.push(cause)
    }
  }
  throwAny(failures)
}

function throwAny(failures: readonly unknown[]): void {
  if (failures.length > 1) throw new AggregateError(failures, failures.map(reasonOf).join('; '))
  if (failures.length > 0) throw failures[0]
}

/**
 * The address in the arguments of `listen()`; null if that is neither a TCP port nor a unix socket:
 * https://nodejs.org/api/net.html#serverlisten
 */
function placeOf(args: readonly unknown[]): Place | null {
  const [first, second, third] = args
  if (typeof first === 'object' && first !== null) {
    if ('_handle' in first || 'handle' in first) return null
    const { fd, port, host, path, backlog, readableAll, writableAll } = first as ListenOptions
    if (typeof fd === 'number' && fd >= 0) return null
    const isAnyPort = 'port' in first && (port ?? null) === null
    if (isAnyPort || typeof port === 'number' || (typeof port === 'string' && /^\d+$/.test(port)))
      return { port: Number(port ?? 0), host: host ?? ANY, ...backlogOf(backlog) }
    const mode = modeHere() | (readableAll === true ? 0o444 : 0) | (writableAll === true ? 0o222 : 0)
    return typeof path === 'string' && path !== '' ? { path, mode, ...backlogOf(backlog) } : null
  }
  if (typeof first === 'string' && !/^\d+$/.test(first)) return { path: first, mode: modeHere(), ...backlogOf(second) }
  if (typeof first === 'number' || typeof first === 'string') {
    const host = typeof second === 'string' ? second : ANY
    return { port: Number(first), host, ...backlogOf(typeof second === 'number' ? second : third) }
  }
  return first === undefined || typeof first === 'function' ? { port: 0, host: ANY } : null
}

/** Node listens on every address if no host is named */
const ANY = Object.values(networkInterfaces()).some((all) => all?.some(({ family }) => family === 'IPv6'))
  ? '::'
  : '0.0.0.0'

/** Of a unix socket: for the user and the group, and for others too if the application's umask leaves them the right to connect. */
function modeHere(): number {
  return (process.umask() & 0o002) === 0 ? 0o666 : 0o660
}

function backlogOf(backlog: unknown): { backlog?: number } {
  return typeof backlog === 'number' ? { backlog } : {}
}
