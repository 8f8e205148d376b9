// The rule whether the service may install a release without a person, given what a rehearsal has shown of the data. Pure. Used before
// an attempt and in it. Must hold: a release with no way back never goes without a person, even if the operator allows everything.

import type { Rehearsal } from '../../words/rehearsal.ts'
import type { Tag } from '../../words/release.ts'
import type { Allowance } from '../../words/schedule.ts'
import { forPerson, type Wait } from '../../words/waits.ts'
import { isWithin } from './next.ts'

export interface Alone {
  /** see ALLOWANCES */
  allow: readonly Allowance[]
  /** the author of the release that runs declares that it keeps nothing on this host */
  isStateless: boolean
}

/** Null: the service may install it. Else why it waits for a person. `rehearsal` undefined: there was none. */
export function whyNotAlone(
  { allow, isStateless }: Alone,
  from: Tag,
  to: Tag,
  rehearsal: Pick<Rehearsal, 'verdict' | 'reason'> | undefined,
): Wait | null {
  if (rehearsal?.verdict === 'reversible') return null
  const asks = (code: 'irreversible' | 'unproven' | 'untried', what: string, why: string) =>
    forPerson(code, to, `${what}: ${why}`, { why })
  if (rehearsal?.verdict === 'irreversible')
    return asks('irreversible', 'its migration cannot be undone', rehearsal.reason)
  if (isStateless) return null
  const wanted = rehearsal?.verdict === 'unproven' ? 'unproven' : 'untried'
  if (allow.includes(wanted) && isWithin('patch', from, to)) return null
  if (rehearsal?.verdict === 'unproven') return asks('unproven', 'a rollback may not work', rehearsal.reason)
  const why = rehearsal?.reason ?? 'there was no data to copy, and the author has not declared the service stateless'
  return asks('untried', 'it was not tried on a copy of your data', why)
}
