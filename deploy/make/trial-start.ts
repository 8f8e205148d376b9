// Starts the built release as an installer would, in an empty folder, sends it requests, and switches it to itself once: a green build
// is worth nothing if the release does not start, if it starts without the agent, or if it cannot be switched. Looks at what it has open,
// and compares that with the configuration.
// Must hold: whatever the application does, it is ended and leaves nothing behind; no file of the author is changed.

import { randomBytes } from 'node:crypto'
import { constants, copyFile, mkdir, readdir, writeFile } from 'node:fs/promises'
import { basename, join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Protocol, schemeOf } from '../../agent/first.ts'
import {
  databasesIn,
  freePort,
  makeDisk,
  placesOf,
  type Started,
  startProgram,
  TRIAL,
  unpackedHome,
  writeReceipt,
} from '../../agent/install.ts'
import { afterPrinting, BatonError, durationText, reasonOf, series, type UpdateTimes } from '../../agent/words.ts'
import { isFromAgent } from '../lib/agent-answer.ts'
import { callHttp, statusHere } from '../lib/http.ts'
import { ownName } from '../lib/own-name.ts'
import { onlyOneCanHave } from '../lib/only-one.ts'
import { listensEverywhere } from '../lib/open-files.ts'
import { formatDuration, formatPorts } from '../lib/progress.ts'
import { temporaryPlace } from '../lib/trusted.ts'
import { detect, isBrought, sourceOf } from './detect.ts'
import { lineFor, linesAround, PACKAGE } from './init.ts'
import { provideNode } from './node.ts'
import { type Noted, takeNotes } from './noted.ts'
import type { Project } from './project.ts'
import {
  allLooks,
  dataElsewhere,
  databasesBelow,
  keptBelow,
  keptInside,
  lookAt,
  type Looked,
  lyingIn,
  sentencesOfCwd,
  sentencesOfOwnFolder,
  sentencesOfThreads,
  splitDatabases,
} from './seen.ts'
import { answerOf, endingAllWith, LOOK_AGAIN_MS, NO_PATH, runToEnd, trialEnvironment } from './trial.ts'
import { type Switched, trySwitch } from './trial-switch.ts'
import { temporaryDirectory } from './temporary.ts'

/** enough to unpack some ten thousand files on a slow disk */
const UNPACK_MS = 300_000
/** of the switch to itself: what dies later than this has died in the trial start already */
const PROBATION_MS = 500
/** what a switch has left behind is seen in /proc only */
const CAN_SWITCH = process.platform === 'linux'
const ASK_MS = 3000

export interface TrialEnd {
  /** a line for a person */
  line: string
  /** what the configuration does not say, or says otherwise than what was seen; a sentence each */
  warnings: string[]
  /** it listens on every address, though it is told one */
  isEverywhere: boolean
}

export interface TryOptions {
  /** called with the name of each stage */
  stage?: (name: string) => void
  /** what may keep it from starting, and what to do about it */
  doubt?: string
}

/** For a hint, if nothing is known of what may keep it from starting. */
export function startedAs({ called }: Pick<Project, 'called'>): string {
  return `the program starts in an empty directory, with only the variables from \`environment\` in ${called}, and none from your shell`
}

