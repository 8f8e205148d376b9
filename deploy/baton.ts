#!/usr/bin/env node
// The author's command `baton`: init, dev, build, publish, rebuild, rehearse, image, deploy, trust, doctor. This file reads the
// arguments and reports what happened; the work is in make/. Must hold: it starts on every Node that the package supports. It runs a
// command that needs Node 26 with a Node 26.

import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { asBatonError, BatonError, EXIT, isTag, MEANINGS, reasonOf } from '../agent/words.ts'
import { detect } from './make/detect.ts'
import { COMPRESSIONS } from './make/pack.ts'
import { IS_PACKAGED, ownVersion } from './make/place.ts'
import { isRightMajor, runUnderNode } from './make/node.ts'
import { folderFeed, imageFlags, initFlags, rehearseFlags, systemdFlags, trustFlags } from './make/own-flags.ts'
import { type Project, readProject, RELEASES_FOLDER } from './make/project.ts'
import { setUp } from './make/set-up.ts'
import { exitAtOnce } from './make/temporary.ts'
import {
  asksForHelp,
  type CommandLine,
  type Flags,
  OUTPUT_FLAGS,
  parseFlags,
  SCRIPT_FLAGS,
  tagFault,
  unknownCommand,
  usageOf,
} from './lib/flags.ts'
import { printError, printJson, printLine } from './lib/printer.ts'
import { createProgress, formatBytes } from './lib/progress.ts'

type Values = Record<string, unknown>

interface Word extends CommandLine {
  /** needs Node 26 */
  heavy: boolean
  act(values: Values): Promise<void>
}

const FOLDER = {
  folder: { type: 'string', valueHint: 'dir', default: '.', description: 'the application' },
} as const satisfies Flags
const TAG = { tag: { type: 'string', valueHint: 'vX.Y.Z', description: 'the release' } } as const satisfies Flags
const OUT = {
  out: { type: 'string', valueHint: 'dir', description: `where release folders are (${RELEASES_FOLDER}/)` },
} as const satisfies Flags

const BUILD = {
  ...FOLDER,
  ...TAG,
  ...OUT,
  kind: {
    type: 'string',
    valueHint: 'kind',
    description: 'app, bundle or script, instead of what the configuration says',
  },
  feed: { type: 'string', valueHint: 'feed', description: 'where installs look for the next release' },
  notes: { type: 'string', valueHint: 'text|file', description: 'release notes' },
  compress: { type: 'string', valueHint: 'effort', default: 'normal', description: COMPRESSIONS.join(', ') },
  make: { type: 'boolean', default: true, description: 'run `build` first', negativeDescription: 'do not run `build`' },
  check: {
    type: 'boolean',
    default: true,
    description: 'start it, and switch it to itself once',
    negativeDescription: 'do not start it',
  },
  force: { type: 'boolean', default: false, description: 'replace a different release of the same tag' },
  ...SCRIPT_FLAGS,
} as const satisfies Flags

const YES = { yes: { type: 'boolean', alias: 'y', default: false, description: 'do not ask' } } as const satisfies Flags

