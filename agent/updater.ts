// The actions behind the endpoints in a running service, loaded at the first question. There is at most one operation; its restart hands
// over to the successor, and then this process exits. Every method throws BatonError with the code of its refusal.

import { existsSync } from 'node:fs'
import { beginProbation } from './serving-later.ts'
import { BatonError, EXIT } from './words/errors.ts'
import type { Command } from './sockets/start-with.ts'
import { ownValues } from './handover/values.ts'
import { ownWorks } from './handover/works.ts'
import { busyOf, restFirst } from './handover/give/rest.ts'
import { notifySystemd } from './sockets/systemd.ts'
import type { Updater } from './http/routes.ts'
import type { Life, Serving } from './life.ts'
import type { Management } from './managed.ts'
import type { ManagedInstall } from './disk/managed-install.ts'
import { latestOf } from './update/unmanaged.ts'
import type { OperationRequest, Restart, Running } from './update/operation.ts'
import { ownStart } from './own.ts'
import { NO_FIRST_CODE } from './managed.ts'
import type { Settings } from './settings.ts'
import { isResting } from './words/waits.ts'
import { cancellation, type Instance, type Operation, type Outcome, type Status } from './words/state.ts'
import { NO_HANDOVER } from './words/report.ts'

/** For an unmanaged install: every method throws not_managed, with the route to take. */
export function unmanagedUpdater(
  management: Extract<Management, { managed: false }>,
  running: string,
  latest: () => string | null,
): Updater {
  const { why, reason, route, command } = management
  const refuse = (): never => {
    const code = why === 'node' ? 'node_unsupported' : 'not_managed'
    throw new BatonError(code, reason, {
      hint: route,
      members: { reason: why, route, command, running, latest: latest() },
    })
  }
  const refuseLater = () => Promise.resolve().then(refuse)
  return {
    update: refuseLater,
    rollback: refuseLater,
    cancel: refuseLater,
    proceed: refuseLater,
    check: refuseLater,
    status: refuseLater,
    operations: refuseLater,
    policy: refuseLater,
    assertManaged: refuse,
    attend: refuseLater,
  }
}

/** The updater of this process. */
export function openUpdater(
  management: Management,
  { install, ...options }: Omit<UpdaterOptions, 'install'> & { install: ManagedInstall | null },
): Updater {
  const { settings } = options
  if (install !== null) return makeUpdater({ install, ...options })
  return unmanagedUpdater(management as Exclude<Management, { managed: true }>, settings.tag, latestOf(settings))
}

export interface UpdaterOptions {
  install: ManagedInstall
  settings: Settings
  instance: Instance
  serving: Serving
  life: Life
}

function makeUpdater(options: UpdaterOptions): Updater {
  const { install, instance, life, serving, settings } = options
  let running: Running | null = null
  let hurry = { isNow: false }

  const start = async (asked: Omit<OperationRequest, 'who' | 'rest'> & { now?: boolean }): Promise<Operation> => {
    // The lock would refuse a second operation of this process too, but only after a look at the disk.
    if (running !== null && running.operation.outcome === null) throw inFlight(running.operation)
    if (serving.isSettling) await refuseInherited(install)
    let isClosed = false
    const over = Promise.withResolvers<void>()
    const restart: Restart = async (to, operation) => {
      serving.handingOver = over.promise
      const close = async () => {
        isClosed = true
        await life.close('handover')
      }
      await handOverTo(to, operation, options, close, parts)
      return { open: true } // this process stops in the middle of the successor's probation: the next start continues the probation
    }
    // Loads all code that the operation can need, its undo included: later it reads nothing of this release from the disk.
    const [{ begin }, parts] = await Promise.all([import('./update/operation.ts'), loadHandover()])
    const own = { isNow: asked.now === true }
    const rest = restOf(options, () => own.isNow)
    const begun = await begin(install, { ...asked, who: 'the service', rest }, restart)
    ;[running, hurry] = [begun, own]
    void begun.done.then(({ outcome }) => goOn(options, outcome, over.resolve, isClosed))
    return begun.operation
  }

  const next = { order: settings.order, maxPauseMs: settings.update.maxPauseMs, readyMs: settings.update.readyMs }
  const answers = () => import('./update/answers.ts')
  const status = async (): Promise<Status> => (await answers()).statusOf(install, running, instance, next)

  return {
    update: (tag, allowed) => start({ kind: 'update', tag, ...allowed }),
    rollback: (allowed) => start({ kind: 'rollback', tag: null, ...allowed }),
    async proceed() {
      const own = running?.operation
      if (own === undefined || !isResting(own.waits)) throw (await answers()).waitsForNothing()
      hurry.isNow = true
      return own
    },
    async cancel() {
      const own = running
      if (own === null || !own.cancel(cancellation('on request'))) throw (await answers()).tooLate(await status())
      await own.done
      return own.operation
    },
    check: async () => (await answers()).versionReport(install, instance),
    async status(wait) {
      const { changed } = await answers()
      return await changed(install, () => running, status, wait, life.leaving)
    },
    operations: async () => (await answers()).operationsOf(install, running),
    policy: async (own) => (await import('./update/schedule/say.ts')).policyReport(install, next, own),
    assertManaged: () => {},
    attend: async () => (await import('./update/schedule/attend.ts')).attend(options, start),
  }
}

