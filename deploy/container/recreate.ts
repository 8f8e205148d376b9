// THE STORY of the container route: a container is replaced by one of another image that equals it in all that a person set.
// Must never break: until `switch` the running container is untouched; nothing is ever deleted that held data; whoever is killed
// at any point leaves names and one label from which the next one finishes the work or undoes it (job.ts).

import { BatonError, reasonOf } from '../../agent/words.ts'
import { followSwitcher, isAtWork, makeSwitcher, refuseBusy } from './switcher.ts'
import { check } from './health.ts'
import { nameOf } from './inspection.ts'
import { type Job, parseOrigin, type Unfinished, unfinishedAt } from './job.ts'
import * as move from './moves.ts'
import { plan, planEvent, prepare } from './prepare.ts'
import { type Ended, ended } from './report.ts'
import { refuseStopped, type Request, type Tools } from './request.ts'
import { imageOf, survey } from './survey.ts'
import { revert, switchOver } from './switch.ts'
import { versionOf } from './target.ts'

/** One deployment of the container `name`, top to bottom. Throws only where nothing has changed. */
export async function recreate(name: string, request: Request, tools: Tools, isSettled = false): Promise<Ended> {
  const site = await survey(name, tools.engine)
  refuseBusy(site.switcher, name)
  const unfinished = unfinishedAt(site)
  if (unfinished !== null && !isSettled) {
    const end = await settle(unfinished, request, tools)
    return end ?? (await recreate(name, request, tools, true)) // undone: from the beginning
  }
  const stray = site.successor ?? site.predecessor ?? site.reverting
  if (stray !== null) {
    const message = `\`${nameOf(stray)}\` is in the way, and does not belong to \`${name}\` as it is now`
    const hint = 'look at both; then `docker rename` or `docker rm` the one that is not needed'
    throw new BatonError('refused', message, { hint })
  }
  const container = site.main
  if (container === null)
    throw new BatonError('refused', `there is no container \`${name}\``, { hint: 'list them with `docker ps -a`' })

  const prepared = await plan(container, site, request, tools)
  const { target, origin } = prepared
  const to = target.version ?? request.release
  const known = { from: origin.from, to, image: target.image.Id, digest: target.digest }
  if (target.image.Id === container.Image)
    return request.dryRun ? ended('planned', { ...known, would: 'up_to_date' }) : ended('up_to_date', known)
  await tools.report(planEvent(prepared, request, tools))
  if (request.dryRun) return ended('planned', { ...known, would: request.release === null ? 'rolled_back' : 'updated' })

  const job = await prepare(prepared, tools)
  const end = await doSwitch(job, { undo: null }, request, tools)
  return end.image === target.image.Id ? { ...end, digest: target.digest } : end
}

/**
 * What runs, whether it is well, what ran before, and what is under way: then `from` is what that goes from. Asks no registry.
 * Throws BatonError refused where there is no such container.
 */
export async function status(name: string, { engine }: Pick<Tools, 'engine'>): Promise<Ended> {
  const site = await survey(name, engine)
  const { main, switcher } = site
  const unfinished = unfinishedAt(site)
  const inFlight = unfinished?.at ?? (isAtWork(switcher) ? 'switching' : null)
  if (main === null && inFlight === null) throw new BatonError('refused', `there is no container \`${name}\``)
  const origin = unfinished?.job.origin ?? (main === null ? null : parseOrigin(main))
  const { well: healthy } = await check(main, null, engine)
  const to = main === null ? null : versionOf(await imageOf(main, engine))
  const serving = {
    to,
    image: main?.Image ?? null,
    containerId: main?.Id ?? null,
    startedAt: main?.State.StartedAt ?? null,
  }
  return ended('status', { from: origin?.from ?? null, ...serving, healthy, inFlight })
}

/** In the switcher where there can be one, so that it is finished whatever happens to this process; else here. */
async function doSwitch(
  job: Job,
  { undo }: { undo: BatonError | null },
  request: Request,
  tools: Tools,
): Promise<Ended> {
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

async function switcherFor(job: Job, undo: boolean, limits: Request, tools: Tools): Promise<string | null> {
  if (tools.program === null) return null
  try {
    return await makeSwitcher(job, { undo, limits }, tools, await tools.program())
  } catch (cause) {
    const message = `the switch is done by this process and not by a container of its own (${reasonOf(cause)}): if it is killed while the old container is stopped, run the command again`
    await tools.report({ event: 'warning', message })
    return null
  }
}

/** Finishes or undoes what an interrupted run left; null where all is as before it and the request is still to be done. */
async function settle({ at, job }: Unfinished, request: Request, tools: Tools): Promise<Ended | null> {
  const { engine, report } = tools
  const { origin } = job
  const release = origin.version ?? origin.release
  const said = `an earlier deployment of ${release} was cut short (${at})`
  const back = request.release === null
  const isForward = at !== 'reverting' && at !== 'prepared' && !back
  if (request.dryRun) {
    await report({ event: 'note', message: `${said}; it would be ${isForward ? 'finished' : 'undone'} first` })
    return ended('planned', {
      from: origin.from,
      to: isForward ? release : origin.from,
      would: isForward ? 'updated' : 'rolled_back',
    })
  }
  await report({ event: 'warning', message: said })
  const undone = { from: release, to: origin.from, image: origin.image }
  if (at === 'prepared') {
    await move.discard(job, engine)
    return back ? ended('rolled_back', undone) : null
  }
  const isSame = request.release === origin.release
  if (isForward) {
    const end = await doSwitch(job, { undo: null }, request, tools)
    return isSame || end.error !== null ? end : null
  }
  const end = await doSwitch(job, { undo: new BatonError('interrupted', said) }, request, tools)
  if (end.outcome === 'failed') return end
  if (back) return { ...end, ...undone, outcome: 'rolled_back', error: null }
  return isSame ? end : null
}
