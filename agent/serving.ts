// Starts to serve: as the first process of a service, or as the successor in a handover.

import { proveAlone, recoverUnderLock } from './recovery.ts'
import { EXIT, reasonOf } from './words/errors.ts'
import { type Door, letGo, storeSockets } from './sockets/store.ts'
import { missingParts } from './sockets/internals.ts'
import { bind, type Listener, type ListenerSpec, makeListener } from './sockets/listeners.ts'
import type { Inheritance } from './words/wire.ts'
import { ownValues } from './handover/values.ts'
import { notifySystemd } from './sockets/systemd.ts'
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

/** Resolves when this process accepts connections. Rejects if it cannot; a successor exits by itself instead. */
export async function serve(specs: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { settings, install, inheritance, serving, life } = options
  const { tag, log } = settings
  serving.listeners = specs.map(makeListener)
  life.heedSignals()
  if (inheritance === null) await serveFirst(specs, options)
  else await serveNext(specs, inheritance, options)
  log({
    event: 'serving',
    tag,
    listeners: serving.listeners.map(({ address }) => address),
    managed: install !== null,
    missing: missingParts(),
  })
}

async function serveFirst(specs: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { settings, install, serving, life, door } = options
  const open = install === null ? null : await recoverUnderLock(install)
  const held = door.take()
  // A process that was handed sockets is the service, and may share a port that it holds at another address. A second process of
  // an install can only be a mistake, such as the service started by hand beside itself.
  const isHeld = held.size > 0
  await bindAll(serving.listeners, specs, held, isHeld || install === null)
  for (const { address } of isHeld ? [] : serving.listeners.filter(({ isShared }) => isShared)) {
    const message = `another process listens on ${address} already, and the kernel divides the connections between the two`
    settings.log({ event: 'warning', message })
  }
  void serving.turn.take()
  await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${settings.tag}`])
  void storeSockets(serving.listeners)
  if (install === null || open === null) return
  void proveAlone(install, open, settings.update.probationMs, life.isStopping)
}

async function serveNext(specs: ListenerSpec[], inheritance: Inheritance, options: ServeOptions): Promise<void> {
  const { settings, install, serving, life } = options
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
    ownValues().complete()
    if (life.isStopping()) return
    void serving.turn.take()
    void storeSockets(serving.listeners)
  })
  if (install === null) return
  void serving.side?.ended.then(async (ending) => {
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=serving ${tag}`])
    if (life.isStopping()) return
    // This process ends the operation. If the predecessor has committed, the probation is complete; if not, it continues here.
    if (ending === 'orphaned') {
      log({ event: 'warning', message: 'the predecessor is gone without a commit; probation goes on alone' })
    }
    const open = await recoverUnderLock(install, LETTING_GO_MS)
    const leftMs = ending === 'committed' ? 0 : settings.update.probationMs
    if (open !== null) await proveAlone(install, open, leftMs, life.isStopping)
    serving.isSettling = false
  })
}

async function bindAll(
  listeners: Listener[],
  specs: ListenerSpec[],
  held: Map<string, number>,
  mayShare: boolean,
): Promise<void> {
  for (const [index, listener] of listeners.entries()) {
    const spec = specs[index]
    if (spec !== undefined) await bind(listener, spec, held.get(listener.key) ?? null, mayShare)
    held.delete(listener.key)
  }
  for (const [key, fd] of held) await letGo(key, fd)
}
