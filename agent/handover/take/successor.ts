// The successor's part of a handover. At first only its predecessor can ask its handler. It accepts on the shared sockets once the
// predecessor has verified it. Until the commit it sends signs of life. If the predecessor dies or hangs, at any moment, the
// successor goes on alone.

import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../../words/errors.ts'
import type { Log } from '../../log.ts'
import { isAlive } from '../../sockets/process.ts'
import type { Carries } from '../carry/carry.ts'
import { type Channel, channelOver } from '../channel.ts'
import { ALIVE_EVERY_MS, type Heartbeat, lifeOf, watch } from '../heartbeat.ts'
import { descriptorOf } from '../../sockets/internals-moving.ts'
import { forgetLastWords } from '../../disk/kept-words.ts'
import type { ManagedInstall } from '../../disk/managed-install.ts'
import { tellThrough } from '../last-words.ts'
import type { Ending, Keeper } from '../../sockets/keeper.ts'
import { bind, isNamed, isSameAddress, leaveForNew, type Listener, type ListenerSpec } from '../../sockets/listeners.ts'
import { letGo } from '../../sockets/store.ts'
import { riskAgain } from '../../sockets/memory.ts'
import { isDatagrams } from '../../sockets/datagrams.ts'
import {
  type InheritedListener,
  type Ability,
  type Inheritance,
  INHERITANCE,
  type ToPredecessor,
  type ToSuccessor,
} from '../../words/wire.ts'
import { packetsOn } from '../../sockets/packets.ts'
import { privateServer } from '../private.ts'
import { took } from '../moments.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { listenAtLast, type Seeming, seemToServe } from './early.ts'
import { makeTaking } from './taking.ts'
import { takeTickets } from '../../sockets/tickets.ts'

export interface ConductorOptions {
  inheritance: Inheritance
  listeners: Listener[]
  service: string
  tag: string
  healthPath: string | null
  carries: Carries
  log: Log
  /** opens this process's install; null: it is not a managed one */
  install: { open(): Promise<ManagedInstall> } | null
  /** starts the work that only one process may do */
  takeTurn(): Promise<void>
  /** called once the conductor knows that this process cannot listen */
  failed(cause: unknown): Promise<never>
}

type Upwards = Channel<ToPredecessor, ToSuccessor>

function openChannel({ channel: { messages, packets } }: Inheritance): Upwards {
  try {
    const socket = new Socket({ fd: messages, readable: true, writable: true })
    // Null if the socket is closed, since another file may have its number, and while a message is partly written.
    tellThrough(() => (socket.destroyed || socket.writableLength > 0 ? null : descriptorOf(socket)))
    return channelOver(socket, packetsOn(packets))
  } catch (cause) {
    throw new BatonError('unexpected', `${INHERITANCE} is set, but no process is handing over`, {
      cause,
      hint: `unset ${INHERITANCE}: only a switch sets it`,
    })
  }
}

const PREDECESSOR_EXIT_MS = 10_000
const UNMANAGED = { problem: 'it does not recognize this as a managed install', feed: false }

/**
 * The old process, or the holder, which conducts this switch. What it leaves is listened on once it allows that; what else this process
 * listens on is bound before, since that may fail. If this process cannot listen, it tells the conductor, and `failed` ends it.
 */
export function conductorKeeper(options: ConductorOptions): Keeper {
  const link = linkTo(options)
  const left = options.inheritance.listeners.filter((one) => !isDatagrams(one)).map((one) => [one.key, one] as const)
  const own: Own = {
    options,
    link,
    left: new Map(left),
    inherited: [],
    accepting: new Map(),
    seeming: null,
    isServing: false,
    isOver: false,
  }
  const gone = Promise.withResolvers<Ending>()
  const tellFailures = async (act: () => Promise<void>): Promise<void> => {
    try {
      await act()
    } catch (cause) {
      if (own.isOver) throw cause
      await link.up.tell({ type: 'failed', message: reasonOf(cause) })
      await options.failed(cause)
    }
  }
  return {
    ownsQueue: false,
    gone: gone.promise,
    stopping: () => void link.up.tell({ type: 'stopping' }),
    listen: (listener, spec) => tellFailures(() => listenFor(listener, spec, own)),
    serve: () =>
      tellFailures(async () => {
        await takeOver(own)
        void outlive(own).then(gone.resolve)
      }),
  }
}

interface Own {
  options: ConductorOptions
  link: Link
  /** what it inherits for servers that may listen later, by key */
  left: Map<string, InheritedListener>
  /** the listeners that this process inherits, each with its descriptors, before it has said hello */
  inherited: [Listener, InheritedListener][]
  /** what has each listener that this process inherits accept */
  accepting: Map<Listener, () => Promise<void>>
  /** null before this process has said hello */
  seeming: Seeming | null
  isServing: boolean
  isOver: boolean
}

