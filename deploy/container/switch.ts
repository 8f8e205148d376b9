// The part of a deployment that touches the old container: from a ready successor to one of the two that has proved itself. The
// process may be killed anywhere: names and one label say how far it got, and `finishSwitch` goes on from there.
// Must hold: every exit that is not success puts the old container back.

import { conduct, doneAs } from '../../agent/install.ts'
import { asBatonError, BatonError, reasonOf, untilWell } from '../../agent/words.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { forward, type Switching } from './ground.ts'
import { check, standsAgain } from './health.ts'
import { nameOf } from './inspection.ts'
import { type Job, type JobOrigin, parseOrigin, releaseOf, unfinishedAt } from './job.ts'
import * as move from './moves.ts'
import { copyInSwitch, paidIn, settleData } from './own-data.ts'
import { type OutageWatch, watchOutage } from './outage.ts'
import { namesFor, rollbackTag } from './reference.ts'
import { passTurn } from './gate.ts'
import { type ContainerEnd, ended } from './report.ts'
import type { Limits } from './request.ts'
import { surveyContainer } from './survey.ts'

/** lines shown of a failed successor's log */
const LOG_LINES = 20
const KILLED_ANSWERING =
  'the new container was killed (SIGKILL) while it was answering clients: requests in progress were lost'
/** how long both are asked before the service is called down: on a busy host one answer may be late */
const ASKED_MS = 3000

export async function switchOver(job: Job, limits: Limits, tools: Switching): Promise<ContainerEnd> {
  const outage = await watchOutage(await tools.engine.container(job.predecessor), tools.engine)
  const { endOld, ...steps } = forward({ job, limits, tools, outage })
  return await conduct<ContainerEnd>({
    ...steps,
    leaving: null, // a signal to stop is heeded between two acts (`refuseStopped`), and puts the old container back
    async commit() {
      await endOld()
      return await commit(job, tools, outage)
    },
    async putBack(cause) {
      const error = asBatonError(
        cause,
        'restart_failed',
        `switching to ${releaseOf(job.origin) ?? 'the new container'}`,
      )
      return isAway(cause) ? await gaveUp(job, cause, outage) : await goBack(job, error, limits, { tools, outage })
    },
  })
}

/** Nothing is put back any more: the new container serves, and has proved itself. */
async function commit(job: Job, tools: Switching, outage: OutageWatch): Promise<ContainerEnd> {
  const { engine, report } = tools
  const { origin } = job
  const kept = origin.ofCompose
    ? 'the old container is removed, as compose would do; its image stays tagged'
    : `the old container is kept as ${namesFor(origin.name).previous}`
  await report({ event: 'step', step: 'finish', detail: kept })
  try {
    await move.commit(job, engine)
  } catch (cause) {
    // only its restart policy and a name are left to set
    await report({
      event: 'warning',
      message: `the new container is serving, but cleanup failed: ${reasonOf(cause)}; run the command again to finish`,
    })
  }
  const data = await settled(job.successor, job.successor, tools)
  return ended(doneAs({ ...origin, to: releaseOf(job.origin) }), {
    ...(await factsNow(job, engine)),
    ...data,
    healthy: true,
    ...(await outage.end()),
  })
}

/**
 * The mark of a release with no way back is over. If that fails, only these two containers would still follow it. Resolves to what was
 * exchanged, and to the newer of the two copies of the data from before.
 */
async function settled(
  id: string,
  successor: string,
  { engine, report }: Pick<Switching, 'engine' | 'report'>,
): Promise<Partial<ContainerEnd>> {
  try {
    const copy = await copyInSwitch(id, successor, engine)
    return { ...copy, stateMoved: await settleData(id, successor, engine) }
  } catch (cause) {
    if (isAway(cause)) throw cause
    await report({ event: 'warning', message: `could not check where the data is: ${reasonOf(cause)}` })
    return {}
  }
}

