// A deployment to this very host, without asking: install or upgrade, look at its health, and go back where it is not good.
// Must never break: 0 only where the release asked for answers; 8 where the previous one is back; 9 where nothing is.

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Receipt } from '../../agent/install.ts'
import { BatonError, type ErrorCode, EXIT, type Operation, reasonOf, type Status } from '../../agent/words.ts'
import { connect, readAccess, waitForInstance } from './service/client.ts'
import { candidatesFor, findReceipt, personOf } from './plan/facts.ts'
import { statusOf } from '../lib/http.ts'
import { operate } from './service/operate.ts'
import { describe, type Step } from './plan/plan.ts'
import type { Report } from './report.ts'
import { supervisorFor } from './supervisor/supervisor.ts'

export interface Deployment {
  service: string
  /** a tag, null for the latest; ignored by a rollback */
  release: string | null
  rollback: boolean
  /** for a first install; null: what install.sh takes by itself */
  feed: string | null
  healthUrl: string | null
  healthTimeoutMs: number
  lockTimeoutMs: number
  /** handed to install.sh for a first install */
  installFlags: readonly string[]
  dryRun: boolean
  json: boolean
  who: string
}

export interface Deployed {
  outcome: Operation['outcome'] | 'installed' | 'planned'
  from: string | null
  to: string | null
}

const INSTALLER = join(import.meta.dirname, '../../install.sh')
const HEALTH_POLL_MS = 250
/** the plainest code of each exit code of install.sh */
const CODE_OF_EXIT: ReadonlyMap<number, ErrorCode> = new Map([
  [EXIT.usage, 'invalid_request'],
  [EXIT.unsupportedHost, 'unsupported_host'],
  [EXIT.network, 'check_failed'],
  [EXIT.verification, 'verify_failed'],
  [EXIT.locked, 'locked'],
  [EXIT.refused, 'refused'],
  [EXIT.reverted, 'probation_failed'],
  [EXIT.down, 'service_down'],
])

export async function findInstalled(service: string): Promise<Receipt | null> {
  return await findReceipt(service, candidatesFor(service, null, null, personOf(process.env), null))
}

/** Pure. An install is carried out by install.sh, which prints its own plan. */
function planDeployment(
  { service, release, rollback, healthUrl }: Deployment,
  { installed, starts }: { installed: boolean; starts: boolean },
): Step[] {
  if (!installed)
    return [
      { do: 'run', command: ['install.sh', 'install', '-y', ...(release === null ? [] : ['--release', release])] },
    ]
  const step: Step = rollback ? { do: 'rollback', service } : { do: 'update', service, to: release }
  const gate: Step[] = healthUrl === null ? [] : [{ do: 'run', command: ['GET', healthUrl] }]
  const start: Step[] = starts ? [{ do: 'start', service }] : []
  return [step, ...start, { do: 'wait-healthy', service, tag: release ?? 'of the new release' }, ...gate]
}

export async function deployHere(deployment: Deployment, report: Report): Promise<Deployed> {
  const receipt = await findInstalled(deployment.service)
  // a deployment ends with a service that runs, also where its release is in place already and it was stopped
  const starts =
    receipt !== null && receipt.options['start'] !== false && !(await supervisorFor(receipt).state()).active
  const steps = planDeployment(deployment, { installed: receipt !== null, starts })
  if (receipt === null) {
    if (deployment.rollback) throw new BatonError('refused', `expected an install of ${deployment.service}, found none`)
    report.note(steps.map(describe).join('\n'))
    await runInstaller(deployment)
    const after = await findInstalled(deployment.service)
    if (deployment.dryRun) return { outcome: 'planned', from: null, to: deployment.release }
    if (after === null) throw new BatonError('unexpected', 'install.sh ended well and left no install')
    await gate(after, after.tag, null, deployment)
    return { outcome: 'installed', from: null, to: after.tag }
  }
  report.plan(steps)
  if (deployment.dryRun) return { outcome: 'planned', from: receipt.tag, to: deployment.release }
  return await moveOn(receipt, deployment, starts, report)
}

async function moveOn(receipt: Receipt, deployment: Deployment, starts: boolean, report: Report): Promise<Deployed> {
  const { lockTimeoutMs, healthTimeoutMs, who, release, rollback } = deployment
  const client = connect(await readAccess(receipt.configPath))
  const before = await client.status()
  const { operation } = await operate(
    receipt,
    { kind: rollback ? 'rollback' : 'update', tag: release, who, lockTimeoutMs, healthTimeoutMs },
    report,
  )
  const { outcome, from, to } = operation
  try {
    if (starts) await supervisorFor(receipt).start() // where it was up to date; an update has started it
    const target = to ?? from
    await gate(receipt, target, outcome === 'up_to_date' ? null : before, deployment)
  } catch (cause) {
    if (outcome === 'up_to_date') throw new BatonError('service_down', reasonOf(cause), { cause })
    await goBack(receipt, deployment, from, reasonOf(cause), report)
  }
  return { outcome, from, to }
}

/** The gate that the service itself could not know of: an address that the operator names, and another process than before. */
async function gate(
  receipt: Receipt,
  tag: string,
  before: Status | null,
  { healthUrl, healthTimeoutMs }: Deployment,
): Promise<void> {
  const client = connect(await readAccess(receipt.configPath))
  if (receipt.options['start'] === false) return
  await waitForInstance(client, { tag, notInstance: before?.instance.id ?? null, timeoutMs: healthTimeoutMs })
  if (healthUrl === null) return
  const deadline = Date.now() + healthTimeoutMs
  for (;;) {
    const said = await statusOf(healthUrl, 5000).then(String, reasonOf)
    if (/^2\d\d$/.test(said)) return
    if (Date.now() > deadline) throw new BatonError('probation_failed', `expected 2xx from ${healthUrl}, got ${said}`)
    await new Promise((resolve) => setTimeout(resolve, HEALTH_POLL_MS))
  }
}

async function goBack(
  receipt: Receipt,
  deployment: Deployment,
  from: string,
  reason: string,
  report: Report,
): Promise<never> {
  const { lockTimeoutMs, healthTimeoutMs, who } = deployment
  report.note(`going back to ${from}: ${reason}`)
  try {
    await operate(receipt, { kind: 'rollback', tag: null, who, lockTimeoutMs, healthTimeoutMs }, report)
  } catch (cause) {
    throw new BatonError('service_down', `${reason}; going back to ${from} failed too: ${reasonOf(cause)}`, { cause })
  }
  throw new BatonError('probation_failed', `${reason}; ${from} is running again`)
}

async function runInstaller({ release, feed, dryRun, json, installFlags }: Deployment): Promise<void> {
  const flags = ['install', '-y', ...(release === null ? ['--release', 'latest'] : ['--release', release])]
  if (feed !== null) flags.push('--feed', feed)
  if (dryRun) flags.push('--dry-run')
  if (json) flags.push('--json')
  const child = spawn('/bin/sh', [INSTALLER, ...flags, ...installFlags], { stdio: ['ignore', 'inherit', 'inherit'] })
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (exit) => resolve(exit ?? EXIT.unexpected))
  })
  if (code === 0) return
  // it has said what is wrong; only its exit code goes on
  throw new BatonError(CODE_OF_EXIT.get(code) ?? 'unexpected', `install.sh ended with ${code}`)
}
