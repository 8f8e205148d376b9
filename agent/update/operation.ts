// One operation from lock to outcome, around the story in `story.ts`. It has two callers: the agent inside the service, and
// the command line if no service runs. `OperationRequest` has what they do differently. Must hold: the operation is on the disk before
// it is acted on; it always gets an outcome, at the latest at the next start (`agent/recovery.ts`).

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { exists } from '../disk/disk.ts'
import { blameOf } from '../words/blame.ts'
import { asBatonError, BatonError, type ErrorCode, reasonOf } from '../words/errors.ts'
import { doneAs, finishOperation } from '../disk/journal.ts'
import { updateDirectory } from '../disk/places.ts'
import { type Lock, takeLock } from '../disk/lock.ts'
import type { Placed } from './installed.ts'
import type { ManagedInstall } from '../disk/managed-install.ts'
import { readMark } from '../disk/state-mark.ts'
import { decide, type Decision, type Situation } from './decide.ts'
import { clearTemporaries, closeInterrupted, sayFinished, sweep } from './ending.ts'
import { dropMark, giveOwnData, movedIn, tellMoved, refuseNewerSchema, snapshotFor, withItsData } from './own-data.ts'
import { knownRehearsal, refuseIrreversible } from './rehearsal/rehearse.ts'
import { keepReserve } from '../disk/reserve.ts'
import type { Alone } from './schedule/proven.ts'
import type { Release } from '../words/release.ts'
import { refuseBarred } from './barrier.ts'
import { makeStages, type Stages } from './stages.ts'
import { type Allowed, isDone, type Kind, type Operation, type Outcome, type Stage } from '../words/state.ts'
import { hasBackup, noBackup } from './steps/swap.ts'
import { BAD_REASON_MAX } from '../words/report.ts'
import { plainOf } from '../words/said.ts'
import { isResting } from '../words/waits.ts'
import { rollBack, update } from './story.ts'

/** how long to wait for the lock of an operation that has its outcome, and how often to try */
const LETTING_GO_MS = 2000
const LETTING_GO_EVERY_MS = 20
const [OUTCOME_TRIES, OUTCOME_EVERY_MS] = [20, 500]
/** how long a person waits to hear that the feed has no such tag */
const NAMED_MS = 5000

/** What a person or the service asks for. With `restoreState` an update names a tag. */
export interface Asked extends Partial<Omit<Allowed, 'now'>> {
  kind: Kind
  /** update: a tag, or null for the latest; rollback: null */
  tag: string | null
  /** the service asks by itself, by its operator's rules; absent: a person asks */
  alone?: AloneRequest
  /** see `AllowedBack` */
  bad?: string
}

/** What the service asks for by itself. */
export interface AloneRequest extends Alone {
  /** of the operation, noted before it begins */
  id: string
  /** of the release's asset; the operation is refused if the feed has other bytes by now */
  sha256: string
}

export interface OperationRequest extends Asked {
  /** name of the lock's holder: `the service`, `shop upgrade` */
  who: string
  /** error code if the lock is held; default update_in_flight */
  refusal?: ErrorCode
  /** Resolves when the service has nothing under way that a switch would end; fills in `operation.waits`. Absent: nobody serves */
  rest?: (operation: Operation, signal: AbortSignal) => Promise<void>
  /** called under the lock before anything is read or written; if it throws, `begin` throws the same and nothing has changed */
  prepare?: () => Promise<void>
}

/**
 * Hands over to the executable that is now in place, or starts it. A handover fills in `operation.handover`. Rejects if the
 * old executable must come back.
 */
export type Restart = (to: string, operation: Operation) => Promise<Restarted>

export interface Restarted {
  /** the service was stopped during the probation: leave the operation open for the next start */
  open?: boolean
}

export interface Finished {
  /** if the operation is left open: what it has if the next start ends it well */
  outcome: Outcome
  to: string | null
  error: BatonError | null
  /** the executable that this operation has put in place; null if nothing changed, or if the old one was put back */
  placed: Placed | null
}

export interface Running {
  /** live: its members change as the operation goes on */
  operation: Operation
  /** Cancels the operation if nothing has changed yet. True if it could: the outcome is then `cancelled`. */
  cancel(reason: BatonError): boolean
  /** never rejects; when it resolves, the journal has the outcome and the lock is free */
  done: Promise<Finished>
}

/**
 * Takes the lock, writes the operation to the journal, and starts it. Throws `refusal` if another operation holds the lock, and
 * no_backup if a rollback has nothing to restore; then nothing has changed.
 */
