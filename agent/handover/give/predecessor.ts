// The old process's side of a handover. At any moment one or two processes of the service exist, and one of them accepts; from
// the spawn to the exit there is no moment in which the death of either leaves nobody who goes on: while this process lives it
// takes everything back when the successor dies, and a successor goes on alone when this one does.
//
//   spawn -> hello -> probe -> accept -> ready -> half the probation -> move and drain -> the other half -> commit -> exit
//   anything wrong before `ready`: kill it; this process never stopped accepting
//   anything wrong after `ready`: kill it; listen again on the spare; nothing in the accept queue was lost
//
// It ends inside the handover: what is left to do on the disk after the commit is the successor's, in the one way that also
// serves where this process was killed.

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
import { took } from '../steps.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { ticketsOf } from '../../sockets/tickets.ts'

export interface HandoverOptions {
  command: Command
  listeners: Listener[]
  service: string
  /** what the successor must say it is */
  tag: string
  operationId: string
  /** asked on a private connection before the successor may accept, must answer 2xx; null where the author names none */
  healthPath: string | null
  readyMs: number
  drainMs: number
  drainMaxMs: number
  probationMs: number
  /** a successor that is silent for so long hangs */
  hangMs: number
  log: Log
  /** the author's hook: end what cannot move */
  onDrain: () => void
  /** the author's hook: this process goes on */
  onResume: () => void
  /** called when the successor accepts connections: its probation begins */
  onAccepting?: () => void
  /** connections in the middle of something that the author has registered */
  carries: Carries
  /** filled in as the handover goes on, and right in a failed one too */
  report: HandoverReport
  /** writes down what the report says, so that the successor finds it */
  note(): Promise<void>
  /** whether this process could make the next update: what it cannot do itself it does not ask for */
  couldUpdate(): Promise<Ability>
  /** a person or a supervisor wants this very process to end */
  leaving: AbortSignal
  /** the author's last hook, within its bound; afterwards this process cannot serve any more */
  close(): Promise<void>
}

/** Both ill at once is no verdict, but neither is it waited for without end. */
const BOTH_ILL_ROUNDS = 12
const FAILURES_ALLOWED = 2
const LOOK_MOST_MS = 1000
/** a feed may be slow */
const PROVE_MS = 60_000

/**
 * Never resolves where all goes well: this process ends. Resolves where the successor, already serving, was told to stop: the
 * service is to end. Rejects when this process serves again: restart_failed, probation_failed; `members.blameless` where that
 * says nothing about the release.
 */
export async function handOver(options: HandoverOptions): Promise<'stopped'> {
  const { listeners, log, report, tag } = options
  const began = performance.now()
  const own = privateServer(listeners, options)
  const successor = await introduce(options, own)
  report.switchMs = Math.round(performance.now() - began)
  const abandon = new AbortController()
  // before anything else hears of it: no connection may be given to a process that is gone
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
      // it serves, and goes on alone with its probation; what is still here is given to it
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
    // first the main pid: a unit whose main process is gone, with this one not claiming it, ends and is not restarted
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=reverting from ${tag}`])
    took('reclaimed')
    await successor.end()
    took('ended')
    // a process that has closed its state cannot serve; the caller starts another one, for which connections wait
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

/** From spawn to `ready`. On any failure the successor is ended and restart_failed thrown: this process never stopped accepting. */
async function introduce(options: HandoverOptions, own: Server): Promise<Successor> {
  const { listeners, operationId, readyMs, hangMs, probationMs, drainMaxMs, tag, log } = options
  let successor: Successor | null = null
  const late = new AbortController()
  try {
    options.leaving.throwIfAborted()
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
    const stopped = aborted(options.leaving).then(() => {
      throw blameless('this process was told to stop')
    })
    await Promise.race([becomeReady(successor, options, own, health), deadline, stopped])
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

/** `health.bothIll`: why nothing can be said about it at this moment. */
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

/** The probation: new connections only, then all of them. Passes when it is over and nothing is left here. */
async function stand(
  successor: Successor,
  options: HandoverOptions,
  own: Server,
  began: (draining: Promise<void>) => void,
  signal: AbortSignal,
): Promise<void> {
  // New connections first: a release that dies at once takes none of the clients with it that are still here. Then all of
  // them, while there is still time to take them back: a release must prove itself under the whole load.
  await observe(successor, options, own, options.probationMs / 2, provesItself(successor, options))
  took('half')
  const draining = move(successor, options, signal)
  began(draining)
  await observe(successor, options, own, options.probationMs / 2, draining)
  took('stood')
}

/**
 * A release that serves well but could not be updated any more is a trap, so it says that it could. Rejects with
 * cannot_update_further where this process, asked the same, can.
 */
async function provesItself(successor: Successor, { couldUpdate, tag }: HandoverOptions): Promise<void> {
  await successor.tell({ type: 'prove' })
  took('asked to prove')
  const late = sleep(PROVE_MS, undefined, { ref: false }).then(() => rejected(`it did not say whether it could update`))
  const next = await Promise.race([successor.heard('proved'), late])
  if (next.problem === null && next.feed) return
  const own = await couldUpdate()
  const why = own.problem === null ? next.problem : null
  if (why !== null) throw new BatonError('cannot_update_further', `${tag} could not be updated again: ${why}`)
  if (!next.feed && own.feed) {
    throw new BatonError('cannot_update_further', `${tag} could not be updated again: the feed does not answer it`)
  }
}

/** Gives the connections that are still here to the successor, or lets them end. */
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

/** Passes after `spanMs`, and not before `draining` has, in which the successor lived and answered, and with it well at the end. */
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

/** The successor is told that it is alone, and has said that it knows: from here on it answers for the operation. */
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

/** Ends this process, unless the successor is dead in the very last moment. */
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

function blameless(reason: string): BatonError {
  return new BatonError('interrupted', reason, { members: { blameless: true } })
}

function failure(code: 'restart_failed' | 'probation_failed', message: string, cause: unknown): BatonError {
  const isBlameless = cause instanceof BatonError && cause.members['blameless'] === true
  return new BatonError(code, message, { cause, ...(isBlameless ? { members: { blameless: true } } : {}) })
}

/** A connection that breaks says little: where the successor has died in this moment, say that. */
async function whyOf(cause: unknown, successor: Successor): Promise<string> {
  return await Promise.race([successor.gone, sleep(50).then(() => reasonOf(cause))])
}

/** Of one that has been ended, for the end of a message. */
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
