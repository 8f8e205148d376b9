// The predecessor's part of a handover. At any moment one or two processes of the service exist, and one of them accepts.
// From the spawn to the exit, either process may die and the other goes on: this process takes everything back if the successor
// dies, and the successor goes on alone if this process dies.
//
//   spawn -> hello -> probe -> accept -> ready -> half the probation -> move and drain -> the other half -> commit -> exit
//   on any failure before `ready`: kill the successor; this process never stopped accepting
//   on any failure after `ready`: kill the successor; listen again on the spare; nothing in the accept queue was lost
//
// This process ends inside the handover. The successor does what remains to be done on the disk after the commit, in the same
// way as after a kill of this process.

import type { Server } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../../words/errors.ts'
import type { Log } from '../../log.ts'
import type { HandoverReport } from '../../words/state.ts'
import type { Carries } from '../carry/carry.ts'
import { rejected, spawnSuccessor, type Successor } from './child.ts'
import type { Command } from '../../sockets/store.ts'
import { drain } from './connections.ts'
import { watch } from '../heartbeat.ts'
import type { Ability } from '../../words/wire.ts'
import { listenAgain, type Listener, stopAccepting, turnAway } from '../../sockets/listeners.ts'
import { privateServer } from '../private.ts'
import { probe, type ProbeOptions, type ProbeVerdict } from './probe.ts'
import { took } from '../moments.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { ticketsOf } from '../../sockets/tickets.ts'

export interface HandoverOptions {
  command: Command
  listeners: Listener[]
  service: string
  /** the tag that the successor must answer with */
  tag: string
  operationId: string
  /** requested on a private connection before the successor may accept; must answer 2xx; null if the author names none */
  healthPath: string | null
  readyMs: number
  drainMs: number
  drainMaxMs: number
  probationMs: number
  /** a successor that gives no sign of life for this long hangs */
  hangMs: number
  log: Log
  /** the author's hook: end what cannot move */
  onDrain: () => void
  /** the author's hook: this process serves on */
  onResume: () => void
  /** called when the successor accepts connections: its probation begins */
  onAccepting?: () => void
  /** connections in the middle of something that the author has registered */
  carries: Carries
  /** filled in as the handover goes on; also right if it fails */
  report: HandoverReport
  /** writes the report to the disk, so that the successor finds it */
  note(): Promise<void>
  /** whether this process could make the next update; it does not ask the successor for more than it can do itself */
  couldUpdate(): Promise<Ability>
  /** aborts when an operator or a supervisor wants this process to end */
  leaving: AbortSignal
  /** the author's last hook, within its time limit; afterwards this process cannot serve any more */
  close(): Promise<void>
}

/** If both processes are ill at once, that is no verdict; but the wait for one ends after this many rounds. */
const BOTH_ILL_ROUNDS = 12
const FAILURES_ALLOWED = 2
const LOOK_MOST_MS = 1000
/** a feed may be slow */
const PROVE_MS = 60_000

/**
 * Never resolves if all goes well: this process exits. Resolves if the successor was told to stop while it already served: then
 * the service should end. Rejects with restart_failed, probation_failed or cannot_update_further when this process serves again;
 * `members.blameless` is true if that says nothing about the release.
 */
