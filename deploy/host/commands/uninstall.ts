// `uninstall`: stops the service and removes what the installer made. The service's and the operator's files stay, and are listed.

import { findId } from '../place/identity.ts'
import { exists, ownCommand, type Receipt, rehearsalFolder } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import type { Layout } from '../place/layout.ts'
import { gatherFacts } from '../plan/facts.ts'
import type { Step } from '../plan/step.ts'
import { planUninstall } from '../plan/uninstall.ts'
import { endCommands, type OpenSide } from '../boundary/open.ts'
import { assertRights, confirm, confirmPurge, type Context, locate, sideOf } from './context.ts'
import { carryOutSteps, foretold, NOTHING } from './deeds.ts'
import { endLingering } from './running.ts'

export async function uninstall(context: Context): Promise<number> {
  const { service, flags, report } = context
  const located = await locate(context)
  const { receipt, layout } = located
  assertRights(layout)
  await using open = await sideOf(context, located, true)
  const facts = await gatherFacts(layout, receipt, receipt.supervisor !== 'none', open)
  if (!facts.active) await refuseServing(receipt, open)
  const steps = planUninstall(layout, receipt, facts, flags.purge)
  const title = `uninstall ${service} ${facts.installed ?? ''} from ${layout.directory}`
  const ending = { ...NOTHING, from: facts.installed }
  if (flags.dryRun) {
    // files that the application has written beside its code keep the folder
    const staysFull = facts.written !== null && !flags.purge ? layout.directory : null
    const stays = await keptOf(
      layout,
      steps.filter((step) => !(step.do === 'remove-directory' && step.path === staysFull)),
    )
    return foretold(context, title, steps, { would: 'uninstalled', kept: stays, ...ending }, stays.map(asKept))
  }
  if (flags.purge) confirmPurge(context)
  const who = ownCommand('uninstall')
  confirm(context, title, steps, who)
  const deed = {
    who,
    open: async () => open,
    end: () => endCommands(receipt),
    receipt: async () => receipt,
  }
  const { left } = await carryOutSteps(context, steps, deed)
  await open[Symbol.asyncDispose]()
  await deed.end()
  // `remove-user` has ended that user's service manager already
  if (!steps.some((step) => step.do === 'remove-user')) await endLingering(receipt)
  const kept = [...(await keptOf(layout)), ...left]
  return report.result({ outcome: 'uninstalled', kept, ...ending }, [
    `${service} is uninstalled`,
    ...kept.map(asKept),
    ...(kept.length === 0 || flags.purge
      ? []
      : ['the next install reuses what was kept; if nobody needs it any more, delete it by hand']),
  ])
}

/** A service that this command does not see, such as from another mount namespace, would go on without its data. Throws BatonError refused. */
async function refuseServing(receipt: Receipt, { side }: OpenSide): Promise<void> {
  const found = await side.look({ receipt, check: false }).catch(() => null)
  if (found === null || found.running === null) return
  const message = `${receipt.service} ${found.running} answers at its address, but this command cannot see its process`
  throw new BatonError('refused', message, {
    hint: 'run the command where the service was started (the same container or mount namespace), or stop that process first',
  })
}

const asKept = (what: string) => `kept: ${what}`

/** Everything of the install that is still there, or still will be after `steps`. */
async function keptOf(layout: Layout, steps: readonly Step[] = []): Promise<string[]> {
  const { stateDirectory, configDirectory, environmentFile, dropIns, directory, scope, user } = layout
  const paths = [stateDirectory, rehearsalFolder(stateDirectory), configDirectory, environmentFile, dropIns, directory]
  const there = await Promise.all(paths.map(async (path) => ((await exists(path)) ? path : null)))
  const found = there.filter((path) => path !== null).filter((path) => !steps.some((step) => takes(step, path)))
  const hasUser = scope === 'system' && user !== 'root' && !steps.some((step) => step.do === 'remove-user')
  return hasUser && (await findId(user)) !== null ? [...found, `user ${user}`] : found
}

function takes(step: Step, path: string): boolean {
  if (step.do === 'purge') return path === step.path || path.startsWith(`${step.path}/`)
  return (step.do === 'remove' || step.do === 'remove-directory') && path === step.path
}
