// Answers the endpoint `policy`: what the operator allows, what the panel has written, and the schedule that follows from both.

import type { ManagedInstall } from '../../disk/managed-install.ts'
import type { PolicyReport } from '../../words/state.ts'
import type { NextSwitch } from '../../words/order.ts'
import { rulesOf, writeOwn } from './policy-files.ts'
import { scheduleReport } from './say.ts'

/** Writes `own` first, if it is given. Throws invalid_request with every fault of `own`; then nothing has changed. */
export async function policyReport(
  install: ManagedInstall,
  next: Omit<NextSwitch, 'expectedMs'>,
  own: unknown,
): Promise<PolicyReport> {
  if (own !== undefined) await writeOwn(install, own)
  const [{ limits, own: written, faults }, journal, trust] = await Promise.all([
    rulesOf(install),
    install.journal.read(),
    install.feed.trust(),
  ])
  return { limits, own: written, faults, schedule: await scheduleReport(install, { journal, trust, next }) }
}
