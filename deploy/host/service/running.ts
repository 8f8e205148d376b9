// What only a running service can do: end an operation in flight before its swap, and pause what is installed automatically. To end an operation that
// a command carries out itself, end that command.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, type OperationReport, type PolicyReport, reportOf } from '../../../agent/words.ts'
import { connect, follow } from './client.ts'
import { readAccess } from './configuration.ts'
import type { Outside } from './outside.ts'

/** The cancelled operation; null if none is in flight. Throws too_late after the swap. */
export async function cancelOperation(receipt: Receipt, outside: Outside): Promise<OperationReport | null> {
  const client = connect(await readAccess(receipt.configPath))
  const status = await client.status()
  if (status === null) {
    throw new BatonError('refused', `${receipt.service} does not answer: only a running service can cancel`, {
      hint: 'if a command does the work itself, end that command',
    })
  }
  if (status.operation === null || status.operation.outcome !== null) return null
  const { id } = await client.cancel()
  // what it was in the middle of is no stage of this command
  return reportOf(await follow(client, id, { note: outside.note, stage() {}, bytes() {} }))
}

/**
 * Pauses what the service does by itself until a day, or ends the pause: as the panel does, it changes that one member of its rules.
 * `until`: a day or a time; null ends the pause, if it is not the configuration's own.
 */
export async function pauseUpdates(receipt: Receipt, until: string | null): Promise<PolicyReport> {
  const client = connect(await readAccess(receipt.configPath))
  if ((await client.status()) === null)
    throw new BatonError(
      'service_down',
      `${receipt.service} does not answer: nothing is installed automatically meanwhile`,
    )
  const { pauseUntil: _, ...own } = (await client.policy()).own
  return await client.policy(until === null ? own : { ...own, pauseUntil: until })
}
