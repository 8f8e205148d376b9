// Tries a release on a copy of the data before the old container is stopped: in a container of the present image with the copy that was
// just made of the database, no network, no capability and nothing else of the service's. The present release's own executable
// performs it, as on a host (agent/update/rehearsal/perform.ts); the candidate's is taken out of its image.
// For a rollback it finds out whether the release that comes back works on the present data.
// Must hold: the service's volumes are not mounted there; every failure but the release's own is `untried`; it always removes the
// container and its copy. A kill leaves them until the next deployment of the service.

import { posix } from 'node:path'
import {
  AUTO_MAX_BYTES,
  EXECUTABLE_MAX_BYTES,
  FILES_MAX_BYTES,
  judge,
  mebibytes,
  readReportOf,
  type Report,
} from '../../agent/install.ts'
import { REHEARSAL_REPORT, REHEARSAL_REQUEST, startMsAfter, wholeMsOf } from '../../agent/install.ts'
import {
  BatonError,
  formatRehearsal,
  formatUntried,
  irreversibleFault,
  reasonOf,
  type Rehearsal,
  type TrialCode,
  untilWell,
  type Untried,
} from '../../agent/words.ts'
import { IRREVERSIBLE_FLAG } from '../lib/flags.ts'
import { TAR_EXTRA_BYTES } from '../lib/tar.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { type CreateBody, type ImageInspection, labelsOf } from './inspection.ts'
import { type Job, releaseOf } from './job.ts'
import { createBeside } from './moves.ts'
import { IMAGE_LABELS, namesFor } from './reference.ts'
import { type ContainerRequest, refuseStopped, step, type Tools } from './request.ts'
import type { ContainerSnapshot } from './snapshot.ts'

const REPORT_MAX_BYTES = 64 * 1024
const LOOK_EVERY_MS = 200
const [MEMORY_BYTES, FILE_BYTES] = [2 * 1024 ** 3, 1024 ** 3]
/** only a container with this label is removed */
const CAGE_LABEL = 'baton.trial'
const REMEDIES = { longer: '`--health-timeout`', without: '`--trial never`' }

export interface OnCopy {
  images: { present: ImageInspection; candidate: ImageInspection }
  copy: ContainerSnapshot
}

/**
 * Resolves to what was found of an update; null: nothing was tried. Throws verify_failed if the release fails on the copy, and irreversible if
 * it leaves no way back and `allowIrreversible` does not allow that. For a rollback: schema_newer if the present release works on the copy, and the
 * one that would come back does not.
 */
export async function rehearseInContainer(
  { origin, predecessor, successor }: Job,
  { images, copy }: OnCopy,
  {
    rehearse,
    allowIrreversible,
    healthTimeoutMs,
  }: Pick<ContainerRequest, 'rehearse' | 'allowIrreversible' | 'healthTimeoutMs'>,
  tools: Tools,
): Promise<Rehearsal | null> {
  const { report } = tools
  if (!rehearse || images.candidate.Id === images.present.Id) return null
  const tags = { from: origin.from ?? 'the current release', to: releaseOf(origin) ?? 'the new release' }
  await step(tools, 'trial', `${tags.to} on a copy of the data`)
  const began = performance.now()
  const name = namesFor(origin.name).cage
  const found = await tryInContainer({ name, predecessor, successor, copy, images, tags, healthTimeoutMs }, tools)
  if (origin.kind === 'rollback') {
    await report({ event: 'note', message: askedForRollback(found, tags) })
    return null
  }
  const tookMs = Math.round(performance.now() - began)
  const rehearsal: Rehearsal = { ...NOTHING_YET, ...judged(found, tags), tookMs }
  await report({ event: 'note', message: formatRehearsal(rehearsal) })
  if (rehearsal.verdict !== 'irreversible' || allowIrreversible) return rehearsal
  const { code, message } = irreversibleFault(tags.to, rehearsal)
  throw new BatonError(code, message, { hint: `to allow this, pass \`--${IRREVERSIBLE_FLAG}\`` })
}

/** The note about it. Throws schema_newer. A trial that could not be made does not stop a rollback. */
function askedForRollback({ report, reason }: Found, { from, to }: Trial['tags']): string {
  const { present, candidate, damage, lost } = report ?? {}
  const isTried = present?.failure === null && present.refused === null && candidate !== null && candidate !== undefined
  if (!isTried)
    return formatUntried(reason ?? present?.failure ?? present?.refused ?? 'the trial ended without a result')
  const why = candidate.failure ?? candidate.refused ?? damage ?? lost ?? null
  if (why === null) return `${to} was tried on a copy of the current data and works`
  throw new BatonError('schema_newer', `${to} cannot run on the data that ${from} has changed: ${why}`, {
    hint: 'pass `--trial never` to go back anyway; to restore the earlier data as well, see the container guide',
  })
}

function judged({ report, copyMs, code, reason }: Found, tags: Trial['tags']): Untried & Partial<Rehearsal> {
  if (report === undefined)
    return { copyMs, code: code ?? 'trial_failed', reason: reason ?? 'the trial ended without a result' }
  return { ...judge(report, tags, REMEDIES), rows: report.rows, copyMs, migrationMs: report.candidate?.ms ?? null }
}

const NOTHING_YET = { verdict: 'untried', rows: null, copyMs: null, migrationMs: null } as const

