// Puts the parts together inside a service's process: settings, who we are, the endpoints, the listening sockets, and the
// operation that replaces this very process. Must hold: the service serves whatever becomes of its updates.

import { randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import { makeGuard } from './auth.ts'
import { makeDisk } from './disk.ts'
import { asBatonError, BatonError, reasonOf } from './errors.ts'
import { openFeed } from './feed/open.ts'
import {
  bind,
  closeListener,
  isPortShared,
  type Listener,
  type ListenerSpec,
  makeListener,
} from './handover/listeners.ts'
import { askToClose } from './handover/connections.ts'
import { missingInternals } from './handover/internals.ts'
import { type Handover, handOver } from './handover/predecessor.ts'
import { type Ending, readInheritance, type SuccessorSide, takeOver } from './handover/successor.ts'
import { notifySystemd } from './handover/systemd.ts'
import { makeJournal } from './journal.ts'
import { type Lock, takeLock } from './lock.ts'
import { decideManagement, type Management } from './managed.ts'
import { begin, type Ground, recover, type Running, settleProbation } from './operation.ts'
import { ownStart } from './own-start.ts'
import { makePanel } from './panel.ts'
import { placesOf } from './places.ts'
import { readReceipt, writeReceipt } from './receipt.ts'
import { compareTags } from './release.ts'
import { makeRoutes, type Updater } from './routes.ts'
import { type EmbedOptions, readSettings, type Settings } from './settings.ts'
import {
  badEntry,
  type HandoverReport,
  type Instance,
  type Kind,
  NO_HANDOVER,
  type Probation,
  type Status,
  type VersionReport,
} from './state.ts'
import { exists } from './steps/swap.ts'
import { sha256OfFile } from './steps/verify.ts'
import { installedTag } from './version.ts'

export interface Agent {
  /** this process, as the status endpoint tells it */
  readonly instance: Instance
  /** Answers a request that is the agent's (`/admin/update…`, `/web/…`) and returns true; else touches nothing and returns false. */
  handle(request: IncomingMessage, response: ServerResponse): boolean
  /**
   * Listens, or takes over from a predecessor; resolves when this process accepts connections. Call it once, with the
   * servers complete and the state open. Rejects where it cannot listen; a successor then exits by itself with code 1.
   */
  serve(listeners: ListenerSpec[]): Promise<void>
  /** Stops accepting, lets requests in flight finish, calls `onStop` and exits with code 0. SIGTERM and SIGINT do the same. */
  stop(reason: string): Promise<void>
}

/** Everything that a service needs to be kept up to date. Throws BatonError invalid_settings, naming every fault. */
export async function embed(options: EmbedOptions = {}): Promise<Agent> {
  const settings = readSettings(options)
  const { log, service, tag } = settings
  const inheritance = readInheritance()
  const instance: Instance = Object.freeze({
    id: randomUUID(),
    pid: process.pid,
    version: tag,
    startedAt: new Date().toISOString(),
  })
  const executable = settings.executable === undefined ? ownExecutable() : settings.executable
  const management = await decideManagement(service, executable, process.env)
  if (!management.managed) log({ event: 'unmanaged', reason: management.reason })
  const ground = management.managed ? await makeGround(settings, management.executable, management.receipt.feed) : null

  let listeners: Listener[] = []
  let side: SuccessorSide | null = null
  let running: Running | null = null
  let isStopping = false

  const start = async (kind: Kind, wanted: string | null) => {
    if (ground === null || !management.managed) throw notManaged(management)
    // what this process does itself, the lock would refuse too, but only after a look at the disk
    if (running !== null && running.operation.outcome === null) throw inFlight(running)
    let handover: Handover | null = null
    const begun = await begin(ground, { kind, tag: wanted, who: 'the service' }, async (to, operation) => {
      const report: HandoverReport = { ...NO_HANDOVER }
      operation.handover = report
      await side?.ended // a predecessor that has committed is about to exit: never three processes at once
      handover = await handOver({
        command: { file: management.executable, args: ownArguments() },
        listeners,
        service,
        tag: to,
        operationId: operation.id,
        healthPath: settings.healthPath,
        ...settings.update,
        log,
        onDrain: settings.onDrain,
        report,
        onAccepting: () => void beginProbation(ground, settings.update.probationMs),
      })
      return { open: handover.stopped }
    })
    running = begun
    void begun.done.then(async ({ outcome }) => {
      if (handover === null || outcome === 'reverted' || outcome === 'failed') return
      await noteTag(ground, begun.operation.to)
      if (handover.stopped) return await stop('the end of the successor')
      await handover.commit()
      await leave(settings, 0)
    })
    return begun.operation
  }

  const updater: Updater = {
    update: (wanted) => start('update', wanted),
    rollback: () => start('rollback', null),
    check: () => versionReport(requireGround(ground, management), instance),
    status: () => statusOf(requireGround(ground, management), running, instance),
    assertManaged: () => void requireGround(ground, management),
  }
  const routes = makeRoutes(settings.basePath, makeGuard(settings.password), updater, log)
  const panel = makePanel({ basePath: settings.basePath })

  const stop = async (reason: string) => {
    if (isStopping) return
    isStopping = true
    log({ event: 'stopping', signal: reason })
    side?.stopping()
    // a predecessor on its way out has handed everything over: its successor goes on
    for (const listener of listeners) closeListener(listener)
    settings.onDrain()
    await finishRequests(listeners, settings.update.drainMs)
    await leave(settings, 0)
  }

  const serve = async (specs: ListenerSpec[]) => {
    listeners = specs.map(makeListener)
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal))
    if (inheritance !== null) {
      try {
        side = await takeOver({ inheritance, listeners, specs, service, tag, log })
      } catch (cause) {
        log({ event: 'warning', message: `taking over: ${reasonOf(cause)}` })
        await leave(settings, 1)
      }
      if (ground !== null) void side?.ended.then((ending) => goOnAlone(ground, settings, ending, () => isStopping))
    } else {
      const open = ground === null ? null : await recoverUnderLock(ground)
      await bindAll(listeners, specs, settings)
      await notifySystemd([`MAINPID=${process.pid}`, 'READY=1', `STATUS=serving ${tag}`])
      if (ground !== null && open !== null) void proveAlone(ground, settings, open, () => isStopping)
    }
    const missing = listeners.flatMap((listener) => missingInternals(listener.server))
    log({
      event: 'serving',
      tag,
      listeners: listeners.map((listener) => listener.address),
      managed: management.managed,
      handover: missing.length === 0 ? 'full' : 'drain',
      missing: [...new Set(missing)],
    })
  }

  return {
    instance,
    handle: (request, response) => routes(request, response) || panel(request, response),
    serve,
    stop,
  }
}

