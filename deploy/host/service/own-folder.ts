// What the release that is in place has written into its own folder, where the next release does not look for it. Reads only.

import { readdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { exists, type Receipt, unpackedHome, writtenIn } from '../../../agent/install.ts'

const NAMES_MAX = 3

export interface OwnFolder {
  path: string
  /** the first files of those that were written, and how many more there are; relative to `path` */
  files: string
}

/** Null if the release has no folder of its own, or has written nothing there that it could not make again. */
export async function ownFolderOf({ service, executable }: Receipt, tag: string): Promise<OwnFolder | null> {
  const home = unpackedHome(executable, service)
  for (const name of await readdir(home).catch(() => [])) {
    if (!(await exists(join(home, name, 'tags', tag)))) continue
    const path = join(home, name, 'app')
    const written = (await writtenIn(join(home, name))).map((one) => relative(path, one))
    if (written.length === 0) continue
    const more = written.length > NAMES_MAX ? ` and ${written.length - NAMES_MAX} more` : ''
    return { path, files: `${written.slice(0, NAMES_MAX).join(', ')}${more}` }
  }
  return null
}