const WORDS: readonly Word[] = [
  {
    name: 'init',
    description: 'look at the application, write its configuration and the one line that embeds the agent',
    args: { ...FOLDER, ...initFlags, ...YES, ...SCRIPT_FLAGS },
    heavy: false,
    act: init,
  },
  {
    name: 'dev',
    description: 'serve from source; move under load to what you save, or publish into its feed',
    args: {
      ...FOLDER,
      port: { type: 'string', valueHint: 'number', description: 'where it listens (default: PORT, else `port`)' },
      watch: {
        type: 'boolean',
        default: true,
        description: 'follow files',
        negativeDescription: 'follow the feed only',
      },
    },
    heavy: true,
    act: dev,
  },
  { name: 'build', description: 'make a release', args: BUILD, heavy: true, act: build },
  {
    name: 'publish',
    description: 'copy a release to the place where installs find it',
    args: {
      ...FOLDER,
      ...TAG,
      ...OUT,
      to: { type: 'string', valueHint: 'target', description: '/folder, user@host:/folder or github:owner/name' },
      ...OUTPUT_FLAGS,
    },
    heavy: true,
    act: publish,
  },
  {
    name: 'rebuild',
    description: 'build native addons anew, for the Node that goes into a release',
    args: { ...FOLDER, ...SCRIPT_FLAGS },
    heavy: true,
    act: rebuild,
  },
  {
    name: 'rehearse',
    description: 'try a release on a copy of data, then the previous release on the data that it leaves',
    args: { ...FOLDER, ...OUT, ...rehearseFlags, ...OUTPUT_FLAGS },
    heavy: true,
    act: rehearse,
  },
  {
    name: 'doctor',
    description: 'say what would fail, before it does',
    args: { ...FOLDER, ...OUTPUT_FLAGS },
    heavy: true,
    act: async (values) => {
      const { examineProject } = await import('./make/examine.ts')
      const findings = await examineProject(folderOf(values))
      if (values['json'] === true) printJson({ findings })
      else
        for (const { level, message, hint } of findings)
          say(`${level.padEnd(5)} ${message}${hint === null ? '' : `\n      ${hint}`}`)
      if (findings.some(({ level }) => level === 'bad')) process.exitCode = 7
    },
  },
]

/** what comes after `deploy` */
const GROUNDS: readonly CommandLine[] = [
  { name: 'systemd', description: 'install or upgrade on this host, with systemd', args: {} },
  { name: 'source', description: 'build a tag of this repository, and deploy that', args: {} },
  { name: 'container', description: 'a container of this Docker engine', args: {} },
]

interface Script {
  name: string
  rest: readonly string[]
}

/** Commands that are separate scripts and read their own flags. */
const SCRIPTS: Record<string, { description: string; file(argv: readonly string[]): Script | Promise<Script> }> = {
  image: {
    description: 'make and push the container image of a release',
    file: async (argv) => ({ name: 'image', rest: [...(await imageFlags()), ...argv] }),
  },
  deploy: {
    description: 'deploy a release: `deploy systemd …`, `deploy source …`, `deploy container …`',
    async file([where = '', ...rest]) {
      if (where === 'systemd') return { name: 'deploy-systemd', rest: [...(await systemdFlags()), ...rest] }
      if (where === 'source' || where === 'container') return { name: `deploy-${where}`, rest }
      throw unknownCommand(
        where,
        GROUNDS.map(({ name }) => name),
      )
    },
  },
  trust: {
    description: 'sign what is published',
    file: async ([word, ...rest]) => ({
      name: 'trust',
      rest: word === undefined ? [] : [word, ...(await trustFlags(word)), ...rest],
    }),
  },
}

const TREE: CommandLine = {
  name: 'baton',
  description: 'makes a Node service that updates itself while it serves',
  args: {},
}

async function main(argv: readonly string[]): Promise<number> {
  const isHelp = argv[0] === 'help'
  const [first = '', ...rest] = isHelp ? [...argv.slice(1), '--help'] : argv
  try {
    if (argv.length === 1 && (first === '--version' || first === '-v')) {
      printLine(`baton ${await ownVersion()}`)
      return EXIT.done
    }
    if (first === 'deploy' && ['--help', '-h'].includes(rest[0] ?? '')) {
      const deploy = { name: 'deploy', description: 'deploy a release', args: {} }
      process.stdout.write(await usageOf(deploy, TREE, GROUNDS))
      return EXIT.done
    }
    const script = Object.hasOwn(SCRIPTS, first) ? SCRIPTS[first] : undefined
    if (script !== undefined) {
      const { name, rest: own } = await script.file(rest)
      return await runScript(name, own)
    }
    const word = WORDS.find(({ name }) => name === first)
    if (argv.length === 0 || first === '--help' || first === '-h' || (word !== undefined && asksForHelp(rest))) {
      const others = Object.entries(SCRIPTS).map(([name, { description }]) => ({ name, description, args: {} }))
      process.stdout.write(
        await (word === undefined ? usageOf(TREE, undefined, [...WORDS, ...others]) : usageOf(word, TREE)),
      )
      return first === '' ? 2 : 0
    }
    if (word === undefined) {
      throw unknownCommand(first, [...WORDS.map(({ name }) => name), ...Object.keys(SCRIPTS)])
    }
    const values = parseFlags(rest, word) as Values
    if (word.heavy && !isRightMajor()) return await runUnderNode(fileURLToPath(import.meta.url), argv)
    await word.act(values)
    return Number(process.exitCode ?? 0)
  } catch (cause) {
    return failed(cause, argv.includes('--json'))
  }
}

