// Asks compose about a project; starts no service. Must hold: the user may be root, so no file is read that a container can
// write; and no variable that a project's file names enters the environment of a program that this file starts.

import { execFile } from 'node:child_process'
import { access, readFile, realpath, writeFile } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { promisify } from 'node:util'
import { ownContainerId } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { findProgram } from '../lib/shell.ts'
import { temporaryFolder } from '../lib/trusted.ts'
import type { Engine } from './engine/engine.ts'
import { environmentIn, withVariable } from './environment-file.ts'
import { type ContainerInspection, nameOf } from './inspection.ts'

export interface ComposeProject {
  name: string
  service: string
  directory: string
  files: string[]
  environmentFile: string
}

export interface Compose {
  /** command line that a person would type for this project */
  command: string[]
  /** names of the variables in the compose files, the likeliest for the release first */
  variables: string[]
  /** Throws BatonError refused if compose does not understand the project. */
  ask(args: string[], variables?: Record<string, string>): Promise<string>
}

const ASK_TIMEOUT_MS = 60_000
const ANSWER_MAX_BYTES = 16 * 1024 * 1024
const PATH_DEFAULT = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
/** Variables that decide which program runs, and how. Never tried as the release's variable, never taken from the shell. */
const OBEYED = /^(PATH|HOME|SHELL|IFS|ENV|BASH_ENV|LD_\w+|PYTHON\w+|DOCKER_(HOST|CONFIG|CONTEXT))$/

/** Throws BatonError refused, unsupported_host. */
export async function findCompose(
  project: ComposeProject,
  container: ContainerInspection,
  engine: Engine,
): Promise<Compose> {
  if (project.files.length === 0)
    throw new BatonError(
      'refused',
      `the container of \`${project.service}\` has no label with the path of its compose file`,
    )
  await refuseForeign(project, container, engine)
  if (!(await isHere(project.files))) throw notHere(project, `${project.files.join(', ')} could not be found`)
  const texts = await Promise.all(project.files.map((file) => readFile(file, 'utf8')))
  const variables = variablesIn(texts.join('\n'))
  const environment = fixedEnvironment(engine)
  const program = await composeProgram(project, environment)
  const files = project.files.flatMap((file) => ['-f', file])
  const named = ['-p', project.name, '--project-directory', project.directory, ...files]
  const environmentText = withShell(await environmentOf(project), variables)
  const isDefault = project.environmentFile.endsWith('/.env')
  return {
    command: [...program.shown, ...named, ...(isDefault ? [] : ['--env-file', project.environmentFile])],
    variables,
    async ask(args, tried = {}) {
      await using folder = await temporaryFolder('baton-compose-')
      try {
        const path = join(folder.path, 'env')
        const text = Object.entries(tried).reduce(
          (now, [name, value]) => withVariable(now, name, value),
          environmentText,
        )
        await writeFile(path, text, { mode: 0o600 })
        return await said(program.path, [...program.words, ...named, '--env-file', path, ...args], environment)
      } catch (cause) {
        const hint = `to see why, run \`docker compose config\` in ${project.directory}`
        throw new BatonError('refused', `docker compose cannot read the project: ${lastWords(cause)}`, { cause, hint })
      }
    },
  }
}

/** Names of the variables in a compose file, the likeliest for the release first, without those of `OBEYED`. Pure. */
export function variablesIn(text: string): string[] {
  const names = new Set([...text.matchAll(/\$\{?([A-Za-z_]\w*)/g)].map((match) => match[1] ?? ''))
  const likely = (name: string) => (/TAG|VERSION|RELEASE/i.test(name) ? 0 : /IMAGE/i.test(name) ? 1 : 2)
  return [...names].filter((name) => !OBEYED.test(name)).toSorted((a, b) => likely(a) - likely(b))
}

/** Throws BatonError refused if a container can write the project's folder or a file that compose reads. */
async function refuseForeign(project: ComposeProject, container: ContainerInspection, engine: Engine): Promise<void> {
  const { directory, files, environmentFile } = project
  const volumes = await engine.volumes()
  const foreign = [
    engine.dataRoot,
    ...volumes.flatMap(({ Mountpoint, Options }) => [Mountpoint, Options?.['device'] ?? '']),
    ...container.Mounts.filter(({ RW }) => RW).map(({ Source }) => Source),
  ].filter((place) => isAbsolute(place))
  const places = (await Promise.all(foreign.map(bothPaths))).flat()
  for (const path of [directory, ...files, environmentFile]) {
    const place = (await bothPaths(path)).map((one) => places.find((each) => isInside(one, each))).find(Boolean)
    if (place === undefined) continue
    const message = `the compose project of \`${nameOf(container)}\` is at ${path}, which containers can write to through ${place}`
    throw new BatonError('refused', message, {
      hint: 'keep compose.yaml and .env where no container can change them, or mount them read-only: whoever can change them becomes root at the next `docker compose up`',
    })
  }
}

/** The path as given, and with its links resolved. */
async function bothPaths(path: string): Promise<string[]> {
  return [path, await realpath(path).catch(() => path)]
}

function isInside(path: string, place: string): boolean {
  const folder = place.replace(/\/+$/, '')
  return path === folder || path.startsWith(`${folder}/`)
}

/** The whole environment of compose. Nothing in it comes from a project. */
function fixedEnvironment({ socketPath }: Engine): Record<string, string> {
  const own = Object.entries({ HOME: process.env['HOME'], DOCKER_CONFIG: process.env['DOCKER_CONFIG'] })
  const folders = (process.env['PATH'] ?? '').split(':').filter((folder) => isAbsolute(folder))
  return {
    ...Object.fromEntries(own.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))),
    PATH: folders.length === 0 ? PATH_DEFAULT : folders.join(':'),
    LC_ALL: 'C.UTF-8',
    DOCKER_HOST: `unix://${socketPath}`,
  }
}

