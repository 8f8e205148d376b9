// Updates or rolls back an install. If the service runs, this asks it to do the work, through its endpoint. If it does not, this
// carries the same operation out itself, with a restart step that starts the service.
// Must never break: it reports success only if a new process answers with the requested version, and *nothing to do* only if the
// service answers; a reverted operation exits with 8, and a service that is down with 9.

import { setTimeout as sleep } from 'node:timers/promises'
import {
  exists,
  installedTag,
  ownCommand,
  placesOf,
  readProgress,
  type Receipt,
  tagInPlace,
} from '../../../agent/install.ts'
import {
  BAD_REASON_MAX,
  BatonError,
  EXIT,
  formatProgress,
  isDone,
  type Kind,
  MEANINGS,
  type Operation,
  type OperationReport,
  type PolicyReport,
  reasonOf,
  reportOf,
  type Status,
  durationText,
} from '../../../agent/words.ts'
import { usage } from '../../lib/flags.ts'
import { tellsOfRefusal } from '../../lib/refusal.ts'
import { tellBefore, tellOfSkipped, withCopies, withWayBack } from './advice.ts'
import { type Client, connect, follow, silenceFor, waitForInstance, type Watcher } from './client.ts'
import { readAccess } from './configuration.ts'
import { askUntilWell, healthGate } from './health.ts'
import { formatCrashes } from '../supervisor/crashes.ts'
import { formatCut, formatPause, stageText } from '../../lib/switch.ts'
import { bringUp, carryOutHere } from './offline.ts'
import type { Outside } from './outside.ts'
import type { Operate, Operated, Standing } from './request.ts'

/** Carries the operation out. Throws if it cannot begin (locked, refused), or if the service stops answering. */
export async function operate(receipt: Receipt, request: Operate, outside: Outside): Promise<Operated> {
  const client = connect(await readAccess(receipt.configPath))
  // look again after every wait: the last holder of the lock may have started the service, or stopped it
  let toldOf: string | null = null
  const operation = await withPatience(request.lockTimeoutMs, outside, async () => {
    const status = await client.status()
    const standing = await standingOf(receipt, status)
    const act = whatToDo(request, standing)
    if (act === null) {
      refuseRestore(request, standing.current)
      if (status === null) await bringUp(receipt, client, standing.current, request, outside)
      return { from: standing.current, to: request.tag }
    }
    if (toldOf !== standing.current) await tellBefore(receipt, { request, act, standing }, outside)
    toldOf = standing.current
    const work = { ...request, ...act }
    if (status === null) return await carryOutHere(receipt, client, work, outside)
    return await askService(receipt, client, status, work, { ...outside, starting: startingOf(receipt) }).catch(
      async (cause: unknown) => {
        throw await withCopies(receipt, standing.current, cause)
      },
    )
  })
  if (!('id' in operation)) return { ...operation, outcome: 'up_to_date', report: null, error: null }
  if (operation.outcome !== 'up_to_date') return await withWayBack(receipt, operatedFrom(operation))
  const skipped = await tellOfSkipped(receipt, request.tag, operation.from, outside)
  return { ...operatedFrom(operation), skipped }
}

/** Throws update_in_flight if an operation is still under way after `timeoutMs`: a restart would interrupt it. */
export async function assertAtRest(receipt: Receipt, timeoutMs: number, outside: Outside): Promise<void> {
  const client = connect(await readAccess(receipt.configPath))
  await withPatience(timeoutMs, outside, async () => refuseInFlight(await client.status()))
}

/** Throws update_in_flight if an operation is under way. `status` null: nobody answers. */
export function refuseInFlight(status: Status | null): void {
  if (status?.state === 'in_flight' && status.operation !== null) throw inFlight(status.operation, status.probation)
}

/** Going back with the data: to the release that is in place already, only its data would be exchanged. */
export function refuseRestore({ restoreState }: Pick<Operate, 'restoreState'>, current: string): void {
  if (!restoreState) return
  const [stop, restore, list, start] = ['stop', 'state restore NAME', 'state', 'start'].map(ownCommand)
  throw new BatonError('refused', `${current} is already in place, so no data was restored`, {
    hint: `to restore a copy of its data, run \`${stop}\`, \`${restore}\` (\`${list}\` lists the names) and \`${start}\``,
  })
}

/** Pure. A rollback to a tag is one only if the backup is that tag, else it is an update. Null if the tag is in place already. */
export function whatToDo(
  { kind, tag }: Pick<Operate, 'kind' | 'tag'>,
  { current, backup }: Standing,
): { kind: Kind; tag: string | null } | null {
  if (kind === 'update' || tag === null) return { kind, tag }
  if (tag === current) return null
  return tag === backup ? { kind: 'rollback', tag: null } : { kind: 'update', tag }
}

/** What the new release says of its start while nobody answers. */
function startingOf({ stateDirectory }: Receipt): NonNullable<Outside['starting']> {
  return async (operation) => {
    const told = await readProgress(stateDirectory, operation)
    return told === null ? null : formatProgress(told)
  }
}

