// The command line of a managed install: contract 2. Inside the executable it is the command tree; from a clone it runs as
// `tsx install.ts …`. The one importer of citty. Must hold: every way out has an exit code of the table in agent/errors.ts.

import { isSea } from 'node:sea'
import { pathToFileURL } from 'node:url'
import { type ArgsDef, defineCommand, renderUsage, runCommand as runTree } from 'citty'
import { asBatonError, BatonError, MEANINGS } from './agent/errors.ts'
import { BUILD } from './agent/service/build.ts'
import { checked } from './deploy/host/choices.ts'
import * as commands from './deploy/host/commands.ts'
import { secondsOf, usage } from './deploy/lib/flags.ts'
import { makeReport, type Report } from './deploy/host/report.ts'

const OUTPUT = {
  json: { type: 'boolean', description: 'one JSON object a line on stdout' },
  quiet: { type: 'boolean', alias: 'q', description: 'say nothing but errors' },
  verbose: { type: 'boolean', alias: 'v', description: 'say more' },
} as const satisfies ArgsDef

const PLACE = {
  system: { type: 'boolean', description: 'for the whole host (the default for root)' },
  user: { type: 'boolean', description: 'for this user' },
  prefix: { type: 'string', valueHint: 'dir', description: 'directory of the executable' },
} as const satisfies ArgsDef

const ACTING = {
  ...PLACE,
  ...OUTPUT,
  'dry-run': { type: 'boolean', alias: 'n', description: 'print the plan and change nothing' },
  yes: { type: 'boolean', alias: 'y', description: 'do not ask' },
  'health-timeout': {
    type: 'string',
    valueHint: 'seconds',
    description: 'how long the new version may take to answer (60)',
  },
  'lock-timeout': {
    type: 'string',
    valueHint: 'seconds',
    description: 'how long to wait for an operation in flight (0)',
  },
} as const satisfies ArgsDef

const RELEASE = {
  release: { type: 'string', valueHint: 'tag|latest', description: 'the release to move to' },
} as const satisfies ArgsDef

const INSTALL = {
  ...ACTING,
  ...RELEASE,
  'state-dir': { type: 'string', valueHint: 'dir', description: 'directory of the database, which no command removes' },
  feed: { type: 'string', valueHint: 'feed', description: 'https://host/path/, /folder or github:owner/name' },
  listen: { type: 'string', valueHint: 'host:port', description: 'where the service listens, for a first install' },
  'run-as': { type: 'string', valueHint: 'user', description: 'user of a system service' },
  service: { type: 'boolean', description: 'with a systemd service', negativeDescription: 'without systemd' },
  start: { type: 'boolean', description: 'start the service', negativeDescription: 'start nothing' },
} as const satisfies ArgsDef

type Values = Record<string, unknown>

