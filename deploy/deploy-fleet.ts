// Moves many hosts to a release, in waves, with Ansible. This file reads the arguments and reports how it ended. The plays are in
// fleet/playbooks/waves.yml, the decisions in fleet/plugins/module_utils/judge.py.

import { stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { asBatonError, BatonError, durationText, MEANINGS } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { expectNewEnough, findAnsible, runPlaybook } from './fleet/ansible.ts'
import { ansibleFlagsOf, pauseOf, variablesOf } from './fleet/settings.ts'
import { IS_PACKAGED, PROJECT } from './make/place.ts'
import {
  ADVANCED,
  type CommandLine,
  duration,
  flag,
  option,
  OUTPUT_FLAGS,
  parseFlags,
  RELEASE_FLAGS,
  type Values,
  WAITING_FLAGS,
} from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'
import { printError, printJson, printLine } from './lib/printer.ts'

/** how long this waits for another run that writes to the same report, as for an operation on a host */
const LOCK_SECONDS = 600

/** Without its default, which the role has: it would beat a variable of the inventory. `normal`: the role's. */
const waiting = (flag: 'lock-timeout' | 'health-timeout', normal: string) => {
  const { default: _, description, ...rest } = WAITING_FLAGS[flag]
  return { ...rest, description: `${description} (${normal})` }
}

export const COMMAND = {
  name: IS_PACKAGED ? 'baton deploy fleet' : 'deploy-fleet.sh',
  description: 'rolls out a release in waves to the hosts in an inventory, and rolls it back if it fails',
  args: {
    ...RELEASE_FLAGS,
    rollback: flag("go back to TAG or, without TAG, to each host's backup executable"),
    inventory: option('file', 'Ansible inventory of the hosts', { alias: 'i' }),
    limit: option('pattern', 'only the inventory hosts that match this pattern'),
    waves: option('1,10%,…', 'size of each wave (1,10%,50%,100%)'),
    soak: duration('how long the hosts in a wave must keep running the release (5m)'),
    gate: option('command', 'command to run after each wave; must exit with 0'),
    'on-failure': option('fleet|wave|none', 'which hosts to roll back if a wave fails (default: wave)', ADVANCED),
    'max-fail-percentage': option('percent', 'percentage of a wave that may fail (0)', ADVANCED),
    throttle: option('number', 'how many hosts in a wave to update at once (all)', ADVANCED),
    'allow-downgrade': flag('also downgrade hosts that run a newer release', ADVANCED),
    'lock-timeout': waiting('lock-timeout', durationText(LOCK_SECONDS * 1000)),
    'health-timeout': waiting('health-timeout', '60s'),
    'before-host': option('command', "command to run locally before each host's turn", ADVANCED),
    'after-host': option('command', "command to run locally after each host's turn", ADVANCED),
    service: option('name', 'name of the service', { advanced: true, default: BUILD.service }),
    check: flag('change nothing; show the plan for TAG or, without TAG, what runs where', { alias: 'n' }),
    'pause-until': option('day', 'do not update now; suspend automatic updates until the given day', ADVANCED),
    unpause: flag('resume automatic updates', ADVANCED),
    report: option('file', 'where to write the report (fleet-SERVICE.jsonl)', ADVANCED),
    ...OUTPUT_FLAGS,
  },
} as const satisfies CommandLine

/** Ansible's own: it could not make sense of what it was given */
const ANSIBLE_USAGE = [1, 4, 5]

async function main(argv: readonly string[]): Promise<number> {
  const end = argv.includes('--') ? argv.indexOf('--') : argv.length
  const own = argv.slice(0, end)
  const json = own.includes('--json')
  try {
    const help = await helpFor(own, COMMAND)
    if (help !== null) return printHelp(`${help}arguments after -- are passed to ansible-playbook\n`)
    return await move(parseFlags(own, COMMAND), argv.slice(end + 1))
  } catch (cause) {
    const { code, message, hint } = asBatonError(cause, 'unexpected', 'moving a fleet')
    const { exit } = MEANINGS[code]
    if (json) printJson({ event: 'error', code, message, hint, exit })
    printError({ message, hint })
    return exit
  }
}

async function move(values: Values<typeof COMMAND.args>, more: readonly string[]): Promise<number> {
  const isCheck = values.check || pauseOf(values) !== '' || more.some((flag) => flag === '--check' || flag === '-C')
  const variables = variablesOf(values, isCheck)
  const flags = ansibleFlagsOf(values, isCheck, more)
  await expectInventory(flags[1] ?? '')
  const program = await findAnsible()
  const report = resolve(values.report ?? `fleet-${values.service}.jsonl`)
  const show = values.json ? 'json' : values.quiet ? 'nothing' : 'lines'
  const lockSeconds = Number(variables.fleet_lock_timeout ?? LOCK_SECONDS)
  const { end, exitCode, interrupted } = await runPlaybook(program, variables, flags, {
    collection: IS_PACKAGED ? join(PROJECT, 'lib/fleet') : join(PROJECT, 'deploy/fleet'),
    report,
    show,
    lockSeconds,
  })
  if (end !== null) {
    if (end.why !== null) printError({ message: end.why, hint: end.hint })
    // the last lines on the screen
    if (end.look.length > 0)
      printLine(end.look.length === 1 ? 'check this host:' : `check these ${end.look.length} hosts:`, process.stderr)
    for (const line of end.look) printLine(line, process.stderr)
    return end.exit
  }
  if (interrupted)
    throw new BatonError('interrupted', 'interrupted: hosts already updating will finish on their own', {
      hint: 'run the same command again: hosts that already have the release are skipped',
    })
  await expectNewEnough(program)
  const code = exitCode !== null && ANSIBLE_USAGE.includes(exitCode) ? 'invalid_request' : 'unexpected'
  throw new BatonError(code, `Ansible stopped early (${exitCode === null ? 'by a signal' : `exit code ${exitCode}`})`, {
    hint: "see Ansible's output above",
  })
}

async function expectInventory(inventory: string): Promise<void> {
  if (inventory.includes(',')) return
  await stat(inventory).catch((cause: unknown) => {
    throw new BatonError('invalid_request', `there is no inventory at ${inventory}`, { cause })
  })
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
