// THE STORY of the container route: a container is replaced by one of another image that equals it in all that a person set.
// Must never break: until `switch` the running container is untouched; nothing is ever deleted that held data; whoever is killed
// at any point leaves names and one label from which the next run finishes the work or undoes it (job.ts).

import { asBatonError, BatonError, reasonOf } from '../../agent/words.ts'
import { formatDuration } from '../lib/progress.ts'
import { compare, formatDifference, unexplained } from './difference.ts'
import { type Engine, isUnreachable } from './engine.ts'
import { becomesHealthy, standsAgain, standsProbation } from './health.ts'
import { type ContainerInspection, type ImageInspection, nameOf } from './inspection.ts'
import { asItWas, type Job, type Origin, parseOrigin, type Site, type Unfinished, unfinishedAt } from './job.ts'
import * as move from './moves.ts'
import { predict } from './predict.ts'
import { digestIn, namesFor, parseReference, rollbackTag } from './reference.ts'
import { refuseUnfit } from './refusal.ts'
import type { Ended, Report, Step } from './report.ts'
import { type Source, specify } from './specification.ts'
import { imageOf, inheritedVolumes, otherContainers, ownChanges, resolveName, survey } from './survey.ts'
import { type Pulled, resolveRelease, resolveRollback, versionOf } from './target.ts'

export interface Request {
  /** name, id, or `label=key=value` */
  container: string
  /** `latest` or a tag; null for a rollback */
  release: string | null
  /** repository to take the release from; null: the one of the container's image */
  repository: string | null
  healthTimeoutMs: number
  probationMs: number
  dryRun: boolean
}

export interface Tools {
  engine: Engine
  report: Report
  /** header for the registry of this repository */
  credentials: (repository: string) => Promise<string | null>
}

/** what is shown of the log of a successor that failed */
const LOG_LINES = 20

/** One deployment, top to bottom. Throws only where nothing has changed. */
export async function recreate(request: Request, tools: Tools, isSettled = false): Promise<Ended> {
  const { engine } = tools
  const name = await resolveName(request.container, engine)
  const site = await survey(name, engine)
  const unfinished = unfinishedAt(site)
  if (unfinished !== null && !isSettled) {
    const ended = await settle(unfinished, request, tools)
    if (ended !== null) return ended
    return await recreate(request, tools, true) // undone: from the beginning
  }
  const stray = site.successor ?? site.predecessor ?? site.reverting
  if (stray !== null) {
    throw new BatonError(
      'refused',
      `\`${nameOf(stray)}\` is in the way, and does not belong to \`${name}\` as it is now`,
      {
        hint: 'look at both; then `docker rename` or `docker rm` the one that is not needed',
      },
    )
  }
  const container = site.main
  if (container === null)
    throw new BatonError('refused', `there is no container \`${name}\``, { hint: 'list them with `docker ps -a`' })
  return await replace(container, site, request, tools)
}

async function replace(container: ContainerInspection, site: Site, request: Request, tools: Tools): Promise<Ended> {
  const { engine, report } = tools
  const oldImage = await imageOf(container, engine)
  await refuse(container, oldImage, engine, report)
  const target = await (request.release === null
    ? resolveRollback(container, tools)
    : resolveRelease(container, oldImage, request.release, request.repository, tools))
  const from = versionOf(oldImage)
  if (target.image.Id === container.Image) {
    return { outcome: 'up_to_date', from, to: target.version ?? request.release, downMs: null, error: null }
  }
  if (request.release === 'latest' && site.failed?.Image === target.image.Id) {
    throw new BatonError(
      'refused',
      `${target.version ?? 'this image'} has failed here before (see \`docker logs ${nameOf(site.failed)}\`)`,
      {
        hint: 'name its tag with --release to try it again',
      },
    )
  }

  const source: Source = { container, image: oldImage, inherited: await inheritedVolumes(container, engine) }
  const origin = originOf(container, oldImage, target, request)
  const specification = specify(source, { reference: target.reference, origin: JSON.stringify(origin), engine })
  const predicted = predict(container, specification, target.image, engine.kind)
  const differences = compare({ before: container, after: predicted, oldImage, newImage: target.image })
  await report({
    event: 'plan',
    container: nameOf(container),
    engine: `${engine.kind} ${engine.version}, API ${engine.apiVersion}`,
    from: { reference: container.Config.Image, image: container.Image, digest: origin.digest, version: from },
    to: { reference: target.reference, image: target.image.Id, digest: target.digest, version: target.version },
    plan: planLines(origin, target, request),
    differences,
  })
  if (request.dryRun) return { outcome: 'up_to_date', from, to: from, downMs: null, error: null }

  await step(report, 'create', `${namesFor(origin.name).successor} from ${target.reference}`)
  const { tag } = target
  if (tag !== null) await move.again(engine, () => engine.tag(target.image.Id, tag.repository, tag.tag))
  const successor = await move.createBeside(namesFor(origin.name).successor, specification, engine)
  const job: Job = { origin, predecessor: container.Id, successor, image: target.image.Id }
  try {
    await step(report, 'compare', 'the inspections of the two containers')
    await provesSame(job, container, oldImage, target.image, tools)
    await step(report, 'keep', `${origin.repository}:${rollbackTag(origin.name)}`)
    await move.again(engine, () => engine.tag(container.Image, origin.repository, rollbackTag(origin.name)))
  } catch (error) {
    await move.discard(job, engine)
    throw error
  }
  return await switchOver(job, request, tools)
}

