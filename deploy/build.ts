// Builds one release: `npm run build -- --tag v1.2.0` -> dist/v1.2.0/ and dist/releases.json.
// bundle -> base -> inject -> check -> compress -> publish, read top to bottom in `buildRelease`.
// Must hold: the same commit and tag give the same bytes; nothing is published that did not run and say the tag.

import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { asBatonError, BatonError, isTag, MEANINGS, parseTag, reasonOf } from '../agent/words.ts'
import { SCHEMA } from '../agent/service/schema.ts'
import { bundle, PROJECT } from './build/bundle.ts'
import { COMPRESSIONS } from './build/pack.ts'
import { createProgress, formatBytes } from './lib/progress.ts'
import { assetName, type PublishedRelease, type PublishOptions, publishRelease, RELEASES } from './build/publish.ts'
import { checkVersion, injectBundle, prepareBase, removeTemporaries, temporaryDirectory } from './build/sea.ts'
import { run } from './lib/shell.ts'

export interface BuildOptions extends Omit<PublishOptions, 'executable'> {
  /** absolute path of the module that is the executable's main */
  entry: string
}

export interface BuiltRelease extends PublishedRelease {
  node: string
  stripped: boolean
}

export const DEFAULT_SERVICE = 'beacon'
export const DEFAULT_ENTRY = join(PROJECT, 'deploy', 'executable.ts')
const NOTES_MAX_BYTES = 64 * 1024
const SERVICE_NAME = /^[a-z][a-z0-9-]{0,30}$/

export async function buildRelease(options: BuildOptions): Promise<BuiltRelease> {
  const { tag, service, progress } = options
  parseTag(tag)

  progress.stage('bundle')
  const script = await bundle({ entry: options.entry, define: definitions(service, tag) })
  progress.end('done', formatBytes(script.length))

  progress.stage('base')
  const base = await prepareBase()
  const { before, after } = base.sizeBytes
  progress.end(
    'done',
    base.stripped
      ? `Node ${base.version}, ${formatBytes(before)} stripped to ${formatBytes(after)}`
      : `Node ${base.version}`,
  )
  if (!base.stripped) progress.note('warning: there is no `strip` on this machine, the executable keeps its symbols')

  await using work = await temporaryDirectory(options.out)
  const executable = join(work.path, 'executable')
  progress.stage('inject')
  await injectBundle(base, script, executable)
  progress.end('done', formatBytes((await stat(executable)).size))

  progress.stage('check', `${service} ${tag}`)
  await checkVersion(executable, `${service} ${tag}`)

  const published = await publishRelease({ ...options, executable })
  return { ...published, node: base.version, stripped: base.stripped }
}

export function definitions(service: string, tag: string): Record<string, string> {
  return { __BATON_SERVICE__: service, __BATON_TAG__: tag }
}

// ---- the command line

const USAGE = `usage: npm run build -- --tag vX.Y.Z [options]

  --tag TAG          the release to build
  --out DIR          where release folders go (dist)
  --service NAME     name of the service (${DEFAULT_SERVICE})
  --feed FEED        where installs look for the next release; put into install.sh
  --notes TEXT|FILE  release notes
  --compress EFFORT  fast, normal or best (normal)
  --entry FILE       main module of the executable (deploy/executable.ts)
  --schema N         number of the state's schema, for release.json
  --force            replace a different release of the same tag
  --json             print one JSON object
  -n, --dry-run      say what would be built
  -q, --quiet        draw nothing
`

/** what shells say for a program that was ended by them */
const SIGNALS = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const

interface Command {
  options: Omit<BuildOptions, 'progress'>
  json: boolean
  dryRun: boolean
  quiet: boolean
  help: boolean
}

