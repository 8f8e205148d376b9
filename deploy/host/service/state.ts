// The copies of the database that updates have left: snapshots, and databases that gave way to one. Runs as the service's user.
// Must hold: nothing is removed but what a person names as such; the database is exchanged only while the service is stopped, and under the lock.

import { readdir, readlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import {
  COPY_FOLDERS,
  exchangeNow,
  foreignHolder,
  keptCopies,
  makeDisk,
  ownCommand,
  removeCopies,
  restoreCopies,
  snapshotPlan,
  type Receipt,
  tagInPlace,
  takeLock,
} from '../../../agent/install.ts'
import { BatonError, DUMP, FOLDERS, type StateCopy } from '../../../agent/words.ts'
import { newerCopy } from '../../lib/newer-copy.ts'
import { readProc } from '../../lib/proc.ts'
import { connect } from './client.ts'
import { readAccess } from './configuration.ts'
import { databaseOf } from './own-database.ts'

/** Newest first. */
export async function listState(receipt: Receipt): Promise<StateCopy[]> {
  return await keptCopies(receipt.stateDirectory, await databaseOf(receipt))
}

/**
 * Puts the copy `name` in the place of the database; with `dryRun` it only looks. Throws not_found for another name, refused while the
 * service runs, busy. `aside`: path of the former database; null: there was none. `warning`: of a copy that the release in place may not
 * be able to read.
 */
export async function restoreCopy({ receipt, name, dryRun }: { receipt: Receipt; name: string; dryRun: boolean }) {
  const { stateDirectory, executable, service, configPath } = receipt
  const database = await databaseOf(receipt)
  const copy = (await listState(receipt)).find((one) => one.name === name)
  if (copy === undefined || (database === null && copy.of === undefined)) {
    throw new BatonError(
      'not_found',
      `expected the name of a copy of the data, got ${JSON.stringify(name.slice(0, 80))}`,
      { hint: `\`${ownCommand('state list')}\` shows the names` },
    )
  }
  const answer = await connect(await readAccess(configPath))
    .status()
    .catch(() => 'somebody')
  if (answer !== null) throw runningFault(service)
  const restored = join(COPY_FOLDERS[copy.kind](stateDirectory), name)
  await using _lock = dryRun ? null : await takeLock(makeDisk(), stateDirectory, 'state restore')
  const tag = await tagInPlace(stateDirectory, executable)
  const known = { restored, warning: newerCopy(copy, tag) }
  if (dryRun) return { ...known, aside: null }
  if (database === null || copy.of !== undefined) return { ...known, aside: await restoreOther(receipt, copy, tag) }
  const refuse = async (file: string) => await refuseOthers(receipt, file)
  return { ...known, aside: await exchangeNow(stateDirectory, restored, { database, tag, refuse }) }
}

/** A copy of data that are not in SQLite. */
async function restoreOther(receipt: Receipt, copy: StateCopy, tag: string): Promise<string | null> {
  const { stateDirectory, executable, service, configPath } = receipt
  const plan = await snapshotPlan({ receipt })
  if (plan === null) {
    throw new BatonError('refused', `the settings used to make ${copy.name} are no longer configured`, {
      hint: 'restore them under `update.snapshot` in the configuration, or install a release that has them under `snapshot`',
    })
  }
  const refuse = async () => {
    const pid = await processOf(configPath)
    if (pid !== null) throw runningFault(service, `, but it is running (pid ${pid})`)
  }
  return await restoreCopies({ disk: makeDisk(), stateDirectory, tag, executable, plan, copy, refuse })
}

/**
 * Removes the databases that updates have put aside, or the one with this name; without a name the newest of each kind of data stays.
 * With `dryRun` it only looks. Throws not_found for another name, busy.
 */
export async function cleanState({
  receipt,
  name,
  dryRun,
}: {
  receipt: Receipt
  name: string | null
  dryRun: boolean
}): Promise<{ removed: string[]; bytes: number }> {
  const { stateDirectory } = receipt
  const database = await databaseOf(receipt)
  await using _lock = dryRun ? null : await takeLock(makeDisk(), stateDirectory, 'state clean')
  const aside = (await listState(receipt)).filter(({ kind }) => kind === 'aside')
  const isNewest = (one: StateCopy) => one === aside.find(({ of }) => of === one.of)
  const old = aside.filter((one) => (name === null ? !isNewest(one) : one.name === name))
  if (name !== null && old.length === 0) {
    throw new BatonError(
      'not_found',
      `expected the name of a database that was set aside, got ${JSON.stringify(name.slice(0, 80))}`,
      { hint: `\`${ownCommand('state list')}\` shows the names; snapshots are removed automatically` },
    )
  }
  const [folder, names] = [COPY_FOLDERS.aside(stateDirectory), new Set(old.map((one) => one.name))]
  const made = [...(database === null ? [] : [database]), DUMP, FOLDERS]
  if (!dryRun) for (const data of made) await removeCopies(makeDisk(), folder, data, (one) => names.has(one))
  return { removed: [...names].map((one) => join(folder, one)), bytes: old.reduce((sum, { bytes }) => sum + bytes, 0) }
}

/** Throws refused if the service has begun, or if somebody else has the database open. */
async function refuseOthers({ service, configPath }: Receipt, database: string): Promise<void> {
  const pid = await processOf(configPath)
  if (pid !== null) throw runningFault(service, `, but it is running (pid ${pid})`)
  const holder = await foreignHolder(database)
  if (holder === null) return
  throw new BatonError('refused', `the database cannot be replaced while ${holder} has ${database} open`, {
    hint: 'stop that process first; otherwise it would keep using the old database, which is set aside',
  })
}

/** A process of the service, which may not have opened its database yet; null: there is none. */
async function processOf(configPath: string): Promise<string | null> {
  for (const pid of (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))) {
    const words = (await readProc(`/proc/${pid}/cmdline`)).split('\0')
    const at = words.findIndex((word, i) => word === 'serve' && words[i + 1] === '--config')
    if (at === -1) continue
    const folder = await readlink(`/proc/${pid}/cwd`).catch(() => '/')
    if (resolve(folder, words[at + 2] ?? '') === configPath) return pid
  }
  return null
}

/** The data are exchanged only while nobody works on them. */
export function runningFault(service: string, found = ''): BatonError {
  return new BatonError('refused', `${service} must be stopped while its data is replaced${found}`, {
    hint: `run \`${ownCommand('stop')}\`, then this command again, then \`${ownCommand('start')}\``,
  })
}