/** Puts the old container back. The successor is kept, stopped, for its logs. */
export async function revert(job: Job, cause: BatonError, limits: Limits, tools: Switching): Promise<ContainerEnd> {
  const outage = await watchOutage(await tools.engine.container(job.origin.name), tools.engine)
  return await goBack(job, cause, limits, { tools, outage })
}

async function goBack(
  job: Job,
  cause: BatonError,
  limits: Limits,
  { tools, outage }: { tools: Switching; outage: OutageWatch },
): Promise<ContainerEnd> {
  const { engine, report } = tools
  const { origin } = job
  try {
    await report({
      event: 'step',
      step: 'revert',
      detail: `to ${origin.from ?? 'the old container'}: ${cause.message}`,
    })
    for (const line of await engine.logs(job.successor, LOG_LINES)) await report({ event: 'log', line })
    const was = cause.code !== 'restart_failed' ? 'proved' : outage.hasAnswered() === false ? 'silent' : 'answered'
    const hasAnswered = outage.hasAnswered() === true
    if ((await move.standAside(job, engine, was)) && hasAnswered)
      await report({ event: 'warning', message: KILLED_ANSWERING })
    await passTurn(job.successor)
    const predecessor = await move.putBack(job, engine)
    await outage.follow(predecessor)
    const healthy = await standsAgain(predecessor, origin, limits, outage.answers, engine)
    if (!healthy) {
      const message = `\`${origin.name}\` is not healthy now, ${origin.healthy ? 'although it answers; it was healthy before' : 'and was not healthy before'}`
      await report({ event: 'warning', message })
    }
    const data = await settled(predecessor, job.successor, tools)
    await tidy(job, predecessor, cause, tools)
    const { image } = origin
    return ended('reverted', {
      ...(await factsNow(job, engine)),
      ...data,
      image,
      healthy,
      error: await withItsLog(job, cause, engine),
      ...(await outage.end()),
    })
  } catch (second) {
    if (isAway(second)) return await gaveUp(job, second, outage)
    const serves = await isServing(job, outage, engine)
    const message = `${cause.message}; putting the old container back failed too: ${reasonOf(second)}`
    const [old, failed] = [job.predecessor, job.successor].map((id) => id.slice(0, 12))
    const hint = serves
      ? `one of the containers is still serving (\`docker ps\` shows which); run this command again to continue where it stopped`
      : `run this command again to continue where it stopped, or run \`docker stop ${failed}\` and \`docker start ${old}\` yourself`
    const error = new BatonError('undo_failed', message, { cause: second, hint })
    const copy = await copyInSwitch(job.successor, job.successor, engine).catch(() => null)
    return ended('failed', { ...facts(job), ...copy, error, serves, ...(await outage.end()) })
  }
}

/** With a hint that names the log of a release that has failed, if its container was kept. */
async function withItsLog({ origin, successor }: Job, cause: BatonError, engine: Engine): Promise<BatonError> {
  const { code, message, hint } = cause
  if (code === 'interrupted') return cause // it was stopped: its log says nothing of why
  const { failed } = namesFor(origin.name)
  const isKept = (await engine.container(failed))?.Id === successor
  const where = isKept
    ? `for details, see \`docker logs ${failed}\``
    : 'the new container was removed; the last lines of its log are above'
  return new BatonError(code, message, { cause, hint: hint === null ? where : `${where}; ${hint}` })
}

/** The old container serves: only names are left to set. A failure here is reported, but the service is not affected. */
async function tidy(job: Job, predecessor: string, { code }: BatonError, { engine, report }: Switching): Promise<void> {
  const { kind, hold } = job.origin
  try {
    await retag(predecessor, job.origin, engine)
    await move.keepFailed(job, engine)
    // a release that was stopped has not failed, nor has one that moved behind a holder or that came back
    if (code !== 'interrupted' && kind === 'update' && hold === undefined) await move.noteFailed(job, engine)
  } catch (cause) {
    await report({ event: 'warning', message: `cleanup failed: ${reasonOf(cause)}; run the command again to finish` })
  }
}

