// Reads an author's `baton.config.json`, once, and reports every fault at once. `config.schema.json` describes the same file for
// editors.

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join, normalize } from 'node:path'
import {
  BatonError,
  reasonOf,
  type Rehearse,
  type ReleaseKind,
  SERVICE_MAX,
  serviceName,
  type Order,
  ORDERS,
} from '../../agent/words.ts'
import { isBelow, number, oneOf, type Read, record, shownValue, textOr, texts } from './reading.ts'
import { rehearseFrom } from './rehearse-setting.ts'

export interface Project {
  /** absolute path of the application */
  folder: string
  service: string
  kind: ReleaseKind
  /** path of the main module: inside the release for kind `app`, else inside the folder */
  entry: string
  /** command line that makes the files to pack; null: nothing has to be made */
  build: string | null
  /** path in the release -> path in the folder */
  include: Record<string, string>
  /** globs of paths in the release */
  exclude: string[]
  /** pack only the packages' files that the entry reaches, as `@vercel/nft` sees it */
  trace: boolean
  cwd: 'keep' | 'app'
  environment: Record<string, string>
  args: string[]
  /** commands that run before the application begins: each a file of the release, and its arguments */
  before: string[][]
  /** flags of Node that every process of a release is started with; `isPreload` says which of them load a module */
  nodeFlags: string[]
  healthPath: string | null
  /** what the application serves by itself; null: not said, so http for people, while commands see what it is */
  scheme: 'http' | 'https' | null
  port: number
  database: string | null
  servers: number | null
  order: Order
  /** `baton`: the kit's commands need the word `baton` before them; null: they are first words */
  commands: 'baton' | null
  /** where a first install puts the endpoints and the panel: '' or such as `/_baton` */
  basePath: string
  /** `SIGTERM`: what the application does on that signal is its `onStop` */
  onStop: 'SIGTERM' | null
  /** patterns of paths, as of URLPattern, whose answers never end by themselves: a switch waits for none of them */
  longLivedPaths: string[] | null
  feed: string | null
  /** path, inside the folder, of the root.json that the feed is signed by */
  root: string | null
  /** `/folder`, `user@host:/folder` or `github:owner/name` */
  publish: string | null
  /** image name without a tag */
  image: string | null
  /** version of the database schema, for release.json */
  schema: number | null
  /** what `build` and `init --try` start it with, and no release has */
  check: { environment: Record<string, string> }
  /** how a release is tried on a copy of the data; null: nothing is said */
  rehearse: Rehearse | null
  /** `none`: the service keeps nothing on the host that a release could change; null: nothing is said */
  state: 'none' | null
}

export const CONFIG = 'baton.config.json'
/** folder that `baton build` writes; it never goes into a release */
export const RELEASES_FOLDER = 'releases'
const COMMANDS = ['baton'] as const
const SIGNALS = ['SIGTERM'] as const
const KINDS: readonly ReleaseKind[] = ['app', 'bundle', 'script']
export const ENVIRONMENT = {
  PORT: '{port}',
  HOST: '{host}',
  STATE_DIRECTORY: '{stateDirectory}',
  NODE_ENV: 'production',
}

const [FLAGS_MAX, ENDLESS_MAX, BEFORE_MAX] = [32, 32, 8]
/** a single executable ignores these, or would do something else than serve, or (--inspect) open a debugger in every command */
const NOT_KEPT =
  /^--(loader|experimental-loader|env-file|env-file-if-exists|watch|watch-.*|test|test-.*|eval|print|check|run|interactive|inspect|inspect-.*|version|help)(=|$)/

/** Whether every start of a release can have this flag of Node. */
export function isKeptFlag(flag: string): boolean {
  return /^--[a-z][a-z0-9-]*(=[\w.,:/%+@-]+)?$/.test(flag) && !NOT_KEPT.test(flag)
}

/** Whether the flag names a module that is loaded before the application: `--import=./instrument.mjs`. */
export function isPreload(flag: string): boolean {
  return /^--(import|require)=/.test(flag)
}