/** What this process does after an operation that it has begun. */
async function goOn(options: UpdaterOptions, outcome: Outcome, over: () => void, isClosed: boolean): Promise<void> {
  const { serving, life } = options
  const wasHandingOver = serving.handingOver !== null
  serving.handingOver = null
  over()
  const isReverted = outcome === 'reverted' || outcome === 'failed'
  if (isClosed && isReverted) await startAnew(options)
  if (isClosed) process.exit(EXIT.done)
  if (wasHandingOver && !isReverted) return await life.stop('the new process exited')
  ownWorks().resume()
}

/** Waits for the author's work before an operation of this process. */
function restOf({ install, settings }: UpdaterOptions, isNow: () => boolean): NonNullable<OperationRequest['rest']> {
  return async (operation, signal) => {
    const busy = busyOf(settings.busy, operation, (await install.journal.read()).history)
    const { busyMaxMs } = settings.update
    const warn = (message: string) => settings.log({ event: 'warning', message })
    await restFirst({ works: ownWorks(), busyMaxMs, busy, isNow, warn }, operation, signal)
  }
}

async function loadHandover() {
  const [{ replaceThis }, { couldUpdate }] = await Promise.all([
    import('./handover/give/hand-over.ts'),
    import('./update/could-update.ts'),
    import('./http/routes.ts'), // the status is answered throughout the switch
    import('./http/auth.ts'),
    import('./http/admit.ts'),
    import('./update/answers.ts'),
    import('./web/panel-send.ts'), // and the panel
  ])
  return { replaceThis, couldUpdate }
}

/** Does not return if the successor proves itself. Rejects if this process serves again, or cannot because it has closed its state. */
async function handOverTo(
  to: string,
  operation: Operation,
  { install, settings, serving, life }: UpdaterOptions,
  close: () => Promise<void>,
  { replaceThis, couldUpdate }: Awaited<ReturnType<typeof loadHandover>>,
): Promise<void> {
  const report = { ...NO_HANDOVER }
  operation.handover = report
  await serving.keeper?.gone // a predecessor that has committed is about to exit: never let three processes live at once
  const { places, stateDirectory, journal } = install
  const { turn, listeners, carries } = serving
  const command = ownCommand(install)
  const ours = {
    command,
    image: { ...command, file: places.backup },
    executable: places.executable,
    stateDirectory,
    listeners,
    carries,
    tag: to,
    report,
    onDrain: life.drain,
    onResume: life.resume,
    onAccepting: () => void beginProbation(install, settings.update.probationMs),
    couldUpdate: () => couldUpdate(install),
    leaving: life.leaving,
    close,
    passTurn: turn.pass,
    takeTurn: turn.take,
  }
  const whyNotAlone = ownStart() === null ? NO_FIRST_CODE : null
  await replaceThis(ours, { settings, operation, journal, given: ownValues().given, whyNotAlone })
}

/** The successor died after this process had closed its state. The previous executable is in place again: start it. */
async function startAnew({ install, serving }: UpdaterOptions): Promise<void> {
  const { spares, startWith } = await import('./sockets/start-with.ts')
  const pid = await startWith(ownCommand(install), spares(serving.listeners))
  await notifySystemd([`MAINPID=${pid}`, 'STATUS=starting again'])
}

function ownCommand({ places }: ManagedInstall): Command {
  return { file: places.executable, args: ownArguments(), ...ownDirectory() }
}

/**
 * This process's own arguments: argv is [executable, argv0 as typed, …own] in a single executable, [node, script, …own] in a
 * script.
 */
function ownArguments(): string[] {
  return [...(ownStart()?.argv ?? process.argv.slice(2))]
}

/** The directory that this process was started in, for the next process; absent if it was not noted or is gone. */
function ownDirectory(): { cwd?: string } {
  const cwd = ownStart()?.directory ?? null
  return cwd === null || !existsSync(cwd) ? {} : { cwd }
}

/**
 * Refuses while the operation that started this process is in flight. This process has to end it, and may not have done so yet.
 */
async function refuseInherited({ journal }: ManagedInstall): Promise<void> {
  const { operation } = await journal.read()
  if (operation === null || operation.outcome !== null) return
  throw inFlight(operation)
}

function inFlight({ id, kind, startedAt }: Operation): BatonError {
  return new BatonError(
    'update_in_flight',
    `another operation is in progress: ${kind} ${id}, started at ${startedAt}`,
    {
      hint: 'wait for it to finish; `GET /admin/update/status` shows its progress',
      members: { operationId: id, heldSince: startedAt },
    },
  )
}
