// Unpacks the application inside an executable, once for each content:
//
//   <directory of the executable>/.<service>/<first 16 of the archive's sha256>/   app/ complete tags/<tag> cache/
//
// The folder has the service's name because the candidate, the executable and its backup share it. After a power cut the disk
// holds: at steps 1 to 3 a `.partial-…`, which nothing starts and a later unpacking removes; from step 4 on the whole folder.
// Must hold: an application that starts was written whole and flushed, by this user or by root, in a folder that nobody else can
// write to.

import {
  chmodSync,
  closeSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname, join, sep } from 'node:path'
import { type OwnWords, refuse } from './release.ts'

export interface Unpacked {
  /** folder with app/ and cache/ */
  directory: string
  fresh: boolean
}

const BLOCK = 512
/** a `.partial-…` older than this is abandoned, if its process is gone */
const STALE_MS = 10 * 60_000
/** in a state directory or a cache, the applications that were started last stay; a removed one is unpacked again when it starts */
const KEPT = 3
const OTHERS_MAY_WRITE = 0o022
/** many small files, or a very large one, take a minute, in which nothing answers */
const SAY_EVERY_MS = 5000

const DAMAGED = 'the application inside this executable is damaged'

/** Finds the unpacked folder or makes it. If no place will do, or the archive is damaged, ends the process and prints the reason for each place. */
export function unpack(release: OwnWords, archive: () => Buffer): Unpacked {
  const { sha256 } = archiveOf(release)
  const faults: string[] = []
  for (const [rank, home] of homesOf(release.service).entries()) {
    const directory = join(home, sha256.slice(0, 16))
    try {
      const found = look(home, directory, sha256)
      if (!found) write(home, directory, release, archive)
      noteTag(directory, release.tag)
      if (!found && rank > 0) removeOlder(home) // beside the executable, an update does it: it knows what is needed
      return { directory, fresh: !found }
    } catch (cause) {
      const why = reasonOf(cause)
      if (why === DAMAGED)
        // another place does not help
        return refuse(`cannot unpack ${release.service} ${release.tag}: ${why}`, 'download the executable again')
      faults.push(`${home}: ${why}`)
    }
  }
  return refuse(
    `could not find a place to unpack ${release.service} ${release.tag}: ${faults.join('; ')}`,
    'make one of these a directory that only this user can write to, on a disk that has free space and allows programs to run',
  )
}

/** Folders to unpack into, the best first. */
function homesOf(service: string): string[] {
  const { STATE_DIRECTORY, XDG_CACHE_HOME, HOME } = process.env
  const state = STATE_DIRECTORY?.split(':')[0]
  const cache = XDG_CACHE_HOME?.startsWith('/') ? XDG_CACHE_HOME : HOME?.startsWith('/') ? join(HOME, '.cache') : null
  return [
    join(dirname(process.execPath), `.${service}`),
    ...(state?.startsWith('/') ? [join(state, '.unpacked')] : []),
    ...(cache === null ? [] : [join(cache, service)]),
  ]
}

/** Whether the whole application is there. Throws if the folder must not be trusted. */
function look(home: string, directory: string, sha256: string): boolean {
  if (!isOurs(home) || !isOurs(directory)) return false
  let mark: string
  try {
    mark = readFileSync(join(directory, 'complete'), 'latin1')
  } catch (cause) {
    throw new Error(`${directory} is not marked as completely unpacked (${reasonOf(cause)})`, { cause })
  }
  if (mark.trim() !== sha256) throw new Error(`${directory} is marked as belonging to another release`)
  return true
}

/** False if nothing is there. Throws if another user could have made the folder, or could change it. */
function isOurs(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return false
  const me = process.getuid?.() ?? 0
  if (!found.isDirectory()) throw new Error(`${path} is not a directory`)
  if (found.uid !== me && found.uid !== 0) throw new Error(`${path} belongs to user id ${found.uid}`)
  if (found.mode & OTHERS_MAY_WRITE)
    throw new Error(`${path} is writable by others (${(found.mode & 0o777).toString(8)})`)
  return true
}

