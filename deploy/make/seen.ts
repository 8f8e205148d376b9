// What an application that was started once has open: its databases, the ports on which it listens, and the processes that it has
// started. The build compares that with `baton.config.json`; `init` proposes settings by it.
// Must hold: it reads, and never writes. It looks from another process than the application's: a process that opens and closes a
// database loses its own locks on it. Null except on Linux: nothing was seen.

import { type Dirent, existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join, relative, sep } from 'node:path'
import { descendantsOf, isDatabase, isMadeAgain, writtenIn } from '../../agent/install.ts'
import { boundSockets, openFilesBelow } from '../lib/open-files.ts'
import { readProc } from '../lib/proc.ts'
import type { Project } from './project.ts'

export interface Looked {
  /** absolute paths of SQLite databases, sorted */
  databases: string[]
  /** TCP ports on which it listens, sorted */
  ports: number[]
  /** names of the processes that it has started */
  children: string[]
}

const DATABASES_MAX = 16
/** files of a state directory that a trial start looks at */
const FILES_MAX = 2000
const NAMES_MAX = 8
/** what folders of data are called */
const DATA = /^(data|database|db|storage|store|uploads?|files|var|content)$/i
/** Baton's own, in a state directory */
export const BATONS = ['update', 'run', '.unpacked']

/** What the process has open at this moment, and everything below it. */
export async function lookAt(pid: number): Promise<Looked | null> {
  if (process.platform !== 'linux') return null
  const files = await openFilesBelow(pid)
  const paths = [...new Set(files.map(({ target }) => target))].filter((target) => target.startsWith('/'))
  const children = await Promise.all(
    descendantsOf(pid).map(async (child) => (await readProc(`/proc/${child.pid}/comm`)).trim()),
  )
  return {
    databases: await databasesAmong(paths),
    ports: sortedPorts((await boundSockets(pid, files, 'tcp')).flatMap((one) => (one.isListening ? one.port : []))),
    children: children.filter((name) => name !== ''),
  }
}

/** What any of the looks has seen; of the last one's children only, since one of an earlier look may have ended its work. */
export function allLooks(looks: readonly (Looked | null)[]): Looked | null {
  const seen = looks.filter((look) => look !== null)
  const last = seen.at(-1)
  if (last === undefined) return null
  return {
    databases: [...new Set(seen.flatMap(({ databases }) => databases))].toSorted(),
    ports: sortedPorts(seen.flatMap(({ ports }) => ports)),
    children: last.children,
  }
}

/** Databases in the state directory of a trial start that has ended: also those that the application opens only for a moment. */
export async function databasesBelow(stateDirectory: string): Promise<string[]> {
  const entries = await readdir(stateDirectory, { recursive: true, withFileTypes: true }).catch(() => [])
  return await databasesAmong(entries.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name))).then(
    (all) => all.filter((path) => !isBatons(relative(stateDirectory, path))),
  )
}

/** What a start leaves in the state directory besides databases and Baton's own: names there, sorted, at most NAMES_MAX. */
export async function keptBelow(stateDirectory: string): Promise<string[]> {
  const entries = await readdir(stateDirectory, { withFileTypes: true }).catch(() => [])
  const names = await Promise.all(
    entries.map(async (entry) => {
      if (isBatons(entry.name) || !(await isMoreThanDatabases(stateDirectory, entry))) return []
      return [entry.isDirectory() ? `${entry.name}/` : entry.name]
    }),
  )
  return names.flat().toSorted().slice(0, NAMES_MAX)
}

async function isMoreThanDatabases(folder: string, entry: Dirent): Promise<boolean> {
  const path = join(folder, entry.name)
  if (/-(wal|shm|journal)$/.test(entry.name)) return false
  if (!entry.isDirectory()) return !(entry.isFile() && (await isDatabase(path)))
  const inside = await readdir(path, { withFileTypes: true }).catch(() => [])
  for (const one of inside) if (await isMoreThanDatabases(path, one)) return true
  return inside.length === 0
}

/** Files of the application's own folder that have changed since `sinceMs` (of another file's mtimeMs), at most NAMES_MAX, and none of its packages. */
export async function writtenSince(folder: string, sinceMs: number): Promise<string[]> {
  const found: string[] = []
  const folders = ['']
  for (let left = FILES_MAX; left > 0 && folders.length > 0 && found.length < NAMES_MAX;) {
    const at = folders.shift() ?? ''
    for (const entry of await readdir(join(folder, at), { withFileTypes: true }).catch(() => [])) {
      if (left-- <= 0) break
      const path = join(at, entry.name)
      if (entry.isDirectory() && !isMadeAgain(entry.name)) folders.push(path)
      if (!entry.isFile()) continue
      const { mtimeMs } = await stat(join(folder, path)).catch(() => ({ mtimeMs: 0 }))
      if (mtimeMs >= sinceMs) found.push(path)
    }
  }
  return found.toSorted().slice(0, NAMES_MAX)
}

/**
 * What an application looked for in the directory in which it was started, its state directory, and what lies in its own folder instead:
 * names there, sorted, at most NAMES_MAX. `absent`: relative paths. Leaves out what it has made there since, and what no release has.
 */
