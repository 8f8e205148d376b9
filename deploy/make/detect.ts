// Guesses the settings of `baton.config.json` from an application's folder. Reads, and changes nothing.
// Must hold: a setting that it cannot find is null, and `baton init` asks for it or says so. It never makes one up.

import { existsSync, readdirSync } from 'node:fs'
import { basename, join, posix, resolve } from 'node:path'
import { serviceName } from '../../agent/words.ts'
import { forkingFile, movingFile } from './forks.ts'
import { isKeptFlag } from './project.ts'
import { beforeOf, chosenStart, commandsOf, foreignRuntimeOf, startCommands } from './chosen-start.ts'
import { readOtherCommand, type ScriptWords, type StartScript } from './start-script.ts'
import { OPERATOR_WORDS } from './first/command.ts'
import { hashedFolders, readJson, readText } from './source-text.ts'

export type Framework = 'next' | 'nest' | 'fastify' | 'express' | 'hono' | 'http'

export interface Detected {
  service: string
  framework: Framework
  packageManager: 'npm' | 'pnpm' | 'yarn' | 'bun'
  typescript: boolean
  /** its sources are ES modules: the package says so, or says nothing and the source is written as one, which Node sees too */
  isModule: boolean
  /** main module, as a path in the folder; null if not found */
  entry: string | null
  /** file that gets the line that embeds the agent: the entry, or the source it is compiled from; null if there is none to edit */
  source: string | null
  /** server that a tool generates and that has no source of the author's, such as `build/index.js`; null if there is none */
  made: string | null
  /** server that the start script runs and a package brings; null if it runs none */
  brought: Brought | null
  /** without an entry and without a start script: the only command that a package brings; null if there is none, or a choice */
  candidate: Pick<Brought, 'name' | 'package'> | null
  /** what the start script gives to the server, with `{port}` and `{host}` */
  args: string[]
  /** its other words, which only a shell understands */
  lostArgs: string[]
  /** those of `args` that are names in the folder, where an install does not look for them */
  localArgs: string[]
  /** folders of files with a hash in their names, as paths in the release */
  assets: string[]
  /** whether there is a folder public/, which Next.js leaves out of its standalone output */
  hasPublic: boolean
  /** what the start script runs before the server, as far as a release can run it: a file of the release, and its arguments */
  before: string[][]
  /** what else the start script does, which no install does by itself */
  start: StartRest
  /** the runtime that the application is written for, if that is none of Node.js; null: it is */
  foreignRuntime: 'Bun' | 'Deno' | null
  /** development dependencies: name -> range, or where it comes from */
  devPackages: Readonly<Record<string, string>>
  /** packages with compiled addons */
  natives: string[]
  healthPath: string | null
  /** a text in the sources that looks like the name of a database: where it lies, if anywhere, only a start shows */
  mentionedDatabase: string | null
  /** flags of Node in the start script that every start of a release can have */
  nodeFlags: string[]
  /** its other ones */
  lostFlags: string[]
  /** environment variables that name the folder for data, such as DATA_DIR */
  dataVariables: string[]
  /** words of Baton's operator that the application takes too, such as `start` */
  words: string[]
  /** file that starts workers of node:cluster, as a path in the folder; null: none was found */
  forks: string | null
  /** file that makes its own folder the working folder, as a path in the folder; null: none was found */
  moves: string | null
  /** whether a route of the application is below /admin or /web, where Baton's are */
  hasRoutesOfOurs: boolean
  /** command that makes the entry, such as `npm run build`; null if none is needed */
  build: string | null
  /** whether the folder is the root of a git repository */
  isRepository: boolean
  /** `owner/name` of the git remote */
  github: string | null
  /** version in package.json, which may be any text */
  version: string | null
}

export interface StartRest extends Pick<
  StartScript,
  'folder' | 'before' | 'after' | 'through' | 'runner' | 'lostVariables'
