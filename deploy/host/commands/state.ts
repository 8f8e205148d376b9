// `state`: lists the copies of the database that updates have left, and takes one back.

import { BatonError, EXIT } from '../../../agent/words.ts'
import { supervisorOf } from '../boundary/open.ts'
import { formatBytes } from '../../lib/progress.ts'
import { runningFault } from '../service/state.ts'
import { type Context, locate, sideOf } from './context.ts'

const NOTHING = { from: null, to: null, operationId: null, operation: null }

/** `act`: `list`, or `restore` with a name. */
export async function stateCommand(context: Context, act: string, name: string | null): Promise<number> {
  const { service, report, flags } = context
  const located = await locate(context)
  const { receipt } = located
  await using open = await sideOf(context, located, act === 'restore')
  if (act === 'list') {
    const copies = await open.side.listState(receipt)
    const lines = copies.map(
      ({ name: file, kind, tag, at, bytes }) => `${kind.padEnd(8)}  ${tag}  ${at}  ${formatBytes(bytes)}  ${file}`,
    )
    report.result(
      { ...NOTHING, outcome: 'listed', copies, exit: EXIT.done },
      lines.length === 0 ? ['no update has left a copy'] : lines,
    )
    return EXIT.done
  }
  if (act !== 'restore' || name === null)
    throw new BatonError('invalid_request', 'expected `state list`, or `state restore NAME` with a name of that list')
  if ((await supervisorOf(receipt, open.side).state()).active) throw runningFault(service)
  const done = await open.side.restoreCopy({ receipt, name, dryRun: flags.dryRun })
  if (flags.dryRun) {
    report.note(`the database would be put aside, and a copy of ${done.restored} put in its place`)
    report.result({ ...NOTHING, outcome: 'planned', would: 'restored', exit: EXIT.done }, [])
    return EXIT.done
  }
  report.result({ ...NOTHING, ...done, outcome: 'restored', exit: EXIT.done }, [
    `${done.restored} is the database now`,
    ...(done.aside === null ? [] : [`the former database is ${done.aside}`]),
  ])
  return EXIT.done
}