/** Throws BatonError verify_failed with the application's output. */
export async function tryOut(
  project: Project,
  built: string,
  { stage = () => {}, doubt = startedAs(project) }: TryOptions = {},
): Promise<TrialEnd> {
  // not below the project: Node would find a forgotten package in the project's node_modules
  await using work = await temporaryDirectory(await temporaryPlace())
  const install = await installIn(work.path, built, project)
  const { executable, state, config, port, env } = install
  if (project.kind === 'app') {
    stage('unpack')
    await runToEnd([executable, '--prepare'], { cwd: state, env }, UNPACK_MS)
  }
  stage('start')
  const startedAt = performance.now()
  await using all = endingAllWith(state)
  const taker = takeNotes(work.path, port)
  const noting = { ...env, NODE_OPTIONS: taker.nodeOptions(env['NODE_OPTIONS']) }
  await using started = startProgram([executable, 'serve', '--config', config], { cwd: state, env: noting })
  const { status, protocol } = await firstGoodAnswer(project, install, { started, doubt })
  const startMs = performance.now() - startedAt
  const took = formatDuration(startMs)
  const assertRuns = () =>
    refuseEnd(started, `it answered ${project.healthPath ?? '/'} with ${status} after ${took}`, doubt)
  await assertAgent(project, install, taker).catch((cause: unknown) => {
    assertRuns() // what has ended answers nothing, and that says nothing of the agent
    throw cause
  })
  await askMore(port, protocol)
  const seen = await lookTwice(started)
  const isEverywhere = await listensEverywhere(port)
  assertRuns()
  const home = unpackedHome(executable, project.service)
  await refuseDatabases(home, project)
  const noted = await taker.read()
  const unpacked = await unpackedIn(project, home)
  const against = await againstStartFirst(project, started.pid, port)
  stage('switch')
  const switched = await switchOnce(project, install, { started, protocol, startMs, ports: seen?.ports ?? [] })
  await all[Symbol.asyncDispose]() // its processes have ended, so what they left can be looked at
  // the application may read a database that it ships
  const open = (seen?.databases ?? []).filter((database) => !database.startsWith(home))
  const databases = [...new Set([...open, ...(await databasesBelow(state))])]
  const odd = status >= 400 ? ' (set `healthPath` to a page that returns 200)' : ''
  return {
    isEverywhere,
    line: `answers ${project.healthPath ?? '/'} ${wordsOf[protocol]}with ${status}${odd} after ${took}${formatSeen(seen, port, noted)}; ${switched.words}`,
    warnings: [
      ...(isEverywhere ? [EVERYWHERE] : []),
      ...switched.warnings,
      ...sentencesOfThreads(noted.inThreads),
      ...(await aboutPaths(project, { unpacked, state, databases }, noted)),
      ...(unpacked === null ? [] : sentencesOfOwnFolder(await keptInside(unpacked, noted.makes), project)),
      ...aboutScheme(project.scheme, schemeOf(protocol)),
      ...against,
      ...aboutDatabases(project, databases, state),
    ],
  }
}

async function lookTwice({ pid }: Started): Promise<Looked | null> {
  const first = await lookAt(pid)
  await sleep(LOOK_AGAIN_MS)
  return allLooks([first, await lookAt(pid)])
}

const EVERYWHERE =
  'the application listens on every address, ignoring the one that it is given: pass `process.env.HOST` to `listen` (or `{host}` in `args`)'

/** Files of its own that it looks for elsewhere. `unpacked`: of `unpackedIn`. */
async function aboutPaths(
  project: Project,
  { unpacked, state, databases }: { unpacked: string | null; state: string; databases: readonly string[] },
  { absent }: Noted,
): Promise<string[]> {
  const own = unpacked === null ? project.folder : join(unpacked, 'app')
  const written = [...splitDatabases(databases, state).inside, ...(await keptBelow(state))]
  return sentencesOfCwd(await lyingIn(own, state, absent), written, project)
}

/** The folder of the release in `home`; null: its kind has none. */
async function unpackedIn({ kind }: Project, home: string): Promise<string | null> {
  const [name] = kind === 'app' ? (await readdir(home).catch(() => [])).filter((one) => !one.startsWith('.')) : []
  return name === undefined ? null : join(home, name)
}

/** Throws if it has ended. `before`: what it did until then. */
function refuseEnd({ ended, said }: Started, before: string, doubt: string): void {
  const how = ended()
  if (how === null) return
  throw new BatonError(
    'verify_failed',
    `starting the built release: ${before}, but then ${how}${afterPrinting(said())}`,
    { hint: doubt },
  )
}

interface TrialInstall {
  executable: string
  state: string
  /** path of its configuration */
  config: string
  port: number
  password: string
  env: NodeJS.ProcessEnv
}

async function installIn(folder: string, built: string, { service, try: tried }: Project): Promise<TrialInstall> {
  const [executable, state, config] = [join(folder, 'service'), join(folder, 'state'), join(folder, 'config.json')]
  await copyFile(built, executable, constants.COPYFILE_FICLONE)
  await mkdir(state)
  const port = await freePort()
  const password = randomBytes(16).toString('hex')
  const listen = { host: '127.0.0.1', port }
  const update: UpdateTimes = { probation: durationText(PROBATION_MS) }
  const settings = {
    dashboard: { password },
    listen,
    stateDirectory: state,
    feed: state,
    update,
  }
  await writeFile(config, JSON.stringify(settings), { mode: 0o600 })
  const env = {
    ...trialEnvironment(state),
    ...tried.environment,
    ...(CAN_SWITCH ? { [TRIAL]: 'switch' } : {}),
    BATON_NODE: await provideNode(),
  }
  if (CAN_SWITCH) await makeManaged(service, { executable, state, config })
  return { executable, state, config, port, password, env }
}

