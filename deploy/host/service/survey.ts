// Surveys the service's directories as the service's user, and makes the few changes that an installer needs there.
// Must never break: it opens nothing through a link, overwrites nothing, and removes only what it is given by name.

import { constants } from 'node:fs'
import { access, lstat, mkdir, readdir, rm, rmdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import {
  exists,
  installedTag,
  isLeftover,
  makeDisk,
  noteTag,
  placesOf,
  type Receipt,
  readReceiptBeside,
  receiptPath,
  unpackedHome,
  writtenIn,
} from '../../../agent/install.ts'
import { BatonError, reasonOf } from '../../../agent/words.ts'

export interface Survey {
  /** of this directory and of the state directory: `ours` if this user owns it or can write in it */
  directory: Place
  stateDirectory: Place
  executable: boolean
  /** tag of the executable; null if it does not run */
  installed: string | null
  /** service that a receipt beside the executable names: of an earlier installer, or of a user's install */
  besideNames: string | null
  /** the install's files in the directory of the executable, the receipt last */
  ours: string[]
  /** the folder that releases were unpacked into, if an application has written what may be data in there; null: it may go */
  written: string | null
}

export type Place = 'absent' | 'ours' | 'foreign'

export async function survey({
  service,
  executable,
  stateDirectory,
}: Pick<Receipt, 'service' | 'executable' | 'stateDirectory'>): Promise<Survey> {
  const found = await exists(executable)
  const beside = await readReceiptBeside(executable).catch(() => null)
  return {
    directory: await placeAt(dirname(executable)),
    stateDirectory: await placeAt(stateDirectory),
    executable: found,
    installed: found ? await installedTag(executable).catch(() => null) : null,
    besideNames: beside?.service ?? null,
    ...(await oursBeside(service, executable)),
  }
}

/** True if it made the directory, with its parents; false if this user had it already. Throws refused if it is another user's. */
export async function makeOwnDirectory(path: string, mode: number): Promise<boolean> {
  const place = await placeAt(path)
  if (place === 'ours') return false
  if (place === 'foreign') {
    throw new BatonError(
      'refused',
      `expected a directory owned by user id ${process.getuid?.() ?? 'unknown'} at ${path}, found one owned by another user`,
      {
        hint: "change its owner to the service's user, or choose another directory",
      },
    )
  }
  await mkdir(dirname(path), { recursive: true })
  await mkdir(path, { mode })
  return true
}

/** Copies this program to `path`, all or nothing, and notes its tag. */
export async function placeExecutable(from: string, path: string, stateDirectory: string, tag: string): Promise<void> {
  const disk = makeDisk()
  await disk.replace(path, (temporary) => disk.copy(from, temporary, 0o755))
  await disk.flushDirectory(dirname(path))
  const log = () => {}
  await noteTag({ disk, places: placesOf(path), stateDirectory, log }, { tag, sha256: null })
}

/** Removes these names, and follows no link. */
export async function removeAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) await rm(path, { force: true, recursive: basename(path).startsWith('.') })
}

/** Removes everything in a directory; returns what could not be removed, each as `path: reason`. */
export async function empty(path: string): Promise<string[]> {
  const names = await readdir(path).catch(() => [])
  const left: string[] = []
  for (const name of names) {
    await rm(join(path, name), { recursive: true, force: true }).catch((cause: unknown) => {
      left.push(`${join(path, name)}: ${reasonOf(cause)}`)
    })
  }
  return left
}

/** Removes the directory if it is empty and this user may; else it stays. */
export async function removeDirectory(path: string): Promise<void> {
  await rmdir(path).catch((error: NodeJS.ErrnoException) => {
    // not empty, a mount, or below a parent that this user cannot change: it stays
    if (!['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EACCES', 'EPERM', 'EBUSY', 'EROFS'].includes(error.code ?? '')) throw error
  })
}

/** Null if this user can write in the directory, else why not. */
export async function whyNotWritable(path: string): Promise<string | null> {
  return await access(path, constants.W_OK | constants.X_OK).then(() => null, reasonOf)
}

async function placeAt(path: string): Promise<Place> {
  const found = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null
    throw error
  })
  if (found === null) return 'absent'
  const isOurs = found.uid === process.getuid?.() || (await whyNotWritable(path)) === null
  return found.isDirectory() && isOurs ? 'ours' : 'foreign'
}

async function oursBeside(service: string, executable: string): Promise<Pick<Survey, 'ours' | 'written'>> {
  const { directory, backup, partial, former, aside } = placesOf(executable)
  const names = await readdir(directory).catch(() => [])
  const leftovers = names.filter((name) => isLeftover(name) && name.includes(service))
  const paths = [partial, former, aside, ...leftovers.map((name) => join(directory, name))]
  // a release of kind `app` is unpacked into `.<service>` beside the executable
  const home = unpackedHome(executable, service)
  const unpacked = (await readdir(home).catch(() => [])).map((name) => join(home, name))
  const isWritten = (await Promise.all(unpacked.map(writtenIn))).flat().length > 0
  paths.push(...(isWritten ? [] : [home]), backup, executable, receiptPath(executable))
  const found = await Promise.all(paths.map(async (path) => ((await exists(path)) ? path : null)))
  return { ours: found.filter((path) => path !== null), written: isWritten ? home : null }
}
