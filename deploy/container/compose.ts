// A container of a compose project is recreated like any other. Compose's `.env` and labels are changed too, so that the
// project's file stays the truth and the next `up` finds nothing to do. The release is set where the compose file takes it from:
// in a variable of `.env`; or, if the file names the tag itself, by giving that tag to the new image.

import { isAbsolute, join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { formatCommand } from '../lib/shell.ts'
import { type Compose, findCompose, type ComposeProject } from './compose-program.ts'
import type { Engine } from './engine/engine.ts'
import { folderOf, withoutLinks } from './environment-file.ts'
import { type ContainerInspection, type ImageInspection, labelsOf, nameOf } from './inspection.ts'
import type { JobOrigin } from './job.ts'
import { COMPOSE_LABELS, isKept, parseReference } from './reference.ts'
import type { ContainerRequest, Tools } from './request.ts'
import { type Pulled, versionOf } from './target.ts'

/** Where the compose file takes the tag from: a variable, or a literal that only an edit of the file can change. */
type Setting = { repository: string } & ({ kind: 'variable'; name: string } | { kind: 'literal'; tag: string })

/** What a compose project adds to a deployment. */
export interface Composed {
  target: Pulled
  variable: JobOrigin['compose']
  /** line of the plan that says what is done for compose */
  doing: string
  /** Labels by which compose takes the new container for its own. Call it only once the image has its name. */
  labels(): Promise<Record<string, string>>
}

/** Null if the container belongs to no project. Throws BatonError refused, unsupported_host. */
export async function composeFor(
  container: ContainerInspection,
  target: Pulled,
  request: ContainerRequest,
  tools: Tools,
): Promise<Composed | null> {
  const said = composeProjectOf(container)
  if (said === null) return null
  const project = { ...said, environmentFile: await withoutLinks(said.environmentFile) }
  const compose = await findCompose(project, container, tools.engine)
  const [setting, before] = await Promise.all([findSetting(project, compose), hashes(compose, {})])
  const { service } = project
  const hashOf = async (given: Record<string, string>) => (await hashes(compose, given, service)).get(service) // whatever its profile
  const { repository } = setting
  const tag = tagFor(setting, target, request)
  if (setting.kind === 'literal' && setting.tag !== tag) throw fixedTag(container, project, setting, compose)
  const variable =
    setting.kind === 'variable'
      ? {
          environmentFile: project.environmentFile,
          folder: await folderOf(project.environmentFile),
          variable: setting.name,
          value: tag,
        }
      : null
  const own = labelsOf(container)
  const [hashLabel, imageLabel] = COMPOSE_LABELS
  const wanted: Record<string, string> = variable === null ? {} : { [variable.variable]: tag }
  const after = variable === null ? before : await hashes(compose, wanted)
  const moved = [...after.keys()].filter((name) => name !== service && before.get(name) !== after.get(name))
  if (variable !== null && moved.length > 0) await refuseShared(variable.variable, moved, request, tools)
  const hash = before.get(service) ?? (await hashOf({}))
  const isAsInFile = hash === own[hashLabel]
  if (!isAsInFile) {
    const message = `the compose project has changed since \`${nameOf(container)}\` was created: this command changes only the image, and the next \`docker compose up\` applies the rest`
    await tools.report({ event: 'warning', message })
  }
  return {
    target: { ...target, repository, reference: `${repository}:${tag}`, tag: { repository, tag } },
    variable,
    doing:
      variable === null
        ? `point the tag in the compose file, ${repository}:${tag}, at the new image`
        : `set ${variable.variable}=${tag} in ${variable.environmentFile}${moved.length === 0 ? '' : `; the next \`docker compose up\` also updates ${moved.join(', ')}`}`,
    async labels() {
      // not earlier: compose 1 looks at the image that has the name
      const next = isAsInFile ? await hashOf(wanted) : undefined
      return {
        ...(next === undefined ? {} : { [hashLabel]: next }),
        ...(own[imageLabel] === undefined ? {} : { [imageLabel]: target.image.Id }),
      }
    },
  }
}

function tagFor(setting: Setting, { image, tag }: Pulled, { release }: ContainerRequest): string {
  if (setting.kind === 'variable' && release === null) return tagOf(image, setting.repository)
  return tag?.tag ?? (setting.kind === 'literal' ? setting.tag : '')
}

function fixedTag(
  container: ContainerInspection,
  { service }: ComposeProject,
  { repository, tag }: Setting & { kind: 'literal' },
  { command }: Compose,
): BatonError {
  const line = `image: ${repository}:\${${variableFor(service)}:-${tag}}`
  return new BatonError('refused', `the compose file of \`${nameOf(container)}\` hard-codes the tag \`${tag}\``, {
    hint: `put \`${line}\` in that file so that this command can set the variable in .env; or change the tag there and run \`${formatCommand([...command, 'up', '-d', service])}\``,
  })
}