async function makeGround(settings: Settings, executable: string, receiptFeed: string): Promise<Ground> {
  const { log } = settings
  const disk = makeDisk()
  const first = await stat(executable)
  const feed = openFeed(settings.feed ?? receiptFeed, {
    service: settings.service,
    onPassedOver: (passed, why) => log({ event: 'warning', message: `not using ${passed}: ${why}` }),
  })
  return {
    service: settings.service,
    current: settings.tag,
    disk,
    places: placesOf(executable),
    stateDirectory: settings.stateDirectory,
    database: settings.database,
    feed,
    journal: makeJournal(disk, settings.stateDirectory, (message) => log({ event: 'warning', message })),
    stallMs: settings.update.stallMs,
    log,
    runningImage: async () => {
      const now = await stat(executable)
      const replacedByHand = now.dev !== first.dev || now.ino !== first.ino
      return replacedByHand && isSingleExecutable() && process.platform === 'linux' ? '/proc/self/exe' : null
    },
  }
}

/** installed: the file on disk; running: this process; latest: the feed's. The three may all differ. */
async function versionReport(ground: Ground, instance: Instance): Promise<VersionReport> {
  const installed = await installedTag(ground.places.executable).catch(() => null)
  const report: VersionReport = {
    installed,
    running: instance.version,
    latest: null,
    updateAvailable: false,
    release: null,
    skipped: [],
    checkedAt: new Date().toISOString(),
    problem: null,
  }
  try {
    const { bad } = await ground.journal.read()
    const release = await ground.feed.latest(({ tag, asset }) => {
      const entry = badEntry(bad, tag, asset.sha256)
      if (entry === null) return false
      const newer = compareTags(tag, instance.version) > 0
      if (newer) report.skipped.push({ tag, sha256: entry.sha256, why: entry.reason, at: entry.at })
      return true
    })
    if (release === null) return report
    report.latest = release.tag
    report.updateAvailable = compareTags(release.tag, instance.version) > 0
    report.release = {
      tag: release.tag,
      notes: release.notes,
      publishedAt: release.publishedAt,
      sizeBytes: release.asset.sizeBytes,
    }
  } catch (cause) {
    const error = asBatonError(cause, 'check_failed', 'asking the feed')
    report.problem = { code: error.code, message: error.message }
  }
  return report
}

