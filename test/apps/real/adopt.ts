// One service that nobody here wrote, from an empty folder, by the packed package and its commands alone: `init --yes`, `build`,
// `publish`, `install.sh`, an update, a rollback, and an update to a release that breaks, while a client of its own kind works.
// Must hold: the embedding (server.js) is what the documentation of that service shows, and all that is changed is counted.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, cp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Operation } from '../../../agent/index.ts'
import { run } from '../../../deploy/lib/shell.ts'
import { freePort } from '../../fixtures/install.ts'
import { addKit, begin, install, operate, release, stop } from '../adopt.ts'
import { type Beside, measureBeside } from './beside.ts'

/** What its author has to know that `init` cannot. */
interface Knowledge {
  /** the variables that name a further port */
  ports?: readonly string[]
  /** into baton.config.json, by hand */
  settings?: Readonly<Record<string, unknown>>
  /** whether its addons have to be built first: `baton rebuild` */
  rebuild?: boolean
  /** what plain Node starts, if it is not what is in server.js */
  plain?: string
}

const KNOWLEDGE = {
  aedes: { ports: ['MQTT_PORT'] },
  'json-server': {},
  verdaccio: {},
  peerjs: {},
  'socket.io': {},
  'classic-level': {},
  'graphql-yoga': {},
  'node-red': {},
  actual: {
    settings: {
      environment: {
        ACTUAL_PORT: '{port}',
        ACTUAL_HOSTNAME: '{host}',
        ACTUAL_DATA_DIR: '{stateDirectory}',
        NODE_ENV: 'production',
      },
      healthPath: '/health',
      database: 'server-files/account.sqlite',
    },
    rebuild: true,
  },
  sveltekit: { settings: { database: 'guests.db' }, plain: 'build/index.js' },
  'y-websocket': {},
} as const satisfies Record<string, Knowledge>

/** the folder of the clients */
export const REAL = import.meta.dirname

export type Service = keyof typeof KNOWLEDGE
/** Those of the table in docs/about/services.md. */
export const SERVICES = (Object.keys(KNOWLEDGE) as Service[]).filter((name) => name !== 'y-websocket')
/** Those whose clients hold a WebSocket that nobody has registered, and come back by themselves. */
export const SOCKET_SERVICES: readonly Service[] = ['socket.io', 'y-websocket', 'node-red']

/** What a client says at its end; the head of each client.mjs says what it counts. */
export interface Seen {
  done: number
  lost: number
  doubled: number
  missing: number
  notes: string[]
}

export interface RealAdopted {
  service: Service
  /** lines of the file that starts it that are not as they were, or all of it if `init` has written it */
  changed: number
  /** names in baton.config.json that were written by hand */
  settings: string[]
  /** of building and publishing v1.0.0 */
  buildMs: number
  executableBytes: number
  /** of the update, the rollback and the broken update */
  outcomes: string[]
  pausesMs: number[]
  seen: Seen
  /** nobody answers after `stop` */
  stopped: boolean
  /** null: it was not measured */
  beside: Beside | null
}

/** Breaks a second after it has listened: late enough for the start that `build` tries, early enough for the probation of `install`. */
const breaks = (how: string) => `
const untilItListens = setInterval(() => {
  if (!process.getActiveResourcesInfo().includes('TCPServerWrap')) return
  clearInterval(untilItListens)
  setTimeout(() => { ${how} }, 1000)
}, 20)
`
export const BROKEN = breaks("throw new Error('this release is broken')")
/** For a package that swallows what nobody has caught. */
export const ENDING = breaks('process.exit(1)')
/** the server.js of before `init` */
const PLAIN = 'server.before.js'
const WORKING_MS = 30_000
const END_MS = 120_000

export interface RealOptions {
  say?: (line: string) => void
  /** whether it is measured beside plain Node */
  isMeasured?: boolean
}

/** `packed` is the file that `npm pack` made. */
export async function adoptReal(
  service: Service,
  packed: string,
  { say = () => {}, isMeasured = false }: RealOptions = {},
): Promise<RealAdopted> {
  const adopter = await begin(service, say)
  const { home, folder, environment, at } = adopter
  await using scope = new AsyncDisposableStack()
  scope.defer(() => rm(home, { recursive: true, force: true }))

  await cp(join(import.meta.dirname, service), folder, { recursive: true })
  for (const name of ['working.mjs', 'away.mjs']) await cp(join(import.meta.dirname, name), join(folder, name))
  await at('npm', 'ci', '--no-audit', '--no-fund', '--prefer-offline')
  const before = await readFile(join(folder, 'server.js'), 'utf8').catch(() => '')
  await addKit(at, packed)
  const { ports = [], settings = {}, rebuild = false, plain }: Knowledge = KNOWLEDGE[service]
  const entry = join(folder, await configure(folder, settings))
  const changed = linesChanged(before, await readFile(entry, 'utf8'))
  if (rebuild) await at('npx', 'baton', 'rebuild')

  const first = await release(adopter, 'v1.0.0')
  await release(adopter, 'v1.1.0')
  await appendFile(entry, BROKEN)
  await release(adopter, 'v1.2.0', '--no-try') // the build's own switch would find it out

  const { port, password, command } = await install(adopter, first.service)
  for (const name of ports) environment[name] = String(await freePort())
  scope.defer(async () => void (await run([command, 'stop', '--user', '-q'], { env: environment, allowFailure: true })))
  await at(command, 'start', '--user', '-q')

  const client = await startClient(folder, { ...process.env, ...environment, PORT: String(port) })
  scope.defer(() => client.end())
  const operations: Operation[] = []
  for (const [path, body] of [
    ['/admin/update', { tag: 'v1.1.0' }],
    ['/admin/update/rollback', undefined],
    ['/admin/update', { tag: 'v1.2.0' }],
  ] as const) {
    say(`${path} ${JSON.stringify(body) ?? ''}`)
    const isBroken = body?.tag === 'v1.2.0'
    if (isBroken) client.tell('broken')
    operations.push(await operate(port, password, path, { body, mayReset: isBroken }))
  }
  const seen = await client.finish()
  const stopped = await stop(adopter, { command, port })
  if (isMeasured && plain === undefined) await writeFile(join(folder, PLAIN), before)
  const about = { service: first.service, home, folder, environment, plain: plain ?? PLAIN }
  const beside = isMeasured ? await measureBeside(about) : null
  return {
    service,
    changed,
    settings: Object.keys(settings),
    buildMs: first.buildMs,
    executableBytes: first.executable.sizeBytes,
    outcomes: operations.map(outcomeOf),
    pausesMs: operations.map(({ handover }) => handover?.pauseMs ?? -1),
    seen,
    stopped,
    beside,
  }
}

