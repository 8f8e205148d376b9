// Who has the listening sockets while no process of the service accepts on them, as seen by the process that comes next. There are four,
// and each gives its sockets through this one interface; serving.ts asks the one that this process has.
//
//   the manager     systemd, or the supervision without it (descriptor-store.ts)   held in its store          store.ts
//   the conductor   the old process; stop-first, the holder                     inherited from it          handover/take/successor.ts
//   a container     beside this one (container/holder/holder.c)                    lent over a connection     lent.ts
//   nobody          the first start                                                bound by this process      store.ts
//
// What a process serves on goes to the manager alone: `storeSockets` and `letGo` of store.ts.

import type { Held, Listener, ListenerSpec } from './listeners.ts'

/** Held sockets, by the key of their listener. */
export type HeldSockets = Map<string, Held>

/** How the process that served before has left. `orphaned`: it died, or was killed, before it said that this one stays. */
export type Ending = 'committed' | 'orphaned'

export interface Keeper {
  /**
   * Has it listen: on the socket that is kept for it, else on one that this process binds; `mayShare`: even if another process listens
   * there. Before `serve`, it may only seem to listen. Rejects if it cannot.
   */
  listen(listener: Listener, spec: ListenerSpec, mayShare: boolean): Promise<void>
  /** Call it once the listeners of the start have been given to `listen`. Resolves when this process accepts on all of them. */
  serve(): Promise<void>
  /** Whether the accept queue stays with the keeper when this process stops: new clients wait there for the next one. */
  readonly ownsQueue: boolean
  /** Resolves when no other process of the service lives; null: none does. */
  readonly gone: Promise<Ending> | null
  /** Tells it that this process was asked to stop, and has not failed. */
  stopping?(): void
  /** Leaves to it what comes from now on. Resolves when the application has had time to answer what came before. */
  leave?(): Promise<void>
}
