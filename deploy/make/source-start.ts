// Starts an application once from its source, for `baton init`, if its author has allowed that, and looks at what it opens. The
// application gets what an install would give it, with a temporary state directory and a free port.
// Must hold: the application is always ended; this file writes nothing of what it has seen.

import { mkdir, stat, writeFile } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort, type Started, startProgram } from '../../agent/install.ts'
import { afterPrinting, howEnded, reasonOf, series, untilWell } from '../../agent/words.ts'
import { type Protocol, schemeOf } from '../../agent/first.ts'
import { sizeHere } from '../lib/http.ts'
import { formatDuration, formatPorts } from '../lib/progress.ts'
import { END_SIGNALS, onSignals } from '../lib/signals.ts'
import { temporaryPlace } from '../lib/trusted.ts'
import { type Detected, startable } from './detect.ts'
import { filled } from './first/configuration.ts'
import { provideNode } from './node.ts'
import { type Noted, takeNotes } from './noted.ts'
import { preloadFrom } from './preload.ts'
import type { Project } from './project.ts'
import {
  allLooks,
  databasesBelow,
  keptBelow,
  lookAt,
  lyingIn,
  sentencesOfCwd,
  sentencesOfThreads,
  splitDatabases,
  writtenSince,
} from './seen.ts'
import { exitAtOnce, temporaryDirectory } from './temporary.ts'
import { LOOK_AGAIN_MS, NO_PATH, runToEnd, START_MS, trialEnvironment } from './trial.ts'

export interface SourceStart {
  /** below the state directory; null: it was seen to have none, or several */
  database: string | null
  /** answered 2xx */
  healthPath: string | null
  /** null: it serves plain HTTP, or nothing was seen */
  scheme: 'https' | null
  /** `app`: it looks for files of its own in the directory in which it is started */
  cwd: 'app' | null
  /** the ports on which it listens, if the one that it was given is none of them */
  otherPorts: number[]
  /** sentences for the author */
  notes: string[]
  /** what an operator has to know as well; a sentence each */
  warnings: string[]
  /** why it could not be looked at, such as that it answers nothing over HTTP, and whether it ended with an error; absent: it could */
  failed?: { why: string; isFault: boolean }
  /** it ended because a native addon is built for another Node */
  needsRebuild?: true
}

/** what Node says of an addon that another Node has built: https://nodejs.org/api/errors.html#err_dlopen_failed */
const OTHER_ABI = /NODE_MODULE_VERSION|ERR_DLOPEN_FAILED/

const ANSWER_MS = 3000
/** as an install has, in its state directory; and no other answer is so long */
const [OWN_FILE, OWN_BYTES] = ['update/seen', 40_961]
const PORTS_MAX = 16
const USUAL_HEALTH = ['/healthz', '/health', '/livez', '/readyz', '/api/health', '/status', '/api/status', '/ping']
/** a longer answer is a page, which costs more to make and says less */
const HEALTH_MAX_BYTES = 4096

const NO_VALUES = { host: '127.0.0.1', path: '', feed: '', basePath: '' }

