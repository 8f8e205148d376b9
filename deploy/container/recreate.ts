// THE STORY of the container route: replaces a container by one of another image that equals it in all that a person set.
// Must never break: until `switch` the running container is untouched; nothing that held data is ever deleted; a process killed
// at any point leaves names and one label, from which the next run finishes the deployment or undoes it (job.ts).

import { basename } from 'node:path'
import { doneAs } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { followSwitcher, isAtWork, makeSwitcher, refuseBusy } from './switcher.ts'
import { healthNow } from './health.ts'
import { holderBeside } from './hold.ts'
import { type ContainerInspection, nameOf } from './inspection.ts'
import {
  type Job,
  type JobOrigin,
  type Irreversible,
  parseOrigin,
  releaseOf,
  type Site,
  type Unfinished,
  unfinishedAt,
} from './job.ts'
import * as move from './moves.ts'
import { lastExchange, wayBackTo } from './own-data.ts'
import type { Engine } from './engine/engine.ts'
import { plan, planEvent, prepare } from './prepare.ts'
import { programs, removePrograms } from './program.ts'
import { namesFor } from './reference.ts'
import { claims } from './refusal.ts'
import { type ContainerEnd, ended } from './report.ts'
import { refuseStopped, type ContainerRequest, type Tools } from './request.ts'
import { failedHere, imageOfContainer, surveyContainer } from './survey.ts'
import { revert, switchOver } from './switch.ts'
import { versionOf } from './target.ts'

/** One deployment of the container `name`. Throws only if nothing has changed; cancelled if it was stopped before the switch. */
export async function recreate(name: string, request: ContainerRequest, tools: Tools): Promise<ContainerEnd> {
  try {
    return await fromTheTop(name, request, tools, false)
  } catch (cause) {
    const { stop } = tools
    if (!stop.aborted) throw cause
    throw new BatonError('cancelled', `stopped by ${String(stop.reason)} before the switch`, { cause })
  }
}

/** `isSettled`: what an earlier deployment left is now finished or undone. */
async function fromTheTop(
  name: string,
  request: ContainerRequest,
  tools: Tools,
  isSettled: boolean,
): Promise<ContainerEnd> {
  const found = await surveyContainer(name, tools.engine)
  refuseBusy(found.switcher, name)
  const unfinished = unfinishedAt(found)
  const isBegun = unfinished !== null && unfinished.at !== 'prepared'
  if (isBegun && !isSettled) {
    const end = await settle(unfinished, request, tools)
    return end ?? (await fromTheTop(name, request, tools, true)) // undone: start over
  }
  const isUnused = unfinished?.at === 'prepared' && found.successor?.State.Status === 'created'
  const site = isUnused ? await withoutSuccessor(found, unfinished.job, request, tools) : found
  const stray = site.successor ?? site.predecessor ?? site.reverting
  if (stray !== null) {
    const message = `the name \`${nameOf(stray)}\` is taken by a container that does not belong to the current \`${name}\``
    const hint = 'inspect both, then run `docker rename` or `docker rm` on the one you do not need'
    throw new BatonError('refused', message, { hint })
  }
  const container = site.main
  if (container === null)
    throw new BatonError('refused', `there is no container \`${name}\``, { hint: 'list them with `docker ps -a`' })

  const prepared = await plan(container, site, request, tools)
  const { target, origin } = prepared
  const to = releaseOf(origin)
  const known = { from: origin.from, to, image: target.image.Id, digest: target.digest }
  if (target.image.Id === container.Image && prepared.held === null)
    return request.dryRun ? ended('planned', { ...known, would: 'up_to_date' }) : ended('up_to_date', known)
  await tools.report(planEvent(prepared, request, tools))
  const moved = prepared.held?.way ?? null
  if (request.dryRun) return ended('planned', { ...known, moved, would: doneAs({ ...origin, to }) })

  const job = await prepare(prepared, request, tools)
  const end = await doSwitch(job, { undo: null }, request, tools)
  const isBack = end.outcome === 'reverted' || end.error?.code === 'undo_failed'
  // it has its own data, or takes them at its next start
  const hasOwnData = end.stateMoved !== null || (end.snapshot ?? origin.snapshot) !== origin.snapshot
  if (job.irreversible !== undefined && isBack && !hasOwnData)
    await tools.report({ event: 'warning', message: dataLeft(origin, job.irreversible) })
  const copy = end.snapshot ?? origin.snapshot
  if (job.irreversible !== undefined && end.outcome === 'updated' && copy !== null && origin.from !== null)
    await tools.report({ event: 'note', message: wayBackTo(origin.from, basename(copy)) })
  return end.image === target.image.Id ? { ...end, digest: target.digest } : end
}

