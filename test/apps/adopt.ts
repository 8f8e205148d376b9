// One application that a stranger wrote, from an empty folder to a service that updates itself under load, by the packed package and
// its commands alone: install, `init --yes`, `build`, `publish` to a folder, `install.sh`, update, rollback. Nothing of this
// repository is used but the packed file; what is measured here is what an adopter gets.

import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { PROJECT } from '../../deploy/make/place.ts'
import { run } from '../../deploy/lib/shell.ts'
import type { Operation, Status } from '../../agent/index.ts'
import { ask, freePort } from '../fixtures/install.ts'
import { runInLab } from '../lab/docker.ts'
import { PATHS, type Place, type PLACES, SOCKETS, startLoads } from './places.ts'
import { onSystemd } from './systemd.ts'

export const APPS = ['http', 'express', 'fastify', 'hono', 'nest', 'next'] as const
export type App = (typeof APPS)[number]
/** those that have WebSockets, and the few lines that carry them */
const TALKING: readonly App[] = ['express', 'fastify']

export interface Adopted extends Place {
  app: App
  /** of building v1.0.0, of the switch to v1.1.0 and of the switch back */
  buildMs: number
  switchMs: number
  backMs: number
  /** WebSockets carried, there and back */
  carried: number[]
  executableBytes: number
  /** unpacked folders left beside the executable after update and rollback */
  unpacked: number
  /** nobody answers after `stop` */
  stopped: boolean
  /** a host with systemd, a container; where they were asked for */
  places: Partial<Record<(typeof PLACES)[number], Place>>
}

const OPERATION_MS = 180_000

export interface AdoptOptions {
  say?: (line: string) => void
  places?: readonly (typeof PLACES)[number][]
}

export interface Adopter {
  app: string
  /** temporary; holds all that is made, and is whoever began it to remove */
  home: string
  /** of the application */
  folder: string
  environment: Record<string, string | undefined> & { HOME: string }
  /** runs a command in the folder */
  at(...command: string[]): ReturnType<typeof run>
}

/** An empty folder, and who works there. */
export async function begin(app: string, say: (line: string) => void = () => {}): Promise<Adopter> {
  const home = await mkdtemp(join(tmpdir(), `baton-app-${app}-`))
  const folder = join(home, 'app')
  const environment = {
    HOME: join(home, 'home'),
    BATON_CACHE: join(PROJECT, '.cache', 'adopters'),
    XDG_CACHE_HOME: undefined,
    XDG_CONFIG_HOME: undefined,
    XDG_STATE_HOME: undefined,
    NEXT_TELEMETRY_DISABLED: '1',
    npm_config_cache: join(PROJECT, '.cache', 'npm'),
    npm_config_ignore_scripts: 'true',
  }
  const at = async (...command: string[]) => {
    say(`$ ${command.join(' ')}`)
    return await run(command, { cwd: folder, env: environment })
  }
  await mkdir(environment.HOME)
  return { app, home, folder, environment, at }
}

/** Puts the application there, and adds the package. */
export async function adoptInto(
  { app, folder, at }: Pick<Adopter, 'app' | 'folder' | 'at'>,
  packed: string,
): Promise<void> {
  await cp(join(PROJECT, 'test', 'apps', app), folder, { recursive: true })
  for (const path of await readdir(folder, { recursive: true }))
    if (path.endsWith('.txt') && path.includes('.ts.'))
      await rename(join(folder, path), join(folder, path.slice(0, -4)))
  await addKit(at, packed)
}

/** Installs the package, and says `init` twice. */
export async function addKit(at: Adopter['at'], packed: string): Promise<void> {
  await at('npm', 'install', '--no-audit', '--no-fund', '--prefer-offline', packed)
  await at('npx', 'baton', 'init', '--yes')
  const again = await at('npx', 'baton', 'init', '--yes')
  if (!again.stderr.includes('nothing to write'))
    throw new Error(`init twice: expected nothing to write, got ${again.stderr}`)
}

