// The switcher: a small container with a restart policy, made of this program, that does the switch. If it is killed or the power
// fails, the engine starts it again, and it finishes the switch or undoes it. The command only watches.
// Must hold: only its arguments, and the names and the label of the two containers, say what it must do; there is at most one
// switcher per service, since a name can be given once.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, durationText, parsedJson, reasonOf } from '../../agent/words.ts'
import { type Engine, isUnreachable } from './engine/engine.ts'
import { check } from './health.ts'
import { GATES } from './gate.ts'
import { volumeOfHolder } from './hold.ts'
import type { ContainerInspection, CreateBody, Mount } from './inspection.ts'
import type { Job } from './job.ts'
import { PROCESSES } from './last-process.ts'
import { again } from './moves.ts'
import { namesFor } from './reference.ts'
import { type DeployEvent, type EndEvent, type ContainerEnd, ended, endedOf } from './report.ts'
import { type Limits, type Program, refuseStopped, type Tools } from './request.ts'
import { surveyContainer } from './survey.ts'
import { dirname } from 'node:path'

/** after this many starts without output, the command gives the switcher up */
const SILENT_STARTS_MAX = 5
const SOCKET = '/run/baton-engine.sock'

/** Creates the switcher, does not start it, returns its id. Removes an earlier one first. */
export async function makeSwitcher(
  job: Job,
  { undo, limits }: { undo: boolean; limits: Limits },
  tools: Pick<Tools, 'engine' | 'report'>,
  program: Program,
): Promise<string> {
  const { engine } = tools
  const { origin } = job
  const name = namesFor(origin.name).switcher
  const old = await engine.container(name)
  if (old !== null) await engine.remove(old.Id, true)
  const network = await networkOf(job, engine)
  const { healthTimeoutMs, probationMs } = limits
  const flags = {
    container: origin.name,
    successor: job.successor,
    'health-timeout': durationText(healthTimeoutMs),
    probation: durationText(probationMs),
  }
  const args = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)
  const both = [await engine.container(job.predecessor), await engine.container(job.successor)]
  const [gates = null] = both.flatMap((one) => (one === null ? [] : (volumeOfHolder(one) ?? [])))
  const body = bodyOf(job, { ...program, gates }, network, [undo ? '--undo' : '--finish', '--json', ...args])
  return await again(engine, () => engine.create(name, body))
}

/** Throws BatonError locked if a switcher is at work. */
export function refuseBusy(switcher: ContainerInspection | null, name: string): void {
  if (switcher === null || !isAtWork(switcher)) return
  throw new BatonError(
    'locked',
    `another deployment of \`${name}\` has been in progress since ${switcher.State.StartedAt}`,
    {
      hint: `watch it with \`docker logs -f ${namesFor(name).switcher}\``,
    },
  )
}

export function isAtWork(switcher: ContainerInspection | null): boolean {
  return switcher !== null && (switcher.State.Running || switcher.State.Status === 'restarting')
}

/** Starts the switcher and passes its events on, up to its last line. Passes a stop on to the switcher, which then goes back. */
export async function followSwitcher(id: string, name: string, tools: Tools): Promise<ContainerEnd> {
  const { engine, report, stop } = tools
  refuseStopped(stop)
  await again(engine, () => engine.start(id))
  const undo = (): void => {
    void engine.signal(id, 'SIGINT').catch(() => {}) // it has ended, or the engine is away: its last line will say
    void report({ event: 'note', message: `stopped by ${String(stop.reason)}: going back to the old container` })
  }
  stop.addEventListener('abort', undo, { once: true })
  if (stop.aborted) undo()
  try {
    const end = await lastLine(id, name, tools).catch((cause: unknown) => cause)
    if (!isEnd(end)) return await lost(end, name, engine)
    const isDone = end.code !== 'undo_failed' && end.code !== 'service_down' // else the switcher goes on trying
    if (isDone) await engine.remove(id, true).catch(() => {})
    const message = end.code === 'interrupted' && stop.aborted ? `stopped by ${String(stop.reason)}` : end.message
    return endedOf({ ...end, message })
  } finally {
    stop.removeEventListener('abort', undo)
  }
}

