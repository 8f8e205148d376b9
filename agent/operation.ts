// One operation from lock to outcome, around the story in `update.ts`. Both callers use it: the agent inside the service,
// and the command line where no service runs; they differ in the restart step only. Must hold: the operation is on the
// disk before it is acted on, and whatever happens it gets an outcome, at the latest at the next start (`recover`).

import { randomUUID } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type Disk, isLeftover } from './disk.ts'
import { asBatonError, type BatonError, type ErrorCode, reasonOf } from './errors.ts'
import { finish, type Journal, type JournalState, markBad, updateDirectory } from './journal.ts'
import { type Lock, takeLock } from './lock.ts'
import type { Log } from './log.ts'
import type { Places } from './places.ts'
import { installedTag } from './version.ts'
import { badEntry, type Kind, type Operation, type Probation, type Progress, type Stage } from './state.ts'
import { makeCheck } from './steps/check.ts'
import { makeDownload } from './steps/download.ts'
import { snapshot } from './steps/snapshot.ts'
import { clearLeftovers, exists, finishExchange, makeSwap, noBackup } from './steps/swap.ts'
import { makeVerify } from './steps/verify.ts'
import type { OpenFeed } from './feed/open.ts'
import { type Result, rollback, type Steps, update } from './update.ts'

/** from the outcome on disk until the lock is free, and how often to look meanwhile */
const LETTING_GO_MS = 2000
const LETTING_GO_EVERY_MS = 20

/** What every operation on one managed install needs. */
export interface Ground {
  service: string
  /** tag that runs, or that is installed where nothing runs */
  current: string
  disk: Disk
  places: Places
  stateDirectory: string
  /** path of `<service>.db`, null where the service has none */
  database: string | null
  feed: OpenFeed
  journal: Journal
  stallMs: number
  log: Log
  /** see SwapOptions */
  runningImage: () => Promise<string | null>
}

export interface Request {
  kind: Kind
  /** update: a tag, or null for the latest; rollback: null */
  tag: string | null
  /** who asks, for the lock: `the service`, `install.sh upgrade` */
  who: string
  /** code of the refusal where the lock is held */
  refusal?: ErrorCode
  /** called under the lock before anything is read or written; `begin` throws what it throws, with nothing changed */
  prepare?: () => Promise<void>
}

/**
 * Hands over to, or starts, the executable that is now in place; a handover fills in `operation.handover`. Rejects when the
 * old one is to come back.
 */
export type Restart = (to: string, operation: Operation) => Promise<Restarted>

export interface Restarted {
  /** nothing is proved yet (the service was stopped during probation): leave the operation open for the next start */
  open?: boolean
}

export interface Running {
  /** live: its members change as the operation goes on */
  operation: Operation
  /** Cancels it where nothing has changed yet, and says whether it could: the outcome is then `cancelled`. */
  cancel(reason: BatonError): boolean
  /** never rejects; the journal has the outcome and the lock is free when it resolves */
  done: Promise<Result>
}

/**
 * Takes the lock, writes the operation, and starts it. Throws, with nothing changed, `refusal` where somebody else is at
 * work and no_backup where a rollback has nothing to restore.
 */
export async function begin(ground: Ground, request: Request, restart: Restart): Promise<Running> {
  const { journal, places } = ground
  if (request.kind === 'rollback' && !(await exists(places.backup))) throw noBackup(places)
  const lock = await takeLockOf(ground, request)
  try {
    await request.prepare?.()
    const state = await journal.read()
    if (state.operation !== null && state.operation.outcome === null)
      await closeInterrupted(ground, 'taken over by the next operation')
    await clearTemporaries(ground)
    const operation: Operation = {
      id: randomUUID(),
      kind: request.kind,
      from: ground.current,
      to: request.tag,
      stage: request.kind === 'update' ? 'check' : 'swap',
      progress: null,
      startedAt: new Date().toISOString(),
      finishedAt: null,
      outcome: null,
      error: null,
      sha256: null,
      durations: {},
      bytes: 0,
      handover: null,
    }
    await journal.change((now) => void (now.operation = structuredClone(operation)))
    ground.log({ event: 'operation', id: operation.id, kind: operation.kind, stage: operation.stage })
    const abort = new AbortController()
    const cancel = (reason: BatonError): boolean => {
      // the story looks at the signal in the very turn in which it enters the swap
      if (!CANCELLABLE.includes(operation.stage) || operation.outcome !== null) return false
      abort.abort(reason)
      return true
    }
    return { operation, cancel, done: conduct(ground, request, operation, restart, lock, abort.signal) }
  } catch (cause) {
    await lock.release()
    throw asBatonError(cause, 'refused', 'writing the operation to the journal')
  }
}