/** Builds a release of what is in the folder, and publishes it. `flags`: more of `baton build`. `buildMs` covers both. */
export async function release(adopter: Adopter, tag: string, ...flags: string[]) {
  const startedAt = performance.now()
  const built = await adopter.at('npx', 'baton', 'build', tag, '--compress', 'fast', '--json', ...flags)
  await adopter.at('npx', 'baton', 'publish', tag, '--to', feedOf(adopter))
  const { service, executable } = JSON.parse(built.stdout) as { service: string; executable: { sizeBytes: number } }
  return { service, executable, buildMs: Math.round(performance.now() - startedAt) }
}

/** Installs v1.0.0 with short times, and starts nothing. `command` is the operator's. */
export async function install({ home, environment, at }: Adopter, service: string) {
  const port = await freePort()
  const flags = ['--user', '--no-service', '--no-start', '--listen', `127.0.0.1:${port}`, '-y', '-q']
  await at('sh', join(feedOf({ home }), 'v1.0.0', 'install.sh'), 'install', ...flags)
  const configPath = join(environment.HOME, '.config', service, 'config.json')
  const config = JSON.parse(await readFile(configPath, 'utf8')) as { dashboard: { password: string } }
  await writeFile(configPath, JSON.stringify({ ...config, update: { probation: '2s', drainTimeout: '5s' } }), {
    mode: 0o600,
  })
  return { port, password: config.dashboard.password, command: join(environment.HOME, '.local', 'bin', service) }
}

/** Stops the service. Resolves to whether nobody answers then. */
export async function stop({ at }: Pick<Adopter, 'at'>, { command, port }: { command: string; port: number }) {
  await at(command, 'stop', '--user', '-q')
  return await ask(port, 'GET', '/', null).then(
    () => false,
    () => true,
  )
}

function feedOf({ home }: Pick<Adopter, 'home'>): string {
  return join(home, 'feed')
}

/** `packed` is the file that `npm pack` made. */
export async function adopt(
  app: App,
  packed: string,
  { say = () => {}, places = [] }: AdoptOptions = {},
): Promise<Adopted> {
  const adopter = await begin(app, say)
  const { home, folder, environment, at } = adopter
  let command: string | null = null
  try {
    await adoptInto(adopter, packed)
    const { service, executable, buildMs } = await release(adopter, 'v1.0.0')
    const installed = await install(adopter, service)
    const { port, password } = installed
    command = installed.command
    await at(command, 'start', '--user', '-q')

    await writeFile(join(folder, 'public', 'new.txt'), 'v1.1.0\n')
    await release(adopter, 'v1.1.0')
    const answers = await answersOf(port)

    const sockets = TALKING.includes(app)
    const load = await startLoads({ port, sockets })
    const updated = await operate(port, password, '/admin/update', { body: { tag: 'v1.1.0' } })
    answers['/new.txt'] = (await ask(port, 'GET', '/new.txt', null)).status
    if (app === 'http') await assertTags(port, 'v1.1.0')
    const back = await operate(port, password, '/admin/update/rollback')
    if (app === 'http') await assertTags(port, 'v1.0.0')
    const total = await load.stop()
    const directory = join(environment.HOME, '.local', 'share', service, `.${service}`)
    const unpacked = (await readdir(directory)).filter((name) => /^[0-9a-f]{16}$/.test(name)).length
    const elsewhere: Adopted['places'] = {}
    for (const place of places) {
      say(place)
      const kit = join(folder, 'node_modules', 'baton-kit')
      elsewhere[place] = await (place === 'systemd'
        ? onSystemd({ service, feed: feedOf(adopter), kit, sockets })
        : inContainer(folder, service, home))
    }
    const stopped = await stop(adopter, installed)
    return {
      app,
      stopped,
      buildMs,
      switchMs: updated.handover?.switchMs ?? -1,
      backMs: back.handover?.switchMs ?? -1,
      carried: [updated, back].map(({ handover }) => handover?.carried ?? -1),
      executableBytes: executable.sizeBytes,
      ...total,
      outcomes: [updated, back].map(
        ({ outcome, error }) => (outcome ?? 'none') + (error === null ? '' : `: ${error.message}`),
      ),
      unpacked,
      places: elsewhere,
      answers,
    }
  } finally {
    if (command !== null) await run([command, 'stop', '--user', '-q'], { env: environment, allowFailure: true })
    await rm(home, { recursive: true, force: true })
  }
}

