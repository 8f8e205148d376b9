// Ends an operation in flight before its swap. Only a running service can: to end an operation that a command carries out itself,
// end that command.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, type OperationReport, reportOf } from '../../../agent/words.ts'
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
  return reportOf(await follow(client, id, outside))
}