/** Where no database was exchanged: the old release is back on data that it may not be able to work on. */
function dataLeft(origin: JobOrigin, { reason, copy, rows }: Irreversible): string {
  const count = rows === null ? '' : ` (rows: ${rows})`
  return `${releaseOf(origin) ?? 'the new release'} has changed the data irreversibly: ${reason}; ${copy} contains the data from before the switch${count}, but no later writes; to restore it, stop the container, replace the database with that file, and remove its \`-wal\` and \`-shm\` files`
}

/**
 * What runs, whether it is well, what ran before, and what is under way. During a deployment `from` is the version that it
 * replaces. Asks no registry. Throws BatonError refused if there is no such container.
 */
export async function containerStatus(name: string, { engine }: Pick<Tools, 'engine'>): Promise<ContainerEnd> {
  const site = await surveyContainer(name, engine)
  const { main, switcher } = site
  const found = unfinishedAt(site)
  const unfinished = found?.at === 'prepared' ? null : found // `prepared` is not under way: it has touched nothing
  const inFlight = unfinished?.at ?? (isAtWork(switcher) ? 'switching' : null)
  if (main === null && inFlight === null) throw new BatonError('refused', `there is no container \`${name}\``)
  const image = main === null ? null : await imageOfContainer(main, engine)
  const own = main === null || image === null || claims(image).length > 0 ? null : parseOrigin(main)
  const origin = unfinished?.job.origin ?? own
  const health = await healthNow(main, engine)
  const isNew = main?.State.Status === 'created'
  const stateMoved = main === null || isNew || inFlight !== null ? null : await lastExchange(main, engine)
  const to = image === null ? null : versionOf(image)
  const serving = {
    to,
    image: main?.Image ?? null,
    containerId: main?.Id ?? null,
    startedAt: main?.State.StartedAt ?? null,
  }
  const healthy = health === 'unchecked' ? null : health === 'healthy'
  const left = inFlight === null ? (await leftOver(name, site, engine)).map(nameOf) : []
  const known = { from: origin?.from ?? null, ...serving, ...(await besides(name, main, engine)) }
  return ended('status', { ...known, healthy, health, stateMoved, inFlight, left })
}

async function besides(
  name: string,
  main: ContainerInspection | null,
  engine: Engine,
): Promise<Pick<ContainerEnd, 'failed' | 'holder'>> {
  const image = await failedHere(name, engine)
  const beside = main === null ? null : await holderBeside(main, engine)
  const isPast = image === null || image.Id === main?.Image
  return {
    failed: isPast ? null : (versionOf(image) ?? image.Id),
    holder:
      beside === null
        ? null
        : { name: nameOf(beside.holder), runs: beside.holder.State.Running, isUsed: beside.isUsed },
  }
}

/** What no deployment and no rollback needs: of a run that was killed before its switch, and of a release that failed. */
async function leftOver(
  name: string,
  { successor, failed, switcher }: Site,
  engine: Engine,
): Promise<ContainerInspection[]> {
  const { cage } = namesFor(name)
  const found = await engine.container(cage)
  const trial = found !== null && nameOf(found) === cage ? found : null
  return [successor, trial, failed, switcher].filter((one) => one !== null)
}

/** Removes what is left over, and the images of this program; with `dryRun` it only names them. */
export async function cleanUp(
  name: string,
  { dryRun }: Pick<ContainerRequest, 'dryRun'>,
  { engine, report }: Pick<Tools, 'engine' | 'report'>,
): Promise<ContainerEnd> {
  const site = await surveyContainer(name, engine)
  refuseBusy(site.switcher, name)
  const unfinished = unfinishedAt(site)
  if (unfinished !== null && unfinished.at !== 'prepared') {
    throw new BatonError(
      'refused',
      `a deployment of \`${name}\` was cut short (stage: ${unfinished.at}): finish or undo it first`,
      {
        hint: 'run the deployment again to finish it, or run it with `--rollback` to undo it',
      },
    )
  }
  const removed = dryRun ? 'would remove' : 'removed'
  for (const container of await leftOver(name, site, engine)) {
    if (!dryRun) await engine.remove(container.Id, true)
    await report({ event: 'note', message: `${removed} the container ${nameOf(container)}` })
  }
  for (const image of dryRun ? await programs(engine) : await removePrograms(engine, null))
    await report({ event: 'note', message: `${removed} the image ${image}` })
  return await containerStatus(name, { engine })
}