export async function begin(install: ManagedInstall, request: OperationRequest, restart: Restart): Promise<Running> {
  const { journal, places } = install
  refuseBadReason(request.bad)
  if (request.kind === 'update') await install.feed.load()
  if (request.kind === 'rollback' && !(await exists(places.backup))) throw noBackup(places)
  await refuseAtOnce(install, request)
  const lock = await takeLockOf(install, request)
  try {
    await request.prepare?.()
    const state = await journal.read()
    if (state.operation !== null && state.operation.outcome === null) await closeInterrupted(install)
    await clearTemporaries(install)
    await dropMark(install)
    await keepReserve(install.disk, updateDirectory(install.stateDirectory))
    const operation = newOperation({
      id: request.alone?.id ?? randomUUID(),
      kind: request.kind,
      from: install.current,
      to: request.tag,
      startedAt: new Date().toISOString(),
    })
    if (request.alone !== undefined) operation.by = 'schedule'
    if (request.bad !== undefined) operation.bad = plainOf(request.bad)
    await journal.change((now) => void (now.operation = structuredClone(operation)))
    install.log({ event: 'operation', id: operation.id, kind: operation.kind, stage: operation.stage })
    const abort = new AbortController()
    const cancel = (reason: BatonError): boolean => {
      // safe: the story checks the signal in the same turn of the event loop in which it enters the swap
      const isEarly = CANCELLABLE.includes(operation.stage) || isResting(operation.waits)
      if (!isEarly || operation.outcome !== null) return false
      abort.abort(reason)
      return true
    }
    return { operation, cancel, done: carryOut({ install, request, operation, restart, lock, signal: abort.signal }) }
  } catch (cause) {
    await lock.release()
    throw asBatonError(cause, 'refused', 'writing the operation to the journal')
  }
}

/**
 * Refuses what cannot succeed, before anything begins. Throws release_not_found for a tag that the feed does not have, irreversible if an
 * earlier rehearsal has shown that this release has no way back, and schema_newer if one has shown that for the release that runs.
 */
async function refuseAtOnce(
  install: ManagedInstall,
  { kind, tag, allowIrreversible, restoreState, alone }: Asked,
): Promise<void> {
  const { history } = await install.journal.read()
  if (restoreState === true) await snapshotFor(install, tagOfState(kind, tag))
  else if (kind === 'rollback') refuseNewerSchema(install, history)
  if (kind === 'rollback' || tag === null || alone !== undefined || tag === install.current) return
  const release = await namedRelease(install, tag)
  if (release !== null && restoreState !== true) refuseBarred(release, install.current)
  if (release !== null && allowIrreversible !== true && restoreState !== true)
    refuseIrreversible(release, await knownRehearsal(install, release))
}

/** Null: the feed does not say it soon, or it cannot be used. The operation asks again, and says why. Throws release_not_found. */
async function namedRelease({ feed }: ManagedInstall, tag: string): Promise<Release | null> {
  try {
    return await feed.byTag(tag, AbortSignal.timeout(NAMED_MS))
  } catch (cause) {
    if (cause instanceof BatonError && cause.code === 'release_not_found') throw cause
    return null
  }
}

/** Tag of the release whose snapshot to restore; null: the backup executable's. */
function tagOfState(kind: Kind, tag: string | null): string | null {
  if (kind === 'rollback' || tag !== null) return tag
  throw new BatonError(
    'invalid_request',
    'expected `tag`, the release whose data to restore, along with `restoreState`',
  )
}

/**
 * Takes the lock. An operation releases it a moment after it writes its outcome, so this waits: a caller who has read the
 * outcome is not refused.
 */
async function takeLockOf(install: ManagedInstall, request: OperationRequest): Promise<Lock> {
  for (let waitedMs = 0; ; waitedMs += LETTING_GO_EVERY_MS) {
    try {
      return await takeLock(install.disk, install.stateDirectory, request.who, {
        refusal: request.refusal ?? 'update_in_flight',
      })
    } catch (refusal) {
      // Waits for any operation that has an outcome. Its `finishedAt` is wall-clock time, and the clock may have been set since.
      const outcome = (await install.journal.read()).operation?.outcome ?? null
      if (outcome === null || waitedMs >= LETTING_GO_MS) throw refusal
    }
    await sleep(LETTING_GO_EVERY_MS)
  }
}

const CANCELLABLE: readonly Stage[] = ['check', 'download', 'verify']

const CODES: Record<Stage, ErrorCode> = {
  check: 'check_failed',
  download: 'download_failed',
  verify: 'verify_failed',
  swap: 'swap_failed',
  restart: 'restart_failed',
}

interface CarryOut {
  install: ManagedInstall
  request: OperationRequest
  operation: Operation
  restart: Restart
  lock: Lock
  signal: AbortSignal
}

