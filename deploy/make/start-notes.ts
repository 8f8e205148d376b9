// What `baton init` says of a start script: what it does that an install does not, and what of it a release has in another way. Pure.

import { recordOf } from '../lib/agent-answer.ts'
import type { Detected } from './detect.ts'
import { pageOf } from './place.ts'
import { CONFIG, ENVIRONMENT, isPreload } from './project.ts'

/** the configuration that is there already; null for none */
type Configured = Readonly<Record<string, unknown>> | null

const WITHOUT_ENV_FILE = `A release contains no env file: put variables that are not secret into \`environment\`, and secrets into each host's environment file, /etc/default/<service> or ~/.config/<service>/environment (${pageOf('author/application.md')})`

const WITHOUT_FLAG =
  'An executable cannot be started with these flags; to use `--inspect`, set it in NODE_OPTIONS when you start it'

/** What the start script does beside what an install does: first of all notes, since a migration may be among it. */
export function notesOfStart({ start, entry, before: kept }: Detected, configured: Configured): string[] {
  const { before, folder, after, through, runner, lostVariables, environment, unread } = start
  const notes: string[] = []
  if (folder !== '.')
    notes.push(
      `dropped from the start script: \`cd ${folder}\`. An install starts the application in its state directory or, with \`"cwd": "app"\`, in the release's folder: to read files relative to ${folder}, use \`import.meta.dirname\` (${pageOf('author/application.md')})`,
    )
  if (before.length > 0)
    notes.push(
      `the start script runs ${inCode(before)} before the application, but an install does not: put commands that prepare data, such as a migration, into \`before\` (each a file in the release, with its arguments), which every start and every trial runs; put commands that only generate files into \`build\`. A release contains no commands from development packages`,
    )
  if (kept.length > 0) notes.push(...notesOfBefore(kept, configured))
  if (after.length > 0)
    notes.push(
      `dropped from the start script: ${inCode(after)}, because an install starts the application without a shell`,
    )
  if (through !== null)
    notes.push(
      `the start script starts Node with ${inCode([through])}, but an install does not: if the application needs it, do the same in the entry or in \`environment\``,
    )
  if (runner !== null)
    notes.push(
      `the start script runs the application with ${runner.name}${runner.options.length === 0 ? '' : ` (${runner.options.join(' ')})`}, but an install runs ${entry ?? 'its entry'} without it, as one process, which the service manager restarts when it ends`,
    )
  if (lostVariables.length > 0)
    notes.push(
      `dropped from the start script: ${inCode(lostVariables)}, which only a shell understands; use \`environment\` instead`,
    )
  const given = configured?.['environment']
  const unset = Object.keys(environment).filter((name) => !Object.hasOwn({ ...ENVIRONMENT, ...recordOf(given) }, name))
  if (configured !== null && unset.length > 0)
    notes.push(`the start script sets ${unset.join(', ')}, but \`environment\` in ${CONFIG} does not`)
  if (unread !== null && configured === null)
    notes.push(
      `the start script runs ${inCode([unread])}, but no file could be identified in it: ${entry ?? ''} was chosen instead, by its name or from \`main\` in package.json. If another file starts the application, name it in \`entry\``,
    )
  return notes
}

function notesOfBefore(before: Detected['before'], configured: Configured): string[] {
  const said = inCode(before.map((words) => words.join(' ')))
  if (configured === null)
    return [
      `each start runs ${said} before the application, as the start script does, and each trial does so on its copy of the data (\`before\`, ${pageOf('author/application.md')})`,
    ]
  if (configured['before'] !== undefined) return []
  return [
    `the start script runs ${said} before the application, but \`before\` in ${CONFIG} is not set: add \`"before": ${JSON.stringify(before)}\``,
  ]
}

/** The flags of Node that an executable does not have, and what of the others no release has. */
export function notesOfFlags({ nodeFlags, lostFlags, devPackages }: Detected, configured: Configured): string[] {
  const flags = nodeFlags.filter(isPreload)
  const given = texts(configured?.['nodeFlags'])
  const lost = configured === null ? [] : flags.filter((flag) => !given.includes(flag))
  const packages = flags
    .map((flag) => flag.replace(/^--\w+=/, ''))
    .flatMap((name) => /^(?:@[^/]+\/)?[^./][^/]*/.exec(name) ?? [])
  const late = packages.filter((name) => Object.hasOwn(devPackages, name))
  const isFile = lostFlags.some((flag) => flag.startsWith('--env-file'))
  return [
    ...(lostFlags.length === 0
      ? []
      : [`dropped from the start script: ${lostFlags.join(', ')}. ${isFile ? WITHOUT_ENV_FILE : WITHOUT_FLAG}`]),
    ...(lost.length === 0
      ? []
      : [`the start script preloads a module with ${lost.join(' ')}, but \`nodeFlags\` in ${CONFIG} does not`]),
    ...late.map(
      (name) =>
        `${name} is loaded before the application and is a development package, which a release does not contain: run \`npm install --save-prod ${name}\``,
    ),
  ]
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : []
}

export function notesOfArgs({ args, lostArgs, localArgs }: Detected, configured: Configured): string[] {
  const notes: string[] = []
  if (lostArgs.length > 0)
    notes.push(
      `dropped from the start script: ${lostArgs.join(' ')}, which only a shell understands; use \`args\` instead`,
    )
  if (configured !== null && configured['args'] === undefined && args.length > 0)
    notes.push(`the start script passes ${args.join(' ')} to the application, but \`args\` in ${CONFIG} is not set`)
  if (localArgs.length > 0)
    notes.push(
      `\`args\` contains ${localArgs.join(', ')}, but an install starts the application in the state directory, so it looks there, not here: copy data there once; for anything else, set \`"cwd": "app"\` (${pageOf('author/application.md')})`,
    )
  return notes
}

function inCode(texts: readonly string[]): string {
  return texts.map((text) => `\`${text}\``).join(', ')
}