async function readCommand(argv: readonly string[], environment: NodeJS.ProcessEnv): Promise<Command> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      tag: { type: 'string' },
      out: { type: 'string', default: 'dist' },
      service: { type: 'string', default: DEFAULT_SERVICE },
      feed: { type: 'string' },
      notes: { type: 'string', default: '' },
      compress: { type: 'string', default: 'normal' },
      entry: { type: 'string' },
      schema: { type: 'string' },
      force: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      'dry-run': { type: 'boolean', short: 'n', default: false },
      quiet: { type: 'boolean', short: 'q', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  const effort = COMPRESSIONS.find((one) => one === values.compress)
  const entry = values.entry === undefined ? DEFAULT_ENTRY : resolve(values.entry)
  const faults: string[] = []
  if (!isTag(values.tag) && !values.help)
    faults.push(`expected a tag of the form vX.Y.Z in --tag, got ${JSON.stringify(values.tag ?? null)}`)
  if (!SERVICE_NAME.test(values.service))
    faults.push(`expected a name such as \`beacon\` in --service, got ${JSON.stringify(values.service)}`)
  if (effort === undefined)
    faults.push(`expected ${COMPRESSIONS.join(', ')} in --compress, got ${JSON.stringify(values.compress)}`)
  if (!existsSync(entry)) faults.push(`expected a file in --entry, got ${entry}`)
  if (values.schema !== undefined && !/^[0-9]{1,9}$/.test(values.schema))
    faults.push(`expected a number in --schema, got ${values.schema}`)
  const notes = await readNotes(values.notes)
  if (Buffer.byteLength(notes) > NOTES_MAX_BYTES) faults.push(`expected notes of at most ${NOTES_MAX_BYTES} bytes`)
  if (faults.length > 0) throw new BatonError('invalid_request', faults.join('; '))
  const ownSchema = entry === DEFAULT_ENTRY ? SCHEMA.length : null
  return {
    options: {
      tag: values.tag ?? '',
      out: resolve(values.out),
      service: values.service,
      feed: values.feed ?? null,
      notes,
      effort: effort ?? 'normal',
      entry,
      schema: values.schema === undefined ? ownSchema : Number(values.schema),
      publishedAt: await publicationTime(environment),
      force: values.force,
    },
    json: values.json,
    dryRun: values['dry-run'],
    quiet: values.quiet,
    help: values.help,
  }
}

async function readNotes(textOrFile: string): Promise<string> {
  if (textOrFile === '' || textOrFile.includes('\n') || !existsSync(textOrFile)) return textOrFile
  return await readFile(textOrFile, 'utf8')
}

/** The commit's time, never the clock's: https://reproducible-builds.org/docs/source-date-epoch/ */
async function publicationTime(environment: NodeJS.ProcessEnv): Promise<string | null> {
  const given = environment['SOURCE_DATE_EPOCH']
  const seconds = given ?? (await commitTime())
  if (seconds === null || !/^[0-9]{1,12}$/.test(seconds)) {
    if (given === undefined) return null
    throw new BatonError('invalid_request', `expected seconds in SOURCE_DATE_EPOCH, got ${JSON.stringify(given)}`)
  }
  return new Date(Number(seconds) * 1000).toISOString()
}

async function commitTime(): Promise<string | null> {
  try {
    const { exitCode, stdout } = await run(['git', '-C', PROJECT, 'log', '-1', '--format=%ct'], { allowFailure: true })
    return exitCode === 0 && stdout.trim() !== '' ? stdout.trim() : null
  } catch {
    return null // no git on this machine
  }
}

function plan({ options }: Command): string {
  const { tag, service, out, effort, entry, publishedAt } = options
  const asset = assetName(service)
  const files = [`${asset}.gz`, `${asset}.zst`, 'SHA256SUMS', 'install.sh', 'release.json']
  return [
    `would build ${service} ${tag} from ${entry}, compression ${effort}, dated ${publishedAt ?? 'not at all'}`,
    ...files.map((name) => `would write ${join(out, tag, name)}`),
    `would update ${join(out, RELEASES)}`,
  ].join('\n')
}

async function runBuild(argv: readonly string[]): Promise<number> {
  try {
    const command = await readCommand(argv, process.env)
    if (command.help) {
      process.stdout.write(USAGE)
      return 0
    }
    if (command.dryRun) {
      process.stdout.write(command.json ? `${JSON.stringify(command.options)}\n` : `${plan(command)}\n`)
      return 0
    }
    const progress = createProgress({ quiet: command.quiet })
    for (const [signal, exitCode] of SIGNALS) {
      process.once(signal, () => {
        removeTemporaries()
        progress.end('failed', `ended by ${signal}`)
        process.exit(exitCode)
      })
    }
    try {
      const release = await buildRelease({ ...command.options, progress })
      if (command.json) process.stdout.write(`${JSON.stringify(release)}\n`)
      else if (!command.quiet) process.stdout.write(release.files.map(formatFile).join(''))
      return 0
    } catch (error) {
      progress.end('failed')
      throw error
    }
  } catch (error) {
    const usage = error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
    const problem = asBatonError(
      error,
      usage ? 'invalid_request' : 'unexpected',
      usage ? 'reading the arguments' : 'building',
    )
    const why = problem.cause === undefined || problem.cause === error ? '' : `: ${reasonOf(problem.cause)}`
    process.stderr.write(`error: ${problem.message}${problem.message.endsWith(why) ? '' : why}\n`)
    if (problem.hint !== null) process.stderr.write(`hint: ${problem.hint}\n`)
    return MEANINGS[problem.code].exit
  }
}

function formatFile({ name, sizeBytes, sha256 }: BuiltRelease['files'][number]): string {
  return `${sha256}  ${name.padEnd(28)} ${formatBytes(sizeBytes).padStart(9)}\n`
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  process.exitCode = await runBuild(process.argv.slice(2))
