// What an author's process keeps in memory and leaves to the next one: sessions, counters, a queue. It travels in a file without a
// name, which both processes have open and nobody else can find. The old process writes it after its last request.
// Must hold: a value that cannot travel is named in the log, and stops no switch.

import type { Inheritance } from '../words/wire.ts'
import { inheritanceHere } from './inheritance.ts'

export interface Memory {
  /**
   * `value` is called once, after the last request of this process. What it returns (structured-cloneable, at most 64 MiB of all
   * values together) is what `inherited(key)` gives in the next process.
   */
  handOver(key: string, value: () => unknown): void
  /**
   * What the process before left under this key; undefined if there was none, or it left nothing. One at a time it resolves at
   * once; together, when the old process has ended.
   */
  inherited(key: string): Promise<unknown>
}

export interface OwnValues extends Memory {
  /** what the author has registered, by key */
  given: ReadonlyMap<string, () => unknown>
  /** From now on the file is complete: its writer is gone. */
  complete(): void
}

/** one for each process, shared by symbol: an application may have two copies of this file */
const VALUES = Symbol.for('baton.values')
const shared = globalThis as { [VALUES]?: OwnValues }

/** This process's own. The first call must come before the inheritance is removed from the environment. */
export function ownValues(): OwnValues {
  return (shared[VALUES] ??= makeValues(inheritanceHere()))
}

export function makeValues(inheritance: Pick<Inheritance, 'values' | 'gate'> | null): OwnValues {
  const given = new Map<string, () => unknown>()
  const fd = inheritance?.values ?? null
  let resolve = () => {} // not `Promise.withResolvers`: Node 20 serves too, and has none
  const completed = new Promise<void>((done) => (resolve = done))
  if (fd === null || inheritance?.gate !== undefined) resolve()
  let read: Map<string, unknown> | null = null
  return {
    handOver: (key, value) => void given.set(key, value),
    inherited: async (key) => {
      await completed
      if (fd === null) return undefined
      read ??= (await import('./values-file.ts')).readValues(fd)
      return read.get(key)
    },
    given,
    complete: resolve,
  }
}