async function lastLine(id: string, name: string, { engine, report }: Tools): Promise<EndEvent> {
  const said: string[] = []
  for (let [seen, silent] = [0, 0]; ; silent++) {
    let line = 0
    try {
      for await (const text of engine.follow(id)) {
        if (line++ < seen) continue
        ;[seen, silent] = [line, 0]
        said.push(text)
        const event = (parsedJson(text) ?? null) as DeployEvent | null
        if (event === null) continue // not of this program, such as a warning of the runtime
        if (event.event === 'result' || event.event === 'error') return event
        await report(event)
      }
    } catch (error) {
      if (!isUnreachable(error)) throw error
      await engine.awake()
    }
    const now = await engine.container(id)
    const isOver = now === null || (!now.State.Running && now.State.Status === 'exited' && !isKeptUp(now))
    if (isOver || silent === SILENT_STARTS_MAX) {
      const last = said.slice(-3).join(' · ').slice(0, 500)
      throw new BatonError(
        'service_down',
        `the switcher \`${namesFor(name).switcher}\` ended without a result${last === '' ? '' : `: ${last}`}`,
      )
    }
    await sleep(200)
  }
}

function isEnd(end: unknown): end is EndEvent {
  return typeof end === 'object' && end !== null && 'event' in end
}

/** The end if the switcher does not say how the switch ended. Asks the service before it is called down. */
async function lost(cause: unknown, name: string, engine: Engine): Promise<ContainerEnd> {
  const hint = `check \`docker logs ${namesFor(name).switcher}\`, then run the same command again`
  const error = new BatonError('service_down', `following the switch: ${reasonOf(cause)}`, { cause, hint })
  try {
    const { main, predecessor, successor } = await surveyContainer(name, engine)
    const looks = [main, predecessor, successor].map(async (one) => (await check(one, null, engine)).well)
    return ended('failed', { error, serves: (await Promise.all(looks)).includes(true) })
  } catch {
    return ended('failed', { error }) // the engine is away, and only the engine knows
  }
}

/** Called by the switcher itself when its work is done: an engine that restarts must not start it again. */
export async function retire(name: string, engine: Engine): Promise<void> {
  const switcher = await engine.container(namesFor(name).switcher)
  if (switcher !== null) await again(engine, () => engine.setRestartPolicy(switcher.Id, { Name: 'no' }))
}

function isKeptUp({ HostConfig }: ContainerInspection): boolean {
  return HostConfig.RestartPolicy?.Name === 'always'
}

/** The service's network, over which the switcher asks whether the service answers; `none` if there is no network to join. */
async function networkOf({ predecessor, origin }: Job, engine: Engine): Promise<string> {
  const container = (await engine.container(predecessor)) ?? (await engine.container(origin.name))
  const mode = container?.HostConfig.NetworkMode ?? 'none'
  if (/^(host|none|container:.*)$/.test(mode)) return mode
  return Object.keys(container?.NetworkSettings.Networks ?? {})[0] ?? 'none'
}

function bodyOf(
  { origin }: Job,
  { gates, ...program }: Program & { gates: Mount | null },
  network: string,
  args: string[],
): CreateBody {
  const folder = origin.compose === null ? null : dirname(origin.compose.environmentFile)
  return {
    Image: program.image,
    Entrypoint: program.entrypoint,
    Cmd: args,
    User: '0:0',
    Tty: true, // plain lines in its log
    Env: [`DOCKER_HOST=unix://${SOCKET}`, 'HOME=/', 'NO_COLOR=1'],
    Labels: { 'baton.switch-of': origin.name },
    Healthcheck: { Test: ['NONE'] },
    StopSignal: 'SIGTERM',
    HostConfig: {
      NetworkMode: network,
      Binds: [
        `${program.socket}:${SOCKET}`,
        ...(folder === null ? [] : [`${folder}:${folder}`]),
        ...(gates === null ? [] : [`${gates.Name ?? gates.Source}:${GATES}`, `/proc:${PROCESSES}:ro`]),
      ],
      RestartPolicy: { Name: 'always' },
      LogConfig: { Type: 'json-file', Config: { 'max-size': '4m', 'max-file': '1' } },
      ReadonlyRootfs: true,
      CapDrop: ['ALL'],
      // to reach the socket through its folder; to write a .env that another user owns, and to give a holder's volume to its user
      CapAdd: folder === null && gates === null ? ['DAC_OVERRIDE'] : ['DAC_OVERRIDE', 'CHOWN', 'FOWNER'],
      SecurityOpt: ['no-new-privileges', 'label=disable'],
      UsernsMode: 'host',
    },
  }
}