export async function handOver(options: HandoverOptions): Promise<'stopped'> {
  const { listeners, log, report, tag } = options
  const began = performance.now()
  const own = privateServer(listeners, options)
  const successor = await introduce(options, own)
  report.switchMs = Math.round(performance.now() - began)
  const abandon = new AbortController()
  // first of all listeners to `gone`: no connection may be given to a process that is gone
  void successor.gone.then(() => abandon.abort())
  const here: { draining: Promise<void> | null } = { draining: null }
  let isClosed = false
  try {
    await notifySystemd([`MAINPID=${successor.pid}`, `STATUS=handed over to ${tag}, on probation`])
    took('claimed')
    for (const listener of listeners) if (successor.has(listener.key)) stopAccepting(listener)
    took('let go')
    options.onAccepting?.()
    const stood = stand(successor, options, own, (draining) => (here.draining = draining), abandon.signal)
    if ((await Promise.race([stood, aborted(options.leaving)])) === 'leaving') {
      // The successor serves, and goes on alone with its probation. It gets the connections that are still here.
      stood.catch(() => {})
      await (here.draining ?? move(successor, options, abandon.signal))
    } else {
      await commit(successor, options)
    }
    isClosed = true
    return await leave(successor, options)
  } catch (cause) {
    abandon.abort()
    if (await successor.isStopping()) return 'stopped'
    const reason = await whyOf(cause, successor)
    log({ event: 'reverting', message: reason })
    took('reverting')
    // Claim the main pid first: if the unit's main process dies unclaimed, the unit ends and is not restarted.
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=reverting from ${tag}`])
    took('reclaimed')
    await successor.end()
    took('ended')
    // A process that has closed its state cannot serve: the caller starts another one, and connections wait for that.
    if (!isClosed) {
      options.onResume()
      for (const listener of listeners) await listenAgain(listener)
      took('listening again')
      successor.giving.takeBack()
      took('took back')
      log({ event: 'taken_back', takenBack: report.takenBack, cut: report.cut })
    }
    await here.draining?.catch(() => {})
    if (cause instanceof BatonError && cause.code === 'cannot_update_further') throw cause
    throw failure('probation_failed', `${tag} failed in probation: ${reason}${await wordsOf(successor)}`, cause)
  }
}

/** From spawn to `ready`. On any failure it ends the successor and throws restart_failed: this process never stopped accepting. */
async function introduce(options: HandoverOptions, own: Server): Promise<Successor> {
  const { listeners, operationId, readyMs, hangMs, probationMs, drainMaxMs, tag, log } = options
  let successor: Successor | null = null
  const late = new AbortController()
  try {
    if (options.leaving.aborted) throw stopped()
    const patienceMs = probationMs + drainMaxMs + readyMs + 10_000
    successor = spawnSuccessor(options.command, listeners, { operationId, patienceMs, hangMs }, options.report)
    log({ event: 'successor', pid: successor.pid, tag, doing: 'spawned' })
    took('spawned')
    const health: { bothIll: string | null } = { bothIll: null }
    const deadline = sleep(readyMs, undefined, { signal: late.signal }).then(() => {
      if (health.bothIll !== null) throw blameless(`neither it nor this process is healthy: ${health.bothIll}`)
      rejected(`it was not ready within ${readyMs} ms`)
    })
    deadline.catch(() => {})
    const leaving = aborted(options.leaving).then(() => {
      throw stopped()
    })
    await Promise.race([becomeReady(successor, options, own, health), deadline, leaving])
    log({ event: 'successor', pid: successor.pid, tag, doing: 'accepting' })
    return successor
  } catch (cause) {
    const reason = successor === null ? reasonOf(cause) : await whyOf(cause, successor)
    await successor?.end()
    throw failure('restart_failed', `${tag} did not take over: ${reason}${await wordsOf(successor)}`, cause)
  } finally {
    late.abort()
  }
}

/** Sets `health.bothIll` to the reason if both processes are ill, so that there is no verdict on the successor yet. */
async function becomeReady(
  successor: Successor,
  options: HandoverOptions,
  own: Server,
  health: { bothIll: string | null },
): Promise<void> {
  await successor.heard('hello')
  took('greeted')
  const asking = probeOptions(options, own)
  for (;;) {
    const verdict = await probe(successor.takeQuestion, asking)
    if (verdict.is === 'well') break
    if (verdict.is === 'ill') throw new Error(verdict.why)
    if (health.bothIll === null) sayBothIll(options, verdict)
    health.bothIll = verdict.why
    await sleep(Math.min(options.hangMs, LOOK_MOST_MS))
  }
  took('probed')
  await successor.tell({ type: 'accept', tickets: ticketsOf(options.listeners) })
  took('allowed')
  await successor.heard('ready')
  took('ready')
}

/** The probation: first new connections only, then all. Resolves when it is over and no connection is left here. */
async function stand(
  successor: Successor,
  options: HandoverOptions,
  own: Server,
  began: (draining: Promise<void>) => void,
  signal: AbortSignal,
): Promise<void> {
  // In the first half the successor gets only new connections: if it dies at once, the clients that are still connected here lose
  // nothing. In the second half it gets all of them, while this process can still take them back: it must prove itself under the whole load.
  await observe(successor, options, own, options.probationMs / 2, provesItself(successor, options))
  took('half')
  const draining = move(successor, options, signal)
  began(draining)
  await observe(successor, options, own, options.probationMs / 2, draining)
  took('stood')
}

/**
 * Asks the successor whether it could make the next update: a release that serves well but cannot be updated any more is a trap.
 * Rejects with cannot_update_further if the successor cannot and this process can.
 */
async function provesItself(successor: Successor, { couldUpdate, tag }: HandoverOptions): Promise<void> {
  await successor.tell({ type: 'prove' })
  took('asked to prove')
  const late = sleep(PROVE_MS, undefined, { ref: false }).then(() => rejected(`it did not say whether it could update`))
  const next = await Promise.race([successor.heard('proved'), late])
  if (next.problem === null && next.feed) return
  const own = await couldUpdate()
  const why = own.problem === null ? next.problem : null
  if (why !== null) throw new BatonError('cannot_update_further', `${tag} cannot install later updates: ${why}`)
  if (!next.feed && own.feed) {
    throw new BatonError('cannot_update_further', `${tag} cannot install later updates: the feed does not answer it`)
  }
}

/** Gives the connections that are still here to the successor, or has them end. */
async function move(successor: Successor, options: HandoverOptions, signal: AbortSignal): Promise<void> {
  const { listeners, report, log } = options
  for (const listener of listeners) {
    if (successor.has(listener.key)) stopAccepting(listener)
    else turnAway(listener)
  }
  options.onDrain()
  const limits = { drainMs: options.drainMs, drainMaxMs: options.drainMaxMs }
  const warn = (message: string) => log({ event: 'warning', message })
  await drain({ listeners, giving: successor.giving, carries: options.carries, limits, report, signal, warn })
  const { moved, carried, cut } = report
  log({ event: 'drained', moved, carried, cut })
  took('drained')
}

/**
 * Watches the successor for `spanMs`, and until `draining` is done. Resolves if it lived and answered all the time and was well at
 * the end.
 */
async function observe(
  successor: Successor,
  options: HandoverOptions,
  own: Server,
  spanMs: number,
  draining: Promise<void> = Promise.resolve(),
): Promise<void> {
  const over = performance.now() + spanMs
  const lookEveryMs = Math.min(LOOK_MOST_MS, Math.max(100, spanMs / 4))
  let isDrained = false
  const drained = draining.finally(() => (isDrained = true)).catch(() => {})
  let [failures, excuses] = [0, 0]
  let verdict: ProbeVerdict = { is: 'both', why: 'it was not asked yet' }
  using hung = watch(successor.life, options.hangMs)
  const lost = Promise.race([successor.gone.then(rejected), hung.rejects])
  lost.catch(() => {})
  while (performance.now() < over || !isDrained || verdict.is !== 'well') {
    const left = over - performance.now()
    const pause = left > 0 ? sleep(Math.min(lookEveryMs, left)) : Promise.race([sleep(lookEveryMs), drained])
    await Promise.race([pause, lost])
    verdict = await Promise.race([probe(successor.takeQuestion, probeOptions(options, own)), lost])
    if (verdict.is === 'well') [failures, excuses] = [0, 0]
    else if (verdict.is === 'ill') {
      if (!successor.isAlive() || ++failures > FAILURES_ALLOWED) throw new Error(verdict.why)
    } else {
      if (excuses++ === 0) sayBothIll(options, verdict)
      if (excuses > BOTH_ILL_ROUNDS) throw blameless(`neither it nor this process is healthy: ${verdict.why}`)
      await Promise.race([sleep(Math.min(options.hangMs, LOOK_MOST_MS)), lost])
    }
  }
  await draining
}

/** Tells the successor to commit and waits until it confirms. From then on the successor answers for the operation. */
async function commit(successor: Successor, options: HandoverOptions): Promise<void> {
  await options.note()
  took('noted')
  await successor.tell({ type: 'commit' })
  took('told to commit')
  using hung = watch(successor.life, options.hangMs)
  await Promise.race([successor.heard('committed'), hung.rejects])
  options.log({ event: 'successor', pid: successor.pid, tag: options.tag, doing: 'committed' })
  took('committed')
}

/** Ends this process, unless the successor has died at the last moment: then it rejects. */
async function leave(successor: Successor, options: HandoverOptions): Promise<never> {
  await Promise.race([options.close(), successor.gone.then(rejected)])
  took('closed')
  if (!successor.isAlive()) rejected('it died as this process was leaving')
  return process.exit(0)
}

function probeOptions(options: HandoverOptions, own: Server): ProbeOptions {
  return { ...options, timeoutMs: Math.min(options.readyMs, options.hangMs), own }
}

function sayBothIll({ log, tag }: HandoverOptions, { why }: Exclude<ProbeVerdict, { is: 'well' }>): void {
  log({
    event: 'warning',
    message: `${tag} is not healthy (${why}), but neither is this process: that is no verdict, waiting`,
  })
}

/** This process was told to stop, before the release could show anything. */
function stopped(): BatonError {
  return blameless('this process was told to stop')
}

function blameless(reason: string): BatonError {
  return new BatonError('interrupted', reason, { members: { blameless: true } })
}

function failure(code: 'restart_failed' | 'probation_failed', message: string, cause: unknown): BatonError {
  const isBlameless = cause instanceof BatonError && cause.members['blameless'] === true
  return new BatonError(code, message, { cause, ...(isBlameless ? { members: { blameless: true } } : {}) })
}

/** The reason of a failure. A broken connection says little: if the successor dies within 50 ms, that is the reason. */
async function whyOf(cause: unknown, successor: Successor): Promise<string> {
  return await Promise.race([successor.gone, sleep(50).then(() => reasonOf(cause))])
}

/** The last words of a successor that has been ended, as the end of a message. */
async function wordsOf(successor: Successor | null): Promise<string> {
  const words = (await successor?.lastWords()) ?? null
  return words === null ? '' : `, after it wrote: ${words}`
}

function aborted(signal: AbortSignal): Promise<'leaving'> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve('leaving')
    else signal.addEventListener('abort', () => resolve('leaving'), { once: true })
  })
}
