// The end of this process, however it comes: a signal, the author's `stop`, a successor that has taken over. Must hold: no
// hook of the author's keeps it alive for ever, and a second signal ends it at once.

import { setTimeout as sleep } from 'node:timers/promises'
import { EXIT, reasonOf } from './errors.ts'
import { askToClose, closeIdle } from './handover/connections.ts'
import { shutDoor } from './handover/door.ts'
import { closeListener, type Listener } from './handover/listeners.ts'
import type { Carries } from './handover/carry.ts'
import type { SuccessorSide } from './handover/successor.ts'
import type { Settings, StopReason } from './settings.ts'

/** What this process has only once it serves. */
export interface Serving {
  listeners: Listener[]
  /** connections in the middle of something that the author has registered */
  carries: Carries
  /** what it is to its predecessor; null where it is nobody's successor */
  side: SuccessorSide | null
  /** resolves when a handover to a successor is over and this process lives; null where none is going on */
  handingOver: Promise<unknown> | null
  /** a successor that has not ended the operation yet that has started it */
  isSettling: boolean
}

export interface Life {
  isStopping(): boolean
  /** Stops accepting, lets requests in flight finish, and leaves with code 0. A second call does nothing. */
  stop(reason: string): Promise<void>
  /** aborts when this process is told to stop */
  leaving: AbortSignal
  /** Calls the author's `onDrain`. Never throws. */
  drain(): void
  /** Calls the author's `onResume`, where `onDrain` was called before. Never throws. */
  resume(): void
  /** Calls the author's `onStop` and waits for it at most `stopMs`: afterwards this process cannot serve. Never rejects. */
  close(reason: StopReason): Promise<void>
  /** Closes and exits. */
  leave(code: number, reason: StopReason): Promise<never>
  /** SIGTERM and SIGINT stop; a second one, SECOND_SIGNAL_MS after the first or later, exits at once. */
  heedSignals(): void
}

/** a Ctrl-C may come twice in one moment, from the terminal and from a parent that passes it on */
export const SECOND_SIGNAL_MS = 1000
/** how long the first byte of a connection that was accepted last may be on its way */
const FIRST_BYTE_MS = 500

export function makeLife(settings: Settings, serving: Serving): Life {
  const { log } = settings
  const hooks = makeHooks(settings)
  const leaving = new AbortController()

  const leave = async (code: number, reason: StopReason): Promise<never> => {
    await hooks.close(reason)
    return process.exit(code)
  }
  const stop = async (reason: string): Promise<void> => {
    if (leaving.signal.aborted) return
    log({ event: 'stopping', signal: reason })
    serving.side?.stopping()
    leaving.abort(reason)
    // where a successor serves already, this process ends in the handover, when its connections have been given to it
    await serving.handingOver
    await shutDoor(serving.listeners)
    // a predecessor on its way out has handed everything over: its successor goes on
    for (const listener of serving.listeners) closeListener(listener)
    hooks.drain()
    await finishRequests(serving.listeners, settings.update.drainMs)
    await leave(EXIT.done, 'stop')
  }
  const heedSignals = (): void => {
    let firstAt: number | null = null
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        firstAt ??= performance.now()
        if (performance.now() - firstAt < SECOND_SIGNAL_MS) return void stop(signal)
        log({ event: 'warning', message: `a second signal, ${signal}: leaving at once` })
        process.exit(EXIT.unexpected)
      })
    }
  }
  return { ...hooks, isStopping: () => leaving.signal.aborted, leaving: leaving.signal, stop, leave, heedSignals }
}

/** The author's. What they do wrong is in the log, and stops neither a switch nor a stop. */
function makeHooks(settings: Settings): Pick<Life, 'drain' | 'resume' | 'close'> {
  const { log, onStop } = settings
  const { stopMs } = settings.update
  const call = (hook: 'onDrain' | 'onResume'): void => {
    const warn = (cause: unknown) => log({ event: 'warning', message: `the author's ${hook}: ${reasonOf(cause)}` })
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
    const late = sleep(stopMs).then(() => {
      throw new Error(`expected it to settle within ${stopMs} ms`)
    })
    try {
      await Promise.race([(async () => onStop(reason))(), late])
    } catch (cause) {
      log({ event: 'warning', message: `the author's onStop: ${reasonOf(cause)}` })
    }
  }
  return { drain, resume, close }
}

/** Requests in flight may finish; connections that wait are told to go. */
async function finishRequests(listeners: Listener[], drainMs: number): Promise<void> {
  const began = performance.now()
  for (const listener of listeners) askToClose(listener)
  while (performance.now() - began < drainMs && listeners.some((listener) => listener.sockets.size > 0)) {
    const sparesNew = performance.now() - began < FIRST_BYTE_MS
    for (const listener of listeners) closeIdle(listener, { sparesNew })
    await sleep(20)
  }
}