export async function standingOf(receipt: Receipt, status: Status | null): Promise<Standing> {
  if (status !== null) return { current: status.instance.version, backup: status.backup }
  const { backup } = placesOf(receipt.executable)
  const [current, saved] = await Promise.all([
    tagInPlace(receipt.stateDirectory, receipt.executable),
    (await exists(backup)) ? installedTag(backup).catch(() => null) : null,
  ])
  return { current, backup: saved }
}

/** A reverted operation always gets a code of exit 8: whatever the reason, the previous version is running. */
function operatedFrom(operation: Operation): Operated {
  const { outcome, error, to, from } = operation
  const report = reportOf(operation)
  if (outcome !== null && (isDone(outcome) || outcome === 'up_to_date'))
    return { outcome, from, to, report, error: null }
  const message = error?.message ?? `the operation's outcome is ${outcome ?? 'not known'}`
  if (outcome !== 'reverted') {
    const plain = error?.code ?? 'unexpected'
    // the disk was full and nothing has changed: a refusal, not a fault of the swap
    const code = MEANINGS[plain].exit === EXIT.unexpected && tellsOfRefusal(message) ? 'refused' : plain
    return { outcome: outcome ?? 'failed', from, to, report, error: { code, message, hint: error?.hint ?? null } }
  }
  const code = error !== null && MEANINGS[error.code].exit === EXIT.reverted ? error.code : 'restart_failed'
  const costs = [formatPause(report), formatCut(report)].filter((cost) => cost !== null)
  const what = operation.kind === 'rollback' ? `the rollback to ${to ?? 'the backup'}` : (to ?? 'the release')
  const back = `${from} is running again${costs.length === 0 ? '' : ` (${costs.join('; ')})`}`
  // "v1.2.0 failed during probation: it …" says itself what failed
  const isWhole = /^v\S+ (?:failed|did not) /.test(message)
  const told = isWhole ? `${back} because ${message}` : `${what} failed, and ${back}: ${message}`
  return { outcome, from, to, report, error: { code, message: told, hint: error?.hint ?? null } }
}

// ---- the running service

async function askService(
  receipt: Receipt,
  client: Client,
  before: Status,
  request: Operate,
  outside: Outside,
): Promise<Operation> {
  const operation = await askOnce(receipt, client, before, request, outside)
  const { outcome } = operation
  if (request.healthUrl === null || outcome === null || !(isDone(outcome) || outcome === 'up_to_date')) return operation
  if (outcome === 'up_to_date') {
    await askUntilWell(request.healthUrl, request.healthTimeoutMs).catch((cause: unknown) => {
      throw new BatonError('service_down', reasonOf(cause), { cause })
    })
    return operation
  }
  const fault = await operation.gate?.()
  return fault === null || fault === undefined
    ? operation
    : await goBack(receipt, client, operation, fault, request, outside)
}

type Gated = Operation & { gate?: ReturnType<typeof healthGate> }

async function askOnce(
  receipt: Receipt,
  client: Client,
  before: Status,
  request: Operate,
  outside: Outside,
): Promise<Gated> {
  let started: Operation
  try {
    started = request.kind === 'update' ? await client.update(request.tag, request) : await client.rollback(request)
  } catch (cause) {
    throw await explained(cause, client)
  }
  const gate = request.healthUrl === null ? null : healthGate(request.healthUrl, request.healthTimeoutMs)
  let isOnProbation = false
  let isTimed = false
  const { readyMs = 0 } = before.switch ?? {}
  const supervisor = outside.supervisor(receipt)
  const watcher: Watcher = {
    ...outside,
    async whyNever() {
      const { word, crashes } = await supervisor.state()
      if (word !== 'failed') return null
      return `the service is down and will not be restarted${crashes === null ? '' : `; ${formatCrashes(crashes)}`}`
    },
    status({ instance, state, probation }) {
      if (instance.id === before.instance.id) return
      if (!isOnProbation) {
        isOnProbation = true // begin when the new process first answers
        void gate?.()
        const isBack = instance.version === before.instance.version
        if (state === 'in_flight') {
          if (!isBack) outside.stage('probation')
          outside.note(`${instance.version} is serving${isBack ? ' again' : ', on probation'}`)
        }
      }
      // an older agent does not say until when
      if (isTimed || !probation?.until) return
      isTimed = true
      const time = probation.until.slice('2026-12-31T'.length, '2026-12-31T23:59:59'.length)
      outside.note(`the service must stay healthy until ${time} UTC, or ${before.instance.version} will be restored`)
    },
  }
  const operation = await follow(client, started.id, watcher, silenceFor(readyMs))
  if (operation.to !== null && isDone(operation.outcome)) {
    outside.stage('health')
    await waitForInstance(client, {
      tag: operation.to,
      notInstance: before.instance.id,
      timeoutMs: request.healthTimeoutMs,
    })
  }
  return gate === null ? operation : { ...operation, gate }
}

