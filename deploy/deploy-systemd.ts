// Deploys a release to this host without asking: plan, install or upgrade, health gate, and back to the previous release
// where the new one is not good. This file reads the arguments; the work is in lib/host.ts.

import { asBatonError, EXIT, MEANINGS } from '../agent/errors.ts'
import { BUILD } from '../agent/service/build.ts'
import { parseRelease } from './host/choices.ts'
import { type Deployment, deployHere } from './host/deploy.ts'
import { makeReport } from './host/report.ts'
import { HOST_FLAGS, parseFlags, secondsOf, usage } from './lib/flags.ts'

const USAGE = `deploy-systemd.sh --release TAG|latest
deploy-systemd.sh --rollback

  --release TAG|latest      release to deploy
  --rollback                back to the backup executable
  --feed FEED               for a first install: where releases are found
  --service NAME            which service (${BUILD.service})
  --health-url URL          must answer 2xx too, before the deployment counts as good
  --health-timeout SECONDS  how long that and the new process may take (60)
  --lock-timeout SECONDS    how long to wait for an operation in flight (60)
  -n, --dry-run             print the plan, change nothing
  --json                    one JSON object a line
  -q, --quiet               errors only
  -h, --help

exit: 0 done or nothing to do, 2 usage, 3 unsupported host, 4 network or release, 5 verification failed, 6 locked,
      7 refused, 8 the new release failed and the previous one is running, 9 the service is down
`

async function main(argv: readonly string[]): Promise<number> {
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false })
  try {
    const { values } = parse(argv)
    if (values.help) {
      process.stdout.write(USAGE)
      return EXIT.done
    }
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

function parse(argv: readonly string[]) {
  return parseFlags({
    args: [...argv],
    options: {
      ...HOST_FLAGS,
      release: { type: 'string' },
      rollback: { type: 'boolean', default: false },
      feed: { type: 'string' },
      service: { type: 'string', default: BUILD.service },
    },
  })
}

process.exitCode = await main(process.argv.slice(2))