interface Trial {
  /** of the cage's container */
  name: string
  predecessor: string
  successor: string
  /** in the predecessor */
  copy: ContainerSnapshot
  images: { present: ImageInspection; candidate: ImageInspection }
  tags: { from: string; to: string }
  /** milliseconds that the switch gives the new release */
  healthTimeoutMs: number
}

/** What the performer has reported, or why there is no report. */
interface Found {
  report?: Report
  code?: TrialCode
  reason?: string
  copyMs: number | null
}

async function tryInContainer({ healthTimeoutMs, ...trial }: Trial, { engine, stop }: Tools): Promise<Found> {
  const { name, predecessor, copy, images, tags } = trial
  const [present, candidate] = [executableOf(images.present), executableOf(images.candidate)]
  const state = labelsOf(images.present)[IMAGE_LABELS.state]
  const isSame = state !== undefined && labelsOf(images.candidate)[IMAGE_LABELS.state] === state
  if (!isSame || images.present.Config?.Volumes?.[state] === undefined)
    return {
      copyMs: null,
      code: 'images',
      reason: 'the two images do not declare the same state directory as a volume',
    }
  if (present === null || candidate === null)
    return { copyMs: null, code: 'images', reason: 'the entrypoint of one of the two images is not its executable' }
  let [cage, copyMs]: [string | null, number | null] = [null, null]
  const not = (code: TrialCode, reason: string): Found => ({ copyMs, code, reason })
  try {
    const bytes = await engine.sizeOf(predecessor, copy.path)
    if (bytes === null) return not('trial_failed', `the engine cannot find the copy of the database, ${copy.path}`)
    if (bytes > AUTO_MAX_BYTES)
      return not(
        'database_size',
        `the database is ${mebibytes(bytes)}, and a trial copies at most ${mebibytes(AUTO_MAX_BYTES)}`,
      )
    const body = cageBody(images.present, present, state, bytes)
    cage = await createBeside(name, { body, connect: [], disconnect: [] }, engine)
    const began = performance.now()
    const mostBytes = bytes + TAR_EXTRA_BYTES // the service may put a folder, or a longer file, in its place meanwhile
    await engine.copyFile({ container: predecessor, path: copy.path }, { container: cage, folder: state }, mostBytes)
    copyMs = Math.round(performance.now() - began)
    const startMs = startMsAfter(copyMs, healthTimeoutMs)
    await fill(cage, { ...trial, state, candidate, startMs }, engine)
    await engine.start(cage)
    const late = await stillRuns(cage, wholeMsOf(startMs), { engine, stop })
    if (late !== null) return not('not_finished', late)
    const text = await engine.readFile(cage, posix.join(state, REHEARSAL_REPORT), REPORT_MAX_BYTES)
    if (text === null) return not('images', `${tags.from} is too old to run a trial`)
    return { copyMs, report: readReportOf(JSON.parse(text.toString()) as Record<string, unknown>) }
  } catch (cause) {
    if (isAway(cause) || (cause instanceof BatonError && cause.code === 'interrupted')) throw cause
    return not('trial_failed', reasonOf(cause))
  } finally {
    if (cage !== null) await removeCage(name, engine).catch(() => {})
  }
}

/** Waits for the end of the trial. Null, or why that is too late. */
async function stillRuns(cage: string, mostMs: number, { engine, stop }: Pick<Tools, 'engine' | 'stop'>) {
  const look = async (): Promise<string | null> => {
    refuseStopped(stop)
    const runs = (await engine.container(cage))?.State.Running === true
    return runs ? `the trial had not finished after ${Math.round(mostMs / 1000)} s` : null
  }
  return await untilWell(look, mostMs, LOOK_EVERY_MS)
}

/** Puts into the cage what it needs beside the copy of the database: the author's files, the candidate, the request. */
async function fill(
  cage: string,
  {
    predecessor,
    successor,
    copy,
    state,
    candidate,
    startMs,
  }: Omit<Trial, 'healthTimeoutMs'> & { state: string; candidate: string; startMs: number },
  engine: Engine,
): Promise<void> {
  let left = FILES_MAX_BYTES
  for (const name of copy.files) {
    const path = posix.join(state, name)
    if ((await engine.sizeOf(predecessor, path)) === null) continue
    const parts = name.split('/').slice(0, -1)
    for (const [at, part] of parts.entries())
      await engine.makeFolder(cage, posix.join(state, ...parts.slice(0, at)), part)
    const to = { container: cage, folder: posix.dirname(path) }
    left -= await engine.copyFile({ container: predecessor, path }, to, left)
  }
  const executable = { container: successor, path: candidate }
  await engine.copyFile(executable, { container: cage, folder: state }, EXECUTABLE_MAX_BYTES + TAR_EXTRA_BYTES)
  const request = { do: 'rehearse', candidate: posix.join(state, posix.basename(candidate)), database: null, startMs }
  const whole = JSON.stringify({ ...request, copy: posix.basename(copy.path) })
  await engine.writeFile(cage, state, REHEARSAL_REQUEST, whole)
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

/** Also of an earlier deployment that was killed. */
export async function removeCage(name: string, engine: Engine): Promise<void> {
  const found = await engine.container(name)
  if (found !== null && Object.hasOwn(labelsOf(found), CAGE_LABEL)) await engine.remove(found.Id, true)
}
