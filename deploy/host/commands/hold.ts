// `upgrade --hold DAY` and `upgrade --release-hold`: keep the service from updating by itself; a person's own commands still work.

import { EXIT } from '../../../agent/words.ts'
import { type Context, locate, sideOf } from './context.ts'
import { scheduleLines } from './status.ts'

/** `until` null: ends the hold. */
export async function holdCommand(context: Context, until: string | null): Promise<number> {
  const located = await locate(context)
  await using open = await sideOf(context, located)
  const { schedule } = await open.side.hold({ receipt: located.receipt, until })
  const { heldUntil } = schedule
  const said = heldUntil === null ? 'there is no hold' : `nothing goes by itself before ${heldUntil}`
  const nothing = { from: null, to: null, operationId: null, operation: null }
  context.report.result({ ...nothing, outcome: 'held', schedule, exit: EXIT.done }, [said, ...scheduleLines(schedule)])
  return EXIT.done
}