/** What an update finds: the receipt, and a release to go to, which is a copy, since a backup that is the same file is none. */
async function makeManaged(
  service: string,
  { executable, state, config }: Pick<TrialInstall, 'executable' | 'state' | 'config'>,
): Promise<void> {
  const { backup } = placesOf(executable)
  await copyFile(executable, backup, constants.COPYFILE_FICLONE)
  const options = { feed: state, user: ownName(), installedAt: new Date().toISOString(), options: {} }
  const place = { service, executable, stateDirectory: state, configPath: config }
  await writeReceipt(makeDisk(), { format: 1, scope: 'user', supervisor: 'none', ...place, ...options })
}

async function switchOnce(
  { healthPath, onStop }: Project,
  { port, password, state }: TrialInstall,
  seen: { started: Started; protocol: Protocol; startMs: number; ports: readonly number[] },
): Promise<Switched> {
  if (!CAN_SWITCH) return { words: 'the switch was not tried: its result can be observed only on Linux', warnings: [] }
  const { started, ...rest } = seen
  const path = healthPath ?? '/'
  return await trySwitch({
    ...rest,
    port,
    password,
    state,
    path,
    mustBeWell: healthPath !== null,
    onStop,
    said: started.said,
  })
}

async function firstGoodAnswer(
  { healthPath }: Project,
  { port }: TrialInstall,
  { started, doubt }: { started: Started; doubt: string },
): Promise<{ status: number; protocol: Protocol }> {
  const answer = await answerOf({ port, path: healthPath ?? '/' }, healthPath !== null, started)
  if (typeof answer !== 'string') return answer
  const ports = started.ended() === null ? ((await lookAt(started.pid))?.ports ?? []) : []
  const isElsewhere = ports.length > 0 && !ports.includes(port)
  const other = isElsewhere ? `, but it listens on ${formatPorts(ports)}` : ''
  throw new BatonError(
    'verify_failed',
    `starting the built release: ${answer}${other}${afterPrinting(started.said())}`,
    {
      hint: isElsewhere ? TO_PORT : doubt,
    },
  )
}

const TO_PORT =
  'have the application listen on the port that it is given: `listen(process.env.PORT ?? 8080, process.env.HOST)`, or pass it `{port}` in `args` or `environment`'

/** for a line, before `with`; plain HTTP is not worth a word */
const wordsOf: Record<Protocol, string> = {
  http: '',
  https: 'over https ',
  h2: 'over https (HTTP/2) ',
  h2c: 'over HTTP/2 without TLS ',
}

/** Pure. A release may have changed what it speaks: then what stands in the configuration would send people elsewhere. */
export function aboutScheme(said: Project['scheme'], spoken: 'http' | 'https'): string[] {
  if ((said ?? 'http') === spoken) return []
  return [
    `it serves ${spoken}, but \`scheme\` is ${said === null ? 'not set' : JSON.stringify(said)}, so an install would show an ${said ?? 'http'}:// address for its panel: set \`"scheme": "${spoken}"\``,
  ]
}

/** A server of files looks for each path that it is asked for, and what it misses there is noted. */
async function askMore(port: number, protocol: Protocol): Promise<void> {
  const tls = schemeOf(protocol) === 'https'
  for (const path of ['/', NO_PATH])
    await statusHere({ place: { host: '127.0.0.1', port }, path, tls }, ASK_MS).catch(() => {})
}

/** Throws unless Baton's agent answers too: nobody could ever update what was built. */
async function assertAgent(
  project: Project,
  { port, password: token }: TrialInstall,
  { read }: Pick<ReturnType<typeof takeNotes>, 'read'>,
): Promise<void> {
  const address = { tls: false, host: '127.0.0.1', port } // which protocol it speaks is seen
  const got = await callHttp(address, '/admin/update/status', { token }).then(
    (answer) => (isFromAgent(answer) ? null : `the application itself responded with ${answer.status}`),
    (cause: unknown) => reasonOf(cause),
  )
  if (got === null) return
  const { folder, entry } = project
  const expected = `the agent inside the application did not respond (${got})`
  const { listens, inThreads } = await read()
  if (listens.length === 0 && inThreads.length > 0)
    throw new BatonError(
      'verify_failed',
      `${expected}: no server is listening in the main thread, only in a worker thread`,
      {
        hint: 'listen in the main thread, and leave the work to the worker: an update hands over only servers in the main thread',
      },
    )
  const why = `perhaps ${entry} does not load the agent, or opens fewer servers than \`servers\` says`
  throw new BatonError('verify_failed', `${expected}: ${why}`, {
    hint: `${howToEmbed(folder, entry)}, or call \`embed()\` from \`${PACKAGE}\`; if \`servers\` is set, check that the application starts that many HTTP servers`,
  })
}

