// `state`: lists the copies of the database that updates have left, takes one back, and removes those that were put aside.

import { ownCommand } from '../../../agent/install.ts'
import { BatonError, EXIT } from '../../../agent/words.ts'
import { supervisorOf } from '../boundary/open.ts'
import { formatBytes } from '../../lib/progress.ts'
import { runningFault } from '../service/state.ts'
import { type Context, locate, sideOf } from './context.ts'

const NOTHING = { from: null, to: null, operationId: null, operation: null }

/** `act`: `list`, `restore` with a name, or `clean`, with one or without. */
export async function stateCommand(context: Context, act: string, name: string | null): Promise<number> {
  const { service, report, flags } = context
  const located = await locate(context)
  const { receipt } = located
  await using open = await sideOf(context, located, act !== 'list')
  if (act === 'list') {
    const copies = await open.side.listState(receipt)
    const lines = copies.map(
      ({ name: file, kind, tag, at, bytes }) => `${kind.padEnd(8)}  ${tag}  ${at}  ${formatBytes(bytes)}  ${file}`,
    )
    const aside = copies.filter(({ kind }) => kind === 'aside')
    const sum = formatBytes(aside.reduce((all, { bytes }) => all + bytes, 0))
    const more = `${aside.length} databases were put aside, ${sum}: \`${ownCommand('state clean')}\` removes all but the newest`
    report.result(
      { ...NOTHING, outcome: 'listed', copies, exit: EXIT.done },
      lines.length === 0 ? ['no update has left a copy'] : [...lines, ...(aside.length > 1 ? [more] : [])],
    )
    return EXIT.done
  }
  if (act === 'clean') {
    const { removed, bytes } = await open.side.cleanState({ receipt, name, dryRun: flags.dryRun })
    const [outcome, would] = flags.dryRun ? ['planned', 'would be '] : ['cleaned', '']
    const what = removed.length === 0 ? ['nothing to remove'] : removed.map((path) => `${path} ${would}removed`)
    report.result({ ...NOTHING, outcome, removed, bytes, exit: EXIT.done }, [
      ...what,
      ...(removed.length === 0 ? [] : [`${formatBytes(bytes)} ${would}free again`]),
    ])
    return EXIT.done
  }
  if (act !== 'restore' || name === null)
    throw new BatonError(
      'invalid_request',
      'expected `state list`, `state restore NAME` with a name of that list, or `state clean`',
    )
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
