// `baton dev`: the application from source, as a managed install in `.baton/` of its own folder: a home, a state directory and a
// feed. `baton publish --dev` makes the next release there, of kind `script`, and switches what runs to it. Must hold: nothing
// outside of that folder is written.

import { spawn } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, isTag, type Operation, type Status } from '../../agent/words.ts'
import { call } from '../lib/http.ts'
import { createProgress } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { buildApplication } from './application.ts'
import { provideNode } from './node.ts'
import type { Project } from './project.ts'

interface Place {
  home: string
  feed: string
  executable: string
  config: string
}

interface Config {
  dashboard: { password: string }
  listen: { host: string; port: number }
}

const PROBATION_MS = 1000
const SWITCH_MS = 60_000
const LOOK_EVERY_MS = 200
/** how often in a row nobody may answer before it counts as down: a switch is over much sooner */
const MISSES_MAX = 15

export async function dev(project: Project, port: number): Promise<void> {
  const place = placeOf(project)
  const environment = await environmentOf(place)
  const tag = await buildNext(project, place)
  const flags = ['--user', '--no-service', '--no-start', '--listen', `127.0.0.1:${port}`, '-y', '-q']
  await run(['sh', join(place.feed, tag, 'install.sh'), 'install', '--release', tag, ...flags], { env: environment })
  const config = JSON.parse(await readFile(place.config, 'utf8')) as Config
  const update = { probationMs: PROBATION_MS, drainMs: 2000 }
  const listen = { ...config.listen, port }
  await writeFile(place.config, JSON.stringify({ ...config, listen, update }, null, 2), { mode: 0o600 })

  const child = spawn(place.executable, ['serve', '--config', place.config], { stdio: 'inherit', env: environment })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {}) // the service gets it too, and ends well
  const ended = new Promise<number>((done) => child.once('exit', (code) => done(code ?? 1)))
  process.stderr.write(
    `\n${project.service} ${tag} from source: http://127.0.0.1:${port}\npanel: http://127.0.0.1:${port}/web/settings.html, token ${config.dashboard.password}\nchange something, then: npx baton publish --dev\n\n`,
  )
  process.exitCode = await ended
  // a process that has handed over ends well while its successor serves
  if (process.exitCode === 0) await untilDown({ ...config, listen })
}

export async function publishDev(project: Project): Promise<void> {
  const place = placeOf(project)
  const text = await readFile(place.config, 'utf8').catch((cause: unknown) => {
    throw new BatonError('service_down', 'expected `baton dev` to be running here, it never was', { cause })
  })
  const config = JSON.parse(text) as Config
  const startedAt = performance.now()
  const tag = await buildNext(project, place)
  const token = config.dashboard.password
  const begun = await call(addressOf(config), '/admin/update', { method: 'POST', token, body: { tag } }).catch(
    (cause: unknown) => {
      throw new BatonError('service_down', 'expected `baton dev` to be running here, nobody answers', { cause })
    },
  )
  if (begun.status !== 202)
    throw new BatonError('refused', `expected 202, got ${begun.status}: ${JSON.stringify(begun.body)}`)
  const operation = await outcomeOf(config, (begun.body as Operation).id)
  if (operation.outcome !== 'updated')
    throw new BatonError(
      'restart_failed',
      `${tag} was ${operation.outcome ?? 'lost'}: ${operation.error?.message ?? ''}`,
    )
  const { moved, cut, switchMs } = operation.handover ?? { moved: 0, cut: 0, switchMs: 0 }
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  process.stderr.write(
    `${tag} serves after ${seconds} s (switch ${switchMs} ms, ${moved} connections moved, ${cut} cut)\n`,
  )
}

async function outcomeOf(config: Config, id: string): Promise<Operation> {
  const deadline = Date.now() + SWITCH_MS
  while (Date.now() < deadline) {
    const answer = await call(addressOf(config), '/admin/update/status', { token: config.dashboard.password }).catch(
      () => null,
    )
    const operation = (answer?.body as Status | undefined)?.operation ?? null
    if (operation?.id === id && operation.outcome !== null) return operation
    await sleep(LOOK_EVERY_MS)
  }
  throw new BatonError('restart_failed', `expected the switch to end within ${SWITCH_MS / 1000} s`)
}

async function untilDown(config: Config): Promise<void> {
  for (let misses = 0; misses < MISSES_MAX;) {
    const answer = await call(addressOf(config), '/admin/update/status').catch(() => null)
    misses = answer === null ? misses + 1 : 0
    await sleep(LOOK_EVERY_MS)
  }
}

async function buildNext(project: Project, { feed }: Place): Promise<string> {
  await mkdir(feed, { recursive: true })
  const text = await readFile(join(feed, 'releases.json'), 'utf8').catch(() => '{"releases":[]}')
  const { releases } = JSON.parse(text) as { releases: { tag: string }[] }
  const last = Math.max(0, ...releases.map(({ tag }) => (isTag(tag) ? Number(tag.split('.')[2]) : 0)))
  const tag = `v0.0.${last + 1}`
  const progress = createProgress()
  try {
    const options = { make: project.build !== null, check: false, dev: true, force: true, effort: 'fast' as const }
    await buildApplication({
      ...options,
      project: { ...project, kind: 'script' },
      tag,
      out: feed,
      feed,
      notes: '',
      publishedAt: null,
      progress,
    })
  } catch (error) {
    progress.end('failed')
    throw error
  }
  return tag
}

function placeOf({ folder, service }: Project): Place {
  const home = join(folder, '.baton', 'home')
  return {
    home,
    feed: join(folder, '.baton', 'feed'),
    executable: join(home, '.local', 'share', service, service),
    config: join(home, '.config', service, 'config.json'),
  }
}

async function environmentOf({ home }: Place): Promise<Record<string, string>> {
  await mkdir(home, { recursive: true })
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('XDG_')) as [string, string][]
  return { ...Object.fromEntries(inherited), HOME: home, BATON_NODE: await provideNode() }
}

function addressOf({ listen }: Config): { tls: boolean; host: string; port: number } {
  return { tls: false, host: listen.host, port: listen.port }
}
