// `baton dev`: runs the service from source, as a managed install inside the project. Saving a file makes a release of kind script
// in a feed that is a folder. The running service updates to each newer release in that feed, as on a host.
// Must hold: everything that a session makes is below `.baton/dev/`. It ends what it started, and what an earlier session left
// running.

import { once } from 'node:events'
import { watch } from 'node:fs'
import { mkdir, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { COMMAND, type Lock, makeDisk, takeLock } from '../../agent/install.ts'
import {
  BatonError,
  compareTags,
  durationText,
  isTag,
  type Operation,
  reasonOf,
  type Status,
  type UpdateTimes,
} from '../../agent/words.ts'
import { callHttp } from '../lib/http.ts'
import { createProgress, formatDuration } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { releaseFromSource } from './from-source.ts'
import { type Project, RELEASES_FOLDER } from './project.ts'
import { type ReleaseList, RELEASES } from './release-folder.ts'

export interface DevOptions {
  project: Project
  port: number
  /** make a release whenever a file changes */
  watches: boolean
  say(line: string): void
}

const NOT_WATCHED = /(^|\/)(node_modules|\.[^/]+)(\/|$)/
const QUIET_MS = 150
const LOOK_MS = 200
const QUIET = createProgress({ quiet: true })
const PROBATION_MS = 1000
/** of a log in which each start that failed has written the same */
const SAID_LINES = 20

/** Resolves when `stop` is aborted and everything has ended. */
export async function develop(options: DevOptions, stop: AbortSignal): Promise<void> {
  const { project, say } = options
  const at = placesOf(project)
  const command = (...args: string[]) => run([at.executable, ...args, '--user', '-q'], { env: at.environment })
  await using _session = await onlySession(at.session, project)
  await command('stop').catch(() => {}) // ends the service of a session that was killed
  await assertFree(options.port)
  for (const path of [at.feed, at.copies, at.programs, at.home, join(at.state, 'update'), at.log])
    await rm(path, { recursive: true, force: true })
  for (const path of [at.feed, at.home, at.state]) await mkdir(path, { recursive: true })
  await writeFile(join(project.folder, '.baton', '.gitignore'), '*\n')

  const started = performance.now()
  await release(options, 'v0.0.1')
  await installInto(options)
  try {
    await command('start').catch(async (cause: unknown) => {
      const said = (await readFile(at.log, 'utf8').catch(() => '')).trimEnd().split('\n').slice(-SAID_LINES).join('\n')
      throw new BatonError(
        'restart_failed',
        `${project.service} did not start${reasonIn(said)}; its output:\n${said}`,
        { cause },
      )
    })
    const { password } = (await at.config()).dashboard
    const origin = `${project.scheme ?? 'http'}://127.0.0.1:${options.port}`
    say(`${project.service} v0.0.1 is serving at ${origin} after ${since(started)}`)
    say(`  panel     ${origin}${project.basePath}/web/settings.html, password ${password}`)
    say(`  feed      ${at.feed}: releases published there are installed automatically`)
    if (options.watches) say('  watching  saved changes are served immediately; press Ctrl-C to stop')
    await Promise.all([
      follow(at.log, stop),
      moveToWhatIsPublished(options, password, stop),
      options.watches ? releaseWhatIsSaved(options, stop) : null,
    ])
  } finally {
    await command('stop')
  }
}

/** Takes the session's lock: a second session in the same folder would end the first one's service. */
async function onlySession(path: string, { folder, service }: Project): Promise<Lock> {
  return await takeLock(makeDisk(), path, '`baton dev`').catch((cause: unknown) => {
    if (!(cause instanceof BatonError) || cause.code !== 'locked') throw cause
    const { heldByPid = 'unknown' } = cause.members
    throw new BatonError('locked', `\`baton dev\` is already running for ${service} in ${folder} (pid ${heldByPid})`, {
      hint: 'stop that process with Ctrl-C, or work in a copy of the folder with another --port',
    })
  })
}

/** Throws BatonError refused if another process listens there: the service would say so only at the end of its log. */
async function assertFree(port: number): Promise<void> {
  const server = createServer()
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening')
  } catch (cause) {
    throw new BatonError('refused', `cannot listen on 127.0.0.1:${port}: ${reasonOf(cause)}`, {
      hint: 'stop the program that is listening on that port, or set another port with PORT or --port',
      cause,
    })
  } finally {
    server.close()
  }
}

/** The line of the log about a port that is taken, which is what a person has to know first; else nothing. */
function reasonIn(said: string): string {
  const line = said.split('\n').find((one) => one.includes('EADDRINUSE'))
  return line === undefined ? '' : `: ${line.trim()}`
}

function placesOf({ folder, service }: Project) {
  const base = join(folder, '.baton', 'dev')
  const [home, state, programs] = [join(base, 'home'), join(base, 'state'), join(base, 'bin')]
  const configPath = join(home, '.config', service, 'config.json')
  return {
    home,
    state,
    programs,
    feed: join(base, 'feed'),
    copies: join(base, 'sources'),
    executable: join(programs, service),
    session: join(base, 'session'),
    log: join(state, 'run', `${service}.log`),
    configPath,
    config: async () => JSON.parse(await readFile(configPath, 'utf8')) as { dashboard: { password: string } },
    environment: {
      HOME: home,
      BATON_NODE: process.execPath,
      XDG_CONFIG_HOME: undefined,
      XDG_STATE_HOME: undefined,
      [COMMAND]: '1',
    },
  }
}

