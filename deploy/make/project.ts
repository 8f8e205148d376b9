// Reads an author's `baton.config.json`, once, and reports every fault at once. `config.schema.json` is the table by which it is read, and
// describes the file for editors; here is what no schema says.

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, isAbsolute, join, normalize } from 'node:path'
import {
  barrierIn,
  BatonError,
  DUMP,
  FOLDERS,
  type Faults,
  formatUnknown,
  keep,
  type Order,
  quoted,
  reasonOf,
  type Rehearse,
  type ReleaseKind,
  serviceName,
  type Setting,
  snapshotFaults,
  type SnapshotRules,
  unitFaults,
  type UnitWishes,
} from '../../agent/words.ts'
import { jsonIn } from '../lib/json.ts'
import SCHEMA from '../../config.schema.json' with { type: 'json' }

export interface Project {
  /** absolute path of the application */
  folder: string
  /** what it is called that says all this, in a sentence for whoever has written it */
  called: string
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
  /** how data that are not in SQLite are copied; null: nothing is said */
  snapshot: SnapshotRules | null
  /** folders in the release whose files old pages ask for; null: none */
  assets: string[] | null
  /** what the service needs of its unit; null: nothing */
  unit: UnitWishes | null
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
  /** the oldest release from which a host may move to this one, such as `>=1.4.0`; null: any */
  from: string | null
  /** what `build` and `init --try` start it with, and no release has */
  try: { environment: Record<string, string> }
  /** how a release is tried on a copy of the data; null: nothing is said */
  trial: Rehearse | null
  /** `none`: the service keeps nothing on the host that a release could change; null: nothing is said */
  state: 'none' | null
}

export const CONFIG = 'baton.config.json'
/** what `try` was called once */
const FORMER_TRY = 'check'
const IS_TRY = `the setting \`${FORMER_TRY}\` is now called \`try\``
/** folder that `baton build` writes; it never goes into a release */
export const RELEASES_FOLDER = 'releases'
export const ENVIRONMENT = SCHEMA.properties.environment.default
/** what is required is among the rules below: then all faults are told at once */
const TABLE = { ...SCHEMA, required: [] } as Setting
const { $schema: _, ...PROPERTIES } = SCHEMA.properties
const USUAL = Object.fromEntries(
  Object.entries<Setting>(PROPERTIES as Record<string, Setting>).map(([key, { default: usual = null }]) => [
    key,
    usual,
  ]),
) as unknown as Project
const [BODY_MAX_BYTES, HEADERS_MAX_BYTES, PREPARE_MAX_BYTES] = [16_384, 4096, 16_384]
/** the whole state directory, and the folder of it that is Baton's own */
const BATONS = /^(\.|update)(\/|$)/
const WITHOUT_BODY: readonly string[] = ['GET', 'HEAD']

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

/** Throws BatonError invalid_settings that lists every fault. `called`: another name, if the file was made of something else. */
export async function readProject(folder: string, called = CONFIG): Promise<Project> {
  const path = join(folder, CONFIG)
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('invalid_settings', `reading ${path}: ${reasonOf(cause)}`, {
      hint: 'run `baton init` to create it',
      cause,
    })
  })
  const project = { ...parseProject(jsonIn(text, path), folder), called }
  const entry = join(folder, project.entry)
  if (project.kind !== 'app' && !existsSync(entry))
    throw new BatonError('invalid_settings', `expected a file in \`entry\`, found none at ${entry}`)
  return project
}

export function parseProject(value: unknown, folder: string): Project {
  const { faults, unknown }: Faults = { faults: [], unknown: [] }
  const given = keep(TABLE, value, '', { faults, unknown }) as (Partial<Project> & { $schema?: string }) | undefined
  const { $schema: __, ...kept } = given ?? {}
  faults.push(...unknown.map((one) => (one.name === FORMER_TRY ? IS_TRY : formatUnknown(one))))
  const project = { ...USUAL, ...kept, folder, called: CONFIG }
  const refuse: Refuse = (name, expected, got) => {
    if (!faults.some((one) => one.includes(`\`${name}\``)))
      faults.push(`expected ${expected} in \`${name}\`, got ${quoted(got)}`)
  }
  refuseParts(project, refuse)
  if (project.trial !== null) refuseRehearsal(project.trial, refuse)
  if (project.state === 'none' && project.database !== null)
    faults.push('expected no `database` when `state` is `none`')
  faults.push(...faultsOfSnapshot(project))
  if (project.unit !== null) faults.push(...unitFaults(project.unit, project.service))
  for (const name of project.kind === 'app' ? [] : onlyOfFolders(project))
    faults.push(`expected \`kind\` to be \`app\` for ${name}: only a release of that kind contains files to run`)
  if (faults.length > 0) throw new BatonError('invalid_settings', `${CONFIG} is not valid: ${faults.join('; ')}`)
  const { entry, exclude } = project
  return {
    ...project,
    entry: normalize(entry),
    exclude: [...exclude, RELEASES_FOLDER],
    assets: project.assets?.map((folder) => normalize(folder).replace(/\/$/, '')) ?? null,
    before: project.before.map(([file = '', ...words]) => [normalize(file), ...words]),
    try: { ...USUAL.try, ...project.try },
  }
}

