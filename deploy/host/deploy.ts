// Deploys to this host without asking anybody. It runs install.sh for a first install and the install's own command afterwards,
// both with `--json`, and passes on what they print.
// Must never break: it exits with 0 only if the requested release answers, with 8 if the previous one is back, with 9 if none runs.

import { spawn } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { COMMAND, readReceiptBeside, readSystemReceipt, type Receipt, SYSTEM_DIRECTORY } from '../../agent/install.ts'
import {
  durationText,
  BatonError,
  type ErrorCode,
  EXIT,
  MEANINGS,
  type OperationReport,
  serviceName,
} from '../../agent/words.ts'
import { IRREVERSIBLE_FLAG } from '../lib/flags.ts'
import { defaultsFrom, personOf } from './commands/context.ts'
import { worstOf } from './doctor/finding.ts'
import { checkSupervisor } from './doctor/host.ts'
import { isRoot } from './place/identity.ts'
import { layoutOf, layoutOfReceipt } from './place/layout.ts'
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
}

type Line = Record<string, unknown>

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

/** The service that is installed for the whole host, if there is exactly one; else `otherwise`. */
export async function theServiceHere(otherwise: string): Promise<string> {
  const names = await readdir(SYSTEM_DIRECTORY).catch(() => [])
  const receipts = await Promise.all(names.map((name) => readSystemReceipt(name).catch(() => null)))
  const found = receipts.filter((receipt) => receipt !== null)
  return found.length === 1 ? (found[0]?.service ?? otherwise) : otherwise
}

/** Throws unsupported_host if a first install would find no systemd; the hint names the flag that does without. */
export async function assertSupervised(withUnit: boolean): Promise<void> {
  const problem = worstOf(await checkSupervisor({ layout: { scope: isRoot() ? 'system' : 'user' }, withUnit }))
  if (problem !== null) throw problem
}

export async function deployHere(deployment: Deployment, report: HostReport): Promise<DeployEnd> {
  const { service, rollback, release, dryRun } = deployment
  const receipt = await findInstalled(service)
  if (receipt === null) {
    if (rollback) throw new BatonError('refused', `expected an install of ${service}, found none`)
    return await firstInstall(deployment, report)
  }
  const layout = layoutOfReceipt(receipt, personOf(process.env))
  const command = [layout.program, `--${receipt.scope}`]
  const word = rollback ? ['rollback'] : ['upgrade', release ?? 'latest']
  const ended = await runCommand(command, [...word, ...flagsOf(deployment)], report)
  if (dryRun || ended.outcome !== 'up_to_date' || receipt.options['start'] === false) return ended
  // a deployment ends with a running service, even if the release was in place already and the service was stopped
  await runCommand(command, ['start', '--health-timeout', durationText(deployment.healthTimeoutMs)], report)
  return ended
}

async function firstInstall(deployment: Deployment, report: HostReport): Promise<DeployEnd> {
  const { service, release, feed, dryRun, installFlags, healthUrl, healthTimeoutMs } = deployment
  if (serviceName(service) !== service)
    throw new BatonError('invalid_request', `expected the name of a service, got ${JSON.stringify(service)}`)
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
      throw new BatonError('service_down', cause instanceof Error ? cause.message : String(cause), { cause })
    })
  }
  return ended
}

function flagsOf({ healthUrl, healthTimeoutMs, lockTimeoutMs, dryRun, allowIrreversible }: Deployment): string[] {
  return [
    ...(healthUrl === null ? [] : ['--health-url', healthUrl]),
    '--health-timeout',
    durationText(healthTimeoutMs),
    '--lock-timeout',
    durationText(lockTimeoutMs),
    ...(allowIrreversible ? [`--${IRREVERSIBLE_FLAG}`] : []),
    ...(dryRun ? ['--dry-run'] : []),
  ]
}

async function runCommand(
  [program = '', scope = '']: string[],
  args: string[],
  report: HostReport,
): Promise<DeployEnd> {
  const [word = '', ...rest] = args
  return await runJson([program, word, scope, ...rest, '--json'], report)
}

/** Passes the command's events on, and resolves to its result. Throws its error. */
async function runJson(
  [file = '', ...args]: string[],
  report: HostReport,
  input: string | null = null,
): Promise<DeployEnd> {
  // run the kit's commands, even if the release keeps them behind the word `baton`
  const env = { ...process.env, [COMMAND]: '1' }
  const child = spawn(file, args, { env, stdio: ['pipe', 'pipe', 'pipe'] })
  child.stdin.on('error', () => {}) // the child may end before it has read its input
  child.stdin.end(input ?? '')
  let [said, last]: [string, Line | null] = ['', null]
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = `${said}${text}`.slice(-2000)))
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => resolve(code ?? EXIT.unexpected))
  })
  for await (const line of createInterface({ input: child.stdout })) {
    const event = lineFrom(line)
    if (event['event'] === 'result' || event['event'] === 'error') last = event
    else passOn(event, report)
  }
  const code = await ended
  if (last?.['event'] === 'result' && code === EXIT.done) return last as unknown as DeployEnd
  throw errorFrom(last, code, said.trim())
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

function errorFrom(last: Line | null, code: number, said: string): BatonError {
  const known = last?.['code']
  const plainest = Object.entries(MEANINGS).find(([, { exit }]) => exit === code)?.[0] ?? 'unexpected'
  const name = (typeof known === 'string' && Object.hasOwn(MEANINGS, known) ? known : plainest) as ErrorCode
  const message = typeof last?.['message'] === 'string' ? last['message'] : said || `it ended with ${code}`
  const { hint, outcome = null, from = null, to = null, operationId = null } = last ?? {}
  return new BatonError(name, message.replace(/^error: /, ''), {
    ...(typeof hint === 'string' ? { hint } : {}),
    members: { outcome, from, to, operationId } as Record<string, string | null>,
  })
}

function lineFrom(line: string): Line {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? (value as Line) : {}
  } catch {
    return {}
  }
}
