// `baton trial`: tries a release on a copy of data on the author's machine, as an install does on the host before an update, but
// without the cage: both releases are the author's own. Must hold: it only reads the given data, and leaves nothing behind.

import { copyFile, cp, mkdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type Judged, judge, makeDisk, makeDownload, openFeed, type Report } from '../../agent/install.ts'
import { BatonError, parseTag, reasonOf } from '../../agent/words.ts'
import { durationOf } from '../lib/flags.ts'
import { performBy, type Performed } from '../lib/perform.ts'
import type { ProgressReport } from '../lib/progress.ts'
import { temporaryPlace } from '../lib/trusted.ts'
import { provideNode } from './node.ts'
import type { Project } from './project.ts'
import { temporaryDirectory } from './temporary.ts'

export interface RehearseOptions {
  project: Project
  /** folder with the releases */
  out: string
  from: string
  /** null: the newest in the folder */
  to: string | null
  /** path of a database, or of a state directory with it */
  data: string
  /** milliseconds that each start may take */
  startMs: number
  progress: ProgressReport
}

export interface Rehearsed extends Judged {
  from: string
  to: string
  report: Report
}

const START_MAX_MS = 3_600_000

/** What a person has typed. Throws invalid_request, invalid_tag. */
export function askedIn(
  values: Readonly<Record<string, unknown>>,
): Pick<RehearseOptions, 'from' | 'to' | 'data' | 'startMs'> {
  const { from, tag, data, 'start-timeout': timeout } = values
  const startMs = durationOf('--start-timeout', timeout, { least: 1000, most: START_MAX_MS })
  if (typeof data !== 'string')
    throw new BatonError('invalid_request', 'expected a database or a state directory for --data')
  if (from === undefined) throw new BatonError('invalid_request', 'expected the current release for --from')
  return {
    from: parseTag(from),
    to: tag === undefined ? null : parseTag(tag),
    data: resolve(data),
    startMs,
  }
}

export function formatRehearsed({ from, to, verdict, reason, hint }: Rehearsed): string {
  return `${to} on data from ${from}: ${verdict}: ${reason}${hint === undefined ? '' : `\nhint: ${hint}`}`
}

/** Throws verify_failed if the release fails on the copy. */
export async function rehearseRelease(options: RehearseOptions): Promise<Rehearsed> {
  const { project, from, data, startMs, progress } = options
  const { database } = project
  if (database === null)
    throw new BatonError(
      'invalid_settings',
      'expected `database` in baton.config.json: without one, there is no data to try a release on',
    )
  await using work = await temporaryDirectory(await temporaryPlace())
  const state = join(work.path, 'state')
  progress.stage('copy')
  await copyData(data, state, database)
  progress.stage('unpack')
  const [present, candidate] = [join(work.path, 'from'), join(work.path, 'to')]
  await unpackRelease(options, from, present)
  const to = await unpackRelease(options, options.to, candidate)
  progress.stage('start')
  const report = await performHere({ present, candidate, database, state, startMs })
  progress.end('done')
  return { from, to, report, ...judge(report, { from, to }) }
}

/** Starts the performer of `present` on the copy, without a cage, and resolves to its report. */
export async function performHere(what: Performed): Promise<Report> {
  return await performBy([what.present, 'as-service', 'in-cage'], what, { BATON_NODE: await provideNode() })
}

/** `-wal` and `-journal` belong to a database. */
async function copyData(data: string, state: string, database: string): Promise<void> {
  const found = await stat(data).catch((cause: unknown) => {
    throw new BatonError('invalid_request', `cannot read the data at ${data}: ${reasonOf(cause)}`)
  })
  if (found.isDirectory())
    return await cp(data, state, { recursive: true, mode: 2, filter: (path) => !path.endsWith('/update') })
  const to = join(state, database)
  await mkdir(dirname(to), { recursive: true })
  for (const suffix of ['', '-wal', '-journal'])
    await copyFile(data + suffix, to + suffix).catch((cause: unknown) => {
      if (suffix === '') throw cause
    })
}

/** Resolves to the tag of the release that it has unpacked to `path`. */
async function unpackRelease({ project, out }: RehearseOptions, tag: string | null, path: string): Promise<string> {
  const { service } = project
  await using feed = openFeed(out, { service, stateDirectory: dirname(path) })
  const release = tag === null ? (await feed.latest(() => false)).release : await feed.byTag(tag)
  if (release === null) throw new BatonError('release_not_found', `there is no release in ${out}`)
  const disk = makeDisk()
  const download = makeDownload({ feed, disk, partialPath: `${path}.partial`, onProgress: () => {} })
  await using candidate = await download(release)
  await disk.chmod(candidate.path, 0o755)
  await disk.rename(candidate.path, path)
  return release.tag
}
