// The end of a container as the kernel knows it. The engine says the same after it has cleared up, a tenth of a second later, while clients
// wait. What both look at is process 1 of the container's pid namespace: it is a zombie when every other process there has been
// reaped, and each of them, and itself, has closed its files before.
// Must hold: an end is seen only if nobody of the container lives, and the engine will not start it again by itself. Where either is not
// certain nothing is seen, and the engine's word counts.

import { closeSync, openSync, readFileSync, readSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isGoneIn } from '../../agent/install.ts'
import type { Engine } from './engine/engine.ts'
import type { ContainerInspection } from './inspection.ts'

/** folder in which the switcher can read `/proc` of the engine's host */
export const PROCESSES = '/run/baton-processes'
const [LOOK_MS, STAT_MAX_BYTES] = [2, 1024]
/** their containers are processes of the host's kernel: not a sandbox's, nor a virtual machine's */
const PLAIN_RUNTIMES: readonly unknown[] = ['runc', 'io.containerd.runc.v2', 'crun']

export interface EndWatch extends Disposable {
  /** Resolves when the end that follows a stop by the engine is seen. Does nothing else, ever. */
  seen: Promise<void>
}

/** To be called before the container is stopped. */
export async function watchEnd(id: string, engine: Engine): Promise<EndWatch> {
  const over = new AbortController()
  const container = await engine.container(id)
  const stat = container === null ? null : openStat(container)
  const signals = stat === null ? null : await engine.signals(id, over.signal).catch(() => null)
  const isKnown = container !== null && stat !== null && signals !== null
  return {
    seen: isKnown ? endAfter(stopSignalOf(container), signals, stat, over.signal).catch(never) : never(),
    [Symbol.dispose]() {
      over.abort()
      if (stat !== null) closeSync(stat)
    },
  }
}

/** Rejects if the stop came to another process than this. */
async function endAfter(stop: number, signals: AsyncIterable<number>, stat: number, over: AbortSignal): Promise<void> {
  for await (const signal of signals) {
    if (signal !== stop) continue
    // an engine starts a container again that has ended before it was stopped: what it stops then is the next process 1
    if (hasEnded(stat)) break
    while (!hasEnded(stat)) await sleep(LOOK_MS, undefined, { signal: over })
    return
  }
  throw new Error('the stop signal went to another process')
}

/**
 * `stat` of the container's process 1, which keeps to this process whatever becomes of its number. Null if it cannot be read, or if its
 * end would not be that of all: it is not the first of a pid namespace, or the number is another process's here.
 */
function openStat({ Id, State, HostConfig }: ContainerInspection): number | null {
  if (!PLAIN_RUNTIMES.includes(HostConfig['Runtime'])) return null
  const folder = join(PROCESSES, String(State.Pid))
  let stat: number | null = null
  try {
    stat = openSync(join(folder, 'stat'), 'r')
    const isFirst = /^NSpid:.*\t\d+\t1$/m.test(readFileSync(join(folder, 'status'), 'latin1'))
    const isIts = readFileSync(join(folder, 'cgroup'), 'latin1').includes(Id)
    // while it lives nobody else has its number
    if (isFirst && isIts && !hasEnded(stat)) return stat
  } catch {
    // it is not there, or this host hides it
  }
  if (stat !== null) closeSync(stat)
  return null
}

function hasEnded(stat: number): boolean {
  const text = Buffer.alloc(STAT_MAX_BYTES)
  try {
    const bytes = readSync(stat, text, 0, text.length, 0)
    return isGoneIn(text.toString('latin1', 0, bytes))
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return true
    throw cause
  }
}

/** NaN for a name that only the engine knows, such as `RTMIN+3`. */
function stopSignalOf({ Config }: ContainerInspection): number {
  const name = (Config.StopSignal || 'SIGTERM').replace(/^(?!SIG|\d)/, 'SIG')
  return (constants.signals as Record<string, number>)[name] ?? Number(name)
}

function never(): Promise<never> {
  return new Promise(() => {})
}
