// The database of the release that this command belongs to.

import { exists, ownDatabase, ownRelease, type Receipt } from '../../../agent/install.ts'

/**
 * Absolute path; null for none. A program that runs from source does not know the name of its database and assumes the usual one: if
 * nothing is there, it has none.
 */
export async function databaseOf({
  service,
  stateDirectory,
}: Pick<Receipt, 'service' | 'stateDirectory'>): Promise<string | null> {
  const database = ownDatabase(service, stateDirectory)
  const isUsual = ownRelease().kind === 'source'
  return database !== null && isUsual && !(await exists(database)) ? null : database
}