/**
 * Refuses (BatonError refused), or with `--with-shared` only warns: these services take the same variable, so the next
 * `docker-compose up` would give them the new image too, without a proof that it works.
 */
async function refuseShared(
  variable: string,
  moved: readonly string[],
  { withShared }: ContainerRequest,
  { report }: Tools,
): Promise<void> {
  const names = moved.map((name) => `\`${name}\``).join(', ')
  const [use, them] = moved.length === 1 ? ['uses', 'it'] : ['use', 'them']
  const message = `${names} in the same project also ${use} ${variable}: the next \`docker compose up\` would switch ${them} to the new image, untested`
  if (withShared) return await report({ event: 'warning', message })
  throw new BatonError('refused', message, {
    hint: 'use a separate variable for each service, or pass --with-shared to allow this',
  })
}

/** Null if the container belongs to no project. */
export function composeProjectOf(container: ContainerInspection): ComposeProject | null {
  const labels = labelsOf(container)
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

/** Throws BatonError refused if the service has more than one container: one database has one writer. */
export async function refuseScaled(container: ContainerInspection, engine: Engine): Promise<void> {
  const project = composeProjectOf(container)
  if (project === null) return
  const ids = await engine.containers(`com.docker.compose.project=${project.name}`)
  const all = (await Promise.all(ids.map((id) => engine.container(id)))).filter((one) => one !== null)
  const own = all.filter((one) => {
    const { 'com.docker.compose.service': service, 'com.docker.compose.oneoff': oneOff } = labelsOf(one)
    return service === project.service && oneOff?.toLowerCase() !== 'true' && !isKept(nameOf(one))
  })
  if (own.length < 2) return
  throw new BatonError('refused', `\`${project.service}\` has ${own.length} containers, expected one`, {
    hint: 'only one container may write to the database: scale the service to 1',
  })
}

/** The value of `services: SERVICE: image:` in the output of `compose config`, whose layout is always the same. Pure. */
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

const PROBE_TAG = 'v0.0.0-baton-probe'
/** each try is a call of compose; the likeliest variables come first */
const TRIED_MAX = 100

/** Tries each variable of the files. The one to set changes the image's tag, and nothing else of the image. */
async function findSetting({ service }: ComposeProject, compose: Compose): Promise<Setting> {
  for (const name of compose.variables.slice(0, TRIED_MAX)) {
    const tried = imageIn(await compose.ask(['config'], { [name]: PROBE_TAG }).catch(() => ''), service) ?? ''
    const repository = tried.endsWith(`:${PROBE_TAG}`) ? tried.slice(0, -PROBE_TAG.length - 1) : ''
    if (parseReference(repository)?.tag === null) return { kind: 'variable', name, repository }
  }
  const image = imageIn(await compose.ask(['config']), service)
  const reference = image === null ? null : parseReference(image)
  if (reference !== null && reference.digest === null)
    return { kind: 'literal', tag: reference.tag ?? 'latest', repository: reference.repository }
  const found = image === null ? 'no image' : `the image ${image}, which has no tag to set`
  throw new BatonError('refused', `in the compose file, \`${service}\` has ${found}`, {
    hint: `write \`image: REPOSITORY:\${${variableFor(service)}:-latest}\` there`,
  })
}

/** By service: the hash with which compose would label its containers, given these variables. `*`: all with an active profile. */
async function hashes(
  compose: Compose,
  variables: Record<string, string>,
  service = '*',
): Promise<Map<string, string>> {
  const lines = (await compose.ask(['config', `--hash=${service}`], variables)).trim().split('\n')
  return new Map(lines.map((line) => line.trim().split(/\s+/)).map(([name = '', hash = '']) => [name, hash]))
}

/** The tag by which a person would know the image. */
function tagOf(image: ImageInspection, repository: string): string {
  const tags = (image.RepoTags ?? [])
    .map(parseReference)
    .filter((name) => name?.repository === repository)
    .map((name) => name?.tag ?? '')
  const version = versionOf(image)
  const known = tags.find((tag) => tag === version) ?? tags.find((tag) => tag !== '' && !tag.startsWith('baton-'))
  return known ?? version ?? 'baton-previous'
}

function variableFor(service: string): string {
  return `${service.toUpperCase().replaceAll(/\W/g, '_')}_TAG`
}