/** Throws BatonError invalid_settings that lists every fault. */
export async function readProject(folder: string): Promise<Project> {
  const path = join(folder, CONFIG)
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('invalid_settings', `reading ${path}: ${reasonOf(cause)}`, {
      hint: '`baton init` writes one',
      cause,
    })
  })
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw new BatonError('invalid_settings', `expected JSON in ${path}: ${reasonOf(cause)}`, { cause })
  }
  const project = parseProject(value, folder)
  const entry = join(folder, project.entry)
  if (project.kind !== 'app' && !existsSync(entry))
    throw new BatonError('invalid_settings', `expected a file in \`entry\`, found none at ${entry}`)
  return project
}

/** Pure. */
export function parseProject(value: unknown, folder: string): Project {
  const faults: string[] = []
  const fields = record(value, 'the file', faults)
  const known = ['$schema', ...Object.keys(PARTS)]
  for (const key of Object.keys(fields)) {
    if (!known.includes(key))
      faults.push(`unknown setting \`${key.slice(0, 40)}\`, expected one of ${known.join(', ')}`)
  }
  const project = { folder } as Record<string, unknown>
  for (const [key, read] of Object.entries(PARTS)) project[key] = read(fields[key], `\`${key}\``, faults)
  if (project['state'] === 'none' && project['database'] !== null)
    faults.push('expected no `database` if `state` is `none`')
  for (const name of project['kind'] === 'app' ? [] : onlyOfFolders(project as Pick<Project, 'before' | 'nodeFlags'>))
    faults.push(`expected the kind \`app\` for ${name}: any other has no files to run`)
  if (faults.length > 0) throw new BatonError('invalid_settings', `${CONFIG} is not valid: ${faults.join('; ')}`)
  return project as unknown as Project
}

function onlyOfFolders({ before, nodeFlags }: Pick<Project, 'before' | 'nodeFlags'>): string[] {
  return [...(before.length > 0 ? ['`before`'] : []), ...nodeFlags.filter(isPreload).map((flag) => `\`${flag}\``)]
}

