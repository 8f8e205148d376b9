// Tries a release on a copy of the data before the old container is stopped: in a container of the present image with the copy that was
// just made of the database, no network, no capability and nothing else of the service's. The present release's own executable
// conducts, as on a host (agent/update/rehearsal/conduct.ts); the candidate's is taken out of its image.
// Must hold: the service's volumes are not mounted there; whatever goes wrong but the release itself is `not_tried`; the container
// and its copy are removed on every way out. A kill leaves them until the next deployment of the service.

import { basename, posix } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AUTO_MAX_BYTES, judge, mebibytes, readReportOf, REHEARSAL_REPORT } from '../../agent/install.ts'
import { REHEARSAL_REQUEST, startMsAfter, wholeMsOf } from '../../agent/install.ts'
import { BatonError, formatRehearsal, oneWayFault, reasonOf, type Rehearsal } from '../../agent/words.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { type CreateBody, type ImageInspection, labelsOf } from './inspection.ts'
import type { Job } from './job.ts'
import { createBeside } from './moves.ts'
import { IMAGE_LABELS, namesFor } from './reference.ts'
import { type ContainerRequest, refuseStopped, step, type Tools } from './request.ts'

const REPORT_MAX_BYTES = 64 * 1024
const LOOK_EVERY_MS = 200
const [MEMORY_BYTES, FILE_BYTES] = [2 * 1024 ** 3, 1024 ** 3]
/** only a container with this label is removed */
const CAGE_LABEL = 'baton.rehearsal'

/**
 * Throws verify_failed if the release fails on the copy, and one_way if it leaves no way back and `oneWay` does not allow that. Does
 * nothing for a service that keeps no database, and for a rollback: nothing may stand in its way.
 */
export async function rehearseInContainer(
  { origin, predecessor, successor }: Job,
  images: { present: ImageInspection; candidate: ImageInspection },
  { rehearse, oneWay }: Pick<ContainerRequest, 'rehearse' | 'oneWay'>,
  tools: Tools,
): Promise<void> {
  const { report } = tools
  const { snapshot, kind } = origin
  if (kind === 'rollback' || snapshot === null || !rehearse || images.candidate.Id === images.present.Id) return
  const tags = { from: origin.from ?? 'the present release', to: origin.version ?? origin.release }
  await step(tools, 'rehearse', `${tags.to} on a copy of the data`)
  const began = performance.now()
  const name = namesFor(origin.name).cage
  const found = await tryInContainer({ name, predecessor, successor, snapshot, images, tags }, tools)
  const rehearsal: Rehearsal = { ...NOTHING_YET, ...found, tookMs: Math.round(performance.now() - began) }
  await report({ event: 'note', message: formatRehearsal(rehearsal) })
  if (rehearsal.verdict === 'one_way' && !oneWay) throw oneWayFault(tags.to, rehearsal)
}

const NOTHING_YET = { verdict: 'not_tried', rows: null, copyMs: null, migrationMs: null } as const

interface Trial {
  /** of the cage's container */
  name: string
  predecessor: string
  successor: string
  /** path of the copy in the predecessor */
  snapshot: string
  images: { present: ImageInspection; candidate: ImageInspection }
  tags: { from: string; to: string }
}

type Found = Pick<Rehearsal, 'reason'> & Partial<Rehearsal>

