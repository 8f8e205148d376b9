#!/usr/bin/env node
// The author's command `baton`: init, dev, build, publish, rebuild, trial, image, deploy, trust, doctor; and status, check and
// upgrade of all services of a host. This file reads the
// arguments and reports what happened; the work is in make/. Must hold: it starts on every Node that the package supports. It runs a
// command that needs Node 26 with a Node 26.

import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { isAbsolute, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { asBatonError, barrierIn, BatonError, MEANINGS, reasonOf } from '../agent/words.ts'
import { GROUNDS, HOST_WORDS, OWN_WORDS, SCRIPT_WORDS } from './make/author-words.ts'
import { detect } from './make/detect.ts'
import { COMPRESSIONS } from './make/pack.ts'
import { IS_PACKAGED, ownVersion } from './make/place.ts'
import { isRightMajor, runUnderNode } from './make/node.ts'
import { afterBuild, CONFIG, type Project, readProject, RELEASES_FOLDER } from './make/project.ts'
import { setUp } from './make/set-up.ts'
import { exitAtOnce } from './make/temporary.ts'
import { asksForHelp, parseFlags, tagOf } from './lib/flags.ts'
import { type Commands, commandOf, printHelp } from './lib/help.ts'
import { printError, printJson, printLine } from './lib/printer.ts'
import { createProgress, formatBytes, type ProgressReport } from './lib/progress.ts'
import { END_SIGNALS, onSignals } from './lib/signals.ts'

type Values = Record<string, unknown>

const ACTS: Record<keyof typeof OWN_WORDS, (values: Values) => Promise<void>> = {
  init,
  dev,
  build,
  publish,
  rebuild,
  trial,
  doctor: examine,
}
/** These start on any Node that the package supports. */
const LIGHT: readonly string[] = ['init']

const TREE: Commands = {
  name: 'baton',
  description: 'builds and ships Node services that update themselves while they serve',
  commands: [
    ...Object.values(OWN_WORDS),
    ...Object.entries({ ...SCRIPT_WORDS, ...HOST_WORDS }).map(([name, description]) => ({
      name,
      description,
      args: {},
    })),
  ],
  version: async () => `baton ${await ownVersion()}`,
}

const DEPLOY: Commands = {
  name: 'baton deploy',
  description: SCRIPT_WORDS.deploy,
  commands: Object.entries(GROUNDS).map(([name, { description }]) => ({ name, description, args: {} })),
}

async function main(argv: readonly string[]): Promise<number> {
  // `help trust sign` is `trust help sign`
  const [first = '', ...rest] = argv[0] === 'help' ? [argv[1] ?? '', 'help', ...argv.slice(2)] : argv
  try {
    if (Object.hasOwn(SCRIPT_WORDS, first)) return await runScriptWord(first as keyof typeof SCRIPT_WORDS, rest)
    if (Object.hasOwn(HOST_WORDS, first)) return await runHostWord(argv)
    const found = await commandOf(argv, TREE)
    if ('text' in found) return printHelp(found.text, found.exit)
    const { word } = found
    const values = parseFlags(found.rest, word) as Values
    if (!LIGHT.includes(word.name) && !isRightMajor()) return await runUnderNode(fileURLToPath(import.meta.url), argv)
    await ACTS[word.name as keyof typeof ACTS](values)
    return Number(process.exitCode ?? 0)
  } catch (cause) {
    return failed(cause, argv.includes('--json'))
  }
}

/** What the configuration says goes in front of what was typed: the last one of a repeated flag counts. Who asks for help gets only that, whatever the configuration is. */
async function runScriptWord(word: keyof typeof SCRIPT_WORDS, argv: readonly string[]): Promise<number> {
  const behind = async (flags: () => Promise<string[]>, typed: readonly string[]) =>
    typed[0] === 'help' || asksForHelp(typed) ? [...typed] : [...(await flags()), ...typed]
  const [first = '', ...rest] = argv
  if (word === 'image') return await runScript('image', await behind(imageFlags, argv))
  if (word === 'trust') {
    const isCommand = first !== '' && first !== 'help' && !first.startsWith('-')
    return await runScript('trust', isCommand ? [first, ...(await behind(() => trustFlags(first), rest))] : argv)
  }
  // `deploy help host` is `deploy host help`
  const [asked = ''] = rest
  const [ground = '', ...typed] = first === 'help' && Object.hasOwn(GROUNDS, asked) ? [asked, first] : argv
  if (!Object.hasOwn(GROUNDS, ground)) {
    const found = await commandOf(argv, DEPLOY)
    return 'text' in found ? printHelp(found.text, found.exit) : MEANINGS.unexpected.exit
  }
  const flags = ground === 'host' ? hostFlags : ground === 'fleet' ? fleetFlags : async () => []
  return await runScript(GROUNDS[ground as keyof typeof GROUNDS].program, await behind(flags, typed))
}

/** Of all services here: which one is meant, only its own command knows. */
async function runHostWord([word = '', ...rest]: readonly string[]): Promise<number> {
  if (!isRightMajor()) return await runUnderNode(fileURLToPath(import.meta.url), [word, ...rest])
  const { runCommand } = await import('./host/tree.ts')
  const isAsked = rest[0] === 'help' || asksForHelp(rest)
  const all = word === 'upgrade' || rest.includes('--all') ? [] : ['--all']
  if (word === 'upgrade' && !isAsked && !rest.includes('--all'))
    throw new BatonError('invalid_request', 'expected `--all`', {
      hint: 'to update a single service, use its own command, such as `shop upgrade`',
    })
  return await runCommand(isAsked ? ['help', word] : [word, ...all, ...rest], {
    service: 'baton',
    tag: await ownVersion(),
  })
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
    throw new BatonError('invalid_request', `expected app, bundle or script for --kind, got ${JSON.stringify(kind)}`)
  const { publicationTime, readNotes } = await import('./make/publication.ts')
  const { deltasFrom } = await import('./make/deltas.ts')
  const effort = COMPRESSIONS.find((one) => one === values['compress'])
  if (effort === undefined)
    throw new BatonError(
      'invalid_request',
      `expected one of ${COMPRESSIONS.join(', ')} for --compress, got ${JSON.stringify(values['compress'])}`,
    )
  const options = {
    project: { ...project, kind: kind ?? project.kind, from: barrierOf(values['from']) ?? project.from },
    tag: tagOf(values['tag']),
    out: outOf(values, project),
    feed: typeof values['feed'] === 'string' ? values['feed'] : (project.feed ?? folderFeed(project)),
    notes: await readNotes(typeof values['notes'] === 'string' ? values['notes'] : ''),
    effort,
    publishedAt: await publicationTime(project.folder, process.env),
    force: values['force'] === true,
    deltas: deltasFrom(values['delta-from'], values['deltas']),
    security: values['security'] === true,
    make: values['make'] === true,
    trial: values['try'] === true,
  }
  if (values['dry-run'] === true) {
    if (values['json'] === true) return printJson(options)
    const { service, entry } = options.project
    say(`would build ${service} ${options.tag} from ${entry}, kind ${options.project.kind}, into ${options.out}`)
    const none = 'no feed, so installs will find no releases: set `feed` or pass --feed'
    return say(`  ${options.feed === null ? none : `installs will look for releases at ${options.feed}`}`)
  }
  const { buildApplication } = await import('./make/application.ts')
  // known before a minute of building
  const former = join(options.out, options.tag)
  if (!options.force && existsSync(former) && values['quiet'] !== true)
    printLine(
      `note: ${former} exists: a different ${options.tag} will be refused, unless you pass --force`,
      process.stderr,
    )
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => exitAtOnce(signal === 'SIGINT' ? 130 : 143))
  }
  const release = await showing(values, (progress) => buildApplication({ ...options, progress }))
  if (values['out'] === undefined) await writeFile(join(options.out, '.gitignore'), '*\n')
  if (values['json'] === true) return printJson(release)
  if (values['quiet'] === true) return
  for (const { name, sizeBytes } of release.files) say(`  ${name.padEnd(32)} ${formatBytes(sizeBytes).padStart(9)}`)
  for (const line of ['', ...afterBuild(project, release.tag)]) say(line)
}

