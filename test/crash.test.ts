// @deadlineMs 400000
// `kill -9` before and after every change of the disk in download, snapshot, swap, revert and rollback. After each: the
// executable runs, the backup is whole or absent and never the executable itself, the journal is readable, the next start
// clears the leftovers, and the next update works.

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { placesOf } from '../agent/disk/places.ts'
import type { JournalState } from '../agent/disk/journal.ts'
import * as assert from './assert.ts'
import type { CrashOptions } from './crash/operation.ts'
import { suite } from './suite.ts'

const run = promisify(execFile)
const PROGRAM = fileURLToPath(new URL('crash/operation.ts', import.meta.url))
const ROWS = 50

const test = suite('crash', { timeoutMs: 240_000 })

interface World {
  root: string
  options: Omit<CrashOptions, 'doing' | 'dieAt' | 'restart' | 'tag'>
}

test('a killed update leaves a runnable executable, at each change of the disk', async () => {
  await killEverywhere({ doing: 'update', tag: 'v1.1.0', restart: 'succeeds' }, { from: 'v1.0.0', to: 'v1.1.0' })
})

test('a killed update that was being reverted does too', async () => {
  await killEverywhere({ doing: 'update', tag: 'v1.1.0', restart: 'fails' }, { from: 'v1.0.0', to: 'v1.1.0' })
})

test('a killed rollback does too', async () => {
  await killEverywhere({ doing: 'rollback', tag: null, restart: 'succeeds' }, { from: 'v1.0.0', to: 'v0.9.0' })
})

test('a killed rollback that was being reverted does too', async () => {
  await killEverywhere({ doing: 'rollback', tag: null, restart: 'fails' }, { from: 'v1.0.0', to: 'v0.9.0' })
})

test.run()

async function killEverywhere(
  operation: Pick<CrashOptions, 'doing' | 'tag' | 'restart'>,
  { from, to }: { from: string; to: string },
): Promise<void> {
  const pristine = await makeWorld()
  try {
    const whole = await inCopy(pristine, (world) => conduct(world, { ...operation, dieAt: null }))
    assert.ok(
      whole !== null && whole.kinds.length > 10,
      `expected more than 10 changes of the disk, got ${whole?.kinds.length}`,
    )
    // up to the restart it is what was killed where the restart succeeds
    const first = operation.restart === 'succeeds' ? 0 : whole.beforeRestart
    // After one change and before the next the disk is the same, but where a file is created and then written to.
    const queue = whole.kinds.flatMap((kind, change) => {
      if (change < first) return []
      const after = kind === 'create' || change === (whole?.kinds.length ?? 0) - 1
      return [{ change, moment: 'before' as const }, ...(after ? [{ change, moment: 'after' as const }] : [])]
    })
    const worker = async () => {
      for (let dieAt = queue.shift(); dieAt !== undefined; dieAt = queue.shift()) {
        const at = dieAt
        await inCopy(pristine, async (world) => {
          const result = await conduct(world, { ...operation, dieAt: at })
          assert.is(result, null, `${at.moment} change ${at.change}: expected the process to be killed`)
          await holds(
            world,
            [from, to],
            `${operation.doing}, ${operation.restart}, killed ${at.moment} change ${at.change}`,
          )
        })
      }
    }
    await Promise.all([worker(), worker()])
  } finally {
    await rm(pristine.root, { recursive: true, force: true })
  }
}

async function holds({ options, root }: World, tags: string[], where: string): Promise<void> {
  const places = placesOf(options.executable)
  // power is back: what is there?
  assert.ok(tags.includes(await versionOf(options.executable)), `${where}: the executable must run`)
  const backup = await versionOf(places.backup).catch(() => 'absent')
  assert.ok(
    ['absent', 'v0.9.0', ...tags].includes(backup),
    `${where}: the backup must be whole or absent, got ${backup}`,
  )
  await journalOf(options.stateDirectory)

  // the next start, and the next update from wherever this one stopped
  const next = await conduct({ options, root }, { doing: 'start', tag: 'v1.2.0', restart: 'succeeds', dieAt: null })
  assert.ok(next !== null && next.started !== null, `${where}: the next start`)
  const { started } = next
  assert.is(started.backup, 'another file', `${where}: the backup after the next start`)
  if (!started.onProbation) {
    assert.ok(started.isClosed, `${where}: an operation without an outcome`)
    assert.equal(started.beside, ['svc', 'svc.backup'], `${where}: leftovers`)
  }
  assert.is(next.outcome, 'updated', `${where}: the next update: ${next.error}`)
  assert.is(await versionOf(options.executable), 'v1.2.0', where)
  assert.equal(
    (await readdir(places.directory)).toSorted(),
    ['svc', 'svc.backup'],
    `${where}: leftovers after the next update`,
  )
  const snapshots = await readdir(join(options.stateDirectory, 'update', 'snapshots'))
  assert.ok(
    snapshots.length > 0 && snapshots.every((name) => !name.endsWith('.tmp')),
    `${where}: ${snapshots.join(' ')}`,
  )
  for (const path of [
    options.database,
    ...snapshots.map((name) => join(options.stateDirectory, 'update', 'snapshots', name)),
  ]) {
    const database = new DatabaseSync(path)
    assert.is(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok', `${where}: ${path}`)
    assert.is(database.prepare('SELECT count(*) AS rows FROM notes').get()?.['rows'], ROWS, `${where}: ${path}`)
    database.close()
  }
}

interface Outcome {
  kinds: string[]
  /** how many of them before the restart */
  beforeRestart: number
  outcome: string
  error: string | null
  started: { onProbation: boolean; isClosed: boolean; backup: string; beside: string[] } | null
}

/** What the program printed, or null where it was killed. */
async function conduct(
  world: World,
  how: Pick<CrashOptions, 'doing' | 'tag' | 'restart' | 'dieAt'>,
): Promise<Outcome | null> {
  const options: CrashOptions = { ...world.options, ...how }
  try {
    const { stdout } = await run(process.execPath, [PROGRAM, JSON.stringify(options)], { timeout: 30_000 })
    return JSON.parse(stdout) as Outcome
  } catch (error) {
    if (error instanceof Error && 'signal' in error && error.signal === 'SIGKILL') return null
    throw error
  }
}

async function makeWorld(): Promise<World> {
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
  await publish(feed, ['v1.1.0', 'v1.2.0'])
  return { root, options: { executable, stateDirectory, database, feed } }
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

async function inCopy<T>(pristine: World, use: (world: World) => Promise<T>): Promise<T> {
  const root = await mkdtemp(join(tmpdir(), 'baton-crash-'))
  try {
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
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

async function writeScript(path: string, tag: string): Promise<void> {
  await writeFile(path, scriptOf(tag))
  await chmod(path, 0o755)
}

function scriptOf(tag: string): Buffer {
  return Buffer.from(`#!/bin/sh\necho "svc ${tag}"\n`)
}

async function versionOf(path: string): Promise<string> {
  const { stdout } = await run(path, ['--version'])
  return stdout.trim().split(' ')[1] ?? ''
}

async function journalOf(stateDirectory: string): Promise<JournalState> {
  const text = await readFile(join(stateDirectory, 'update', 'journal.json'), 'utf8').catch(() => null)
  if (text === null) return { format: 1, operation: null, history: [], bad: [], probation: null }
  return JSON.parse(text) as JournalState
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
