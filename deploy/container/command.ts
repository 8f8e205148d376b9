// The command line of the container route: `deploy-container.sh`, and `deploy` of an executable. This file parses arguments,
// handles signals and prints; recreate.ts does the work.

import { asBatonError, BatonError, EXIT, isTag } from '../../agent/words.ts'
import { connectEngine, isReplaced } from './engine/engine.ts'
import { credentialsFor } from './engine/credentials.ts'
import { type EngineChoice, findSocket } from './engine/socket.ts'
import type { HoldWay } from './job.ts'
import { lockContainer } from './lock.ts'
import { programInImage, type Sources, SOURCES } from './program.ts'
import { cleanUp, containerStatus, recreate } from './recreate.ts'
import { type ContainerRequest, PULLS, type Tools } from './request.ts'
import {
  type ContainerStep,
  type DeployEvent,
  type ContainerEnd,
  ended,
  endEvent,
  formatDeployEvent,
  type ContainerReport,
} from './report.ts'
import { restoreState } from './restore.ts'
import { resolveName } from './survey.ts'
import { finishSwitch } from './switch.ts'
import { retire } from './switcher.ts'
import {
  ADVANCED,
  type CommandLine,
  duration,
  durationOf,
  flag,
  IRREVERSIBLE,
  IRREVERSIBLE_FLAG,
  option,
  parseFlags,
  RELEASE_FLAGS,
  releaseIn,
  SCRIPT_FLAGS,
  usage,
} from '../lib/flags.ts'
import { helpFor, printHelp } from '../lib/help.ts'
import { printError, printJson, printLine } from '../lib/printer.ts'
import { createProgress } from '../lib/progress.ts'

export const COMMAND = {
  name: 'deploy-container.sh',
  description: 'deploys a release to a container, and restores the previous one if the new one is not healthy',
  args: {
    container: option('name', 'name, ID or label=KEY=VALUE (default: the only service container)'),
    ...RELEASE_FLAGS,
    rollback: flag('go back to the previous image, or to the given release'),
    'keep-port': {
      type: 'boolean',
      description:
        'put the container behind a holder, which keeps its ports open; new connections are refused for about a second while this is set up',
      negativeDescription: 'remove the holder; new connections are refused for about a second meanwhile',
    },
    'holder-image': option(
      'image',
      "image for the holder (default: tag `holder` in the repository of the container's image)",
      ADVANCED,
    ),
    status: flag('show what is running, its health, what ran before, and what is left over'),
    'restore-state': option('name', 'restart with this copy of the data; the current data is set aside', ADVANCED),
    clean: flag('remove what interrupted runs and failed releases have left behind', ADVANCED),
    image: option('repository', "the release's image repository (default: the container's own)", ADVANCED),
    pull: option('always|missing|never', 'when to pull the image', { advanced: true, default: 'always' }),
    digest: option('sha256:…', 'pull the image with this digest, regardless of the tag', ADVANCED),
    feed: option('feed', 'signed feed that specifies the release’s image', ADVANCED),
    root: option('file', 'root.json to verify the feed with (default: the built-in one)', ADVANCED),
    engine: option('docker|podman|auto', 'container engine; auto: $DOCKER_HOST, then Docker, then podman', {
      advanced: true,
      default: 'auto',
    }),
    'health-timeout': duration('how long the new container may take to become healthy', {
      default: '60s',
      advanced: true,
    }),
    probation: duration('how long the new container must then stay healthy', { default: '30s', advanced: true }),
    ...IRREVERSIBLE,
    trial: option('auto|never', 'whether a release is first tried on a copy of the data', {
      advanced: true,
      default: 'auto',
    }),
    'with-shared': flag(
      "with compose, go ahead even if the variable that sets the image also sets another service's image",
      ADVANCED,
    ),
    ...SCRIPT_FLAGS,
  },
} as const satisfies CommandLine

/** With the flags that only the switcher container gets (switcher.ts). */
const INNER = {
  ...COMMAND,
  args: {
    ...COMMAND.args,
    finish: { type: 'boolean', default: false },
    undo: { type: 'boolean', default: false },
    successor: { type: 'string' },
  },
} as const satisfies CommandLine

type Act = 'deploy' | 'status' | 'restore' | 'clean' | 'finish' | 'undo'

export interface ContainerSettings extends Omit<ContainerRequest, 'container'> {
  container: string | null
  act: Act
  successor: string
  /** for `restore`: name of the copy */
  copy: string
  engine: EngineChoice
  json: boolean
  quiet: boolean
}

