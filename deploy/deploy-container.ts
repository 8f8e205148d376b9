// Deploys a release of a container: pulls its image, recreates the container beside the old one, and goes back where it fails.
// This file reads the arguments and draws; the work is in container/recreate.ts.

import { asBatonError, BatonError, EXIT, MEANINGS } from '../agent/errors.ts'
import { isTag } from '../agent/release.ts'
import { composeProjectOf, deployCompose } from './container/compose.ts'
import { credentialsFor } from './container/credentials.ts'
import { connectEngine, type Engine } from './container/engine.ts'
import { lockContainer } from './container/lock.ts'
import { recreate, type Request, type Tools } from './container/recreate.ts'
import { type DeployEvent, type Ended, formatDeployEvent, type Report, resultEvent } from './container/report.ts'
import { type EngineChoice, findSocket } from './container/socket.ts'
import { resolveName } from './container/survey.ts'
import { parseFlags, SCRIPT_FLAGS, secondsOf } from './lib/flags.ts'
import { createProgress } from './lib/progress.ts'

const USAGE = `deploy-container.sh --container NAME --release TAG|latest
deploy-container.sh --container NAME --rollback

  --container NAME          name or id of the container, or label=KEY=VALUE
  --release TAG|latest      release to deploy
  --rollback                back to the image that ran before the last deployment
  --image REPOSITORY        repository to take the release from (default: the container's own)
  --engine docker|podman|auto   (default auto: DOCKER_HOST, then Docker, then podman)
  --health-timeout SECONDS  how long the new container may take to become healthy (default 60)
  --probation SECONDS       how long it must stay so before the old one is let go (default 30)
  -n, --dry-run             print the plan and what would differ; pulls the image, changes no container
  --json                    one JSON object a line
  -q, --quiet               errors only
  -h, --help

exit: 0 done or nothing to do, 2 usage, 3 no usable engine, 4 registry or release, 5 verification failed, 6 locked,
      7 refused, 8 the new one failed and the old one runs, 9 down
`

export interface Settings extends Request {
  engine: EngineChoice
  json: boolean
  quiet: boolean
}

/** Throws BatonError invalid_request, invalid_tag. Null where help is asked for. */
export function parseSettings(argv: readonly string[]): Settings | null {
  const { values } = parse(argv)
  if (values.help) return null
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
      process.stdout.write(USAGE)
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

function parse(argv: readonly string[]) {
  return parseFlags({
    args: [...argv],
    options: {
      ...SCRIPT_FLAGS,
      container: { type: 'string' },
      release: { type: 'string' },
      rollback: { type: 'boolean', default: false },
      image: { type: 'string' },
      engine: { type: 'string', default: 'auto' },
      'health-timeout': { type: 'string', default: '60' },
      probation: { type: 'string', default: '30' },
    },
  })
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
