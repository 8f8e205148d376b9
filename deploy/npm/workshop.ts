// Where the releases of a service from npm are made on this host, and what is remembered of it from one run to the next.
// Must hold: what npm and packages may write is apart from what this program believes. A record is there whole or not at all, and a
// kill at any moment leaves at worst a folder that the next run begins anew.

import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { chmod, chown, lstat, mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { BatonError, compareTags, isTag } from '../../agent/words.ts'
import { formatBytes } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { assertTrusted } from '../lib/trusted.ts'
import { xdgFolder } from '../lib/xdg.ts'
import type { Recipe } from './recipe.ts'

export interface Workshop {
  service: string
  /** only its owner can change it; who holds its lock shares nothing with another run but what it reads */
  folder: string
  /** the feed of the install: release folders and releases.json */
  feed: string
  /** as whom npm and packages run; null: this is no root, and they run as its user */
  builder: number | null
}

export interface ServiceRecord {
  format: 1
  package: string
  service: string
  /** where its releases go */
  feed: string
  /** a range of versions; `*`: any */
  range: string
  /** what was typed behind `--` */
  args: string[]
  /** as it was when it was last named; null: none was there */
  recipe: Recipe | null
  /** packages whose install scripts may run, beside those of the recipe */
  allowed: string[]
  minAgeMs: number
  /** version -> integrity, as it was first seen */
  seen: Record<string, string>
  /** what its source showed when it was started once: see make/inside.ts; null: a recipe said it, or it was not started yet */
  shown: { database: string | null; healthPath: string | null; cwd: 'app' | null } | null
  /** oldest first; `madeOf`: see asked.ts, absent in records of before */
  built: { version: string; at: string; sizeBytes: number; madeOf?: string }[]
  /** what the last run has said of the newest version */
  told: string[]
  /** how far the take-over of a former install is (npm-adopt.ts); null: none was asked for */
  adopted: Adopted | null
}

/** `copied`: its data are, and nothing has changed them since */
export type Adopted = 'begun' | 'copied' | 'done'

/** how many versions stay on the disk */
export const KEPT_VERSIONS = 3
/** of npm's cache, before it is begun anew */
const CACHE_MAX_BYTES = 1024 ** 3
/**
 * No account of a host has these, nor any unit with `DynamicUser=` (https://systemd.io/UIDS-GIDS); and a container whose ids are mapped has them
 * too. Two services may have the same: neither sees the other's folders.
 */
const [FIRST_UID, UIDS] = [60_706, 478]

export function workshopsPlace(isRoot: boolean, given: string | null): string {
  if (given !== null) return given
  if (isRoot) return '/var/lib/baton-npm'
  return join(xdgFolder('XDG_DATA_HOME', { home: homedir(), environment: process.env }), 'baton-npm')
}

export function workshopOf(
  place: string,
  service: string,
  { isRoot, feed }: { isRoot: boolean; feed: string | null },
): Workshop {
  const folder = join(place, service)
  const number = createHash('sha256').update(service).digest().readUInt32BE(0) % UIDS
  return {
    service,
    folder,
    feed: feed ?? join(folder, 'feed'),
    builder: isRoot ? FIRST_UID + number : null,
  }
}

/** Makes its folders. The service's user reads the feed, and nobody else writes one: else throws BatonError refused. */
export async function openWorkshop({ folder, feed, builder }: Workshop): Promise<void> {
  if (builder !== null) await assertTrusted(feed, 'a folder of releases', 'use `--dir` to name a folder that root owns')
  const own = ['locks', 'empty', 'kit'].map((name) => join(folder, name))
  for (const path of [feed, ...own]) await mkdir(path, { recursive: true, mode: 0o755 })
}

/** A folder of the builder's, inside the workshop: empty, unless it is the builder's already and `keep`. */
export async function builderFolder({ folder, builder }: Workshop, name: string, keep = false): Promise<string> {
  const path = join(folder, name)
  const owner = (await lstat(path).catch(() => null))?.uid
  if (!keep || (builder !== null && owner !== builder)) await rm(path, { recursive: true, force: true })
  await mkdir(path, { recursive: true, mode: 0o700 })
  if (builder !== null) await chown(path, builder, builder)
  return path
}

/** Until the end of the scope no other run works there, nor after a kill of this one. Throws BatonError locked. */
export function lockWorkshop({ folder, service }: Workshop): Disposable {
  const lock = new DatabaseSync(join(folder, 'lock.db'))
  try {
    lock.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE')
  } catch (cause) {
    lock.close()
    throw new BatonError('locked', `another run of this command is already building releases of ${service}`, { cause })
  }
  return { [Symbol.dispose]: () => lock.close() }
}

export async function readKept({ folder }: Workshop): Promise<ServiceRecord | null> {
  const text = await readFile(join(folder, 'service.json'), 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return null
    throw cause
  })
  return text === null ? null : (JSON.parse(text) as ServiceRecord)
}

