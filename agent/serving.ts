// The start of serving: as the first process of a service, or as the successor of one that is handing over.

import { proveAlone, recoverUnderLock } from './alone.ts'
import { EXIT, reasonOf } from './errors.ts'
import { missingInternals } from './handover/internals.ts'
import { bind, isPortShared, type Listener, type ListenerSpec, makeListener } from './handover/listeners.ts'
import type { Inheritance } from './handover/messages.ts'
import { takeOver } from './handover/successor.ts'
import { notifySystemd } from './handover/systemd.ts'
import type { Life, Serving } from './life.ts'
import type { ManagedInstall } from './managed-install.ts'
import type { Settings } from './settings.ts'

export interface ServeOptions {
  settings: Settings
  /** null where this is not a managed install */
  install: ManagedInstall | null
  /** null where this process is the first of its service */
  inheritance: Inheritance | null
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
  const missing = serving.listeners.flatMap(({ server }) => missingInternals(server))
  log({
    event: 'serving',
    tag,
    listeners: serving.listeners.map(({ address }) => address),
    managed: install !== null,
    handover: missing.length === 0 ? 'full' : 'drain',
    missing: [...new Set(missing)],
  })
}

async function serveFirst(specs: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { settings, install, serving, life } = options
  const open = install === null ? null : await recoverUnderLock(install)
  await bindAll(serving.listeners, specs, settings)
  await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${settings.tag}`])
  if (install === null || open === null) return
  void proveAlone(install, open, settings.update.probationMs, life.isStopping)
}

async function serveNext(specs: ListenerSpec[], inheritance: Inheritance, options: ServeOptions): Promise<void> {
  const { settings, install, serving, life } = options
  const { service, tag, log } = settings
  try {
    serving.side = await takeOver({ inheritance, listeners: serving.listeners, specs, service, tag, log })
  } catch (cause) {
    log({ event: 'warning', message: `taking over: ${reasonOf(cause)}` })
    await life.leave(EXIT.unexpected)
  }
  if (install === null) return
  void serving.side?.ended.then(async (ending) => {
    await notifySystemd([`MAINPID=${process.pid}`, `STATUS=serving ${tag}`])
    // by its word everything is written; else this process finishes the operation
    if (ending === 'committed' || life.isStopping()) return
    log({ event: 'warning', message: 'the predecessor died before it could commit; probation goes on alone' })
    const open = await recoverUnderLock(install)
    if (open !== null) await proveAlone(install, open, settings.update.probationMs, life.isStopping)
  })
}

async function bindAll(listeners: Listener[], specs: ListenerSpec[], { log }: Settings): Promise<void> {
  for (const [index, listener] of listeners.entries()) {
    const spec = specs[index]
    if (spec === undefined) continue
    if (spec.path === undefined && (await isPortShared(spec.port ?? 0))) {
      log({
        event: 'lossy',
        message: `another process listens on port ${spec.port} too; sharing it through SO_REUSEPORT loses connections when it closes, unless net.ipv4.tcp_migrate_req=1`,
      })
    }
    await bind(listener, spec)
  }
}
