// Whether a container is well, has the expected version, and is still so at the end of its probation.
// Runs the container's own health check at once: the engine's next run of it may be half a minute away.
// Must hold: a restart of the engine does not count against the container; a restart of the container does. *Not yet* is no verdict
// until the deadline, whatever the engine calls the container meanwhile (docs/decisions/0036-unhealthy-is-not-yet.md).

import { setTimeout as sleep } from 'node:timers/promises'
import { plainOf } from '../../agent/install.ts'
import { durationText, BatonError, isTag, reasonOf, untilWell } from '../../agent/words.ts'
import { type Engine, isUnreachable } from './engine/engine.ts'
import type { ContainerInspection } from './inspection.ts'
import type { Job, JobOrigin } from './job.ts'
import { ensureRunning } from './moves.ts'
import { owesStill } from './own-data.ts'
import type { Health } from './report.ts'
import { LONGER, refuseStopped, type Limits, type Tools } from './request.ts'

const POLL_MS = 100
/** A check starts a process in the container. One that warms up must not be slowed down by being asked. */
const ASK_MS = 500
/** in probation the check runs this often; the third failure in a row counts */
const CHECK_MS = 2000
const CHECK_RETRY_MS = 500
const FAILURES_MAX = 3
const CHECK_TIMEOUT_MS = 30_000
/** how often the engine may lose one check */
const LOST_MAX = 5
/** the old container gets at least this long, and at least the new one's time, to be well again: there is no other to go back to */
const RETURN_MS = 120_000

/** What a health check said. */
export interface HealthVerdict {
  well: boolean
  said: string
}

/**
 * Whether the container that should serve now answers its clients: asked if it has no health check, or if that has given up. Null if the old
 * container answered on no port before the switch: then silence means nothing.
 */
export type Answers = (() => Promise<boolean>) | null

/**
 * Waits until the successor passes its health check. After the engine was away, `again` puts both containers as they should be.
 * Throws BatonError restart_failed, interrupted.
 */
export async function becomesHealthy(
  job: Job,
  { healthTimeoutMs }: Limits,
  { engine, stop }: Pick<Tools, 'engine' | 'stop'>,
  { answers, again }: { answers: Answers; again: () => Promise<void> },
): Promise<void> {
  const { owesMs = 0 } = job.origin
  let begunAt = owesMs === 0 ? performance.now() : null // null: it still copies what is not in SQLite
  let said = ''
  let epoch = engine.epoch()
  const look = async (): Promise<string | null> => {
    refuseStopped(stop)
    const container = await engine.container(job.successor)
    if (epoch !== engine.epoch()) {
      epoch = engine.epoch()
      await again()
      return await look() // however long the engine was away: that is no fault of the container's
    }
    refuseUnlike(container, job)
    const verdict = await check(container, answers, engine)
    if (verdict.well && epoch === engine.epoch()) {
      refuseVersion(verdict, job.origin)
      return null
    }
    said = verdict.said || said
    if (begunAt === null && !(await owesStill(container, engine))) begunAt = performance.now()
    return begunAt !== null && performance.now() - begunAt > healthTimeoutMs ? tooLate(said) : said
  }
  const tooLate = (why: string) =>
    fail(`the new container is not healthy after ${durationText(healthTimeoutMs)}${quoted(why)}`, LONGER)
  const late = await untilWell(look, owesMs + healthTimeoutMs, ASK_MS)
  if (late !== null) tooLate(late)
}

/**
 * Waits out the probation, at whose end the health check must pass. Throws BatonError probation_failed if the successor does not stay
 * healthy for `probationMs`; interrupted.
 */
export async function standsProbation(
  job: Job,
  limits: Limits,
  tools: Pick<Tools, 'engine' | 'stop'>,
  asked: { answers: Answers; again: () => Promise<void> },
): Promise<void> {
  const { engine, stop } = tools
  let checkAt = performance.now() + Math.min(CHECK_MS, limits.probationMs)
  let failures = 0
  try {
    for (let epoch = engine.epoch(), since = performance.now(); ;) {
      await sleep(Math.min(POLL_MS, limits.probationMs))
      refuseStopped(stop)
      const container = await engine.container(job.successor)
      if (epoch !== engine.epoch()) {
        epoch = engine.epoch()
        await asked.again()
        await becomesHealthy(job, limits, tools, asked)
        since = performance.now()
        continue
      }
      refuseUnlike(container, job)
      const isOver = performance.now() - since >= limits.probationMs
      if (performance.now() < checkAt && (!isOver || failures > 0)) continue
      const { well, said } = await check(container, asked.answers, engine)
      if (well && isOver) return
      failures = well ? 0 : failures + 1
      if (failures === FAILURES_MAX && epoch === engine.epoch()) fail(`its health check keeps failing${quoted(said)}`)
      checkAt = performance.now() + (well ? CHECK_MS : CHECK_RETRY_MS)
    }
  } catch (cause) {
    if (!(cause instanceof BatonError && cause.code === 'restart_failed')) throw cause
    throw new BatonError('probation_failed', `during probation: ${reasonOf(cause)}`, { cause })
  }
}