async function init(values: Values): Promise<void> {
  const is = (flag: string) => values[flag] === true
  await setUp(
    folderOf(values),
    {
      service: (values['service'] as string | undefined) ?? null,
      starts: is('try'),
      yes: is('yes'),
      json: is('json'),
      dryRun: is('dry-run'),
    },
    { say, print: printJson },
  )
}

async function build(values: Values): Promise<void> {
  const project = await projectOf(values)
  const kind = values['kind']
  if (kind !== undefined && kind !== 'app' && kind !== 'bundle' && kind !== 'script')
    throw new BatonError('invalid_request', `expected app, bundle or script in --kind, got ${JSON.stringify(kind)}`)
  const { publicationTime, readNotes } = await import('./make/publication.ts')
  const effort = COMPRESSIONS.find((one) => one === values['compress'])
  if (effort === undefined)
    throw new BatonError(
      'invalid_request',
      `expected ${COMPRESSIONS.join(', ')} in --compress, got ${JSON.stringify(values['compress'])}`,
    )
  const options = {
    project: { ...project, kind: kind ?? project.kind },
    tag: tagOf(values),
    out: outOf(values, project),
    feed: typeof values['feed'] === 'string' ? values['feed'] : (project.feed ?? folderFeed(project)),
    notes: await readNotes(typeof values['notes'] === 'string' ? values['notes'] : ''),
    effort,
    publishedAt: await publicationTime(project.folder, process.env),
    force: values['force'] === true,
    make: values['make'] === true,
    check: values['check'] === true,
  }
  if (values['dry-run'] === true) {
    if (values['json'] === true) return printJson(options)
    const { service, entry } = options.project
    say(`would build ${service} ${options.tag} from ${entry}, kind ${options.project.kind}, into ${options.out}`)
    return say(`  installs will look for releases at ${options.feed ?? 'no feed: name one in `feed` or --feed'}`)
  }
  const { buildApplication } = await import('./make/application.ts')
  const progress = createProgress({ quiet: values['quiet'] === true || values['json'] === true })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => exitAtOnce(signal === 'SIGINT' ? 130 : 143))
  }
  try {
    const release = await buildApplication({ ...options, progress })
    if (values['out'] === undefined) await writeFile(join(options.out, '.gitignore'), '*\n')
    if (values['json'] === true) return printJson(release)
    if (values['quiet'] === true) return
    for (const { name, sizeBytes } of release.files) say(`  ${name.padEnd(32)} ${formatBytes(sizeBytes).padStart(9)}`)
    const to = options.project.publish === null ? ' --to <folder, user@host:/folder or github:owner/name>' : ''
    say(`\nnext: npx baton publish --tag ${release.tag}${to}`)
  } catch (error) {
    progress.end('failed')
    throw error
  }
}

async function rebuild(values: Values): Promise<void> {
  const project = await projectOf(values)
  const [json, dryRun] = [values['json'] === true, values['dry-run'] === true]
  const { formatRebuild, isLeft, rebuildAddons } = await import('./make/rebuild.ts')
  const progress = createProgress({ quiet: values['quiet'] === true || json })
  try {
    const { packageManager } = detect(project.folder)
    const report = await rebuildAddons({ project, packageManager, dryRun, progress })
    if (isLeft(report)) process.exitCode = 7
    if (json) return printJson(report)
    for (const line of formatRebuild(report, dryRun)) say(line)
  } catch (error) {
    progress.end('failed')
    throw error
  }
}

