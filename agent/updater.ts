// What the endpoints do, inside a running service: at most one operation, whose restart hands over to the successor, after
// which this process leaves. Every method throws BatonError with the code of its refusal.

import { statusOf, versionReport } from './answers.ts'
import { beginProbation } from './alone.ts'
import { BatonError } from './errors.ts'
import { type Handover, handOver } from './handover/predecessor.ts'
import type { Life, Serving } from './life.ts'
import type { Management } from './managed.ts'
import { type ManagedInstall, noteTag } from './managed-install.ts'
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
export function unmanagedUpdater(management: Extract<Management, { managed: false }>): Updater {
  const { why, reason, route } = management
  const refuse = (): never => {
    throw new BatonError('not_managed', reason, { hint: route, members: { reason: why, route } })
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
  const { install, instance, life } = options
  let running: Running | null = null

  const start = async (kind: Kind, tag: string | null): Promise<Operation> => {
    // what this process does itself, the lock would refuse too, but only after a look at the disk
    if (running !== null && running.operation.outcome === null) throw inFlight(running)
    let handover: Handover | null = null
    const restart: Restart = async (to, operation) => {
      handover = await handOverTo(to, operation, options)
      return { open: handover.stopped }
    }
    const begun = await begin(install, { kind, tag, who: 'the service' }, restart)
    running = begun
    void begun.done.then(async ({ outcome, placed }) => {
      if (handover === null || outcome === 'reverted' || outcome === 'failed') return
      if (handover.stopped) return await life.stop('the end of the successor')
      await handover.commit()
      if (placed !== null) await noteTag(install, placed)
      await life.leave(0)
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

/** Resolves when the successor has proved itself, or was stopped; rejects when this process serves again. */
async function handOverTo(to: string, operation: Operation, options: UpdaterOptions): Promise<Handover> {
  const { install, settings, serving } = options
  const report = { ...NO_HANDOVER }
  operation.handover = report
  await serving.side?.ended // a predecessor that has committed is about to exit: never three processes at once
  return await handOver({
    command: { file: install.places.executable, args: ownArguments() },
    listeners: serving.listeners,
    service: settings.service,
    tag: to,
    operationId: operation.id,
    healthPath: settings.healthPath,
    ...settings.update,
    log: settings.log,
    onDrain: settings.onDrain,
    report,
    onAccepting: () => void beginProbation(install, settings.update.probationMs),
  })
}

function inFlight(running: Running): BatonError {
  const { id, kind, startedAt } = running.operation
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