/** Shows the progress of the work, but to a program. */
async function showing<T>(values: Values, work: (progress: ProgressReport) => Promise<T>): Promise<T> {
  const progress = createProgress({ quiet: values['quiet'] === true || values['json'] === true })
  try {
    return await work(progress)
  } catch (error) {
    progress.end('failed')
    throw error
  }
}

function barrierOf(from: unknown): string | null {
  if (from === undefined || barrierIn(from) !== null) return (from as string | undefined) ?? null
  throw new BatonError(
    'invalid_request',
    `expected a minimum version such as >=1.4.0 for --from, got ${JSON.stringify(from)}`,
  )
}

async function rebuild(values: Values): Promise<void> {
  const project = await projectOf(values)
  const [json, dryRun] = [values['json'] === true, values['dry-run'] === true]
  const { formatRebuild, isLeft, rebuildAddons } = await import('./make/rebuild.ts')
  const { packageManager } = detect(project.folder)
  const report = await showing(values, (progress) => rebuildAddons({ project, packageManager, dryRun, progress }))
  if (isLeft(report)) process.exitCode = MEANINGS.refused.exit
  if (json) return printJson(report)
  for (const line of formatRebuild(report, dryRun)) say(line)
}

async function trial(values: Values): Promise<void> {
  const project = await projectOf(values)
  const { askedIn, formatRehearsed, rehearseRelease } = await import('./make/rehearse-here.ts')
  const asked = { ...askedIn(values), project, out: outOf(values, project) }
  const done = await showing(values, (progress) => rehearseRelease({ ...asked, progress }))
  if (values['json'] === true) printJson(done)
  else printLine(formatRehearsed(done))
  if (done.verdict !== 'reversible') process.exitCode = MEANINGS.refused.exit
}