function write(home: string, directory: string, release: OwnWords, archive: () => Buffer): void {
  const { sha256 } = archiveOf(release)
  // not recursive: a missing parent means a wrong place (and under /proc a recursive `mkdir` never returns)
  if (!isOurs(home)) makeHome(home)
  removeStale(home)
  const partial = join(home, `.partial-${process.pid}-${Date.now()}`)
  mkdirSync(partial, { mode: 0o755 }) // 1
  try {
    const bytes = archive()
    if (process.getBuiltinModule('node:crypto').hash('sha256', bytes) !== sha256) throw new Error(DAMAGED)
    const say = (line: string) => void process.stderr.write(`${line}\n`)
    const now = () => performance.now()
    const tell = slowTeller(`${release.service} ${release.tag}`, bytes.length, { say, now })
    extract(bytes, join(partial, 'app'), tell) // 2
    tryAddons(join(partial, 'app'))
    mkdirSync(join(partial, 'tags'))
    writeFileSync(join(partial, 'complete'), `${sha256}\n`, { flush: true }) // 3
    chmodSync(partial, 0o755)
    flush(partial)
    try {
      renameSync(partial, directory) // 4
    } catch (cause) {
      // another process was first; name and mark show that its folder holds the same
      if (!['ENOTEMPTY', 'EEXIST'].includes(codeOf(cause)) || !look(home, directory, sha256)) throw cause
    }
    flush(home)
  } finally {
    discard(partial)
  }
}

/** A failed removal must not hide why the unpacking failed, and nothing uses the folder. */
function discard(partial: string): void {
  try {
    rmSync(partial, { recursive: true, force: true })
  } catch {
    return // a later unpacking removes it
  }
}

function makeHome(home: string): void {
  try {
    mkdirSync(home, { mode: 0o755 })
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT' && lstatSync(dirname(dirname(home)), { throwIfNoEntry: false })?.isDirectory()) {
      mkdirSync(dirname(home), { mode: 0o700 }) // ~/.cache
      mkdirSync(home, { mode: 0o755 })
    } else if (codeOf(cause) !== 'EEXIST') throw cause
  }
  chmodSync(home, 0o755) // whatever the umask is
  isOurs(home)
}

/** Every file, link and directory of the archive, each flushed. `tell` takes the bytes that are done. */
function extract(tar: Buffer, into: string, tell: (doneBytes: number) => void): void {
  const directories = new Set<string>()
  const make = (directory: string) => {
    if (directories.has(directory)) return
    mkdirSync(directory, { recursive: true })
    directories.add(directory)
  }
  make(into)
  let longName: string | null = null
  let longLink: string | null = null
  for (let at = 0; tar[at] !== 0 && at < tar.length;) {
    const header = tar.subarray(at, at + BLOCK)
    const size = Number.parseInt(textAt(header, 124, 12), 8)
    const type = String.fromCharCode(header[156] ?? 0)
    const body = tar.subarray(at + BLOCK, at + BLOCK + size)
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK
    if (type === 'x') {
      const records = recordsOf(body)
      longName = records.get('path') ?? longName
      longLink = records.get('linkpath') ?? longLink
      continue
    }
    const path = join(into, longName ?? textAt(header, 0, 100))
    if (!path.startsWith(into + sep))
      throw new Error(`the application inside this executable has a file outside its folder: ${path}`)
    make(dirname(path))
    if (type === '2') symlinkSync(longLink ?? textAt(header, 157, 100), path)
    else writeFile(path, body, Number.parseInt(textAt(header, 100, 8), 8))
    longName = longLink = null
    tell(at)
  }
  for (const directory of directories) flush(directory)
}

/** POSIX.1-2001 pax: `<length of the record> <key>=<value>\n`. A value may have a line end in it, so the length alone counts. */
function recordsOf(body: Buffer): Map<string, string> {
  const records = new Map<string, string>()
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(' ', at)
    const length = Number(body.subarray(at, space))
    if (space === -1 || !(length > space - at)) throw new Error(DAMAGED)
    const record = body.toString('utf8', space + 1, at + length - 1)
    const is = record.indexOf('=')
    records.set(record.slice(0, is), record.slice(is + 1))
    at += length
  }
  return records
}

