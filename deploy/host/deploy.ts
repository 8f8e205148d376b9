// Deploys to this host without asking anybody. It runs install.sh for a first install and the install's own command afterwards,
// both with `--json`, and passes on what they print.
// Must never break: it exits with 0 only if the requested release answers, with 8 if the previous one is back, with 9 if none runs.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { exists, readReceiptBeside, readSystemReceipt, type Receipt } from '../../agent/install.ts'
import { durationText, BatonError, EXIT, type OperationReport, reasonOf, serviceName } from '../../agent/words.ts'
import { defaultsFrom, personOf } from './commands/context.ts'
import { worstOf } from './doctor/finding.ts'
import { checkSupervisor } from './doctor/host.ts'
import { checked } from './place/choices.ts'
import { isRoot } from './place/identity.ts'
import { installsOf } from './place/installs.ts'
import { layoutOf, layoutOfReceipt } from './place/layout.ts'
import { refuseTaken } from './place/port.ts'
import { errorOf, flagsFor, type Line, runProgram } from './program.ts'
import type { HostReport } from './report.ts'
import { HOST_STAGES, type HostStage } from './service/outside.ts'
import { askUntilWell } from './service/health.ts'

export interface Deployment {
  service: string
  /** a tag, null for the latest; ignored by a rollback */
  release: string | null
  rollback: boolean
  /** a person allows a release with no way back */
  allowIrreversible: boolean
  /** for a first install; null: install.sh builds this clone */
  feed: string | null
  healthUrl: string | null
  healthTimeoutMs: number
  lockTimeoutMs: number
  /** passed to install.sh for a first install */
  installFlags: readonly string[]
  dryRun: boolean
}

/** The last line that a command prints with `--json`. */
export interface DeployEnd {
  outcome: string | null
  would?: string
  from: string | null
  to: string | null
  operationId: string | null
  operation?: OperationReport | null
  /** of a first install: a sentence each */
  notes?: string[]
}

const CLONE = join(import.meta.dirname, '../..')
const INSTALLER = join(CLONE, 'install.sh')

/** The receipt of the install to deploy to. Root gets root's; a user gets their own, else the host's. */
export async function findInstalled(service: string): Promise<Receipt | null> {
  const system = await readSystemReceipt(service)
  if (isRoot()) return system
  const person = personOf(process.env)
  const { executable } = layoutOf(service, { ...defaultsFrom(process.env), scope: 'user' }, person)
  return (await readReceiptBeside(executable)) ?? system
}

/** Whether one of these is installed; one that cannot be told counts as such. */
export async function isAnyInstalled(services: readonly string[]): Promise<boolean> {
  for (const service of services) if ((await findInstalled(service).catch(reasonOf)) !== null) return true
  return false
}

/** The service that is installed for the whole host, if there is exactly one; else `otherwise`. */
export async function theServiceHere(otherwise: string): Promise<string> {
  const found = await installsOf('system', personOf(process.env))
  const [only] = found
  return found.length === 1 && only !== undefined && 'receipt' in only ? only.service : otherwise
}

/** Throws unsupported_host if a first install would find no systemd; the hint names the flag that does without. */
export async function assertSupervised(withUnit: boolean): Promise<void> {
  const problem = worstOf(await checkSupervisor({ layout: { scope: isRoot() ? 'system' : 'user' }, withUnit }))
  if (problem !== null) throw problem
}

/** Before a first install is built. An operator's configuration says another address. Throws BatonError refused. */
export async function assertFree(service: string, typed: string | undefined): Promise<void> {
  const choices = { ...defaultsFrom(process.env), ...checked({ listen: typed }) }
  if (!(await exists(layoutOf(service, choices, personOf(process.env)).configPath))) await refuseTaken(choices.listen)
}

export async function deployHere(deployment: Deployment, report: HostReport): Promise<DeployEnd> {
  const { service, rollback, release, dryRun } = deployment
  const receipt = await findInstalled(service)
  if (receipt === null) {
    if (rollback) throw new BatonError('refused', `${service} is not installed on this host`)
    return await firstInstall(deployment, report)
  }
  const { program } = layoutOfReceipt(receipt, personOf(process.env))
  const act = (word: string, ...rest: string[]) =>
    runJson([program, word, `--${receipt.scope}`, ...rest, '--json'], report)
  const flags = flagsOf(deployment)
  const ended = rollback ? await act('rollback', ...flags) : await act('upgrade', release ?? 'latest', ...flags)
  if (dryRun || ended.outcome !== 'up_to_date' || receipt.options['start'] === false) return ended
  // a deployment ends with a running service, even if the release was in place already and the service was stopped
  await act('start', '--health-timeout', durationText(deployment.healthTimeoutMs))
  return ended
}

async function firstInstall(deployment: Deployment, report: HostReport): Promise<DeployEnd> {
  const { service, release, feed, dryRun, installFlags, healthUrl, healthTimeoutMs } = deployment
  if (serviceName(service) !== service)
    throw new BatonError('invalid_request', `expected a service name, got ${JSON.stringify(service)}`)
  // without a feed, install.sh builds the release from this clone
  const from = feed === null ? ['--clone', CLONE] : ['--feed', feed]
  const flags = ['install', release ?? 'latest', '-y', ...from]
  if (dryRun) flags.push('--dry-run')
  // with a feed, the script must know the name of the service
  const named = (await readFile(INSTALLER, 'utf8')).replace(/^BATON_SERVICE=$/m, `BATON_SERVICE=${service}`)
  const [script, text] = feed === null ? [[INSTALLER], null] : [['-s', '--'], named]
  const ended = await runJson(['/bin/sh', ...script, ...flags, ...installFlags, '--json'], report, text)
  if (!dryRun && healthUrl !== null) {
    await askUntilWell(healthUrl, healthTimeoutMs).catch((cause: unknown) => {
      throw new BatonError('service_down', reasonOf(cause), { cause })
    })
  }
  return ended
}

function flagsOf(deployment: Deployment): string[] {
  const { healthUrl } = deployment
  return [...(healthUrl === null ? [] : ['--health-url', healthUrl]), ...flagsFor(deployment)]
}

/** Passes the command's events on, and resolves to its result. Throws its error. */
async function runJson(
  command: readonly string[],
  report: HostReport,
  input: string | null = null,
): Promise<DeployEnd> {
  const ended = await runProgram(command, (event) => passOn(event, report), { input })
  if (ended.last?.['event'] === 'result' && ended.exit === EXIT.done) return ended.last as unknown as DeployEnd
  throw errorOf(ended)
}

function passOn(event: Line, report: HostReport): void {
  const { event: kind, stage, bytes, totalBytes, message, steps } = event
  if (kind === 'plan' && Array.isArray(steps)) report.told(steps as { text: string }[])
  if (kind === 'stage' && isStage(stage)) report.stage(stage)
  if (kind === 'progress') report.bytes(Number(bytes), Number(totalBytes))
  if (kind === 'note') report.note(String(message))
}

function isStage(stage: unknown): stage is HostStage {
  return HOST_STAGES.some((one) => one === stage)
}