/**
 * Switches in the switcher if there can be one, so that a kill of this process does not cut the switch short; else in this process.
 */
async function doSwitch(
  job: Job,
  { undo }: { undo: BatonError | null },
  request: ContainerRequest,
  tools: Tools,
): Promise<ContainerEnd> {
  const { origin } = job
  try {
    const switcher = await switcherFor(job, undo !== null, request, tools)
    refuseStopped(tools.stop)
    if (switcher !== null) return await followSwitcher(switcher, origin.name, tools)
  } catch (error) {
    const here = await tools.engine.container(job.predecessor)
    if (here !== null && nameOf(here) === origin.name) await move.discard(job, tools.engine) // nothing has happened
    throw error
  }
  return undo === null ? await switchOver(job, request, tools) : await revert(job, undo, request, tools)
}

async function switcherFor(job: Job, undo: boolean, limits: ContainerRequest, tools: Tools): Promise<string | null> {
  if (tools.program === null) return null
  try {
    return await makeSwitcher(job, { undo, limits }, tools, await tools.program())
  } catch (cause) {
    const message = `this process performs the switch itself, without a switcher container (${reasonOf(cause)}): if the process is killed while the old container is stopped, run the command again`
    await tools.report({ event: 'warning', message })
    return null
  }
}

/** Throws away what an interrupted run only prepared, as the old container was never touched. Then the request itself is done. */
async function withoutSuccessor(
  site: Site,
  { origin, ...job }: Job,
  request: ContainerRequest,
  tools: Tools,
): Promise<Site> {
  const { engine, report } = tools
  const runs = origin.from ?? 'the old container'
  const what = `an earlier ${origin.kind === 'rollback' ? 'rollback' : 'deployment'}${ofRelease(origin)}`
  const message = `${what} was cut short before it changed anything: ${runs} is still running, and the prepared container will not be used`
  if (request.dryRun) await report({ event: 'note', message })
  else {
    await report({ event: 'warning', message })
    await move.discard({ origin, ...job }, engine)
  }
  const isUndo = request.release === null && request.backTo === null && origin.kind === 'update'
  if (!isUndo) return { ...site, successor: null }
  // a rollback goes one step back, as after any other cut; to go further, the operator runs it again, now knowing what runs
  throw new BatonError('refused', `nothing was rolled back, because ${message}`, {
    hint: `to go back from ${runs} to the release before it, run this command again`,
  })
}

/**
 * Finishes or undoes what an interrupted run has begun. Null: that went well, and the request itself is still to be done. A dry run
 * only says which.
 */
async function settle({ at, job }: Unfinished, request: ContainerRequest, tools: Tools): Promise<ContainerEnd | null> {
  const { report } = tools
  const { origin } = job
  const release = releaseOf(origin)
  const said = `an earlier deployment${ofRelease(origin)} was cut short (stage: ${at})`
  const back = request.release === null
  const isSame = back
    ? origin.kind === 'rollback' && isFor(request.backTo, release)
    : request.release === origin.release
  const isForward = at !== 'reverting' && (!back || isSame)
  // if the request asks for exactly this undo, nothing else is to be done
  const isUndo = back && origin.kind === 'update' && isFor(request.backTo, origin.from)
  if (request.dryRun) {
    await report({ event: 'note', message: `${said}; it would be ${isForward ? 'finished' : 'undone'} first` })
    return ended('planned', {
      from: origin.from,
      to: isForward ? release : origin.from,
      would: isForward ? doneAs({ ...origin, to: release }) : 'rolled_back',
    })
  }
  await report({ event: 'warning', message: said })
  if (isForward) {
    const end = await doSwitch(job, { undo: null }, request, tools)
    return isSame || end.error !== null ? end : null
  }
  const end = await doSwitch(job, { undo: new BatonError('interrupted', said) }, request, tools)
  if (end.outcome === 'failed') return end
  if (isUndo && end.outcome === 'reverted')
    return { ...end, from: release, to: origin.from, image: origin.image, outcome: 'rolled_back', error: null }
  return isSame ? end : null
}

function ofRelease(origin: JobOrigin): string {
  const release = releaseOf(origin)
  return release === null ? '' : ` of ${release}`
}

function isFor(backTo: string | null, tag: string | null): boolean {
  return backTo === null || backTo === tag
}
