// `state`: lists the copies of the database that updates have left, takes one back, and removes those that were put aside.

import { ownCommand } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { supervisorOf } from '../boundary/open.ts'
import { formatBytes } from '../../lib/progress.ts'
import { runningFault } from '../service/state.ts'
import { type Context, locate, sideOf } from './context.ts'
import { NOTHING } from './deeds.ts'

const KINDS = { snapshot: 'snapshot ', aside: 'set aside' } as const

/** `act`: `list`, `restore` with a name, or `clean`, with one or without. */
export async function stateCommand(context: Context, act: string, name: string | null): Promise<number> {
  const { service, report, flags } = context
  const located = await locate(context)
  const { receipt } = located
  await using open = await sideOf(context, located, act !== 'list')
  if (act === 'list') {
    const copies = await open.side.listState(receipt)
    const lines = copies.map(
      ({ name: file, kind, tag, at, bytes }) =>
        `${KINDS[kind]}  data from ${tag}  ${at}  ${formatBytes(bytes)}  ${file}`,
    )
    const aside = copies.filter(({ kind }) => kind === 'aside')
    const sum = formatBytes(aside.reduce((all, { bytes }) => all + bytes, 0))
    const more = `${aside.length} databases were set aside (${sum}): \`${ownCommand('state clean')}\` removes all but the newest`
    return report.result(
      { ...NOTHING, outcome: 'listed', copies },
      lines.length === 0 ? ['no copies of the data'] : [...lines, ...(aside.length > 1 ? [more] : [])],
    )
  }
  if (act === 'clean') {
    const { removed, bytes } = await open.side.cleanState({ receipt, name, dryRun: flags.dryRun })
    const [outcome, would] = flags.dryRun ? ['planned', 'would be '] : ['cleaned', '']
    const ending = { ...NOTHING, outcome, removed, bytes }
    if (removed.length > 0) {
      const lines = removed.map((path) => `${path} ${would}removed`)
      return report.result(ending, [...lines, `${formatBytes(bytes)} ${would}freed`])
    }
    const kept = (await open.side.listState(receipt)).find(({ kind }) => kind === 'aside')
    const how = `; \`${ownCommand(`state clean ${kept?.name ?? ''}`)}\` removes the newest database that was set aside`
    return report.result(ending, [`nothing to remove${kept === undefined ? '' : how}`])
  }
  if (act !== 'restore' || name === null)
    throw new BatonError(
      'invalid_request',
      'expected `state list`, `state restore NAME` with a name from that list, `state back TAG`, or `state clean`',
    )
  if ((await supervisorOf(receipt, open.side).state()).active) throw runningFault(service)
  const { warning, ...done } = await open.side.restoreCopy({ receipt, name, dryRun: flags.dryRun })
  if (warning !== null) report.note(`warning: ${warning}`)
  if (flags.dryRun) {
    report.note(`the database would be set aside and replaced with a copy of ${done.restored}`)
    return report.result({ ...NOTHING, outcome: 'planned', would: 'restored' }, [])
  }
  return report.result({ ...NOTHING, ...done, outcome: 'restored' }, [
    `the database was restored from ${done.restored}`,
    // taking back what a failed restore has put aside puts nothing aside again
    ...(done.aside === null || done.aside === done.restored
      ? []
      : [`the previous database was set aside as ${done.aside}`]),
  ])
}
