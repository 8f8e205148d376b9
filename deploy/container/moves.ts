// The container operations of a deployment. Each has a target state and does only what is missing. So each may be repeated after
// a lost connection, after a restart of the engine, or by another run.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError } from '../../agent/words.ts'
import { type Engine, isUnreachable } from './engine/engine.ts'
import type { ContainerInspection, RestartPolicy } from './inspection.ts'
import { setVariable } from './environment-file.ts'
import { asItWas, type Job, type JobOrigin, parseOrigin } from './job.ts'
import { failedImage, namesFor, ORIGIN_LABEL, rollbackTag } from './reference.ts'
import { type Specification, specify } from './specification.ts'
import { imageOfContainer, inheritedVolumes, nameNow } from './survey.ts'

/** at this many refusals of the same act, the engine's error counts */
const REFUSALS_MAX = 2
/** an engine that answers in between, and loses the same act each time, is not asked for ever */
const LOSSES_MAX = 10
const SETTLE_MS = 100
/** an application that is older handles signals */
const YOUNG_MS = 2000
/** what a successor gets to stop in: the old container is waiting. Clients that were answered may still have a request there */
const ASIDE_STOP_SECONDS = { proved: 10, answered: 2, silent: 0 }
const KILLED = 137

/** Creates a container, does not start it, returns its id. First removes what an interrupted attempt left under the name. */
export async function createBeside(name: string, specification: Specification, engine: Engine): Promise<string> {
  const { body, connect, disconnect } = specification
  return await again(engine, async () => {
    const leftover = await engine.container(name)
    if (leftover?.State.Status === 'created') await engine.remove(leftover.Id)
    const id = await engine.create(name, body)
    try {
      for (const network of disconnect) await engine.disconnect(network, id)
      for (const { network, endpoint } of connect) await engine.connect(network, id, endpoint)
    } catch (error) {
      if (!isUnreachable(error)) await engine.remove(id)
      throw error
    }
    return id
  })
}

/**
 * Repeats an act each time the connection to the engine is lost, once the engine answers again, LOSSES_MAX times in all. The engine
 * may have done what it could not confirm: only for an act that may be done more than once.
 */
export async function again<T>(engine: Engine, act: () => Promise<T>): Promise<T> {
  for (let losses = 1; ; losses++) {
    try {
      return await act()
    } catch (error) {
      if (!isUnreachable(error) || losses === LOSSES_MAX) throw error
      await engine.awake()
    }
  }
}

/** Removes what a deployment has prepared: the successor and the holder that it made. If either has run, that one stays. */
export async function discard({ successor, origin }: Job, engine: Engine): Promise<void> {
  const made = origin.hold?.way === 'hold' ? [origin.hold.holder] : []
  for (const id of [successor, ...made]) {
    const container = await engine.container(id)
    if (container !== null && container.State.Status === 'created') await engine.remove(id)
  }
}

/**
 * Gives the ports to the holder, or takes them from it, in a deployment that moves a container in or out: nobody may have them at
 * that moment. `back`: as it was before.
 */
export async function passPorts({ hold }: JobOrigin, engine: Engine, { back }: { back: boolean }): Promise<void> {
  if (hold === undefined) return
  if ((hold.way === 'hold') !== back) return await ensureRunning(hold.holder, engine)
  await ensureStopped(hold.holder, null, engine)
}

/**
 * Moves the name from the old container to the new one. From here to the commit, the old container keeps its restart policy and the
 * new one has none: after a power cut the engine starts one of the two by itself, never both.
 */
export async function passName({ origin, predecessor, successor }: Job, engine: Engine): Promise<void> {
  const old = await engine.container(predecessor)
  if (old !== null) {
    // Docker 20.10 cannot rename a container between two restarts
    if (old.State.Status === 'restarting') await endOld(predecessor, engine)
    await rename(predecessor, namesFor(origin.name).predecessor, engine)
  }
  await rename(successor, origin.name, engine)
}

/**
 * The old container drains, and ends. Then the engine knows of no process of it. Under live-restore an engine that comes back would
 * start the old one beside the new one, which lives on. So the old one loses its policy, and after a power cut the switcher starts one.
 */
