// Watches whether the other process of a handover lives or hangs. A message is a sign of life, and so is a main thread that has run.
// A process in one long step (for example a synchronous wait for a database lock) is slow, not hung. A process that is stopped or
// frozen is hung, however many messages it has left in the channel.

import { readFileSync } from 'node:fs'

export interface Heartbeat {
  /** call it when a message has come */
  sign(): void
  /** Milliseconds without a sign of life. Call it often: it looks at the process each time. */
  silentMs(): number
}

/** How often each process says that it lives, and how often it looks at the other. */
export const ALIVE_EVERY_MS = 250

export function lifeOf(pid: number): Heartbeat {
  let last = performance.now()
  let looked = last
  let work = workOf(pid)
  return {
    sign: () => void (last = performance.now()),
    silentMs() {
      const now = performance.now()
      // If this process itself stood still, signs of life may wait in its own queue: count from now.
      if (now - looked > 4 * ALIVE_EVERY_MS) last = now
      looked = now
      const current = workOf(pid)
      if (current !== work) last = now
      work = current
      return now - last
    },
  }
}

/** A text that changes whenever the main thread of `pid` runs; constant if the process is gone or the host has no /proc. */
function workOf(pid: number): string {
  try {
    return (
      /^voluntary_ctxt_switches:\s*\d+\nnonvoluntary_ctxt_switches:\s*\d+/m.exec(
        readFileSync(`/proc/${pid}/status`, 'utf8'),
      )?.[0] ?? ''
    )
  } catch {
    return ''
  }
}

/** `rejects` rejects when there was no sign of life for `hangMs`. Disposing of it stops the watch. */
export function watch(life: Heartbeat, hangMs: number): Disposable & { rejects: Promise<never> } {
  const { promise, reject } = Promise.withResolvers<never>()
  promise.catch(() => {})
  const timer = setInterval(
    () => {
      const silentMs = life.silentMs()
      if (silentMs > hangMs) reject(new Error(`it was unresponsive for ${Math.round(silentMs)} ms`))
    },
    Math.min(ALIVE_EVERY_MS, hangMs / 4),
  )
  return { rejects: promise, [Symbol.dispose]: () => clearInterval(timer) }
}
