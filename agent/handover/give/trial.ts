// Watches a successor from its first message to its commit, on behalf of the predecessor or the holder.

import { setTimeout as sleep } from 'node:timers/promises'
import { blameless, blameOf, isBlameless, lateBy, orHindered } from '../../words/blame.ts'
import { BatonError, reasonOf } from '../../words/errors.ts'
import type { HandoverReport } from '../../words/state.ts'
import type { Log } from '../../log.ts'
import { type Child, rejected, type Successor } from './child.ts'
import { watch } from '../heartbeat.ts'
import { isDatagrams } from '../../sockets/datagrams.ts'
import { untilWell } from '../../words/until-well.ts'
import { inTime } from '../../words/in-time.ts'
import type { Ability, Tickets, ToPredecessor } from '../../words/wire.ts'
import { afterPrinting } from '../../words/wrote.ts'
import { NOT_YET_MS, probe, type ProbeOptions, type ProbeVerdict } from './probe.ts'
import { took } from '../moments.ts'

export interface TrialOptions extends ProbeOptions {
  log: Log
  /** writes the report to the disk, so that the successor finds it */
  note(): Promise<void>
  /** whether the old release could make the next update: a successor need not be able to do more */
  couldUpdate(): Promise<Ability>
  /** once it aborts, a successor that does not serve yet is ended */
  leaving: AbortSignal
  /** called if it fails in probation while it lives and answers nobody; `since`: its last answer, in `performance.now()` */
  silent?(since: number): void
}

/** If both processes are ill, the successor is neither good nor bad: look again, at most this many rounds. */
const BOTH_ILL_ROUNDS = 12
const FAILURES_ALLOWED = 2
const LOOK_MOST_MS = 1000
/** how long a successor may take to say whether it could update: a feed may be slow */
const PROVE_MS = 60_000

/**
 * Resolves when the successor accepts. Until `readyMs` are over, a bad answer is no verdict: it may be warming up. Rejects if it ends, if it
 * is another release, or if it is late; that is blameless if the old release was ill too when it was last asked. `greeted`: looks at its first message, and throws what rules it out.
 */
export async function becomeReady(
  successor: Successor,
  options: TrialOptions,
  tickets: Tickets[],
  greeted: (hello: Extract<ToPredecessor, { type: 'hello' }>) => void = () => {},
): Promise<void> {
  const { readyMs, hangMs } = options
  const last: { verdict: ProbeVerdict } = { verdict: { is: 'well' } }
  let isOver = false
  const look = async () => {
    if (!successor.isAlive()) throw new Error(await successor.gone)
    const verdict = await probe(successor.takeQuestion, options)
    if (verdict.is === 'wrong') throw new Error(verdict.why)
    if (verdict.is === 'both' && last.verdict.is !== 'both') sayBothIll(options, verdict)
    last.verdict = verdict
    return verdict.is === 'well' ? null : verdict.why
  }
  const steps = async () => {
    greeted(await successor.heard('hello'))
    took('greeted')
    await untilWell(look, Infinity, Math.min(hangMs, NOT_YET_MS))
    took('probed')
    if (isOver || options.leaving.aborted) return // it is about to be ended: it must not accept
    await successor.tell({ type: 'accept', tickets })
    took('allowed')
    await successor.heard('ready')
    took('ready')
  }
  const late = () => {
    isOver = true
    return lateFault(last.verdict, readyMs)
  }
  await inTime(readyMs, steps(), late)
}

/**
 * Resolves when a release that ran before is as well as it was, so that no client meets it while it warms up. Also after `forMs`, when it ends
 * and when `ends` aborts: it serves as it is.
 */
export async function untilWarm(again: Successor, options: TrialOptions, forMs: number, ends: AbortSignal) {
  const look = async () => {
    if (ends.aborted || !again.isAlive()) return null
    const verdict = await probe(again.takeQuestion, options)
    return verdict.is === 'well' ? null : verdict.why
  }
  const why = await untilWell(look, forMs, Math.min(options.hangMs, NOT_YET_MS))
  if (why !== null)
    options.log({ event: 'warning', message: `${options.tag} is serving again, but is not healthy: ${why}` })
}