/** In the lab of a real engine, which is another process. */
async function inContainer(folder: string, service: string, home: string): Promise<Place> {
  const file = join(home, 'image.json')
  const code = await runInLab(join(import.meta.dirname, 'image.ts'), { args: [folder, service, file] })
  if (code !== 0) throw new Error(`the image: ended with ${code}`)
  return JSON.parse(await readFile(file, 'utf8')) as Place
}

async function answersOf(port: number): Promise<Record<string, number>> {
  const answers: Record<string, number> = {}
  for (const path of PATHS) answers[path] = (await ask(port, 'GET', path, null)).status
  return answers
}

/** Who it is, in the main thread, in a worker and in a child. */
async function assertTags(port: number, tag: string): Promise<void> {
  const said = await (await fetch(`http://127.0.0.1:${port}/tags`)).text()
  if (said !== [tag, tag, tag].join(' ')) throw new Error(`/tags: expected ${tag} three times, got ${said}`)
}

export interface OperateOptions {
  body?: unknown
  /** a release that dies may be the one that is asked how it goes */
  mayReset?: boolean
  /** the base path of the endpoints */
  base?: string
}

export async function operate(
  port: number,
  password: string,
  path: string,
  { body, mayReset = false, base = '' }: OperateOptions = {},
): Promise<Operation> {
  const begun = await ask(port, 'POST', path, password, body)
  if (begun.status !== 202) throw new Error(`${path}: expected 202, got ${begun.status}: ${JSON.stringify(begun.body)}`)
  const { id } = begun.body as Operation
  const deadline = Date.now() + OPERATION_MS
  while (Date.now() < deadline) {
    const { operation } = await ask(port, 'GET', `${base}/admin/update/status`, password).then(
      ({ body: status }) => status as Status,
      (cause: NodeJS.ErrnoException) => {
        // in a pause whoever asks waits, too, and a busy machine makes it long
        const mayAskAgain = (mayReset && cause.code === 'ECONNRESET') || /: no answer in \d+ s$/.test(cause.message)
        if (mayAskAgain) return { operation: null }
        throw new Error(`${path}: asking how it goes: ${cause.message}`, { cause })
      },
    )
    if (operation?.id === id && operation.outcome !== null) return operation
    await sleep(100)
  }
  throw new Error(`${path}: expected an outcome within ${OPERATION_MS} ms`)
}

/** What was promised and not kept. */
export function faultsOf({ app, unpacked, places, carried, stopped, ...here }: Adopted): string[] {
  const faults = faultsAt(app, here)
  if (!stopped) faults.push(`${app}: somebody still answers after it was stopped`)
  const sockets = TALKING.includes(app) ? SOCKETS : 0
  if (carried.some((count) => count !== sockets))
    faults.push(`${app}: expected ${sockets} WebSockets carried at each switch, got ${carried.join(', ')}`)
  for (const [place, seen] of Object.entries(places)) faults.push(...faultsAt(`${app}, ${place}`, seen))
  if (unpacked !== 2)
    faults.push(`${app}: expected two unpacked folders, the executable's and the backup's, got ${unpacked}`)
  return faults
}

function faultsAt(app: string, { lost, closed, outcomes, answers }: Place): string[] {
  const faults: string[] = []
  if (lost !== 0 || closed !== 0) faults.push(`${app}: expected lost 0 closed 0, got lost ${lost} closed ${closed}`)
  if (!/^(updated, rolled_back(, |$))+$/.test(outcomes.join(', ')))
    faults.push(`${app}: expected updated, rolled_back, got ${outcomes.join(', ')}`)
  for (const [path, status] of Object.entries(answers))
    if (status !== 200) faults.push(`${app}: ${path} answers ${status}`)
  return faults
}