const PARTS: { [Key in Exclude<keyof Project, 'folder'>]: Read<Project[Key]> } = {
  service(value, name, faults) {
    if (typeof value === 'string' && value === serviceName(value)) return value
    faults.push(
      `expected a name such as \`shop\` (a-z, 0-9, -, at most ${SERVICE_MAX}) in ${name}, got ${shownValue(value)}`,
    )
    return ''
  },
  kind: oneOf(KINDS, 'app'),
  entry(value, name, faults) {
    if (typeof value === 'string' && isBelow(value)) return normalize(value)
    faults.push(`expected a path inside the folder in ${name}, got ${shownValue(value)}`)
    return ''
  },
  build: textOr(null),
  include(value, name, faults) {
    if (value === undefined) return { '': '.' }
    const include = record(value, name, faults)
    for (const [to, from] of Object.entries(include)) {
      if ((to !== '' && !isBelow(to)) || typeof from !== 'string' || (from !== '.' && !isBelow(from)))
        faults.push(`expected paths inside the folder in ${name}, got ${shownValue({ [to]: from })}`)
    }
    return include as Record<string, string>
  },
  exclude: (value, name, faults) => [...texts(value, name, faults), RELEASES_FOLDER],
  trace: (value, name, faults) => {
    if (value !== undefined && typeof value !== 'boolean') faults.push(`expected true or false in ${name}`)
    return value === true
  },
  cwd: oneOf(['keep', 'app'] as const, 'keep'),
  environment(value, name, faults) {
    return value === undefined ? ENVIRONMENT : variablesIn(value, name, faults)
  },
  args: texts,
  before(value, name, faults) {
    const commands = (value === undefined || value === null ? [] : value) as string[][]
    const isCommand = (one: unknown[]) =>
      Array.isArray(one) && one.every((word) => typeof word === 'string') && isBelow(one[0] ?? '')
    if (Array.isArray(commands) && commands.length <= BEFORE_MAX && commands.every(isCommand))
      return commands.map(([file = '', ...words]) => [normalize(file), ...words])
    faults.push(
      `expected at most ${BEFORE_MAX} commands such as \`["scripts/migrate.js", "--all"]\`, a file of the release and its arguments, in ${name}, got ${shownValue(value)}`,
    )
    return []
  },
  nodeFlags(value, name, faults) {
    const flags = texts(value, name, faults)
    const bad = flags.find((flag) => !isKeptFlag(flag))
    if (bad !== undefined)
      faults.push(
        `expected flags of Node such as \`--enable-source-maps\` that an executable obeys in ${name}, got ${shownValue(bad)}`,
      )
    if (flags.length > FLAGS_MAX) faults.push(`expected at most ${FLAGS_MAX} flags in ${name}, got ${flags.length}`)
    return flags
  },
  healthPath(value, name, faults) {
    if (value === undefined || value === null) return null
    if (typeof value === 'string' && /^\/[!-~]*$/.test(value)) return value
    faults.push(`expected a path such as \`/healthz\` in ${name}, got ${shownValue(value)}`)
    return null
  },
  scheme: (value, name, faults) =>
    value === undefined || value === null ? null : oneOf(['http', 'https'] as const, 'http')(value, name, faults),
  port: number(0, 65535, 8080),
  database: (value, name, faults) => {
    if (value === undefined || value === null) return null
    if (typeof value === 'string' && isBelow(value)) return value
    faults.push(`expected a path inside the state directory in ${name}, got ${shownValue(value)}`)
    return null
  },
  servers: (value, name, faults) =>
    value === undefined || value === null ? null : number(1, 16, 1)(value, name, faults),
  order: oneOf(ORDERS, 'stop-first'),
  commands: (value, name, faults) =>
    value === undefined || value === null ? null : oneOf(COMMANDS, 'baton')(value, name, faults),
  basePath(value, name, faults) {
    if (value === undefined || value === '') return ''
    if (typeof value === 'string' && /^(\/[A-Za-z0-9._~-]+)+$/.test(value)) return value
    faults.push(`expected a path such as \`/_baton\` in ${name}, got ${shownValue(value)}`)
    return ''
  },
  onStop: (value, name, faults) =>
    value === undefined || value === null ? null : oneOf(SIGNALS, 'SIGTERM')(value, name, faults),
  longLivedPaths(value, name, faults) {
    if (value === undefined || value === null) return null
    const patterns = texts(value, name, faults)
    const bad = patterns.find((pattern) => !pattern.startsWith('/') || !isPattern(pattern))
    if (bad !== undefined)
      faults.push(
        `expected paths such as \`/feeds/:name?*live=*\`, as of URLPattern, in ${name}, got ${shownValue(bad)}`,
      )
    if (patterns.length > ENDLESS_MAX)
      faults.push(`expected at most ${ENDLESS_MAX} paths in ${name}, got ${patterns.length}`)
    return patterns
  },
  feed: textOr(null),
  root: textOr(null),
  publish: textOr(null),
  image: textOr(null),
  check(value, name, faults) {
    const { environment, ...others } = value === undefined ? { environment: {} } : record(value, name, faults)
    if (Object.keys(others).length > 0) faults.push(`expected \`environment\` in ${name}, got ${shownValue(others)}`)
    return { environment: variablesIn(environment ?? {}, `\`environment\` of ${name}`, faults) }
  },
  schema: (value, name, faults) =>
    value === undefined || value === null ? null : number(0, 1e9, 0)(value, name, faults),
  rehearse: (value, name, faults) => (value === undefined || value === null ? null : rehearseFrom(value, name, faults)),
  state: (value, name, faults) =>
    value === undefined || value === null ? null : oneOf(['none'] as const, 'none')(value, name, faults),
}

function variablesIn(value: unknown, name: string, faults: string[]): Record<string, string> {
  const variables = record(value, name, faults)
  for (const [variable, text] of Object.entries(variables)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(variable) || typeof text !== 'string')
      faults.push(`expected variables with texts in ${name}, got ${shownValue({ [variable]: text })}`)
  }
  return variables as Record<string, string>
}

function isPattern(text: string): boolean {
  try {
    return new URLPattern(text, 'http://localhost') instanceof URLPattern
  } catch (cause) {
    return !(cause instanceof TypeError) // an old Node has no URLPattern, and takes any
  }
}
