// The names of copies of the database: snapshots, and databases that gave way to one. A name has the database, the release whose data
// the copy holds, and when it was made. A file that belongs to a copy, such as its log, has the copy's name and a suffix. Pure.

import { basename } from 'node:path'
import { isTag } from '../words/release.ts'

/** Name of a copy of a database that belongs to the release `tag`, made at `at`. */
export function copyName(database: string, tag: string, at: Date): string {
  return `${basename(database)}.${tag}.${at.toISOString().replaceAll(/[-:]/g, '')}`
}

/** The release that the copy with this name belongs to; null: it is not the name of a copy of this database. */
export function tagOfCopy(name: string, database: string): string | null {
  const stem = basename(database)
  if (!name.startsWith(stem)) return null
  const [, plain, prerelease] =
    /^\.(?:(v\d+\.\d+\.\d+)\.[^.-]+(?:\.[^.-]+)?|(v\d[^/]*-[^/]*)\.\d{8}T\d{6}(?:\.\d+)?Z)$/.exec(
      name.slice(stem.length),
    ) ?? []
  return plain ?? (isTag(prerelease) ? prerelease : null)
}

/** When the copy with this name was made, in ms since the epoch; null: the name does not say it. */
export function timeOfCopy(name: string): number | null {
  const [, date = '', time = '', fraction = ''] = /\.(\d{8})T(\d{6})(\.\d+)?Z$/.exec(name) ?? []
  const iso = `${date.replace(/(....)(..)(..)/, '$1-$2-$3')}T${time.replace(/(..)(..)(..)/, '$1:$2:$3')}${fraction}Z`
  const at = Date.parse(iso)
  return Number.isNaN(at) ? null : at
}

/** The newest of these names among those of the release `tag`; null: none. Older releases wrote no milliseconds. */
export function newestCopy(names: readonly string[], database: string, tag: string): string | null {
  const plain = (name: string) => name.replace(/Z$/, '')
  const all = names.filter((name) => tagOfCopy(name, database) === tag)
  return all.toSorted((a, b) => (plain(a) < plain(b) ? -1 : 1)).at(-1) ?? null
}