async function tryInContainer(trial: Trial, { engine, stop }: Tools): Promise<Found> {
  const { name, predecessor, successor, snapshot, images, tags } = trial
  const [present, candidate] = [executableOf(images.present), executableOf(images.candidate)]
  const state = labelsOf(images.present)[IMAGE_LABELS.state]
  const isSame = state !== undefined && labelsOf(images.candidate)[IMAGE_LABELS.state] === state
  if (!isSame || present === null || candidate === null || images.present.Config?.Volumes?.[state] === undefined)
    return { reason: 'one of the two images does not say where its executable and its data are' }
  let [cage, copyMs]: [string | null, number | null] = [null, null]
  try {
    const bytes = await engine.sizeOf(predecessor, snapshot)
    if (bytes === null) return { reason: `the engine does not find the copy of the database, ${snapshot}` }
    if (bytes > AUTO_MAX_BYTES)
      return { reason: `the database has ${mebibytes(bytes)}, and only up to ${mebibytes(AUTO_MAX_BYTES)} are tried` }
    const specification = { body: cageBody(images.present, present, state, bytes), connect: [], disconnect: [] }
    await removeCage(name, engine)
    cage = await createBeside(name, specification, engine)
    const began = performance.now()
    await engine.copyFile({ container: predecessor, path: snapshot }, { container: cage, folder: state })
    copyMs = Math.round(performance.now() - began)
    const startMs = startMsAfter(copyMs)
    await engine.copyFile({ container: successor, path: candidate }, { container: cage, folder: state })
    const request = {
      do: 'rehearse',
      candidate: posix.join(state, basename(candidate)),
      database: null,
      copy: basename(snapshot),
      startMs,
    }
    await engine.writeFile(cage, state, REHEARSAL_REQUEST, JSON.stringify(request))
    await engine.start(cage)
    const mostMs = wholeMsOf(startMs)
    for (const deadline = performance.now() + mostMs; (await engine.container(cage))?.State.Running === true;) {
      refuseStopped(stop)
      if (performance.now() > deadline)
        return { copyMs, reason: `it had not ended after ${Math.round(mostMs / 1000)} s` }
      await sleep(LOOK_EVERY_MS)
    }
    const text = await engine.readFile(cage, posix.join(state, REHEARSAL_REPORT), REPORT_MAX_BYTES)
    if (text === null) return { copyMs, reason: `${tags.from} cannot conduct a rehearsal: it is older than that` }
    const report = readReportOf(JSON.parse(text.toString()) as Record<string, unknown>)
    return { ...judge(report, tags), rows: report.rows, copyMs, migrationMs: report.candidate?.ms ?? null }
  } catch (cause) {
    if (isAway(cause) || (cause instanceof BatonError && ['verify_failed', 'interrupted'].includes(cause.code)))
      throw cause
    return { copyMs, reason: reasonOf(cause) }
  } finally {
    if (cage !== null) await removeCage(name, engine).catch(() => {})
  }
}

/** The image's own volume gives it an empty state directory that the image's user may write. */
function cageBody({ Id }: ImageInspection, executable: string, state: string, bytes: number): CreateBody {
  return {
    Image: Id,
    Entrypoint: [executable],
    Cmd: ['as-service', 'in-cage'],
    WorkingDir: state,
    Env: [`STATE_DIRECTORY=${state}`],
    Labels: { [CAGE_LABEL]: '' },
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      NetworkMode: 'none',
      RestartPolicy: { Name: 'no' },
      LogConfig: { Type: 'none' },
      ReadonlyRootfs: true,
      Tmpfs: { '/tmp': 'size=256m' },
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      Memory: MEMORY_BYTES,
      MemorySwap: MEMORY_BYTES,
      PidsLimit: 512,
      CpuShares: 100,
      BlkioWeight: 20,
      OomScoreAdj: 900,
      Ulimits: [{ Name: 'fsize', Soft: FILE_BYTES + 4 * bytes, Hard: FILE_BYTES + 4 * bytes }],
    },
  }
}

/** Null if the image starts something else first, such as a shell. */
function executableOf({ Config }: ImageInspection): string | null {
  const [first = ''] = Config?.Entrypoint ?? []
  return first.startsWith('/') ? first : null
}

async function removeCage(name: string, engine: Engine): Promise<void> {
  const found = await engine.container(name)
  if (found !== null && Object.hasOwn(labelsOf(found), CAGE_LABEL)) await engine.remove(found.Id, true)
}