/**
 * Throws if a process listens nowhere where the one before it did: whoever knows that place would not reach it. Ports and paths count, not
 * addresses: those may change.
 */
export function listensWhere(before: readonly { key: string }[], { listeners: own }: { listeners: string[] }): void {
  const wanted = before.filter((one) => !isDatagrams(one)).map(({ key }) => key)
  const places = new Set(own.map(placeOf))
  if (wanted.length === 0 || wanted.some((key) => places.has(placeOf(key)))) return
  rejected(`expected it to listen on ${wanted.join(' or ')}, got ${own.join(', ')}`)
}

function placeOf(key: string): string {
  return /:\d+$/.exec(key)?.[0] ?? key
}

function lateFault(verdict: ProbeVerdict, readyMs: number): Error {
  if (verdict.is === 'both') return blameless('interrupted', `neither process is healthy: ${verdict.why}`)
  const why = verdict.is === 'well' ? '' : `: ${verdict.why}`
  return lateBy('interrupted', `it was not ready within ${readyMs} ms${why}`, readyMs)
}

/**
 * Asks the successor whether it could make the next update: a release that serves well but cannot update again is a trap. Rejects with
 * cannot_update_further if it cannot write where the old release can, or cannot use the feed that the old release can use. Rejects too if
 * it does not say so within PROVE_MS.
 */
export async function provesItself(successor: Successor, { couldUpdate, tag }: TrialOptions): Promise<void> {
  await successor.tell({ type: 'prove' })
  took('asked to prove')
  const silent = () => new Error('it did not report whether it can install updates')
  const next = await inTime(PROVE_MS, successor.heard('proved'), silent)
  if (next.problem === null && next.feed) return
  const own = await couldUpdate()
  const why = own.problem === null ? next.problem : null
  if (why !== null) throw new BatonError('cannot_update_further', `${tag} cannot install later updates: ${why}`)
  if (!next.feed && own.feed) {
    throw new BatonError(
      'cannot_update_further',
      `${tag} cannot install later updates: it gets no answer from the feed`,
    )
  }
}

/**
 * Watches the successor for `spanMs`, until `busy` is done, and until it is healthy. Rejects if it dies, hangs, or fails more than
 * FAILURES_ALLOWED probes in a row; a probe does not count while the old release is ill too. Rejects if `busy` does.
 */
export async function observe(
  successor: Successor,
  options: TrialOptions,
  spanMs: number,
  busy: Promise<void> = Promise.resolve(),
): Promise<void> {
  const over = performance.now() + spanMs
  const lookEveryMs = Math.min(LOOK_MOST_MS, Math.max(100, spanMs / 4))
  let isDone = false
  const done = busy.finally(() => (isDone = true)).catch(() => {})
  let [failures, excuses] = [0, 0]
  let verdict: ProbeVerdict = { is: 'both', why: 'its health has not been checked yet', isSilent: false }
  let answeredAt = performance.now()
  using hung = watch(successor.life, options.hangMs)
  const hangs = hung.rejects.catch((cause: unknown) => {
    options.silent?.(Math.max(answeredAt, performance.now() - successor.life.silentMs()))
    throw cause
  })
  const lost = Promise.race([successor.gone.then(rejected), hangs])
  lost.catch(() => {})
  while (performance.now() < over || !isDone || verdict.is !== 'well') {
    const left = over - performance.now()
    // once `busy` is done, it must not end the pauses between bad probes
    const pause =
      left > 0 ? sleep(Math.min(lookEveryMs, left)) : Promise.race([sleep(lookEveryMs), ...(isDone ? [] : [done])])
    await Promise.race([pause, lost])
    verdict = await Promise.race([probe(successor.takeQuestion, options), lost])
    if (verdict.is === 'well' || !verdict.isSilent) answeredAt = performance.now()
    if (verdict.is === 'well') [failures, excuses] = [0, 0]
    else if (verdict.is !== 'both') {
      if (!successor.isAlive() || ++failures > FAILURES_ALLOWED) {
        if (successor.isAlive() && verdict.isSilent) options.silent?.(answeredAt)
        throw new Error(verdict.why)
      }
    } else {
      if (excuses++ === 0) sayBothIll(options, verdict)
      if (excuses > BOTH_ILL_ROUNDS) throw blameless('interrupted', `neither process is healthy: ${verdict.why}`)
      await Promise.race([sleep(Math.min(options.hangMs, LOOK_MOST_MS)), lost])
    }
  }
  await busy
}