/** Throws BatonError invalid_request, invalid_tag. */
export function parseContainerSettings(argv: readonly string[]): ContainerSettings {
  const values = parseFlags(argv, INNER)
  const { rollback, engine, digest = null, 'keep-port': keeps } = values
  const way: HoldWay | null = keeps === undefined ? null : keeps ? 'hold' : 'no-hold'
  const named = releaseIn(values)
  const release = way ?? named
  if (way !== null && (named !== null || rollback))
    throw usage('--keep-port and --no-keep-port cannot be used with a release or --rollback')
  if (values['holder-image'] !== undefined && way !== 'hold') throw usage('--holder-image works only with --keep-port')
  const copy = values['restore-state']
  const acts: Act[] = (['status', 'clean', 'finish', 'undo'] as const).filter((act) => values[act])
  if (copy !== undefined) acts.push('restore')
  const act: Act = acts[0] ?? 'deploy'
  if (acts.length > 1 || (act !== 'deploy' && (rollback || release !== null)))
    throw usage('expected only one of these: a release, --rollback, --status, --restore-state or --clean')
  if (act === 'deploy' && release === null && !rollback)
    throw usage('expected a release, such as v1.1.0 or latest, or --rollback')
  if (way === null && release !== null && (rollback || release !== 'latest') && !isTag(release)) {
    const expected = rollback ? 'a tag' : '`latest` or a tag'
    const got = JSON.stringify(String(release).slice(0, 40))
    throw new BatonError('invalid_tag', `expected ${expected} of the form vX.Y.Z, got ${got}`)
  }
  if (engine !== 'docker' && engine !== 'podman' && engine !== 'auto')
    throw usage(`expected docker, podman or auto for --engine, got \`${engine}\``)
  if (values.trial !== 'auto' && values.trial !== 'never')
    throw usage(`expected auto or never for --trial, got \`${values.trial}\``)
  if (digest !== null && !/^sha256:[0-9a-f]{64}$/.test(digest))
    throw usage(`expected sha256: and 64 hexadecimal digits for --digest, got ${JSON.stringify(digest.slice(0, 80))}`)
  const pull = PULLS.find((one) => one === values.pull)
  if (pull === undefined) throw usage(`expected one of ${PULLS.join(', ')} for --pull, got \`${values.pull}\``)
  if (values.root !== undefined && values.feed === undefined) throw usage('expected --feed together with --root')
  if (digest !== null && values.feed !== undefined) throw usage('expected --digest or --feed, got both')
  return {
    act,
    copy: copy ?? '',
    successor: values.successor ?? '',
    container: values.container ?? null,
    release: rollback ? null : release,
    backTo: rollback ? release : null,
    repository: values.image ?? null,
    holder: values['holder-image'] ?? null,
    digest,
    pull,
    signedBy: values.feed === undefined ? null : { feed: values.feed, root: values.root ?? null },
    engine,
    healthTimeoutMs: durationOf('--health-timeout', values['health-timeout']),
    probationMs: durationOf('--probation', values.probation),
    withShared: values['with-shared'],
    allowIrreversible: values[IRREVERSIBLE_FLAG],
    rehearse: values.trial === 'auto',
    dryRun: values['dry-run'],
    json: values.json,
    quiet: values.quiet,
  }
}

export type ContainerArguments = Pick<Tools, 'engine' | 'report'> & Partial<Pick<Tools, 'stop' | 'program'>>

/** Runs one deployment under its lock. Events go to `report`; the last one says how it ended. */
export async function deploy(
  request: Omit<ContainerRequest, 'container'> & { container: string | null },
  given: ContainerArguments,
): Promise<ContainerEnd> {
  return await act(request, given, (name, tools) => recreate(name, { ...request, container: name }, tools))
}

async function act(
  { container }: { container: string | null },
  given: ContainerArguments,
  work: (name: string, tools: Tools) => Promise<ContainerEnd>,
  locks = true,
): Promise<ContainerEnd> {
  const name = await resolveName(container, given.engine)
  await using _ = locks ? await lockContainer(given.engine.socketPath, name) : null
  const end = await work(name, toolsOf(given))
  await given.report(endEvent(name, end))
  return end
}

async function perform(settings: ContainerSettings, given: ContainerArguments): Promise<ContainerEnd> {
  switch (settings.act) {
    case 'deploy':
      return await deploy(settings, given)
    case 'status':
      return await act(settings, given, containerStatus, false)
    case 'clean':
      return await act(settings, given, (name, tools) => cleanUp(name, settings, tools))
    case 'restore':
      return await act(settings, given, (name, tools) => restoreState(name, settings.copy, settings, tools))
    case 'finish':
    case 'undo':
      return await doSwitch(settings, given)
    default:
      return settings.act satisfies never
  }
}

