// A container that belongs to a compose project is recreated by compose, so that the project's file stays the truth.
// The release is set where the file takes it from: a variable of its `.env`, or the tag that it names itself.
// Must hold: the old image keeps a tag (`baton-predecessor-…` while this is under way, `baton-rollback-…` afterwards), so that
// going back goes by image id; compose removes the old container, which is the one thing this route cannot keep.

import { readFile, realpath, stat } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { makeDisk } from '../../agent/install.ts'
import { asBatonError, BatonError, reasonOf } from '../../agent/words.ts'
import { formatDuration } from '../lib/progress.ts'
import { findProgram, formatCommand, run } from '../lib/shell.ts'
import { becomesHealthy, standsProbation } from './health.ts'
import { type ContainerInspection, type ImageInspection, labelsOf, nameOf } from './inspection.ts'
import type { Job } from './job.ts'
import { again } from './moves.ts'
import type { Request, Tools } from './recreate.ts'
import { parseReference, rollbackTag } from './reference.ts'
import { refuseUnfit } from './refusal.ts'
import type { Ended } from './report.ts'
import { imageOf, otherContainers, ownChanges } from './survey.ts'
import { type Pulled, resolveRelease, versionOf } from './target.ts'

export interface Project {
  name: string
  service: string
  directory: string
  files: string[]
  environmentFile: string
}

/** Where the file takes the tag from: a variable, or a text that cannot be changed without editing it. */
export type Setting = { kind: 'variable'; name: string } | { kind: 'literal'; tag: string }

/** Null where the container belongs to none. */
export function composeProjectOf(container: ContainerInspection | null): Project | null {
  const labels = container === null ? {} : labelsOf(container)
  const label = (key: string) => labels[`com.docker.compose.${key}`]
  const [name, service] = [label('project'), label('service')]
  if (name === undefined || service === undefined) return null
  const directory = label('project.working_dir') ?? ''
  const absolute = (path: string) => (isAbsolute(path) ? path : join(directory, path))
  return {
    name,
    service,
    directory,
    files: (label('project.config_files') ?? '').split(',').filter(Boolean).map(absolute),
    environmentFile: absolute(label('project.environment_file') ?? '.env'),
  }
}