/** Whether one of the two containers answers; asked before the service is called down. Null if that cannot be known. */
async function isServing(
  { predecessor, successor }: Job,
  outage: OutageWatch,
  engine: Engine,
): Promise<boolean | null> {
  const look = async (): Promise<string | null> => {
    for (const id of [predecessor, successor]) {
      await outage.follow(id)
      const container = await engine.container(id)
      if ((await outage.answers?.()) === true || (await check(container, outage.answers, engine)).well) return null
    }
    return 'neither answers'
  }
  try {
    return (await untilWell(look, ASKED_MS)) === null
  } catch {
    return (await outage.answers?.()) ?? null // the engine is away: its address may answer nevertheless
  }
}

/** Goes on with the interrupted switch to this successor. If nothing is left to do, says how it ended. */
export async function finishSwitch(
  name: string,
  { successor, undo }: { successor: string; undo: boolean },
  limits: Limits,
  tools: Switching,
): Promise<ContainerEnd> {
  const { engine } = tools
  const unfinished = unfinishedAt(await surveyContainer(name, engine))
  if (unfinished === null || unfinished.job.successor !== successor) return await asItEnded(name, successor, tools)
  const { at, job } = unfinished
  if (!undo && at !== 'reverting') return await switchOver(job, limits, tools)
  return await revert(job, new BatonError('interrupted', 'the deployment was undone on request'), limits, tools)
}

async function asItEnded(name: string, successor: string, tools: Switching): Promise<ContainerEnd> {
  const { engine } = tools
  const container = await engine.container(successor)
  const origin = container === null ? null : parseOrigin(container)
  if (container !== null && origin !== null && nameOf(container) === name) {
    const job = { origin, predecessor: origin.predecessor, successor, image: container.Image }
    await move.commit(job, engine)
    const data = await settled(successor, successor, tools)
    return ended(doneAs({ ...origin, to: releaseOf(job.origin) }), {
      ...(await factsNow(job, engine)),
      ...data,
      healthy: true,
    })
  }
  const error = new BatonError('interrupted', 'the new container no longer exists; the old one was put back')
  const data = await settled(origin?.predecessor ?? name, successor, tools)
  return ended('reverted', { ...(origin === null ? {} : facts({ origin, image: origin.image })), ...data, error })
}

/** Sets the tag that keeps an image back to what it named before this job, if that is known. */
async function retag(predecessor: string, origin: JobOrigin, engine: Engine): Promise<void> {
  const container = await engine.container(predecessor)
  const earlier = container === null ? null : parseOrigin(container)
  if (earlier === null || (await engine.image(earlier.image)) === null) return
  await move.again(engine, () => engine.tag(earlier.image, earlier.repository, rollbackTag(origin.name)))
  await move.keepOneTag(origin, { gone: origin, kept: earlier }, engine)
}

function facts({ origin, image }: Pick<Job, 'origin' | 'image'>): Partial<ContainerEnd> {
  const { from, snapshot, snapshotOnHost = null, copies = [], hold } = origin
  return { from, to: releaseOf(origin), image, moved: hold?.way ?? null, snapshot, snapshotOnHost, copies }
}

/** With the copies that the new container has made before its application's first line. */
async function factsNow(job: Job, engine: Engine): Promise<Partial<ContainerEnd>> {
  const known = facts(job)
  const next = job.origin.owesMs === undefined ? null : await engine.container(job.successor)
  const paid = next === null ? null : await paidIn(next, next.Id, engine).catch(() => null)
  return { ...known, copies: [...(known.copies ?? []), ...(paid?.copies ?? [])] }
}

async function gaveUp(job: Job, cause: unknown, outage: OutageWatch): Promise<ContainerEnd> {
  const message = `the connection to the engine was lost while \`${job.origin.name}\` was being replaced: ${reasonOf(cause)}`
  const hint = 'when the engine is back, run the same command again to finish, or run it with --rollback to undo'
  const error = new BatonError('service_down', message, { cause, hint })
  const serves = (await outage.answers?.()) ?? null
  return ended('failed', { ...facts(job), error, serves, ...(await outage.end()) })
}