export async function writeKept({ folder }: Workshop, kept: ServiceRecord): Promise<void> {
  await writeWhole(join(folder, 'service.json'), `${JSON.stringify(kept, null, 2)}\n`)
}

async function writeWhole(path: string, text: string): Promise<void> {
  {
    await using file = await open(`${path}.partial`, 'w', 0o600)
    await file.writeFile(text)
    await file.sync()
  }
  await rename(`${path}.partial`, path)
}

/** Of a folder that the builder owns: no link is followed. */
export async function readBuilders(path: string, mostBytes: number): Promise<string> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  const found = await file.stat()
  if (!found.isFile() || found.size > mostBytes)
    throw new BatonError('unexpected', `expected a file of at most ${mostBytes} bytes at ${path}`)
  return await file.readFile('utf8')
}

export async function readLock({ folder }: Workshop, version: string): Promise<string | null> {
  return await readFile(join(folder, 'locks', `${version}.json`), 'utf8').catch(() => null)
}

export async function keepLock({ folder }: Workshop, version: string, text: string): Promise<void> {
  await writeWhole(join(folder, 'locks', `${version}.json`), text)
}

/** The folder that is built in: this program's own, with one folder of the builder's inside. */
export async function newWork(
  shop: Workshop,
  lock: string,
  manifest: object,
): Promise<{ work: string; modules: string }> {
  const work = join(shop.folder, 'work')
  await rm(work, { recursive: true, force: true })
  await mkdir(work, { recursive: true, mode: 0o755 })
  await chmod(work, 0o755)
  await writeFile(join(work, 'package.json'), JSON.stringify(manifest, null, 2), { mode: 0o644 })
  await writeFile(join(work, 'package-lock.json'), lock, { mode: 0o644 })
  const modules = await builderFolder(shop, join('work', 'node_modules'))
  await chmod(modules, 0o755)
  return { work, modules }
}

/**
 * Removes all but the newest releases: an executable is whole by itself, so none of these is in use. And npm's cache, if it has grown.
 * Resolves to what was removed.
 */
export async function pruneWorkshop({ feed, folder }: Workshop, cacheMaxBytes = CACHE_MAX_BYTES): Promise<string[]> {
  const old = (await readdir(feed)).filter(isTag).toSorted(compareTags).slice(0, -KEPT_VERSIONS)
  for (const tag of old) {
    await rm(join(feed, tag), { recursive: true, force: true })
    await rm(join(folder, 'locks', `${tag.slice(1)}.json`), { force: true })
  }
  const cache = join(folder, 'npm-cache')
  const { stdout } = await run(['du', '-sk', cache], { allowFailure: true })
  if (!(Number.parseInt(stdout, 10) * 1024 > cacheMaxBytes)) return old
  await rm(cache, { recursive: true, force: true })
  return [...old, `npm's cache, which was larger than ${formatBytes(cacheMaxBytes)}`]
}

/** Takes these out of the feed: nobody updates to them any more. Resolves to those that were there. */
export async function takeOut({ feed }: Workshop, tags: readonly string[]): Promise<string[]> {
  const there = (await readdir(feed)).filter((name) => tags.includes(name))
  for (const tag of there) await rm(join(feed, tag), { recursive: true, force: true })
  return there
}

/** Removes what runs that failed or were killed have left, but npm's cache: the next run may fetch the same. */
export async function sweepWorkshop({ feed, folder }: Workshop): Promise<void> {
  for (const name of ['work', 'out', 'resolve']) await rm(join(folder, name), { recursive: true, force: true })
  for (const place of [feed, join(folder, 'kit')])
    for (const name of await readdir(place).catch(() => []))
      if (name.startsWith('.partial-')) await rm(join(place, name), { recursive: true, force: true })
}
