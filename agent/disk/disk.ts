// An operation changes the disk through these functions only, one for each kind of change, so that a test can kill the process before and
// after each (`witness`). What is copied or exchanged of a database goes through database-set.ts instead. The head of each file that calls
// these says what a power cut leaves.
// Must hold: `writeWhole` leaves the old file or the new one, complete and flushed. Only `writeNote` may be lost.

import { closeSync, constants, openSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { nodeFiles } from '../words/later.ts'
import { temporaryName } from './places.ts'

export type Change = 'create' | 'flush' | 'chmod' | 'link' | 'rename' | 'remove' | 'flush-directory' | 'make-directory'

/** Called before and after each change; tests kill the process from it. */
export type Witness = (moment: 'before' | 'after', change: Change, path: string) => void

export interface Disk {
  /**
   * Opens a new file at `path` for writing. Fails with EEXIST if the path exists. The file belongs to the owner of its directory.
   */
  create(path: string, mode: number): Promise<FileHandle>
  /** fsync of an open file */
  flush(file: FileHandle, path: string): Promise<void>
  /** fsync of a file that was written without this interface */
  flushPath(path: string): Promise<void>
  chmod(path: string, mode: number): Promise<void>
  /** Copies `from` into a new file at `path`, flushed. Shares the blocks if the file system can. */
  copy(from: string, path: string, mode: number): Promise<void>
  /** A second name for the same file. Fails if `to` exists. */
  link(from: string, to: string): Promise<void>
  /** Atomic; replaces `to`. */
  rename(from: string, to: string): Promise<void>
  /** Removes a file; does nothing if there is none. */
  remove(path: string): Promise<void>
  /** Removes a folder with its content. Not atomic: rename it first, to a name that no reader looks at. */
  removeFolder(path: string): Promise<void>
  /** fsync of a directory: makes its renames and links durable */
  flushDirectory(path: string): Promise<void>
  /** Makes a directory and its parents; does nothing if it exists. It belongs to the owner of the nearest existing parent. */
  makeDirectory(path: string, mode: number): Promise<void>
  /** Writes `text` to `path`, all or nothing: temporary name, flush, rename, flush of the directory. */
  writeWhole(path: string, text: string, mode: number): Promise<void>
  /** As `writeWhole`, but a power cut may lose it. For files that only inform. */
  writeNote(path: string, text: string, mode: number): Promise<void>
  /** Puts the file that `make` makes under a temporary name at `path`, all or nothing. A failure leaves no temporary file. */
  replace(path: string, make: (temporary: string) => Promise<void>): Promise<void>
  /** Makes `path` a second name of the file `from`, replacing what `path` was, all or nothing. */
  linkOver(from: string, path: string): Promise<void>
}

export function makeDisk(witness: Witness = () => {}): Disk {
  const single = makeChanges(witness)
  const replace: Disk['replace'] = async (path, make) => {
    const temporary = temporaryName(path)
    try {
      await make(temporary)
      await single.rename(temporary, path)
    } catch (cause) {
      await single.remove(temporary).catch(() => {})
      throw cause
    }
  }
  const write = async (path: string, text: string, mode: number, isFlushed: boolean): Promise<void> => {
    await replace(path, async (temporary) => {
      await using file = await single.create(temporary, mode)
      await file.writeFile(text)
      if (isFlushed) await single.flush(file, temporary)
    })
    if (isFlushed) await single.flushDirectory(dirname(path))
  }
  return {
    ...single,
    replace,
    writeWhole: (path, text, mode) => write(path, text, mode, true),
    writeNote: (path, text, mode) => write(path, text, mode, false),
    async copy(from, path, mode) {
      await (await single.create(path, 0o600)).close()
      await nodeFiles().copyFile(from, path, constants.COPYFILE_FICLONE)
      await using file = await nodeFiles().open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
      await file.chmod(mode) // copyFile has given it that of `from`
      await single.flush(file, path)
    },
    async linkOver(from, path) {
      const temporary = temporaryName(path)
      try {
        await single.link(from, temporary)
        await single.rename(temporary, path)
      } finally {
        // rename(2) does nothing if both names are the same file, and leaves both
        await single.remove(temporary)
      }
    },
  }
}

/** The single changes, each seen by the witness before and after. */
function makeChanges(witness: Witness): Omit<Disk, 'copy' | 'writeWhole' | 'writeNote' | 'replace' | 'linkOver'> {
  const around = async <T>(change: Change, path: string, act: () => Promise<T>): Promise<T> => {
    witness('before', change, path)
    const result = await act()
    witness('after', change, path)
    return result
  }
  return {
    create: async (path, mode) => {
      let file = null as FileHandle | null
      try {
        return await around('create', path, async () => {
          // O_EXCL: a link or another user's file, planted under a predictable name, must not redirect a write
          const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
          const made = await nodeFiles().open(path, flags, mode)
          file = made
          await made.chmod(mode)
          await giveToOwnerOf(dirname(path), (uid, gid) => made.chown(uid, gid))
          return made
        })
      } catch (error) {
        await file?.close()
        throw error
      }
    },
    flush: (file, path) => around('flush', path, () => file.sync()),
    flushPath: (path) =>
      around('flush', path, async () => {
        await using file = await nodeFiles().open(path, constants.O_RDWR | constants.O_NOFOLLOW)
        await file.sync()
      }),
    chmod: (path, mode) =>
      around('chmod', path, async () => {
        await using file = await nodeFiles().open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
        await file.chmod(mode)
        await file.sync()
      }),
    link: (from, to) => around('link', to, () => nodeFiles().link(from, to)),
    rename: (from, to) => around('rename', to, () => nodeFiles().rename(from, to)),
    remove: (path) => around('remove', path, () => nodeFiles().rm(path, { force: true })),
    removeFolder: (path) => around('remove', path, () => nodeFiles().rm(path, { recursive: true, force: true })),
    flushDirectory: (path) =>
      around('flush-directory', path, async () => {
        await using directory = await nodeFiles().open(path, constants.O_RDONLY | constants.O_DIRECTORY)
        await directory.sync()
      }),
    makeDirectory: (path, mode) =>
      around('make-directory', path, async () => {
        const first = await nodeFiles().mkdir(path, { recursive: true, mode })
        if (first === undefined) return
        await giveToOwnerOf(dirname(first), async (uid, gid) => {
          for (let made = path; made.length >= first.length; made = dirname(made))
            await nodeFiles().lchown(made, uid, gid)
        })
      }),
  }
}

/** Whether both paths name one file; false if either names none. */
export async function sameFile(one: string, other: string): Promise<boolean> {
  try {
    const [a, b] = await Promise.all([nodeFiles().stat(one), nodeFiles().stat(other)])
    return a.dev === b.dev && a.ino === b.ino
  } catch {
    return false
  }
}

/** Whether the path exists, even as a link that leads nowhere. */
export async function exists(path: string): Promise<boolean> {
  try {
    await nodeFiles().lstat(path)
    return true
  } catch {
    return false
  }
}

/** For messages: `96 MiB`. */
export function mebibytes(bytes: number, round = Math.ceil): string {
  return `${round(bytes / 1024 ** 2)} MiB`
}

/** `path`, or the nearest directory above it that exists. */
export async function nearestExisting(path: string): Promise<string> {
  let current = path
  while (current !== '/' && !(await exists(current))) current = dirname(current)
  return current
}

/** The text of one of Baton's files. Null, and unread, if it has more than `maxBytes` or is a pipe or a device. Throws for a folder. */
export async function readSmall(path: string, maxBytes: number): Promise<string | null> {
  await using file = await nodeFiles().open(path, constants.O_NONBLOCK) // a pipe would be waited for
  const found = await file.stat()
  const isEndless = !found.isFile() && !found.isDirectory() // reading a folder throws
  return isEndless || found.size > maxBytes ? null : await file.readFile('utf8')
}

/**
 * open(2): O_TMPFILE without O_DIRECTORY. Node does not name it; its value is the same on every architecture that Node runs on
 */
const UNNAMED = 0o20000000

/**
 * Whether a file can be made in `directory`. Makes one without a name, so that nothing is left behind. Also false if the file
 * system does not support such files.
 */
export function canMakeUnnamed(directory: string): boolean {
  const file = openUnnamed(directory)
  if (file !== null) closeSync(file)
  return file !== null
}

/**
 * Descriptor of a new file without a name in `directory`, to read and write; it ends with its last descriptor. Null if the file
 * system has none.
 */
export function openUnnamed(directory: string): number | null {
  try {
    return openSync(directory, constants.O_RDWR | constants.O_DIRECTORY | UNNAMED, 0o600)
  } catch {
    return null
  }
}

/** Gives a file that root makes (in a command run by hand) to the owner of its directory, or the service could not replace it. */
async function giveToOwnerOf(directory: string, give: (uid: number, gid: number) => Promise<void>): Promise<void> {
  if (process.getuid?.() !== 0) return
  const { uid, gid } = await nodeFiles().stat(directory)
  if (uid !== 0 || gid !== 0) await give(uid, gid)
}
