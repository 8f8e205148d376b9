// The ground of a start-first switch, in the old process. At any moment one or two processes of the service exist, and one of them
// accepts. From the spawn to the exit, either process may die and the other goes on: this process takes everything back if the successor
// dies, and the successor goes on alone if this process dies.
//
//   start    spawn
//   begin    hello -> probe -> accept -> ready: it accepts
//   claim    this process accepts no more
//   prove    half the probation; it gets only new connections
//   hand     move what is open, or let it end
//   prove    the other half
//   commit   and retire: exit
//   putBack  kill the successor; listen again on the spare: nothing in the accept queue was lost
//
// This process ends inside the switch. After the commit the successor does what remains to be done on the disk, as it also does if
// this process is killed.

import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../../words/errors.ts'
import { conduct } from '../conduct.ts'
import { ownWorks } from '../works.ts'
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

const BREATH_MS = 2
/** This process serves meanwhile: between two steps it does what has come. */
const breathe = () => sleep(BREATH_MS)

/** The new release must be the only process of the service: it has exited before its application began, and this process serves. */
export class MustBeAlone extends Error {}

interface Here {
  options: SwitchOptions & TrialOptions
  /** in `performance.now()` */
  began: number
  /** set by the spawn */
  next: Next | null
  /** in `performance.now()`: since when a successor in probation answers nobody, if that is why it fails; else null */
  silentSince: number | null
  /** moves what is open here; null until it begins */
  draining: Promise<void> | null
  /** whether the author's state may be closed, so that this process cannot serve any more */
  isClosed: boolean
}

interface Next {
  successor: Successor
  giving: Giving
  /** aborts when nothing may be given to it any more */
  abandon: AbortController
}

/**
 * Never resolves if all goes well: this process exits. Resolves if an operator or a supervisor stopped the successor while it served:
 * then the service should end. Rejects with restart_failed, probation_failed or cannot_update_further when this process serves again;
 * the error is blameless (`words/blame.ts`) if it says nothing about the release.
 */
export async function handOver(given: SwitchOptions): Promise<void> {
  await breathe()
  const own = () => privateServer(given.listeners, given)
  const isOldWell = async () => (await ownIllness(own, given)) === null
  const here: Here = {
    options: { ...given, isOldWell, silent: (since) => (here.silentSince = since) },
    began: performance.now(),
    next: null,
    silentSince: null,
    draining: null,
    isClosed: false,
  }
  const there = (): Next => here.next ?? rejected('it was not started')
  await conduct<void>({
    leaving: { signal: given.leaving, leave: (hasServed) => leave(here, hasServed) },
    start: () => start(here),
    begin: () => begin(here, there()),
    claim: () => claim(here, there()),
    prove: () => prove(here, there()),
    hand: () => hand(here, there()),
    commit: () => commitTo(there().successor, here.options),
    retire: () => retire(here, there()),
    putBack: (cause, hasServed) => putBack(here, cause, hasServed),
  })
}

async function start(here: Here): Promise<'start-first'> {
  const { options } = here
  await breathe()
  options.leaving.throwIfAborted() // `leave` has been called: nobody would end what is started now
  const { listeners, report, tag, log } = options
  const successor = spawnSuccessor(options.command, [...listeners, ...keptDatagrams()], options, options)
  const next: Next = {
    successor,
    giving: makeGiving({ ...successor, listeners, report }),
    abandon: new AbortController(),
  }
  here.next = next
  // before any other listener to `gone`: no connection may be given to a process that is gone
  void successor.gone.then(() => next.abandon.abort())
  successor.also(next.giving.hear)
  log({ event: 'successor', pid: successor.pid, tag, doing: 'has started' })
  took('spawned')
  await breathe()
  return 'start-first'
}

async function begin({ options }: Here, { successor }: Next): Promise<void> {
  const { listeners } = options
  await becomeReady(successor, options, ticketsOf(listeners), (hello) => listensWhere(listeners, hello))
}

async function claim({ options, began }: Here, { successor }: Next): Promise<void> {
  await breathe()
  const { listeners, report, tag, log } = options
  log({ event: 'successor', pid: successor.pid, tag, doing: 'is accepting connections' })
  report.switchMs = Math.round(performance.now() - began)
  await notifySystemd([`MAINPID=${successor.pid}`, `STATUS=handed over to ${tag}, on probation`])
  took('claimed')
  for (const listener of listeners) if (successor.has(listener.key)) stopAccepting(listener)
  took('let go')
  await breathe()
  options.onAccepting()
}

