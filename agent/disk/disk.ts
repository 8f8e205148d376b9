// Every change that Baton makes to the disk goes through here, one function a change, so that a test can kill the
// process before and after each one (`witness`). What a file looks like after a power cut is said at each caller.
// Must hold: a file appears under its final name whole and flushed, or not at all.

import {
  constants,
  type FileHandle,
  lchown,
  copyFile,
  link,
  lstat,
  mkdir,
  open,
  rename,
  rm,
  stat,
  statfs,
} from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { basename, dirname, join } from 'node:path'

export type Change = 'create' | 'flush' | 'chmod' | 'link' | 'rename' | 'remove' | 'flush-directory' | 'make-directory'

/** Called around each change; tests kill the process from it. */
export type Witness = (moment: 'before' | 'after', change: Change, path: string) => void

export interface Disk {
  /** Opens a new file at `path` for writing; fails with EEXIST where there is anything. Owned by the owner of its directory. */
  create(path: string, mode: number): Promise<FileHandle>
  /** fsync of an open file */
  flush(file: FileHandle, path: string): Promise<void>
  /** fsync of a file that something else has written */
  flushPath(path: string): Promise<void>
  chmod(path: string, mode: number): Promise<void>
  /** The content of `from` into a new file at `path`, flushed; shares the blocks where the file system can. */
  copy(from: string, path: string, mode: number): Promise<void>
  /** A second name for the same file; fails where `to` exists. */
  link(from: string, to: string): Promise<void>
  /** Atomic; replaces `to`. */
  rename(from: string, to: string): Promise<void>
  /** Nothing happens where there is no such file. */
  remove(path: string): Promise<void>
  /** a folder with all that is in it; not at one stroke, so rename it to where nobody looks first */
  removeFolder(path: string): Promise<void>
  /** fsync of a directory: makes the renames and links in it durable */
  flushDirectory(path: string): Promise<void>
  /** With its parents; nothing happens where it exists. Owned by the owner of the nearest existing parent. */
  makeDirectory(path: string, mode: number): Promise<void>
  /** `text` under `path`, all or nothing: temporary name, flush, rename, flush of the directory. */
  writeWhole(path: string, text: string, mode: number): Promise<void>
  /** As `writeWhole`, but a power cut may lose it: for what only informs. */
  writeNote(path: string, text: string, mode: number): Promise<void>
  /** Gives `path` another file's content under a second name, replacing what `path` was, all or nothing. */
  linkOver(from: string, path: string): Promise<void>
}

export function makeDisk(witness: Witness = () => {}): Disk {
  const single = makeChanges(witness)
  const write = async (path: string, text: string, mode: number, isFlushed: boolean): Promise<void> => {
    const temporary = temporaryName(path)
    const file = await single.create(temporary, mode)
    try {
      await file.writeFile(text)
      if (isFlushed) await single.flush(file, temporary)
    } finally {
      await file.close()
    }
    await single.rename(temporary, path)
    if (isFlushed) await single.flushDirectory(dirname(path))
  }
  return {
    ...single,
    writeWhole: (path, text, mode) => write(path, text, mode, true),
    writeNote: (path, text, mode) => write(path, text, mode, false),
    async copy(from, path, mode) {
      await (await single.create(path, mode)).close()
      await copyFile(from, path, constants.COPYFILE_FICLONE)
      await single.flushPath(path)
    },
    async linkOver(from, path) {
      const temporary = temporaryName(path)
      await single.link(from, temporary)
      await single.rename(temporary, path)
      // rename(2) of two names of one file does nothing and leaves both
      await single.remove(temporary)
    },
  }
}

/** One change each, seen by the witness before and after it. */
function makeChanges(witness: Witness): Omit<Disk, 'copy' | 'writeWhole' | 'writeNote' | 'linkOver'> {
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
          // O_EXCL: what is planted under a predictable name, a link or somebody else's file, must not lead a write elsewhere
          const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
          const made = await open(path, flags, mode)
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
        await using file = await open(path, constants.O_RDWR | constants.O_NOFOLLOW)
        await file.sync()
      }),
    chmod: (path, mode) =>
      around('chmod', path, async () => {
        await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
        await file.chmod(mode)
        await file.sync()
      }),
    link: (from, to) => around('link', to, () => link(from, to)),
    rename: (from, to) => around('rename', to, () => rename(from, to)),
    remove: (path) => around('remove', path, () => rm(path, { force: true })),
    removeFolder: (path) => around('remove', path, () => rm(path, { recursive: true, force: true })),
    flushDirectory: (path) =>
      around('flush-directory', path, async () => {
        await using directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY)
        await directory.sync()
      }),
    makeDirectory: (path, mode) =>
      around('make-directory', path, async () => {
        const first = await mkdir(path, { recursive: true, mode })
        if (first === undefined) return
        await giveToOwnerOf(dirname(first), async (uid, gid) => {
          for (let made = path; made.length >= first.length; made = dirname(made)) await lchown(made, uid, gid)
        })
      }),
  }
}

/** Whether both paths name one file; false if either names none. */
export async function sameFile(one: string, other: string): Promise<boolean> {
  try {
    const [a, b] = await Promise.all([stat(one), stat(other)])
    return a.dev === b.dev && a.ino === b.ino
  } catch {
    return false
  }
}

/** Whether there is something of that name, be it a link that leads nowhere. */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path)
    return true
  } catch {
    return false
  }
}

/** Left free on every disk that we write to: a service must never be refused a write because of us. */
export const ROOM_BYTES = 32 * 1024 * 1024

/** Bytes that may be written in `directory` until only the service's room is left; negative where it is not there now. */
export async function roomIn(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory)
  return bavail * bsize - ROOM_BYTES
}

/** For a message: 96 MiB. */
export function mebibytes(bytes: number, round = Math.ceil): string {
  return `${round(bytes / 1024 ** 2)} MiB`
}

/** `path`, or the first of the directories above it that is there. */
export async function nearestExisting(path: string): Promise<string> {
  let current = path
  while (current !== '/' && !(await exists(current))) current = dirname(current)
  return current
}

/** The text of a file of ours; null where it has more than `maxBytes`: then it is not read, nor ours. */
export async function readSmall(path: string, maxBytes: number): Promise<string | null> {
  await using file = await open(path)
  const { size } = await file.stat()
  return size > maxBytes ? null : await file.readFile('utf8')
}

/** of open(2): O_TMPFILE without O_DIRECTORY, which Node does not name; the same on every architecture that it runs on */
const UNNAMED = 0o20000000

/** Whether a file could be made there: it is, without a name, so that nothing is left whatever happens. False also where the file system has no such files. */
export async function canMakeUnnamed(directory: string): Promise<boolean> {
  try {
    await (await open(directory, constants.O_WRONLY | constants.O_DIRECTORY | UNNAMED, 0o600)).close()
    return true
  } catch {
    return false
  }
}

/** Hidden, in the same directory, recognised by `isLeftover`. */
export function temporaryName(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
}

/** Whether `name` is one that `temporaryName` made: what an interrupted process has left behind. */
export function isLeftover(name: string): boolean {
  return /^\..+\.[0-9a-f]{12}\.tmp$/.test(name)
}

/** As root (a command line run by hand) what we make in somebody's directory must be theirs, or their service cannot replace it. */
async function giveToOwnerOf(directory: string, give: (uid: number, gid: number) => Promise<void>): Promise<void> {
  if (process.getuid?.() !== 0) return
  const { uid, gid } = await stat(directory)
  if (uid !== 0 || gid !== 0) await give(uid, gid)
}