/** `name`: the command as it was typed, for its help. */
export async function deployContainer(
  argv: readonly string[],
  name: string,
  sources: Sources = SOURCES.clone,
): Promise<number> {
  let settings: ContainerSettings | null = null
  try {
    const help = await helpFor(argv, { ...COMMAND, name })
    if (help !== null) return printHelp(help)
    settings = parseContainerSettings(argv)
    const engine = await connectEngine(await findSocket(settings.engine, process.env))
    const report = reporter(settings)
    const stop = hearSignals(settings, report)
    try {
      const given: ContainerArguments = { engine, report, stop, program: () => programInImage(engine, sources) }
      const end = await perform(settings, given)
      if (end.error !== null) printError(end.error)
      return endEvent(settings.container ?? '', end).exit
    } finally {
      engine.close()
    }
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying')
    const event = endEvent(settings?.container ?? '', ended('failed', { error }))
    if (settings?.json) printJson(event)
    printError(error)
    return event.exit
  }
}

/**
 * Runs in the switcher. The command follows this process's log and reads its last line. Once the work is done, the engine must
 * not start the switcher again.
 */
async function doSwitch(settings: ContainerSettings, given: ContainerArguments): Promise<ContainerEnd> {
  const { act, container, successor } = settings
  const name = container ?? ''
  const end = await finishSwitch(name, { successor, undo: act === 'undo' }, settings, toolsOf(given))
  // without a last line: the engine starts this container again, with its present socket, and the command goes on following
  if (await isReplaced(given.engine.socketPath)) process.exit(EXIT.unexpected)
  const isDone = end.error?.code !== 'service_down' && end.error?.code !== 'undo_failed'
  if (isDone) await retire(name, given.engine)
  await given.report(endEvent(name, end))
  return end
}

function toolsOf({ engine, report, stop, program }: ContainerArguments): Tools {
  const credentials: Tools['credentials'] = (repository) => credentialsFor(repository, process.env)
  return { engine, report, credentials, stop: stop ?? new AbortController().signal, program: program ?? null }
}

/**
 * SIGINT and SIGTERM undo the deployment. SIGHUP (the terminal was closed) undoes it before the switch; once the switch has
 * begun, the deployment is finished. In the switcher, SIGINT asks to go back. SIGTERM comes from an engine that shuts down: the
 * switcher exits, and the engine starts it again later.
 */
function hearSignals({ act }: ContainerSettings, report: ContainerReport): AbortSignal {
  const controller = new AbortController()
  let stoppedAt = 0
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {}) // the terminal may be gone
  const isSwitcher = act === 'finish' || act === 'undo'
  const leave = (signal: string): void => {
    printLine(`stopped by a second ${signal}: run the command again to finish or undo the deployment`, process.stderr)
    process.exit(EXIT.unexpected)
  }
  process.on('SIGHUP', () => {
    if (isSwitcher) return
    if (!switching.has(report)) return controller.abort('SIGHUP')
    printLine('the terminal was closed: the switch continues without it', process.stderr)
  })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (isSwitcher && signal === 'SIGTERM') process.exit(EXIT.unexpected)
      if (stoppedAt > 0 && performance.now() - stoppedAt > 1000) leave(signal)
      stoppedAt ||= performance.now()
      controller.abort(signal)
    })
  }
  return controller.signal
}

/** reports of deployments whose switch has begun */
const switching = new WeakSet<ContainerReport>()

type StepEvent = Extract<DeployEvent, { event: 'step' }>

const WAITS: readonly ContainerStep[] = ['health', 'probation']

/** With `--json`: events to stdout. Else: the plan or the status to stdout, progress to stderr. */
function reporter({ json, quiet, dryRun }: ContainerSettings): ContainerReport {
  const progress = createProgress({ quiet: quiet || json })
  let last: ContainerStep | null = null
  const draw = ({ step, detail }: StepEvent) => {
    if (step === last) return progress.detail(detail) // the step says more of itself
    if (step === 'revert') progress.end('failed') // what it goes back from
    last = step
    // of a wait a person wants to know how long it was; the detail is its limit
    progress.stage(step, WAITS.includes(step) ? '' : detail)
  }
  const report: ContainerReport = (event: DeployEvent): void => {
    if (event.event === 'step' && event.step === 'switch') switching.add(report)
    if (json) return printJson(event)
    if (event.event === 'step') return draw(event)
    if (event.event === 'progress') return progress.bytes(event.doneBytes, event.totalBytes)
    if (event.event === 'plan' && !dryRun) return
    if (event.event === 'result' || event.event === 'error')
      progress.end(event.outcome === 'failed' ? 'failed' : 'done')
    const isAnswer = event.event === 'plan' || (event.event === 'result' && event.outcome === 'status')
    if (quiet && !isAnswer) return
    for (const line of formatDeployEvent(event)) {
      if (isAnswer) printLine(line)
      else progress.note(line)
    }
    if (event.event === 'plan') progress.end('done')
  }
  return report
}