/** From here on the old container is touched, and every way out that is not success goes through `revert`. */
async function switchOver(job: Job, { healthTimeoutMs, probationMs }: Request, tools: Tools): Promise<Ended> {
  const { engine, report } = tools
  const { origin } = job
  const to = origin.version ?? origin.release
  const clock = stopwatch()
  try {
    await step(report, 'switch', 'if this is cut short, run it again: it finishes, or goes back with --rollback')
    clock.start()
    const epoch = engine.epoch()
    await move.switchTo(job, engine)
    await step(report, 'health', `at most ${formatDuration(healthTimeoutMs)}`)
    const healthyIn = await becomesHealthy(job, healthTimeoutMs, epoch, engine)
    clock.stop()
    await step(report, 'probation', formatDuration(probationMs))
    await standsProbation(job, probationMs, healthTimeoutMs, healthyIn, engine)
  } catch (cause) {
    if (isAway(cause)) throw downBecause(job, cause)
    const error = asBatonError(cause, 'restart_failed', `switching to ${to}`)
    return await revert(job, error, healthTimeoutMs, tools)
  }
  await step(report, 'commit', `the old container is kept as ${namesFor(origin.name).previous}`)
  try {
    await move.commit(job, engine)
  } catch (cause) {
    // the new one serves and has proved itself; what is left is a name
    await report({ event: 'warning', message: `committing: ${reasonOf(cause)}; run it again to finish` })
  }
  const outcome = origin.kind === 'rollback' ? 'rolled_back' : 'updated'
  return { outcome, from: origin.from, to, downMs: clock.elapsedMs(), error: null }
}

/** Puts the old container back. The successor is kept, stopped, for its logs. */
async function revert(job: Job, cause: BatonError, healthTimeoutMs: number, { engine, report }: Tools): Promise<Ended> {
  const { origin } = job
  const ended = { from: origin.from, to: origin.version ?? origin.release, downMs: null }
  try {
    await step(report, 'revert', cause.message)
    await move.standAside(job, engine)
    for (const line of await engine.logs(job.successor, LOG_LINES).catch(() => [])) await report({ event: 'log', line })
    const predecessor = await move.putBack(job, engine)
    await standsAgain(predecessor, origin, healthTimeoutMs, engine)
    await retag(predecessor, origin, engine)
    await move.keepFailed(job, engine)
    return { ...ended, outcome: 'reverted', error: cause }
  } catch (second) {
    if (isAway(second)) throw downBecause(job, second)
    const message = `${cause.message}; putting the old container back failed too: ${reasonOf(second)}`
    const hint = `run this again, or by hand: \`docker stop ${origin.name}\`, \`docker start ${job.predecessor.slice(0, 12)}\``
    return { ...ended, outcome: 'failed', error: new BatonError('undo_failed', message, { cause: second, hint }) }
  }
}

/** Finishes or undoes what an interrupted run left; null where all is as before it and the request is still to be done. */
async function settle({ at, job }: Unfinished, request: Request, tools: Tools): Promise<Ended | null> {
  const { engine, report } = tools
  const { origin } = job
  const said = `an earlier deployment of ${origin.version ?? origin.release} was cut short (${at})`
  const forward = at !== 'reverting' && request.release === origin.release
  const back = request.release === null
  if (request.dryRun) {
    const doing = forward || (at === 'switching' && !back) ? 'finished' : 'undone'
    await report({ event: 'note', message: `${said}; it would be ${doing} first` })
    return { outcome: 'up_to_date', from: origin.from, to: origin.from, downMs: null, error: null }
  }
  await report({ event: 'warning', message: said })
  if (at === 'prepared') {
    const old = await engine.container(job.predecessor)
    if (!forward || old?.State.Running === true || !(await isWhole(job, old, tools))) {
      await move.putBack(job, engine)
      await move.discard(job, engine)
      return back ? { outcome: 'rolled_back', from: origin.version, to: origin.from, downMs: null, error: null } : null
    }
  }
  // the service is down or on probation with the successor: what can serve soonest goes first
  if (at !== 'reverting' && !back && (forward || at === 'switching')) {
    const ended = await switchOver(job, request, tools)
    return forward || ended.outcome !== 'updated' ? ended : null
  }
  const cause = new BatonError('interrupted', said)
  const ended = await revert(job, cause, request.healthTimeoutMs, tools)
  if (ended.outcome === 'failed') return ended
  if (back) return { ...ended, outcome: 'rolled_back', from: origin.version, to: origin.from, error: null }
  return at === 'reverting' && request.release === origin.release ? ended : null
}

