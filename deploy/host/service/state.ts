// The copies of the database that updates have left: snapshots, and databases that gave way to one. Runs as the service's user.
// Must hold: nothing is removed; the database is exchanged only while the service is stopped, and under the lock.

import { readdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { exchangeNow, makeDisk, ownCommand, type Receipt, tagInPlace, takeLock } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { connect } from './client.ts'
import { readAccess } from './configuration.ts'
import { databaseOf } from './own-database.ts'

export interface StateCopy {
  name: string
  /** `aside`: the database that was there when a snapshot was taken back */
  kind: 'snapshot' | 'aside'
  /** the release that it belongs to */
  tag: string
  /** ISO 8601, UTC */
  at: string
  bytes: number
}

export interface RestoredState {
  /** path of what was there; null: nothing was */
  aside: string | null
  /** path of the copy that is the database now */
  restored: string
}

const FOLDERS = { snapshots: 'snapshot', aside: 'aside' } as const

/** Newest first. */
export async function listState(receipt: Receipt): Promise<StateCopy[]> {
  const database = await databaseOf(receipt)
  if (database === null) return []
  const found = await Promise.all(
    Object.entries(FOLDERS).map(([folder, kind]) => copiesIn(receipt, database, folder, kind)),
  )
  return found.flat().toSorted((a, b) => (a.at < b.at ? 1 : -1))
}

async function copiesIn(
  { stateDirectory }: Receipt,
  database: string,
  folder: string,
  kind: StateCopy['kind'],
): Promise<StateCopy[]> {
  const path = join(stateDirectory, 'update', folder)
  const copies: StateCopy[] = []
  for (const name of await readdir(path).catch(() => [])) {
    const tag = /^\.(v\d+\.\d+\.\d+)\.[^.]+(\.[^.-]+)?$/.exec(name.slice(basename(database).length))?.[1]
    if (!name.startsWith(basename(database)) || tag === undefined) continue
    const { size, mtime } = await stat(join(path, name))
    copies.push({ name, kind, tag, at: mtime.toISOString(), bytes: size })
  }
  return copies
}

/** Throws refused while the service runs, and not_found for another name. */
export async function restoreCopy(receipt: Receipt, name: string): Promise<RestoredState> {
  const { stateDirectory, executable, service } = receipt
  const database = await databaseOf(receipt)
  const copy = (await listState(receipt)).find((one) => one.name === name)
  if (database === null || copy === undefined) {
    throw new BatonError(
      'not_found',
      `expected the name of a copy of the database, got ${JSON.stringify(name.slice(0, 80))}`,
      {
        hint: `\`${ownCommand('state')}\` lists them`,
      },
    )
  }
  if (
    (await connect(await readAccess(receipt.configPath))
      .status()
      .catch(() => 'somebody')) !== null
  ) {
    throw new BatonError('refused', `expected ${service} to be stopped: its database is exchanged`, {
      hint: `\`${ownCommand('stop')}\` first; \`${ownCommand('rollback --restore-state')}\` needs no stop`,
    })
  }
  await using _lock = await takeLock(makeDisk(), stateDirectory, 'state restore')
  const restored = join(stateDirectory, 'update', copy.kind === 'aside' ? 'aside' : 'snapshots', name)
  return {
    aside: exchangeNow(stateDirectory, restored, { database, tag: await tagInPlace(stateDirectory, executable) }),
    restored,
  }
}
