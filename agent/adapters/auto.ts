// `import 'baton-kit/auto'` as the first line of an application: the agent then serves every HTTP server that listens later. For
// frameworks that listen by themselves (NestJS, Next.js), and for authors who want to change one line only.
// It replaces `net.Server.prototype.listen`, which every way of listening goes through; node:cluster does the same.
// Must hold: a worker thread and a child process listen as they would without Baton. A process of
// node:cluster listens as node:cluster wants, and its endpoints say why nothing is updated.

import cluster from 'node:cluster'
import type { IncomingMessage } from 'node:http'
import { isIP, Server } from 'node:net'
import { networkInterfaces } from 'node:os'
import { isMainThread } from 'node:worker_threads'
import type { Agent } from '../embed.ts'
import { reasonOf } from '../words/errors.ts'
import { HOLDER } from '../words/lent.ts'
import { isDatagrams, keepDatagrams } from '../sockets/datagrams.ts'
import { type ListenerSpec, speaksHttp } from '../sockets/listeners.ts'
import { spareNames } from '../sockets/clearing.ts'
import { letGoUnlessServing } from '../sockets/last-resort.ts'
import { answerQuestions, asks, endQuestion, isUnused, placeIn } from '../sockets/questions.ts'
import { keepHeldSockets } from '../sockets/store.ts'
import type { Authorize } from '../http/admit.ts'
import type { WebSocketLike } from '../handover/carry/websocket.ts'
import { isTrial } from '../handover/turn.ts'
import { inheritanceHere } from '../handover/inheritance.ts'
import { ownValues, type Memory } from '../handover/values.ts'
import { ownWorks, type WorkCalls } from '../handover/works.ts'
import { ownRelease, ownStart } from '../own.ts'
import type { EmbedOptions, StopReason } from '../settings.ts'
import { ownWords } from '../update/own-command.ts'
import { takeSignalHandlers } from './on-signal.ts'
import { type ListenOptions, startWith, type Wanted } from './start.ts'

export interface Auto extends Pick<Agent, 'carry' | 'carried' | 'singleton'>, Memory, WorkCalls {
  /** resolves once servers of this process serve; never if none does */
  readonly agent: Promise<Agent>
  /** Registers `act`, which is called when this process stops accepting: there the author ends what cannot move. */
  onDrain(act: () => void): void
  /** called when this process accepts again after `onDrain`, because the next release was reverted */
  onResume(act: () => void): void
  /** Registers the application's own login, as `authorize` of `embed()`. */
  authorize(act: Authorize): void
  /** called last before this process exits, with the reason: close the database */
  onStop(act: (reason: StopReason) => void | Promise<void>): void
}