function writeFile(path: string, body: Buffer, mode: number): void {
  const file = openSync(path, 'wx', mode)
  try {
    for (let done = 0; done < body.length;) done += writeSync(file, body, done, body.length - done)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

/** Throws if the file system is mounted noexec: native addons cannot be loaded from it. Better to fail now than at a request. */
function tryAddons(app: string): void {
  const elf = process.platform === 'linux' ? Buffer.from([0x7f, 0x45, 0x4c, 0x46]) : null
  if (elf === null) return
  for (const entry of readdirSync(app, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.node')) continue
    try {
      process.dlopen({ exports: {} }, join(entry.parentPath, entry.name))
      return
    } catch (cause) {
      const why = reasonOf(cause)
      // this addon is for another platform, or needs something that only its own loader brings: try the next one
      if (!/failed to map segment|Operation not permitted|Permission denied/i.test(why)) continue
      throw new Error(`programs cannot be loaded from this folder (is it mounted noexec?): ${why}`, { cause })
    }
  }
}

function removeStale(home: string): void {
  for (const name of readdirSync(home)) {
    const pid = Number(/^\.partial-(\d+)-/.exec(name)?.[1] ?? Number.NaN)
    const path = join(home, name)
    // in a container every process that unpacks may have the same pid, and this one has begun nothing yet
    if (Number.isNaN(pid) || (pid !== process.pid && isAlive(pid))) continue
    const { mtimeMs = Date.now() } = lstatSync(path, { throwIfNoEntry: false }) ?? {}
    if (Date.now() - mtimeMs > STALE_MS) rmSync(path, { recursive: true, force: true })
  }
}

/** A failure must not keep the application from starting. Leaves a folder in which an application has written. */
function removeOlder(home: string): void {
  try {
    const all = readdirSync(home).filter((name) => /^[0-9a-f]{16}$/.test(name))
    const changedAt = (...path: string[]) => lstatSync(join(home, ...path), { throwIfNoEntry: false })?.mtimeMs ?? 0
    const lastFirst = all.toSorted((one, other) => changedAt(other, 'tags') - changedAt(one, 'tags'))
    for (const name of lastFirst.slice(KEPT)) {
      const files = readdirSync(join(home, name, 'app'), { recursive: true, encoding: 'utf8' })
      if (files.some((file) => changedAt(name, 'app', file) > changedAt(name, 'complete'))) continue
      const aside = join(home, `.partial-${process.pid}-${name}`) // a kill leaves it, nothing starts it, and the next unpacking removes it
      renameSync(join(home, name), aside)
      rmSync(aside, { recursive: true })
    }
  } catch {
    return
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (cause) {
    return codeOf(cause) === 'EPERM'
  }
}

/** Notes that this release uses the folder, and when: it is removed when no release does. A folder of root's gets no note, and stays. */
function noteTag(directory: string, tag: string): void {
  try {
    utimesSync(join(directory, 'tags'), new Date(), new Date())
    writeFileSync(join(directory, 'tags', tag), '', { flag: 'wx' })
  } catch {
    return
  }
}

function archiveOf({ archive }: OwnWords): NonNullable<OwnWords['archive']> {
  if (archive === undefined) throw new Error('this executable contains no application')
  return archive
}

function flush(path: string): void {
  const file = openSync(path, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

interface Teller {
  say(line: string): void
  /** in milliseconds */
  now(): number
}

/** Says how far an unpacking is, if it takes long. Takes the bytes that are done so far. `what`: such as `shop v1.0.0`. */
export function slowTeller(what: string, totalBytes: number, { say, now }: Teller): (doneBytes: number) => void {
  let saidAt = now()
  return (doneBytes) => {
    if (now() - saidAt < SAY_EVERY_MS) return
    saidAt = now()
    const percent = Math.floor((100 * doneBytes) / totalBytes)
    say(`baton: unpacking ${what} (first start only): ${percent}% of ${Math.round(totalBytes / 1e6)} MB`)
  }
}

function textAt(header: Buffer, from: number, length: number): string {
  const end = header.indexOf(0, from)
  return header.toString('utf8', from, end < 0 || end > from + length ? from + length : end)
}

function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : ''
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
}