/** What stands under `services: SERVICE: image:` of what `compose config` prints, which is always laid out alike. Pure. */
export function imageIn(yaml: string, service: string): string | null {
  let section = ''
  let current = ''
  for (const line of yaml.split('\n')) {
    const [, indent = '', key = '', value = ''] = /^( *)["']?([\w.-]+)["']?:(?: +(.*))?$/.exec(line) ?? []
    if (key === '') continue
    if (indent === '') section = key
    else if (section === 'services' && indent.length === 2) current = key
    else if (section === 'services' && current === service && indent.length === 4 && key === 'image') {
      return value.replace(/^(['"])(.*)\1$/, '$2')
    }
  }
  return null
}

/** Names of the variables in a compose file, the likely ones first. Pure. */
export function variablesIn(text: string): string[] {
  const names = new Set([...text.matchAll(/\$\{?([A-Za-z_]\w*)/g)].map((match) => match[1] ?? ''))
  const likely = (name: string) => (/TAG|VERSION|RELEASE|IMAGE/i.test(name) ? 0 : 1)
  return [...names].toSorted((a, b) => likely(a) - likely(b))
}

/** The text of a `.env` with one variable set; all other lines as they are. Pure. */
export function withVariable(text: string, name: string, value: string): string {
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n')
  const at = lines.findLastIndex((line) => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`).test(line))
  if (at < 0) lines.push(`${name}=${value}`)
  else lines[at] = `${name}=${value}`
  return `${lines.join('\n')}\n`
}

const PROBE_TAG = 'v0.0.0-baton-probe'

interface Work {
  project: Project
  name: string
  repository: string
  setting: Setting
  compose: string[]
  /** for compose: which engine */
  environment: { DOCKER_HOST: string }
}

export async function deployCompose(project: Project, request: Request, tools: Tools): Promise<Ended> {
  const { engine, report } = tools
  const container = await only(project, tools)
  const oldImage = await imageOf(container, engine)
  const changes = ownChanges(await engine.changes(container.Id), container)
  refuseUnfit(container, oldImage, await otherContainers(container.Id, engine), changes)
  const work = await workFor(project, container, request, tools)
  const settled = request.dryRun ? null : await settle(work, container, request, tools)
  if (settled !== null) return settled

  const from = versionOf(oldImage)
  const target = await (request.release === null
    ? resolveKept(work, tools)
    : resolveRelease(container, oldImage, request.release, work.repository, tools))
  const tag = target.tag?.tag ?? ''
  if (work.setting.kind === 'literal' && request.release !== null && work.setting.tag !== tag) {
    throw new BatonError(
      'refused',
      `the compose file of \`${work.name}\` names the tag \`${work.setting.tag}\` itself`,
      {
        hint: `write \`image: ${work.repository}:\${BEACON_TAG:-${work.setting.tag}}\` there, so that this command can set the variable in .env; or change the tag there and run \`${formatCommand([...work.compose, 'up', '-d', project.service])}\``,
      },
    )
  }
  if (target.image.Id === container.Image) {
    return { outcome: 'up_to_date', from, to: target.version ?? request.release, downMs: null, error: null }
  }
  await report({
    event: 'plan',
    container: work.name,
    engine: `${engine.kind} ${engine.version}, API ${engine.apiVersion}, compose project ${project.name}`,
    from: { reference: container.Config.Image, image: container.Image, digest: null, version: from },
    to: { reference: target.reference, image: target.image.Id, digest: target.digest, version: target.version },
    plan: planLines(work, tag, request),
    differences: [],
  })
  if (request.dryRun) return { outcome: 'up_to_date', from, to: from, downMs: null, error: null }

  await report({ event: 'step', step: 'keep', detail: `${work.repository}:${predecessorTag(work.name)}` })
  await again(engine, () => engine.tag(container.Image, work.repository, predecessorTag(work.name)))
  const ended = {
    from,
    to: target.version ?? request.release,
    outcome: request.release === null ? 'rolled_back' : 'updated',
  } as const
  const startedAt = performance.now()
  try {
    await bring(work, target.image.Id, tag, tools)
    const downMs = await proves(work, target.image.Id, target.version, request, tools, startedAt)
    await commit(work, container.Image, tools)
    return { ...ended, downMs, error: null }
  } catch (cause) {
    const error = asBatonError(cause, 'restart_failed', `recreating with compose`)
    return await revert(work, error, oldImage, parseReference(container.Config.Image)?.tag ?? null, request, tools)
  }
}

/** Sets the release and lets compose recreate the one service. */
async function bring(work: Work, image: string, tag: string, { engine, report }: Tools): Promise<void> {
  const { project, repository, setting, compose } = work
  await report({
    event: 'step',
    step: 'switch',
    detail: formatCommand([...compose, 'up', '-d', '--no-deps', project.service]),
  })
  const name = setting.kind === 'literal' ? setting.tag : tag
  await again(engine, () => engine.tag(image, repository, name)) // compose goes by name: it must mean this image
  if (setting.kind === 'variable') await setVariable(project.environmentFile, setting.name, tag)
  // a variable of this process would win over the file
  await runCompose(
    work,
    ['up', '-d', '--no-deps', '--no-build', project.service],
    setting.kind === 'variable' ? { [setting.name]: undefined } : {},
  )
}

/** Waits for health and the end of the probation; gives back the milliseconds until it was healthy. */
async function proves(
  work: Work,
  image: string,
  version: string | null,
  request: Request,
  tools: Tools,
  startedAt: number,
): Promise<number> {
  const { engine, report } = tools
  const epoch = engine.epoch()
  const { Id: successor } = await only(work.project, tools)
  const job: Job = { successor, predecessor: '', image, origin: { version } as Job['origin'] }
  await report({ event: 'step', step: 'health', detail: `at most ${formatDuration(request.healthTimeoutMs)}` })
  const healthyIn = await becomesHealthy(job, request.healthTimeoutMs, epoch, engine)
  const downMs = Math.round(performance.now() - startedAt)
  await report({ event: 'step', step: 'probation', detail: formatDuration(request.probationMs) })
  await standsProbation(job, request.probationMs, request.healthTimeoutMs, healthyIn, engine)
  return downMs
}

async function commit({ name, repository }: Work, oldImage: string, { engine, report }: Tools): Promise<void> {
  await report({ event: 'step', step: 'commit', detail: `the old image is kept as ${repository}:${rollbackTag(name)}` })
  await again(engine, () => engine.tag(oldImage, repository, rollbackTag(name)))
  await again(engine, () => engine.untag(`${repository}:${predecessorTag(name)}`))
}

async function revert(
  work: Work,
  cause: BatonError,
  oldImage: ImageInspection,
  oldTag: string | null,
  request: Request,
  tools: Tools,
): Promise<Ended> {
  const { engine, report } = tools
  const from = versionOf(oldImage)
  const ended = { from, to: request.release, downMs: null }
  const tag = oldTag ?? from ?? 'baton-previous'
  try {
    await report({ event: 'step', step: 'revert', detail: cause.message })
    const failed = await only(work.project, tools).catch(() => null)
    if (failed !== null) for (const line of await engine.logs(failed.Id, 20)) await report({ event: 'log', line })
    await bring(work, oldImage.Id, tag, tools)
    await proves(work, oldImage.Id, from, { ...request, probationMs: 0 }, tools, performance.now())
    await again(engine, () => engine.untag(`${work.repository}:${predecessorTag(work.name)}`))
    return { ...ended, outcome: 'reverted', error: cause }
  } catch (second) {
    const message = `${cause.message}; going back failed too: ${reasonOf(second)}`
    const hint = `run this again with --rollback, or by hand: \`${formatCommand([...work.compose, 'up', '-d', work.project.service])}\``
    return { ...ended, outcome: 'failed', error: new BatonError('undo_failed', message, { cause: second, hint }) }
  }
}

/** A tag of the old image says that an earlier run was cut short. Its successor is judged, or there is none yet. */
async function settle(
  work: Work,
  container: ContainerInspection,
  request: Request,
  tools: Tools,
): Promise<Ended | null> {
  const { engine, report } = tools
  const old = await engine.image(`${work.repository}:${predecessorTag(work.name)}`)
  if (old === null || old.Id === container.Image) return null
  const version = versionOf(await imageOf(container, engine))
  await report({
    event: 'warning',
    message: `an earlier deployment of ${version ?? container.Config.Image} was cut short`,
  })
  if (request.release === null) {
    const ended = await revert(
      work,
      new BatonError('interrupted', 'cut short'),
      old,
      keptTag(old, work.repository),
      request,
      tools,
    )
    return ended.outcome === 'reverted'
      ? { ...ended, outcome: 'rolled_back', to: ended.from, from: version, error: null }
      : ended
  }
  try {
    const downMs = await proves(work, container.Image, version, request, tools, performance.now())
    await commit(work, old.Id, tools)
    const same = request.release === version || container.Config.Image.endsWith(`:${request.release}`)
    return same ? { outcome: 'updated', from: versionOf(old), to: version, downMs, error: null } : null
  } catch (cause) {
    const error = asBatonError(cause, 'restart_failed', 'finishing what was cut short')
    return await revert(work, error, old, keptTag(old, work.repository), request, tools)
  }
}

async function resolveKept({ name, repository }: Work, { engine, report }: Tools): Promise<Pulled> {
  const reference = `${repository}:${rollbackTag(name)}`
  await report({ event: 'step', step: 'resolve', detail: reference })
  const image = await engine.image(reference)
  if (image === null) {
    throw new BatonError('no_backup', `there is no image ${reference}, which the last deployment would have left`, {
      hint: 'name the release with --release',
    })
  }
  const version = versionOf(image)
  const tag = keptTag(image, repository) ?? version ?? 'baton-previous'
  return { image, reference: `${repository}:${tag}`, repository, digest: null, version, tag: { repository, tag } }
}

/** A tag that a person would know the image by. */
function keptTag(image: ImageInspection, repository: string): string | null {
  const tags = (image.RepoTags ?? [])
    .map(parseReference)
    .filter((name) => name?.repository === repository)
    .map((name) => name?.tag ?? '')
  const version = versionOf(image)
  return tags.find((tag) => tag === version) ?? tags.find((tag) => tag !== '' && !tag.startsWith('baton-')) ?? null
}

async function workFor(
  project: Project,
  container: ContainerInspection,
  request: Request,
  { engine }: Tools,
): Promise<Work> {
  const repository = request.repository ?? parseReference(container.Config.Image)?.repository
  if (repository === undefined)
    throw new BatonError('refused', `\`${nameOf(container)}\` runs an image without a name`, {
      hint: 'name its repository with --image',
    })
  if (project.files.length === 0)
    throw new BatonError('refused', `\`${nameOf(container)}\` does not say where its compose file is`)
  const environment = { DOCKER_HOST: `unix://${engine.socketPath}` }
  const program = await findCompose(environment)
  const files = project.files.flatMap((file) => ['-f', file])
  const environmentFile = project.environmentFile.endsWith('/.env') ? [] : ['--env-file', project.environmentFile]
  const compose = [
    ...program,
    '-p',
    project.name,
    '--project-directory',
    project.directory,
    ...files,
    ...environmentFile,
  ]
  const setting = await findSetting({ compose, environment, project })
  return { project, name: nameOf(container), repository, setting, compose, environment }
}

/** Tries each variable of the files: the one that changes the tag, and nothing else of the image, is the one to set. */
async function findSetting(work: Pick<Work, 'compose' | 'environment' | 'project'>): Promise<Setting> {
  const { service, files } = work.project
  const image = imageIn(await runCompose(work, ['config']), service)
  const reference = image === null ? null : parseReference(image)
  if (reference === null || reference.digest !== null) {
    throw new BatonError(
      'refused',
      `the compose file gives \`${service}\` ${image === null ? 'no image' : `the image ${image}`}, which has no tag to set`,
      {
        hint: 'write `image: REPOSITORY:${BEACON_TAG:-latest}` there',
      },
    )
  }
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8')))
  for (const name of variablesIn(texts.join('\n'))) {
    const tried = imageIn(await runCompose(work, ['config'], { [name]: PROBE_TAG }).catch(() => ''), service)
    if (tried === `${reference.repository}:${PROBE_TAG}`) return { kind: 'variable', name }
  }
  return { kind: 'literal', tag: reference.tag ?? 'latest' }
}

async function runCompose(
  { compose, environment, project }: Pick<Work, 'compose' | 'environment' | 'project'>,
  args: string[],
  variables: Record<string, string | undefined> = {},
): Promise<string> {
  const { stdout } = await run([...compose, ...args], { env: { ...environment, ...variables }, cwd: project.directory })
  return stdout
}

async function findCompose(env: Work['environment']): Promise<string[]> {
  if ((await findProgram('docker')) !== null) {
    const { exitCode } = await run(['docker', 'compose', 'version'], { env, allowFailure: true })
    if (exitCode === 0) return ['docker', 'compose']
  }
  if ((await findProgram('docker-compose')) !== null) return ['docker-compose']
  throw new BatonError(
    'unsupported_host',
    'neither `docker compose` nor `docker-compose` is here, and the container belongs to a compose project',
  )
}

async function setVariable(path: string, name: string, value: string): Promise<void> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  const changed = withVariable(text, name, value)
  if (changed === text) return
  const file = await realpath(path).catch(() => path) // a link stays one
  const mode = await stat(file).then(
    (found) => found.mode & 0o777,
    () => 0o600,
  ) // it may hold secrets
  await makeDisk().writeWhole(file, changed, mode)
}

/** The one container of the service. Throws BatonError refused where there are more: one database has one writer. */
async function only(project: Project, { engine }: Tools): Promise<ContainerInspection> {
  const ids = await engine.containers(`com.docker.compose.project=${project.name}`)
  const all = (await Promise.all(ids.map((id) => engine.container(id)))).filter((container) => container !== null)
  const own = all.filter((container) => {
    const labels = labelsOf(container)
    return (
      labels['com.docker.compose.service'] === project.service &&
      labels['com.docker.compose.oneoff']?.toLowerCase() !== 'true'
    )
  })
  const [container, ...others] = own
  if (container === undefined)
    throw new BatonError('service_down', `compose left no container of \`${project.service}\``)
  if (others.length > 0) {
    throw new BatonError('refused', `\`${project.service}\` has ${own.length} containers, expected one`, {
      hint: 'one database has one writer: scale it to 1',
    })
  }
  return container
}

function predecessorTag(name: string): string {
  return `baton-predecessor-${name}`.slice(0, 128)
}

function planLines({ project, name, repository, setting, compose }: Work, tag: string, request: Request): string[] {
  const set =
    setting.kind === 'variable'
      ? `set ${setting.name}=${tag} in ${project.environmentFile}`
      : `tag the new image ${repository}:${setting.tag}, which the compose file names`
  return [
    `tag the present image ${repository}:${predecessorTag(name)}, so that a prune leaves it`,
    set,
    `run ${formatCommand([...compose, 'up', '-d', '--no-deps', project.service])}`,
    `wait until it is healthy (at most ${formatDuration(request.healthTimeoutMs)}), then ${formatDuration(request.probationMs)} of probation; on any failure set the old one again`,
  ]
}