async function carryOut({ install, request, operation, restart, lock, signal }: CarryOut): Promise<Finished> {
  let open = false
  const stages = makeStages(install, operation, {
    allowIrreversible: request.allowIrreversible === true,
    restoreState: request.restoreState === true,
    alone: request.alone ?? null,
    rest: async (given) => await request.rest?.(operation, given),
    async restart(to) {
      const restarted = await restart(to, operation)
      open = restarted.open === true
    },
  })
  let to = operation.to
  let failure: BatonError | null = null
  try {
    to =
      request.kind === 'update' ? await update(request.tag, stages.steps, signal) : await rollBack(stages.steps, signal)
  } catch (cause) {
    const { stage } = operation
    to = operation.to
    // after an abort the outcome is `cancelled`, whatever error the abort has caused
    failure = signal.aborted
      ? (signal.reason as BatonError)
      : asBatonError(cause, CODES[stage], stage === 'restart' ? 'restarting' : stage)
  }
  const { decided, error: fault } = await endOf({ install, operation, stages, failure, isOpen: open })
  const error = fault === null || request.restoreState === true ? fault : await withItsData(install, operation, fault)
  stages.leave()
  const ended = decided.outcome
  const outcome = ended === null || isDone(ended) ? doneAs({ ...operation, to }) : ended
  try {
    if (ended !== null) await writeOutcomeSoon(install, operation, { ...decided, outcome, to, error }, stages)
  } catch (cause) {
    install.log({ event: 'warning', message: `could not write the outcome of ${operation.id}: ${reasonOf(cause)}` })
    // The next operation closes this one in the journal: set the outcome in memory, so that this process accepts the next one.
    Object.assign(operation, { outcome, finishedAt: new Date().toISOString() })
  } finally {
    await install.feed.close().catch(() => {}) // no connection stays open between two operations
    await keepReserve(install.disk, updateDirectory(install.stateDirectory)) // this operation may have used it up
    await lock.release()
  }
  return { outcome, to, error, placed: isDone(outcome) ? stages.placed() : null }
}

interface ToEnd {
  install: ManagedInstall
  operation: Operation
  stages: Stages
  failure: BatonError | null
  /** the release has not proved itself, and a later start is to see to that */
  isOpen: boolean
}

/** Decides how the operation ends, and puts the old executable back if that is decided. */
async function endOf({ install, operation, stages, failure, isOpen }: ToEnd) {
  const { kind, stage } = operation
  const { inPlace, takeBack } = stages.swap
  const situation = (backup: boolean): Situation => ({
    asks: 'operation',
    kind,
    stage,
    failed: failure === null ? null : { code: failure.code, ...blameOf(failure), isOfBytes: stages.isPublishedBad() },
    failures: inPlace() === 'new' ? 0 : null, // of its starts on probation, which has just begun
    inPlace: inPlace(),
    hasBackup: backup,
    hasMark: readMark(install.stateDirectory) !== null,
    alive: failure === null && !isOpen && inPlace() === 'new' ? 'proved' : install.serves ? 'old' : 'nobody',
  })
  let decided = decide(situation(await hasBackup(install.places)))
  let fault: unknown = null
  try {
    await takeBack(decided.disk)
  } catch (cause) {
    fault = cause
    decided = decide(situation(false)) // it could not be put back, which is as if there were none
  }
  const isStuck = decided.outcome === 'failed' && inPlace() === 'new'
  if (!isStuck || failure === null) return { decided, error: failure }
  const cause = fault ?? noBackup(install.places)
  const message = `${failure.message}; putting the previous executable back also failed: ${reasonOf(cause)}`
  return { decided, error: new BatonError('undo_failed', message, { cause }) }
}

/** Tries again for a while: a host may lack descriptors or space only for a moment. */
async function writeOutcomeSoon(...what: Parameters<typeof writeOutcome>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await writeOutcome(...what)
    } catch (cause) {
      if (tries === OUTCOME_TRIES) throw cause
      await sleep(OUTCOME_EVERY_MS)
    }
  }
}

async function writeOutcome(
  install: ManagedInstall,
  operation: Operation,
  { outcome, data, blame, to, error }: Pick<Decision, 'data' | 'blame'> & Omit<Finished, 'placed'>,
  stages: Stages,
): Promise<void> {
  if (isDone(outcome)) await stages.swap.settle()
  if (data === 'give') await giveOwnData(install)
  const hint = error?.hint ?? null
  const told = error === null ? null : { code: error.code, message: error.message, ...(hint === null ? {} : { hint }) }
  operation.to = to ?? operation.to
  const moved = await movedIn(install, operation)
  const state = await install.journal.change((now) => {
    now.operation = { ...structuredClone(operation), outcome: null }
    finishOperation(now, { outcome, error: told, blame })
    tellMoved(now, operation.id, moved)
  })
  // set together, and only now: a status must never show an error without its outcome; the report is made from this object
  if (moved !== null) operation.stateMoved = moved
  operation.error = state.operation?.error ?? told
  operation.outcome = state.operation?.outcome ?? outcome
  operation.kind = state.operation?.kind ?? operation.kind
  operation.finishedAt = state.operation?.finishedAt ?? null
  sayFinished(install, operation, told)
  await dropMark(install)
  if (isDone(outcome)) await sweep(install)
}

/** Throws invalid_request. `bad`: as a request has it */
function refuseBadReason(bad: unknown): void {
  if (bad === undefined || (typeof bad === 'string' && bad !== '' && bad.length <= BAD_REASON_MAX)) return
  throw new BatonError('invalid_request', `expected 1 to ${BAD_REASON_MAX} characters in \`bad\``)
}

/** A new operation, with what is known when it begins. */
export function newOperation(known: Pick<Operation, 'id' | 'kind' | 'from' | 'to' | 'startedAt'>): Operation {
  return {
    ...known,
    stage: known.kind === 'update' ? 'check' : 'swap',
    progress: null,
    finishedAt: null,
    outcome: null,
    error: null,
    sha256: null,
    durations: {},
    bytes: 0,
    handover: null,
  }
}
