// The commands of a managed install. `deploy/executable.ts` runs them inside the executable, `install.ts` from a clone.
// Must hold: every command ends with an exit code of the table in agent/words/errors.ts; nothing is thrown.

import { ownWords } from '../../agent/install.ts'
import { asBatonError } from '../../agent/words.ts'
import {
  ADVANCED,
  type CommandLine,
  durationOf,
  flag,
  type Flags,
  IRREVERSIBLE,
  IRREVERSIBLE_FLAG,
  nearestOf,
  option,
  OUTPUT_FLAGS,
  parseFlags,
  SCRIPT_FLAGS,
  usage,
  WAITING_FLAGS,
  word,
  YES,
} from '../lib/flags.ts'
import { commandOf, printHelp } from '../lib/help.ts'
import { isRefusal } from '../lib/refusal.ts'
import { work } from './boundary/worker.ts'
import { IN_UNIT, WORKER } from './boundary/drop.ts'
import { refuseInContainer } from './commands/container.ts'
import type { Context } from './commands/context.ts'
import { endOf } from './commands/deeds.ts'
import { doctor } from './commands/doctor.ts'
import { statusOfAll, upgradeAll } from './commands/all.ts'
import { install } from './commands/install.ts'
import { logs } from './commands/logs.ts'
import { stateCommand } from './commands/state.ts'
import { cancelCommand, pauseCommand, rollback, upgrade } from './commands/move.ts'
import { rescueHere, restart, start, stop, superviseHere } from './commands/running.ts'
import { releases, status } from './commands/status.ts'
import { uninstall } from './commands/uninstall.ts'
import { checked } from './place/choices.ts'
import { withOpener } from './service/opener.ts'
import { makeReport, type HostReport } from './report.ts'

const VERBOSE = {
  verbose: flag('print more details', { alias: 'v', advanced: true }),
} as const satisfies Flags

const PLACE = {
  system: flag('use the system-wide install (the default for root)', ADVANCED),
  user: flag("use the current user's own install", ADVANCED),
  prefix: option('dir', 'directory of the executable', ADVANCED),
} as const satisfies Flags

const LOOKING = { ...PLACE, ...OUTPUT_FLAGS, ...VERBOSE } as const satisfies Flags
/** `--yes` is taken by each command that changes something, so that a script need not know which ones ask */
const ACTING = {
  ...PLACE,
  ...SCRIPT_FLAGS,
  ...VERBOSE,
  yes: { ...YES.yes, advanced: true },
  ...WAITING_FLAGS,
} as const satisfies Flags

const ALL = {
  all: flag("every service on this host (without root, only this user's)"),
} as const satisfies Flags

const PAUSE = {
  'pause-until': option('day', 'do not update now; suspend automatic updates until the given day', ADVANCED),
  unpause: flag('resume automatic updates', ADVANCED),
} as const satisfies Flags

const REHEARSE = {
  trial: flag('with --dry-run, also try the release on a copy of the data'),
} as const satisfies Flags

const NOW = {
  now: flag("stop the application's work in progress instead of waiting for it", ADVANCED),
} as const satisfies Flags

const RESTORE_STATE = {
  'restore-state': flag('also restore the data from before the update; the current data is set aside, not deleted'),
} as const satisfies Flags

const INSTALL = {
  ...ACTING,
  ...YES,
  user: { ...PLACE.user, advanced: false },
  tag: word('the release: latest, or a tag such as v1.1.0 (default: the release that install.sh came with)'),
  feed: option('feed', 'where releases come from: https://host/path/, /folder or github:owner/name'),
  listen: option('host:port', 'listen address for a first install; `:port` means every address'),
  'state-dir': option('dir', 'data directory; kept across updates'),
  'run-as': option('user', 'user that a system service runs as', ADVANCED),
  'accept-unit': flag(
    'grant the extra systemd permissions that the release requests (`--dry-run` lists them); `-y` alone does not',
    ADVANCED,
  ),
  service: { type: 'boolean', negativeDescription: 'on a first install, do not create a systemd service' },
  start: { type: 'boolean', advanced: true, negativeDescription: 'do not start the service' },
} as const satisfies Flags