/** `environment` and `args`: texts with {port} and the like. An application that does not start is no failure, but a note. */
export async function startFromSource(
  folder: string,
  found: Detected,
  { environment, args, try: tried, called }: Pick<Project, 'environment' | 'args' | 'try' | 'called'>,
): Promise<SourceStart> {
  const file = startable(folder, found)
  if (file === null) return unstarted(found, `${found.entry ?? 'its entry'} is missing`)
  using _signals = onSignals(END_SIGNALS, () => exitAtOnce(130)) // ends what it has started, and leaves no temporary folder
  await using work = await temporaryDirectory(await temporaryPlace())
  const [state, port] = [join(work.path, 'state'), await freePort()]
  await mkdir(dirname(join(state, OWN_FILE)), { recursive: true })
  await writeFile(join(state, OWN_FILE), 'x'.repeat(OWN_BYTES))
  const { mtimeMs: sinceMs } = await stat(state)
  const fill = (text: string) => filled(text, { ...NO_VALUES, port: String(port), stateDirectory: state })
  const env = { ...trialEnvironment(state), ...tried.environment, ...mapped(environment, fill) }
  const taker = takeNotes(work.path, port)
  const node = await nodeFor(folder, found)
  const failed = await runBefore(node, found.before, { folder, env, fill })
  if (failed !== null) return unstarted(found, failed)
  const began = performance.now()
  const command = [...taker.nodeFlags(), join(folder, file), ...args.map(fill)]
  await using started = startProgram([...node, ...command], { cwd: state, env })
  const problem = await untilItListens(started, port)
  const lost = (how: string) => ({ ...unseen(found), ...endedEarly(how, started) })
  if (problem !== null) return lost(problem)
  const took = formatDuration(performance.now() - began)
  const first = await lookAt(started.pid)
  await sleep(LOOK_AGAIN_MS)
  const early = started.ended()
  if (early !== null) return lost(`it was listening after ${took}, but then ${early}`)
  const second = await lookAt(started.pid)
  const { ports, health, answer, servesState } = await askOver(started, port, found.healthPath)
  const seen = allLooks([first, second, await lookAt(started.pid)]) // some drivers open a database only when it is asked
  const late = started.ended()
  if (late !== null) return lost(`it ${late} when ${health.path ?? '/'} was requested`)
  await started.end()
  const databases = [...new Set([...(seen?.databases ?? []), ...(await databasesBelow(state))])]
  const about = databasesFor(databases, state, folder)
  const noted = await taker.read()
  const { cwd, notes } = await aboutFiles({ folder, state, databases, sinceMs }, noted, called)
  return {
    database: about.database,
    healthPath: health.path,
    scheme: answer !== null && schemeOf(answer.protocol) === 'https' ? 'https' : null,
    cwd,
    ...failedIfMute(ports, seen?.ports ?? [port]),
    otherPorts: seen?.ports.includes(port) === false ? seen.ports : [],
    warnings: servesState ? [SERVES_STATE] : [],
    notes: [
      `in a test run, it was listening after ${took}, ${answerLine(answer, health.path ?? '/')}`,
      ...about.notes,
      ...notes,
      ...health.notes,
      ...sentencesOfPort(ports, port),
      ...(seen === null ? ['its open files are unknown: they can be seen only on Linux'] : []),
      ...sentencesOf(noted, called),
    ],
  }
}

function unseen({ healthPath }: Detected) {
  return { database: null, healthPath, scheme: null, cwd: null, otherPorts: [], warnings: [] }
}

function unstarted(found: Detected, why: string): SourceStart {
  return { ...unseen(found), notes: [`the application was not started: ${why}`] }
}

/** May download it. */
async function nodeFor(folder: string, { nodeFlags }: Detected): Promise<[string, ...string[]]> {
  return [await provideNode(), ...nodeFlags.map((flag) => preloadFrom(folder, flag))]
}

/** What the start has written besides databases, and which of its own files it has looked for elsewhere. */
async function aboutFiles(
  {
    folder,
    state,
    databases,
    sinceMs,
  }: { folder: string; state: string; databases: readonly string[]; sinceMs: number },
  { absent }: Noted,
  called: string,
): Promise<Pick<SourceStart, 'cwd' | 'notes'>> {
  const isOfDatabase = (name: string) => databases.includes(join(folder, name).replace(/-(wal|shm|journal)$/, ''))
  const written = (await writtenSince(folder, sinceMs)).filter((name) => !isOfDatabase(name))
  const kept = await keptBelow(state)
  const elsewhere = await lyingIn(folder, state, absent)
  const made = [...splitDatabases(databases, state).inside, ...kept]
  return {
    cwd: elsewhere.length === 0 ? null : 'app',
    notes: [...sentencesOfFiles(kept, written), ...sentencesOfCwd(elsewhere, made, { kind: 'app', called })],
  }
}

