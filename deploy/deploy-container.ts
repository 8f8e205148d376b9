// Deploys a release of a container: pulls its image, recreates the container beside the old one, and goes back where it fails.
// This file reads the arguments and draws; the work is in container/recreate.ts.

import { asBatonError, BatonError, EXIT, isTag, MEANINGS } from '../agent/words.ts'
import { composeProjectOf, deployCompose } from './container/compose.ts'
import { credentialsFor } from './container/credentials.ts'
import { connectEngine, type Engine } from './container/engine.ts'
import { lockContainer } from './container/lock.ts'
import { recreate, type Request, type Tools } from './container/recreate.ts'
import { type DeployEvent, type Ended, formatDeployEvent, type Report, resultEvent } from './container/report.ts'
import { type EngineChoice, findSocket } from './container/socket.ts'
import { resolveName } from './container/survey.ts'
import { asksForHelp, type Command, parseFlags, SCRIPT_FLAGS, secondsOf, usageOf } from './lib/flags.ts'
import { createProgress } from './lib/progress.ts'

const COMMAND = {
  name: 'deploy-container.sh',
  description: 'deploys a release of a container, and goes back by itself where it is not good',
  args: {
    container: { type: 'string', valueHint: 'name', description: 'name or id of the container, or label=KEY=VALUE' },
    release: { type: 'string', valueHint: 'tag|latest', description: 'release to deploy' },
    rollback: { type: 'boolean', default: false, description: 'back to the image that ran before the last deployment' },
    image: {
      type: 'string',
      valueHint: 'repository',
      description: "where the release is (the container's own repository)",
    },
    engine: {
      type: 'string',
      valueHint: 'docker|podman|auto',
      default: 'auto',
      description: 'auto: DOCKER_HOST, then Docker, then podman',
    },
    'health-timeout': {
      type: 'string',
      valueHint: 'seconds',
      default: '60',
      description: 'how long the new container may take to become healthy',
    },
    probation: {
      type: 'string',
      valueHint: 'seconds',
      default: '30',
      description: 'how long it must stay so before the old one is let go',
    },
    ...SCRIPT_FLAGS,
  },
} as const satisfies Command

export interface Settings extends Request {
  engine: EngineChoice
  json: boolean
  quiet: boolean
}

/** Throws BatonError invalid_request, invalid_tag. Null where help is asked for. */
export function parseSettings(argv: readonly string[]): Settings | null {
  if (asksForHelp(argv)) return null
  const values = parseFlags(argv, COMMAND)
  const wrong = (message: string): never => {
    throw new BatonError('invalid_request', message, { hint: 'see --help' })
  }
  const { container, release = null, rollback, engine } = values
  if (!container) return wrong('expected --container')
  if ((release === null) === !rollback) return wrong('expected either --release or --rollback')
  if (release !== null && release !== 'latest' && !isTag(release)) {
    throw new BatonError(
      'invalid_tag',
      `expected \`latest\` or a tag of the form vX.Y.Z, got ${JSON.stringify(String(release).slice(0, 40))}`,
    )
  }
  if (engine !== 'docker' && engine !== 'podman' && engine !== 'auto')
    return wrong(`expected docker, podman or auto in --engine, got \`${engine}\``)
  return {
    container,
    release,
    repository: values.image ?? null,
    engine,
    healthTimeoutMs: secondsOf('--health-timeout', values['health-timeout']),
    probationMs: secondsOf('--probation', values.probation),
    dryRun: values['dry-run'],
    json: values.json,
    quiet: values.quiet,
  }
}

/** One deployment under its lock. Events go to `report`; the last one is the result. */
export async function deploy(request: Request, engine: Engine, report: Report): Promise<Ended> {
  const tools: Tools = { engine, report, credentials: (repository) => credentialsFor(repository, process.env) }
  const name = await resolveName(request.container, engine)
  await using _ = await lockContainer(engine.socketPath, name)
  const project = composeProjectOf(await engine.container(name))
  const ended =
    project === null
      ? await recreate({ ...request, container: name }, tools)
      : await deployCompose(project, request, tools)
  if (!request.dryRun) await report(resultEvent(name, ended))
  return ended
}

export async function main(argv: readonly string[]): Promise<number> {
  let settings: Settings | null = null
  try {
    settings = parseSettings(argv)
    if (settings === null) {
      process.stdout.write(await usageOf(COMMAND))
      return EXIT.done
    }
    const engine = await connectEngine(await findSocket(settings.engine, process.env))
    try {
      const { outcome, error } = await deploy(settings, engine, reporter(settings))
      if (error !== null) explain(error)
      return outcome === 'reverted' ? EXIT.reverted : error === null ? EXIT.done : MEANINGS[error.code].exit
    } finally {
      engine.close()
    }
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying')
    if (settings?.json) {
      const result = resultEvent(settings.container, { outcome: 'failed', from: null, to: null, downMs: null, error })
      process.stdout.write(`${JSON.stringify(result)}\n`)
    }
    explain(error)
    return MEANINGS[error.code].exit
  }
}

/** JSON to stdout; or the plan to stdout and what is under way to stderr. */
function reporter({ json, quiet, dryRun }: Settings): Report {
  if (json) return (event) => void process.stdout.write(`${JSON.stringify(event)}\n`)
  const progress = createProgress({ quiet })
  const draw = (event: DeployEvent): void => {
    if (event.event === 'step') return progress.stage(event.step, event.detail)
    if (event.event === 'progress') return progress.bytes(event.doneBytes, event.totalBytes)
    if (event.event === 'plan' && !dryRun) return
    if (event.event === 'result')
      progress.end(event.outcome === 'reverted' || event.outcome === 'failed' ? 'failed' : 'done')
    if (quiet && event.event !== 'plan') return
    for (const line of formatDeployEvent(event)) {
      if (event.event === 'plan') process.stdout.write(`${line}\n`)
      else progress.note(line)
    }
    if (event.event === 'plan') progress.end('done')
  }
  return draw
}

function explain(error: BatonError): void {
  process.stderr.write(`error: ${error.message}\n`)
  if (error.hint !== null) process.stderr.write(`hint: ${error.hint}\n`)
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
