// The part of a deployment before the old container is touched: finds the image, refuses what would be lost, creates a successor
// and proves that it equals the old container. Must hold: every exit that is not success leaves nothing of the successor.

import { BatonError, formatNames, formatUntried, isTag, reasonOf } from '../../agent/words.ts'
import { formatDuration } from '../lib/progress.ts'
import { type Composed, composeFor, composeProjectOf, refuseScaled } from './compose.ts'
import { compare, type Difference, formatDifference, movedBy, unexplained } from './difference.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { howToReplace, type Replaced, type Replacing } from './gate.ts'
import { check } from './health.ts'
import { holdLines, type HoldPlan, holdWayOf, makeHolder, planHold, servingHolderOf, withVolume } from './hold.ts'
import { type ContainerInspection, type ImageInspection, isSame, nameOf } from './inspection.ts'
import { asItWas, type Job, type JobOrigin, releaseOf, type Site } from './job.ts'
import * as move from './moves.ts'
import { copiesOnHost, copyBeforeIrreversible, markData, onHost, orderCopies, wayBackTo } from './own-data.ts'
import { predict } from './predict.ts'
import { rehearseInContainer, removeCage } from './rehearsal.ts'
import { digestIn, failedImage, namesFor, ORIGIN_LABEL, repositoryIn, rollbackTag } from './reference.ts'
import { refuseClaims, refuseMisfit, refuseUnfit } from './refusal.ts'
import type { DeployEvent, ContainerReport } from './report.ts'
import { type ContainerRequest, step, type Tools } from './request.ts'
import { type ContainerSnapshot, snapshotCommand, type Taken, takeSnapshot } from './snapshot.ts'
import { type SpecificationSource, type Specification, specify } from './specification.ts'
import { failedHere, imageOfContainer, inheritedVolumes, otherContainers, ownChanges } from './survey.ts'
import { presentImage, type Pulled, resolveRelease, resolveRollback, versionOf } from './target.ts'

export interface Prepared {
  container: ContainerInspection
  oldImage: ImageInspection
  target: Pulled
  origin: JobOrigin
  source: SpecificationSource
  composed: Composed | null
  snapshot: string[] | null
  /** how the switcher will do it */
  how: Replacing
  /** null unless the container moves behind a holder or out again; `container` and `source` are then what it must be */
  held: HoldPlan | null
}

/** Decides what to do. Pulls the image; changes no container. */
export async function plan(
  container: ContainerInspection,
  site: Site,
  request: ContainerRequest,
  tools: Tools,
): Promise<Prepared> {
  const { engine } = tools
  const oldImage = await imageOfContainer(container, engine)
  await refuse(container, oldImage, tools)
  const isMove = holdWayOf(request.release) !== null
  const holder = isMove ? null : await servingHolderOf(container, engine)
  const found = await (isMove
    ? presentImage(container, oldImage, engine)
    : request.release === null
      ? backTo(container, oldImage, request, tools)
      : resolveRelease(container, oldImage, request, tools))
  const isSame = found.image.Id === container.Image
  refuseClaims(found.image, `the image ${found.reference}`)
  const composed = isSame ? null : await composeFor(container, found, request, tools)
  const target = composed?.target ?? found
  if (!isSame) {
    const { image: newImage, reference } = target
    refuseMisfit({ container, oldImage, door: holder ?? container, newImage, reference })
  }
  if (request.release === 'latest' && !isSame) await refuseFailed(target, site, nameOf(container), engine)
  const origin = originOf(container, oldImage, target, request)
  origin.compose = composed?.variable ?? null
  if (request.release === null && request.rehearse) await refuseWithoutData(container, origin, engine)
  const held = await planHold(container, origin.repository, request, tools)
  const wanted = held?.container ?? container
  const source = { container: wanted, image: oldImage, inherited: await inheritedVolumes(container, engine) }
  const how = held === null ? await howPlanned({ container, image: oldImage }, target.image, tools) : 'stopped'
  return {
    held,
    how,
    container: wanted,
    oldImage,
    target,
    origin,
    source,
    composed,
    snapshot: snapshotCommand(oldImage),
  }
}

