// Databases beside the one that the configuration names, among `trial.files`. They do not go back: no snapshot is made of them, and
// an exchange leaves them as they are. So the report says which there are, and a release that damages one fails.

import { opendir, realpath, stat } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { isDatabase } from '../../disk/sweep.ts'
import { integrityOf } from './look.ts'

const [DATABASES_MAX, ENTRIES_MAX] = [8, 2000]

/** What is wrong with each, by its path in `state`; null: nothing. */
export type Others = Readonly<Record<string, string | null>>

/** Looks through `files` of the copy, bounded. `own`: path of the database that goes back. */
export async function lookAtOthers(state: string, files: readonly string[], own: string): Promise<Others> {
  const found: Record<string, string | null> = {}
  const open = files.map((file) => join(state, file))
  const itself = await realpath(own).catch(() => own)
  for (let looked = 0; open.length > 0 && looked < ENTRIES_MAX && Object.keys(found).length < DATABASES_MAX; looked++) {
    const path = open.shift() ?? ''
    const is = await stat(path).catch(() => null)
    if (is?.isDirectory() === true) {
      for await (const { name } of await opendir(path)) if (open.length < ENTRIES_MAX) open.push(join(path, name))
    } else if (is?.isFile() === true && path !== itself && (await isDatabase(path)))
      found[relative(state, path)] = integrityOf(path)
  }
  return found
}

/** Looks again at those that an earlier look has found. One that is gone is left out. */
export async function lookAgainAt(state: string, names: readonly string[]): Promise<Others> {
  const found: Record<string, string | null> = {}
  for (const name of names) {
    const path = join(state, name)
    const isFile = (await stat(path).catch(() => null))?.isFile() === true
    if (isFile && (await isDatabase(path))) found[name] = integrityOf(path)
  }
  return found
}

/** The first that was whole and is not any more, or is gone. Null: none. */
export function damagedOf(before: Others, after: Others): string | null {
  for (const [name, fault] of Object.entries(before)) {
    const now = after[name]
    if (now === undefined) return `the additional database ${name} is missing`
    if (fault === null && now !== null) return `the additional database ${name} is damaged: ${now}`
  }
  return null
}
