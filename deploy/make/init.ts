// `baton init`: plans what an application needs to become a service that updates itself. The author sees the plan before anything
// is written. Pure: takes what `detect` found, returns files and lines. Must hold: a second run changes nothing. No file of the
// author is replaced; the entry gets one line.

import { isDeepStrictEqual } from 'node:util'
import { AROUND, type Brought, type Detected, isBrought } from './detect.ts'
import { aboutForks, aboutMoving } from './forks.ts'
import { NODE_MAJOR } from './node.ts'
import { pageOf } from './place.ts'
import { CONFIG, ENVIRONMENT } from './project.ts'
import type { SourceStart } from './source-start.ts'
import { notesOfArgs, notesOfFlags, notesOfStart } from './start-notes.ts'

export interface Written {
  path: string
  content: string
}

/** The one line to put on top of a source file. */
export interface Patch {
  path: string
  line: string
}

export interface InitPlan {
  files: Written[]
  patch: Patch | null
  /** corrections of the author's own configuration that a start has shown, as a diff for the author to apply; null for none */
  proposal: string | null
  /** what the author has to look at */
  notes: string[]
}

export interface Findings {
  /** the configuration that is there already: its author has chosen; null for none */
  configured: Readonly<Record<string, unknown>> | null
  /** its `entry` names no file; a build may make it later */
  lacksEntry?: boolean
  /** what one start has shown; null: it was not started */
  shown: SourceStart | null
}

export const PACKAGE = 'baton-kit'

const SWITCH_NOTES = [
  '`order` is stop-first: the old process stops before the new one starts, so no timer, bot or lock is ever duplicated; clients wait in the meantime.',
  `If two processes of the application can run at once, set \`order\` to \`start-first\` so that no client has to wait (${pageOf('author/order.md')}).`,
]

/** `foreign`: the note about packages that exclude Node 26; null for none. */
export function planInit(
  found: Detected,
  { configured, lacksEntry = false, shown }: Findings = { configured: null, shown: null },
  foreign: string | null = null,
): InitPlan {
  const notes: string[] = [
    ...notesOfStart(found, configured),
    ...notesOfUploads(found, configured),
    ...(configured === null ? SWITCH_NOTES : []),
    ...(shown?.notes ?? []),
    ...(shown?.warnings ?? []),
  ]
  const healthPath = shown === null ? found.healthPath : shown.healthPath
  const files: Written[] = [
    { path: CONFIG, content: `${JSON.stringify(configOf({ ...found, healthPath }, shown), null, 2)}\n` },
    ...(found.isRepository ? [{ path: '.github/workflows/release.yml', content: workflow(found) }] : []),
  ]
  if (!found.isRepository && configured === null)
    notes.push(
      'no GitHub workflow for publishing was written: the folder is not the root of a git repository. Run `git init`, then run `baton init` again',
    )
  if (found.framework === 'next') {
    files.push({ path: 'baton.server.cjs', content: NEXT_SERVER })
    notes.push('next.config must set `output: "standalone"`')
  }
  const late = faultOfDevPackage(found.devPackages)
  if (late !== null) notes.push(`${late.message}: ${late.hint}`)
  const around = aroundOf(found)
  const isMissing = isOfPackage(configured?.['entry']) || (lacksEntry && found.brought !== null)
  const isWanted = configured === null || configured['entry'] === AROUND || isMissing
  if (around !== null && isWanted) files.push({ path: AROUND, content: around })
  if (found.brought !== null && isWanted) notes.push(noteOfBrought(found.brought))
  notes.push(...notesOfArgs(found, configured))
  if (found.entry === null) notes.push(noteOfNoEntry(found.candidate))
  if (shown === null && configured === null && found.mentionedDatabase !== null)
    notes.push(
      `the source code mentions ${found.mentionedDatabase} but not its location, so \`database\` is left unset: \`baton init --try\` and \`build\` start the application once to find it`,
    )
  if (healthPath === null && typeof configured?.['healthPath'] !== 'string')
    notes.push(
      'no health route was found: set `healthPath`, so that a release must prove that it is healthy, not only that it runs. If the application has no health route, use a page that returns 200, such as `/`',
    )
  notes.push(...notesOfFlags(found, configured))
  notes.push(...notesOfConflicts(found, configured))
  if (found.natives.length > 0) notes.push(noteOfAddons(found.natives, process.versions.node))
  if (foreign !== null) notes.push(foreign)
  if (found.github === null)
    notes.push('set `feed` to where hosts look for releases: a URL, a folder or github:owner/name')
  return {
    files,
    patch: patchOf(found),
    proposal: proposalFor(configured, { ...NOTHING_BETTER, entry: isMissing ? AROUND : null, ...shown }),
    notes,
  }
}

