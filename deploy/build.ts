// Builds one release of the reference service: `npm run build -- v1.2.0` -> dist/v1.2.0/ and dist/releases.json. This file
// reads the arguments; the work is in make/release.ts. Other authors use `baton build`.

import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { asBatonError, BatonError, isService, isTag, MEANINGS, reasonOf } from '../agent/words.ts'
import { SCHEMA } from '../agent/service/schema.ts'
import { deltasFrom } from './make/deltas.ts'
import { COMPRESSIONS } from './make/pack.ts'
import { PROJECT } from './make/place.ts'
import { publicationTime, readNotes } from './make/publication.ts'
import { assetName, RELEASES } from './make/release-folder.ts'
import { type BuildOptions, type BuiltRelease, buildRelease, DEFAULT_ENTRY, DEFAULT_SERVICE } from './make/release.ts'
import { exitAtOnce } from './make/temporary.ts'
import { ADVANCED, type CommandLine, DELTA_FLAGS, flag, option, parseFlags, SCRIPT_FLAGS, word } from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'
import { printError } from './lib/printer.ts'
import { createProgress, formatBytes } from './lib/progress.ts'

export const COMMAND = {
  name: 'npm run build --',
  description: 'builds a release of the reference service',
  args: {
    tag: word('the release to build, such as v1.1.0'),
    out: option('dir', 'folder for the releases', { default: 'dist' }),
    service: option('name', 'name of the service', { advanced: true, default: DEFAULT_SERVICE }),
    feed: option('feed', 'where hosts look for the next release; written into install.sh'),
    root: option('file', 'root.json to verify the signed feed with', ADVANCED),
    notes: option('text|file', 'release notes'),
    compress: option('effort', COMPRESSIONS.join(', '), { default: 'normal' }),
    entry: option('file', 'main module of the executable (deploy/executable.ts)', ADVANCED),
    schema: option('number', 'schema number of the database, written to release.json', ADVANCED),
    ...DELTA_FLAGS,
    force: flag('replace a different release that has the same tag'),
    ...SCRIPT_FLAGS,
  },
} as const satisfies CommandLine

/** exit codes that a shell reports for a program that these signals ended */
const SIGNALS = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const

type Options = Omit<BuildOptions, 'progress'>

async function readOptions(argv: readonly string[], environment: NodeJS.ProcessEnv) {
  const values = parseFlags(argv, COMMAND)
  const effort = COMPRESSIONS.find((one) => one === values.compress)
  const entry = values.entry === undefined ? DEFAULT_ENTRY : resolve(values.entry)
  const faults: string[] = []
  if (!isTag(values.tag)) faults.push(`expected a tag of the form vX.Y.Z, got ${JSON.stringify(values.tag ?? '')}`)
  if (!isService(values.service))
    faults.push(`expected a name such as \`beacon\` for --service, got ${JSON.stringify(values.service)}`)
  if (effort === undefined)
    faults.push(`expected one of ${COMPRESSIONS.join(', ')} for --compress, got ${JSON.stringify(values.compress)}`)
  if (!existsSync(entry)) faults.push(`expected an existing file for --entry, got ${entry}`)
  if (values.schema !== undefined && !/^[0-9]{1,9}$/.test(values.schema))
    faults.push(`expected a whole number of at most 9 digits for --schema, got ${values.schema}`)
  if (faults.length > 0) throw new BatonError('invalid_request', faults.join('; '))
  const options: Options = {
    tag: values.tag ?? '',
    out: resolve(values.out),
    service: values.service,
    feed: values.feed ?? null,
    notes: await readNotes(values.notes ?? ''),
    effort: effort ?? 'normal',
    entry,
    root: values.root === undefined ? null : resolve(values.root),
    schema: values.schema === undefined ? (entry === DEFAULT_ENTRY ? SCHEMA.length : null) : Number(values.schema),
    publishedAt: await publicationTime(PROJECT, environment),
    force: values.force,
    deltas: deltasFrom(values['delta-from'], values.deltas),
  }
  return { options, values }
}

function plan({ tag, service, out, effort, entry, publishedAt }: Options): string {
  const asset = assetName(service)
  const files = [`${asset}.gz`, `${asset}.zst`, 'SHA256SUMS', 'install.sh', 'release.json']
  return [
    `would build ${service} ${tag} from ${entry}, compression ${effort}, ${publishedAt === null ? 'without a date' : `dated ${publishedAt}`}`,
    ...files.map((name) => `would write ${join(out, tag, name)}`),
    `would update ${join(out, RELEASES)}`,
  ].join('\n')
}

async function runBuild(argv: readonly string[]): Promise<number> {
  try {
    const help = await helpFor(argv, COMMAND)
    if (help !== null) return printHelp(help)
    const { options, values } = await readOptions(argv, process.env)
    if (values['dry-run']) {
      process.stdout.write(values.json ? `${JSON.stringify(options)}\n` : `${plan(options)}\n`)
      return 0
    }
    const progress = createProgress({ quiet: values.quiet })
    for (const [signal, exitCode] of SIGNALS) {
      process.once(signal, () => {
        progress.end('failed', `stopped by ${signal}`)
        exitAtOnce(exitCode)
      })
    }
    try {
      const release = await buildRelease({ ...options, progress })
      if (values.json) process.stdout.write(`${JSON.stringify(release)}\n`)
      else if (!values.quiet) {
        const script = join(options.out, options.tag, 'install.sh')
        process.stdout.write(
          `${release.files.map(formatFile).join('')}\nnext: sh ${script} (the feed is ${options.out})\n`,
        )
      }
      return 0
    } catch (error) {
      progress.end('failed')
      throw error
    }
  } catch (error) {
    const problem = asBatonError(error, 'unexpected', 'building')
    const why = problem.cause === undefined || problem.cause === error ? '' : `: ${reasonOf(problem.cause)}`
    printError({ message: `${problem.message}${problem.message.endsWith(why) ? '' : why}`, hint: problem.hint })
    return MEANINGS[problem.code].exit
  }
}

function formatFile({ name, sizeBytes, sha256 }: BuiltRelease['files'][number]): string {
  return `${sha256}  ${name.padEnd(28)} ${formatBytes(sizeBytes).padStart(9)}\n`
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  process.exitCode = await runBuild(process.argv.slice(2))
