// Makes the copies that are owed before a release may begin: in the holder, or in a process that its first code waits for.
// Must hold: what is owed stays owed until the copies have their names.

import { makeDisk } from '../../disk/disk.ts'
import { type Journal, makeJournal } from '../../disk/journal.ts'
import { takeLock } from '../../disk/lock.ts'
import { forgetOwed, type Owed, readOwed } from '../../disk/owed.ts'
import { reasonOf } from '../../words/errors.ts'
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
  const { plan, from: tag, executable, operationId } = owed
  try {
    const copies = await makeCopies({ disk, stateDirectory, tag, executable, plan })
    await journal.change(({ operation }) => void (operation?.id === operationId && (operation.copies = copies)))
  } catch (cause) {
    if (owed.kind === 'rollback') await forgetOwed(disk, stateDirectory, 'snapshot')
    throw cause
  }
  await forgetOwed(disk, stateDirectory, 'snapshot')
}

/** The same, as a process of its own, which a start waits for. Resolves to its exit code. */
export async function payBeforeStart(stateDirectory: string): Promise<number> {
  const owed = readOwed(stateDirectory)
  if (owed?.owes !== 'snapshot') return 0
  const disk = makeDisk()
  try {
    await using _lock = await takeLock(disk, stateDirectory, 'a start', { waitMs: LOCK_MS })
    const note = (message: string) => void process.stderr.write(`baton: ${message}\n`)
    await payCopies(stateDirectory, owed, makeJournal(disk, stateDirectory, note))
    return 0
  } catch (cause) {
    process.stderr.write(`baton: ${reasonOf(cause)}\n`)
    return owed.kind === 'rollback' ? 0 : 1
  }
}
