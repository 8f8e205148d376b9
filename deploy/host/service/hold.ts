// Holds what the service does by itself until a day, or ends the hold: as the panel does, it changes that one member of its rules.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, type PolicyReport } from '../../../agent/words.ts'
import { connect } from './client.ts'
import { readAccess } from './configuration.ts'

/** `until`: a day or a time; null ends the hold, if it is not the configuration's own. Only a running service can. */
export async function holdUpdates(receipt: Receipt, until: string | null): Promise<PolicyReport> {
  const client = connect(await readAccess(receipt.configPath))
  if ((await client.status()) === null)
    throw new BatonError('service_down', `${receipt.service} does not answer: nothing goes by itself meanwhile`)
  const { holdUntil: _, ...own } = (await client.policy()).own
  return await client.policy(until === null ? own : { ...own, holdUntil: until })
}
