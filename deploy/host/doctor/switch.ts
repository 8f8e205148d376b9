// Says which kind of switch an update makes, and whether it would be refused. For a switch together it names what the running service
// has that two processes cannot have at once.

import type { NextSwitch } from '../../../agent/words.ts'
import { onlyOneCanHave } from '../../lib/only-one.ts'
import { BORNE, formatPause, isBorne } from '../../lib/switch.ts'
import { connect } from '../service/client.ts'
import { readAccess } from '../service/configuration.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

export async function checkSwitch({ receipt }: Subject): Promise<Finding[]> {
  if (receipt === null) return []
  const client = connect(await readAccess(receipt.configPath))
  // a service that refuses to answer is another check's finding
  const status = await client.status().catch(() => null)
  const next = status?.switch
  if (status === null || next === undefined) {
    const why = status === null ? 'no service answers' : `${status.instance.version} does not say it`
    return [ok('switch', `which kind is not known: ${why}`)]
  }
  return [next.kind === 'together' ? besideEachOther(await onlyOneCanHave(status.instance.pid)) : alone(next)]
}

/** Pure. */
export function alone({ expectedMs, holdMs }: NextSwitch): Finding {
  const pause = formatPause({ pauseMs: expectedMs })
  if (expectedMs === null || pause === null)
    return ok(
      'switch',
      `one at a time; how long nobody is served is not known before the first one, \`holdMs\` is ${holdMs}`,
    )
  const said = `one at a time; in the last good one ${pause}, and \`holdMs\` allows ${holdMs}`
  if (expectedMs > holdMs) {
    return failure(
      'switch',
      `${said}: every update would be refused`,
      'raise `update.holdMs` in the configuration and restart, or `rollback` first, or stop the service, upgrade it and start it again when nobody is there',
    )
  }
  if (isBorne(expectedMs)) return ok('switch', `${said}; ${BORNE}`)
  return warning(
    'switch',
    `${said}; ${BORNE}`,
    'make the start and `onStop` of the application shorter, or update when few are there',
  )
}

/** Pure. `against`: what only one process can have. */
export function besideEachOther(against: readonly string[]): Finding {
  if (against.length === 0) return ok('switch', 'together: two processes of it live at once, and nobody waits')
  return warning(
    'switch',
    `together, but only one process can have ${against.join(', ')}`,
    'its author may choose `"switch": "one-at-a-time"` in baton.config.json',
  )
}