function onlyOfFolders({ before, nodeFlags, assets }: Pick<Project, 'before' | 'nodeFlags' | 'assets'>): string[] {
  return [
    ...(before.length > 0 ? ['`before`'] : []),
    ...(assets === null ? [] : ['`assets`']),
    ...nodeFlags.filter(isPreload).map((flag) => `\`${flag}\``),
  ]
}

/** Once for each `name`, as a message names it. */
type Refuse = (name: string, expected: string, got: unknown) => void

function refuseParts(project: Project, refuse: Refuse): void {
  const { service, entry, include, before, nodeFlags, database, longLivedPaths, assets } = project
  const { form } = SCHEMA.properties.service
  const [command, flag, path] = [
    SCHEMA.properties.before,
    SCHEMA.properties.nodeFlags,
    SCHEMA.properties.longLivedPaths,
  ]
  if (service !== serviceName(service ?? '')) refuse('service', form, service)
  if (!isBelow(entry)) refuse('entry', 'a path inside the project folder', entry)
  for (const [to, from] of Object.entries(include)) {
    if ((to !== '' && !isBelow(to)) || (from !== '.' && !isBelow(from)))
      refuse('include', 'paths inside the project folder', { [to]: from })
  }
  for (const got of before) if (!isBelow(got[0] ?? null)) refuse('before', command.items.form, got)
  for (const got of assets ?? [])
    if (!isBelow(got) || /^(\.|\.git)(\/|$)/.test(normalize(got)))
      refuse('assets', 'folders inside the release, not the whole release,', got)
  for (const got of nodeFlags) if (!isKeptFlag(got)) refuse('nodeFlags', flag.items.form, got)
  if (project.from !== null && barrierIn(project.from) === null)
    refuse('from', SCHEMA.properties.from.form, project.from)
  if (database !== null && !isBelow(database)) refuse('database', 'a path inside the state directory', database)
  for (const got of longLivedPaths ?? []) if (!isPattern(got)) refuse('longLivedPaths', path.items.form, got)
}

function faultsOfSnapshot({ snapshot, database, order, state }: Project): string[] {
  if (snapshot === null) return []
  const faults = snapshotFaults(snapshot)
  if (state === 'none') faults.push('expected no `snapshot` when `state` is `none`')
  if (snapshot.when === 'stopped' && order !== 'stop-first')
    faults.push(
      'expected `order` to be `stop-first` when `snapshot.when` is `stopped`: with start-first, a process is always running',
    )
  if (database !== null && [DUMP, FOLDERS].some((name) => name === basename(database)))
    faults.push(
      `expected a \`database\` with a name other than ${basename(database)}: \`snapshot\` uses that name for its copies`,
    )
  return faults
}

/** It stays small, since it travels in every release and is read before each update. */
function refuseRehearsal({ requests = [], prepare = '', files = [] }: Rehearse, refuse: Refuse): void {
  for (const [at, { method = 'GET', body, headers }] of requests.entries()) {
    const [name, size, headersSize] = [`trial.requests[${at}]`, bytesOf(body), bytesOf(headers)]
    if (body !== undefined && WITHOUT_BODY.includes(method))
      refuse(`${name}.method`, 'a method that allows a `body`, such as POST,', method)
    if (size > BODY_MAX_BYTES) refuse(`${name}.body`, `JSON of at most ${BODY_MAX_BYTES} bytes`, size)
    if (headersSize > HEADERS_MAX_BYTES) refuse(`${name}.headers`, `at most ${HEADERS_MAX_BYTES} bytes`, headersSize)
  }
  const bytes = Buffer.byteLength(prepare)
  if (bytes > PREPARE_MAX_BYTES) refuse('trial.prepare', `SQL of at most ${PREPARE_MAX_BYTES} bytes`, bytes)
  for (const got of files) {
    if (!isBelow(got) || BATONS.test(normalize(got)))
      refuse('trial.files', 'paths inside the state directory, but outside its `update` folder,', got)
  }
}

function bytesOf(value: unknown): number {
  return value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value))
}

/** Whether a relative path stays inside its folder. */
function isBelow(path: string | null): boolean {
  if (path === null || path === '' || isAbsolute(path) || path.includes('\0')) return false
  return !normalize(path).split('/').includes('..')
}

function isPattern(text: string): boolean {
  try {
    return text.startsWith('/') && new URLPattern(text, 'http://localhost') instanceof URLPattern
  } catch (cause) {
    return !(cause instanceof TypeError) // an old Node has no URLPattern, and takes any
  }
}

/** What comes after the build of a release, in commands. Pure. */
export function afterBuild(
  { publish, image, root }: Pick<Project, 'publish' | 'image' | 'root'>,
  tag: string,
): string[] {
  const to = publish === null ? ' --to <folder, user@host:/folder or github:owner/name>' : ''
  return [
    ...(root === null ? [] : ['next: npx baton trust sign']),
    `${root === null ? 'next' : 'then'}: npx baton publish ${tag}${to}`,
    `or, for containers: npx baton image ${tag}${image === null ? ' --repository <registry/name>' : ''}`,
  ]
}