/** The image that ran before; or the release that is named, wherever it is: a rollback to it is tried on a copy as any other. */
async function backTo(
  container: ContainerInspection,
  oldImage: ImageInspection,
  request: ContainerRequest,
  tools: Tools,
): Promise<Pulled> {
  const { backTo: tag } = request
  try {
    return await resolveRollback(container, tag, tools)
  } catch (cause) {
    if (tag === null || !(cause instanceof BatonError && cause.code === 'no_backup')) throw cause
    return await resolveRelease(container, oldImage, { ...request, release: tag }, tools)
  }
}

/** Throws BatonError refused if this is what failed here last: only its tag tries it again. */
async function refuseFailed(target: Pulled, { failed }: Site, name: string, engine: Engine): Promise<void> {
  if ((await failedHere(name, engine))?.Id !== target.image.Id) return
  const where = failed?.Image === target.image.Id ? ` (see \`docker logs ${nameOf(failed)}\`)` : ''
  const { repository, tag } = failedImage(name)
  throw new BatonError('refused', `${target.version ?? 'this image'} has failed here before${where}`, {
    hint: `pass its tag to try it again; \`docker rmi ${repository}:${tag}\` clears the record of the failure`,
  })
}

/** Throws schema_newer. A trial of an old release cannot show what its data have lost: it may start on less, and make empty tables. */
async function refuseWithoutData(container: ContainerInspection, origin: JobOrigin, engine: Engine): Promise<void> {
  const [from, to] = [origin.from, releaseOf(origin)]
  const copy = isTag(from) && isTag(to) ? await copyBeforeIrreversible(container, { from, to }, engine) : null
  if (copy === null) return
  const message = `the update from ${copy.before} to ${copy.after} has changed the data irreversibly`
  throw new BatonError('schema_newer', message, { hint: wayBackTo(copy.before, copy.name) })
}

async function howPlanned(old: Replaced, image: ImageInspection, { engine, program }: Tools): Promise<Replacing> {
  if (program === null) return 'stopped'
  const { Config } = old.container
  const isImages = isSame(Config.Entrypoint, old.image.Config?.Entrypoint)
  const Entrypoint = isImages ? image.Config?.Entrypoint : Config.Entrypoint
  const next = { ...old.container, Config: { ...Config, Entrypoint: Entrypoint ?? null } }
  return await howToReplace(old, { container: next, image }, engine)
}

export function planEvent(
  { container, oldImage, target, origin, source, composed, snapshot, held, how }: Prepared,
  request: ContainerRequest,
  { engine }: Tools,
): DeployEvent {
  const specification = specify(source, { reference: target.reference, labels: labelled(origin), engine })
  const after = predict(container, specification, target.image, engine)
  const moves = held === null ? [] : movedBy(held.present, container, oldImage)
  const differences: Difference[] = [
    ...moves,
    ...compare({ before: container, after, oldImage, newImage: target.image }),
  ]
  const project = composeProjectOf(container)
  return {
    event: 'plan',
    container: nameOf(container),
    engine: `${engine.kind} ${engine.version}, API ${engine.apiVersion}${project === null ? '' : `, compose project ${project.name}`}`,
    from: { reference: container.Config.Image, image: container.Image, digest: origin.digest, version: origin.from },
    to: { reference: target.reference, image: target.image.Id, digest: target.digest, version: target.version },
    plan: planLines(origin, { target, composed, snapshot, held, how }, request),
    differences,
  }
}

/** Why there is no trial without a copy of a database. `taken` null: the image names no command for it. */
function whyUntried(taken: Taken | null): string {
  if (taken === null) return 'the image has no command for copying a database'
  if (taken === NOTHING_TAKEN) return 'no copy could be made'
  return taken.owesMs !== null || taken.copies.length > 0
    ? 'the data is not in SQLite, and a trial in a container supports only SQLite'
    : 'the running release declares no database, or has none yet, so nothing was copied'
}

