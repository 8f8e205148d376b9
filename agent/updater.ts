// What the endpoints do, inside a running service: at most one operation, whose restart hands over to the successor, after
// which this process leaves. Every method throws BatonError with the code of its refusal.

import { statusOf, versionReport } from './answers.ts'
import { beginProbation } from './alone.ts'
import { couldUpdate } from './could-update.ts'
import { BatonError, EXIT } from './errors.ts'
import { spares, startWith } from './handover/door.ts'
import { handOver } from './handover/predecessor.ts'
import { notifySystemd } from './handover/systemd.ts'
import type { Life, Serving } from './life.ts'
import type { Management } from './managed.ts'
import type { ManagedInstall } from './managed-install.ts'
import { begin, type Restart, type Running } from './operation.ts'
import { ownArguments } from './own-start.ts'
import type { Settings } from './settings.ts'
import {
  cancellation,
  type Instance,
  type Kind,
  NO_HANDOVER,
  type Operation,
  type Status,
  type VersionReport,
} from './state.ts'

export interface Updater {
  update(tag: string | null): Promise<Operation>
  rollback(): Promise<Operation>
  /** Ends the operation in flight with nothing changed. Throws too_late where there is none, or its swap has begun. */
  cancel(): Promise<Operation>
  check(): Promise<VersionReport>
  status(): Promise<Status>
  /** throws not_managed */
  assertManaged(): void
}

/** For what is not a managed install: every method throws not_managed, with the route to take. */
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
    check: refuseLater,
    status: refuseLater,
    assertManaged: refuse,
  }
}

export interface UpdaterOptions {
  install: ManagedInstall
  settings: Settings
  instance: Instance
  serving: Serving
  life: Life
}

export function makeUpdater(options: UpdaterOptions): Updater {
  const { install, instance, life, serving } = options
  let running: Running | null = null

  const start = async (kind: Kind, tag: string | null): Promise<Operation> => {
    // what this process does itself, the lock would refuse too, but only after a look at the disk
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
      await handOverTo(to, operation, options, close)
      return { open: true } // told to stop in the middle of its probation: the next start goes on with it
    }
    const begun = await begin(install, { kind, tag, who: 'the service' }, restart)
    running = begun
    void begun.done.then(async ({ outcome }) => {
      const wasHandingOver = serving.handingOver !== null
      serving.handingOver = null
      over.resolve()
      const isReverted = outcome === 'reverted' || outcome === 'failed'
      if (isClosed && isReverted) await startAnew(options)
      if (isClosed) process.exit(EXIT.done)
      if (wasHandingOver && !isReverted) await life.stop('the end of the successor')
    })
    return begun.operation
  }

  return {
    update: (tag) => start('update', tag),
    rollback: () => start('rollback', null),
    async cancel() {
      const own = running
      if (own === null || !own.cancel(cancellation('a request'))) throw tooLate(await statusOf(install, own, instance))
      await own.done
      return own.operation
    },
    check: () => versionReport(install, instance),
    status: () => statusOf(install, running, instance),
    assertManaged: () => {},
  }
}

/** Does not return where the successor has proved itself; rejects when this process serves again, or has closed and must not. */
async function handOverTo(
  to: string,
  operation: Operation,
  { install, settings, serving, life }: UpdaterOptions,
  close: () => Promise<void>,
): Promise<void> {
  const began = performance.now()
  const report = { ...NO_HANDOVER }
  operation.handover = report
  await serving.side?.ended // a predecessor that has committed is about to exit: never three processes at once
  await handOver({
    command: ownCommand(install),
    listeners: serving.listeners,
    carries: serving.carries,
    service: settings.service,
    tag: to,
    operationId: operation.id,
    healthPath: settings.healthPath,
    ...settings.update,
    log: settings.log,
    onDrain: life.drain,
    onResume: life.resume,
    report,
    onAccepting: () => void beginProbation(install, settings.update.probationMs),
    note: async () => {
      operation.durations.restart = Math.round(performance.now() - began) // the successor ends it, and cannot know
      await install.journal.change((state) => void (state.operation = structuredClone(operation)))
    },
    couldUpdate: () => couldUpdate(install),
    leaving: life.leaving,
    close,
  })
}

/** The successor died when this process had closed its state: the previous executable is back in its place, and starts. */
async function startAnew({ install, serving }: UpdaterOptions): Promise<void> {
  const pid = await startWith(ownCommand(install), spares(serving.listeners))
  await notifySystemd([`MAINPID=${pid}`, 'STATUS=starting again'])
}

function ownCommand({ places }: ManagedInstall): { file: string; args: string[] } {
  return { file: places.executable, args: ownArguments() }
}

/** The operation that has started this very process is this process's to end, which it may not have done yet. */
async function refuseInherited({ journal }: ManagedInstall): Promise<void> {
  const { operation } = await journal.read()
  if (operation === null || operation.outcome !== null) return
  throw inFlight(operation)
}

function inFlight({ id, kind, startedAt }: Operation): BatonError {
  return new BatonError('update_in_flight', `an operation is in flight: ${kind} ${id} since ${startedAt}`, {
    hint: 'wait until it has ended, `GET /admin/update/status` shows it',
    members: { operationId: id, heldSince: startedAt },
  })
}

function tooLate({ operation }: Status): BatonError {
  if (operation === null) return new BatonError('too_late', 'there is no operation to cancel')
  const { id, kind, stage, outcome } = operation
  if (outcome !== null) return new BatonError('too_late', `${kind} ${id} has ended: ${outcome}`)
  return new BatonError('too_late', `expected an operation before its swap, ${kind} ${id} is in the ${stage} stage`, {
    hint: 'what has been put in place proves itself or is put back; `POST /admin/update/rollback` takes it back afterwards',
  })
}
