// The old process's part of a stop-first switch. The holder, a process of the old executable, keeps the sockets and the connections
// while no process of the application lives, and starts the new release once this process is gone.
//
//   spawn the holder -> it spawns the successor, which waits at its gate -> a quiet moment -> give everything -> onStop -> exit
//   on any failure before `onStop`: drop the holder; this process serves again, and nothing was lost
//   from `onStop` on: the holder goes on, even if this process fails

import { setTimeout as sleep } from 'node:timers/promises'
import { blameless, lateBy } from '../../words/blame.ts'
import { BatonError, EXIT, reasonOf } from '../../words/errors.ts'
import { pauseFault } from '../../words/pause.ts'
import type { Leaving } from '../../words/wire.ts'
import { inTime } from '../../words/in-time.ts'
import { endAll, signalAll, startedWith } from '../../sockets/process.ts'
import { namesOf } from '../../sockets/listeners.ts'
import { spareNames } from '../../sockets/clearing.ts'
import { keptDatagrams } from '../../sockets/datagrams.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { ticketsOf } from '../../sockets/tickets.ts'
import { took } from '../moments.ts'
import { privateServer } from '../private.ts'
import { ownWorks } from '../works.ts'
import { type DoorHolder, spawnHolder } from './child.ts'
import { makeGiving } from './giving.ts'
import type { SwitchOptions } from './options.ts'
import { ownIllness } from './probe.ts'
import { type QuietOptions, serveAgain, settle, comeToRest } from './quiet.ts'
import { notePause, switchFailure, toldToStop } from './trial.ts'

/** how long children may take to end after SIGTERM */
const CHILDREN_MS = 500
const LOOK_EVERY_MS = 5
/** allowance for the steps of a pause that no setting bounds: carrying, closing, ending children */
const LEAVING_MS = 5000

/**
 * Never resolves if all goes well: this process exits. Rejects with restart_failed or busy when this process serves again;
 * the error is blameless (`words/blame.ts`) if it says nothing about the release.
 */
export async function handOverAlone(options: SwitchOptions): Promise<never> {
  const { tag, leaving } = options
  const here: Here = {
    options,
    began: performance.now(),
    stop: new AbortController(),
    holder: null,
    pausedAt: null,
    isClosed: false,
  }
  const leaves = () => here.stop.abort(toldToStop())
  if (leaving.aborted) leaves()
  leaving.addEventListener('abort', leaves, { once: true })
  try {
    const couldUpdate = options.couldUpdate() // it asks the feed while two processes start, and never rejects
    const holder = await introduce(here)
    const own = () => privateServer(options.listeners, options)
    const [ability, illness] = await Promise.all([couldUpdate, ownIllness(own, options)])
    await options.nameHolder(holder.name)
    took('named')
    await beQuiet(here, holder)
    return await leave(here, holder, { ability, illness })
  } catch (cause) {
    if (here.isClosed) return process.exit(EXIT.done) // the holder goes on
    if (here.holder !== null) await drop(here.holder, options.operationId)
    if (cause instanceof BatonError && cause.code !== 'interrupted') throw cause
    throw await switchFailure('restart_failed', tag, reasonOf(cause), cause, here.holder)
  } finally {
    leaving.removeEventListener('abort', leaves)
  }
}

interface Here {
  options: SwitchOptions
  /** in `performance.now()` */
  began: number
  /** aborts, with the reason, when this process must serve on */
  stop: AbortController
  holder: DoorHolder | null
  /** in `performance.now()`: when this process read its last byte; null while it serves */
  pausedAt: number | null
  /** whether the author's state may be closed, so that there is no way back */
  isClosed: boolean
}

/** Resolves when the successor waits at its gate. */
async function introduce(here: Here): Promise<DoorHolder> {
  const { options, stop } = here
  const { maxPauseMs, kind, tag, log } = options
  stop.signal.throwIfAborted()
  // a release that starts slowly must not bar the way back from it
  const fault = kind === 'update' ? pauseFault(options.expected, maxPauseMs) : null
  if (fault !== null) throw fault
  const held = [...options.listeners, ...keptDatagrams()]
  const holder = spawnHolder(options.image, held, toldTo(options), options.values)
  here.holder = holder
  // a dead holder says nothing about the new release
  void holder.gone.then((why) =>
    stop.abort(blameless('interrupted', `the process that holds the sockets has ended: ${why}`)),
  )
  holder.also((message) => {
    if (message.type !== 'failed') return
    const { message: why, isBlameless = false } = message
    stop.abort(isBlameless ? blameless('interrupted', why) : new Error(why))
  })
  log({ event: 'holder', pid: holder.pid, tag })
  took('spawned')
  await becomesReady(holder, options, stop.signal)
  took('waiting')
  return holder
}

