// A small world for kills: an install whose executables are shell scripts, a database, and a folder feed. Everything else is the real
// thing.

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmod, cp, mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import type { JournalState } from '../../agent/disk/journal.ts'
import type { CrashOptions } from './operation.ts'
import { pathsBelow } from '../fixtures/evidence.ts'
import { temporary } from '../lab/temporary.ts'

const run = promisify(execFile)
export const ROWS = 50
export const REST = 'all of the rest'
/** of the folder `uploads`, by their paths there, in their order */
export const UPLOADS = { 'deep/two': 'the second', one: 'the first' }
const COPIES_FILES = fileURLToPath(new URL('copies-files.ts', import.meta.url))

export interface World {
  root: string
  options: Omit<CrashOptions, 'doing' | 'dieAt' | 'restart' | 'tag'>
}

export async function makeWorld(): Promise<World> {
  const root = await mkdtemp(join(tmpdir(), 'baton-crash-'))
  const prefix = join(root, 'opt')
  const stateDirectory = join(root, 'state')
  const feed = join(root, 'feed')
  await Promise.all([prefix, stateDirectory, feed].map((path) => mkdir(path, { recursive: true })))
  const executable = join(prefix, 'svc')
  await writeScript(executable, 'v1.0.0')
  await writeScript(`${executable}.backup`, 'v0.9.0')
  const database = join(stateDirectory, 'svc.db')
  const rows = new DatabaseSync(database)
  rows.exec('PRAGMA journal_mode = WAL; CREATE TABLE notes (text TEXT)')
  const insert = rows.prepare('INSERT INTO notes VALUES (?)')
  for (let row = 0; row < ROWS; row++) insert.run(`row ${row}`)
  rows.close()
  await publish(feed, ['v1.0.1', 'v1.1.0', 'v1.2.0'])
  // data that are not in SQLite are copied beside it
  const rest = '{stateDirectory}/rest'
  await writeFile(join(stateDirectory, 'rest'), REST)
  await writeUploads(join(stateDirectory, 'uploads'), UPLOADS)
  const snapshot = {
    command: ['cp', rest, '{file}'],
    restore: ['cp', '{file}', rest],
    check: ['grep', '-q', REST, '{file}'],
    folders: ['uploads'],
  }
  await writeFile(join(root, 'config.json'), JSON.stringify({ update: { snapshot } }))
  return { root, options: { executable, stateDirectory, database, feed } }
}

export async function writeUploads(folder: string, files: Record<string, string>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
}

/** The files of a folder, by their paths there; empty if there is none. */
export async function filesBelow(folder: string): Promise<Record<string, string>> {
  const paths = await pathsBelow(folder)
  const pairs = paths.map(async (path) => [path, await readFile(join(folder, path), 'utf8')] as const)
  return Object.fromEntries(await Promise.all(pairs))
}

/** A folder feed. */
async function publish(feed: string, tags: string[]): Promise<void> {
  for (const tag of tags) {
    const folder = join(feed, tag)
    await mkdir(folder, { recursive: true })
    const script = scriptOf(tag)
    const asset = gzipSync(script)
    const name = `svc-${process.platform}-${process.arch}.gz`
    const manifest = JSON.stringify({
      format: 1,
      service: 'svc',
      tag,
      schema: null,
      notes: '',
      publishedAt: null,
      assets: [
        {
          name,
          os: process.platform,
          arch: process.arch,
          compression: 'gzip',
          sizeBytes: asset.length,
          sha256: sha256(asset),
          executable: { sizeBytes: script.length, sha256: sha256(script) },
        },
      ],
    })
    await writeFile(join(folder, name), asset)
    await writeFile(join(folder, 'release.json'), manifest)
    await writeFile(
      join(folder, 'SHA256SUMS'),
      `${sha256(asset)}  ${name}\n${sha256(Buffer.from(manifest))}  release.json\n`,
    )
  }
  const releases = tags.map((tag) => ({ tag, draft: false, prerelease: false }))
  await writeFile(join(feed, 'releases.json'), JSON.stringify({ format: 1, releases }))
}

export async function inCopy<T>(pristine: World, use: (world: World) => Promise<T>): Promise<T> {
  await using made = await temporary('crash')
  const root = made.path
  await cp(pristine.root, root, { recursive: true, preserveTimestamps: true })
  const moved = (path: string) => path.replace(pristine.root, root)
  const { executable, stateDirectory, database, feed } = pristine.options
  return await use({
    root,
    options: {
      executable: moved(executable),
      stateDirectory: moved(stateDirectory),
      database: moved(database),
      feed: moved(feed),
    },
  })
}

async function writeScript(path: string, tag: string): Promise<void> {
  await writeFile(path, scriptOf(tag))
  await chmod(path, 0o755)
}

function scriptOf(tag: string): Buffer {
  const copies = `[ -z "$BATON_COPY_FILES" ] || exec ${process.execPath} ${COPIES_FILES}`
  return Buffer.from(`#!/bin/sh\n${copies}\necho "svc ${tag}"\n`)
}

export async function versionOf(path: string): Promise<string> {
  const { stdout } = await run(path, ['--version'])
  return stdout.trim().split(' ')[1] ?? ''
}

export async function journalOf(stateDirectory: string): Promise<JournalState> {
  const text = await readFile(join(stateDirectory, 'update', 'journal.json'), 'utf8').catch(() => null)
  if (text === null) return { format: 1, operation: null, history: [], bad: [], probation: null }
  return JSON.parse(text) as JournalState
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
