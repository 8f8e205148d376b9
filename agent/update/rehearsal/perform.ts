// The performer: the program that systemd starts in the cage. It runs the present release's executable, without the application. It
// starts the present release on the copy, then the candidate, then the present release again, and reports.
// Must hold: after a release has run, the performer trusts no file in the folder; it exits as soon as its request is gone, the
// connection to the service ends, or the disk is about to be full; when it exits, everything in the cage ends, because it is the first
// process there. No release can look into it or write to it, though all are of one user.

import { randomBytes } from 'node:crypto'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { readRehearse } from '../../disk/copy-database.ts'
import { ROOM_BYTES } from '../../disk/reserve.ts'
import { askHere } from '../../sockets/local-request.ts'
import { memoryKills } from '../../sockets/memory.ts'
import { KILLED_FOR_MEMORY } from '../../words/blame.ts'
import { howEnded } from '../../words/ended.ts'
import { untilWell } from '../../words/until-well.ts'
import { TRIAL } from '../../words/wire.ts'
import { ownDatabase, ownExecutable, ownRelease } from '../../own.ts'
import { reasonOf } from '../../words/errors.ts'
import type { Rehearse, RehearseRequest } from '../../words/rehearsal.ts'
import { freePort, type Started, startProgram } from '../started.ts'
import { standAlone } from '../../sockets/libc-later.ts'
import {
  type CageRequest,
  REHEARSAL_FOLDER,
  REHEARSAL_REPORT,
  REHEARSAL_REQUEST,
  REHEARSAL_SOCKET,
} from './ask-cage.ts'
import { foreseeFull } from './budget.ts'
import { type Contents, contentsNow, type CopyLook, lookAtDatabase, prepareDatabase } from './look.ts'
import { damagedOf, lookAgainAt, lookAtOthers } from './others.ts'
import type { Report, Run } from './report.ts'
import { bodyBegin, lastWords, logEnd } from './said.ts'
import { whyNotAdditive } from './schema-difference.ts'
import { type Changed, changedIn, whyValuesChanged } from './values.ts'

const CONFIG = '.trial-config.json'
const [ANSWER_MS, POLL_MS, WATCH_MS] = [10_000, 50, 20]
const READS = ['GET', 'HEAD', 'OPTIONS']

/** The working directory is the state directory, with the copy in its place. Resolves to the exit code. */
export async function perform(): Promise<number> {
  standAlone()
  const state = process.cwd()
  const folder = process.env[REHEARSAL_FOLDER]
  return folder === undefined ? await performIn(besideUs(state)) : await performIn(await inOwnRoom(state, folder))
}

/** Where the performer works, and whom it reports to. */
interface Ground {
  state: string
  request: CageRequest
  /** nobody waits for the report any more */
  isLeft(): boolean
  /** the releases have used up, or nearly, what they may write */
  isFull(): boolean
  say(report: Partial<Report>): void
  /** resolves when everything that was said has been heard */
  end(): Promise<void>
}

/** Without a cage of systemd's: the request and the report lie in the folder with the copy. */
function besideUs(state: string): Ground {
  const request = JSON.parse(readFileSync(join(state, REHEARSAL_REQUEST), 'utf8')) as CageRequest
  const isFilling = foreseeFull()
  return {
    state,
    request,
    isLeft: () => !existsSync(join(state, REHEARSAL_REQUEST)),
    isFull() {
      const { bavail, bsize } = statfsSync(state)
      return isFilling(bavail * bsize - ROOM_BYTES)
    },
    say: (report) => writeReport(state, report),
    end: async () => {},
  }
}

/** What is left of the cage's own file system when it counts as full: a release may have been refused a write already. */
const [LEFT_BYTES, LEFT_FILES] = [1024 ** 2, 64]