async function listenFor(listener: Listener, spec: ListenerSpec, own: Own): Promise<void> {
  const { left, options } = own
  const held = left.get(listener.key) ?? atOtherAddress(listener, left, options) ?? null
  if (held !== null && held.key !== listener.key) keepAddress(listener, held.key, options.log)
  left.delete(held?.key ?? '')
  const isHeld = held !== null && !own.isServing && (await isNamed(listener, held.accept))
  if (own.isServing) {
    await bind(listener, spec, held, true)
    if (!own.isOver) await sayHello(own, listener)
  } else if (held !== null && isHeld) {
    own.accepting.set(listener, () => listenAtLast(listener, held))
    if (own.seeming === null) return void own.inherited.push([listener, held])
    own.seeming.add(listener, held)
    await sayHello(own, listener)
  } else {
    await bind(listener, spec, null, true) // the predecessor may have the same port at an address that does not overlap
    if (held !== null) own.accepting.set(listener, async () => void leaveForNew(listener, held))
    if (own.seeming !== null) await sayHello(own, listener)
  }
}

async function sayHello({ link, options }: Own, ...also: Listener[]): Promise<void> {
  await link.up.tell({ type: 'hello', listeners: [...options.listeners, ...also].map(({ key }) => key) })
}

/** Resolves when this process accepts connections. */
async function takeOver(own: Own): Promise<void> {
  const { link, options } = own
  took('bound')
  await sayHello(own)
  took('said hello')
  link.live()
  // If the predecessor dies now, no other process serves: this process has the sockets, so it goes on alone.
  own.seeming = seemToServe((listener, inherited) => {
    own.accepting.delete(listener)
    own.left.set(inherited.key, inherited)
    void sayHello(own)
  })
  for (const one of own.inherited) own.seeming.add(...one)
  await Promise.race([link.accepted, link.lost])
  own.seeming[Symbol.dispose]()
  own.isServing = true
  for (const accept of own.accepting.values()) await accept()
  took('accepting')
  await link.up.tell({ type: 'ready' })
  took('said ready')
  if (options.inheritance.gate !== undefined) void options.takeTurn() // no other process of the application lives
}

/** Resolves when the conductor is gone: this process owns the operation from then on. */
async function outlive(own: Own): Promise<Ending> {
  const { link, left, options } = own
  const isCommitted = await Promise.race([link.committed.then(() => true), link.lost.then(() => false)])
  riskAgain(options.inheritance.memoryRisk)
  if (isCommitted) {
    took('heard commit')
    await link.up.tell({ type: 'committed' })
    took('said committed')
    await Promise.race([link.up.closed, deadline(PREDECESSOR_EXIT_MS).passes])
  }
  await seeOff(options.inheritance.predecessor, options.log)
  own.isOver = true
  for (const [key, held] of left) await letGo(key, held) // clients are refused, not left to wait in a queue that nobody accepts from
  left.clear()
  forgetLastWords()
  link[Symbol.dispose]()
  took('alone')
  return isCommitted ? 'committed' : 'orphaned'
}

interface Link extends Disposable {
  up: Upwards
  accepted: Promise<void>
  committed: Promise<void>
  /** resolves when the conductor is gone, or has been ended because it hung or took too long */
  lost: Promise<unknown>
  /** from now on it sends signs of life */
  live(): void
}

function linkTo(options: ConductorOptions): Link {
  const { predecessor, hangMs, patienceMs } = options.inheritance
  const up = openChannel(options.inheritance)
  took('born')
  const life = lifeOf(predecessor.pid)
  const [heard, hung] = [receive(up, life, options), watch(life, hangMs)]
  const stuck = deadline(patienceMs)
  const lost = Promise.race([
    up.closed,
    hung.rejects.catch((cause: unknown) => end(predecessor, `it ${reasonOf(cause).replace(/^it /, '')}`, options.log)),
    stuck.passes.then(() => end(predecessor, `it did not end the switch within ${patienceMs} ms`, options.log)),
  ])
  let alive: NodeJS.Timeout | undefined
  const live = () => void (alive = setInterval(() => void up.tell({ type: 'alive' }), ALIVE_EVERY_MS))
  const dispose = () => {
    clearInterval(alive)
    hung[Symbol.dispose]()
    stuck[Symbol.dispose]()
  }
  return { up, ...heard, lost, live, [Symbol.dispose]: dispose }
}

/**
 * The inherited socket on the same port if this release asks for its address by another name; stop-first, also if one of the two addresses
 * includes the other. The socket keeps its address until a start that inherits nothing. Without this, a changed address would fail here,
 * and again on the way back; and of one address with two sockets, the kernel would give each some of the connections.
 */