/** The release passed the service's own probation but not the operator's health URL: rolls it back, with a handover. */
async function goBack(
  receipt: Receipt,
  client: Client,
  { gate: _, ...operation }: Gated,
  fault: string,
  request: Operate,
  outside: Outside,
): Promise<Operation> {
  outside.note(`going back to ${operation.from}: ${fault}`)
  try {
    const status = await client.status()
    if (status === null) throw new BatonError('service_down', 'nothing answers')
    // a release with no way back has changed the data: then the data goes back too
    const restoreState = operation.trial?.verdict === 'irreversible'
    await askOnce(
      receipt,
      client,
      status,
      { ...request, kind: 'rollback', tag: null, healthUrl: null, restoreState, bad: fault.slice(0, BAD_REASON_MAX) },
      outside,
    )
  } catch (cause) {
    throw new BatonError('service_down', `${fault}; going back to ${operation.from} also failed: ${reasonOf(cause)}`, {
      cause,
      hint: `run \`${outside.supervisor(receipt).logCommand}\` to see why`,
    })
  }
  const stateMoved = (await client.status().catch(() => null))?.operation?.stateMoved
  const moved = stateMoved === undefined ? {} : { stateMoved }
  return { ...operation, ...moved, outcome: 'reverted', error: { code: 'probation_failed', message: fault } }
}

/** 409 says only that an operation is in flight; the status says which one, to which release, since when. */
async function explained(cause: unknown, client: Client): Promise<unknown> {
  if (!(cause instanceof BatonError) || cause.code !== 'update_in_flight') return cause
  const status = await client.status().catch(() => null)
  return status?.operation ? inFlight(status.operation, status.probation) : cause
}

function inFlight(operation: Operation, probation: Status['probation']): BatonError {
  const { id, kind, from, to, stage, startedAt, waits } = operation
  const target = to ?? (kind === 'update' ? 'the latest release' : 'the backup executable')
  const at = waits?.find(({ code }) => code === 'work')?.says ?? stageText(operation, probation)
  return new BatonError(
    'update_in_flight',
    `the service is busy: ${kind} from ${from} to ${target}, ${at}, since ${startedAt} (operation ${id})`,
    {
      hint:
        stage === 'restart'
          ? `it is too late to cancel it: pass \`--lock-timeout 2m\` to wait for it, then \`${ownCommand('rollback')}\` can undo it`
          : `run \`${ownCommand('status')}\` to see it, \`${ownCommand('cancel')}\` to cancel it, or pass \`--lock-timeout 2m\` to wait for it`,
      members: { operationId: id, kind, from, to, stage, heldSince: startedAt },
    },
  )
}

/** Tries again while another operation holds the lock. Safe: only taking the lock fails with exit 6, before anything has changed. */
async function withPatience<T>(timeoutMs: number, outside: Outside, work: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + timeoutMs
  for (let told = false; ; told = true) {
    try {
      return await work()
    } catch (cause) {
      const held = cause instanceof BatonError && MEANINGS[cause.code].exit === EXIT.locked
      if (!held || performance.now() > deadline) throw cause
      if (!told) outside.note(`waiting at most ${durationText(timeoutMs)}: ${cause.message}`)
      await sleep(500)
    }
  }
}

// ---- what only a running service can do

/** The cancelled operation; null if none is in flight. Throws too_late after the swap. */
export async function cancelOperation(receipt: Receipt, outside: Outside): Promise<OperationReport | null> {
  const client = connect(await readAccess(receipt.configPath))
  const status = await client.status()
  if (status === null) {
    throw new BatonError(
      'refused',
      `${receipt.service} does not answer: only a running service can cancel an operation`,
      {
        hint: 'if another command is running the operation, stop that command',
      },
    )
  }
  if (status.operation === null || status.operation.outcome !== null) return null
  const { id } = await client.cancel()
  // what it was in the middle of is no stage of this command
  return reportOf(await follow(client, id, { note: outside.note, stage() {}, bytes() {} }))
}

/**
 * Pauses what the service does by itself until a day, or ends the pause: as the panel does, it changes that one member of its rules.
 * `until`: a day or a time; null ends the pause, if it is not the configuration's own.
 */
export async function pauseUpdates(receipt: Receipt, until: string | null): Promise<PolicyReport> {
  const client = connect(await readAccess(receipt.configPath))
  if ((await client.status()) === null)
    throw new BatonError(
      'service_down',
      `${receipt.service} does not answer, so nothing was changed; while down, it does not update itself`,
    )
  const { pauseUntil: _, ...own } = (await client.policy()).own
  return await client.policy(until === null ? own : { ...own, pauseUntil: until }).catch((cause: unknown) => {
    // the service names its own setting
    if (!(cause instanceof BatonError) || cause.code !== 'invalid_request') throw cause
    throw usage(cause.message.replace('in `pauseUntil`', 'for --pause-until'))
  })
}
