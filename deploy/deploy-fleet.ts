// Moves many hosts to a release, in waves, with Ansible. This file reads the arguments and reports how it ended. The plays are in
// fleet/playbooks/waves.yml, the decisions in fleet/plugins/module_utils/plan.py.

import { randomUUID } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { asBatonError, BatonError, EXIT, MEANINGS } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { type FleetEnd, expectNewEnough, findAnsible, runPlaybook } from './fleet/ansible.ts'
import { drawer, lookLines } from './fleet/draw.ts'
import type { FleetEvent } from './fleet/events.ts'
import { resumedFrom, type Variables, variablesOf } from './fleet/settings.ts'
import { asksForHelp, type CommandLine, OUTPUT_FLAGS, parseFlags, usageOf } from './lib/flags.ts'
import { printable, printError, printJson, printLine } from './lib/printer.ts'

const COMMAND = {
  name: 'deploy-fleet.sh',
  description: 'moves the hosts of an inventory to a release, in waves, and takes them back if it fails',
  args: {
    release: { type: 'string', valueHint: 'tag|latest', description: 'release to move to' },
    rollback: { type: 'boolean', default: false, description: 'back to --release, or to each backup executable' },
    inventory: { type: 'string', alias: 'i', valueHint: 'file', description: "Ansible's inventory of the hosts" },
    limit: { type: 'string', valueHint: 'pattern', description: 'only these hosts of it' },
    waves: { type: 'string', valueHint: '1,10%,…', description: 'hosts of each wave (1,10%,50%,100%)' },
    soak: { type: 'string', valueHint: '5m', description: 'how long a wave must go on running it (5m)' },
    gate: { type: 'string', valueHint: 'command', description: 'run after each wave; must exit with 0' },
    'on-failure': { type: 'string', valueHint: 'fleet|wave|none', description: 'which hosts go back (wave)' },
    'tolerate-bad': { type: 'string', valueHint: 'hosts', description: 'how many may fail before all stops (0)' },
    'tolerate-gone': { type: 'string', valueHint: 'hosts', description: 'how many may be out of reach (0)' },
    'allow-downgrade': { type: 'boolean', default: false, description: 'also on hosts that run a newer release' },
    'lock-timeout': { type: 'string', valueHint: '10m', description: 'wait for an operation in flight (10m)' },
    'health-timeout': { type: 'string', valueHint: '60s', description: 'wait for a new version to answer (60s)' },
    'before-host': { type: 'string', valueHint: 'command', description: "run here before each host's turn" },
    'after-host': { type: 'string', valueHint: 'command', description: "run here after each host's turn" },
    service: { type: 'string', valueHint: 'name', default: BUILD.service, description: 'which service' },
    check: { type: 'boolean', alias: 'n', default: false, description: 'look and plan, or say what runs where' },
    hold: { type: 'string', valueHint: 'day', description: 'move nothing; no host updates by itself before that day' },
    'release-hold': { type: 'boolean', default: false, description: 'move nothing; end that hold' },
    resume: { type: 'boolean', default: false, description: 'go on with the run of the report' },
    report: { type: 'string', valueHint: 'file', description: 'file of the report (fleet-SERVICE.jsonl)' },
    ...OUTPUT_FLAGS,
  },
} as const satisfies CommandLine

const LOG_TAIL_LINES = 12
/** exit codes of plugins/callback/report.py */
const [FULL, UNWRITABLE] = [97, 98]

async function main(argv: readonly string[]): Promise<number> {
  const end = argv.includes('--') ? argv.indexOf('--') : argv.length
  const own = argv.slice(0, end)
  const json = own.includes('--json')
  try {
    if (asksForHelp(own)) {
      process.stdout.write(`${await usageOf(COMMAND)}what follows -- is for ansible-playbook\n`)
      return EXIT.done
    }
    const values = parseFlags(own, COMMAND)
    const report = resolve(values.report ?? `fleet-${values.service}.jsonl`)
    const variables = values.resume ? await resumedFrom(report, values) : variablesOf(values, argv.slice(end + 1))
    await expectInventory(variables)
    return await move(variables, { report, json, quiet: values.quiet })
  } catch (cause) {
    const { code, message, hint } = asBatonError(cause, 'unexpected', 'moving a fleet')
    const { exit } = MEANINGS[code]
    if (json) printJson({ event: 'error', code, message, hint, exit })
    printError({ message, hint })
    return exit
  }
}

async function move(
  variables: Variables,
  { report: named, json, quiet }: { report: string; json: boolean; quiet: boolean },
): Promise<number> {
  const program = await findAnsible()
  // a check must not write to the report that a later `--resume` goes on from
  const base = `${named.replace(/\.jsonl$/, '')}${variables['fleet_check'] === true ? '.check' : ''}`
  const report = variables['fleet_check'] === true ? `${base}.jsonl` : named
  const log = `${base}.log`
  const drawn = json ? null : drawer({ quiet })
  const said = (event: FleetEvent) => {
    if (json) printJson(event)
    else drawn?.draw(event)
  }
  const lockSeconds = 'fleet_resume_from' in variables ? Number(variables['fleet_lock_timeout'] ?? 600) : 5
  const ended = await runPlaybook(
    program,
    { ...variables, fleet_run_id: randomUUID() },
    { report, log, lockSeconds },
    said,
  ).finally(() => drawn?.end(false))
  if (ended.result === null) {
    if (!ended.interrupted) await expectNewEnough(program)
    throw await explained(ended, { report, log })
  }
  const { why, exit } = ended.result
  if (why !== null) printError({ message: why, hint: null })
  // the last lines on the screen
  for (const line of lookLines(ended.result)) printLine(line, process.stderr)
  return exit
}

/** The error for a playbook that ended without its result. */
async function explained(
  { interrupted, exitCode }: FleetEnd,
  { report, log }: { report: string; log: string },
): Promise<BatonError> {
  if (exitCode === EXIT.locked) {
    return new BatonError('locked', `another run is writing to ${report}`, {
      hint: 'wait for it, or name another --report',
    })
  }
  if (interrupted) {
    return new BatonError('interrupted', 'interrupted: hosts that were at it finish by themselves', {
      hint: `\`--resume --report ${report}\` goes on with it`,
    })
  }
  if (exitCode === FULL || exitCode === UNWRITABLE) {
    const why = exitCode === FULL ? 'no room is left there' : 'it cannot be opened, or no longer be written to'
    return new BatonError('refused', `the report ${report} cannot be written: ${why}`, {
      hint: `hosts that were at it finish by themselves; then \`--resume --report ${report}\` goes on with it`,
    })
  }
  const text = await readFile(log, 'utf8').catch(() => '')
  // look at the play `Look` only: a later play has no hosts if it has nothing to do
  if (/^PLAY \[Look\] \**\s+skipping: no hosts matched|provided hosts list is empty/m.test(text))
    return new BatonError('invalid_request', 'the inventory has no such host', {
      hint: `all that Ansible said is in ${log}`,
    })
  const said = printable(text).trim().split('\n').slice(-LOG_TAIL_LINES).join('\n')
  return new BatonError('unexpected', `Ansible ended with ${exitCode ?? 'a signal'}:\n${said}`, {
    hint: `all that it said is in ${log}`,
  })
}

async function expectInventory({ fleet_inventory: inventory }: Variables): Promise<void> {
  if (inventory.includes(',')) return
  await stat(inventory).catch((cause: unknown) => {
    throw new BatonError('invalid_request', `expected an inventory at ${inventory}, found none`, { cause })
  })
}

process.exitCode = await main(process.argv.slice(2))