function atOtherAddress(
  { key, isTcp }: Listener,
  byKey: ReadonlyMap<string, InheritedListener>,
  { inheritance, listeners }: ConductorOptions,
): InheritedListener | undefined {
  const [host, port] = hostAndPort(key)
  if (!isTcp || port === '0') return undefined
  // start-first, both sockets are open for a while, and the new address is served at once
  const isStopFirst = inheritance.gate !== undefined
  const found = [...byKey.values()].filter((one) => {
    const [other, itsPort] = hostAndPort(one.key)
    const isAsked = listeners.some((listener) => listener.key === one.key)
    const isWithin = isStopFirst && itsPort === port && (holds(host, other) || holds(other, host))
    return !isAsked && (isWithin || isSameAddress(one.key, key))
  })
  return found.length === 1 ? found[0] : undefined
}

/** Whether a socket at `host` also gets connections to `other`. */
function holds(host: string, other: string): boolean {
  return host === '::' || (host === '0.0.0.0' && !other.includes(':'))
}

function hostAndPort(key: string): [string, string] {
  const at = key.lastIndexOf(':')
  return [key.slice(0, at), key.slice(at + 1)]
}

function keepAddress(listener: Listener, key: string, log: ConductorOptions['log']): void {
  const message = `still listening on ${key}, as the previous release did; ${listener.key} takes effect when the service is stopped and started`
  log({ event: 'warning', message })
  listener.key = key
}

/** Handles the messages on the channel. Call it first, so that no message and no socket comes too early. */
function receive(
  up: Upwards,
  life: Heartbeat,
  options: ConductorOptions,
): { accepted: Promise<void>; committed: Promise<void> } {
  const named = (key: string) => options.listeners.find((listener) => listener.key === key)
  const own = privateServer(options.listeners, options)
  const taking = makeTaking(options.listeners, options.carries, up.tell)
  const accepted = Promise.withResolvers<void>()
  const committed = Promise.withResolvers<void>()
  up.hear((message, descriptors) => {
    life.sign()
    switch (message.type) {
      case 'accept':
        for (const { listener, ...tickets } of message.tickets) takeTickets(named(listener), tickets)
        return accepted.resolve()
      case 'ask': {
        const [fd] = descriptors ?? []
        return void (fd !== undefined && own.emit('connection', new Socket({ fd, readable: true, writable: true })))
      }
      case 'connections':
        return taking.connections(message, descriptors)
      case 'carry':
        return taking.carry(message, descriptors)
      case 'late':
        return taking.late(message)
      case 'spoilt':
        return taking.spoilt(message.id)
      case 'alive':
        return
      case 'turn':
        return void options.takeTurn()
      case 'prove':
        return void ability(options)
          .then((able) => up.tell({ type: 'proved', ...able }))
          .then(() => took('said proved'))
      case 'commit':
        return committed.resolve()
      default:
        return message satisfies never
    }
  })
  return { accepted: accepted.promise, committed: committed.promise }
}

/** Whether this process could make the next update. */
async function ability({ install }: ConductorOptions): Promise<Ability> {
  if (install === null) return UNMANAGED
  const [{ couldUpdate }, opened] = await Promise.all([import('../../update/could-update.ts'), install.open()])
  return await couldUpdate(opened)
}

type Predecessor = Inheritance['predecessor']

/** Waits for the predecessor to leave, and ends it if it does not: two processes must not serve for ever. */
async function seeOff(predecessor: Predecessor, log: Log): Promise<void> {
  const until = performance.now() + PREDECESSOR_EXIT_MS
  while (isAlive(predecessor.pid, predecessor.startTime)) {
    if (performance.now() > until) return end(predecessor, `it did not exit within ${PREDECESSOR_EXIT_MS} ms`, log)
    await sleep(10)
  }
}

async function end({ pid, startTime }: Predecessor, why: string, log: Log): Promise<void> {
  if (!isAlive(pid, startTime)) return
  log({ event: 'warning', message: `killing the previous process (pid ${pid}): ${why}` })
  // First claim the main pid: systemd ends the whole unit with its main process, but reads notifications before it reaps processes.
  await notifySystemd([`MAINPID=${process.pid}`])
  try {
    if (isAlive(pid, startTime)) process.kill(pid, 'SIGKILL')
  } catch (cause) {
    log({ event: 'warning', message: `could not kill the previous process (pid ${pid}): ${reasonOf(cause)}` })
  }
}

function deadline(ms: number): Disposable & { passes: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  timer.unref()
  return { passes: promise, [Symbol.dispose]: () => clearTimeout(timer) }
}