async function statusOf(ground: Ground, running: Running | null, instance: Instance): Promise<Status> {
  const state = await ground.journal.read()
  // the running one is ahead of the disk by its progress only
  const own = running !== null && running.operation.id === state.operation?.id ? running.operation : null
  const operation = own !== null && own.outcome === null ? structuredClone(own) : state.operation
  const isInFlight = operation !== null && operation.outcome === null
  // During a switch the backup is what ran before it: asking the file would cost a process, at the worst moment.
  const backupTag = async () =>
    isInFlight && operation.stage === 'restart' ? operation.from : await installedTag(ground.places.backup)
  const backup = (await exists(ground.places.backup)) ? await backupTag().catch(() => null) : null
  return {
    state: isInFlight ? 'in_flight' : 'idle',
    operation,
    instance,
    backup,
    unproven: isInFlight ? unprovenOf(state.probation) : null,
    history: state.history,
  }
}

function unprovenOf(probation: Probation | null): Status['unproven'] {
  if (probation === null || probation.until === null) return null
  return { tag: probation.to, since: probation.since, until: probation.until }
}

async function bindAll(listeners: Listener[], specs: ListenerSpec[], settings: Settings): Promise<void> {
  for (const [index, listener] of listeners.entries()) {
    const spec = specs[index]
    if (spec === undefined) continue
    if (spec.path === undefined && (await isPortShared(spec.port ?? 0))) {
      settings.log({
        event: 'lossy',
        message: `another process listens on port ${spec.port} too; sharing it through SO_REUSEPORT loses connections when it closes, unless net.ipv4.tcp_migrate_req=1`,
      })
    }
    await bind(listener, spec)
  }
}

/** A probation that this process has to stand without a predecessor. Whoever has it holds the lock: it is an operation in flight. */
interface OpenProbation {
  probation: Probation
  lock: Lock
}

async function recoverUnderLock(ground: Ground): Promise<OpenProbation | null> {
  try {
    const lock = await takeLock(ground.disk, ground.stateDirectory, 'the starting service', { waitMs: 500 })
    let probation: Probation | null = null
    try {
      probation = await recover(ground)
    } finally {
      if (probation === null) await lock.release()
    }
    return probation === null ? null : { probation, lock }
  } catch (cause) {
    // a command line that starts this service holds the lock, and clears up itself
    ground.log({ event: 'warning', message: `not clearing up: ${reasonOf(cause)}` })
    return null
  }
}

/** The predecessor has left. By its word everything is written; else this process finishes the operation. */
async function goOnAlone(ground: Ground, settings: Settings, ending: Ending, isStopping: () => boolean): Promise<void> {
  await notifySystemd([`MAINPID=${process.pid}`, `STATUS=serving ${settings.tag}`])
  if (ending === 'committed' || isStopping()) return
  ground.log({ event: 'warning', message: 'the predecessor died before it could commit; probation goes on alone' })
  const open = await recoverUnderLock(ground)
  if (open !== null) await proveAlone(ground, settings, open, isStopping)
}