async function examine(values: Values): Promise<void> {
  const { examineProject } = await import('./make/examine.ts')
  const findings = await examineProject(folderOf(values))
  if (values['json'] === true) printJson({ findings })
  else
    for (const { level, message, hint } of findings)
      printLine(`${level.padEnd(7)} ${message}${hint === null ? '' : `\n        ${hint}`}`)
  if (findings.some(({ level }) => level === 'problem')) process.exitCode = MEANINGS.refused.exit
}

async function dev(values: Values): Promise<void> {
  const project = await projectOf(values)
  const [where, said] = values['port'] === undefined ? ['PORT', process.env['PORT']] : ['--port', values['port']]
  const port = said === undefined || said === '' ? project.port : Number(said)
  if (!Number.isInteger(port) || port < 1 || port > 65535)
    throw new BatonError('invalid_request', `expected 1 to 65535 in ${where}, got ${JSON.stringify(said)}`)
  const stop = new AbortController()
  using _ends = onSignals(END_SIGNALS, () => stop.abort())
  const { develop } = await import('./make/dev.ts')
  await develop({ project, port, watches: values['watch'] === true, say }, stop.signal)
}

async function publish(values: Values): Promise<void> {
  const project = await projectOf(values)
  const to = typeof values['to'] === 'string' ? values['to'] : project.publish
  if (to === null)
    throw new BatonError('invalid_request', 'expected a target for --to, or `publish` in baton.config.json')
  const { sendRelease } = await import('./make/publish.ts')
  const target = /^(\/|github:|[^/]+:)/.test(to) ? to : resolve(project.folder, to)
  const tag = tagOf(values['tag'])
  const sent = {
    from: outOf(values, project),
    tag,
    service: project.service,
    to: target,
    signed: project.root !== null,
  }
  const where = await showing(values, (progress) => sendRelease({ ...sent, progress }))
  if (values['json'] === true) printJson({ tag, where })
  else if (project.root !== null && target.startsWith('github:')) say(`\nnext: npx baton trust push ${target}`)
}

// ---- parts

function folderOf(values: Values): string {
  const { dir } = values
  return resolve(typeof dir === 'string' ? dir : '.')
}

async function projectOf(values: Values): Promise<Project> {
  return await readProject(folderOf(values))
}

function outOf(values: Values, project: Project): string {
  return typeof values['out'] === 'string' ? resolve(values['out']) : join(project.folder, RELEASES_FOLDER)
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

// ---- flags that the configuration in the working directory gives to the scripts

async function projectHere(): Promise<Project | null> {
  return existsSync(CONFIG) ? await readProject(resolve('.')) : null
}

async function imageFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, image, feed } = project
  // a container does not have this host's folders
  const seen = feed !== null && !isAbsolute(feed) ? ['--feed', feed] : []
  return ['--out', join(folder, RELEASES_FOLDER), ...(image === null ? [] : ['--repository', image]), ...seen]
}

async function trustFlags(word: string): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, service } = project
  return ['--dir', join(folder, RELEASES_FOLDER), ...(word === 'init' ? ['--service', service] : [])]
}

async function hostFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const feed = project.feed ?? folderFeed(project)
  return ['--service', project.service, ...(feed === null ? [] : ['--feed', feed])]
}

async function fleetFlags(): Promise<string[]> {
  const project = await projectHere()
  return project === null ? [] : ['--service', project.service]
}

/** An author who publishes into a folder of this host, or to GitHub, has thereby named the feed. Null for other targets. */
function folderFeed({ publish }: Project): string | null {
  return publish !== null && (isAbsolute(publish) || publish.startsWith('github:')) ? publish : null
}

process.exitCode = await main(process.argv.slice(2))
