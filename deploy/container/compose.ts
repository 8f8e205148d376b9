// A container of a compose project: it is recreated like any other, and compose is told, so that the project's file stays the
// truth and the next `up` finds nothing to do. The release is set where the file takes it from: a variable of its `.env`, or the tag
// that it names itself.

import { execFile } from 'node:child_process'
import { access, readFile, realpath } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { promisify } from 'node:util'
import { ownContainerId } from '../../agent/install.ts'
import { BatonError } from '../../agent/words.ts'
import { findProgram, formatCommand } from '../lib/shell.ts'
import type { Engine } from './engine/engine.ts'
import { type ContainerInspection, type ImageInspection, labelsOf, nameOf } from './inspection.ts'
import type { Origin } from './job.ts'
import { COMPOSE_LABELS, isKept, parseReference } from './reference.ts'
import type { Request, Tools } from './request.ts'
import { type Pulled, versionOf } from './target.ts'

export interface Project {
  name: string
  service: string
  directory: string
  files: string[]
  environmentFile: string
}

/** Where the file takes the tag from: a variable, or a text that cannot be changed without editing it. */
type Setting = { repository: string } & ({ kind: 'variable'; name: string } | { kind: 'literal'; tag: string })

/** What the project has to say of a target. */
export interface Composed {
  target: Pulled
  variable: Origin['compose']
  /** a line of the plan */
  doing: string
  /** Labels that make compose take the new container for its own; to be asked once the image has its name. */
  labels(): Promise<Record<string, string>>
}

/** Null where the container belongs to no project. Throws BatonError refused, unsupported_host. */
export async function composeFor(
  container: ContainerInspection,
  target: Pulled,
  request: Request,
  tools: Tools,
): Promise<Composed | null> {
  const project = composeProjectOf(container)
  if (project === null) return null
  const compose = await findCompose(project, tools.engine)
  const [setting, hash] = await Promise.all([findSetting(project, compose), hashOf(project, compose, {})])
  const { repository } = setting
  const tag =
    request.release === null && setting.kind === 'variable'
      ? tagOf(target.image, repository)
      : (target.tag?.tag ?? (setting.kind === 'literal' ? setting.tag : ''))
  if (setting.kind === 'literal' && setting.tag !== tag) {
    const line = `image: ${repository}:\${${variableFor(project.service)}:-${setting.tag}}`
    throw new BatonError(
      'refused',
      `the compose file of \`${nameOf(container)}\` names the tag \`${setting.tag}\` itself`,
      {
        hint: `write \`${line}\` there, so that this command can set the variable in .env; or change the tag there and run \`${formatCommand([...compose.command, 'up', '-d', project.service])}\``,
      },
    )
  }
  const variable =
    setting.kind === 'variable'
      ? {
          environmentFile: await realpath(project.environmentFile).catch(() => project.environmentFile),
          variable: setting.name,
          value: tag,
        }
      : null
  const own = labelsOf(container)
  const [hashLabel, imageLabel] = COMPOSE_LABELS
  const isAsInFile = hash === own[hashLabel]
  if (!isAsInFile) {
    const message = `the compose project was changed since \`${nameOf(container)}\` was made: only the image is changed now, the next \`up\` does the rest`
    await tools.report({ event: 'warning', message })
  }
  return {
    target: { ...target, repository, reference: `${repository}:${tag}`, tag: { repository, tag } },
    variable,
    doing:
      variable === null
        ? `let ${repository}:${tag} name the new image, which is what the compose file says`
        : `set ${variable.variable}=${tag} in ${variable.environmentFile}`,
    async labels() {
      const hash = isAsInFile
        ? await hashOf(project, compose, variable === null ? {} : { [variable.variable]: tag })
        : null
      return {
        ...(hash === null ? {} : { [hashLabel]: hash }),
        ...(own[imageLabel] === undefined ? {} : { [imageLabel]: target.image.Id }),
      }
    },
  }
}

/** Null where the container belongs to none. */
export function composeProjectOf(container: ContainerInspection): Project | null {
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

/** Throws BatonError refused where the service has more than one container: one database has one writer. */
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
    hint: 'one database has one writer: scale it to 1',
  })
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
  const likely = (name: string) => (/TAG|VERSION|RELEASE/i.test(name) ? 0 : /IMAGE/i.test(name) ? 1 : 2)
  return [...names].toSorted((a, b) => likely(a) - likely(b))
}