/** Adds the pause that ends now. `pausedAt`: in `performance.now()`; null: there was none. */
export function notePause(report: Pick<HandoverReport, 'pauseMs' | 'pausesMs'>, pausedAt: number | null): void {
  if (pausedAt === null) return
  const pausesMs = (report.pausesMs ??= [])
  pausesMs.push(Math.round(performance.now() - pausedAt))
  report.pauseMs = Math.max(...pausesMs)
}

/** A successor that has proved itself: as `confirmTo`. */
export async function commitTo(successor: Successor, options: TrialOptions): Promise<void> {
  await confirmTo(successor, options)
  options.log({ event: 'successor', pid: successor.pid, tag: options.tag, doing: 'has passed its probation' })
}

/** Asks the successor to commit and waits until it confirms. From then on the successor owns the operation. */
export async function confirmTo(successor: Successor, options: TrialOptions): Promise<void> {
  await options.note()
  took('noted')
  await successor.tell({ type: 'commit' })
  took('told to commit')
  using hung = watch(successor.life, options.hangMs)
  await Promise.race([successor.heard('committed'), hung.rejects])
  took('committed')
}

/** The error if this process is asked to stop before the release has proved anything. */
export function toldToStop(): BatonError {
  return blameless('interrupted', 'the running process was told to stop')
}

/** The error of a switch to `tag` that failed for `reason`. Call it once `child`, which failed, is gone. */
export async function switchFailure(
  code: 'restart_failed' | 'probation_failed',
  tag: string,
  reason: string,
  cause: unknown,
  child: Pick<Child<unknown, never>, 'lastWords' | 'metOwnLock'> | null,
): Promise<BatonError> {
  if (cause instanceof BatonError && cause.code === 'cannot_update_further') return cause
  const what = code === 'restart_failed' ? 'did not take over' : 'failed during probation'
  const said = await lastWordsOf(child)
  const message = `${tag} ${what}: ${reason}${said}`
  const { hadMs } = blameOf(cause)
  const failure = isBlameless(cause)
    ? blameless(code, message, { cause })
    : hadMs === undefined
      ? new BatonError(code, message, { cause })
      : lateBy(code, message, hadMs, { cause })
  return orHindered(failure, tag, { how: reason, said, isOwnLock: child?.metOwnLock() === true })
}

/** The reason of a failure. If the successor dies within 50 ms, its death is the reason: a broken connection says little. */
export async function whyOf(cause: unknown, successor: Successor): Promise<string> {
  return await Promise.race([successor.gone, sleep(50).then(() => reasonOf(cause))])
}

/** The last words of a process that has ended, as the end of a message. */
export async function lastWordsOf(child: Pick<Child<unknown, never>, 'lastWords'> | null): Promise<string> {
  return afterPrinting((await child?.lastWords()) ?? null)
}

function sayBothIll({ log, tag }: TrialOptions, { why }: Exclude<ProbeVerdict, { is: 'well' }>): void {
  log({
    event: 'warning',
    message: `${tag} is not healthy (${why}), but neither is this process, so ${tag} may not be at fault: waiting`,
  })
}