/** Whoever writes an outcome lets go of the lock a moment later: nobody who has read the outcome is refused for that. */
async function takeLockOf(ground: Ground, request: Request): Promise<Lock> {
  for (let waitedMs = 0; ; waitedMs += LETTING_GO_EVERY_MS) {
    try {
      return await takeLock(ground.disk, ground.stateDirectory, request.who, {
        refusal: request.refusal ?? 'update_in_flight',
      })
    } catch (refusal) {
      const finishedAt = (await ground.journal.read()).operation?.finishedAt ?? null
      const isLettingGo = finishedAt !== null && Date.now() - Date.parse(finishedAt) < LETTING_GO_MS
      if (!isLettingGo || waitedMs >= LETTING_GO_MS) throw refusal
    }
    await new Promise((resolve) => setTimeout(resolve, LETTING_GO_EVERY_MS))
  }
}

async function conduct(
  ground: Ground,
  request: Request,
  operation: Operation,
  restart: Restart,
  lock: Lock,
  signal: AbortSignal,
): Promise<Result> {
  const { journal, log } = ground
  let open = false
  const steps = makeSteps(ground, operation, async (to) => {
    const restarted = await restart(to, operation)
    open = restarted.open === true
  })
  let result: Result
  try {
    result = request.kind === 'update' ? await update(request.tag, steps.steps, signal) : await rollback(steps.steps)
  } catch (cause) {
    const error = asBatonError(cause, CODES[operation.stage], operation.stage)
    // whatever broke because of it: what was aborted was cancelled
    const cancelled = signal.aborted ? (signal.reason as BatonError) : null
    result = { outcome: cancelled === null ? 'failed' : 'cancelled', to: operation.to, error: cancelled ?? error }
  }
  steps.leave()
  try {
    if (!open) {
      if (result.outcome === 'updated' || result.outcome === 'rolled_back') await steps.settle()
      const error = result.error
      const told = error === null ? null : { code: error.code, message: error.message }
      operation.to = result.to ?? operation.to
      const state = await journal.change((now) => {
        now.operation = { ...structuredClone(operation), outcome: null }
        finish(now, { outcome: result.outcome, error: told })
        if (error !== null && steps.isPublishedBad() && operation.to !== null) {
          markBad(now, operation.to, operation.sha256, error.message)
        }
      })
      // together and only now: a status must never see an error without its outcome
      operation.error = told
      operation.outcome = result.outcome
      operation.finishedAt = state.operation?.finishedAt ?? null
      log({
        event: 'finished',
        id: operation.id,
        kind: operation.kind,
        outcome: result.outcome,
        to: operation.to,
        code: error?.code ?? null,
        message: error?.message ?? null,
      })
    }
  } catch (cause) {
    log({ event: 'warning', message: `writing the outcome of ${operation.id}: ${reasonOf(cause)}` })
  } finally {
    await ground.feed.close().catch(() => {}) // no connection stays open between two operations
    await lock.release()
  }
  return result
}

const CANCELLABLE: readonly Stage[] = ['check', 'download', 'verify']

const CODES: Record<Stage, ErrorCode> = {
  check: 'check_failed',
  download: 'download_failed',
  verify: 'verify_failed',
  swap: 'swap_failed',
  restart: 'restart_failed',
}

