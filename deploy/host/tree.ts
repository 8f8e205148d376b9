// The commands of a managed install. `deploy/executable.ts` runs them inside the executable, `install.ts` from a clone.
// Must hold: every command ends with an exit code of the table in agent/words/errors.ts; nothing is thrown.

import { ownCommand } from '../../agent/install.ts'
import { asBatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import {
  asksForHelp,
  type CommandLine,
  type Flags,
  OUTPUT_FLAGS,
  parseFlags,
  SCRIPT_FLAGS,
  secondsOf,
  unknownCommand,
  usage,
  usageOf,
  WAITING_FLAGS,
} from '../lib/flags.ts'
import { isRefusal } from '../lib/refusal.ts'
import { work } from './boundary/worker.ts'
import { IN_UNIT, WORKER } from './boundary/drop.ts'
import type { Context } from './commands/context.ts'
import { endOf } from './commands/deeds.ts'
import { doctor } from './commands/doctor.ts'
import { install } from './commands/install.ts'
import { stateCommand } from './commands/state.ts'
import { cancelCommand, holdCommand, rollback, upgrade } from './commands/move.ts'
import { rescueHere, start, stop, superviseHere } from './commands/running.ts'
import { status } from './commands/status.ts'
import { uninstall } from './commands/uninstall.ts'
import { checked } from './place/choices.ts'
import { withOpener } from './service/opener.ts'
import { makeReport, type HostReport } from './report.ts'

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

const IRREVERSIBLE = {
  'allow-irreversible': {
    type: 'boolean',
    description:
      'also if this release cannot work on the data that the new one leaves: no rollback without the snapshot',
  },
} as const satisfies Flags

const HOLD = {
  'pause-until': {
    type: 'string',
    valueHint: 'day',
    description: 'move nothing; nothing goes by itself before that day',
  },
  unpause: { type: 'boolean', description: 'move nothing; end that pause' },
} as const satisfies Flags

const REHEARSE = {
  rehearse: {
    type: 'boolean',
    description: 'with --dry-run: fetch the release and try it on a copy of the data, as the update would',
  },
} as const satisfies Flags

const RESTORE_STATE = {
  'restore-state': {
    type: 'boolean',
    description: 'with the data from before the update, from its snapshot; the present data is put aside, not removed',
  },
} as const satisfies Flags

const INSTALL = {
  ...ACTING,
  ...RELEASE,
  'state-dir': { type: 'string', valueHint: 'dir', description: 'directory of the database, which no command removes' },
  feed: { type: 'string', valueHint: 'feed', description: 'https://host/path/, /folder or github:owner/name' },
  listen: {
    type: 'string',
    valueHint: 'host:port',
    description: 'where the service listens, for a first install; `:port`: at every address',
  },
  'run-as': { type: 'string', valueHint: 'user', description: 'user of a system service' },
  service: { type: 'boolean', description: 'with a systemd service', negativeDescription: 'without systemd' },
  start: { type: 'boolean', description: 'start the service', negativeDescription: 'start nothing' },
} as const satisfies Flags

type Values = Record<string, unknown>

interface Word extends CommandLine {
  act(context: Context, values: Values, argv: readonly string[]): Promise<number>
}

/** The program that contains these commands. */
export interface HostProgram {
  service: string
  tag: string
}

const WORDS: readonly Word[] = [
  {
    name: 'install',
    description: 'install on this host, or change an install',
    args: INSTALL,
    act: (context, _values, argv) => install(context, argv),
  },
  {
    name: 'upgrade',
    description: 'move to a newer release',
    args: { ...ACTING, ...RELEASE, ...IRREVERSIBLE, ...REHEARSE, ...HOLD },
    act(context, { 'pause-until': day, unpause: ends }) {
      const until = typeof day === 'string' ? day : null
      if (until !== null && ends === true) throw usage('expected `--pause-until` or `--unpause`, got both')
      return until === null && ends !== true ? upgrade(context) : holdCommand(context, until)
    },
  },
  {
    name: 'rollback',
    description: 'bring the backup executable back, or a release by its tag',
    args: {
      ...ACTING,
      ...RESTORE_STATE,
      tag: { type: 'positional', required: false, description: 'a release, such as v1.0.0' },
    },
    act: (context, { tag }) => rollback(context, typeof tag === 'string' ? tag : null),
  },
  {
    name: 'cancel',
    description: 'end the operation in flight, before its swap',
    args: LOOKING,
    act: (context) => cancelCommand(context),
  },
  {
    name: 'status',
    description: 'what is installed and running',
    args: {
      ...LOOKING,
      check: { type: 'boolean', default: false, description: 'ask the feed for the latest release too' },
    },
    act: (context, { check }) => status(context, check === true),
  },
  {
    name: 'check',
    description: 'ask the feed what there is, and change nothing',
    args: LOOKING,
    act: (context) => status(context, true),
  },
  {
    name: 'state',
    description:
      'the copies of the database that updates have left; `state restore NAME` takes one back, `state back --to TAG` a release with its data, `state clean` removes what was put aside',
    args: {
      ...ACTING,
      act: { type: 'positional', required: false, description: 'list, restore, clean or back' },
      copy: { type: 'positional', required: false, description: 'a name of the list' },
      to: { type: 'string', valueHint: 'tag', description: 'for back: the release, such as v1.0.0' },
    },
    act: (context, { act = 'list', copy = null, to = null }) => {
      if (act !== 'back') return stateCommand(context, String(act), typeof copy === 'string' ? copy : null)
      if (typeof to !== 'string') throw usage('expected `--to TAG` beside `state back`')
      return rollback({ ...context, flags: { ...context.flags, restoreState: true } }, to)
    },
  },
  {
    name: 'uninstall',
    description: 'remove the install; the state directory stays',
    args: {
      ...ACTING,
      purge: { type: 'boolean', description: 'remove the state and the configuration too' },
      confirm: { type: 'string', valueHint: 'service', description: 'the name that --purge asks for' },
    },
    act: (context) => uninstall(context),
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
    act: (context) => doctor(context),
  },
  {
    name: 'start',
    description: 'start the service',
    args: { ...ACTING, supervise: { type: 'boolean', description: 'stay, as its supervisor' } },
    act: (context, { supervise }) => (supervise === true ? superviseHere(context) : start(context)),
  },
  {
    name: 'stop',
    description: 'let the service drain and stop',
    args: ACTING,
    act: (context) => stop(context),
  },
  {
    name: 'rescue',
    description: 'put the backup executable back if a release on probation failed twice',
    args: {
      ...OUTPUT_FLAGS,
      'given-up': { type: 'boolean', description: 'roll back after one failure (no supervisor restarts the service)' },
    },
    hidden: true,
    act: (context, values) => rescueHere(context, values['given-up'] === true),
  },
  {
    name: WORKER,
    description: "act on the service's files as its user, for a command that root runs",
    args: { where: { type: 'positional', required: false, description: `\`${IN_UNIT}\` in a unit` } },
    hidden: true,
    act: (_context, { where }) => work(where === IN_UNIT),
  },
]

/** Every first word that is a command, hidden ones too. */
export const COMMAND_WORDS: readonly string[] = WORDS.map(({ name }) => name)

/** The flags of all of them, by name. */
export const COMMAND_FLAGS: Readonly<Flags> = Object.fromEntries(WORDS.flatMap(({ args }) => Object.entries(args)))

/** Runs one command and returns its exit code; never throws. */
export async function runCommand(argv: readonly string[], build: HostProgram): Promise<number> {
  const [first = '', ...rest] = argv
  const named = first === 'help' ? (rest[0] ?? '') : first
  const word = WORDS.find(({ name }) => name === named)
  const tree: CommandLine = {
    name: `${build.service} ${ownCommand('')}`.trim(),
    description: `installs and keeps up to date: ${build.service} ${build.tag}`,
    args: {},
  }
  if (named === '' || (word !== undefined && first === 'help') || asksForHelp(argv)) {
    process.stdout.write(word === undefined ? await usageOf(tree, undefined, WORDS) : await usageOf(word, tree))
    return EXIT.done
  }
  const about = { command: first, service: build.service }
  let report: HostReport = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    if (word === undefined) {
      const names = WORDS.filter(({ hidden }) => hidden !== true).map(({ name }) => name)
      throw unknownCommand(named, names)
    }
    const values: Values = parseFlags(rest, word)
    const context = contextFrom(values, build, about)
    report = context.report
    return await word.act(context, values, rest)
  } catch (cause) {
    const error = await withOpener(asBatonError(cause, isRefusal(cause) ? 'refused' : 'unexpected', first))
    report.failed(error, endOf(error))
    return MEANINGS[error.code].exit
  }
}

function contextFrom(values: Values, build: HostProgram, about: { command: string; service: string }): Context {
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
    ...build,
    environment: process.env,
    report: makeReport({
      json: values['json'] === true,
      quiet: values['quiet'] === true,
      verbose: values['verbose'] === true,
      about,
    }),
    flags: {
      said,
      release: text('release') ?? null,
      allowIrreversible: values['allow-irreversible'] === true,
      restoreState: values['restore-state'] === true,
      rehearse: values['rehearse'] === true,
      dryRun: values['dry-run'] === true,
      yes: values['yes'] === true,
      confirm: text('confirm') ?? null,
      purge: values['purge'] === true,
      check: values['check'] === true,
      healthUrl: text('health-url') ?? null,
      lockTimeoutMs: secondsOf('--lock-timeout', text('lock-timeout') ?? '0'),
      healthTimeoutMs: secondsOf('--health-timeout', text('health-timeout') ?? '60'),
    },
  }
}