/** a flag of `install` that a look at an install takes too */
const asked = <Flag extends object>(flag: Flag) => ({ ...flag, advanced: true })

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
    description: 'install on this host, or change an existing install',
    args: INSTALL,
    act: (context, _values, argv) => install(context, argv),
  },
  {
    name: 'upgrade',
    description: 'update to a release',
    args: {
      tag: word('the release, such as v1.1.0 (default: latest)'),
      ...ACTING,
      ...IRREVERSIBLE,
      ...REHEARSE,
      ...NOW,
      ...PAUSE,
      all: { ...ALL.all, description: `${ALL.all.description}; stops at the first failure` },
    },
    act(context, { 'pause-until': day, unpause: ends, all }) {
      const until = typeof day === 'string' ? day : null
      if (all === true && (until !== null || ends === true))
        throw usage('`--pause-until` and `--unpause` cannot be used with `--all`')
      if (all === true) return upgradeAll(context)
      if (until === null && ends !== true) return upgrade(context)
      if (until !== null && ends === true) throw usage('use either `--pause-until` or `--unpause`, not both')
      if (context.flags.release !== null) throw usage('`--pause-until` and `--unpause` cannot be used with a release')
      return pauseCommand(context, until)
    },
  },
  {
    name: 'rollback',
    description: 'go back to the previous release, or to TAG',
    args: { tag: word('the release, such as v1.0.0; default: the backup'), ...ACTING, ...RESTORE_STATE },
    act: (context) => rollback(context, context.flags.release),
  },
  {
    name: 'cancel',
    description: 'cancel the running operation, unless the new release is already installed',
    args: LOOKING,
    act: (context) => cancelCommand(context),
  },
  {
    name: 'status',
    description: 'show versions and health',
    args: { ...LOOKING, ...ALL },
    act: (context, { all }) => (all === true ? statusOfAll(context, 'status') : status(context, false)),
  },
  {
    name: 'check',
    description: 'show the status, and check for updates',
    args: { ...LOOKING, ...ALL },
    act: (context, { all }) => (all === true ? statusOfAll(context, 'check') : status(context, true)),
  },
  {
    name: 'releases',
    description:
      "list the feed's releases, and mark the running one, the backup, and those that failed here (bad) or were yanked",
    args: LOOKING,
    act: (context) => releases(context),
  },
  {
    name: 'logs',
    description: "show the service's output",
    args: {
      ...PLACE,
      follow: flag('follow new output until Ctrl-C', { alias: 'f' }),
      lines: option('number', 'how many lines to show from the end of the log', { default: '50' }),
    },
    act: (context, { follow, lines }) => logs(context, follow === true, String(lines)),
  },
  {
    name: 'start',
    description: 'start the service',
    args: { ...ACTING, supervise: flag('stay in the foreground and supervise the service', ADVANCED) },
    act: (context, { supervise }) => (supervise === true ? superviseHere(context) : start(context)),
  },
  {
    name: 'stop',
    description: 'stop once requests and background work have finished',
    args: ACTING,
    act: (context) => stop(context),
  },
  {
    name: 'restart',
    description: 'restart once requests and background work have finished',
    args: ACTING,
    act: (context) => restart(context),
  },
  {
    name: 'state',
    description: 'list, restore or remove data kept by updates',
    args: {
      action: word(
        'one of `list`, `restore NAME`, `back TAG` (return to a release and its data) or `clean` (remove data that was set aside)',
      ),
      target: word('a name from `state list`; for `back`, a release tag'),
      ...ACTING,
    },
    act: (context, { action = 'list', target }) => {
      const named = typeof target === 'string' ? target : null
      if (action !== 'back') return stateCommand(context, String(action), named)
      if (named === null) throw usage('expected a release, as in `state back v1.0.0`')
      return rollback({ ...context, flags: { ...context.flags, restoreState: true } }, named)
    },
  },
  {
    name: 'snapshot',
    description: 'copy the database to a file, even while the service is running',
    args: {
      file: { type: 'positional', required: true, description: 'file for the copy; `-` for stdout' },
      try: option(
        'new',
        'after copying, try this executable on the copy, then the current release on the resulting data',
      ),
    },
    act: () => Promise.reject(usage('expected `snapshot FILE`')), // operator.ts reads it before this
  },
  {
    name: 'doctor',
    description: 'check for problems',
    args: {
      ...LOOKING,
      feed: asked(INSTALL.feed),
      service: asked(INSTALL.service),
      'state-dir': asked(INSTALL['state-dir']),
      'run-as': INSTALL['run-as'],
    },
    act: (context) => doctor(context),
  },
  {
    name: 'uninstall',
    description: 'remove the install, but keep the state directory',
    args: {
      ...ACTING,
      ...YES,
      purge: flag('also remove the state directory, the configuration and the user that the install created'),
      confirm: option('service', 'name of the service, to confirm --purge'),
    },
    act: (context) => uninstall(context),
  },
  {
    name: 'rescue',
    description: 'restore the backup executable if a release failed twice during probation',
    args: {
      ...OUTPUT_FLAGS,
      'given-up': flag('roll back after one failure: the supervisor will not restart the service'),
    },
    hidden: true,
    act: (context, values) => rescueHere(context, values['given-up'] === true),
  },
  {
    name: WORKER,
    description: "act on the service's files as the service's user, for a command run by root",
    args: { where: word(`\`${IN_UNIT}\` if systemd runs this in a unit`) },
    hidden: true,
    act: (_context, { where }) => work(where === IN_UNIT),
  },
]

