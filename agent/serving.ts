// Starts to serve on what this process's keeper has for it: as the first process of a service, as the next one, or behind a container.

import { resolve } from 'node:path'
import { ownStart } from './own.ts'
import { type OpenProbation, recoverUnderLock } from './recovery.ts'
import { ownValues } from './handover/values.ts'
import { listens } from './sockets/asking.ts'
import { freeSocket, storeSockets } from './sockets/store.ts'
import { missingParts } from './sockets/internals.ts'
import type { OwnInstall } from './managed.ts'
import type { Keeper } from './sockets/keeper.ts'
import { type ListenerSpec, makeListener } from './sockets/listeners.ts'
import { notifySystemd } from './sockets/systemd.ts'
import type { FoundAtStart, ServeOptions } from './serving-later.ts'

/** how long a start waits for the lock, which the command that starts this service may have */
const LOCK_MS = 500

/**
 * Resolves when this process accepts connections. Rejects if it cannot; a successor exits instead. A second call is for servers
 * that listen later.
 */
export async function serve(given: ListenerSpec[], options: ServeOptions): Promise<void> {
  const { serving } = options
  const specs = given.map(asConfigured)
  if (options.bound !== null) {
    const found = await options.bound.catch(() => null)
    // null: of those that came before none could listen, so these may be the first
    return found === null ? await serve(given, options) : await (await later()).serveMore(specs, found, options)
  }
  const fails = (cause: unknown): never => {
    serving.began = options.bound = null // its author may listen elsewhere, or later
    throw cause
  }
  const bound = bindAll(specs, options).catch(fails)
  options.bound = bound
  serving.began = bound.then((found) => begin(found, options).catch(fails))
  await serving.began
}

/** Who may connect to a unix socket is the operator's to say. */
function asConfigured(spec: ListenerSpec): ListenerSpec {
  const path = spec.path === undefined ? null : resolve(spec.path)
  const said = path === null ? undefined : ownStart()?.configuration?.listen?.find((one) => one.path === path)
  const mode = said?.mode === undefined ? {} : { mode: Number.parseInt(said.mode, 8) }
  return { ...spec, ...mode, ...(said?.group === undefined ? {} : { group: said.group }) }
}

async function bindAll(specs: ListenerSpec[], options: ServeOptions): Promise<FoundAtStart> {
  const { install, serving, life } = options
  const all = specs.map((spec) => [makeListener(spec, (closed) => freeSocket(closed, serving)), spec] as const)
  const bound = serving.listeners.filter(({ server }) => listens(server)) // by a call that failed
  serving.listeners = [...bound, ...all.map(([listener]) => listener)]
  life.heedSignals()
  if (install === null) void life.loadStop() // npm may replace the package's files while it serves
  const found = await (options.found ??= find(options))
  for (const [listener, spec] of all)
    if (!listener.isClosed) await found.keeper.listen(listener, spec, install === null)
  return found
}

async function find(options: ServeOptions): Promise<FoundAtStart> {
  const { install, inheritance, store } = options
  const isFirst = inheritance === null
  const recovered = isFirst && install !== null ? await recoverFirst(install) : { open: Promise.resolve(null) }
  const keeper = isFirst && !process.env['BATON_HOLDER'] ? store : await (await later()).keeperBeside(options)
  return { keeper, open: recovered.open }
}

/** Resolves once that is done, or as soon as another process has the lock: nobody who connects waits for that process. */
async function recoverFirst(install: OwnInstall): Promise<Pick<FoundAtStart, 'open'>> {
  let open: FoundAtStart['open'] = Promise.resolve(null)
  await new Promise<void>((resolve) => {
    open = recoverUnderLock(install, LOCK_MS, resolve)
    void open.then(() => resolve())
  })
  return { open }
}

async function begin({ keeper, ...found }: FoundAtStart, options: ServeOptions): Promise<void> {
  const { settings, install, serving } = options
  await keeper.serve()
  const open = await found.open
  serving.keeper = keeper
  const alone = goOnAlone(keeper, open, options)
  if (keeper.gone === null) await alone
  settings.log({
    event: 'serving',
    tag: settings.tag,
    listeners: serving.listeners.map(({ address }) => address),
    managed: install !== null,
    missing: missingParts(),
  })
}

/** What this process does once no other process of the service lives. `open`: a probation that its start has found. */
async function goOnAlone({ gone }: Keeper, open: OpenProbation | null, options: ServeOptions): Promise<void> {
  const { settings, install, serving, life } = options
  const ending = await gone
  serving.isSecond = false
  ownValues().complete()
  if (life.isStopping()) return
  void serving.turn.take()
  // Only now: a listener that only this release has would stay open beyond a revert, with no process to accept, and its clients would
  // wait for ever.
  void storeSockets(serving.listeners)
  await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${settings.tag}`])
  if (install === null) return
  if (ending !== null) void (await later()).endOperation(ending, install, options)
  else if (open !== null) void (await later()).proveAlone(install, open, options)
}

/** Loaded only by a start that needs it: most do not. */
const later = () => import('./serving-later.ts')
