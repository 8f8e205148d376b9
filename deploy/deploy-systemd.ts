// Deploys a release to this host without asking: plan, install or upgrade, health gate, and back to the previous release
// where the new one is not good. This file reads the arguments; the work is in lib/host.ts.

import { asBatonError, EXIT, MEANINGS } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { parseRelease } from './host/place/choices.ts'
import { type Deployment, deployHere } from './host/deploy.ts'
import { makeReport } from './host/report.ts'
import {
  asksForHelp,
  type Command,
  parseFlags,
  SCRIPT_FLAGS,
  secondsOf,
  usage,
  usageOf,
  WAITING_FLAGS,
} from './lib/flags.ts'

const COMMAND = {
  name: 'deploy-systemd.sh',
  description: 'deploys a release to this host, and goes back by itself where it is not good',
  args: {
    release: { type: 'string', valueHint: 'tag|latest', description: 'release to deploy' },
    rollback: { type: 'boolean', default: false, description: 'back to the backup executable' },
    feed: { type: 'string', valueHint: 'feed', description: 'for a first install: where releases are found' },
    service: { type: 'string', valueHint: 'name', default: BUILD.service, description: 'which service' },
    ...WAITING_FLAGS,
    'lock-timeout': { ...WAITING_FLAGS['lock-timeout'], default: '60' },
    ...SCRIPT_FLAGS,
  },
} as const satisfies Command

async function main(argv: readonly string[]): Promise<number> {
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false })
  try {
    if (asksForHelp(argv)) {
      process.stdout.write(await usageOf(COMMAND))
      return EXIT.done
    }
    const values = parseFlags(argv, COMMAND)
    report = makeReport({ json: values.json, quiet: values.quiet, verbose: false })
    if ((values.release === undefined) === !values.rollback) throw usage('expected either --release or --rollback')
    const deployment: Deployment = {
      service: values.service,
      release: parseRelease(values.release ?? null),
      rollback: values.rollback,
      feed: values.feed ?? null,
      healthUrl: values['health-url'] ?? null,
      healthTimeoutMs: secondsOf('--health-timeout', values['health-timeout']),
      lockTimeoutMs: secondsOf('--lock-timeout', values['lock-timeout']),
      installFlags: [],
      dryRun: values['dry-run'],
      json: values.json,
      who: 'deploy-systemd.sh',
    }
    const { outcome, from, to } = await deployHere(deployment, report)
    const line =
      outcome === 'planned'
        ? []
        : [
            `${deployment.service}: ${outcome ?? ''}${to === null ? '' : ` ${to}`}${from === null || from === to ? '' : `, it was ${from}`}`,
          ]
    report.result({ outcome, from, to, exit: EXIT.done }, line)
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying')
    report.failed(error)
    return MEANINGS[error.code].exit
  }
}

process.exitCode = await main(process.argv.slice(2))