async function environmentOf({ environmentFile }: ComposeProject): Promise<string> {
  const text = await environmentIn(environmentFile).catch((cause: unknown) => {
    throw new BatonError('refused', `reading the project's ${environmentFile}: ${reasonOf(cause)}`, { cause })
  })
  if (text !== null || environmentFile.endsWith('/.env')) return text ?? ''
  throw new BatonError('refused', `reading the project's ${environmentFile}: no such file`)
}

/** The shell's variables override the project's env file, as in compose itself; but only those that the compose files name. */
function withShell(text: string, variables: readonly string[]): string {
  return variables.reduce((now, name) => {
    const value = process.env[name]
    if (value === undefined) return now
    if (!/['\n\r]/.test(value)) return withVariable(now, name, /^[\w./:@+-]*$/.test(value) ? value : `'${value}'`)
    const message = `the value of ${name} in this shell contains a single quote or a line break, which cannot be written to an env file`
    throw new BatonError('refused', message, {
      hint: `run \`unset ${name}\`, then set a value without these characters in .env`,
    })
  }, text)
}

interface Program {
  path: string
  words: string[]
  /** as a person would type it */
  shown: string[]
}

async function composeProgram(project: ComposeProject, environment: Record<string, string>): Promise<Program> {
  const docker = await programAt('docker')
  if (docker !== null) {
    const version = await said(docker, ['compose', 'version'], environment).catch(() => null)
    if (version !== null) return { path: docker, words: ['compose'], shown: ['docker', 'compose'] }
  }
  const one = await programAt('docker-compose')
  if (one !== null) return { path: one, words: [], shown: ['docker-compose'] }
  throw notHere(project, 'compose was not found')
}

/** Null also if only a relative entry of PATH has the program. */
async function programAt(name: string): Promise<string | null> {
  const path = await findProgram(name)
  return path !== null && isAbsolute(path) ? path : null
}

/**
 * Stdout of a program. Starts it without a shell, as the deploying image has none, and not in the project's folder. Throws if the
 * program fails, with its stderr.
 */
async function said(program: string, args: string[], env: Record<string, string>): Promise<string> {
  const bounds = { timeout: ASK_TIMEOUT_MS, maxBuffer: ANSWER_MAX_BYTES }
  return (await promisify(execFile)(program, args, { cwd: '/', env, ...bounds })).stdout
}

/** The last line of a failed program's stderr, without its arguments. */
function lastWords(cause: unknown): string {
  const { stderr } = cause as { stderr?: string }
  return (stderr?.trim().split('\n').at(-1) || reasonOf(cause)).slice(0, 500)
}

async function isHere(files: readonly string[]): Promise<boolean> {
  const found = await Promise.allSettled(files.map((file) => access(file)))
  return found.every(({ status }) => status === 'fulfilled')
}

/** If this program runs in a container, the hint mounts the project and compose into it; compose 2 is one file. */
function notHere({ directory, service }: ComposeProject, what: string): BatonError {
  const mounts = `-v ${directory}:${directory} -v /usr/libexec/docker/cli-plugins/docker-compose:/usr/local/bin/docker-compose:ro`
  const isContainer = ownContainerId() !== null
  const how = isContainer
    ? `add \`${mounts}\` to \`docker run\` (change the second path if compose is installed elsewhere on the host)`
    : 'run `deploy-container.sh` on the host, where `docker compose` is installed'
  return new BatonError('unsupported_host', `the container belongs to a compose project, but ${what} here`, {
    hint: `${how}; or set the new tag in the compose project in ${directory} and run \`docker compose up -d ${service}\` there`,
  })
}
