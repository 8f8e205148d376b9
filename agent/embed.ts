// Puts the parts together inside a service's process: settings, this process's identity, the endpoints, the listening sockets,
// and the operation that replaces this process. It only connects the parts: each part decides for itself.
// Must hold: the service keeps serving, whatever happens to its updates.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { makeAdmin } from './http/admin.ts'
import { type Calls, makeCalls } from './http/calls.ts'
import { obeyAtOnce } from './disk/as-ordered.ts'
import { type Carries, makeCarries } from './handover/carry/carry.ts'
import { allowLongStart } from './sockets/systemd.ts'
import { storeKeeper } from './sockets/store.ts'
import type { ListenerSpec } from './sockets/listeners.ts'
import { takeInheritance } from './handover/inheritance.ts'
import { isTrial, makeTurn, type ProcessRole, type Turn } from './handover/turn.ts'
import { ownValues, type Memory } from './handover/values.ts'
import { ownWorks, type WorkCalls } from './handover/works.ts'
import { makeLife, startedServing } from './life.ts'
import { decideManagement, type Management, ownInstall } from './managed.ts'
import { ownExecutable, ownRelease, ownStart } from './own.ts'
import type { Updater } from './http/routes.ts'
import { makePanel } from './web/panel.ts'
import { serve } from './serving.ts'
import type { ServeOptions } from './serving-later.ts'
import { type EmbedOptions, readSettings, type Settings } from './settings.ts'
import { PASSWORD_USUAL_MIN } from './words/bounds.ts'
import { reasonOf } from './words/errors.ts'
import type { Instance } from './words/state.ts'
import { nodeCrypto, onceLoaded } from './words/later.ts'

export interface Agent extends Pick<Carries, 'carry' | 'carried'>, Memory, Pick<Turn, 'singleton'>, WorkCalls, Calls {
  /** whether another process of the service lives at this moment, and which of the two this one is */
  readonly role: ProcessRole
  /** this process, as the status endpoint shows it */
  readonly instance: Instance
  /**
   * Answers a request for the agent (`/admin/update…`, `/web/…`) and returns true. Otherwise touches nothing and returns false.
   */
  handle(request: IncomingMessage, response: ServerResponse): boolean
  /**
   * Listens, or takes over from a predecessor. Resolves when this process accepts connections. Call it once the servers have their
   * handlers and the state is open; call it again for a server that listens later. Rejects if it cannot listen; a successor exits
   * with code 1 instead.
   */
  serve(listeners: ListenerSpec[]): Promise<void>
  /**
   * Stops accepting, lets requests in flight finish, calls `onStop`, waits for it at most `stopTimeout`, and exits with code 0.
   * SIGTERM and SIGINT do the same; a second one exits at once.
   */
  stop(reason: string): Promise<void>
}

// A program with its own `--version` does not know Baton's orders. It loads this file, so this file carries them out.
obeyAtOnce()

/** how long after its start this process first asks the schedule what to do */
const FIRST_LOOK_MS = 5000

/** Everything that a service needs to stay up to date. Throws BatonError invalid_settings that names every fault. */
export async function embed(options: EmbedOptions = {}): Promise<Agent> {
  const settings = readSettings(options)
  const { log, service, tag, basePath } = settings
  const warn = (message: string) => log({ event: 'warning', message })
  const { handOver, inherited } = ownValues() // asks for the inheritance too, so it comes first
  const inheritance = await takeInheritance()
  if (inheritance === null) allowLongStart(settings.update.readyMs)
  const store = storeKeeper({
    warn,
    missed: (keys) => void import('./serving-later.ts').then(({ endIfMissed }) => endIfMissed(keys, serving.listeners)),
  })
  const instance = newInstance(tag)
  const executable = settings.executable === undefined ? ownExecutable() : settings.executable
  const lacksFirstCode = settings.order === 'stop-first' && ownStart() === null
  const management = await decideManagement(service, executable, { lacksFirstCode })
  warnOf(settings, management)
  const install = management.managed ? ownInstall(settings, management) : null

  const { busy, whenQuiet } = ownWorks()
  const carries = makeCarries(warn)
  const turn = makeTurn(settings.update.stopMs, warn)
  const serving = startedServing(carries, turn, inheritance !== null)
  const life = makeLife(settings, serving)
  const open = onceLoaded(async () => {
    const [{ openUpdater }, opened] = await Promise.all([import('./updater.ts'), install?.open() ?? null])
    return openUpdater(management, { install: opened, settings, instance, serving, life })
  })
  if (install !== null) attendSoon(open, warn)
  const admin = makeAdmin(settings, open)
  const panel = makePanel({ basePath, service, passwordHeader: settings.passwordHeader })
  const start: ServeOptions = { settings, install, inheritance, store, serving, life, found: null, bound: null }
  return {
    instance,
    handle: await withOldPages([admin, panel], settings, executable),
    carry: carries.carry,
    carried: carries.carried,
    handOver,
    inherited,
    singleton: turn.singleton,
    busy,
    whenQuiet,
    ...makeCalls(open, life.leaving, warn),
    get role() {
      if (isTrial()) return 'trial'
      if (serving.handingOver !== null && settings.order === 'start-first') return 'old'
      return serving.isSecond && inheritance?.gate === undefined ? 'new' : 'only'
    },
    serve: (listeners) => serve(listeners, start),
    stop: (reason) => life.stop(reason), // a signal's listener gets its number too, which is no exit code
  }
}

/** Has the schedule look for itself, a while after the start. */
function attendSoon(open: () => Promise<Updater>, warn: (message: string) => void): void {
  const look = async () => (await open()).attend()
  setTimeout(() => void look().catch((cause) => warn(`automatic updates: ${reasonOf(cause)}`)), FIRST_LOOK_MS).unref()
}

function warnOf({ password, trust, log }: Settings, management: Management): void {
  if (password !== null && password.length < PASSWORD_USUAL_MIN) {
    log({
      event: 'warning',
      message: `the password has fewer than ${PASSWORD_USUAL_MIN} characters; anyone who guesses it can replace this service`,
    })
  }
  if (!management.managed) log({ event: 'unmanaged', reason: management.reason })
  else if (trust === null) {
    log({
      event: 'warning',
      message: 'updates are not signed: anyone who can write to the feed decides what runs here',
    })
  }
}

/** Looks after each request of a service whose author names `assets`; any other has nothing more on its way. */
async function withOldPages(
  [admin, panel]: readonly [Agent['handle'], Agent['handle']],
  { service, tag }: Pick<Settings, 'service' | 'tag'>,
  executable: string | null,
): Promise<Agent['handle']> {
  const handle: Agent['handle'] = (request, response) => admin(request, response) || panel(request, response)
  const { assets = null } = ownRelease()
  if (assets === null || executable === null) return handle
  const { oldPages } = await import('./web/old-pages.ts')
  const look = oldPages({ executable, service, tag, assets })
  return (request, response) => {
    if (handle(request, response)) return true
    look(request, response)
    return false
  }
}

/** This process, with an id that is made when somebody asks for it. */
function newInstance(tag: string): Instance {
  let id: string | null = null
  return Object.freeze({
    get id() {
      return (id ??= nodeCrypto().randomUUID())
    },
    pid: process.pid,
    version: tag,
    startedAt: new Date().toISOString(),
  })
}
