// Whether the other process of a handover lives, hangs or is dead. A sign of life is a message, or that its main thread has run:
// a process in one long step (a synchronous wait for a lock of a database, say) is slow, not hung, and one that is stopped or
// frozen is hung however many messages it has left in the channel.

import { readFileSync } from 'node:fs'

export interface Heartbeat {
  /** a message has come */
  sign(): void
  /** Milliseconds without a sign of life. To be asked often: it looks at the process each time. */
  silentMs(): number
}

/** How often each side says that it lives, and how often it looks at the other. */
export const ALIVE_EVERY_MS = 250

export function lifeOf(pid: number): Heartbeat {
  let last = performance.now()
  let looked = last
  let work = workOf(pid)
  return {
    sign: () => void (last = performance.now()),
    silentMs() {
      const now = performance.now()
      // Where it was this process that stood still, the signs may wait in its own queue: they count from now.
      if (now - looked > 4 * ALIVE_EVERY_MS) last = now
      looked = now
      const current = workOf(pid)
      if (current !== work) last = now
      work = current
      return now - last
    },
  }
}

/** What changes whenever its main thread runs; always the same where it is gone or the host has no /proc. */
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

/** Rejects when there was no sign of life for `hangMs`, until it is disposed of. */
export function watch(life: Heartbeat, hangMs: number): Disposable & { rejects: Promise<never> } {
  const { promise, reject } = Promise.withResolvers<never>()
  promise.catch(() => {})
  const timer = setInterval(
    () => {
      const silentMs = life.silentMs()
      if (silentMs > hangMs) reject(new Error(`it gave no sign of life for ${Math.round(silentMs)} ms`))
    },
    Math.min(ALIVE_EVERY_MS, hangMs / 4),
  )
  return { rejects: promise, [Symbol.dispose]: () => clearInterval(timer) }
}