/** In the cage: the folder is read-only, so the copy moves into the file system that the unit has made for this trial. */
async function inOwnRoom(state: string, folder: string): Promise<Ground> {
  const service = connect(join(folder, REHEARSAL_SOCKET))
  await once(service, 'data') // the socket has no name any more
  let isLeft = false
  service.on('error', () => {}).on('close', () => (isLeft = true))
  const request = JSON.parse(readFileSync(join(folder, REHEARSAL_REQUEST), 'utf8')) as CageRequest
  const ground: Ground = {
    state,
    request,
    isLeft: () => isLeft,
    isFull() {
      const { bavail, bsize, files, ffree } = statfsSync(state)
      return bavail * bsize < LEFT_BYTES || (files > 0 && ffree < LEFT_FILES)
    },
    say: (report) => void service.write(`${JSON.stringify(report)}\n`),
    end: async () => await ended(service),
  }
  const { mode, uid } = statSync(state)
  const hasRoom = uid === process.getuid?.() && (mode & 0o200) !== 0 && !ground.isFull()
  if (!hasRoom) {
    ground.say({ phase: 'no-room' })
    await ground.end()
    process.exit(0)
  }
  const own = [REHEARSAL_REQUEST, REHEARSAL_SOCKET]
  cpSync(folder, state, { recursive: true, filter: (from) => !own.includes(basename(from)) })
  return ground
}

async function ended(service: Socket): Promise<void> {
  await new Promise<void>((resolve) => service.end(resolve))
}

async function performIn(ground: Ground): Promise<number> {
  const report: Partial<Report> = { phase: 'begun' }
  const tell = (more: Partial<Report>) => ground.say(Object.assign(report, more))
  let isFull = false
  // the service watches too, but it may be busy, and it cannot end a release as fast
  const watch = setInterval(() => {
    if (ground.isLeft()) process.exit(1)
    if (!isFull && ground.isFull()) {
      isFull = true
      tell({ phase: 'full' })
      endAll()
      void ground.end().then(() => process.exit(0))
    }
  }, WATCH_MS)
  tell({})
  try {
    await rehearseIn(ground.state, ground.request, (more) => void (isFull || tell(more)))
    if (!isFull) tell({ phase: ground.isFull() ? 'full' : 'done' })
    await ground.end()
    return 0
  } finally {
    clearInterval(watch)
    endAll()
  }
}

async function rehearseIn(state: string, request: CageRequest, tell: (more: Partial<Report>) => void): Promise<void> {
  const { candidate, startMs } = request
  const present = ownExecutable() ?? process.execPath
  if (request.environment !== undefined) return await rehearseElsewhere(state, present, request, tell)
  const path = placeCopy(state, request)
  const [own, other] = [await readRehearse(present), await readRehearse(candidate)]
  tell({ phase: 'present', reversible: other?.reversible === true })
  const about = (executable: string, rehearse: Rehearse | null) => ({ executable, rehearse, state, startMs })
  const failure = own?.prepare === undefined ? null : prepareDatabase(path, own.prepare)
  if (failure !== null) return tell({ present: { ms: null, failure, refused: null, requests: 0, writes: 0 } })
  const asCopied = contentsNow(path)
  const first = await tryOnCopy(about(present, own))
  tell({ present: first })
  if (first.failure !== null) return
  const before = lookAtDatabase(path)
  if (typeof before === 'string') return tell({ present: { ...first, failure: before } })
  const files = own?.files ?? []
  const others = await lookAtOthers(state, files, path)
  tell({ phase: 'candidate', rows: sum(before), others: Object.keys(others) })
  // look before the requests: rows that they write must not hide rows that the migration has lost, nor pass for values that it has changed
  const migrated: { contents: Contents | null } = { contents: null }
  const second = await tryOnCopy(about(candidate, other), () => void (migrated.contents = contentsNow(path)))
  tell({ candidate: second })
  if (second.failure !== null) return
  const after = lookAtDatabase(path)
  const { rows, values } = migrated.contents ?? { rows: null, values: null }
  const itself = asCopied === null ? {} : changedIn(asCopied.values, before.values)
  const difference =
    typeof after === 'string'
      ? { difference: after }
      : compared(before, { ...after, rows: fewest(rows, after.rows), values }, itself)
  const damage = damagedOf(others, await lookAgainAt(state, Object.keys(others)))
  tell({ ...difference, ...(damage !== null && { damage }), phase: 'present-again' })
  tell({ presentAgain: await tryOnCopy(about(present, own)) })
}

