// What most starts do not need, loaded only when one does: the keepers beside this process, servers that listen later, a probation that no
// predecessor watches, and what was held for a server that never came.

import { setTimeout as sleep } from 'node:timers/promises'
import { ownStart } from './own.ts'
import { ownContainerId } from './sockets/process.ts'
import { type OpenProbation, recoverUnderLock } from './recovery.ts'
import { beginsProbation } from './disk/journal.ts'
import type { Lock } from './disk/lock.ts'
import type { Ending, Keeper } from './sockets/keeper.ts'
import { type Listener, type ListenerSpec, makeListener } from './sockets/listeners.ts'
import { freeSocket, type StoreKeeper, storeSockets } from './sockets/store.ts'
import { BatonError, EXIT, reasonOf } from './words/errors.ts'
import { HOLDER } from './words/lent.ts'
import type { Inheritance } from './words/wire.ts'
import type { ManagedInstall } from './disk/managed-install.ts'
import type { OwnInstall } from './managed.ts'
import type { Life, Serving } from './life.ts'
import type { Settings } from './settings.ts'

/** how long to wait for the lock, which a dead predecessor may still seem to hold */
const LETTING_GO_MS = 10_000

export interface ServeOptions {
  settings: Settings
  /** null if this is not a managed install */
  install: OwnInstall | null
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
      warn(`could not take over: ${reasonOf(cause)}`)
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
    const hint = 'unset BATON_HOLDER: a managed install does not need it to keep its sockets during an update'
    throw new BatonError('invalid_settings', 'BATON_HOLDER works only for a service in a container', { hint })
  }
  store.letGo()
  serving.isSettling = serving.isSecond = true
  const { containerKeeper } = await import('./sockets/lent.ts')
  return await containerKeeper(path, { warn, leaving: life.leaving, id: ownContainerId() })
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
export async function endOperation(ending: Ending, install: OwnInstall, options: ServeOptions): Promise<void> {
  const { settings, serving } = options
  // If the predecessor has committed, the probation is complete; if not, it continues now.
  if (ending === 'orphaned') {
    const message = 'the old process ended during probation, which continues without it'
    settings.log({ event: 'warning', message })
  }
  const open = await recoverUnderLock(install, LETTING_GO_MS)
  if (open !== null) await proveAlone(install, open, options, ending === 'committed')
  serving.isSettling = false
}

/** The process that proves itself. */
interface Alone {
  settings: Settings
  serving: Serving
  life: Life
}

/**
 * Commits the probation after `probationMs`, once this process is well; `isProved`: at once, since its conductor found it well. If it is not
 * well within `readyMs`, the release has failed. If the service is stopping by then, the next start continues the probation.
 */
export async function proveAlone(
  own: OwnInstall,
  { probation, lock }: OpenProbation,
  { settings, serving, life }: Alone,
  isProved = false,
): Promise<void> {
  const { to, sha256, operationId } = probation
  const { probationMs, readyMs } = settings.update
  const endsInFailure = () => {
    if (!life.isStopping()) process.exitCode ||= EXIT.unexpected
  }
  try {
    const loaded = await loadEnding(lock, own, life)
    const { failProbation, illnessAlone, install, noteTag, privateServer, settleProbation, sweep } = loaded
    {
      await using _lock = lock
      if (!isProved) {
        process.on('exit', endsInFailure) // an application that ends with 0 was not stopped on purpose
        await beginProbation(install, probationMs)
        await sleep(probationMs)
      }
      const server = () => privateServer(serving.listeners, settings)
      const why = isProved ? null : await illnessAlone(server, { ...settings, ...settings.update }, life.isStopping)
      const state = await install.journal.read()
      if (life.isStopping() || state.probation?.operationId !== operationId) return
      if (why === null) {
        await settleProbation(install)
        await sweep(install)
      } else if (await failProbation(install, `it was not healthy within ${readyMs} ms: ${why}`, readyMs)) {
        await life.stop(`probation failed: ${why}`, EXIT.unexpected)
      }
    }
    await noteTag(install, { tag: to, sha256 }) // without the lock: it may have to read the whole executable
  } catch (cause) {
    own.log({ event: 'warning', message: `could not end the probation of ${to}: ${reasonOf(cause)}` })
  } finally {
    process.off('exit', endsInFailure)
  }
}

/** Loads all code that ends a probation, while this release's files certainly exist. Releases the lock if that fails. */
async function loadEnding(lock: Lock, own: OwnInstall, life: Life) {
  try {
    const [install, ending, { noteTag }, { illnessAlone }, { privateServer }] = await Promise.all([
      own.open(),
      import('./update/ending.ts'),
      import('./update/installed.ts'),
      import('./handover/give/probe.ts'),
      import('./handover/private.ts'),
      life.loadStop(),
    ])
    return { ...ending, install, noteTag, illnessAlone, privateServer }
  } catch (cause) {
    await lock.release()
    throw cause
  }
}

/** Notes that the release on probation serves from now on. Never throws: a failed write is no reason to end the probation. */
export async function beginProbation(install: ManagedInstall, probationMs: number): Promise<void> {
  try {
    await install.journal.change((state) => beginsProbation(state, probationMs))
  } catch (cause) {
    install.log({ event: 'warning', message: `cannot record the start of probation: ${reasonOf(cause)}` })
  }
}

/**
 * `keys`: what was let go, as nobody has listened there. If the configured port is among them and this process has none of its number, its
 * application has asked, in a way that this process does not see, whether that port is free, and went on to another one, where nobody would
 * find it: it ends, to be started without.
 */
export function endIfMissed(keys: readonly string[], listeners: readonly Listener[]): void {
  const wanted = (ownStart()?.configuration?.listen ?? []).map(({ port = 0 }) => `:${port}`)
  const isIn = (port: string, some: readonly string[]) => some.some((key) => key.endsWith(port))
  const found = listeners.map(({ key }) => key)
  const missed = wanted.find((port) => isIn(port, keys) && !isIn(port, found))
  if (missed === undefined || found.length === 0) return
  process.stderr.write(
    `baton: expected the application to listen on port ${missed.slice(1)}, which was held for it, got ${found.join(', ')}; this process is exiting, and that port will be free at the next start\n`,
  )
  process.exit(EXIT.unexpected)
}
