// What most starts do not need, loaded only when one does: the keepers beside this process, and servers that listen later.

import { ownContainerId } from './own.ts'
import { type OpenProbation, proveAlone, recoverUnderLock } from './recovery.ts'
import type { Ending, Keeper } from './sockets/keeper.ts'
import { type ListenerSpec, makeListener } from './sockets/listeners.ts'
import { freeSocket, type StoreKeeper, storeSockets } from './sockets/store.ts'
import { BatonError, EXIT, reasonOf } from './words/errors.ts'
import { HOLDER } from './words/lent.ts'
import type { Inheritance } from './words/wire.ts'
import type { ManagedInstall } from './disk/managed-install.ts'
import type { Life, Serving } from './life.ts'
import type { Settings } from './settings.ts'

/** how long to wait for the lock, which a dead predecessor may still seem to hold */
const LETTING_GO_MS = 10_000

export interface ServeOptions {
  settings: Settings
  /** null if this is not a managed install */
  install: ManagedInstall | null
  /** null if this process is the first of its service */
  inheritance: Inheritance | null
  /** the manager, which may hold sockets for this process until it serves */
  store: StoreKeeper
  /** filled in by `serve` */
  serving: Serving
  life: Life
  /** Filled in by `serve`, once: its servers may be given again, if one cannot listen. */
  found: Promise<FoundAtStart> | null
  /** settles when the first servers have been given to their keeper, of which a successor then waits for leave to accept; null before that */
  bound: Promise<FoundAtStart> | null
}

/** What a start has found. */
export interface FoundAtStart {
  keeper: Keeper
  /** a probation to complete, whose lock this process has; later than the keeper if another process has the lock first */
  open: Promise<OpenProbation | null>
}

/** The old process or the holder; without one, a container that lends its sockets. */
export async function keeperBeside(options: ServeOptions): Promise<Keeper> {
  const { settings, inheritance, install, store, serving, life } = options
  const warn = (message: string) => settings.log({ event: 'warning', message })
  if (inheritance !== null) {
    // a successor on trial that cannot listen exits, whatever its author would do about the error
    const failed = async (cause: unknown): Promise<never> => {
      warn(`taking over: ${reasonOf(cause)}`)
      return await life.leave(EXIT.unexpected, 'revert')
    }
    try {
      const { conductorKeeper } = await import('./handover/take/successor.ts')
      return conductorKeeper({ ...settings, ...serving, inheritance, install, takeTurn: serving.turn.take, failed })
    } catch (cause) {
      return await failed(cause)
    }
  }
  const path = process.env[HOLDER] ?? ''
  delete process.env[HOLDER] // the sockets are not for the application's children
  if (install !== null) {
    const hint = 'a managed install keeps its sockets over its updates by itself'
    throw new BatonError('invalid_settings', 'BATON_HOLDER is for a service in a container', { hint })
  }
  store.letGo()
  serving.isSettling = serving.isSecond = true
  const { containerKeeper } = await import('./sockets/lent.ts')
  return await containerKeeper(path, { warn, leaving: life.leaving, id: await ownContainerId() })
}

/** Has servers listen that the application opens later. One of a successor may take the place of another that its author has closed. */
export async function serveMore(specs: ListenerSpec[], { keeper }: FoundAtStart, options: ServeOptions): Promise<void> {
  const { settings, install, inheritance, serving } = options
  if (inheritance === null) await serving.began
  for (const spec of specs) {
    const listener = makeListener(spec, (closed) => freeSocket(closed, serving))
    const mayShare = install === null || serving.freed.has(listener.key)
    await keeper.listen(listener, spec, mayShare)
    if (!listener.server.listening) continue // it only asked whether its port is free, and its author has closed it
    serving.listeners.push(listener)
    if (!serving.isSecond) void storeSockets([listener])
    settings.log({ event: 'listening', address: listener.address })
  }
}

/** Ends the operation that has started this process. */
export async function endOperation(ending: Ending, install: ManagedInstall, options: ServeOptions): Promise<void> {
  const { settings, serving } = options
  // If the predecessor has committed, the probation is complete; if not, it continues now.
  if (ending === 'orphaned') {
    const message = 'the predecessor is gone without a commit; probation goes on alone'
    settings.log({ event: 'warning', message })
  }
  const open = await recoverUnderLock(install, LETTING_GO_MS)
  if (open !== null) await proveAlone(install, open, options, ending === 'committed')
  serving.isSettling = false
}
