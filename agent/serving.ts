// The start of serving: as the first process of a service, or as the successor of one that is handing over.

import { proveAlone, recoverUnderLock } from './alone.ts'
import { couldUpdate as couldUpdateOf } from './could-update.ts'
import { EXIT, reasonOf } from './errors.ts'
import { type Door, letGo, storeSockets } from './handover/door.ts'
import { missingParts } from './handover/internals.ts'
import { bind, type Listener, type ListenerSpec, makeListener } from './handover/listeners.ts'
import type { Inheritance } from './handover/messages.ts'
import { takeOver } from './handover/successor.ts'
import { notifySystemd } from './handover/systemd.ts'
import type { Life, Serving } from './life.ts'
import type { ManagedInstall } from './managed-install.ts'
import type { Settings } from './settings.ts'

/** how long a predecessor that is gone may still seem to hold the lock */
const LETTING_GO_MS = 10_000

const UNMANAGED = { problem: 'it is not a managed install', feed: false }

export interface ServeOptions {
  settings: Settings
  /** null where this is not a managed install */
  install: ManagedInstall | null
  /** null where this process is the first of its service */
  inheritance: Inheritance | null
  /** what was held for this process while it did not serve */
  door: Door
  /** filled in */
  serving: Serving
  life: Life
}

/** Resolves when this process accepts connections. Rejects where it cannot; a successor then leaves by itself. */
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
  // Who was handed sockets is the service, and may hold the same port at another address. A second process of an install can
  // only be a mistake, such as the service started by hand beside itself.
  const isHeld = held.size > 0
  await bindAll(serving.listeners, specs, held, isHeld || install === null)
  for (const { address } of isHeld ? [] : serving.listeners.filter(({ isShared }) => isShared)) {
    const message = `another process listens on ${address} already, and the kernel divides the connections between the two`
    settings.log({ event: 'warning', message })
  }
  await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${settings.tag}`])
  void storeSockets(serving.listeners)
  if (install === null || open === null) return
  void proveAlone(install, open, settings.update.probationMs, life.isStopping)
}

async function serveNext(specs: ListenerSpec[], inheritance: Inheritance, options: ServeOptions): Promise<void> {
  const { settings, install, serving, life } = options
  const { service, tag, log } = settings
  const couldUpdate = () => (install === null ? Promise.resolve(UNMANAGED) : couldUpdateOf(install))
  try {
    serving.side = await takeOver({ inheritance, ...serving, specs, service, tag, log, couldUpdate })
  } catch (cause) {
    log({ event: 'warning', message: `taking over: ${reasonOf(cause)}` })
    await life.leave(EXIT.unexpected, 'revert')
  }
  // Not before: what only this release listens on would be held beyond a revert, and clients would wait there for nobody.
  void serving.side?.ended.then(() => (life.isStopping() ? undefined : storeSockets(serving.listeners)))
  if (install === null) return
  void serving.side?.ended.then(async (ending) => {
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=serving ${tag}`])
    if (life.isStopping()) return
    // The operation is this process's to end: by the predecessor's word the probation is stood, else it goes on here.
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