/** Runs one command and returns its exit code; never throws. */
export async function runCommand(argv: string[]): Promise<number> {
  let exitCode = 0
  let report: Report | null = null
  const command = <T extends ArgsDef>(
    name: string,
    description: string,
    args: T,
    act: (context: commands.Context, values: Values) => Promise<number>,
    hidden = false,
  ) =>
    defineCommand({
      meta: { name, description, hidden },
      args,
      async run({ args: values, rawArgs }) {
        refuseUnknown(rawArgs, args, values)
        const context = contextFrom(values)
        report = context.report
        exitCode = await act(context, values)
      },
    })
  const tree = defineCommand({
    meta: {
      name: BUILD.service,
      version: BUILD.tag.slice(1),
      description: `installs and keeps up to date: ${BUILD.service}`,
    },
    subCommands: {
      install: command('install', 'install on this host, or change an install', INSTALL, (context) =>
        commands.install(context, argv.slice(1)),
      ),
      upgrade: command('upgrade', 'move to a newer release', { ...ACTING, ...RELEASE }, (context) =>
        commands.upgrade(context),
      ),
      rollback: command(
        'rollback',
        'bring the backup executable back, or a release by its tag',
        { ...ACTING, tag: { type: 'positional', required: false, description: 'a release, such as v1.0.0' } },
        (context, { tag }) => commands.rollback(context, typeof tag === 'string' ? tag : null),
      ),
      status: command('status', 'what is installed, running and latest', { ...PLACE, ...OUTPUT }, (context) =>
        commands.status(context),
      ),
      uninstall: command(
        'uninstall',
        'remove the install; the state directory stays',
        {
          ...ACTING,
          purge: { type: 'boolean', description: 'remove the state and the configuration too' },
          confirm: { type: 'string', valueHint: 'service', description: 'the name that --purge asks for' },
        },
        (context) => commands.uninstall(context),
      ),
      doctor: command(
        'doctor',
        'say what would fail, before it does',
        {
          ...PLACE,
          ...OUTPUT,
          feed: INSTALL.feed,
          service: INSTALL.service,
          'state-dir': INSTALL['state-dir'],
          'run-as': INSTALL['run-as'],
        },
        (context) => commands.doctor(context),
      ),
      start: command(
        'start',
        'start the service',
        { ...ACTING, supervise: { type: 'boolean', description: 'stay, as its supervisor' } },
        (context, { supervise }) => (supervise === true ? commands.superviseHere() : commands.start(context)),
      ),
      stop: command('stop', 'let the service drain and stop', ACTING, (context) => commands.stop(context)),
      rescue: command(
        'rescue',
        'put the backup executable back where a release on probation failed twice',
        { ...OUTPUT, 'given-up': { type: 'boolean', description: 'nobody starts it again: one failure is enough' } },
        (context, values) => commands.rescueHere(context, values['given-up'] === true),
        true,
      ),
    },
  })
  const [first = ''] = argv
  const subCommands = tree.subCommands as Record<string, typeof tree>
  if (first === '' || first === 'help' || argv.includes('--help') || argv.includes('-h')) {
    const sub = Object.hasOwn(subCommands, first) ? subCommands[first] : undefined
    const usageText = await (sub === undefined ? renderUsage(tree) : renderUsage(sub, tree))
    // citty colours whatever it writes to
    const plain = !process.stdout.isTTY || Boolean(process.env['NO_COLOR'])
    process.stdout.write(`${plain ? stripped(usageText) : usageText}\n`)
    return 0
  }
  try {
    if (!Object.hasOwn(subCommands, first)) {
      throw new BatonError(
        'invalid_settings',
        `expected a command (${Object.keys(subCommands).join(', ')}), got ${JSON.stringify(first.slice(0, 40))}`,
      )
    }
    await runTree(tree, { rawArgs: argv })
    return exitCode
  } catch (cause) {
    // citty's own errors are about usage; its class is not exported
    const isUsage = cause instanceof Error && cause.name === 'CLIError'
    const error = isUsage ? usage(stripped(cause.message)) : asBatonError(cause, 'unexpected', first)
    const json = argv.includes('--json')
    // the same one, so that what it was drawing ends as failed
    const teller = (report as Report | null) ?? makeReport({ json, quiet: false, verbose: false })
    teller.failed(error)
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
      lockTimeoutMs: secondsOf('--lock-timeout', text('lock-timeout') ?? '0'),
      healthTimeoutMs: secondsOf('--health-timeout', text('health-timeout') ?? '60'),
    },
  }
}

/** citty takes what it does not know for a flag without a meaning; here that is an error. */
function refuseUnknown(rawArgs: readonly string[], defined: ArgsDef, values: Values): void {
  const flags = new Map<string, string | undefined>()
  let positionals = 0
  for (const [name, { type, alias }] of Object.entries(defined) as [string, { type?: string; alias?: string }][]) {
    if (type === 'positional') positionals++
    else {
      flags.set(`--${name}`, type)
      if (alias !== undefined) flags.set(`-${alias}`, type)
      // only what says so can be negated
      if (name === 'service' || name === 'start') flags.set(`--no-${name}`, 'boolean')
    }
  }
  for (let i = 0; i < rawArgs.length; i++) {
    const argument = rawArgs[i] ?? ''
    const [name = ''] = argument.split('=', 1)
    if (!argument.startsWith('-')) {
      if (positionals-- <= 0) throw usage(`expected a flag, got ${JSON.stringify(argument.slice(0, 40))}`)
      continue
    }
    const type = flags.get(name)
    if (type === undefined) throw usage(`there is no flag ${JSON.stringify(name.slice(0, 40))} here`)
    if (type === 'boolean' && argument.includes('=')) throw usage(`expected no value for \`${name}\``)
    if (type === 'string' && !argument.includes('=')) i++
  }
  for (const [name, { type }] of Object.entries(defined)) {
    if (type === 'string' && values[name] === '') throw usage(`expected a value for \`--${name}\``)
  }
}

function stripped(text: string): string {
  // oxlint-disable-next-line no-control-regex -- citty colours its messages
  return text.replaceAll(/\u001B\[[0-9;]*m/g, '')
}

// inside the executable this file is a part of the main script, which has the same URL
if (!isSea() && process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  void runCommand(process.argv.slice(2)).then((exitCode) => void (process.exitCode = exitCode))
}