/** Resolves when this process has no request and no connection left to work on. Rejects when it serves again. */
async function beQuiet(here: Here, holder: DoorHolder): Promise<void> {
  const { options } = here
  const { listeners, report, tag } = options
  const { tell, give, also, gone } = holder
  const giving = makeGiving({ has: () => true, give, tell, gone, listeners, report })
  also(giving.hear)
  const quiet = quietOptions(here, holder, giving)
  try {
    if (!(await comeToRest(quiet)))
      throw blameless('busy', `could not switch to ${tag}: requests to the running release did not finish in time`)
  } catch (cause) {
    if (here.pausedAt !== null) await serveAgain(quiet)
    throw cause
  }
  took('quiet')
  here.isClosed = true
  await settle(quiet)
  took('settled')
}

/** Ends this process, which is the sign for the holder that the new release may begin. */
async function leave(
  { options, began, pausedAt }: Here,
  holder: DoorHolder,
  known: Pick<Leaving, 'ability' | 'illness'>,
): Promise<never> {
  await notifySystemd([`MAINPID=${holder.pid}`, `STATUS=${options.tag} starts when this process exits`])
  took('claimed')
  options.writeValues()
  spareNames(namesOf(options.listeners))
  const closingAt = performance.now()
  await options.close()
  if (performance.now() - closingAt >= options.stopMs) options.report.limitHit = true
  took('closed')
  const children = await endAll(process.pid, [holder.pid], CHILDREN_MS)
  await holder.tell({
    type: 'leaving',
    report: options.report,
    restartMs: Math.round(performance.now() - began),
    pausedMs: Math.round(performance.now() - (pausedAt ?? performance.now())),
    tickets: ticketsOf(options.listeners),
    children,
    ...known,
  })
  took('left')
  return process.exit(EXIT.done)
}

function toldTo(options: SwitchOptions): Parameters<typeof spawnHolder>[2] {
  const { service, tag, from, operationId, kind, command, executable, stateDirectory, healthPath, letsGo } = options
  const { readyMs, hangMs, probationMs, drainMaxMs, stopMs } = options
  // the works that only one process may do have `stopMs` to stop, and then `onStop` has as long
  const pauseMaxMs = options.quietMs + 2 * stopMs + LEAVING_MS
  const limits = { readyMs, hangMs, probationMs, drainMaxMs, stopMs, pauseMaxMs }
  return { service, tag, from, operationId, kind, command, executable, stateDirectory, healthPath, letsGo, ...limits }
}

/** Resolves when the holder has reported that the successor waits at its gate. */
async function becomesReady(holder: DoorHolder, { readyMs, tag }: SwitchOptions, signal: AbortSignal): Promise<void> {
  const late = () => lateBy('interrupted', `it did not start within ${readyMs} ms`, readyMs)
  const stopped = aborted(signal).then((reason) => Promise.reject(reason as Error))
  const waiting = await Promise.race([inTime(readyMs, holder.heard('waiting'), late), stopped])
  if (waiting.tag !== tag) throw new Error(`expected ${tag}, got ${waiting.tag}`)
}

/** Resolves with the reason when `signal` aborts. */
async function aborted(signal: AbortSignal): Promise<unknown> {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  return signal.reason
}

function quietOptions(here: Here, holder: DoorHolder, giving: QuietOptions['giving']): QuietOptions {
  const { options, stop } = here
  const { report, kind, log } = options
  return {
    ...options,
    giving,
    isAtWork: () => ownWorks().underWay().length > 0,
    keepEnding: (descriptors) => holder.give({ type: 'ending' }, descriptors),
    isPatient: kind === 'update',
    onPause() {
      here.pausedAt = performance.now()
      void holder.tell({ type: 'pause' })
    },
    onServe() {
      notePause(report, here.pausedAt)
      here.pausedAt = null
      void holder.tell({ type: 'resume' })
    },
    warn(message) {
      log({ event: 'warning', message })
      options.onWait(message)
    },
    signal: stop.signal,
  }
}

/** Has the holder end the successor, and itself. */
async function drop(holder: DoorHolder, operationId: string): Promise<void> {
  await holder.tell({ type: 'drop' })
  await Promise.race([holder.gone, sleep(CHILDREN_MS)])
  await endAll(holder.pid, [], 0)
  await holder.end()
  // If the holder was killed, its successor has another parent now, and waits at its gate until this process ends: end it.
  const until = performance.now() + CHILDREN_MS
  for (let left; (left = startedWith(operationId)).length > 0 && performance.now() < until;) {
    signalAll(left, 'SIGKILL')
    await sleep(LOOK_EVERY_MS)
  }
}
