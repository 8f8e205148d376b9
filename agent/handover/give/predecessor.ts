// The predecessor's part of a start-first switch. At any moment one or two processes of the service exist, and one of them accepts.
// From the spawn to the exit, either process may die and the other goes on: this process takes everything back if the successor
// dies, and the successor goes on alone if this process dies.
//
//   spawn -> hello -> probe -> accept -> ready -> half the probation -> move and drain -> the other half -> commit -> exit
//   on any failure before `ready`: kill the successor; this process never stopped accepting
//   on any failure after `ready`: kill the successor; listen again on the spare; nothing in the accept queue was lost
//
// This process ends inside the handover. After the commit the successor does what remains to be done on the disk, as it also does if
// this process is killed.

import { reasonOf } from '../../words/errors.ts'
import { rejected, spawnSuccessor, type Successor } from './child.ts'
import { drain } from './connections.ts'
import { type Giving, makeGiving } from './giving.ts'
import { namesOf, stopAccepting } from '../../sockets/listeners.ts'
import { spareNames } from '../../sockets/clearing.ts'
import { keptDatagrams } from '../../sockets/datagrams.ts'
import { listenAgain, turnAway } from '../../sockets/spare.ts'
import { privateServer } from '../private.ts'
import type { SwitchOptions } from './options.ts'
import { ownIllness } from './probe.ts'
import {
  aborted,
  becomeReady,
  commitTo,
  listensWhere,
  notePause,
  observe,
  provesItself,
  switchFailure,
  toldToStop,
  type TrialOptions,
  whyOf,
} from './trial.ts'
import { took } from '../moments.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { ticketsOf } from '../../sockets/tickets.ts'

/** The new release must be the only process of the service: it has exited before its application began, and this process serves. */
export class MustBeAlone extends Error {}

type Context = SwitchOptions & TrialOptions

/**
 * Never resolves if all goes well: this process exits. Resolves if an operator or a supervisor stopped the successor while it served:
 * then the service should end. Rejects with restart_failed, probation_failed or cannot_update_further when this process serves again;
 * the error is blameless (`words/blame.ts`) if it says nothing about the release.
 */
export async function handOver(given: SwitchOptions): Promise<'stopped'> {
  const { listeners, log, report, tag } = given
  const began = performance.now()
  const own = privateServer(listeners, given)
  const isOldWell = async () => (await ownIllness(own, given)) === null
  let silentSince: number | null = null
  const options: Context = { ...given, isOldWell, silent: (since) => (silentSince = since) }
  const successor = await introduce(options)
  const giving = makeGiving({ ...successor, listeners, report })
  successor.also(giving.hear)
  report.switchMs = Math.round(performance.now() - began)
  const abandon = new AbortController()
  // before any other listener to `gone`: no connection may be given to a process that is gone
  void successor.gone.then(() => abandon.abort())
  const here: { draining: Promise<void> | null } = { draining: null }
  let isClosed = false
  try {
    await notifySystemd([`MAINPID=${successor.pid}`, `STATUS=handed over to ${tag}, on probation`])
    took('claimed')
    for (const listener of listeners) if (successor.has(listener.key)) stopAccepting(listener)
    took('let go')
    options.onAccepting()
    const stood = stand(successor, giving, options, (draining) => (here.draining = draining), abandon.signal)
    if ((await Promise.race([stood, aborted(options.leaving).then(() => 'leaving' as const)])) === 'leaving') {
      // The successor serves, and goes on alone with its probation. It gets the connections that are still here.
      stood.catch(() => {})
      await (here.draining ?? move(successor, giving, options, abandon.signal))
    } else {
      await commitTo(successor, options)
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
      void options.takeTurn()
      options.onResume()
      for (const listener of listeners) await listenAgain(listener)
      took('listening again')
      giving.takeBack()
      notePause(report, silentSince) // whoever had come to a new release that hangs has waited since then
      took('took back')
      log({ event: 'taken_back', takenBack: report.takenBack, cut: report.cut })
    }
    await here.draining?.catch(() => {})
    throw await switchFailure('probation_failed', tag, reason, cause, successor)
  }
}

/** From spawn to `ready`. On any failure it ends the successor and throws restart_failed: this process never stopped accepting. */
async function introduce(options: Context): Promise<Successor> {
  const { listeners, tag, log } = options
  let successor: Successor | null = null
  try {
    if (options.leaving.aborted) throw toldToStop()
    successor = spawnSuccessor(options.command, [...listeners, ...keptDatagrams()], options, options)
    log({ event: 'successor', pid: successor.pid, tag, doing: 'spawned' })
    took('spawned')
    const leaving = aborted(options.leaving).then(() => {
      throw toldToStop()
    })
    const ready = becomeReady(successor, options, ticketsOf(listeners), (hello) => listensWhere(listeners, hello))
    await Promise.race([ready, leaving])
    log({ event: 'successor', pid: successor.pid, tag, doing: 'accepting' })
    return successor
  } catch (cause) {
    const reason = successor === null ? reasonOf(cause) : await whyOf(cause, successor)
    await successor?.end()
    // it never stopped accepting, but the release that failed may have removed a name; a process that stops has closed its own
    if (!options.leaving.aborted) for (const listener of listeners) await listenAgain(listener)
    if ((await successor?.wantsToBeAlone()) === true) throw new MustBeAlone()
    throw await switchFailure('restart_failed', tag, reason, cause, successor)
  }
}

/** The probation: first new connections only, then all. Resolves when it is over and this process has no connection left. */
async function stand(
  successor: Successor,
  giving: Giving,
  options: Context,
  began: (draining: Promise<void>) => void,
  signal: AbortSignal,
): Promise<void> {
  // In the first half the successor gets only new connections: if it dies at once, the clients that are still connected here lose
  // nothing. In the second half it gets all of them and proves itself under the whole load, while this process can take them back.
  await observe(successor, options, options.probationMs / 2, provesItself(successor, options))
  took('half')
  await options.passTurn()
  await successor.tell({ type: 'turn' })
  const draining = move(successor, giving, options, signal)
  began(draining)
  await observe(successor, options, options.probationMs / 2, draining)
  took('stood')
}

/** Gives this process's connections to the successor, or ends them. */
async function move(successor: Successor, giving: Giving, options: SwitchOptions, signal: AbortSignal): Promise<void> {
  const { listeners, report, log } = options
  for (const listener of listeners) {
    if (successor.has(listener.key)) stopAccepting(listener)
    else turnAway(listener)
  }
  options.onDrain()
  const limits = { drainMs: options.drainMs, drainMaxMs: options.drainMaxMs }
  const warn = (message: string) => log({ event: 'warning', message })
  await drain({ listeners, giving, carries: options.carries, limits, report, signal, warn })
  const { moved, carried, ended, cut } = report
  log({ event: 'drained', moved, carried, ended, cut })
  took('drained')
}

/** Ends this process, unless the successor has died at the last moment: then it rejects. */
async function leave(successor: Successor, options: SwitchOptions): Promise<never> {
  options.writeValues()
  spareNames(namesOf(options.listeners))
  await Promise.race([options.close(), successor.gone.then(rejected)])
  took('closed')
  if (!successor.isAlive()) rejected('it died as this process was leaving')
  return process.exit(0)
}
