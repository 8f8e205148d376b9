// `start`, `stop` and `restart`; and the commands that the supervisor runs as the service's user: `start --supervise` and `rescue`.

import { ownCommand, type Receipt, receiptFor, rescue, USUAL_START_MS } from '../../../agent/install.ts'
import { BatonError, EXIT } from '../../../agent/words.ts'
import { endCommands, type OpenSide, supervisorOf } from '../boundary/open.ts'
import { idOf, isRoot } from '../place/identity.ts'
import type { Step } from '../plan/step.ts'
import { endLingeringOf } from '../plan/user.ts'
import { mayEndToo } from '../supervisor/crashes.ts'
import { supervise } from '../supervisor/supervise.ts'
import { readyMsFor } from '../service/configuration.ts'
import { type Context, locate, type Located, sideOf } from './context.ts'
import { carryOutSteps, foretold, NOTHING } from './deeds.ts'
import { ownFile } from '../place/own.ts'

export async function start(context: Context): Promise<number> {
  const { service, report } = context
  const located = await locate(context)
  await using open = await sideOf(context, located, true)
  const state = await supervisorOf(located.receipt, open.side).state()
  // a process that lives between two crashes is no service that runs: wait for it
  if (state.active && !mayEndToo(state))
    return report.result({ ...NOTHING, outcome: 'running' }, [`${service} is running`])
  return await begin('start', context, located, open)
}

/** Starts a service that is stopped. */
export async function restart(context: Context): Promise<number> {
  const located = await locate(context)
  await using open = await sideOf(context, located, true)
  return await begin('restart', context, located, open)
}

async function begin(
  verb: 'start' | 'restart',
  context: Context,
  { receipt }: Located,
  open: OpenSide,
): Promise<number> {
  const { service, report, flags } = context
  const { executable, stateDirectory } = receipt
  const tag = (await open.side.survey({ service, executable, stateDirectory })).installed
  if (tag === null) {
    const hint = `\`${ownCommand('rollback')}\` restores the backup executable, and \`${ownCommand('rollback TAG')}\` restores a specific release`
    throw new BatonError('service_down', `${executable} cannot be run`, { hint })
  }
  const steps: Step[] = [
    { do: verb, service },
    { do: 'wait-healthy', service, tag },
  ]
  if (verb === 'restart') await open.side.assertAtRest({ receipt, timeoutMs: flags.lockTimeoutMs })
  if (flags.dryRun) return foretold(context, service, steps, NOTHING)
  await open.side.assertConfiguration(receipt) // a restart would end what serves, and start nothing
  await carryOutSteps(context, steps, {
    who: ownCommand(verb),
    open: async () => open,
    receipt: async () => receipt,
  })
  return report.result({ ...NOTHING, outcome: 'running', to: tag, tag }, [`${service} ${tag} is running`])
}

export async function stop(context: Context): Promise<number> {
  const { service, report, flags } = context
  const located = await locate(context)
  const steps: Step[] = [{ do: 'stop', service }]
  if (flags.dryRun) return foretold(context, service, steps, NOTHING)
  {
    await using open = await sideOf(context, located, true)
    await carryOutSteps(context, steps, {
      who: ownCommand('stop'),
      open: async () => open,
      receipt: async () => located.receipt,
    })
  }
  await endCommands(located.receipt)
  await endLingering(located.receipt)
  return report.result({ ...NOTHING, outcome: 'stopped' }, [`${service} is stopped`])
}

/** Ends the systemd manager of a user that the install made. Any other user may be a person, who wants a manager. */
export async function endLingering({ scope, user, options }: Receipt): Promise<void> {
  if (isRoot() && scope === 'system' && options['created-user'] === true) await endLingeringOf(user)
}

/** Without systemd: keeps running as the service's supervisor. */
export async function superviseHere({ service }: Context): Promise<number> {
  return await supervise(await ownReceipt(service))
}

/** For `ExecStopPost=`, `OnFailure=` and `supervise.ts`. Exits with 0 only if it put the backup executable back. */
export async function rescueHere({ environment, report, service }: Context, givenUp: boolean): Promise<number> {
  const receipt = await ownReceipt(service)
  // systemd.exec(5): systemd passes ExecStopPost= how the service ended
  const result = environment['SERVICE_RESULT'] ?? 'failure'
  const failed = result !== 'success'
  const reason = givenUp ? 'given up' : endOf(result, environment['EXIT_CODE'], environment['EXIT_STATUS'])
  const ended = { failed, reason, ...(result === 'timeout' && { hadMs: await startMsOf(receipt) }) }
  let did = await rescue(receipt, ended)
  // systemd will not start it again, so a second failure cannot come
  if (did.did === 'counted' && givenUp) did = await rescue(receipt, ended)
  if (did.did === 'reverted') return report.result({ ...did }, [`${did.from} failed; ${did.to} was restored`])
  const line =
    did.did === 'counted'
      ? `${receipt.service} failed during probation (failure ${did.failures} of 2)`
      : `nothing to rescue: ${did.why}`
  // usually nothing is on probation: print nothing
  return report.result({ ...did, exit: EXIT.refused }, did.did === 'nothing' ? [] : [line])
}

/** What systemd says of an end, in words: `it exited with code 1`, `timeout: it was killed by SIGTERM`. Pure. */
function endOf(result: string, how: string | undefined, status: string | undefined): string {
  if (how === undefined || status === undefined) return result
  const end = how === 'exited' ? `it exited with code ${status}` : `it was killed by SIG${status}`
  return ['exit-code', 'signal', 'core-dump'].includes(result) ? end : `${result}: ${end}`
}

/** How long systemd has waited for a start. */
async function startMsOf(receipt: Receipt): Promise<number> {
  return Math.max(USUAL_START_MS, await readyMsFor(receipt))
}

/** The receipt of this executable, or of the one that it is the backup of. Throws not_managed; refused for root. */
async function ownReceipt(service: string): Promise<Receipt> {
  const executable = ownFile().replace(/\.backup$/, '')
  const receipt = await receiptFor(service, executable)
  if (receipt === null) throw new BatonError('not_managed', `${executable} was not installed by \`install.sh\``)
  if (isRoot() && (await idOf(receipt.user)).uid !== 0) {
    throw new BatonError('refused', `this must run as ${receipt.user}, not as root`, {
      hint: "the service's supervisor runs this automatically",
    })
  }
  return receipt
}