/** The data are in a scratch database, into which nobody here looks. */
async function rehearseElsewhere(
  state: string,
  present: string,
  { candidate, startMs, environment }: CageRequest,
  tell: (more: Partial<Report>) => void,
): Promise<void> {
  const [own, other] = [await readRehearse(present), await readRehearse(candidate)]
  const about = (executable: string, rehearse: Rehearse | null) => ({
    executable,
    rehearse,
    state,
    startMs,
    environment,
  })
  tell({ phase: 'present', reversible: other?.reversible === true })
  const first = await tryOnCopy(about(present, own))
  tell({ present: first })
  if (first.failure !== null) return
  tell({ phase: 'candidate' })
  const second = await tryOnCopy(about(candidate, other))
  tell({ candidate: second })
  if (second.failure !== null) return
  tell({ difference: 'data outside SQLite is not compared', phase: 'present-again' })
  tell({ presentAgain: await tryOnCopy(about(present, own)) })
}

/** Puts the copy at the database's path, and returns that path. */
function placeCopy(state: string, { database, copy }: CageRequest): string {
  const own = ownDatabase(ownRelease().service, state)
  if (database === null && own === null) throw new Error('this release has no database')
  const path = database === null ? (own ?? state) : join(state, database)
  if (copy === undefined) return path
  mkdirSync(dirname(path), { recursive: true })
  renameSync(join(state, copy), path)
  return path
}

function fewest(rows: CopyLook['rows'] | null, later: CopyLook['rows']): CopyLook['rows'] {
  return Object.fromEntries(
    Object.entries(later).map(([table, count]) => [table, Math.min(count, rows?.[table] ?? count)]),
  )
}

type Compared = Pick<Report, 'damage' | 'lost' | 'difference' | 'changed'>

/** What a migration has changed, as far as it matters. `itself`: what the present release changes whenever it runs. Pure. */
export function compared(
  before: CopyLook,
  after: Omit<CopyLook, 'values'> & { values: CopyLook['values'] | null },
  itself: Changed = {},
): Compared {
  const orphans = (after.orphans ?? 0) - (before.orphans ?? after.orphans ?? 0)
  const damage =
    after.fault !== null && before.fault === null
      ? `the database is damaged: ${after.fault}`
      : orphans > 0
        ? `the number of rows that refer to missing rows has grown by ${orphans} (PRAGMA foreign_key_check)`
        : null
  // a renamed table counts as lost too: the present release looks for its rows under the old name
  const fewer = Object.entries(before.rows).find(([table, rows]) => (after.rows[table] ?? 0) < rows)
  const missing = fewer === undefined ? 0 : fewer[1] - (after.rows[fewer[0]] ?? 0)
  const lost = fewer === undefined ? null : `${missing} ${missing === 1 ? 'row' : 'rows'} of ${fewer[0]} would be lost`
  const uncheckable =
    before.orphans !== null && after.orphans === null
      ? 'a foreign key refers to columns that are not a key (PRAGMA foreign_key_check)'
      : null
  const changed =
    after.values === null
      ? 'values in the database could not be compared, because the new release locks it exclusively'
      : whyValuesChanged(changedIn(before.values, after.values), itself)
  return { damage, lost, difference: whyNotAdditive(before.schema, after.schema) ?? uncheckable, changed }
}

interface About {
  executable: string
  rehearse: Rehearse | null
  state: string
  startMs: number
  /** beside what every release on trial is given */
  environment?: Record<string, string> | undefined
}

/** Starts a release on the copy, sends it the author's requests, and ends it and its children. `onWell`: called before the requests. */
async function tryOnCopy(
  { executable, rehearse, state, startMs, environment = {} }: About,
  onWell: () => void = () => {},
): Promise<Run> {
  const requests = rehearse?.requests ?? []
  const about = { requests: requests.length, writes: requests.filter(isWrite).length }
  const port = await freePort()
  const config = join(state, CONFIG)
  const dashboard = { password: randomBytes(16).toString('hex') }
  rmSync(config, { force: true, recursive: true })
  const settings = { dashboard, listen: { host: '127.0.0.1', port }, stateDirectory: state }
  writeFileSync(config, JSON.stringify(settings), { mode: 0o600, flag: 'wx' })
  const child = startRelease(executable, config, state, environment)
  try {
    const { ms, failure, ...late } = await whenWell(child, port, startMs)
    const wrote = late.lateMs === undefined ? lastWords : logEnd
    if (failure !== null) return { ms, failure: `${failure}${wrote(child)}`, refused: null, ...late, ...about }
    onWell()
    let refused: string | null = null
    for (const request of requests) refused ??= await whyRefused(port, request)
    if (refused === null && child.ended() !== null) refused = `it ${child.ended()}${lastWords(child)}`
    return { ms, failure: null, refused, ...about }
  } finally {
    await child.end()
    endAll() // its children in other process groups
  }
}

