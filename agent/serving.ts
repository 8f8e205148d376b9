// Starts to serve: as the first process of a service, or as the successor in a handover.

import { resolve } from 'node:path'
import { ownStart } from './own.ts'
import { proveAlone, recoverUnderLock } from './recovery.ts'
import { freeSocket, storeSockets } from './sockets/store.ts'
import { missingParts } from './sockets/internals.ts'
import { bind, type ListenerSpec, makeListener } from './sockets/listeners.ts'
import { notifySystemd } from './sockets/systemd.ts'
import type { Serving } from './life.ts'
import type { ServeOptions } from './serving-later.ts'

/** how long sockets that were held for this process are kept for servers that listen later */
const UNCLAIMED_MS = 10_000

/**
 * Resolves when this process accepts connections. Rejects if it cannot; a successor exits instead. A second call is for servers
 * that listen later.
 */
export async function serve(given: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { serving } = options
  const specs = given.map(asConfigured)
  const first = serving.began
  if (first !== null)
    return await first.then(async () => (await import('./serving-later.ts')).serveMore(specs, options))
  serving.began = serveAll(specs, options)
  await serving.began
}

/** Who may connect to a unix socket is the operator's to say. */
function asConfigured(spec: ListenerSpec): ListenerSpec {
  const path = spec.path === undefined ? null : resolve(spec.path)
  const said = path === null ? undefined : ownStart()?.configuration?.listen?.find((one) => one.path === path)
  const mode = said?.mode === undefined ? {} : { mode: Number.parseInt(said.mode, 8) }
  return { ...spec, ...mode, ...(said?.group === undefined ? {} : { group: said.group }) }
}

async function serveAll(specs: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { settings, install, inheritance, serving, life } = options
  const { tag, log } = settings
  serving.listeners = specs.map((spec) => makeListener(spec, (listener) => freeSocket(listener, serving)))
  life.heedSignals()
  if (install === null) void import('./handover/give/farewell.ts') // npm may replace the package's files while it serves
  if (inheritance === null && !process.env['BATON_HOLDER']) await serveFirst(specs, options)
  else await (await import('./serving-later.ts')).serveNext(specs, inheritance, options)
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
  // A process that was handed sockets is the service, and may share a port that it holds at another address. Without handed
  // sockets, a second process of a managed install is a mistake, such as the service started by hand beside itself: do not share.
  const isHeld = held.size > 0
  await bindAll(serving, specs, held, isHeld || install === null)
  for (const { address } of isHeld ? [] : serving.listeners.filter(({ isShared }) => isShared)) {
    const message = `another process listens on ${address} already, and the kernel divides the connections between the two`
    settings.log({ event: 'warning', message })
  }
  door.served()
  void serving.turn.take()
  await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${settings.tag}`])
  void storeSockets(serving.listeners)
  if (install === null || open === null) return
  void proveAlone(install, open, settings.update.probationMs, life.isStopping)
}

async function bindAll(
  serving: Serving,
  specs: ListenerSpec[],
  held: Map<string, number>,
  mayShare: boolean,
): Promise<void> {
  for (const [index, listener] of serving.listeners.entries()) {
    const spec = specs[index]
    if (spec !== undefined) await bind(listener, spec, held.get(listener.key) ?? null, mayShare)
    held.delete(listener.key)
  }
  serving.unclaimed = held
  if (held.size === 0) return
  // a server of this process may listen later
  const over = () =>
    void import('./handover/unclaimed.ts').then(({ letGoOfUnclaimed }) => letGoOfUnclaimed(held, serving.listeners))
  setTimeout(over, UNCLAIMED_MS).unref()
}