const PROBE_TAG = 'v0.0.0-baton-probe'

/** How compose is called for a project; nothing is started by it. */
interface Compose {
  command: string[]
  ask(args: string[], variables?: Record<string, string>): Promise<string>
}

/** Tries each variable of the files: the one that changes the tag, and nothing else of the image, is the one to set. */
async function findSetting({ service, files }: Project, compose: Compose): Promise<Setting> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8')))
  for (const name of variablesIn(texts.join('\n'))) {
    const tried = imageIn(await compose.ask(['config'], { [name]: PROBE_TAG }).catch(() => ''), service) ?? ''
    const repository = tried.endsWith(`:${PROBE_TAG}`) ? tried.slice(0, -PROBE_TAG.length - 1) : ''
    if (parseReference(repository)?.tag === null) return { kind: 'variable', name, repository }
  }
  const image = imageIn(await compose.ask(['config']), service)
  const reference = image === null ? null : parseReference(image)
  if (reference !== null && reference.digest === null)
    return { kind: 'literal', tag: reference.tag ?? 'latest', repository: reference.repository }
  const found = image === null ? 'no image' : `the image ${image}`
  throw new BatonError('refused', `the compose file gives \`${service}\` ${found}, which has no tag to set`, {
    hint: `write \`image: REPOSITORY:\${${variableFor(service)}:-latest}\` there`,
  })
}

/** What compose would label a container of the service with, if the variables were so. */
async function hashOf(
  { service }: Project,
  compose: Compose,
  variables: Record<string, string>,
): Promise<string | null> {
  const lines = (await compose.ask(['config', `--hash=${service}`], variables)).trim().split('\n')
  return lines.map((line) => line.trim().split(/\s+/)).find(([name]) => name === service)?.[1] ?? null
}

async function findCompose(project: Project, engine: Engine): Promise<Compose> {
  if (project.files.length === 0)
    throw new BatonError('refused', `the container of \`${project.service}\` does not say where its compose file is`)
  const environment = { DOCKER_HOST: `unix://${engine.socketPath}` }
  if (!(await isHere(project.files))) throw await notHere(project, `its file ${project.files.join(', ')} is not`)
  const files = project.files.flatMap((file) => ['-f', file])
  const environmentFile = project.environmentFile.endsWith('/.env') ? [] : ['--env-file', project.environmentFile]
  const own = ['-p', project.name, '--project-directory', project.directory, ...files, ...environmentFile]
  const command = [...(await composeProgram(project, environment)), ...own]
  return {
    command,
    async ask(args, variables = {}) {
      const [program = '', ...rest] = [...command, ...args]
      return await said(program, rest, { ...environment, ...variables }, project.directory)
    },
  }
}

async function composeProgram(project: Project, env: Record<string, string>): Promise<string[]> {
  if ((await findProgram('docker')) !== null) {
    const version = await said('docker', ['compose', 'version'], env, '/').catch(() => null)
    if (version !== null) return ['docker', 'compose']
  }
  if ((await findProgram('docker-compose')) !== null) return ['docker-compose']
  throw await notHere(project, 'compose is not')
}

/** Not by a shell: the image that deploys has none. Throws where the program fails, with what it said. */
async function said(program: string, args: string[], env: Record<string, string>, cwd: string): Promise<string> {
  return (await promisify(execFile)(program, args, { cwd, env: { ...process.env, ...env } })).stdout
}

async function isHere(files: readonly string[]): Promise<boolean> {
  const found = await Promise.allSettled(files.map((file) => access(file)))
  return found.every(({ status }) => status === 'fulfilled')
}

/** In a container of this program both can be lent to it; compose 2 is one file. */
async function notHere({ directory, service }: Project, what: string): Promise<BatonError> {
  const mounts = `-v ${directory}:${directory} -v /usr/libexec/docker/cli-plugins/docker-compose:/usr/local/bin/docker-compose:ro`
  const isContainer = (await ownContainerId()) !== null
  const how = isContainer
    ? `add \`${mounts}\` to \`docker run\` (the second is where this host has compose)`
    : 'run `deploy-container.sh` on the host, where `docker compose` is'
  return new BatonError('unsupported_host', `the container belongs to a compose project, and ${what} here`, {
    hint: `${how}; or change the release in ${directory} and run \`docker compose up -d ${service}\` there`,
  })
}

/** A tag that a person would know the image by. */
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