const PROPOSED = ['entry', 'database', 'healthPath', 'scheme', 'cwd'] as const
const NOTHING_BETTER = { database: null, healthPath: null, scheme: null, cwd: null }

/** The lines of the author's configuration to change, as a diff. `better`: null if nothing is known. */
function proposalFor(
  configured: Findings['configured'],
  better: Record<(typeof PROPOSED)[number], string | null>,
): string | null {
  if (configured === null) return null
  const lines = PROPOSED.flatMap((key) => {
    const [old, seen] = [configured[key], better[key]]
    if (seen === null || seen === old) return []
    // one start shows that something is there, and not that anything else is not
    if (key === 'healthPath' && typeof old === 'string') return []
    const line = (value: unknown) => `  "${key}": ${JSON.stringify(value)},`
    return [...(old === undefined ? [] : [`-${line(old)}`]), `+${line(seen)}`]
  })
  return lines.length === 0 ? null : `--- ${CONFIG}\n+++ ${CONFIG}\n${lines.join('\n')}\n`
}

/** What a start of the application is given, as an install would give it. */
export function startEnvironment(found: Detected): Record<string, string> {
  return (environmentOf(found)['environment'] as Record<string, string> | undefined) ?? ENVIRONMENT
}

function configOf(found: Detected, shown: SourceStart | null): Record<string, unknown> {
  const isNext = found.framework === 'next'
  return {
    $schema: `./node_modules/${PACKAGE}/config.schema.json`,
    service: found.service,
    entry: found.entry ?? 'server.js',
    order: 'stop-first',
    ...(found.build === null ? {} : { build: found.build }),
    ...(isNext
      ? {
          include: {
            '': '.next/standalone',
            '.next/static': '.next/static',
            ...(found.hasPublic ? { public: 'public' } : {}),
            'baton.server.cjs': 'baton.server.cjs',
            [`node_modules/${PACKAGE}`]: `node_modules/${PACKAGE}`,
          },
          environment: {
            PORT: '{port}',
            HOSTNAME: '{host}',
            STATE_DIRECTORY: '{stateDirectory}',
            NODE_ENV: 'production',
            ...found.start.environment,
          },
        }
      : environmentOf(found)),
    ...(found.args.length === 0 ? {} : { args: found.args }),
    ...(found.before.length === 0 ? {} : { before: found.before }),
    ...(found.nodeFlags.length === 0 ? {} : { nodeFlags: found.nodeFlags }),
    ...(found.healthPath === null ? {} : { healthPath: found.healthPath }),
    ...(shown === null || shown.scheme === null ? {} : { scheme: shown.scheme }),
    ...(shown === null || shown.database === null ? {} : { database: shown.database }),
    ...(found.assets.length === 0 ? {} : { assets: found.assets }),
    ...(found.words.length === 0 ? {} : { commands: 'baton' }),
    ...(found.hasRoutesOfOurs ? { basePath: '/_baton' } : {}),
    ...(found.github === null ? {} : { feed: `github:${found.github}` }),
  }
}

/**
 * `environment` replaces the default variables, so this repeats those beside the variables of the start script and those that name
 * the folder for data.
 */
