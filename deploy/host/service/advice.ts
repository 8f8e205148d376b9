// What the operator is told of an operation beside its outcome: before it begins, what speaks against it; after it was reverted, the way
// back with the data. Changes nothing.

import {
  keptCopies,
  lastTo,
  makeDisk,
  makeJournal,
  ownCommand,
  placesOf,
  type Receipt,
  snapshotFor,
} from '../../../agent/install.ts'
import {
  badEntry,
  type BadRelease,
  BatonError,
  compareTags,
  isDone,
  type Kind,
  stillBad,
  withoutWords,
} from '../../../agent/words.ts'
import { readyMsFor } from './configuration.ts'
import type { Outside } from './outside.ts'
import { databaseOf } from './own-database.ts'
import { ownFolderOf } from './own-folder.ts'
import type { Operate, Operated, Standing } from './request.ts'

/** What the operator should know before this begins. */
export async function tellBefore(
  receipt: Receipt,
  { request, act, standing }: { request: Operate; act: { kind: Kind; tag: string | null }; standing: Standing },
  outside: Outside,
): Promise<void> {
  const isRollback = act.kind === 'rollback'
  const tag = isRollback ? standing.backup : act.tag
  const isBackup = isRollback && request.tag === null
  if (isBackup && tag !== null) await refuseBad(receipt, tag)
  const entry = tag === null || isBackup ? null : badEntry(await badOf(receipt), tag, null)
  if (entry !== null)
    outside.note(`trying ${entry.tag} again, because you named it; it failed here at ${entry.at}: ${entry.reason}`)
  if (isRollback) await tellOfUntried(receipt, request, standing, outside)
  const own = await ownFolderOf(receipt, standing.current)
  if (own !== null)
    outside.note(
      `warning: ${standing.current} has written files into its own folder (${own.files}): other releases will not have them; they remain in ${own.path}`,
    )
}

/** Why the backup is no way back; null: it has not failed here, or has served since. */
export async function failureOf(receipt: Receipt, tag: string): Promise<BadRelease | null> {
  const entry = badEntry(await badOf(receipt), tag, null)
  if (entry === null) return null
  const { history } = await makeJournal(makeDisk(), receipt.stateDirectory).read()
  const hasServedSince = history.some(
    ({ outcome, to, finishedAt }) => isDone(outcome) && to === entry.tag && (finishedAt ?? '') > entry.at,
  )
  return hasServedSince ? null : entry
}

/** Who goes back without naming a release wants one that works. */
async function refuseBad(receipt: Receipt, tag: string): Promise<void> {
  const entry = await failureOf(receipt, tag)
  if (entry === null) return
  throw new BatonError('refused', `the backup is ${entry.tag}, which failed here at ${entry.at}: ${entry.reason}`, {
    hint: `to start it anyway, run \`${ownCommand(`rollback ${entry.tag}`)}\`; for an older release, run \`${ownCommand('rollback TAG')}\` (\`${ownCommand('releases')}\` lists them)`,
  })
}

/** Before a rollback that leaves the data as it is: tells the operator if nobody has tried the old release on them. */
async function tellOfUntried(
  receipt: Receipt,
  { restoreState }: Pick<Operate, 'restoreState'>,
  { current, backup }: Standing,
  outside: Outside,
): Promise<void> {
  if (restoreState || backup === null) return
  const { history } = await makeJournal(makeDisk(), receipt.stateDirectory).read()
  const last = lastTo(current, history)
  if (last?.kind !== 'update' || last.trial?.verdict === 'reversible') return
  const shown =
    last.trial?.verdict === 'unproven'
      ? `a trial has shown only that ${backup} starts`
      : `no trial has shown that ${backup} works`
  const [database, places] = [await databaseOf(receipt), placesOf(receipt.executable)]
  const copy = await snapshotFor({ database, places, stateDirectory: receipt.stateDirectory }, null).catch(() => null)
  if (copy !== null)
    outside.note(
      `note: ${shown} with the data that ${current} has written; if it does not work, \`${ownCommand('rollback --restore-state')}\` restores the data from before the update`,
    )
}

/** If the operator names no release, tells which newer ones are skipped because they failed here. Returns their tags. */
export async function tellOfSkipped(
  receipt: Receipt,
  tag: string | null,
  from: string,
  outside: Outside,
): Promise<string[]> {
  if (tag !== null) return []
  const newer = (await badOf(receipt)).filter((entry) => compareTags(entry.tag, from) > 0)
  for (const bad of newer) outside.note(formatPassed(bad, 'upgrade'))
  return [...new Set(newer.map((one) => one.tag))]
}

/** A newer release that `latest` passes over. `again`: the command that tries it again, with its tag. */
export function formatPassed({ tag, at, reason }: BadRelease, again: 'install' | 'upgrade'): string {
  return `${tag} is newer, but failed here at ${at}: ${withoutWords(reason)}; \`${ownCommand(`${again} ${tag}`)}\` tries it again`
}

/** Releases that failed here, and that nothing has changed for since. */
export async function badOf(receipt: Pick<Receipt, 'stateDirectory' | 'configPath'>): Promise<BadRelease[]> {
  const { bad } = await makeJournal(makeDisk(), receipt.stateDirectory).read()
  return stillBad(bad, await readyMsFor(receipt))
}

/** Where the old release serves again on the data that the new one has left: how to go back to a copy, if there is one. */
export async function withWayBack(receipt: Receipt, operated: Operated): Promise<Operated> {
  const { outcome, from, report, error } = operated
  const keepsData = outcome === 'reverted' && report?.kind === 'update' && report.stateMoved === null
  if (!keepsData || error === null || error.hint !== null) return operated
  const way = await wayToCopy(receipt, from)
  if (way === null) return operated
  return {
    ...operated,
    error: {
      ...error,
      hint: `the data that the failed release wrote is kept; to restore a copy from before the update, ${way}`,
    },
  }
}

/** The same for a service that does not answer any more after an update: the old release may not be able to use that data. */
export async function withCopies(receipt: Receipt, from: string, cause: unknown): Promise<unknown> {
  if (!(cause instanceof BatonError) || cause.code !== 'service_down' || cause.hint !== null) return cause
  const way = await wayToCopy(receipt, from)
  if (way === null) return cause
  const hint = `if ${from} cannot use the data that the failed release wrote, restore a copy from before the update: ${way}`
  return new BatonError(cause.code, cause.message, { cause, hint, members: cause.members })
}

/** Null: there is no copy of the data of `tag`. */
async function wayToCopy(receipt: Receipt, tag: string | null): Promise<string | null> {
  const copies = await keptCopies(receipt.stateDirectory, await databaseOf(receipt)).catch(() => [])
  if (!copies.some((copy) => copy.kind === 'snapshot' && copy.tag === tag)) return null
  const [list, stop, restore, start] = ['state list', 'stop', 'state restore NAME', 'start'].map(ownCommand)
  return `find its name with \`${list}\`, then run \`${stop}\`, \`${restore}\` and \`${start}\``
}
