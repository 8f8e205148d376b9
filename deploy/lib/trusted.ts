// Decides which paths only root can change, and makes temporary folders there. Must hold: root opens, runs, changes and removes
// nothing at any other path.
// It checks each part of a path from the top. So nobody but root can change the parts already checked in the meantime.

import type { Stats } from 'node:fs'
import { chmod, lstat, mkdtemp, readlink, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BatonError } from '../../agent/words.ts'

export type Trust =
  | { trusted: true; /** what is there; null for nothing */ found: Stats | null }
  | { trusted: false; /** the first part that somebody else can change */ at: string; uid: number; mode: number }

const LINKS_MAX = 40
const OTHERS_WRITE = 0o002
const GROUP_WRITES = 0o020
const STICKY = 0o1000

/** What is at `path`, and whether nobody but root could put it there or can change it. Follows root's own links. */
export async function trustIn(path: string): Promise<Trust> {
  const parts = path.split('/').filter(Boolean)
  let at = '/'
  let found: Stats = await lstat('/')
  let links = 0
  if (isOthers(found)) return { trusted: false, at, uid: found.uid, mode: found.mode }
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const next = at === '/' ? `/${part}` : `${at}/${part}`
    const child = await lstat(next).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null
      throw error
    })
    // in a folder such as /tmp anybody may make new names, but nobody else can replace root's
    if (child === null)
      return isShared(found) ? { trusted: false, at, uid: found.uid, mode: found.mode } : { trusted: true, found: null }
    if (child.isSymbolicLink()) {
      if (child.uid !== 0 || ++links > LINKS_MAX) return { trusted: false, at: next, uid: child.uid, mode: child.mode }
      const target = await readlink(next)
      parts.unshift(...target.split('/').filter((one) => one !== '' && one !== '.'))
      if (target.startsWith('/')) [at, found] = ['/', await lstat('/')]
      continue
    }
    if (part === '..') {
      at = next.split('/').slice(0, -2).join('/') || '/'
      found = await lstat(at)
      continue
    }
    if (isOthers(child) || (isShared(child) && !child.isDirectory()))
      return { trusted: false, at: next, uid: child.uid, mode: child.mode }
    ;[at, found] = [next, child]
  }
  return { trusted: true, found }
}

/** Throws BatonError refused if anybody but root can change what is at `path`. */
export async function assertTrusted(path: string, what: string, hint: string): Promise<void> {
  const trust = await trustIn(path)
  if (trust.trusted) return
  throw new BatonError(
    'refused',
    `${what} must be in a place that only root can change, but ${whoCanChange(trust)} can change ${trust.at}${trust.at === path ? '' : ` (of ${path})`}`,
    { hint },
  )
}

/** Who else than root can change what is not trusted: its owner, or whom its mode lets write. */
export function whoCanChange({ uid, mode }: { uid: number; mode: number }): string {
  const said = (mode & 0o7777).toString(8).padStart(4, '0')
  if (uid !== 0) return `user id ${uid}`
  return (mode & OTHERS_WRITE) !== 0 ? `everyone (mode ${said})` : `the owning group (mode ${said})`
}

/** The folder for temporary files. Throws BatonError refused if root runs this and anybody else can change what is at its path. */
export async function temporaryPlace(): Promise<string> {
  // without links: another user's could lead elsewhere after it was checked
  const place = await realpath(tmpdir())
  if (process.geteuid?.() === 0) await assertTrusted(place, 'a folder for temporary files', 'unset TMPDIR')
  return place
}

/** A new folder in `temporaryPlace()`, in which only the user of this command can write. The end of the scope removes it. */
export async function temporaryFolder(prefix: string, mode = 0o700): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(await temporaryPlace(), prefix))
  await chmod(path, mode)
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

function isOthers({ uid, mode }: Stats): boolean {
  return uid !== 0 || (isWritable({ mode }) && (mode & STICKY) === 0)
}

/** A sticky folder of root's: others may make names in it, but not change root's. */
function isShared(found: Stats): boolean {
  return isWritable(found)
}

function isWritable({ mode, gid }: { mode: number; gid?: number }): boolean {
  return (mode & OTHERS_WRITE) !== 0 || ((mode & GROUP_WRITES) !== 0 && gid !== 0)
}
