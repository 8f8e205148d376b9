// Deploys a release to this host without asking: plans, installs or upgrades, checks the health, and goes back to the previous
// release if the new one is not healthy. This file reads the arguments; the work is in host/deploy.ts.

import { asBatonError } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { parseRelease } from './host/place/choices.ts'
import { endOf } from './host/commands/deeds.ts'
import { IS_PACKAGED } from './make/place.ts'
import { deployHere, type DeployEnd, theServiceHere } from './host/deploy.ts'
import { makeReport } from './host/report.ts'
import { rehearsalLines } from './lib/switch.ts'
import {
  type CommandLine,
  durationOf,
  flag,
  IRREVERSIBLE,
  IRREVERSIBLE_FLAG,
  option,
  parseFlags,
  RELEASE_FLAGS,
  releaseIn,
  SCRIPT_FLAGS,
  usage,
  WAITING_FLAGS,
} from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'

export const COMMAND = {
  name: IS_PACKAGED ? 'baton deploy host' : 'deploy-systemd.sh',
  description: 'deploys a release to this host, and restores the previous one if the new one is not healthy',
  args: {
    ...RELEASE_FLAGS,
    rollback: flag('go back to the backup executable'),
    feed: option('feed', 'release feed for a first install'),
    service: option('name', 'name of the service (default: the one installed here)'),
    ...IRREVERSIBLE,
    ...WAITING_FLAGS,
    'health-url': { ...WAITING_FLAGS['health-url'], advanced: false },
    ...SCRIPT_FLAGS,
  },
} as const satisfies CommandLine

async function main(argv: readonly string[]): Promise<number> {
  const about = { command: 'deploy', service: BUILD.service }
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    const help = await helpFor(argv, COMMAND)
    if (help !== null) return printHelp(help)
    const values = parseFlags(argv, COMMAND)
    const service = values.service ?? (await theServiceHere(BUILD.service))
    about.service = service
    report = makeReport({ json: values.json, quiet: values.quiet, verbose: false, about })
    const release = releaseIn(values)
    if ((release === null) === !values.rollback)
      throw usage('expected a release (such as v1.1.0 or latest) or --rollback')
    const healthTimeoutMs = durationOf('--health-timeout', values['health-timeout'])
    const lockTimeoutMs = durationOf('--lock-timeout', values['lock-timeout'])
    const ended = await deployHere(
      {
        service,
        release: parseRelease(release),
        rollback: values.rollback,
        allowIrreversible: values[IRREVERSIBLE_FLAG],
        feed: values.feed ?? null,
        healthUrl: values['health-url'] ?? null,
        healthTimeoutMs,
        lockTimeoutMs,
        installFlags: [],
        dryRun: values['dry-run'],
      },
      report,
    )
    return report.result({ ...ended, ...about }, linesOf(service, ended))
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying')
    return report.failed(error, endOf(error))
  }
}

function linesOf(service: string, { outcome, from, to, operation, notes }: DeployEnd): string[] {
  if (outcome === 'planned') return []
  return [
    `${service}: ${outcome ?? ''}${to === null ? '' : ` ${to}`}${from === null || from === to ? '' : `, replacing ${from}`}`,
    ...(notes ?? rehearsalLines(operation?.trial ?? null)),
  ]
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