/** What may be typed, hidden words too. */
export const COMMANDS: readonly CommandLine[] = WORDS

/** The command that a person has plainly meant by a word that is none; null: none. */
export function commandLike(word: string): string | null {
  const shown = WORDS.filter(({ hidden = false }) => !hidden).map(({ name }) => name)
  return nearestOf(word, shown, 1)
}

/** Runs one command and returns its exit code; never throws. */
export async function runCommand(argv: readonly string[], build: HostProgram): Promise<number> {
  // the reader has gone, as `head` does: the work goes on
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', () => {})
  const { service, tag } = build
  const about = { command: argv[0] ?? '', service }
  let report: HostReport = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    const found = await commandOf(argv, {
      name: `${service} ${ownWords('')}`.trim(),
      description: `installs and updates ${service}; this is ${tag}`,
      commands: WORDS,
      version: async () => `${service} ${tag}`,
    })
    if ('text' in found) return printHelp(found.text, found.exit)
    const { word, rest } = found
    const values: Values = parseFlags(rest, word)
    const context = contextFrom(values, build, about)
    report = context.report
    if (word.hidden !== true && word.name !== 'doctor') refuseInContainer(service, context.environment)
    return await word.act(context, values, rest)
  } catch (cause) {
    const error = await withOpener(asBatonError(cause, isRefusal(cause) ? 'refused' : 'unexpected', about.command))
    return report.failed(error, endOf(error))
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
      release: text('tag') ?? null,
      allowIrreversible: values[IRREVERSIBLE_FLAG] === true,
      restoreState: values['restore-state'] === true,
      now: values['now'] === true,
      rehearse: values['trial'] === true,
      dryRun: values['dry-run'] === true,
      yes: values['yes'] === true,
      acceptUnit: values['accept-unit'] === true,
      confirm: text('confirm') ?? null,
      purge: values['purge'] === true,
      healthUrl: text('health-url') ?? null,
      lockTimeoutMs: durationOf('--lock-timeout', text('lock-timeout') ?? '0'),
      healthTimeoutMs: durationOf('--health-timeout', text('health-timeout') ?? '60s'),
    },
  }
}