/** What was promised and not kept. */
export function faultsOfReal({ service, outcomes, seen, stopped }: RealAdopted): string[] {
  const faults: string[] = []
  const [updated, back, broken] = outcomes
  if (updated !== 'updated' || back !== 'rolled_back' || !broken?.startsWith('reverted: '))
    faults.push(`${service}: expected updated, rolled_back, reverted, got ${outcomes.join(', ')}`)
  if (seen.done === 0) faults.push(`${service}: its client did nothing`)
  for (const what of ['lost', 'doubled', 'missing'] as const)
    if (seen[what] !== 0) faults.push(`${service}: expected ${what} 0, got ${seen[what]} of ${seen.done}`)
  if (!stopped) faults.push(`${service}: somebody still answers after it was stopped`)
  return faults
}

/** In Markdown, for a person and for docs/about/services.md. */
export function tableOf(all: readonly RealAdopted[]): string {
  const rows = all.map(({ service, changed, settings, buildMs, executableBytes, pausesMs, seen, beside }) => [
    service,
    [changed, ...settings.map((name) => `\`${name}\``)].join(', '),
    `${Math.round(buildMs / 1000)} s`,
    `${Math.round(executableBytes / 1e6)} MB`,
    `${pausesMs.join(', ')} ms`,
    ...besideOf(beside),
    `done ${seen.done}, lost ${seen.lost}, doubled ${seen.doubled}, missing ${seen.missing}`,
    seen.notes.join('; '),
  ])
  const head = [
    'service',
    'lines changed',
    'build',
    'executable',
    'pauses',
    'start',
    'memory',
    'disk',
    'its clients',
    'notes',
  ]
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |\n`).join('')
}

/** `1.08 (693, 640 ms)`: the release, beside plain Node. */
function besideOf(beside: Beside | null): string[] {
  if (beside === null) return ['', '', '']
  const { startMs, memoryBytes, diskBytes } = beside
  const ratio = ([release, node]: readonly [number, number], unit: string, by: number) =>
    `${(release / node).toFixed(2)} (${Math.round(release / by)}, ${Math.round(node / by)} ${unit})`
  return [ratio(startMs, 'ms', 1), ratio(memoryBytes, 'MB', 1e6), ratio(diskBytes, 'MB', 1e6)]
}

function outcomeOf({ outcome, error }: Operation): string {
  return (outcome ?? 'none') + (error === null ? '' : `: ${error.message}`)
}

/** Adds to what `init` has written. Resolves to the entry. */
async function configure(folder: string, settings: Readonly<Record<string, unknown>>): Promise<string> {
  const path = join(folder, 'baton.config.json')
  const config = { ...(JSON.parse(await readFile(path, 'utf8')) as { entry: string }), ...settings }
  await writeFile(path, JSON.stringify(config, null, 2))
  return config.entry
}

function linesChanged(before: string, after: string): number {
  const known = new Set(before.split('\n'))
  return after.split('\n').filter((line) => !known.has(line)).length
}

/** Resolves once the client has done its first work. It is told `broken` before the release that breaks. */
export async function startClient(folder: string, env: NodeJS.ProcessEnv) {
  const child = spawn(process.execPath, ['client.mjs'], { cwd: folder, env, stdio: 'pipe' })
  const ended = once(child, 'close')
  let [said, errors] = ['', '']
  child.stdin.on('error', () => {}) // a client that has ended: `finish` says how
  child.stdout.on('data', (chunk) => (said += String(chunk)))
  const working = new Promise<void>((resolve) => {
    child.stderr.on('data', (chunk) => {
      errors = (errors + String(chunk)).slice(-4000)
      if (errors.includes('working\n')) resolve()
    })
  })
  const failed = ended.then(() => Promise.reject(new Error(`client.mjs ended: ${errors}`)))
  failed.catch(() => {})
  const end = async () => {
    child.kill('SIGKILL')
    await ended
  }
  try {
    await within(WORKING_MS, 'its first work', Promise.race([working, failed]))
  } catch (cause) {
    await end()
    throw cause
  }
  const tell = (line: string) => void child.stdin.write(`${line}\n`)
  return { end, tell, finish: async () => await finish(child, ended, () => [said, errors]) }
}

async function finish(child: ChildProcess, ended: Promise<unknown>, output: () => string[]): Promise<Seen> {
  child.stdin?.end()
  await within(END_MS, 'its end', ended)
  const [said = '', errors = ''] = output()
  if (child.exitCode !== 0) throw new Error(`client.mjs: expected exit code 0, got ${child.exitCode}: ${errors}`)
  return JSON.parse(said) as Seen
}

async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`client.mjs: expected ${what} within ${ms} ms`)), ms)
  try {
    return await Promise.race([promise, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