async function rehearse(values: Values): Promise<void> {
  const project = await projectOf(values)
  const { askedIn, formatRehearsed, rehearseRelease } = await import('./make/rehearse-here.ts')
  const asked = askedIn(values)
  const progress = createProgress({ quiet: values['quiet'] === true || values['json'] === true })
  const done = await rehearseRelease({ ...asked, project, out: outOf(values, project), progress })
  if (values['json'] === true) printJson(done)
  else say(formatRehearsed(done))
  if (done.verdict !== 'reversible') process.exitCode = MEANINGS.refused.exit
}

async function dev(values: Values): Promise<void> {
  const project = await projectOf(values)
  const [where, said] = values['port'] === undefined ? ['PORT', process.env['PORT']] : ['--port', values['port']]
  const port = said === undefined || said === '' ? project.port : Number(said)
  if (!Number.isInteger(port) || port < 1 || port > 65535)
    throw new BatonError('invalid_request', `expected 1 to 65535 in ${where}, got ${JSON.stringify(said)}`)
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stop.abort())
  const { develop } = await import('./make/dev.ts')
  await develop({ project, port, watches: values['watch'] === true, say }, stop.signal)
}

async function publish(values: Values): Promise<void> {
  const project = await projectOf(values)
  const to = typeof values['to'] === 'string' ? values['to'] : project.publish
  if (to === null)
    throw new BatonError('invalid_request', 'expected a target in --to, or `publish` in baton.config.json')
  const { sendRelease } = await import('./make/publish.ts')
  const progress = createProgress({ quiet: values['quiet'] === true || values['json'] === true })
  try {
    const target = /^(\/|github:|[^/]+:)/.test(to) ? to : resolve(project.folder, to)
    const where = await sendRelease({
      from: outOf(values, project),
      tag: tagOf(values),
      service: project.service,
      to: target,
      signed: project.root !== null,
      progress,
    })
    if (values['json'] === true) printJson({ tag: tagOf(values), where })
    else if (project.root !== null && target.startsWith('github:')) say(`\nnext: npx baton trust push ${target}`)
  } catch (error) {
    progress.end('failed')
    throw error
  }
}

// ---- parts

function folderOf(values: Values): string {
  const { folder } = values
  return resolve(typeof folder === 'string' ? folder : '.')
}

async function projectOf(values: Values): Promise<Project> {
  return await readProject(folderOf(values))
}

function outOf(values: Values, project: Project): string {
  return typeof values['out'] === 'string' ? resolve(values['out']) : join(project.folder, RELEASES_FOLDER)
}

function tagOf(values: Values): string {
  const tag = values['tag']
  if (isTag(tag)) return tag
  throw new BatonError('invalid_request', tagFault(tag))
}

/** Runs a script beside this file, which reads its own arguments. */
async function runScript(name: string, argv: readonly string[]): Promise<number> {
  const file = fileURLToPath(new URL(IS_PACKAGED ? `./${name}.js` : `./${name}.ts`, import.meta.url))
  if (!existsSync(file)) throw new BatonError('unsupported_host', `\`${name}\` is not part of this package`)
  return await runUnderNode(file, argv)
}

function failed(cause: unknown, json: boolean): number {
  const error = asBatonError(cause, 'unexpected', 'baton')
  const why = error.cause === undefined || error.cause === cause ? '' : `: ${reasonOf(error.cause)}`
  const message = `${error.message}${error.message.endsWith(why) ? '' : why}`
  const { exit } = MEANINGS[error.code]
  if (json) printJson({ event: 'error', code: error.code, message, hint: error.hint, exit })
  else printError({ code: error.code, message, hint: error.hint })
  return exit
}

function say(line: string): void {
  printLine(line, process.stderr)
}

process.exitCode = await main(process.argv.slice(2))