/** The real steps, each of which says on disk that it begins before it does. */
function makeSteps(
  ground: Ground,
  operation: Operation,
  restart: (to: string) => Promise<void>,
): { steps: Steps; leave(): void; settle(): Promise<void>; isPublishedBad(): boolean } {
  const { disk, places, journal, feed } = ground
  let enteredAt = performance.now()
  const leave = () => {
    operation.durations[operation.stage] = Math.round(performance.now() - enteredAt)
    enteredAt = performance.now()
  }
  const enter = async (stage: Stage) => {
    if (operation.stage === stage) return // `begin` has written it
    leave()
    ground.log({ event: 'operation', id: operation.id, kind: operation.kind, stage })
    operation.stage = stage
    await journal.change((state) => void (state.operation = structuredClone(operation)))
  }
  let state: JournalState | null = null
  let publishedBad = false
  const check = makeCheck({
    feed,
    current: () => ground.current,
    skip: ({ tag, asset }) => badEntry(state?.bad ?? [], tag, asset.sha256) !== null,
  })
  const download = makeDownload({
    feed,
    disk,
    partialPath: places.partial,
    stallMs: ground.stallMs,
    onProgress: (progress: Progress) => void (operation.progress = progress),
    onReceived: (bytes) => void (operation.bytes += bytes),
  })
  const verify = makeVerify({ service: ground.service, disk })
  const swap = makeSwap({
    disk,
    places,
    runningImage: ground.runningImage,
    snapshot: async () => {
      if (ground.database !== null) await snapshot(disk, ground.database, ground.stateDirectory, ground.current)
    },
    backupTag: async () => await installedTag(places.backup),
    enterProbation: async (to) => {
      operation.to = to
      // of a backup nobody knows what it was published as, but the operation that brought it
      const brought = (await journal.read()).history.find((one) => one.outcome === 'updated' && one.to === to)
      if (operation.kind === 'rollback') operation.sha256 = brought?.sha256 ?? null
      const probation: Probation = {
        operationId: operation.id,
        kind: operation.kind,
        from: operation.from,
        to,
        since: new Date().toISOString(),
        until: null,
        failures: 0,
      }
      await journal.change((state) => {
        state.operation = structuredClone(operation)
        state.probation = probation
      })
    },
  })
  const steps: Steps = {
    async check(tag, signal) {
      await enter('check')
      state = await journal.read()
      const release = await check(tag, signal)
      if (release !== null) [operation.to, operation.sha256] = [release.tag, release.asset.sha256]
      return release
    },
    async download(release, signal) {
      operation.progress = { bytes: 0, totalBytes: release.asset.sizeBytes }
      await enter('download')
      return await download(release, signal)
    },
    async verify(candidate, release, signal) {
      await enter('verify')
      try {
        await verify(candidate, release, signal)
      } catch (cause) {
        // the very bytes that were published, and they are no good: nobody needs to fetch them again
        publishedBad = candidate.assetSha256 === release.asset.sha256
        throw cause
      }
    },
    async swap(candidate, release) {
      await enter('swap')
      return await swap.swap(candidate, release)
    },
    async restore() {
      await enter('swap')
      return await swap.restore()
    },
    async restart(to) {
      await enter('restart')
      await restart(to)
    },
  }
  return { steps, leave, settle: swap.settle, isPublishedBad: () => publishedBad }
}

/**
 * At the start of a service that is nobody's successor, under the lock: closes what an interrupted process has left open and
 * clears its leftovers. Resolves to the probation that this very start has to stand, or null.
 */
export async function recover(ground: Ground): Promise<Probation | null> {
  const { operation, probation } = await ground.journal.read()
  await clearTemporaries(ground)
  await finishExchange(ground.disk, ground.places)
  if (operation !== null && operation.outcome === null) {
    if (probation !== null && probation.to === ground.current) return probation
    await closeInterrupted(ground, 'the process that was at it has ended')
    return null
  }
  await clearLeftovers(ground.disk, ground.places)
  return null
}

/** The probation is stood: commits what is still open. */
export async function settleProbation(ground: Ground): Promise<void> {
  await ground.disk.remove(ground.places.former)
  const state = await ground.journal.change((now) =>
    finish(now, { outcome: now.operation?.kind === 'rollback' ? 'rolled_back' : 'updated', error: null }),
  )
  const operation = state.operation
  if (operation === null) return
  ground.log({
    event: 'finished',
    id: operation.id,
    kind: operation.kind,
    outcome: operation.outcome ?? 'updated',
    to: operation.to,
    code: null,
    message: null,
  })
}

async function closeInterrupted(ground: Ground, why: string): Promise<void> {
  await clearLeftovers(ground.disk, ground.places)
  const state = await ground.journal.change((now) => {
    // in the restart stage with the old executable in place again: somebody has put it back, and had a reason
    const outcome = now.operation?.stage === 'restart' ? 'reverted' : 'failed'
    const stage = now.operation?.stage ?? 'check'
    finish(now, { outcome, error: { code: 'interrupted', message: `interrupted in the ${stage} stage: ${why}` } })
  })
  ground.log({
    event: 'recovered',
    message: `operation ${state.operation?.id ?? ''} was ${state.operation?.outcome ?? 'interrupted'}`,
  })
}

/** Temporary files that a killed process has left, beside the executable and in the update directory. */
async function clearTemporaries(ground: Ground): Promise<void> {
  const { disk, places } = ground
  const directories = [
    places.directory,
    updateDirectory(ground.stateDirectory),
    join(updateDirectory(ground.stateDirectory), 'snapshots'),
  ]
  for (const directory of directories) {
    const entries = await readdir(directory).catch(() => [])
    for (const entry of entries) if (isLeftover(entry)) await disk.remove(join(directory, entry))
  }
}