/** Creates the successor while the old container still serves. */
export async function prepare(
  { container, oldImage, target, origin, source, composed, snapshot, held }: Prepared,
  request: Pick<ContainerRequest, 'rehearse' | 'allowIrreversible' | 'healthTimeoutMs'>,
  tools: Tools,
): Promise<Job> {
  const { engine, report } = tools
  origin.healthy = (await check(container, null, engine)).well
  let [copy, taken]: [ContainerSnapshot | null, Taken | null] = [null, null]
  if (snapshot !== null) {
    await step(tools, 'snapshot', 'of the data')
    taken = await takeSnapshot(container, snapshot, engine).catch(orGoesBack(origin, tools, NOTHING_TAKEN))
    copy = taken.database
    origin.snapshot = copy?.path ?? null
    origin.snapshotOnHost = copy === null ? null : onHost(container, copy.path)
    origin.copies = copiesOnHost(container, taken.copies)
    if (taken.owesMs !== null) origin.owesMs = taken.owesMs
    const isEmpty = taken !== NOTHING_TAKEN && copy === null && taken.copies.length === 0 && taken.owesMs === null
    if (isEmpty) await step(tools, 'snapshot', 'nothing to copy')
  }
  if (request.rehearse && copy === null && !isSameImage(origin, target))
    await report({ event: 'note', message: formatUntried(whyUntried(taken)) })
  const { successor: name, cage } = namesFor(origin.name)
  await removeCage(cage, engine)
  await step(tools, 'create', `${name} from ${target.reference}`)
  if (held !== null) origin.hold = { way: held.way, holder: await makeHolder(held, engine) }
  const { tag } = target
  if (tag !== null) await move.again(engine, () => engine.tag(target.image.Id, tag.repository, tag.tag))
  const labels = { ...(await composed?.labels()), ...labelled(origin) }
  const specification = specify(source, { reference: target.reference, labels, engine })
  const job: Job = { origin, predecessor: container.Id, successor: name, image: target.image.Id }
  try {
    job.successor = await move.createBeside(name, withoutRestart(specification, engine.kind), engine)
    await step(tools, 'compare', '`docker inspect` of the two containers')
    await provesSame(job, await withVolume(container, held, engine), oldImage, target.image, tools)
    if (origin.owesMs !== undefined)
      await orderCopies(job, target.image, engine).catch(orGoesBack(origin, tools, undefined))
    const images = { present: oldImage, candidate: target.image }
    const tried = copy === null ? null : await rehearseInContainer(job, { images, copy }, request, tools)
    if (copy !== null && tried?.verdict === 'irreversible') {
      job.irreversible = { reason: tried.reason, copy: origin.snapshotOnHost ?? copy.path, rows: tried.rows }
      const why = await markData(job, target.image, engine)
      if (why !== null)
        await report({
          event: 'warning',
          message: `if the new release fails, its changes to the data will stay: ${why}`,
        })
    }
    await step(tools, 'keep', `the current image, as ${origin.repository}:${rollbackTag(origin.name)}`)
    await move.again(engine, () => engine.tag(container.Image, origin.repository, rollbackTag(origin.name)))
    if (origin.restart.Name === 'no' || origin.restart.Name === '') {
      const message =
        'the container’s restart policy is still `no`: when the engine restarts, the container stays stopped'
      await report({ event: 'note', message })
    }
    return job
  } catch (error) {
    await move.discard(job, engine)
    throw error
  }
}

/** A rollback goes on without a copy of the data: what prevents it, such as a full disk, may be the reason for the rollback. */
function orGoesBack<T>(
  { kind }: JobOrigin,
  { report }: Pick<Tools, 'report'>,
  nothing: T,
): (cause: unknown) => Promise<T> {
  return async (cause) => {
    if (kind !== 'rollback' || isAway(cause)) throw cause
    await report({ event: 'warning', message: `rolling back without a copy of the data: ${reasonOf(cause)}` })
    return nothing
  }
}

/** Such as one that moves behind a holder: it works on the data as before. */
function isSameImage(origin: JobOrigin, target: Pulled): boolean {
  return target.image.Id === origin.image
}

const NOTHING_TAKEN: Taken = { database: null, copies: [], owesMs: null }

/** Before the commit, no engine may start the successor by itself. podman keeps the policy: before 5 it cannot set one later. */
function withoutRestart(specification: Specification, kind: 'docker' | 'podman'): Specification {
  if (kind === 'podman') return specification
  const { body } = specification
  return { ...specification, body: { ...body, HostConfig: { ...body.HostConfig, RestartPolicy: { Name: 'no' } } } }
}

/** Throws BatonError verify_failed if the successor lacks something that a person set, or runs another image. */
async function provesSame(
  job: Job,
  before: ContainerInspection,
  oldImage: ImageInspection,
  newImage: ImageInspection,
  { engine, report }: Tools,
) {
  const after = await engine.container(job.successor)
  if (after === null) throw new BatonError('verify_failed', 'the new container no longer exists')
  if (after.Image !== job.image) {
    const got = `got ${after.Image}: the tag has moved in the meantime`
    throw new BatonError('verify_failed', `expected the new container to run ${job.image}, ${got}`)
  }
  const lost = unexplained(compare({ before, after: asItWas(after, job.origin), oldImage, newImage }))
  if (lost.length === 0) return
  for (const difference of lost) await report({ event: 'warning', message: formatDifference(difference) })
  const paths = lost.map(({ path }) => path).join(', ')
  throw new BatonError('verify_failed', `the new container would differ from the old one: ${paths}`, {
    hint: 'the old container was not changed; to update, recreate it from the new image yourself, and please report this as a bug',
  })
}

