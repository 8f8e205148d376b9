// What most starts do not need, loaded only when one does: taking over from a predecessor, listening on sockets that a holder in
// another container lends, and listening on more sockets after the first ones serve.

import { proveAlone, recoverUnderLock } from './recovery.ts'
import { BatonError, EXIT, reasonOf } from './words/errors.ts'
import { type Door, freeSocket, letGo, storeSockets } from './sockets/store.ts'
import { bind, type ListenerSpec, makeListener } from './sockets/listeners.ts'
import type { Inheritance } from './words/wire.ts'
import { ownValues } from './handover/values.ts'
import { notifySystemd } from './sockets/systemd.ts'
import { ownContainerId } from './own.ts'
import type { Life, Serving } from './life.ts'
import type { ManagedInstall } from './disk/managed-install.ts'
import type { Settings } from './settings.ts'

/** how long to wait for the lock, which a dead predecessor may still seem to hold */
const LETTING_GO_MS = 10_000

const UNMANAGED = { problem: 'it is not a managed install', feed: false }

export interface ServeOptions {
  settings: Settings
  /** null if this is not a managed install */
  install: ManagedInstall | null
  /** null if this process is the first of its service */
  inheritance: Inheritance | null
  /** the sockets that were held for this process until it serves */
  door: Door
  /** filled in by `serve` */
  serving: Serving
  life: Life
}

/** Takes over from a predecessor. If it cannot, this process exits. Without one, takes the sockets that a holder lends. */
export async function serveNext(
  specs: ListenerSpec[],
  inheritance: Inheritance | null,
  options: ServeOptions,
): Promise<void> {
  const { settings, install, serving, life } = options
  if (inheritance === null) return await serveLent(specs, options)
  const { service, tag, log } = settings
  const couldUpdate = async () =>
    install === null ? UNMANAGED : await (await import('./update/could-update.ts')).couldUpdate(install)
  try {
    const { takeOver } = await import('./handover/take/successor.ts')
    const takeTurn = serving.turn.take
    serving.side = await takeOver({ inheritance, ...serving, specs, service, tag, log, couldUpdate, takeTurn })
    if (inheritance.gate !== undefined) void takeTurn() // no other process lives
  } catch (cause) {
    log({ event: 'warning', message: `taking over: ${reasonOf(cause)}` })
    await life.leave(EXIT.unexpected, 'revert')
  }
  // Store the sockets only after the handover. Otherwise a listener that only this release has would stay open beyond a revert,
  // with no process to accept, and its clients would wait for ever.
  void serving.side?.ended.then(() => {
    serving.isSecond = false
    ownValues().complete()
    if (life.isStopping()) return
    void serving.turn.take()
    void storeSockets(serving.listeners)
  })
  if (install === null) return
  void serving.side?.ended.then(async (ending) => {
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=serving ${tag}`])
    if (life.isStopping()) return
    // This process ends the operation. If the predecessor has committed, the probation is complete; if not, it continues now.
    if (ending === 'orphaned') {
      log({ event: 'warning', message: 'the predecessor is gone without a commit; probation goes on alone' })
    }
    const open = await recoverUnderLock(install, LETTING_GO_MS)
    const leftMs = ending === 'committed' ? 0 : settings.update.probationMs
    if (open !== null) await proveAlone(install, open, leftMs, life.isStopping)
    serving.isSettling = false
  })
}

/** Listens on the sockets of a holder in another container. Waits for the holder as long as it takes. */
async function serveLent(specs: ListenerSpec[], { settings, install, door, serving, life }: ServeOptions) {
  const path = process.env['BATON_HOLDER'] ?? ''
  delete process.env['BATON_HOLDER'] // the sockets are not for the application's children
  if (install !== null) {
    const hint = 'a managed install keeps its sockets over its updates by itself'
    throw new BatonError('invalid_settings', 'BATON_HOLDER is for a service in a container', { hint })
  }
  for (const [key, fd] of door.take()) void letGo(key, fd)
  const { borrow, turnComes } = await import('./sockets/lent.ts')
  const warn = (message: string) => settings.log({ event: 'warning', message })
  const lent = await borrow(path, { warn, leaving: life.leaving })
  serving.lent = lent
  for (const [index, listener] of serving.listeners.entries()) {
    const spec = specs[index]
    if (spec !== undefined) await lent.listen(listener, spec)
  }
  serving.isSettling = serving.isSecond = true
  void turnComes(path, await ownContainerId(), life.leaving).then((isOurs) => {
    serving.isSettling = serving.isSecond = false
    if (isOurs) void serving.turn.take()
  })
}

/** Rejects if it cannot listen. A successor on trial exits instead, whatever its author would do about the error. */
export async function serveMore(
  specs: ListenerSpec[],
  { settings, install, serving, life }: ServeOptions,
): Promise<void> {
  const isTried = () => serving.side?.isTried() === true
  for (const spec of specs) {
    const listener = makeListener(spec, (closed) => freeSocket(closed, serving))
    try {
      if (isTried()) await serving.side?.listen(listener, spec)
      else if (serving.lent !== undefined) await serving.lent.listen(listener, spec)
      else {
        const { key } = listener
        const mayShare = serving.side !== null || install === null || serving.freed.has(key)
        await bind(listener, spec, serving.unclaimed.get(key) ?? null, mayShare)
        serving.unclaimed.delete(key)
      }
    } catch (cause) {
      if (!isTried()) throw cause
      settings.log({ event: 'warning', message: `taking over: ${reasonOf(cause)}` })
      await life.leave(EXIT.unexpected, 'revert')
    }
    if (!listener.server.listening) continue // it only asked whether its port is free, and its author has closed it
    serving.listeners.push(listener)
    if (!isTried()) void storeSockets([listener])
    settings.log({ event: 'listening', address: listener.address })
  }
}
