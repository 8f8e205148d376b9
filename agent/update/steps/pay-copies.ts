// Makes the copies that are owed before a release may begin: in the holder, or in a process that its first code waits for. In a container also
// takes a copy back, as the deployment on its host has ordered.
// Must hold: what is owed stays owed until the copies have their names. A restore that fails before anything has changed is given up.

import { makeDisk } from '../../disk/disk.ts'
import { type Journal, makeJournal } from '../../disk/journal.ts'
import { takeLock } from '../../disk/lock.ts'
import { forgetOwed, notePaid, type Owed, readOwed } from '../../disk/owed.ts'
import { ownExecutable, ownRelease } from '../../own.ts'
import { ownContainerId } from '../../sockets/process.ts'
import { reasonOf } from '../../words/errors.ts'
import type { SnapshotPlan } from '../../words/snapshot.ts'
import type { MadeCopy } from '../../words/state.ts'
import { keptCopies } from '../kept-copies.ts'
import { restoreCopies } from '../restore-copies.ts'
import { makeCopies } from './dump.ts'

/** in the first code: another process has the lock only while it ends */
const LOCK_MS = 10_000

/** Under the lock, while no process of the application lives. Throws a blameless refused. */
export async function payCopies(
  stateDirectory: string,
  owed: Extract<Owed, { owes: 'snapshot' }>,
  journal: Journal,
): Promise<void> {
  const disk = makeDisk()
  const { plan, from: tag, executable, operationId, container } = owed
  const paid = async (copies: MadeCopy[], error: string | null) =>
    await notePaid(disk, stateDirectory, { by: container ?? '', copies, aside: null, error })
  try {
    const copies = await makeCopies({ disk, stateDirectory, tag, executable, plan })
    if (container !== undefined) await paid(copies, null)
    else await journal.change(({ operation }) => void (operation?.id === operationId && (operation.copies = copies)))
  } catch (cause) {
    if (owed.kind === 'rollback') {
      await forgetOwed(disk, stateDirectory, 'snapshot')
      if (container !== undefined) await paid([], reasonOf(cause))
    }
    throw cause
  }
  await forgetOwed(disk, stateDirectory, 'snapshot')
}

/** The same, as a process of its own, which a start waits for. Resolves to its exit code. */
export async function payBeforeStart(stateDirectory: string): Promise<number> {
  const owed = readOwed(stateDirectory, ownContainerId)
  if (owed === null) return 0
  const disk = makeDisk()
  const note = (message: string) => void process.stderr.write(`baton: ${message}\n`)
  try {
    await using _lock = await takeLock(disk, stateDirectory, 'a start', { waitMs: LOCK_MS })
    if (owed.owes === 'restore') return await payRestore(stateDirectory, owed, ownContainerId)
    // the executable of the old container is not in this one
    const executable = owed.container === undefined ? owed.executable : (ownExecutable() ?? owed.executable)
    await payCopies(stateDirectory, { ...owed, executable }, makeJournal(disk, stateDirectory, note))
    return 0
  } catch (cause) {
    note(reasonOf(cause))
    return owed.owes === 'snapshot' && owed.kind === 'rollback' ? 0 : 1
  }
}

/** Resolves to 0 once the copy is there, or if nothing could be changed. Throws if the command has failed, which may have changed them. */
async function payRestore(
  stateDirectory: string,
  { name, plan }: { name: string; plan?: SnapshotPlan },
  container: () => string | null,
): Promise<number> {
  if (plan === undefined) return 0
  const disk = makeDisk()
  const paid = async (aside: string | null, error: string | null) =>
    await notePaid(disk, stateDirectory, { by: name, copies: [], aside, error })
  try {
    const copy = (await keptCopies(stateDirectory, null)).find((one) => one.name === name)
    if (copy === undefined) throw new Error(`${name} no longer exists`)
    const own = { tag: ownRelease().tag, executable: ownExecutable() ?? '' }
    const refuse = () => Promise.resolve() // no process of the application lives
    await paid(await restoreCopies({ disk, stateDirectory, plan, copy, ...own, refuse, container }), null)
  } catch (cause) {
    const left = readOwed(stateDirectory, container)
    if (left?.owes !== 'restore' || left.aside !== null) throw cause
    await forgetOwed(disk, stateDirectory, 'restore')
    await paid(null, reasonOf(cause))
    process.stderr.write(`baton: ${reasonOf(cause)}; nothing has changed\n`)
  }
  return 0
}