async function refuse(
  container: ContainerInspection,
  image: ImageInspection,
  { engine, report }: Tools,
): Promise<void> {
  refuseClaims(image, `the image of \`${nameOf(container)}\``)
  await refuseScaled(container, engine)
  const others = await otherContainers(container.Id, engine)
  const changes = ownChanges(await engine.changes(container.Id), container)
  refuseUnfit(container, image, others, changes)
  await warnOfChanges(changes, report)
}

async function warnOfChanges(changes: readonly string[], report: ContainerReport): Promise<void> {
  if (changes.length === 0) return
  const isDatabase = (path: string) => /\.(db|sqlite3?)$/.test(path)
  // what an executable unpacks it unpacks again
  const own = changes.filter((path) => !path.includes('/.unpacked/'))
  const named = [...own.filter(isDatabase), ...own.filter((path) => !isDatabase(path))]
  if (named.length === 0) return
  const message = `these files are not on a volume and stay behind in the old container: ${formatNames(named, 5)}`
  await report({ event: 'warning', message })
}

function originOf(
  container: ContainerInspection,
  image: ImageInspection,
  target: Pulled,
  request: ContainerRequest,
): JobOrigin {
  const repository = repositoryIn(container.Config.Image, container.Image) ?? target.repository ?? 'baton'
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
    snapshot: null,
    compose: null,
    ofCompose: composeProjectOf(container) !== null,
  }
}

function labelled(origin: JobOrigin): Record<string, string> {
  return { [ORIGIN_LABEL]: JSON.stringify(origin) }
}

const ORDER_NOTES: Record<Replacing, string> = {
  stopped: 'stop the old one, start the new one',
  'stop-first':
    'start the new one, which waits before it runs the application; stop the old one; let the new one continue',
  'start-first': 'start the new one, and stop the old one at the end of probation',
}

function planLines(
  origin: JobOrigin,
  { target, composed, snapshot, held, how }: Pick<Prepared, 'target' | 'composed' | 'snapshot' | 'held' | 'how'>,
  request: ContainerRequest,
): string[] {
  const names = namesFor(origin.name)
  const says = origin.version === null ? '' : ` and reports ${origin.version}`
  const probation = request.probationMs > 0 ? `, then ${formatDuration(request.probationMs)} of probation` : ''
  const kept = origin.ofCompose
    ? `remove ${names.predecessor}, as compose does`
    : `rename ${names.predecessor} to ${names.previous}, replacing any earlier container with that name`
  const allowIrreversible =
    origin.kind === 'rollback'
      ? 'if the release cannot run on it, the rollback stops here'
      : request.allowIrreversible
        ? 'the deployment continues even if the release is irreversible'
        : 'the deployment stops here if the release is irreversible'
  return [
    snapshot === null
      ? 'no copy of the database: the image has no command for copying it'
      : `copy the database, if there is one: ${snapshot.join(' ')}`,
    ...holdLines(held),
    `create ${names.successor} from ${target.reference}, and compare the \`docker inspect\` output of both containers`,
    ...(!request.rehearse || isSameImage(origin, target)
      ? []
      : snapshot === null
        ? [formatUntried(whyUntried(null))]
        : [
            `try the release on that copy, in ${names.cage}, without a network: ${allowIrreversible}; skipped if there is no copy`,
          ]),
    `tag the current image as ${origin.repository}:${rollbackTag(origin.name)}, so that \`docker image prune\` keeps it`,
    `in the container ${names.switcher}, which the engine restarts if it is interrupted: rename ${origin.name} to ${names.predecessor} and ${names.successor} to ${origin.name}; ${ORDER_NOTES[how]}`,
    `wait until the new container is healthy${says} (at most ${formatDuration(request.healthTimeoutMs)})${probation}; if anything fails, put the old container back`,
    ...(composed === null ? [] : [composed.doing]),
    kept,
  ]
}
