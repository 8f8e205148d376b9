// The steps of an uninstall: stops and removes what the installer made. The state directory, the configuration, drop-ins and the
// environment file stay. Pure.

import { dirname } from 'node:path'
import { type Receipt, rehearsalFolder } from '../../../agent/install.ts'
import { systemctlFor } from '../../lib/systemctl.ts'
import { hasCage } from '../place/cage.ts'
import type { Layout } from '../place/layout.ts'
import { type Facts, isOurs } from './found.ts'
import type { Step } from './step.ts'

type Known = Pick<
  Facts,
  | 'active'
  | 'enabled'
  | 'unit'
  | 'rescueUnit'
  | 'cageUnit'
  | 'cagePathUnit'
  | 'command'
  | 'program'
  | 'ours'
  | 'written'
>

export function planUninstall(layout: Layout, receipt: Receipt, facts: Known, purge: boolean): Step[] {
  const { service } = layout
  const systemctl = systemctlFor(layout.scope)
  const steps: Step[] = [{ do: 'lock', path: layout.stateDirectory }]
  if (facts.active) steps.push({ do: 'stop', service })
  if (facts.enabled) steps.push({ do: 'run', command: [...systemctl, 'disable', `${service}.service`] })
  const hasUnits = receipt.supervisor !== 'none'
  const cage = hasUnits && hasCage(layout)
  if (cage && isOurs(facts.cagePathUnit)) {
    steps.push({ do: 'run', command: [...systemctl, 'disable', '--now', `${service}-trial.path`] })
    steps.push({ do: 'remove', path: layout.cagePathUnit, of: 'root' })
  }
  if (cage && isOurs(facts.cageUnit)) {
    steps.push({ do: 'run', command: [...systemctl, 'stop', `${service}-trial.service`] })
    steps.push({ do: 'remove', path: layout.cageUnit, of: 'root' })
  }
  if (isOurs(facts.unit)) steps.push({ do: 'remove', path: layout.unit, of: 'root' })
  if (isOurs(facts.rescueUnit)) steps.push({ do: 'remove', path: layout.rescueUnit, of: 'root' })
  if (isOurs(facts.unit) || isOurs(facts.rescueUnit))
    steps.push({ do: 'run', command: [...systemctl, 'daemon-reload'] })
  for (const path of facts.ours) steps.push({ do: 'remove', path, of: 'service' })
  if (cage) steps.push({ do: 'remove-directory', path: rehearsalFolder(layout.stateDirectory), of: 'root' })
  if (purge) steps.push(...purgeSteps(layout, facts))
  // removing a directory changes its parent: the user that made the directory may do that
  steps.push({ do: 'remove-directory', path: layout.directory, of: 'root' })
  if (purge) {
    steps.push(
      { do: 'remove-directory', path: layout.stateDirectory, of: 'root' },
      { do: 'purge', path: layout.configDirectory, of: 'root' },
    )
  }
  if (isOurs(facts.command)) steps.push({ do: 'remove', path: layout.command, of: 'root' })
  // remove the receipt last: until then, another try finds the install
  if (layout.program !== layout.executable) {
    if (isOurs(facts.program)) steps.push({ do: 'remove', path: layout.program, of: 'root' })
    steps.push(
      { do: 'remove', path: layout.receipt, of: 'root' },
      { do: 'remove-directory', path: dirname(layout.receipt), of: 'root' },
    )
  }
  if (purge && layout.scope === 'system' && receipt.options['created-user'] === true)
    steps.push({ do: 'remove-user', user: receipt.user })
  return steps
}

/** All data: those in the state directory, and what an application has written beside its code. */
function purgeSteps({ stateDirectory }: Layout, { written }: Known): Step[] {
  const purge = (path: string): Step => ({ do: 'purge', path, of: 'service' })
  if (written === null) return [purge(stateDirectory)]
  return [purge(stateDirectory), purge(written), { do: 'remove-directory', path: written, of: 'root' }]
}