/**
 * In the first half the successor gets only new connections: if it dies at once, the clients that are still connected here lose
 * nothing. In the second half it gets all of them and proves itself under the whole load, while this process can take them back.
 */
async function prove(here: Here, { successor }: Next): Promise<void> {
  const { options } = here
  const busy = here.draining ?? provesItself(successor, options)
  await observe(successor, options, options.probationMs / 2, busy)
  took(here.draining === null ? 'half' : 'stood')
}

/** Begins to give this process's connections to the successor, or to end them. */
async function hand(here: Here, { successor, giving, abandon }: Next): Promise<void> {
  const { options } = here
  await breathe()
  await options.passTurn()
  await breathe()
  await successor.tell({ type: 'turn' })
  here.draining = move(successor, giving, options, abandon.signal)
  here.draining.catch(() => {}) // `prove` and `leave` wait for it
}

async function move(successor: Successor, giving: Giving, options: SwitchOptions, signal: AbortSignal): Promise<void> {
  const { listeners, report, log } = options
  for (const listener of listeners) {
    if (successor.has(listener.key)) stopAccepting(listener)
    else turnAway(listener)
  }
  options.onDrain()
  const warn = (message: string) => log({ event: 'warning', message })
  const drained = drain({ listeners, giving, carries: options.carries, limits: options, report, signal, warn })
  await Promise.all([drained, ownWorks().rest(options.drainMs)])
  const { moved, carried, ended, cut } = report
  log({ event: 'drained', moved, carried, ended, cut })
  took('drained')
}

/** Ends this process, unless the successor has died at the last moment: then it rejects. */
async function retire(here: Here, { successor }: Next): Promise<never> {
  const { options } = here
  here.isClosed = true
  options.writeValues()
  spareNames(namesOf(options.listeners))
  await Promise.race([options.close(), successor.gone.then(rejected)])
  took('closed')
  if (!successor.isAlive()) rejected('it died while this process was exiting')
  return process.exit(0)
}

/** The successor that serves goes on alone with its probation, and gets the connections that are still here. */
async function leave(here: Here, hasServed: boolean): Promise<void> {
  const { options, next } = here
  if (!hasServed || next === null) return await putBack(here, toldToStop(), false)
  try {
    await (here.draining ?? move(next.successor, next.giving, options, next.abandon.signal))
    await retire(here, next)
  } catch (cause) {
    await putBack(here, cause, true)
  }
}

async function putBack(here: Here, cause: unknown, hasServed: boolean): Promise<void> {
  const { options, next } = here
  const { tag, log, listeners, report } = options
  next?.abandon.abort()
  if (hasServed && (await next?.successor.isStopping()) === true) return
  const reason = next === null ? reasonOf(cause) : await whyOf(cause, next.successor)
  if (hasServed) {
    log({ event: 'reverting', message: `${tag}: ${reason}` })
    took('reverting')
    // Claim the main pid first: if the unit's main process dies unclaimed, the unit ends and is not restarted.
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=reverting from ${tag}`])
    took('reclaimed')
  }
  await next?.successor.end()
  if (hasServed) took('ended')
  // A process that has closed its state cannot serve: the caller starts another one, and connections wait for that.
  if (hasServed && !here.isClosed) {
    void options.takeTurn()
    options.onResume()
    for (const listener of listeners) await listenAgain(listener)
    took('listening again')
    next?.giving.takeBack()
    notePause(report, here.silentSince) // whoever had come to a new release that hangs has waited since then
    took('took back')
    log({ event: 'returned', returned: report.returned, cut: report.cut })
  }
  // it never stopped accepting, but the release that failed may have removed a name; a process that stops has closed its own
  if (!hasServed && !options.leaving.aborted) for (const listener of listeners) await listenAgain(listener)
  await here.draining?.catch(() => {})
  if (!hasServed && (await next?.successor.wantsToBeAlone()) === true) throw new MustBeAlone()
  const what = hasServed ? 'probation_failed' : 'restart_failed'
  throw await switchFailure(what, tag, reason, cause, next?.successor ?? null)
}
