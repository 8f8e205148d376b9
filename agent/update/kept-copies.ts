// The copies of the database that updates have left, as `state list`, the status and the panel tell them. Reads names only.

import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { tagOfCopy } from '../disk/copies.ts'
import { asideDirectory, snapshotDirectory } from '../disk/places.ts'
import type { StateCopy } from '../words/state.ts'

/** the folder of each kind, in a state directory */
export const COPY_FOLDERS = { snapshot: snapshotDirectory, aside: asideDirectory } as const
const KINDS = ['snapshot', 'aside'] as const

/** Newest first. */
export async function keptCopies(stateDirectory: string, database: string | null): Promise<StateCopy[]> {
  if (database === null) return []
  const copies: StateCopy[] = []
  for (const kind of KINDS) {
    const path = COPY_FOLDERS[kind](stateDirectory)
    for (const name of await readdir(path).catch(() => [])) {
      const tag = tagOfCopy(name, database)
      const found = tag === null ? null : await stat(join(path, name)).catch(() => null)
      if (tag === null || found === null) continue
      copies.push({ name, kind, tag, at: found.mtime.toISOString(), bytes: found.size })
    }
  }
  return copies.toSorted((a, b) => (a.at < b.at ? 1 : -1))
}
