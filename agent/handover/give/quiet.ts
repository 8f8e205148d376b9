// Finds a moment in which this process can stop: no request is half-read, half-written or half-answered. The holder gets every
// connection that is between two requests, and listening sockets stay open, so clients wait. If no such moment comes, this process
// serves again.
// Must hold: until `settle`, this process can take everything back; at the end no request is unfinished, except those that were cut.

import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { askToClose } from '../../sockets/closing.ts'
import { descriptorOf, isUpgraded } from '../../sockets/internals-moving.ts'
import { responseOf } from '../../sockets/internals.ts'
import { type Listener, stopAccepting, uptimeMs } from '../../sockets/listeners.ts'
import { DESCRIPTORS_MAX } from '../../sockets/packets.ts'
import { listenAgain } from '../../sockets/spare.ts'
import { followWebSockets } from '../carry/close-frame.ts'
import { AGREE_MS, cut, makeCarrier, mayStillAgree, moveIdle, moveWhenAnswered } from './connections.ts'
import { isEndless } from './endless.ts'
import type { Giving } from './giving.ts'
import type { SwitchOptions } from './options.ts'

/** a request that has run longer than YOUNG_MS counts as long; CALM_WAIT_MS: how long to wait until none does */
const [YOUNG_MS, CALM_WAIT_MS] = [250, 60_000]
const LOOK_EVERY_MS = 2
const ATTEMPTS = 3
const AGAIN_MS = 10_000
/** how long a client may take from its connection to its first request, where the connection cannot move: two round trips */
const NEW_MS = 1000
/** how long registered connections may take to reach a point between two messages */
const CARRY_MS = 1000

type OfSwitch = 'listeners' | 'carries' | 'report' | 'quietMs' | 'drainMs' | 'busy' | 'onDrain' | 'onResume'

export interface QuietOptions extends Pick<SwitchOptions, OfSwitch> {
  giving: Giving
  /** whether work of the author's is under way that the switch has not given up */
  isAtWork(): boolean
  /** Has the holder keep connections open a while that have been told their end, at most DESCRIPTORS_MAX. False: not now. */
  keepEnding(descriptors: readonly number[]): boolean
  /** whether to wait at all: a rollback does not */
  isPatient: boolean
  /** called when this process stops reading, and when it reads again */
  onPause(): void
  onServe(): void
  warn(message: string): void
  /** aborts when this process must end, or the holder is gone */
  signal: AbortSignal
}

/** Resolves to false if requests never ended and `busy` is `give-up`: this process serves then. Rejects if `signal` aborts. */
export async function comeToRest(options: QuietOptions): Promise<boolean> {
  // TLS and HTTP/2 connections cannot move: ask them to end while this process still serves
  const unmovable = options.listeners.filter(({ movable, isHttp }) => !movable && isHttp)
  const undo = unmovable.map(askToClose)
  followWebSockets(options.listeners, options.carries)
  let isAtRest = false
  try {
    await untilClosed(unmovable, options)
    if (options.isPatient) await calm(options)
    isAtRest = await attempt(options)
    return isAtRest
  } finally {
    if (!isAtRest) undoAll(undo)
  }
}

async function attempt(options: QuietOptions): Promise<boolean> {
  const { isPatient, busy, signal } = options
  for (let count = 1; ; count++) {
    const isAtRest = await attemptOnce(options)
    signal.throwIfAborted()
    if (isAtRest) return true
    const isLast = count === ATTEMPTS || !isPatient
    if (isLast && busy === 'cut') {
      cutRequests(options)
      return true
    }
    await serveAgain(options)
    if (isLast) return false
    options.warn(`requests did not finish within ${options.quietMs} ms: trying again in ${AGAIN_MS / 1000} s`)
    await sleep(AGAIN_MS, undefined, { signal })
  }
}

/** Gives the registered connections to the holder, and closes those that cannot move. From now on there is no way back. */
export async function settle(options: QuietOptions): Promise<void> {
  const { listeners, carries, giving, report, warn, signal } = options
  const movable = listeners.filter((listener) => listener.movable)
  const carrier = makeCarrier(movable, giving, carries, report, warn)
  const until = performance.now() + CARRY_MS
  // wait for the holder's answers: a connection is counted only with its answer
  while ((carries.entries().size > 0 || !giving.isEmpty()) && performance.now() < until && !signal.aborted) {
    carrier.look(signal)
    await sleep(LOOK_EVERY_MS)
  }
  carrier.stop()
  for (const why of giving.refusals()) warn(why)
  const left = listeners.flatMap(({ sockets }) => [...sockets])
  if (left.length > 0) warn(`closing connections that cannot be handed over: ${kindsOf(listeners)}`)
  for (const socket of left) cut(socket, carries, report)
  // The close frame, or the end of the connection, must reach the client: if this process exits with unread bytes, the kernel drops it.
  const began = performance.now()
  while (left.some((socket) => mayStillAgree(socket, performance.now() - began))) await sleep(LOOK_EVERY_MS)
  await leaveEnding(left, options)
}

/**
 * Who has not agreed yet may be slow, and some clients (Node's WebSocket) forget what they have not handled when the connection ends. Nobody
 * waits for them: the connections stay open in the holder.
 */