export async function lyingIn(folder: string, stateDirectory: string, absent: readonly string[]): Promise<string[]> {
  const names = new Set<string>()
  for (const path of absent) {
    const [first = ''] = path.split(sep)
    if (first.startsWith('.') || isMadeAgain(first)) continue
    if ((await stat(join(stateDirectory, first)).catch(() => null)) !== null) continue
    const found = await stat(join(folder, path)).catch(() => null)
    // a server of files looks there for each path that it is asked for
    const around = path === first ? null : await stat(join(folder, dirname(path))).catch(() => null)
    if (found === null && around?.isDirectory() !== true) continue
    names.add(path === first && found?.isDirectory() !== true ? first : `${first}/`)
  }
  return [...names].toSorted().slice(0, NAMES_MAX)
}

/** Pure. `names`: of `lyingIn`; `written`: what the application has made in its state directory. */
export function sentencesOfCwd(
  names: readonly string[],
  written: readonly string[],
  { kind, called }: Pick<Project, 'kind' | 'called'>,
): string[] {
  if (names.length === 0) return []
  const way = kind === 'app' ? '' : ` (and \`"kind": "app"\`, since a ${kind} has no folder)`
  const such = written.length === 0 ? '' : `, such as ${written.join(', ')},`
  return [
    `the application looks for ${names.join(', ')} in its working directory, which on a host is the state directory: to start it in its own folder, set \`"cwd": "app"\`${way} in ${called}. Files that it writes to relative paths${such} are then lost with each new release: to keep them, have it write to \`{stateDirectory}\``,
  ]
}

/**
 * What a start keeps in the release's own folder, which the next release does not have: relative paths, sorted, at most NAMES_MAX.
 * `makes`: directories that it makes if they are missing, absolute paths.
 */
export async function keptInside(unpacked: string, makes: readonly string[]): Promise<string[]> {
  const own = join(unpacked, 'app')
  const written = (await writtenIn(unpacked)).map((path) => relative(own, path))
  const made: string[] = []
  for (const path of makes.filter((one) => one.startsWith(own + sep))) {
    // a folder of the release that has pages or code in it is made sure of, and perhaps only read
    const isShipped = (await readdir(path).catch(() => [])).length > 0 && !DATA.test(basename(path))
    if (!isShipped) made.push(`${relative(own, path)}/`)
  }
  const names = [...new Set([...made.filter((name) => !isMadeAgain(name)), ...written])]
  const isAlone = (name: string) => !names.some((one) => one.endsWith('/') && one !== name && name.startsWith(one))
  return names.filter(isAlone).toSorted().slice(0, NAMES_MAX)
}

/** `names`: of `keptInside`. */
export function sentencesOfOwnFolder(
  names: readonly string[],
  { called, folder }: Pick<Project, 'called' | 'folder'>,
): string[] {
  if (names.length === 0) return []
  const here = names
    .filter((name) => existsSync(join(folder, name)))
    .map((name) => (name.endsWith('/') ? `${name}**` : name))
  const out =
    here.length === 0 ? '' : `; \`"exclude": ${JSON.stringify(here)}\` keeps your own files out of the release`
  return [
    `the application keeps files in its own folder (${names.join(', ')}), which would be missing after an update: ${dataElsewhere(called)}${out}`,
  ]
}

/** For a hint. `called`: the configuration's name. */
export function dataElsewhere(called: string): string {
  return `have the application keep its data in the state directory: let it read STATE_DIRECTORY, or, if it reads another variable, set that variable in ${called}, for example \`"environment": { "PORT": "{port}", "HOST": "{host}", "DATA_DIR": "{stateDirectory}" }\` (this replaces the default variables)`
}

/** Pure. `listens`: ports and paths. */
export function sentencesOfThreads(listens: readonly string[]): string[] {
  if (listens.length === 0) return []
  return [
    `a worker thread is listening on ${listens.map((one) => (one === '0' ? 'a random port' : one)).join(', ')}: an update hands over only what the main thread listens on, so clients of the worker are refused while it restarts, and in a start-first switch the new process finds the port in use. Listen in the main thread, and leave the work to the worker`,
  ]
}

/**
 * Pure. Splits absolute paths of databases. `inside`: of those below the state directory, as `database` of the configuration names
 * them, without Baton's own. `outside`: the others, unchanged.
 */
export function splitDatabases(
  all: readonly string[],
  stateDirectory: string,
): { inside: string[]; outside: string[] } {
  const isInside = (path: string) => path.startsWith(stateDirectory + sep)
  const inside = all.filter(isInside).map((path) => relative(stateDirectory, path))
  return { inside: inside.filter((path) => !isBatons(path)), outside: all.filter((path) => !isInside(path)) }
}

function isBatons(path: string): boolean {
  return BATONS.includes(path.split(sep)[0] ?? '')
}

async function databasesAmong(paths: readonly string[]): Promise<string[]> {
  const found: string[] = []
  for (const path of paths.slice(0, FILES_MAX)) {
    // nothing but a file is opened: the other end of a pipe may never come
    const isFile = (await stat(path).catch(() => null))?.isFile() === true
    if (isFile && (await isDatabase(path))) found.push(path)
    if (found.length >= DATABASES_MAX) break
  }
  return found.toSorted()
}

function sortedPorts(ports: readonly number[]): number[] {
  return [...new Set(ports)].toSorted((a, b) => a - b)
}
