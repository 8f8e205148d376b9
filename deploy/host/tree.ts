// The command tree of a managed install: contract 2. `deploy/executable.ts` starts it inside the executable, `install.ts` from a
// clone. Must hold: every way out has an exit code of the table in agent/errors.ts; nothing is thrown.

import { asBatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import { BUILD } from '../../agent/service/build.ts'
import {
  asksForHelp,
  type Command,
  type Flags,
  OUTPUT_FLAGS,
  parseFlags,
  SCRIPT_FLAGS,
  secondsOf,
  usage,
  usageOf,
  WAITING_FLAGS,
} from '../lib/flags.ts'
import * as commands from './commands/commands.ts'
import { checked } from './place/choices.ts'
import { makeReport, type Report } from './report.ts'

const VERBOSE = { verbose: { type: 'boolean', alias: 'v', description: 'say more' } } as const satisfies Flags

const PLACE = {
  system: { type: 'boolean', description: 'for the whole host (the default for root)' },
  user: { type: 'boolean', description: 'for this user' },
  prefix: { type: 'string', valueHint: 'dir', description: 'directory of the executable' },
} as const satisfies Flags

const YES = { yes: { type: 'boolean', alias: 'y', description: 'do not ask' } } as const satisfies Flags

const LOOKING = { ...PLACE, ...OUTPUT_FLAGS, ...VERBOSE } as const satisfies Flags
const ACTING = { ...PLACE, ...SCRIPT_FLAGS, ...VERBOSE, ...YES, ...WAITING_FLAGS } as const satisfies Flags

const RELEASE = {
  release: { type: 'string', valueHint: 'tag|latest', description: 'the release to move to' },
} as const satisfies Flags

const INSTALL = {
  ...ACTING,
  ...RELEASE,
  'state-dir': { type: 'string', valueHint: 'dir', description: 'directory of the database, which no command removes' },
  feed: { type: 'string', valueHint: 'feed', description: 'https://host/path/, /folder or github:owner/name' },
  listen: { type: 'string', valueHint: 'host:port', description: 'where the service listens, for a first install' },
  'run-as': { type: 'string', valueHint: 'user', description: 'user of a system service' },
  service: { type: 'boolean', description: 'with a systemd service', negativeDescription: 'without systemd' },
  start: { type: 'boolean', description: 'start the service', negativeDescription: 'start nothing' },
} as const satisfies Flags

type Values = Record<string, unknown>

interface Word extends Command {
  act(context: commands.Context, values: Values, argv: readonly string[]): Promise<number>
}

const TREE: Command = {
  name: BUILD.service,
  description: `installs and keeps up to date: ${BUILD.service} ${BUILD.tag}`,
  args: {},
}

const WORDS: readonly Word[] = [
  {
    name: 'install',
    description: 'install on this host, or change an install',
    args: INSTALL,
    act: (context, _values, argv) => commands.install(context, argv),
  },
  {
    name: 'upgrade',
    description: 'move to a newer release',
    args: { ...ACTING, ...RELEASE },
    act: (context) => commands.upgrade(context),
  },
  {
    name: 'rollback',
    description: 'bring the backup executable back, or a release by its tag',
    args: { ...ACTING, tag: { type: 'positional', required: false, description: 'a release, such as v1.0.0' } },
    act: (context, { tag }) => commands.rollback(context, typeof tag === 'string' ? tag : null),
  },
  {
    name: 'status',
    description: 'what is installed and running',
    args: LOOKING,
    act: (context) => commands.status(context),
  },
  {
    name: 'uninstall',
    description: 'remove the install; the state directory stays',
    args: {
      ...ACTING,
      purge: { type: 'boolean', description: 'remove the state and the configuration too' },
      confirm: { type: 'string', valueHint: 'service', description: 'the name that --purge asks for' },
    },
    act: (context) => commands.uninstall(context),
  },
  {
    name: 'doctor',
    description: 'say what would fail, before it does',
    args: {
      ...LOOKING,
      feed: INSTALL.feed,
      service: INSTALL.service,
      'state-dir': INSTALL['state-dir'],
      'run-as': INSTALL['run-as'],
    },
    act: (context) => commands.doctor(context),
  },
  {
    name: 'start',
    description: 'start the service',
    args: { ...ACTING, supervise: { type: 'boolean', description: 'stay, as its supervisor' } },
    act: (context, { supervise }) => (supervise === true ? commands.superviseHere() : commands.start(context)),
  },
  {
    name: 'stop',
    description: 'let the service drain and stop',
    args: ACTING,
    act: (context) => commands.stop(context),
  },
  {
    name: 'rescue',
    description: 'put the backup executable back where a release on probation failed twice',
    args: {
      ...OUTPUT_FLAGS,
      'given-up': { type: 'boolean', description: 'nobody starts it again: one failure is enough' },
    },
    hidden: true,
    act: (context, values) => commands.rescueHere(context, values['given-up'] === true),
  },
]

/** Runs one command and returns its exit code; never throws. */
export async function runCommand(argv: readonly string[]): Promise<number> {
  const [first = '', ...rest] = argv
  const word = WORDS.find(({ name }) => name === first)
  if (first === '' || first === 'help' || asksForHelp(argv)) {
    process.stdout.write(word === undefined ? await usageOf(TREE, undefined, WORDS) : await usageOf(word, TREE))
    return EXIT.done
  }
  let report: Report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false })
  try {
    if (word === undefined) {
      const names = WORDS.filter(({ hidden }) => hidden !== true).map(({ name }) => name)
      throw usage(`expected a command (${names.join(', ')}), got ${JSON.stringify(first.slice(0, 40))}`)
    }
    const values: Values = parseFlags(rest, word)
    const context = contextFrom(values)
    report = context.report
    return await word.act(context, values, rest)
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', first)
    report.failed(error)
    return MEANINGS[error.code].exit
  }
}

function contextFrom(values: Values): commands.Context {
  const text = (key: string) => (typeof values[key] === 'string' ? values[key] : undefined)
  const flag = (key: string) => (typeof values[key] === 'boolean' ? values[key] : undefined)
  if (values['system'] === true && values['user'] === true) throw usage('expected `--system` or `--user`, got both')
  const said = checked({
    scope: values['system'] === true ? 'system' : values['user'] === true ? 'user' : undefined,
    prefix: text('prefix'),
    'state-dir': text('state-dir'),
    feed: text('feed'),
    listen: text('listen'),
    'run-as': text('run-as'),
    service: flag('service'),
    start: flag('start'),
  })
  return {
    service: BUILD.service,
    tag: BUILD.tag,
    environment: process.env,
    report: makeReport({
      json: values['json'] === true,
      quiet: values['quiet'] === true,
      verbose: values['verbose'] === true,
    }),
    flags: {
      said,
      release: text('release') ?? null,
      dryRun: values['dry-run'] === true,
      yes: values['yes'] === true,
      confirm: text('confirm') ?? null,
      purge: values['purge'] === true,
      healthUrl: text('health-url') ?? null,
      lockTimeoutMs: secondsOf('--lock-timeout', text('lock-timeout') ?? '0'),
      healthTimeoutMs: secondsOf('--health-timeout', text('health-timeout') ?? '60'),
    },
  }
}