> {
  /** its variables: name -> text, with `{port}` and `{host}` */
  environment: Record<string, string>
  /** its command, if the entry is another file than the one that it names, or no file of it was understood; else null */
  unread: string | null
}

/** A server that a package brings. */
export interface Brought {
  /** its command; null if the start script names the file */
  name: string | null
  package: string
  /** path in the folder, inside node_modules/ */
  file: string
  /** whether it asks if it is the main module */
  asksIfMain: boolean
}

interface Manifest {
  name?: string
  version?: unknown
  type?: string
  main?: string
  scripts?: Record<string, string>
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
  /** https://oclif.io: each command is a file of this folder, or below `dist/` of it */
  oclif?: { commands?: unknown }
}

/** loads after the agent what a tool has made, or a package brings */
export const AROUND = 'baton.server.mjs'
/** package -> the server that its tool makes */
const MADE_BY = { '@sveltejs/adapter-node': 'build/index.js' } as const
/** matches variables for a folder, not for a file in it */
const DATA_VARIABLE = /\bprocess\.env(?:\.|\[['"`])((?:DATA|STORAGE|UPLOADS?|DB|DATABASE)_?DIR)\b/g
const USUAL = ['server', 'app', 'index', 'main'].flatMap((name) =>
  ['', 'src/', 'dist/'].flatMap((folder) =>
    ['.js', '.mjs', '.cjs', '.ts', '.mts'].map((end) => `${folder}${name}${end}`),
  ),
)

export function detect(folder: string): Detected {
  const manifest = readJson(join(folder, 'package.json')) as Manifest
  const packages = { ...manifest.devDependencies, ...manifest.dependencies }
  const framework = frameworkOf(Object.keys(packages))
  const typescript = existsSync(join(folder, 'tsconfig.json'))
  const made = framework === 'next' || framework === 'nest' ? null : madeOf(folder, manifest, Object.keys(packages))
  const started = framework === 'next' || made !== null ? null : startedIn(folder, manifest, framework)
  const brought = typeof started === 'string' ? null : started
  const ours = framework === 'next' ? 'baton.server.cjs' : made === null && brought === null ? null : AROUND
  const entry = ours ?? (typeof started === 'string' ? started : null)
  const source = ours !== null || entry === null ? null : sourceOf(folder, entry)
  const flags = startCommands(folder, manifest.scripts ?? {})[0]?.flags ?? []
  const { args, lostArgs } = givenIn(folder, manifest, framework)
  const build = buildOf(folder, manifest, framework, made ?? entry)
  const start = restOf(folder, manifest, { framework, made, brought, entry, build })
  const release = {
    folder,
    dependencies: Object.keys(manifest.dependencies ?? {}),
    fileOf: (program: string | null) => fileOf(folder, program),
  }
  const all = start.before.map((text) => ({ text, words: beforeOf(release, text) }))
  const texts = source === null ? '' : textsBeside(folder, source)
  return {
    service: serviceName(manifest.name ?? basename(resolve(folder))),
    framework,
    packageManager: managerOf(folder),
    typescript,
    isModule: isModuleIn(manifest, source === null ? '' : readText(join(folder, source))),
    entry,
    source,
    made,
    brought,
    candidate: entry === null && manifest.scripts?.['start'] === undefined ? candidateIn(folder, manifest) : null,
    args,
    lostArgs,
    before: all.flatMap(({ words }) => (words === null ? [] : [words])),
    start: { ...start, before: all.flatMap(({ text, words }) => (words === null ? [text] : [])) },
    foreignRuntime: foreignRuntimeOf(manifest.scripts ?? {}, texts),
    localArgs: args.filter((arg) => /^[\w.][\w./-]*$/.test(arg) && existsSync(join(folder, arg))),
    assets: framework === 'next' ? ['.next/static'] : hashedFolders(folder, packages),
    hasPublic: existsSync(join(folder, 'public')),
    devPackages: manifest.devDependencies ?? {},
    natives: nativesOf(folder, Object.keys(manifest.dependencies ?? {})),
    healthPath:
      /['"`](\/(?:api\/)?(?:healthz?|livez|readyz?|alive|health-?check|_health|up|ping))['"`]/.exec(texts)?.[1] ?? // `/live` is often a stream
      null,
    mentionedDatabase: /['"`/]([\w-]+\.(?:db|sqlite3?))['"`]/.exec(texts)?.[1] ?? null,
    nodeFlags: flags.filter(isKeptFlag),
    lostFlags: flags.filter((flag) => !isKeptFlag(flag)),
    words: wordsOf(folder, manifest, brought === null ? texts : textsBeside(folder, brought.file), args),
    forks: forkingFile(folder, brought?.file ?? source ?? ''),
    moves: movingFile(folder, brought?.file ?? source ?? ''),
    hasRoutesOfOurs: /['"`]\/(?:admin|web)(?:\/[^'"`\s]*)?['"`]/.test(texts),
    dataVariables: [...new Set([...texts.matchAll(DATA_VARIABLE)].map(([, name = '']) => name))],
    build,
    isRepository: existsSync(join(folder, '.git')),
    github: githubOf(folder),
    version: typeof manifest.version === 'string' ? manifest.version : null,
  }
}

/** By commander or yargs (`.command('start')`), a comparison with the first argument, a file for each command (oclif), or `args`. */
function wordsOf(folder: string, { oclif }: Manifest, texts: string, args: readonly string[]): string[] {
  const named = /(?:\.command\(\s*(?:\{\s*command:\s*)?|\b(?:argv\[2\]|command)\s*===?\s*)['"`]([a-z-]+)/g
  const commands = typeof oclif?.commands === 'string' ? namesIn(join(folder, oclif.commands)) : []
  const files = commands.map((name) => name.replace(/\.[cm]?[jt]s$/, ''))
  const all = new Set([...[...texts.matchAll(named)].map(([, word]) => word), ...files, ...args])
  return OPERATOR_WORDS.filter((word) => all.has(word))
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function frameworkOf(packages: string[]): Framework {
  const has = (name: string) => packages.includes(name)
  if (has('next')) return 'next'
  if (has('@nestjs/core')) return 'nest'
  if (has('fastify')) return 'fastify'
  if (has('hono')) return 'hono'
  return has('express') ? 'express' : 'http'
}

/** What `npm start` runs: a file here or one of a package; else `main`, else a usual name. */
function startedIn(folder: string, manifest: Manifest, framework: Framework): string | Brought | null {
  const { scripts = {}, main } = manifest
  if (framework === 'nest') return 'dist/main.js'
  for (const { program } of startCommands(folder, scripts)) {
    const file = fileOf(folder, program)
    if (file !== null) return isBrought(file) ? broughtBy(folder, null, file) : file
  }
  const named = main !== undefined && existsSync(join(folder, main)) ? main.replace(/^\.\//, '') : null
  const usual = [...(named === null ? [] : [named]), ...USUAL].filter((path) => existsSync(join(folder, path)))
  // a file of the author's that loads the agent
  const around = usual.find((path) => readText(join(folder, path)).includes('baton-kit'))
  return around ?? commandOf(folder, manifest) ?? usual[0] ?? null
}

/** Null if it is not there, and no source of it either. */
function fileOf(folder: string, program: string | null): string | null {
  const named = program?.replace(/^\.\//, '')
  if (named === undefined) return null
  const files = /\.[cm]?[jt]s$/.test(named) ? [named] : [`${named}.js`, `${named}/index.js`]
  return files.find((one) => existsSync(join(folder, one)) || sourceOf(folder, one) !== null) ?? null
}

/** What a start from source runs: the entry, or what the file around it will load; null if it is not there. */
export function startable(folder: string, { entry, made, brought }: Detected): string | null {
  const files = [entry, made, brought?.file].filter((file) => typeof file === 'string')
  return files.find((file) => existsSync(join(folder, file))) ?? null
}

/** No file of a package is edited: the next `npm ci` puts it back as it was. */
export function isBrought(path: string): boolean {
  return /(^|\/)node_modules\//.test(path)
}

/** `file`: inside node_modules/. */
export function broughtBy(folder: string, name: string | null, file: string): Brought {
  const inside = file.slice(file.lastIndexOf('node_modules/') + 'node_modules/'.length).split('/')
  return {
    name,
    package: inside.slice(0, inside[0]?.startsWith('@') === true ? 2 : 1).join('/'),
    file,
    asksIfMain: /\brequire\.main\b|\bimport\.meta\.main\b|\bprocess\.argv\[1\]/.test(readText(join(folder, file))),
  }
}

/** By the start script, if it runs `node` or a command of a package, and not a tool such as `tsx`: what `next start` is given, no server gets. */
function givenIn(folder: string, manifest: Manifest, framework: Framework): ScriptWords {
  const { scripts = {} } = manifest
  const isTool = framework === 'next' || framework === 'nest' || commandOf(folder, manifest) === null
  const command = isTool ? null : readOtherCommand(chosenStart(scripts)?.command ?? '')
  return startCommands(folder, scripts)[0] ?? command ?? { args: [], lostArgs: [] }
}

/** The built server that `npm start` runs, else the one that a known tool makes. Null if the line can go into a source of it. */
function madeOf(folder: string, { scripts = {} }: Manifest, packages: readonly string[]): string | null {
  if (scripts['build'] === undefined) return null
  const tool = (Object.keys(MADE_BY) as (keyof typeof MADE_BY)[]).find((name) => packages.includes(name))
  const programs = startCommands(folder, scripts).flatMap(({ program }) => program?.replace(/^\.\/|\/$/g, '') ?? [])
  for (const program of programs.length > 0 || tool === undefined ? programs : [MADE_BY[tool]]) {
    if (!/^(dist|build|out|\.output)(\/|$)/.test(program)) continue
    const files = /\.[cm]?js$/.test(program) ? [program] : [`${program}/index.js`, `${program}.js`]
    if (files.some((file) => sourceOf(folder, file) !== null || readText(join(folder, file)).includes('baton-kit')))
      return null
    return files.find((file) => existsSync(join(folder, file))) ?? files[0] ?? null
  }
  return null
}

/** By the `bin` of a package that goes into the release. */
function commandOf(folder: string, { scripts = {}, dependencies = {} }: Manifest): Brought | null {
  const program =
    startCommands(folder, scripts)[0]?.program ?? readOtherCommand(chosenStart(scripts)?.command ?? '')?.name
  const word = program?.replace(/^(?:\.\/)?node_modules\/\.bin\//, '') ?? ''
  for (const name of Object.keys(dependencies)) {
    const file = commandsOf(folder, name)[word]
    if (file !== undefined) return broughtBy(folder, word, posix.join('node_modules', name, file))
  }
  return null
}

/** The only command of the packages besides the kit, else the only one that has its package's name; null if there is a choice. */
function candidateIn(folder: string, { dependencies = {} }: Manifest): Detected['candidate'] {
  const all = Object.keys(dependencies).flatMap((name) =>
    name === 'baton-kit'
      ? []
      : Object.keys(commandsOf(folder, name)).map((command) => ({ name: command, package: name })),
  )
  const usual = all.filter((one) => one.name === one.package.split('/').at(-1))
  return all.length === 1 ? (all[0] ?? null) : usual.length === 1 ? (usual[0] ?? null) : null
}

function restOf(
  folder: string,
  { scripts = {} }: Manifest,
  { framework, made, brought, entry, build }: Pick<Detected, 'framework' | 'made' | 'brought' | 'entry' | 'build'>,
): StartRest {
  const script = chosenStart(scripts)
  if (script === null) {
    const none = { through: null, runner: null, lostVariables: [], environment: {}, unread: null }
    return { folder: '.', before: [], after: [], ...none }
  }
  const { command, before, folder: start, after, through, runner, lostVariables, environment } = script
  const [first] = startCommands(folder, scripts)
  const isKnown = framework === 'next' || framework === 'nest' || made !== null || brought !== null
  const isRead = isKnown || (entry !== null && fileOf(folder, first?.program ?? null) === entry)
  const filled = Object.entries(environment).map(([name, text]) => [name, filledVariable(name, text)])
  return {
    folder: start,
    // a build makes its files once, and no start does
    before: before.filter((text) => build === null || !/^(?:npm|pnpm|yarn|bun)(?: run)? build$/.test(text)),
    after,
    through,
    runner,
    lostVariables,
    environment: Object.fromEntries(filled) as Record<string, string>,
    unread: isRead || entry === null ? null : command,
  }
}

/** An install gives the application another port and host. */
function filledVariable(name: string, text: string): string {
  if (name === 'PORT' && /^\d+$/.test(text)) return '{port}'
  return /^HOST(?:NAME)?$/.test(name) && /^[\w.:[\]-]+$/.test(text) ? '{host}' : text
}

/** The file itself, or the TypeScript in src/ from which dist/ or build/ is compiled. */
export function sourceOf(folder: string, entry: string): string | null {
  const bare = entry.replace(/^(dist|build|out|lib)\//, '').replace(/\.[cm]?js$/, '')
  const guesses = /^(dist|build|out)\//.test(entry)
    ? [`src/${bare}.ts`, `src/${bare}.mts`, `${bare}.ts`, `src/${bare}.js`]
    : [entry]
  return guesses.find((path) => existsSync(join(folder, path))) ?? null
}

function buildOf(
  folder: string,
  { scripts = {} }: Manifest,
  framework: Framework,
  entry: string | null,
): string | null {
  if (scripts['build'] === undefined) return framework === 'next' ? 'npx next build' : null
  const isBefore =
    chosenStart(scripts)?.before.some((text) => /^(?:npm|pnpm|yarn|bun)(?: run)? build$/.test(text)) === true
  const isMade = framework === 'next' || framework === 'nest' || (entry !== null && /^(dist|build|out)\//.test(entry))
  const makesPages = /\bvite build\b/.test(scripts['build']) // what the server serves is no file of its sources
  return isBefore || isMade || makesPages ? `${managerOf(folder)} run build` : null
}

function managerOf(folder: string): Detected['packageManager'] {
  const locks = { 'pnpm-lock.yaml': 'pnpm', 'yarn.lock': 'yarn', 'bun.lock': 'bun', 'bun.lockb': 'bun' } as const
  for (const [lock, manager] of Object.entries(locks)) if (existsSync(join(folder, lock))) return manager
  return 'npm'
}

function nativesOf(folder: string, names: string[]): string[] {
  const marks = ['binding.gyp', 'prebuilds', 'build/Release']
  return names.filter((name) => marks.some((mark) => existsSync(join(folder, 'node_modules', name, mark))))
}

function githubOf(folder: string): string | null {
  const config = readText(join(folder, '.git', 'config'))
  return /url\s*=\s*\S*github\.com[:/]([\w.-]+\/[\w.-]+?)(?:\.git)?\s*$/m.exec(config)?.[1] ?? null
}

/** The texts of the source and of its neighbours: routes are often in separate files. */
function textsBeside(folder: string, source: string): string {
  const directory = source.includes('/') ? source.slice(0, source.lastIndexOf('/')) : '.'
  const names = readdirSync(join(folder, directory), { recursive: directory !== '.', encoding: 'utf8' })
  const files = names.filter((name) => /\.[cm]?[jt]s$/.test(name) && !name.includes('node_modules')).slice(0, 200)
  return [readText(join(folder, source)), ...files.map((name) => readText(join(folder, directory, name)))].join('\n')
}

const MODULE_SYNTAX = /^(import\s*['"{*]|import\s+\w|export\s*[{*]|export\s+\w)/m

function isModuleIn({ type }: Manifest, text: string): boolean {
  return type === undefined ? MODULE_SYNTAX.test(text) : type === 'module'
}