/** For a hint. Names no file that a build or npm would overwrite. */
export function howToEmbed(folder: string, entry: string): string {
  const { made, isModule } = detect(folder)
  const [first, second] = linesAround(entry)
  const own = `set \`entry\` to a file of your own, such as server.mjs, with the lines \`${first}\` and \`${second}\``
  if (entry === made) return `each build overwrites ${entry}: ${own}`
  if (isBrought(entry))
    return `npm restores the original ${entry}: run \`baton init\` to write a file that loads it after the agent; or ${own}`
  const source = sourceOf(folder, entry) ?? entry
  return `make \`${lineFor(source, isModule)}\` the first line of ${source} (\`baton init\` does this)`
}

/** What this start shows that two processes cannot have at once, if two are to live at once. */
async function againstStartFirst({ order, servers }: Project, pid: number, port: number): Promise<string[]> {
  if (order !== 'start-first') return []
  const against = await onlyOneCanHave(pid, servers === null ? null : { port, servers })
  if (against.length === 0) return []
  return [`\`order\` is "start-first", but only one process can hold ${against.join(', ')}`]
}

/** Pure. `seen`: absolute paths. */
export function aboutDatabases(
  { database: configured, called }: Pick<Project, 'database' | 'called'>,
  seen: readonly string[],
  stateDirectory: string,
): string[] {
  const { inside, outside } = splitDatabases(seen, stateDirectory)
  const others = inside.filter((path) => path !== configured)
  const isThere = configured !== null && inside.includes(configured)
  const line = (path: string) => `write \`"database": ${JSON.stringify(path)}\` into ${called}`
  return [
    ...others.map((path) =>
      isThere
        ? `it also uses the database ${path}, but an update takes a snapshot only of ${configured}`
        : `it uses the database ${path}, but \`database\` is ${configured === null ? 'not set' : JSON.stringify(configured)}, so an update would not take a snapshot of it: ${line(path)}`,
    ),
    ...outside.map(
      (path) => `it uses the database ${path}, which is not in the state directory: updates take no snapshot of it`,
    ),
    ...(configured !== null && !isThere && others.length === 0
      ? [
          `\`database\` is ${JSON.stringify(configured)}, but this start did not create that file: updates are refused while the state directory contains other files but not this one`,
        ]
      : []),
  ]
}

/** Pure. An install has neither the port of this start nor a random one, so neither is named. */
export function formatSeen(seen: Looked | null, own: number, { listens }: Pick<Noted, 'listens'>): string {
  if (seen === null) return '; its open files are unknown: they can be seen only on Linux'
  const { children } = seen
  const others = seen.ports.filter((port) => port !== own)
  const named = listens.includes('0') ? others.filter((port) => listens.includes(String(port))) : others
  const free = others.length - named.length
  const random = free === 0 ? [] : [free === 1 ? 'a random port' : `${free} random ports`]
  const told = [...(named.length === 0 ? [] : [formatPorts(named)]), ...random]
  const ports = others.length === 0 ? '' : `; it also listens on ${series(told, 'and')}`
  return children.length === 0 ? ports : `${ports}; it started ${children.join(', ')}`
}

/** Refuses an application with a database in its own folder: each release has a separate folder, so an update would lose it. */
async function refuseDatabases(home: string, { called }: Project): Promise<void> {
  for (const name of await readdir(home).catch(() => [])) {
    const [database] = await databasesIn(join(home, name))
    if (database === undefined) continue
    const path = relative(join(home, name, 'app'), database)
    throw new BatonError(
      'verify_failed',
      `the database ${path} is inside the application's own folder: each release has its own folder, so an update would start with an empty ${basename(path)}`,
      {
        hint: dataElsewhere(called),
      },
    )
  }
}
