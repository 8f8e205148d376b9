// Values that an application keeps in memory and leaves to the next process: sessions, counters, a queue. They travel in a file
// without a name, which both processes have open and no other process can find. The old process writes it after its last request.
// Must hold: a value that cannot travel is named in the log, and does not stop a switch.

import type { Inheritance } from '../words/wire.ts'
import { inheritanceHere } from './inheritance.ts'

export interface Memory {
  /**
   * `value` is called once, after the last request of this process. What it returns (structured-cloneable, at most 64 MiB of all
   * values together) is what `inherited(key)` gives in the next process.
   */
  handOver(key: string, value: () => unknown): void
  /**
   * The value that the previous process left under this key; undefined if it left none. In a stop-first switch it resolves at once;
   * in a start-first switch, when the old process has ended. So do not await it before `listen()` there: the old process waits for this one
   * to serve, and the update would be reverted.
   */
  inherited(key: string): Promise<unknown>
}

export interface OwnValues extends Memory {
  /** what the author has registered, by key */
  given: ReadonlyMap<string, () => unknown>
  /** Call it once, when the old process has ended: the file is complete. */
  complete(): void
}

/** one for each process, shared by symbol: an application may have two copies of this file */
const VALUES = Symbol.for('baton.values')
const shared = globalThis as { [VALUES]?: OwnValues }

/** This process's values. Call it first before `takeInheritance`, which removes the inheritance from the environment. */
export function ownValues(): OwnValues {
  return (shared[VALUES] ??= makeValues(inheritanceHere()))
}

export function makeValues(inheritance: Pick<Inheritance, 'values' | 'gate'> | null): OwnValues {
  const given = new Map<string, () => unknown>()
  const fd = inheritance?.values ?? null
  let resolve = () => {} // not `Promise.withResolvers`: Node 20 serves too, and has none
  const completed = new Promise<void>((done) => (resolve = done))
  if (fd === null || inheritance?.gate !== undefined) resolve()
  let values: Promise<Map<string, unknown>> | null = null
  const read = (file: number) => (values ??= import('./values-file.ts').then(({ readValues }) => readValues(file)))
  return {
    handOver: (key, value) => void given.set(key, value),
    inherited: async (key) => {
      await completed
      if (fd === null) return undefined
      return (await read(fd)).get(key)
    },
    given,
    complete() {
      if (fd !== null) void read(fd) // which closes the file: the descriptor is not kept for ever
      resolve()
    },
  }
}