async function release({ project }: DevOptions, tag: string): Promise<void> {
  const { feed, copies } = placesOf(project)
  await releaseFromSource({ project, tag, feed, copies, progress: QUIET })
}

async function installInto({ project, port }: DevOptions): Promise<void> {
  const at = placesOf(project)
  const where = ['--prefix', at.programs, '--state-dir', at.state, '--feed', at.feed, '--listen', `127.0.0.1:${port}`]
  const flags = ['--user', '--no-service', '--no-start', '-y', '-q', ...where]
  await run(['sh', join(at.feed, 'v0.0.1', 'install.sh'), 'install', ...flags], { env: at.environment })
  const update: UpdateTimes = { probation: durationText(PROBATION_MS) }
  await writeFile(at.configPath, JSON.stringify({ ...(await at.config()), update }), { mode: 0o600 })
}

async function follow(path: string, stop: AbortSignal): Promise<void> {
  await using file = await open(path)
  for (let position = 0; !stop.aborted; await pause(LOOK_MS, stop)) {
    const { size } = await file.stat()
    if (size < position) position = 0
    const { bytesRead, buffer } = await file.read({ buffer: Buffer.alloc(size - position), position })
    process.stdout.write(buffer.subarray(0, bytesRead))
    position += bytesRead
  }
}

async function moveToWhatIsPublished(options: DevOptions, password: string, stop: AbortSignal): Promise<void> {
  let tried = 'v0.0.1'
  for (; !stop.aborted; await pause(LOOK_MS, stop)) {
    const newest = await newestIn(placesOf(options.project).feed)
    if (newest === null || compareTags(newest, tried) <= 0) continue
    tried = newest
    const started = performance.now()
    try {
      const { outcome, error } = await move(options, password, newest, stop)
      if (outcome === 'updated') options.say(`${newest} is serving, ${since(started)} after it was published`)
      else options.say(`${newest}: ${outcome ?? 'not there yet'}${error === null ? '' : `: ${error.message}`}`)
    } catch (cause) {
      if (!stop.aborted) options.say(`${newest}: ${reasonOf(cause)}`)
    }
  }
}

async function newestIn(feed: string): Promise<string | null> {
  const text = await readFile(join(feed, RELEASES), 'utf8').catch(() => null)
  if (text === null) return null
  const { releases } = JSON.parse(text) as ReleaseList
  return releases.map(({ tag }) => tag).find(isTag) ?? null
}

async function move({ port, project }: DevOptions, token: string, tag: string, stop: AbortSignal): Promise<Operation> {
  const address = { tls: project.scheme === 'https', host: '127.0.0.1', port }
  const endpoint = `${project.basePath}/admin/update`
  const begun = await callHttp(address, endpoint, { method: 'POST', token, body: { tag } })
  if (begun.status !== 202)
    throw new BatonError('refused', `expected 202, got ${begun.status}: ${JSON.stringify(begun.body)}`)
  const { id } = begun.body as Operation
  for (;;) {
    stop.throwIfAborted()
    const { operation } = (await callHttp(address, `${endpoint}/status`, { token })).body as Status
    if (operation?.id === id && operation.outcome !== null) return operation
    await sleep(50)
  }
}

async function releaseWhatIsSaved(options: DevOptions, stop: AbortSignal): Promise<void> {
  const { project, say } = options
  let patch = 1
  let known = await stateOf(project)
  let changed = false
  const watcher = watch(project.folder, { recursive: true, signal: stop }, (_event, name) => {
    if (name !== null && !NOT_WATCHED.test(name)) changed = true
  })
  watcher.on('error', (cause) => say(`no longer watching: ${cause.message}`))
  for (; !stop.aborted; await pause(QUIET_MS, stop)) {
    if (!changed) continue
    await pause(QUIET_MS, stop) // an editor writes several files
    changed = false
    const now = await stateOf(project)
    if (now === known) continue
    known = now
    try {
      await release(options, `v0.0.${++patch}`)
    } catch (cause) {
      say(`v0.0.${patch}: ${reasonOf(cause)}`)
    }
  }
}

/** Sizes and times of the author's files. If `build` makes the entry, leaves out its folder: a build changes it, not a save. */
async function stateOf({ folder, build, entry }: Project): Promise<string> {
  const made = build === null || !entry.includes('/') ? null : entry.split('/')[0]
  const names = (await readdir(folder, { withFileTypes: true })).filter(
    ({ name }) => !NOT_WATCHED.test(name) && name !== RELEASES_FOLDER && name !== made,
  )
  const found: string[] = []
  const look = async (path: string): Promise<void> => {
    const at = await stat(path).catch(() => null)
    if (at?.isDirectory()) for (const name of await readdir(path)) await look(join(path, name))
    else if (at !== null && !NOT_WATCHED.test(path.slice(folder.length + 1)))
      found.push(`${path} ${at.size} ${at.mtimeMs}`)
  }
  for (const { name } of names) await look(join(folder, name))
  return found.join('\n')
}

async function pause(ms: number, stop: AbortSignal): Promise<void> {
  await sleep(ms, null, { signal: stop }).catch(() => {})
}

function since(started: number): string {
  return formatDuration(performance.now() - started)
}