/** Resolves to what one of these commands said when it failed; null: none did. */
async function runBefore(
  node: [string, ...string[]],
  commands: Detected['before'],
  { folder, env, fill }: { folder: string; env: NodeJS.ProcessEnv; fill: (text: string) => string },
): Promise<string | null> {
  for (const [name = '', ...words] of commands) {
    const command: [string, ...string[]] = [...node, join(folder, name), ...words.map(fill)]
    const failed = await runToEnd(command, { cwd: folder, env }, START_MS).then(() => null, reasonOf)
    if (failed !== null) return failed
  }
  return null
}

/** What a start that failed is told as. */
function endedEarly(problem: string, started: Started): Pick<SourceStart, 'notes' | 'failed' | 'needsRebuild'> {
  const [note, wrote] = [`in a test run, ${problem}`, afterPrinting(started.said())]
  const failed = {
    why: `${problem}${wrote}`,
    isFault: ![null, howEnded(0, null)].includes(started.ended()),
  }
  if (!OTHER_ABI.test(wrote)) return { failed, notes: [`${note}${wrote}`] }
  const next = 'run `npx baton rebuild`, then `npx baton init --try` again'
  return { failed, needsRebuild: true, notes: [`${note}: its native addons were built for a different Node; ${next}`] }
}

function failedIfMute(answers: readonly number[], ports: readonly number[]): Pick<SourceStart, 'failed'> {
  if (answers.length > 0) return {}
  return { failed: { why: `it listens on ${formatPorts(ports)}, but does not answer over HTTP`, isFault: false } }
}

export function sentencesOf(noted: Noted, called: string): string[] {
  const { listens, runs, threads, inThreads, hearsSigterm, dotEnv } = noted
  const onSigterm = `the application handles SIGTERM, which an update does not send: to make an update call that handler and wait for it, set \`"onStop": "SIGTERM"\` in ${called}`
  return [
    ...(listens.length < 2
      ? []
      : [
          `the application listens on ${listens.length} ports: ${series(
            listens.map((port) => port.replace(/^(udp )?0$/, 'a random free $1port')),
            'and',
          )}`,
        ]),
    ...(runs.length === 0 ? [] : [`the application ran ${runs.join(', ')}, which each host needs as well`]),
    ...(threads === 0 ? [] : [`the application started ${threads} worker ${threads === 1 ? 'thread' : 'threads'}`]),
    ...sentencesOfThreads(inThreads),
    ...(hearsSigterm ? [onSigterm] : []),
    ...(dotEnv.length === 0
      ? []
      : [`the application reads ${dotEnv.join(', ')}, but a release never contains .env files`]),
  ]
}

/** Pure. What a start has written, besides databases. */
export function sentencesOfFiles(kept: readonly string[], written: readonly string[]): string[] {
  return [
    ...(kept.length === 0
      ? []
      : [
          `the application wrote files to the state directory (${kept.join(', ')}): every update keeps them, but no snapshot contains them`,
        ]),
    ...(written.length === 0
      ? []
      : [
          `the application wrote files to its own folder (${written.join(', ')}), which each release replaces: make their location configurable by an argument or an environment variable, and set that to \`{stateDirectory}\`, which is kept across updates`,
        ]),
  ]
}

function mapped(texts: Readonly<Record<string, string>>, change: (text: string) => string): Record<string, string> {
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, change(text)]))
}

const SERVES_STATE =
  'it serves its whole state directory, including what Baton keeps in `update/`: have it serve a subfolder instead, such as `{stateDirectory}/public`'

/** Pure. `given`: the port that it was told. */
function sentencesOfPort([first, ...others]: readonly number[], given: number): string[] {
  if (first === undefined || [first, ...others].includes(given)) return []
  return [
    `the application listens on port ${first} and ignores PORT, the variable that tells an installed service its port`,
  ]
}

/** Resolves to why it does not listen; null once it does. */
async function untilItListens({ pid, ended }: Started, port: number): Promise<string | null> {
  let end: string | null = null
  const late = `it did not start listening within ${START_MS / 1000} s`
  const last = await untilWell(async () => {
    end = ended()
    if (end !== null) return null
    const seen = await lookAt(pid)
    const listens = seen === null ? (await answering([port])).length > 0 : seen.ports.length > 0
    return listens ? null : late
  }, START_MS)
  return end === null ? last : `it ${end as string}`
}