/**
 * Waits for the old container after it was put back: it must be well if it was well before. Returns whether it is well. It has
 * its own time limit, whatever the new one's was. A container that answers is not down, whatever its health check says. Throws
 * BatonError undo_failed if it does not run or gives no answer.
 */
export async function standsAgain(
  id: string,
  origin: JobOrigin,
  { healthTimeoutMs }: Limits,
  answers: Answers,
  engine: Engine,
): Promise<boolean> {
  const returnMs = Math.max(healthTimeoutMs, RETURN_MS)
  let epoch = engine.epoch()
  let isWell = true
  const look = async (): Promise<string | null> => {
    const container = await engine.container(id)
    if (epoch !== engine.epoch()) {
      epoch = engine.epoch()
      await ensureRunning(id, engine)
      return await look()
    }
    const { Running: running = false, Status: status = 'gone', Health: health } = container?.State ?? {}
    const { well, said } = await check(container, answers, engine)
    if (well) return null
    isWell = false
    if (!origin.healthy && (running || status === 'restarting')) return null
    if (!running) throw new BatonError('undo_failed', `the old container is not running (${status})`)
    // if its own check gave up on it but it answers nevertheless, waiting does not make it better
    if (health?.Status === 'unhealthy' && answers !== null && (await answers())) return null
    isWell = true
    return said
  }
  const late = await untilWell(look, returnMs, ASK_MS)
  if (late === null) return isWell
  if (answers !== null && (await answers())) return false
  throw new BatonError('undo_failed', `the old container is not healthy after ${durationText(returnMs)}${quoted(late)}`)
}

/** Runs the container's own health check now. If it has none: whether it answers. If that cannot be asked: whether it runs. */
export async function check(
  container: ContainerInspection | null,
  answers: Answers,
  engine: Engine,
): Promise<HealthVerdict> {
  if (container === null) return { well: false, said: '' }
  const { State: state, Config: config } = container
  if (!state.Running || state.Status === 'restarting') return { well: false, said: state.Error ?? '' }
  const command = checkCommand(container)
  if (command === null) return { well: answers === null || (await answers()), said: '' }
  const timeoutMs = (config.Healthcheck?.Timeout ?? 0) / 1e6 || CHECK_TIMEOUT_MS
  for (let lost = 0; ; lost++) {
    try {
      const { exitCode, output } = await engine.exec(container.Id, command, timeoutMs)
      return { well: exitCode === 0, said: output.trim() }
    } catch (error) {
      // the engine was away for a moment, which is no fault of the container's: as every other question, it is asked again
      if (isUnreachable(error) && lost < LOST_MAX) await engine.awake()
      else return { well: false, said: reasonOf(error) } // the container has just ended, or the check does not end
    }
  }
}

/** What is known of its health at this moment. */
export async function healthNow(container: ContainerInspection | null, engine: Engine): Promise<Health> {
  const { well } = await check(container, null, engine)
  if (well) return container !== null && checkCommand(container) === null ? 'unchecked' : 'healthy'
  if (container?.State.Status === 'restarting') return 'restarting'
  if (['exited', 'created'].includes(container?.State.Status ?? '')) return 'stopped'
  return container?.State.Health?.Status === 'starting' ? 'starting' : 'unhealthy'
}

function checkCommand({ Config }: ContainerInspection): string[] | null {
  const [kind, ...rest] = Config.Healthcheck?.Test ?? []
  if (kind === 'CMD') return rest
  const shell = (Config['Shell'] as string[] | undefined) ?? ['/bin/sh', '-c']
  return kind === 'CMD-SHELL' ? [...shell, rest.join(' ')] : null
}

/** Throws BatonError restart_failed if the successor can no longer succeed. */
function refuseUnlike(container: ContainerInspection | null, { image }: Job): asserts container is ContainerInspection {
  if (container === null) return fail('the new container no longer exists')
  const { State: state } = container
  if (container.Image !== image) fail(`expected image ${image}, got ${container.Image}`)
  const memory = state.OOMKilled === true ? ', out of memory' : ''
  if (container.RestartCount > 0 || state.Status === 'restarting') {
    // once the container runs again, the engine shows 0 as its exit code
    const how = `${state.ExitCode === 0 ? '' : ` with code ${state.ExitCode}`}${memory}`
    fail(`the new container exited${how}${memory === '' ? '' : ','} and was restarted`)
  }
  if (state.Status === 'exited' || state.Status === 'dead') {
    fail(`the new container exited with code ${state.ExitCode}${memory}${state.Error ? `: ${state.Error}` : ''}`)
  }
}

/** A health check may print the version that answered it, such as `beacon v1.2.3`. */
function refuseVersion({ said }: HealthVerdict, { version }: JobOrigin): void {
  const told = said.split(/\s+/).find((word) => isTag(word)) ?? null
  if (told !== null && version !== null && told !== version) fail(`expected version ${version}, got ${told}`)
}

function fail(message: string, hint?: string): never {
  throw new BatonError('restart_failed', message, hint === undefined ? {} : { hint })
}

function quoted(said: string): string {
  return said === '' ? '' : `: ${plainOf(said).slice(0, 200)}`
}
