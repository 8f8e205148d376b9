// The way back for data that are not in SQLite: a command restores what a command has copied, and folders are exchanged as a set.
// Must hold: what is there now is put aside whole before anything changes, and never removed; if this process is killed in the middle, no
// release begins until a person has finished it, with the same command.
// Power cut: `update/incoming/` may stay; the next restore removes it.

import { basename, dirname, join, normalize } from 'node:path'
import { copyName, tagOfCopy } from '../disk/copies.ts'
import { copyFilesBy } from '../disk/copy-database.ts'
import { exists } from '../disk/disk.ts'
import { forgetOwed, readOwed, writeOwed } from '../disk/owed.ts'
import { asideDirectory, owedPath, updateDirectory } from '../disk/places.ts'
import { ownCommand } from './own-command.ts'
import { BatonError, reasonOf } from '../words/errors.ts'
import { DUMP, FOLDERS } from '../words/snapshot.ts'
import type { StateCopy } from '../words/state.ts'
import { COPY_FOLDERS, COPY_WORDS, dropOldCopies, wordsOfCopy } from './kept-copies.ts'
import { bytesBelow, copiesInto, refusedCopy, runOnData, type ToCopy } from './steps/dump.ts'

export interface ToRestore extends ToCopy {
  copy: StateCopy
  /** called once no start begins any more; throws if a process of the service lives */
  refuse: () => Promise<void>
  /** finds the id of the container in which this is done; absent: this is none */
  container?: () => string | null
}

/** For a command, under the lock, while the service is stopped. Resolves to where that was put which was there. */
export async function restoreCopies(what: ToRestore): Promise<string | null> {
  const { disk, stateDirectory, copy, refuse } = what
  const owed = readOwed(stateDirectory, what.container)
  const left = owed?.owes === 'restore' ? owed : null
  if (left !== null && tagOfCopy(left.name, copy.of ?? FOLDERS) === null) {
    throw refusedCopy(
      `the restore of ${left.name} did not finish`,
      `run \`${ownCommand(`state restore ${left.name}`)}\` first`,
    )
  }
  const begin = async (aside: string | null) => {
    await writeOwed(disk, stateDirectory, { ...left, owes: 'restore', name: copy.name, aside })
    await refuse().catch(async (cause: unknown) => {
      if (left === null) await forgetOwed(disk, stateDirectory, 'restore')
      throw cause
    })
  }
  await refuse()
  const aside = await (copy.of === DUMP ? restoreDump : restoreFolders)(what, left?.aside ?? null, begin)
  await forgetOwed(disk, stateDirectory, 'restore')
  await dropOldCopies(disk, 'aside', stateDirectory, copy.of ?? FOLDERS)
  return aside
}

type Begin = (aside: string | null) => Promise<void>

async function restoreDump(what: ToRestore, left: string | null, begin: Begin): Promise<string | null> {
  const { stateDirectory, plan, copy } = what
  const path = join(COPY_FOLDERS[copy.kind](stateDirectory), copy.name)
  if (plan.restore === null) throw refusedCopy('no restore command is configured', 'set `snapshot.restore`')
  if (plan.check !== null) await runOnData(plan.check, path, { ...what, what: `checking ${copy.name}` })
  const aside = left ?? (await putAside(what))
  await begin(aside)
  try {
    await runOnData(plan.restore, path, { ...what, what: `restoring ${copy.name}` })
  } catch (cause) {
    throw new BatonError('refused', `${reasonOf(cause)}; it is unknown whether that command changed anything`, {
      hint: `\`${ownCommand(`state restore ${basename(aside)}`)}\` brings back the previous data; no release starts until a restore succeeds or you remove ${owedPath(stateDirectory)}`,
      cause,
    })
  }
  return aside
}

async function putAside(what: ToRestore): Promise<string> {
  const folder = asideDirectory(what.stateDirectory)
  const [made] = await copiesInto({ ...what, plan: { ...what.plan, folders: [] } }, folder)
  return join(folder, made?.name ?? '')
}

async function restoreFolders(what: ToRestore, left: string | null, begin: Begin): Promise<string> {
  const { disk, stateDirectory, plan, copy, tag, executable } = what
  const path = join(COPY_FOLDERS[copy.kind](stateDirectory), copy.name)
  const { folders } = (await wordsOfCopy(path)) ?? { folders: [] }
  const incoming = join(updateDirectory(stateDirectory), 'incoming')
  await disk.removeFolder(incoming)
  await disk.makeDirectory(incoming, 0o700)
  try {
    await copyFilesBy(
      executable,
      { from: path, to: incoming, files: folders, isWhole: true },
      { mostMs: plan.timeoutMs },
    )
    const named = outermost([...folders, ...plan.folders])
    const aside = left ?? join(asideDirectory(stateDirectory), copyName(FOLDERS, tag, new Date()))
    const listed = outermost(folders)
    // what the killed command had not yet put aside is what this one is to take back
    const isDue = async (name: string) => path !== aside || !listed.includes(name) || (await exists(join(aside, name)))
    const due = await Promise.all(named.map(isDue))
    const all = named.filter((_, at) => due[at])
    if (left === null) {
      const there = await Promise.all(all.map(async (name) => await exists(join(stateDirectory, name))))
      const sizes = all.map(async (name, at) => (there[at] === true ? await bytesBelow(join(stateDirectory, name)) : 0))
      const bytes = (await Promise.all(sizes)).reduce((sum, one) => sum + one, 0)
      await disk.makeDirectory(aside, 0o700)
      const words = { format: 1, folders: all.filter((_, at) => there[at]), bytes }
      await disk.writeWhole(join(aside, COPY_WORDS), JSON.stringify(words), 0o600)
    }
    await begin(aside)
    for (const name of all) await exchange(what, join(stateDirectory, name), join(aside, name), join(incoming, name))
    return aside
  } finally {
    await disk.removeFolder(incoming)
  }
}

/** Each once, and none that lies in another: what has been exchanged must not be exchanged again. Pure. */
function outermost(folders: readonly string[]): string[] {
  const all = [...new Set(folders.map((name) => normalize(`${name}/`)))]
  return all
    .filter((name) => !all.some((other) => other !== name && name.startsWith(other)))
    .map((name) => name.slice(0, -1))
}

/** What is there goes aside, once; then the copy takes its place. */
async function exchange({ disk }: ToRestore, there: string, aside: string, incoming: string): Promise<void> {
  if (await exists(there)) {
    await disk.makeDirectory(dirname(aside), 0o700)
    if (await exists(aside)) await disk.removeFolder(there) // a killed command had put the copy here
    else await disk.rename(there, aside)
  }
  if (!(await exists(incoming))) return
  await disk.makeDirectory(dirname(there), 0o700)
  await disk.rename(incoming, there)
  await disk.flushDirectory(dirname(there))
}
