// Ends an operation in flight before its swap. Only the service itself can: a command that carries one out is ended where it
// was started.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, type OperationReport, reportOf } from '../../../agent/words.ts'
import { connect, follow } from './client.ts'
import { readAccess } from './configuration.ts'
import type { Outside } from './outside.ts'

/** Null where nothing is in flight. Throws too_late after the swap. */
export async function cancelOperation(receipt: Receipt, outside: Outside): Promise<OperationReport | null> {
  const client = connect(await readAccess(receipt.configPath))
  const status = await client.status()
  if (status === null) {
    throw new BatonError('refused', `${receipt.service} does not answer: only a running service can cancel`, {
      hint: 'a command that does the work itself is ended where it was started',
    })
  }
  if (status.operation === null || status.operation.outcome !== null) return null
  const { id } = await client.cancel()
  return reportOf(await follow(client, id, outside))
}