/** Whether a successor that an interrupted run made is all that it should be. */
async function isWhole(job: Job, old: ContainerInspection | null, tools: Tools): Promise<boolean> {
  if (old === null) return true // nothing to compare with: it is all there is
  const [oldImage, newImage] = [await imageOf(old, tools.engine), await tools.engine.image(job.image)]
  if (newImage === null) return false
  try {
    await provesSame(job, asItWas(old, job.origin), oldImage, newImage, tools)
    return true
  } catch {
    return false
  }
}

/** Throws BatonError verify_failed where the successor lacks something that a person set, or runs another image. */
async function provesSame(
  job: Job,
  before: ContainerInspection,
  oldImage: ImageInspection,
  newImage: ImageInspection,
  { engine, report }: Tools,
) {
  const after = await engine.container(job.successor)
  if (after === null) throw new BatonError('verify_failed', 'the new container is gone')
  if (after.Image !== job.image) {
    throw new BatonError(
      'verify_failed',
      `expected the new container to run ${job.image}, got ${after.Image}: the tag was moved meanwhile`,
    )
  }
  const lost = unexplained(compare({ before, after, oldImage, newImage }))
  if (lost.length === 0) return
  for (const difference of lost) await report({ event: 'warning', message: formatDifference(difference) })
  throw new BatonError(
    'verify_failed',
    `the new container would not equal the old one: ${lost.map(({ path }) => path).join(', ')}`,
    {
      hint: 'nothing has changed; recreate it by hand, and report this',
    },
  )
}

/** The tag that keeps an image names again what it named before this job, where that is known. */
async function retag(predecessor: string, origin: Origin, engine: Engine): Promise<void> {
  const container = await engine.container(predecessor)
  const earlier = container === null ? null : parseOrigin(container)
  if (earlier === null || (await engine.image(earlier.image)) === null) return
  await move.again(engine, () => engine.tag(earlier.image, earlier.repository, rollbackTag(origin.name)))
}

async function refuse(
  container: ContainerInspection,
  image: ImageInspection,
  engine: Engine,
  report: Report,
): Promise<void> {
  const others = await otherContainers(container.Id, engine)
  const changes = ownChanges(await engine.changes(container.Id), container)
  refuseUnfit(container, image, others, changes)
  if (changes.length > 0) {
    const shown = changes.slice(0, 5).join(', ')
    const more = changes.length > 5 ? ` and ${changes.length - 5} more` : ''
    await report({
      event: 'warning',
      message: `not on a volume, and so not carried: ${shown}${more} (they stay in the old container)`,
    })
  }
}

function originOf(container: ContainerInspection, image: ImageInspection, target: Pulled, request: Request): Origin {
  const repository = parseReference(container.Config.Image)?.repository ?? target.repository ?? 'baton'
  return {
    format: 1,
    name: nameOf(container),
    kind: request.release === null ? 'rollback' : 'update',
    release: request.release ?? 'rollback',
    version: target.version,
    predecessor: container.Id,
    image: container.Image,
    digest: digestIn(image.RepoDigests ?? [], repository),
    reference: container.Config.Image,
    repository,
    from: versionOf(image),
    restart: container.HostConfig.RestartPolicy ?? { Name: 'no' },
    healthy: container.State.Health?.Status === 'healthy',
  }
}

function planLines(origin: Origin, target: Pulled, request: Request): string[] {
  const names = namesFor(origin.name)
  return [
    `create ${names.successor} from ${target.reference}, and compare the two inspections`,
    `tag the present image ${origin.repository}:${rollbackTag(origin.name)}, so that a prune leaves it`,
    `set the restart policy of ${origin.name} to no and rename it ${names.predecessor}; rename ${names.successor} ${origin.name}`,
    `stop the old one, start the new one`,
    `wait until it is healthy${origin.version === null ? '' : ` and says ${origin.version}`} (at most ${formatDuration(request.healthTimeoutMs)}), then ${formatDuration(request.probationMs)} of probation`,
    `rename ${names.predecessor} ${names.previous}, and remove what had that name; on any failure put it back`,
  ]
}

function stopwatch() {
  let startedAt: number | null = null
  let elapsed: number | null = null
  return {
    start: () => void (startedAt = performance.now()),
    stop: () => void (elapsed = startedAt === null ? null : Math.round(performance.now() - startedAt)),
    elapsedMs: () => elapsed,
  }
}

async function step(report: Report, name: Step, detail: string): Promise<void> {
  await report({ event: 'step', step: name, detail })
}

/** Whether the engine itself does not answer, so that nothing can be put back either. */
function isAway(error: unknown): boolean {
  return isUnreachable(error) || (error instanceof BatonError && error.code === 'service_down')
}

function downBecause({ origin }: Job, cause: unknown): BatonError {
  return new BatonError(
    'service_down',
    `the engine went away while \`${origin.name}\` was being replaced: ${reasonOf(cause)}`,
    {
      cause,
      hint: 'run the same command again when the engine is back: it finishes the work, or undoes it with --rollback',
    },
  )
}
