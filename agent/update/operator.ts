// Reads `update` of the operator's configuration anew each time, since the operator may change it while the service runs. (`settings.ts`
// reads the numbers in it once, at the start.)

import { readSmall } from '../disk/disk.ts'
import { codeOf } from '../words/errors.ts'
import type { ManagedInstall } from '../disk/managed-install.ts'
import { CONFIGURATION_MAX_BYTES } from '../words/bounds.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'

/** The members of `update`, unchecked; empty if there are none. Null: the configuration cannot be read. */
export async function operatorsUpdate({
  receipt,
}: Pick<ManagedInstall, 'receipt'>): Promise<Record<string, unknown> | null> {
  if (receipt === null) return {}
  const text = await readSmall(receipt.configPath, CONFIGURATION_MAX_BYTES).catch((cause: unknown) =>
    codeOf(cause) === 'ENOENT' ? '{}' : null,
  )
  const config = text === null ? null : parsedJson(text)
  if (!isObject(config)) return null
  const { update = {} } = config
  return isObject(update) ? update : null
}