async function leaveEnding(left: readonly Socket[], { keepEnding, signal }: QuietOptions): Promise<void> {
  const descriptors = left
    .filter((socket) => isUpgraded(socket) && socket.writable)
    .map(descriptorOf)
    .filter((fd) => fd !== null)
  const until = performance.now() + AGREE_MS
  for (let from = 0; from < descriptors.length && performance.now() < until && !signal.aborted;) {
    if (keepEnding(descriptors.slice(from, from + DESCRIPTORS_MAX))) from += DESCRIPTORS_MAX
    else await sleep(LOOK_EVERY_MS)
  }
}

/** Accepts again, and serves the connections again that the holder had received. */
export async function serveAgain({ listeners, giving, onServe, onResume }: QuietOptions): Promise<void> {
  onServe()
  for (const listener of listeners) await listenAgain(listener)
  giving.takeBack()
  onResume()
}

async function untilClosed(unmovable: readonly Listener[], { drainMs, signal }: QuietOptions): Promise<void> {
  const until = performance.now() + drainMs
  while (unmovable.some(({ sockets }) => sockets.size > 0) && performance.now() < until) {
    await sleep(LOOK_EVERY_MS * 10, undefined, { signal })
  }
}

/** Waits until no request is older than YOUNG_MS, at most CALM_WAIT_MS. */
async function calm(options: QuietOptions): Promise<void> {
  const until = performance.now() + CALM_WAIT_MS
  const isOld = ({ listener: { busySince }, socket }: Running) =>
    responseOf(socket) !== null && uptimeMs() - (busySince.get(socket) ?? 0) > YOUNG_MS
  for (let isFirst = true; performance.now() < until; isFirst = false) {
    options.signal.throwIfAborted()
    const old = running(options).filter(isOld).length
    if (old === 0) return
    if (isFirst)
      options.warn(
        `found ${old} ${old === 1 ? 'request that has' : 'requests that have'} been running for more than ${YOUNG_MS} ms: waiting up to ${CALM_WAIT_MS / 1000} s for such requests to finish`,
      )
    await sleep(LOOK_EVERY_MS * 10, undefined, { signal: options.signal })
  }
}

/** Whether everything came to rest in time. */
async function attemptOnce(options: QuietOptions): Promise<boolean> {
  const { listeners, giving, quietMs, signal, onPause, onDrain } = options
  onPause()
  for (const listener of listeners) stopAccepting(listener)
  onDrain()
  const movable = listeners.filter((listener) => listener.movable)
  const undo = movable.map((listener) => moveWhenAnswered(listener, giving))
  const until = performance.now() + quietMs
  try {
    for (;;) {
      for (const listener of movable) await moveIdle(listener, giving, signal)
      signal.throwIfAborted()
      const isLate = performance.now() > until
      const isStill = giving.isEmpty() && running(options).length === 0 && !options.isAtWork()
      if (isStill && (isLate || !isAnyNew(listeners))) return true
      if (isLate) return false
      await sleep(LOOK_EVERY_MS)
    }
  } finally {
    undoAll(undo)
  }
}

interface Running {
  listener: Listener
  socket: Socket
}

/**
 * The connections that a switch still waits for. Without TLS: all that are left, idle ones too until `moveIdle` has given them away.
 * Over TLS: those with a response in progress. HTTP/2 is never among them: `untilClosed` has waited for it. Nor are connections that can
 * be carried or were upgraded, and endless answers.
 */
function running({ listeners, carries }: QuietOptions): Running[] {
  const carried = carries.entries()
  return listeners.flatMap((listener) =>
    [...listener.sockets]
      .filter((socket) => !carried.has(socket) && !socket.destroyed)
      .filter((socket) => (listener.movable ? !isUpgraded(socket) : responseOf(socket) !== null))
      .filter((socket) => !isEndless(socket))
      .map((socket) => ({ listener, socket })),
  )
}

/**
 * Whether a connection that cannot move was made a moment ago, or asked then: its handshake, its first request or the end of its last answer
 * may be under way. It lasts for one answer (`askToClose`).
 */
function isAnyNew(listeners: readonly Listener[]): boolean {
  const isNew = ({ busySince }: Listener, socket: Socket) => uptimeMs() - (busySince.get(socket) ?? 0) < NEW_MS
  return listeners.some(
    (listener) =>
      !listener.movable && listener.isHttp && [...listener.sockets].some((socket) => isNew(listener, socket)),
  )
}

function cutRequests(options: QuietOptions): void {
  const left = running(options)
  if (left.length > 0)
    options.warn(`requests cut off because they did not finish within ${options.quietMs} ms: ${left.length}`)
  for (const { socket } of left) cut(socket, options.carries, options.report)
}

/** The connections that cannot wait, for people: `2 over TLS or HTTP/2, 1 upgraded or in a request`. */
function kindsOf(listeners: readonly Listener[]): string {
  const counts = new Map<string, number>()
  for (const { movable, isHttp, sockets } of listeners) {
    const plain = isHttp ? 'over TLS or HTTP/2' : 'to a non-HTTP server'
    const kind = movable ? 'with an open WebSocket or request' : plain
    if (sockets.size > 0) counts.set(kind, (counts.get(kind) ?? 0) + sockets.size)
  }
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(', ')
}

function undoAll(undo: readonly (() => void)[]): void {
  for (const back of undo) back()
}