function startRelease(executable: string, config: string, state: string, more: Record<string, string>): Started {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', BATON_NODE } = process.env
  const own = { HOME: state, STATE_DIRECTORY: state, LANG: 'C.UTF-8', [TRIAL]: '1' }
  const env = { ...more, PATH, ...own, ...(BATON_NODE === undefined ? {} : { BATON_NODE }) }
  return startProgram([executable, 'serve', '--config', config], { cwd: state, env })
}

/** How its start went: milliseconds until the first good answer, or why there is none. */
async function whenWell(child: Started, port: number, mostMs: number): Promise<Pick<Run, 'ms' | 'failure' | 'lateMs'>> {
  const { healthPath } = ownRelease()
  const killsBefore = memoryKills()
  const path = healthPath ?? '/'
  const began = performance.now()
  let end: string | null = null
  const look = async () => {
    end = child.ended()
    if (end !== null) return null
    try {
      const { status, said } = await ask(port, { path })
      return status < 300 || (healthPath === null && status < 500) ? null : `${path} returned ${status}${said}`
    } catch (cause) {
      return reasonOf(cause)
    }
  }
  const last = await untilWell(look, mostMs, POLL_MS)
  const ended = end as string | null
  if (ended === howEnded(null, 'SIGKILL') && memoryKills() > killsBefore)
    return { ms: null, failure: KILLED_FOR_MEMORY }
  if (ended !== null) return { ms: null, failure: `it ${ended}` }
  if (last === null) return { ms: Math.round(performance.now() - began), failure: null }
  return { ms: null, failure: `it was not healthy after ${Math.round(mostMs / 1000)} s: ${last}`, lateMs: mostMs }
}

/** Why the answer is not as the author expects; null: it is. */
async function whyRefused(port: number, request: RehearseRequest): Promise<string | null> {
  const { method = 'GET', path, status: wanted } = request
  try {
    const { status, said } = await ask(port, request)
    const isGood = wanted === undefined ? status >= 200 && status < 300 : status === wanted
    return isGood ? null : `${method} ${path} returned ${status}${said}, expected ${wanted ?? 'a 2xx'}`
  } catch (cause) {
    return `${method} ${path}: ${reasonOf(cause)}`
  }
}

/** `said`: how the body of an error begins, else empty. */
async function ask(port: number, request: RehearseRequest): Promise<{ status: number; said: string }> {
  const { method = 'GET', path, body, headers = {} } = request
  const sent = body === undefined ? {} : { body: JSON.stringify(body) }
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  using answer = await askHere(
    { host: '127.0.0.1', port },
    { method, path, headers: { ...type, ...headers }, ...sent, signal: AbortSignal.timeout(ANSWER_MS) },
  )
  return { status: answer.status, said: answer.status < 400 ? '' : await bodyBegin(answer.body) }
}

function isWrite({ method = 'GET' }: RehearseRequest): boolean {
  return !READS.includes(method.toUpperCase())
}

/** Kills every other process in the cage. Only as pid 1 of the cage's namespace: elsewhere -1 would reach every process of the user. */
function endAll(): void {
  if (process.pid !== 1) return
  try {
    process.kill(-1, 'SIGKILL')
  } catch {
    return // no process is left
  }
}

/** Writes by a rename: a release may have put a link under the report's name, and a rename replaces the link. */
function writeReport(state: string, report: Partial<Report>): void {
  const temporary = join(state, `${REHEARSAL_REPORT}.${randomBytes(6).toString('hex')}`)
  writeFileSync(temporary, JSON.stringify(report), { mode: 0o600, flag: 'wx' })
  renameSync(temporary, join(state, REHEARSAL_REPORT))
}

function sum({ rows }: CopyLook): number {
  return Object.values(rows).reduce((all, one) => all + one, 0)
}