/** Probation without a predecessor: after a power cut, or a start from the command line. */
async function proveAlone(
  ground: Ground,
  settings: Settings,
  { probation, lock }: OpenProbation,
  isStopping: () => boolean,
): Promise<void> {
  try {
    await using _lock = lock
    await beginProbation(ground, settings.update.probationMs)
    await new Promise((resolve) => setTimeout(resolve, settings.update.probationMs))
    const state = await ground.journal.read()
    if (isStopping() || state.probation?.operationId !== probation.operationId) return
    await settleProbation(ground)
    await noteTag(ground, probation.to)
  } catch (cause) {
    ground.log({ event: 'warning', message: `ending the probation of ${probation.to}: ${reasonOf(cause)}` })
  }
}

/** From now on the release on probation serves; what the status tells of it is no reason to end it. */
async function beginProbation(ground: Ground, probationMs: number): Promise<void> {
  const [since, until] = [new Date(), new Date(Date.now() + probationMs)].map((time) => time.toISOString())
  try {
    await ground.journal.change(({ probation }) => {
      if (probation !== null && since !== undefined && until !== undefined) Object.assign(probation, { since, until })
    })
  } catch (cause) {
    ground.log({ event: 'warning', message: `writing the start of the probation: ${reasonOf(cause)}` })
  }
}

/** The receipt tells the tag that was put in place last; it is for people and installers, never what decides. */
async function noteTag(ground: Ground, tag: string | null): Promise<void> {
  try {
    const receipt = await readReceipt(ground.places.executable)
    if (receipt === null || tag === null || receipt.tag === tag) return
    const sha256 = await sha256OfFile(ground.places.executable)
    await writeReceipt(ground.disk, { ...receipt, tag, sha256 })
  } catch (cause) {
    ground.log({ event: 'warning', message: `noting ${tag ?? ''} in the receipt: ${reasonOf(cause)}` })
  }
}

/** Requests in flight may finish; connections that wait are told to go. */
async function finishRequests(listeners: Listener[], drainMs: number): Promise<void> {
  const deadline = Date.now() + drainMs
  for (const listener of listeners) askToClose(listener)
  while (Date.now() < deadline && listeners.some((listener) => listener.sockets.size > 0)) {
    for (const { server } of listeners) {
      if ('closeIdleConnections' in server) (server as { closeIdleConnections(): void }).closeIdleConnections()
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

async function leave(settings: Settings, code: number): Promise<never> {
  try {
    await settings.onStop()
  } catch (cause) {
    settings.log({ event: 'warning', message: `the author's onStop: ${reasonOf(cause)}` })
  }
  process.exit(code)
}

function requireGround(ground: Ground | null, management: Management): Ground {
  if (ground === null) throw notManaged(management)
  return ground
}

function notManaged(management: Management): BatonError {
  if (management.managed) return new BatonError('unexpected', 'a managed install without a ground')
  return new BatonError('not_managed', management.reason, {
    hint: management.route,
    members: { reason: management.why, route: management.route },
  })
}

function inFlight(running: Running): BatonError {
  const { id, kind, startedAt } = running.operation
  return new BatonError('update_in_flight', `an operation is in flight: ${kind} ${id} since ${startedAt}`, {
    hint: 'wait until it has ended, `GET /admin/update/status` shows it',
    members: { operationId: id, heldSince: startedAt },
  })
}

/** Captured at start: after a swap `process.execPath` is still right, but `/proc/self/exe` says `(deleted)`. */
function ownExecutable(): string | null {
  return ownStart()?.executable ?? (isSingleExecutable() ? process.execPath : null)
}

function isSingleExecutable(): boolean {
  const sea = createRequire(process.execPath)('node:sea') as { isSea(): boolean }
  return sea.isSea()
}

/** In a single executable argv is [executable, argv0 as typed, …own], in a script [node, script, …own]. */
function ownArguments(): string[] {
  return [...(ownStart()?.argv ?? process.argv.slice(2))]
}
