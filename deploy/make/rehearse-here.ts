// `baton rehearse`: tries a release on a copy of data at the author's, as an install does on the host before an update, but without the
// cage: both releases are the author's own. Must hold: the data that are given are only read; nothing is left behind.

import { spawn } from 'node:child_process'
import { copyFile, cp, mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { type Judged, judge, makeDisk, makeDownload, openFeed, type Report } from '../../agent/install.ts'
import { readReportOf, REHEARSAL_REPORT, REHEARSAL_REQUEST, UPDATE_BOUNDS, wholeMsOf } from '../../agent/install.ts'
import { BatonError, parseTag, reasonOf } from '../../agent/words.ts'
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

const START_MAX_SECONDS = 3600

/** What a person has typed. Throws invalid_request, invalid_tag. */
export function askedIn(
  values: Readonly<Record<string, unknown>>,
): Pick<RehearseOptions, 'from' | 'to' | 'data' | 'startMs'> {
  const { from, to, data, 'start-timeout': timeout } = values
  const seconds = Number(timeout)
  if (!(seconds >= 1 && seconds <= START_MAX_SECONDS))
    throw new BatonError('invalid_request', `expected 1 to ${START_MAX_SECONDS} seconds in --start-timeout`)
  if (typeof data !== 'string')
    throw new BatonError('invalid_request', 'expected a database or a state directory in --data')
  if (from === undefined) throw new BatonError('invalid_request', 'expected the release that is in use in --from')
  return {
    from: parseTag(from),
    to: to === undefined ? null : parseTag(to),
    data: resolve(data),
    startMs: seconds * 1000,
  }
}

export function formatRehearsed({ from, to, verdict, reason, hint }: Rehearsed): string {
  return `${to} on data of ${from}: ${verdict}: ${reason}${hint === undefined ? '' : `\nhint: ${hint}`}`
}

/** Throws verify_failed if the release fails on the copy. */
export async function rehearseRelease(options: RehearseOptions): Promise<Rehearsed> {
  const { project, from, data, startMs, progress } = options
  const { database } = project
  if (database === null)
    throw new BatonError(
      'invalid_settings',
      'expected `database` in baton.config.json: there is nothing to try a release on',
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
  const report = await conductHere({ present, candidate, database, state, startMs })
  progress.end('done')
  return { from, to, report, ...judge(report, { from, to }) }
}

export interface Conducted {
  /** paths of the executables */
  present: string
  candidate: string
  /** relative to the state directory */
  database: string
  /** the copy */
  state: string
  startMs: number
}

/** Starts the conductor of `present` on the copy, without a cage, and resolves to its report. */
export async function conductHere({ present, candidate, database, state, startMs }: Conducted): Promise<Report> {
  await writeFile(join(state, REHEARSAL_REQUEST), JSON.stringify({ do: 'rehearse', candidate, database, startMs }))
  const { PATH = '/usr/local/bin:/usr/bin:/bin' } = process.env
  const child = spawn(present, ['as-service', 'in-cage'], {
    cwd: state,
    env: { PATH, BATON_NODE: await provideNode() },
    stdio: ['ignore', 'ignore', 'pipe'],
    signal: AbortSignal.timeout(wholeMsOf(startMs)),
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-2000)))
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('close', resolve)
    child.once('error', reject)
  }).catch((cause: unknown) => {
    throw new BatonError('unexpected', `rehearsing: ${reasonOf(cause)}`, { cause })
  })
  if (code !== 0) {
    throw new BatonError(
      'unexpected',
      `rehearsing: expected exit code 0 from ${basename(present)}, got ${code}: ${said.trim()}`,
      {
        hint: 'a release that was built before there were rehearsals cannot conduct one',
      },
    )
  }
  return readReportOf(JSON.parse(await readFile(join(state, REHEARSAL_REPORT), 'utf8')) as Record<string, unknown>)
}

/** `-wal` and `-journal` belong to a database. */
async function copyData(data: string, state: string, database: string): Promise<void> {
  const found = await stat(data).catch((cause: unknown) => {
    throw new BatonError('invalid_request', `expected data at ${data}: ${reasonOf(cause)}`)
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
  if (release === null) throw new BatonError('release_not_found', `expected a release in ${out}, found none`)
  const disk = makeDisk()
  const [, , stallMs] = UPDATE_BOUNDS.stallMs
  const download = makeDownload({ feed, disk, partialPath: `${path}.partial`, stallMs, onProgress: () => {} })
  await using candidate = await download(release)
  await disk.chmod(candidate.path, 0o755)
  await disk.rename(candidate.path, path)
  return release.tag
}
