// Sets one variable in a compose project's `.env`. Must hold: every other line stays as it is; the file is whole at any instant. The
// user may be root, and the project's folder another user's: no link of that user's leads a read or a write anywhere else.

import { constants } from 'node:fs'
import { type FileHandle, lstat, open, readlink } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { makeDisk } from '../../agent/install.ts'
import { BatonError } from '../../agent/words.ts'
import type { JobOrigin } from './job.ts'

const LINKS_MAX = 40
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants

/** The path without links. Follows links of root's and of this user. Throws BatonError refused at any other. */
export async function withoutLinks(path: string): Promise<string> {
  const parts = resolve(path).split('/')
  let [at, links] = ['/', 0]
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const next = join(at, part)
    const found = await lstat(next).catch(() => null)
    if (found?.isSymbolicLink() !== true) at = next
    else if ((found.uid !== 0 && found.uid !== process.geteuid?.()) || ++links > LINKS_MAX)
      throw refused(
        `${next === path ? path : `${path} goes through ${next}, which`} is a link owned by user id ${found.uid}`,
      )
    else {
      const target = await readlink(next)
      parts.unshift(...target.split('/'))
      if (target.startsWith('/')) at = '/'
    }
  }
  return at
}

/** What tells the folder of this path from any other that may have its name later. */
export async function folderOf(path: string): Promise<string> {
  await using folder = await open(dirname(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  if ((await readlink(here(folder))) !== dirname(path)) throw refused(`${dirname(path)} is now a link`)
  return await identityOf(folder)
}

/** Null: there is no such file. Throws BatonError refused if a link has come into its place. */
export async function environmentIn(path: string): Promise<string | null> {
  const { text, owner } = await contentOf(path, path)
  return owner === null ? null : text
}

/** Throws BatonError refused if the path has become another one since it was decided. */
export async function setVariable(wanted: NonNullable<JobOrigin['compose']>): Promise<void> {
  const { environmentFile: path, variable, value } = wanted
  await using folder = await open(dirname(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  const isSame =
    wanted.folder === undefined
      ? (await readlink(here(folder))) === dirname(path)
      : (await identityOf(folder)) === wanted.folder
  if (!isSame) throw refused(`${dirname(path)} has been replaced by another folder`)
  const file = join(here(folder), basename(path))
  const { text, mode, owner } = await contentOf(file, path)
  const changed = withVariable(text, variable, value)
  if (changed === text) return
  const disk = makeDisk()
  await disk.replace(file, async (temporary) => {
    await using made = await disk.create(temporary, mode)
    if (owner !== null && process.geteuid?.() === 0) await made.chown(owner.uid, owner.gid)
    await made.writeFile(changed)
    await disk.flush(made, temporary)
  })
  await disk.flushDirectory(here(folder))
}

/** The text of a `.env` with one variable set; all other lines as they are. Pure. */
export function withVariable(text: string, name: string, value: string): string {
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n')
  const at = lines.findLastIndex((line) => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`).test(line))
  if (at < 0) lines.push(`${name}=${value}`)
  else lines[at] = `${name}=${value}`
  return `${lines.join('\n')}\n`
}

/** An open folder's path, whatever becomes of its name. */
function here({ fd }: FileHandle): string {
  return `/proc/self/fd/${fd}`
}

async function identityOf(folder: FileHandle): Promise<string> {
  const { dev, ino } = await folder.stat()
  return `${dev}:${ino}`
}

/** `path`: as a person knows the file. */
async function contentOf(file: string, path: string) {
  try {
    await using found = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    const { mode, uid, gid } = await found.stat()
    return { text: await found.readFile('utf8'), mode: mode & 0o777, owner: { uid, gid } }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP') throw refused(`${path} is now a link`)
    if (code !== 'ENOENT') throw error
    return { text: '', mode: 0o600, owner: null } // it may hold secrets
  }
}

function refused(what: string): BatonError {
  return new BatonError(
    'refused',
    `${what}: because this command may be run as root, it writes only where no other user can change the path`,
    {
      hint: 'if the path contains a link, replace it with a real file or folder, or make root its owner with `chown -h root`',
    },
  )
}