interface State extends Auto {
  /** set before the first connection */
  embedded: Agent | null
  authorized: Authorize | null
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

type Place = Omit<ListenerSpec, 'server'>

const { listen } = Server.prototype

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
/** As `agent.busy` and `agent.whenQuiet` of docs/author/background-work.md. In a worker or a child no switch knows of the work. */
export const busy: Auto['busy'] = auto.busy
export const whenQuiet: Auto['whenQuiet'] = auto.whenQuiet
export const authorize: Auto['authorize'] = (act) => auto.authorize(act)
export const onDrain: Auto['onDrain'] = (act) => auto.onDrain(act)
export const onResume: Auto['onResume'] = (act) => auto.onResume(act)
export { isTrial }
export { progress } from '../handover/progress.ts'
export const onStop: Auto['onStop'] = (act) => auto.onStop(act)

function install(): State {
  let served: (agent: Agent) => void = () => {} // not `Promise.withResolvers`: Node 20 serves too, and has none
  const agent = new Promise<Agent>((resolve) => (served = resolve))
  const state: State = {
    agent,
    embedded: null,
    authorized: null,
    drains: [],
    resumes: [],
    stops: [],
    carry: (request, options) => state.embedded?.carry(request, options),
    carried: (request) => state.embedded?.carried(request),
    singleton: (...work) => void agent.then((ready) => ready.singleton(...work)),
    handOver: (key, value) => ownValues().handOver(key, value),
    // a worker has a copy of the environment, but the values are the main thread's, and nobody tells a worker when they are complete
    inherited: async (key) => (isMainThread ? await ownValues().inherited(key) : undefined),
    busy: ownWorks().busy,
    whenQuiet: ownWorks().whenQuiet,
    authorize: (act) => void (state.authorized = act),
    onDrain: (act) => void state.drains.push(act),
    onResume: (act) => void state.resumes.push(act),
    onStop: (act) => void state.stops.push(act),
  }
  const isChild = !isMainThread || (ownStart()?.isChild === true && !cluster.isWorker)
  if (!isChild && ownRelease().onStop === 'SIGTERM') state.stops.push(takeSignalHandlers())
  if (!isChild) takeListening(state, served)
  return state
}

/** `served`: called with the agent once servers of this process serve. */
function takeListening(state: State, served: (agent: Agent) => void): void {
  letGoUnlessServing()
  const held = keepHeldSockets()
  const { servers: most } = ownRelease()
  const taken = new WeakSet<Server>()
  const left = inheritanceHere()?.listeners ?? []
  const inherited = most === null ? left : []
  const keys = [...held, ...left.filter((one) => !isDatagrams(one)).map(({ key }) => key)]
  const questions = answerQuestions(keys)
  const unspare = spareNames(keys.flatMap((key) => placeIn(key).path ?? []))
  if (most === null || process.env[HOLDER]) keepDatagrams(inherited)
  const start = startWith({
    most,
    inherited,
    hooks: hooksOf(state),
    embedded: (agent) => (state.embedded = agent),
    served,
    plainly: listenPlainly,
    freed: (server) => taken.delete(server),
  })
  const take = (spec: Wanted): void => {
    const { server } = spec
    questions.claim(spec)
    if (spec.path !== undefined) unspare(spec.path)
    const count = start.count()
    const isNext = most === null || count < most
    if (!isNext || !isHandedOver(server, spec, most, count)) {
      if (!isNext && speaksHttp(server)) warnOfOneMore(spec, most ?? 0)
      return listenPlainly(spec)
    }
    taken.add(server)
    start.add(spec)
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
    const isSilent = !speaksHttp(this) || this.listenerCount('request') === 0 // it answers nobody
    if (!isSilent) refuseSecondService(where) // one without a handler only looks whether the port is free
    const isPort = isAwaited && where.path === undefined
    // a server with a handler that only asks gives its place back to a conductor, but a manager's socket would be its own
    const mayAsk = questions.isLeft(where) ? isSilent || held.length > 0 : isSilent && !start.begun() && isUnused(where)
    if (isPort && mayAsk) void asks(this, where, isSilent).then((isOpen) => isOpen && take(spec))
    else if (isPort && isSilent && !start.begun() && where.port !== 0 && isIP(where.host ?? '') > 0) listenPlainly(spec) // Node says why it cannot
    else take(spec)
    return this
  } as Listen
}

/** An application that does not know a word that was typed may start as if there were none: the service a second time, on the same data. */
function refuseSecondService({ port, path }: Place): void {
  const { word } = ownStart() ?? {}
  if (word === undefined || (path === undefined ? port !== word.port || port === 0 : path !== word.path)) return
  const { service } = ownRelease()
  process.stderr.write(
    `error: the application does not seem to have a command \`${word.typed}\`: it tried to listen on the address of ${service}\nhint: \`${service} ${ownWords('help')}\` lists the operator's commands; to start the service, use \`${service} ${ownWords('start')}\`\n`,
  )
  process.exit(2)
}

/** `most`: how many HTTP servers the author wants handed over; null: everything that listens. `before`: how many listen already. */
function isHandedOver(server: Server, { port, path }: Place, most: number | null, before: number): boolean {
  if (most !== null) return speaksHttp(server)
  if (speaksHttp(server)) return port !== 0 || before === 0 // a further server on "any port" may get another port
  return path === undefined && port !== 0 // a unix socket that is not for HTTP is between a program and its children
}

/** The extra server does listen, but a successor may find its port taken. */
function warnOfOneMore({ port, path }: Place, most: number): void {
  const message = `baton hands over ${most} of this process's servers, but another one listens on ${path ?? port}, and an update may find that address in use; remove \`servers\` from baton.config.json to hand it over as well`
  if (port !== 0) process.emitWarning(message)
}

/** Warns if the application handles SIGTERM: more than the one handler of the agent. */
function warnOfUncalled(): void {
  if (process.listenerCount('SIGTERM') < 2) return
  process.emitWarning(
    'the application handles SIGTERM, but an update does not send it, so anything the handler would save is lost; set `"onStop": "SIGTERM"` in baton.config.json to have updates call the handler',
  )
}

/** As without Baton. */
function listenPlainly({ server, args }: Wanted): void {
  endQuestion(server)
  Reflect.apply(listen, server, args)
}

function hooksOf(state: State): EmbedOptions {
  return {
    authorize: (request) => state.authorized?.(request) ?? null,
    onDrain: () => together(state.drains),
    onResume: () => together(state.resumes),
    onStop: (reason) => {
      if (reason === 'handover' && state.stops.length === 0) warnOfUncalled()
      return inTurn(state.stops, reason)
    },
  }
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
