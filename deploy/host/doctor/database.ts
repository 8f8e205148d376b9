// Checks the database's integrity. Runs as the service's user: opening a database in WAL mode may make files beside it.

import { readdir, realpath, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { exists, isDatabase, isWrittenTo, type Receipt, snapshotDirectory } from '../../../agent/install.ts'
import { reasonOf } from '../../../agent/words.ts'
import { databaseOf } from '../service/own-database.ts'
import { problem, type Finding, ok, warning } from './finding.ts'

/** long enough to see a writer that writes twice a second */
const WATCH_MS = 500

export async function checkDatabase({
  receipt,
}: {
  receipt: Pick<Receipt, 'service' | 'stateDirectory'> | null
}): Promise<Finding[]> {
  if (receipt === null) return []
  const path = await databaseOf(receipt)
  if (path === null) return [ok('database', `no database is set for ${receipt.service}`)]
  if (!(await exists(path))) {
    const hint = `check \`database\` in baton.config.json: an update is refused if ${receipt.stateDirectory} contains other files but not the database`
    return [warning('database', `${path} does not exist`, hint)]
  }
  if (await isWrittenTo(path, WATCH_MS)) {
    const why = 'it uses a rollback journal and is being written to, so a check would block writers'
    return [ok('database', `${path} was not checked: ${why}`)]
  }
  const hint = `restore a snapshot from ${snapshotDirectory(receipt.stateDirectory)}`
  const { DatabaseSync } = await import('node:sqlite')
  try {
    const database = new DatabaseSync(path, { readOnly: true })
    try {
      database.exec('PRAGMA busy_timeout = 5000')
      const rows = database.prepare('PRAGMA integrity_check(5)').all() as { integrity_check: string }[]
      const said = rows.map((row) => row.integrity_check).join('; ')
      return said === 'ok'
        ? [ok('database', `${path}${await besides(path)}`)]
        : [problem('database', `${path} is damaged: ${said.slice(0, 300)}`, hint)]
    } finally {
      database.close()
    }
  } catch (cause) {
    return [problem('database', `${path} cannot be read: ${reasonOf(cause)}`, hint)]
  }
}

/** What other databases lie beside it: they do not go back. */
async function besides(path: string): Promise<string> {
  const itself = await realpath(path)
  const found: string[] = []
  for (const name of (await readdir(dirname(path))).slice(0, ENTRIES_MAX)) {
    const other = join(dirname(path), name)
    const isFile = (await stat(other).catch(() => null))?.isFile() === true
    if (isFile && (await realpath(other)) !== itself && (await isDatabase(other))) found.push(name)
  }
  return found.length === 0
    ? ''
    : `; other databases in its folder are not restored with it: ${found.slice(0, NAMED_MAX).join(', ')}`
}

const [ENTRIES_MAX, NAMED_MAX] = [1000, 8]