export async function endOld(predecessor: string, engine: Engine): Promise<void> {
  if (engine.liveRestore) await setRestartPolicy(predecessor, { Name: 'no' }, engine)
  const old = await engine.container(predecessor)
  const { StopTimeout: seconds } = old?.Config ?? {}
  await hearsSignals(old)
  await ensureStopped(predecessor, typeof seconds === 'number' ? seconds : null, engine)
}

/**
 * Waits until a container that the engine has just started can hear a stop. Process 1 of a container gets no signal that it
 * does not handle yet: the stop would be lost, and the engine would kill it at the timeout, with what it has accepted.
 */
async function hearsSignals(container: ContainerInspection | null): Promise<void> {
  const { Running = false, StartedAt = '' } = container?.State ?? {}
  const leftMs = Date.parse(StartedAt) + YOUNG_MS - Date.now()
  if (Running && leftMs > 0) await sleep(Math.min(leftMs, YOUNG_MS))
}

/** Makes the new container the one that an engine starts by itself. Its first act already takes that from the old one. */
export async function commit({ origin, predecessor, successor, image }: Job, engine: Engine): Promise<void> {
  const old = await engine.container(predecessor) // null: somebody pruned it; its image has a tag
  if (old !== null) await setRestartPolicy(predecessor, { Name: 'no' }, engine)
  if (origin.hold?.way === 'hold') await setRestartPolicy(origin.hold.holder, { Name: 'always' }, engine)
  if (origin.hold?.way === 'no-hold') await engine.remove(origin.hold.holder, true)
  await setRestartPolicy(successor, origin.restart, engine)
  await ensureRunning(successor, engine) // an engine that restarted between these two calls has started neither
  if (origin.compose !== null) await setVariable(origin.compose)
  await forgetFailed(origin.name, image, engine)
  if (origin.ofCompose) return old === null ? undefined : await again(engine, () => engine.remove(predecessor))
  const { previous } = namesFor(origin.name)
  await makeRoom(previous, predecessor, engine)
  if (old === null) return
  await rename(predecessor, previous, engine)
  const earlier = parseOrigin(old)
  if (earlier !== null) await keepOneTag(origin, { gone: earlier, kept: origin }, engine)
}

/** From now on `latest` passes over this image, whatever becomes of its container. */
export async function noteFailed({ origin, image }: Job, engine: Engine): Promise<void> {
  const { repository, tag } = failedImage(origin.name)
  await again(engine, () => engine.tag(image, repository, tag))
}

/** The image has proved itself after all. If its tag stays, nobody asks for it while it runs. */
async function forgetFailed(name: string, image: string, engine: Engine): Promise<void> {
  const { repository, tag } = failedImage(name)
  const reference = `${repository}:${tag}`
  const isIt = async () => (await engine.image(reference))?.Id === image
  await again(engine, async () => ((await isIt()) ? await engine.untag(reference) : undefined)).catch(() => {})
}

/** Removes the tag that kept an image, if another one in another repository does so now: a service has one. */
export async function keepOneTag(
  { name }: JobOrigin,
  { gone, kept }: Record<'gone' | 'kept', JobOrigin>,
  engine: Engine,
): Promise<void> {
  if (gone.repository === kept.repository) return
  // refused if the image has no other name and a container uses it: then it is no leftover
  await again(engine, () => engine.untag(`${gone.repository}:${rollbackTag(name)}`)).catch(() => {})
}

/**
 * Takes the ports and the name from a failed successor. Stops it first: Docker 20.10 cannot rename a container between two
 * restarts. `was`: what clients had of it. Resolves to whether it was killed, and nobody else can have answered.
 */
export async function standAside(
  { origin, predecessor, successor }: Job,
  engine: Engine,
  was: keyof typeof ASIDE_STOP_SECONDS,
): Promise<boolean> {
  await engine.awake()
  const { reverting, failed } = namesFor(origin.name)
  const now = await nameNow(successor, engine)
  if (now === null) return false
  await setRestartPolicy(successor, { Name: 'no' }, engine)
  const isRunning = async (id: string) => (await engine.container(id))?.State.Running === true
  const isBeside = await isRunning(predecessor)
  const wasAlone = !isBeside && (await isRunning(successor))
  // both serve: nobody waits meanwhile, and what the new one has accepted is answered
  if (was !== 'silent' && isBeside) await hearsSignals(await engine.container(successor))
  await ensureStopped(successor, ASIDE_STOP_SECONDS[was], engine)
  if (now !== failed) await rename(successor, reverting, engine)
  return wasAlone && (await engine.container(successor))?.State.ExitCode === KILLED
}

