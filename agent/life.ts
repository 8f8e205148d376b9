// Every way in which this process ends: a signal, the author's `stop`, a successor that has taken over. Must hold: no hook of the
// author keeps the process alive for ever, and a second signal ends the process at once.

import { EXIT, reasonOf } from './words/errors.ts'
import { onceLoaded } from './words/later.ts'
import type { Keeper } from './sockets/keeper.ts'
import type { Listener } from './sockets/listeners.ts'
import type { Carries } from './handover/carry/carry.ts'
import { bounded, type Turn } from './handover/turn.ts'
import { ownWorks } from './handover/works.ts'
import type { Settings, StopReason } from './settings.ts'

/** What this process has only once it serves. */
export interface Serving {
  listeners: Listener[]
  /** settles when the listeners of the first `serve()` accept; null before that call */
  began: Promise<void> | null
  /** keys of listeners that the author has closed: another process that still holds such a socket will close it soon */
  freed: Set<string>
  /** connections in the middle of something that the author has registered */
  carries: Carries
  /** who had the sockets before this process; null before the first `serve()` */
  keeper: Keeper | null
  /** what only one process may do */
  turn: Turn
  /** resolves when a handover has ended and this process still lives; null if none is in progress */
  handingOver: Promise<unknown> | null
  /** true in a successor that has not yet ended the operation that started it */
  isSettling: boolean
  /** true while the process that this one takes over from may live */
  isSecond: boolean
}

export function startedServing(carries: Carries, turn: Turn, isSettling: boolean): Serving {
  const nothing = { began: null, keeper: null, handingOver: null }
  return { listeners: [], freed: new Set(), carries, turn, isSettling, isSecond: isSettling, ...nothing }
}

export interface Life {
  isStopping(): boolean
  /**
   * Waits for work under way, stops accepting, lets requests in flight finish, ends what has no end, and exits with code 0. A second call
   * does nothing. With another `code` it ends in failure: the manager keeps the sockets, and clients wait for the next process.
   */
  stop(reason: string, code?: number): Promise<void>
  /** Loads all the code of a stop, while its files are certainly there. */
  loadStop(): Promise<unknown>
  /** aborts when this process is asked to stop */
  leaving: AbortSignal
  /** Calls the author's `onDrain`. Never throws. */
  drain(): void
  /** Calls the author's `onResume` if `onDrain` was called before. Never throws. */
  resume(): void
  /** Calls the author's `onStop` and waits for it at most `stopMs`. Afterwards this process cannot serve. Never rejects. */
  close(reason: StopReason): Promise<void>
  /** Closes and exits. */
  leave(code: number, reason: StopReason): Promise<never>
  /** SIGTERM and SIGINT stop; a second one, SECOND_SIGNAL_MS after the first or later, exits at once. */
  heedSignals(): void
}

/** one Ctrl-C may arrive twice at once: from the terminal, and from a parent that passes it on */
export const SECOND_SIGNAL_MS = 1000

export function makeLife(settings: Settings, serving: Serving): Life {
  const { log } = settings
  const hooks = makeHooks(settings, serving.turn)
  const leaving = new AbortController()
  // of one importer: Node looks for the file again if another module imports it
  const loadStop = onceLoaded(() => import('./handover/give/parting.ts'))
  const end = holdableExit()

  const leave = async (code: number, reason: StopReason): Promise<never> => {
    end.letGo()
    await hooks.close(reason)
    return end.exit(code)
  }
  const stop = async (reason: string, code: number = EXIT.done): Promise<void> => {
    if (leaving.signal.aborted) return
    log({ event: 'stopping', signal: reason })
    ownWorks().hold()
    serving.keeper?.stopping?.()
    leaving.abort(reason)
    if (serving.keeper?.ownsQueue === true) end.hold()
    const before = [...serving.listeners] // an author who closes the servers at the same signal takes them out of the list
    const parting = loadStop()
    const askTime = () => parting.then(({ allowLongStop }) => allowLongStop(settings.update)).catch(() => {})
    void askTime()
    if (serving.handingOver !== null) {
      // If a successor serves already, this process exits at the end of the handover, once it has given its connections away.
      await serving.handingOver
      void askTime() // the handover has had the time until now
    }
    const { keeper, carries } = serving
    const listeners = () => [...new Set([...before, ...serving.listeners])]
    const toPart = { listeners, carries, keeper, drain: hooks.drain, isFailure: code !== EXIT.done }
    await parting
      .then(({ part }) => part({ ...toPart, drainMs: settings.update.drainMs }, log))
      .catch((cause: unknown) => log({ event: 'warning', message: `stopping: ${reasonOf(cause)}` }))
    await leave(code, 'stop')
  }
  return {
    ...hooks,
    isStopping: () => leaving.signal.aborted,
    leaving: leaving.signal,
    stop,
    loadStop,
    leave,
    heedSignals: heedingSignals(stop, end.exit, log),
  }
}

function heedingSignals(stop: Life['stop'], exit: (code: number) => never, log: Settings['log']): () => void {
  let isHeeding = false
  return (): void => {
    if (isHeeding) return
    isHeeding = true
    let firstAt: number | null = null
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      // not `process.on`: adapters/on-signal.ts collects what is registered by it, as the application's
      process.prependListener(signal, () => {
        firstAt ??= performance.now()
        if (performance.now() - firstAt < SECOND_SIGNAL_MS) return void stop(signal)
        log({ event: 'warning', message: `received a second signal (${signal}): exiting immediately` })
        exit(EXIT.unexpected)
      })
    }
  }
}

/** An application that exits at the same signal would reset whoever still waits for an answer. So its exit is held until `exit`. */
function holdableExit() {
  const exit = process.exit.bind(process)
  let asked: Parameters<typeof exit>[0] = null
  return {
    hold: (): void => void (process.exit = ((code = process.exitCode ?? 0) => void (asked = code)) as typeof exit),
    letGo: (): void => void (process.exit = exit),
    exit: (code: number): never => exit(asked ?? code),
  }
}

/** The author's hooks. A hook that fails is logged; it stops neither a switch nor a stop. */
function makeHooks(settings: Settings, turn: Turn): Pick<Life, 'drain' | 'resume' | 'close'> {
  const { log, onStop } = settings
  const { stopMs } = settings.update
  const call = (hook: 'onDrain' | 'onResume'): void => {
    const warn = (cause: unknown) =>
      log({ event: 'warning', message: `the application's ${hook} failed: ${reasonOf(cause)}` })
    try {
      void Promise.resolve<void>(settings[hook]()).catch(warn)
    } catch (cause) {
      warn(cause)
    }
  }
  let isDrained = false
  const drain = (): void => {
    isDrained = true
    call('onDrain')
  }
  const resume = (): void => {
    if (isDrained) call('onResume')
    isDrained = false
  }
  const close = async (reason: StopReason): Promise<void> => {
    await turn.pass()
    const began = performance.now()
    await bounded(
      () => onStop(reason),
      stopMs,
      (why) => log({ event: 'warning', message: `the application's onStop failed: ${why}` }),
    )
    const ms = Math.round(performance.now() - began)
    if (ms > 0.8 * stopMs && ms < stopMs)
      log({ event: 'warning', message: `the application's onStop took ${ms} ms; \`stopTimeout\` allows ${stopMs} ms` })
  }
  return { drain, resume, close }
}