function environmentOf({ dataVariables, start }: Detected): Record<string, unknown> {
  const data = Object.fromEntries(dataVariables.map((name) => [name, folderFor(name)]))
  const all: Record<string, string> = { ...ENVIRONMENT, ...start.environment, ...data }
  return isDeepStrictEqual(all, { ...ENVIRONMENT }) ? {} : { environment: all }
}

/** In the state directory itself, an application that serves its uploads would serve the database and Baton's files too. */
function folderFor(name: string): string {
  return UPLOADS.test(name) ? '{stateDirectory}/uploads' : '{stateDirectory}'
}

const UPLOADS = /^UPLOADS?_?DIR$/

function patchOf({ source, isModule }: Detected): Patch | null {
  return source === null ? null : { path: source, line: lineFor(source, isModule) }
}

/** The line that embeds the agent in `source`. `isModule`: as `Detected` has it. */
export function lineFor(source: string, isModule: boolean): string {
  const asImport = isModule || /\.(mjs|ts|mts)$/.test(source)
  const isModuleFile = asImport && !source.endsWith('.cjs')
  return isModuleFile ? `import '${PACKAGE}/auto'` : `require('${PACKAGE}/auto')`
}

/** The source with the line as its first statement, with line ends as it has them; null if it embeds the agent already. */
export function patched(text: string, { line }: Patch): string | null {
  // an import of `/release` only reads the release's facts and does not embed the agent
  if (new RegExp(String.raw`['"]${PACKAGE}(/(?!release)\w+)?['"]`).test(text)) return null
  const head =
    /^\uFEFF?(#!.*\r?\n)?((?:\s*(?:\/\/.*|\/\*[\s\S]*?\*\/)\s*\n)*)(\s*['"]use strict['"];?\s*\n)?/.exec(text)?.[0] ??
    ''
  const end = /\r?\n/.exec(text)?.[0] ?? '\n'
  return `${head}${line}${end}${text.slice(head.length)}`
}

/** The patch as a diff, for a person. */
export function formatPatch({ path, line }: Patch): string {
  return `--- ${path}\n+++ ${path}\n+${line}\n`
}

/** Next.js's own server listens by itself: the agent only has to be loaded before it. */
const NEXT_SERVER = `// Loads Baton, then starts the standalone server of Next.js.
require('${PACKAGE}/auto')
require('./server.js')
`

/** The file that loads the agent and then a server that no source of the author's starts; null if a source does. */
function aroundOf({ made, brought }: Detected): string | null {
  if (made !== null)
    return `// Loads Baton, then starts ${made}, which the build makes.\n${linesAround(made).join('\n')}\n`
  if (brought === null) return null
  const first = `// Loads Baton, then starts the server of the package ${brought.package}.`
  if (!brought.asksIfMain) return `${first}\n${linesAround(brought.file).join('\n')}\n`
  return `${first} That server starts only as the main module, so this file runs it as such.
import '${PACKAGE}/auto'
import { runMain } from 'node:module'
import { join } from 'node:path'
process.argv[1] = join(import.meta.dirname, '${brought.file}')
runMain()
`
}

/** The two lines that start `file` with the agent in front of it. */
export function linesAround(file: string): [string, string] {
  return [`import '${PACKAGE}/auto'`, `import './${file}'`]
}

/** `node`: the version of the one that runs here. */
export function noteOfAddons(natives: readonly string[], node: string): string {
  const own = parseInt(node, 10)
  const fit =
    own === NODE_MAJOR
      ? ''
      : `; \`npm install\` here builds them for Node ${own}, but a release includes Node ${NODE_MAJOR}: if \`npx baton doctor\` reports a mismatch, \`npx baton rebuild\` rebuilds them, and \`npx baton dev\` starts the application under Node ${NODE_MAJOR}`
  return `native addons (${natives.join(', ')}): build on each platform that you release for${fit} (${pageOf('author/packages.md')})`
}

function isOfPackage(entry: unknown): boolean {
  return typeof entry === 'string' && isBrought(entry)
}

function noteOfBrought({ name, package: from, file }: Brought): string {
  const runs = name === null ? file : `\`${name}\` from the package ${from}`
  return `the start script runs ${runs}. Nothing in node_modules is edited: instead, ${AROUND} loads the agent, then the package. Set the package's host, port and data folder in \`args\` or \`environment\` (${pageOf('author/order.md')})`
}

function notesOfUploads({ dataVariables }: Detected, configured: Findings['configured']): string[] {
  const name = configured === null ? dataVariables.find((one) => UPLOADS.test(one)) : undefined
  if (name === undefined) return []
  return [
    `${name} is set to ${folderFor(name)}, a subfolder that the application must create: the state directory itself holds the database and Baton's files, which uploads must not replace and visitors must not read`,
  ]
}

/** What the application has that gets in the way of Baton, or Baton in its way. */
function notesOfConflicts(
  { service, words, forks, moves, args, hasRoutesOfOurs }: Detected,
  configured: Findings['configured'],
): string[] {
  const notes: string[] = []
  if (words.length > 0)
    notes.push(
      `the application has its own commands ${words.join(', ')}: with \`"commands": "baton"\`, Baton's commands become \`${service} baton upgrade\` and so on`,
    )
  if (forks !== null) {
    const { message, hint } = aboutForks(forks)
    notes.push(`${message}: ${hint}`)
  }
  if (moves !== null) {
    const given = configured?.['args']
    const { message, hint } = aboutMoving(moves, Array.isArray(given) ? given.map(String) : args)
    notes.push(`${message}: ${hint}`)
  }
  if (hasRoutesOfOurs)
    notes.push(
      'the application has routes under /admin or /web: to move the Baton routes elsewhere, set `"basePath": "/_baton"`',
    )
  return notes
}

function noteOfNoEntry(candidate: Detected['candidate']): string {
  if (candidate === null) return 'set `entry` in baton.config.json to the file that starts the application'
  const { name, package: from } = candidate
  return `could not find the file that starts the application. If it is \`${name}\` from the package ${from}, add \`"start": "${name} …"\` with its arguments to the scripts in package.json, and run \`baton init\` again`
}

const WORKFLOW_INSTALL = {
  npm: 'npm ci',
  pnpm: 'corepack enable && pnpm install --frozen-lockfile',
  yarn: 'corepack enable && yarn install --immutable',
  bun: 'bun install --frozen-lockfile',
} as const satisfies Record<Detected['packageManager'], string>

function workflow({ packageManager }: Detected): string {
  return `# Publishes a release for each tag \`vX.Y.Z\`: it stays a draft until all assets are uploaded, so no service sees an incomplete one.
name: release

on:
  push:
    tags: ['v[0-9]+.[0-9]+.[0-9]+', 'v[0-9]+.[0-9]+.[0-9]+-*']

permissions: {}

jobs:
  release:
    runs-on: ubuntu-22.04 # native addons built with an old glibc also run with newer ones, but not vice versa
    permissions:
      contents: write # the release
    timeout-minutes: 30
    env:
      GH_TOKEN: \${{ github.token }}
      TAG: \${{ github.ref_name }}
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false
      - run: ${WORKFLOW_INSTALL[packageManager]}
      - run: npx baton build "$TAG" --compress best
      - run: npx baton publish "$TAG" --to "github:$GITHUB_REPOSITORY"
`
}

/** No release holds development packages. A package from a file is not in the registry by that name. */
export function faultOfDevPackage(
  packages: Readonly<Record<string, string>>,
): { message: string; hint: string } | null {
  const range = packages[PACKAGE]
  if (range === undefined) return null
  const from = /^[\^~]?\d/.test(range) ? PACKAGE : range
  return {
    message: `${PACKAGE} is a development dependency here, but a release contains no development dependencies`,
    hint: `run \`npm install --save-prod ${from}\``,
  }
}