/** What it answers over HTTP. `healthPath`: one that stands in its sources. */
async function askOver(started: Started, port: number, healthPath: string | null) {
  const ports = await answeringSoon(started, port)
  const asked = ports.includes(port) ? port : ports[0]
  const health = await healthOf(asked, healthPath)
  const ask = async (path: string) => (asked === undefined ? null : await askFor(asked, path))
  const servesState = (await ask(`/${OWN_FILE}`))?.bytes === OWN_BYTES
  return { ports, health, answer: await ask(health.path ?? '/'), servesState }
}

/** Its ports at which an HTTP server answers, once there is one: it may listen long before. None if it ends, or none comes. */
async function answeringSoon({ pid, ended }: Started, port: number): Promise<number[]> {
  let found: number[] = []
  await untilWell(async () => {
    found = await answering((await lookAt(pid))?.ports ?? [port])
    return found.length > 0 || ended() !== null ? null : 'no answer'
  }, START_MS)
  return found
}

/** Those at which an HTTP server answers, whatever it says. */
async function answering(ports: readonly number[]): Promise<number[]> {
  const found = await Promise.all(
    ports.slice(0, PORTS_MAX).map(async (port) => ((await statusOf(port, '/')) === null ? [] : [port])),
  )
  return found.flat()
}

/** `named`: a path that stands in the sources. */
async function healthOf(
  port: number | undefined,
  named: string | null,
): Promise<{ path: string | null; notes: string[] }> {
  if (port === undefined) return { path: named, notes: [] }
  const notes: string[] = []
  if (named !== null) {
    await statusOf(port, NO_PATH) // a server of files looks for it, and what it misses is noted
    const status = await statusOf(port, named)
    if (isGood(status)) return { path: named, notes }
    notes.push(
      `the source code mentions ${named}, which responded with ${status ?? 'nothing'}: it cannot be \`healthPath\``,
    )
  }
  if (isGood(await statusOf(port, NO_PATH)))
    return { path: null, notes: [...notes, 'every path returns 2xx, so no health route could be identified'] }
  for (const path of [...USUAL_HEALTH, '/']) {
    const answer = await askFor(port, path)
    if (answer !== null && isGood(answer.status) && answer.bytes <= HEALTH_MAX_BYTES) return { path, notes }
  }
  return { path: null, notes }
}

function answerLine(answer: { status: number; bytes: number; protocol: Protocol } | null, path: string): string {
  if (answer === null) return 'but did not answer over HTTP'
  const how = schemeOf(answer.protocol) === 'https' ? ' over https' : ''
  return `and answered \`${path}\`${how} with ${answer.status} (${answer.bytes} bytes)`
}

function isGood(status: number | null): boolean {
  return status !== null && status >= 200 && status < 300
}

async function statusOf(port: number, path: string): Promise<number | null> {
  return (await askFor(port, path))?.status ?? null
}

async function askFor(port: number, path: string): Promise<Awaited<ReturnType<typeof sizeHere>> | null> {
  return await sizeHere({ place: { host: '127.0.0.1', port }, path, tls: false }, ANSWER_MS).catch(() => null)
}

/** Pure. `seen`: absolute paths. */
export function databasesFor(
  seen: readonly string[],
  stateDirectory: string,
  folder: string,
): Pick<SourceStart, 'database' | 'notes'> {
  const { inside, outside } = splitDatabases(seen, stateDirectory)
  const notes = outside.map((path) =>
    path.startsWith(folder + sep)
      ? `it opens the database ${relative(folder, path)} in its own folder, where later releases will not find it: have the application read the location from a variable, such as DATA_DIR or STATE_DIRECTORY`
      : `it opens the database ${path}, but updates take no snapshot of it: snapshots cover only the state directory`,
  )
  const [database = null, ...others] = inside
  if (others.length === 0) return { database, notes }
  return {
    database: null,
    notes: [
      ...notes,
      `it opens several databases, but \`database\` can name only one: choose one of ${inside.join(', ')}`,
    ],
  }
}