/** Keeps a failed successor for its log. Removes one that never ran, as it has no log, and one of compose. */
export async function keepFailed({ origin, successor }: Job, engine: Engine): Promise<void> {
  const container = await engine.container(successor)
  if (container === null) return
  if (container.State.Status === 'created' || origin.ofCompose) return await engine.remove(successor)
  const { failed } = namesFor(origin.name)
  await makeRoom(failed, successor, engine)
  await rename(successor, failed, engine)
}

/**
 * Gives the old container its name and restart policy again and starts it. Creates it anew from its image if it was pruned.
 * Returns its id.
 */
export async function putBack(job: Job, engine: Engine): Promise<string> {
  const { origin } = job
  let id = job.predecessor
  if ((await engine.container(id)) === null) {
    const present = await engine.container(origin.name)
    id = present?.Id ?? (await remake(job, engine))
  }
  await rename(id, origin.name, engine)
  await passPorts(origin, engine, { back: true })
  await ensureRunning(id, engine) // what serves comes first
  await setRestartPolicy(id, origin.restart, engine)
  return id
}

async function remake(job: Job, engine: Engine): Promise<string> {
  const { origin } = job
  const failed = origin.hold === undefined ? await engine.container(job.successor) : null // with `hold` its ports differ
  if (failed === null) throw new BatonError('undo_failed', 'neither container exists anymore')
  const image = await imageOfContainer(failed, engine)
  const container = asItWas(failed, origin)
  const source = { container, image, inherited: await inheritedVolumes(container, engine) }
  const specification = specify(source, { reference: origin.image, labels: { [ORIGIN_LABEL]: '' }, engine })
  return await createBeside(origin.name, specification, engine)
}

/** Removes the container that an earlier deployment kept under this name. Never its volumes. */
async function makeRoom(name: string, forId: string, engine: Engine): Promise<void> {
  const there = await engine.container(name)
  if (there !== null && there.Id !== forId && !there.State.Running) await engine.remove(there.Id)
}

async function rename(id: string, name: string, engine: Engine): Promise<void> {
  await until(
    engine,
    async () => (await nameNow(id, engine)) === name,
    () => engine.rename(id, name),
  )
}

export async function ensureRunning(id: string, engine: Engine): Promise<void> {
  await until(
    engine,
    async () => (await engine.container(id))?.State.Running === true,
    () => engine.start(id),
  )
}

export async function ensureStopped(id: string, timeoutSeconds: number | null, engine: Engine): Promise<void> {
  await until(
    engine,
    async () => (await engine.container(id))?.State.Running !== true,
    () => engine.stop(id, timeoutSeconds),
  )
}

async function setRestartPolicy(id: string, policy: RestartPolicy, engine: Engine): Promise<void> {
  await until(
    engine,
    async () => {
      const container = await engine.container(id)
      return container === null || (container.HostConfig.RestartPolicy?.Name || 'no') === (policy.Name || 'no')
    },
    () => engine.setRestartPolicy(id, policy),
  )
}

/** Acts once, unless the state is reached already. After a lost connection it looks again: the act may have been done or not. */
async function until(engine: Engine, isSo: () => Promise<boolean>, act: () => Promise<void>): Promise<void> {
  for (let [refusals, losses] = [0, 0]; ;) {
    if (await isSo()) return
    const epoch = engine.epoch()
    try {
      return await act()
    } catch (error) {
      if (!isUnreachable(error)) {
        await sleep(SETTLE_MS) // an engine that is shutting down answers with unrelated errors
        if (await isSo()) return
        if (epoch === engine.epoch() && ++refusals === REFUSALS_MAX) throw error
      } else if (++losses === LOSSES_MAX) throw error
      await engine.awake()
    }
  }
}
