// Whether a container is what is wanted: healthy, of the expected version, and still so at the end of its probation.
// Must hold: an engine that was restarted is not held against the container; a container that was restarted is.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, isTag, reasonOf } from '../../agent/words.ts'
import type { Engine } from './engine.ts'
import type { ContainerInspection } from './inspection.ts'
import type { Job, Origin } from './job.ts'
import { ensureRunning } from './moves.ts'

const POLL_MS = 100

/**
 * Waits until the successor, started after `epoch`, says that it is healthy; for one without a health check until it runs.
 * Returns the engine's epoch in which that was seen. Throws BatonError restart_failed.
 */
export async function becomesHealthy(job: Job, timeoutMs: number, epoch: number, engine: Engine): Promise<number> {
  const deadline = Date.now() + timeoutMs
  for (;;) {
    const container = await engine.container(job.successor)
    if (epoch !== engine.epoch()) {
      epoch = engine.epoch()
      await ensureRunning(job.successor, engine)
      continue
    }
    if (judge(container, job) === 'good') return epoch
    if (Date.now() > deadline) {
      throw new BatonError('restart_failed', `not healthy after ${timeoutMs} ms${lastOutput(container)}`)
    }
    await sleep(POLL_MS)
  }
}

/** Throws BatonError probation_failed where it does not stay so for `probationMs`. */
export async function standsProbation(
  job: Job,
  probationMs: number,
  healthTimeoutMs: number,
  epoch: number,
  engine: Engine,
): Promise<void> {
  try {
    for (let since = Date.now(); Date.now() - since < probationMs;) {
      await sleep(Math.min(POLL_MS, probationMs))
      const container = await engine.container(job.successor)
      if (epoch === engine.epoch()) judge(container, job)
      else {
        epoch = await becomesHealthy(job, healthTimeoutMs, epoch, engine)
        since = Date.now()
      }
    }
  } catch (cause) {
    if (!(cause instanceof BatonError && cause.code === 'restart_failed')) throw cause
    throw new BatonError('probation_failed', `in probation: ${reasonOf(cause)}`, { cause })
  }
}

/** The old container after it was put back: healthy, where it was healthy before. Throws BatonError undo_failed. */
export async function standsAgain(id: string, origin: Origin, timeoutMs: number, engine: Engine): Promise<void> {
  const deadline = Date.now() + timeoutMs
  for (let epoch = engine.epoch(); ; await sleep(POLL_MS)) {
    const container = await engine.container(id)
    if (epoch !== engine.epoch()) {
      epoch = engine.epoch()
      await ensureRunning(id, engine)
      continue
    }
    const { Running: running = false, Status: status = 'gone', Health: health } = container?.State ?? {}
    if (running && (!origin.healthy || health?.Status === 'healthy')) return
    if (!running || Date.now() > deadline) {
      throw new BatonError('undo_failed', `the old container is ${running ? (health?.Status ?? status) : status}`)
    }
  }
}

/** Throws BatonError restart_failed where the successor cannot be what is wanted any more. */
function judge(container: ContainerInspection | null, { image, origin }: Job): 'good' | 'starting' {
  const fail = (message: string): never => {
    throw new BatonError('restart_failed', message)
  }
  if (container === null) return fail('the new container is gone')
  const { State: state } = container
  if (container.Image !== image) fail(`expected image ${image}, got ${container.Image}`)
  if (container.RestartCount > 0 || state.Status === 'restarting') {
    // once it runs again, the engine says 0 for how it ended
    fail(`the new container ended${state.ExitCode === 0 ? '' : ` with ${state.ExitCode}`} and was started again`)
  }
  if (state.Status === 'exited' || state.Status === 'dead') {
    const why = `${state.OOMKilled === true ? ', out of memory' : ''}${state.Error ? `: ${state.Error}` : ''}`
    fail(`the new container ended with ${state.ExitCode}${why}`)
  }
  const health = state.Health?.Status ?? ''
  // without a health check, running is all that is known: Docker says nothing or `none`, podman says ''
  if (health === '' || health === 'none') return state.Running ? 'good' : 'starting'
  if (health === 'unhealthy') fail(`the new container is unhealthy${lastOutput(container)}`)
  if (health !== 'healthy') return 'starting'
  const told = reportedVersion(container)
  if (told !== null && origin.version !== null && told !== origin.version) {
    fail(`expected version ${origin.version}, got ${told}`)
  }
  return 'good'
}

/** A health check may print the version that answered it, such as `beacon v1.2.3`. */
function reportedVersion(container: ContainerInspection): string | null {
  const output = container.State.Health?.Log?.findLast(({ ExitCode }) => ExitCode === 0)?.Output ?? ''
  return output.split(/\s+/).find((word) => isTag(word)) ?? null
}

function lastOutput(container: ContainerInspection | null): string {
  const output = container?.State.Health?.Log?.at(-1)?.Output.trim() ?? ''
  return output === '' ? '' : `: ${output.slice(0, 200)}`
}
