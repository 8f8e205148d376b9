// `kill -9` before and after changes of the disk (in CI some of them, in `npm run soak -- --long` every one) in download, snapshot, swap, revert and rollback. After each: the
// executable runs, the backup is whole or absent and never the executable itself, the journal is readable, the next start
// clears the leftovers, and the next update works.

import { execFile } from 'node:child_process'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { placesOf } from '../agent/disk/places.ts'
import * as assert from './assert.ts'
import type { CrashOptions } from './crash/operation.ts'
import { filesBelow, inCopy, journalOf, makeWorld, REST, ROWS, UPLOADS, versionOf, type World } from './crash/world.ts'
import { bundled } from './fixtures/bundled.ts'
import { isLong, suite } from './suite.ts'

const run = promisify(execFile)
const PROGRAM = fileURLToPath(new URL('crash/operation.ts', import.meta.url))

const test = suite('crash', { timeoutMs: 240_000 })
/** of so many kills one; which one differs with the operation */
const EVERY = isLong ? 1 : 13
/** changes of the disk in which the folder is copied */
const COPYING = 8
let program = ''
test.before(async () => void (program = await bundled(PROGRAM)))

test(`a killed update leaves a runnable executable, at ${isLong ? 'each change' : 'changes'} of the disk`, async () => {
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

test('a copy of folders that is killed at a change of the disk, with the operation, leaves no half of one', async () => {
  const operation = { doing: 'update', tag: 'v1.1.0', restart: 'succeeds' } as const
  const pristine = await makeWorld()
  try {
    // two folders, and of each of two files what `Disk.copy` does: before each of them, and before none
    for (let change = 1; change <= COPYING + 1; change++) {
      await inCopy(pristine, async (world) => {
        const at = join(world.root, 'die-in-copy')
        await writeFile(at, String(change))
        const result = await conduct(world, { ...operation, dieAt: null })
        assert.is(result === null, change <= COPYING, `change ${change} of the copying`)
        await rm(at)
        await holds(world, ['v1.0.0', 'v1.1.0'], `killed before change ${change} of the copying`)
      })
    }
  } finally {
    await rm(pristine.root, { recursive: true, force: true })
  }
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
    const turn = operation.restart === 'succeeds' ? 0 : 1
    const all = whole.kinds.flatMap((kind, change) => {
      if (change < first) return []
      const after = kind === 'create' || change === (whole?.kinds.length ?? 0) - 1
      return [{ change, moment: 'before' as const }, ...(after ? [{ change, moment: 'after' as const }] : [])]
    })
    const queue = all.filter((_, at) => at % EVERY === turn % EVERY)
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
  const of = (kind: string) => snapshots.filter((name) => name.startsWith(`${kind}.v`))
  const [dumps, folders, copies] = [of('dump'), of('folders'), of('svc.db')]
  assert.is(dumps.length + folders.length + copies.length, snapshots.length, `${where}: ${snapshots.join(' ')}`)
  assert.ok(dumps.length > 0 && folders.length > 0, `${where}: ${snapshots.join(' ')}`)
  for (const name of folders)
    assert.equal(
      await filesBelow(join(options.stateDirectory, 'update', 'snapshots', name, 'uploads')),
      UPLOADS,
      `${where}: ${name}`,
    )
  for (const name of dumps)
    assert.is(
      await readFile(join(options.stateDirectory, 'update', 'snapshots', name), 'utf8'),
      REST,
      `${where}: ${name}`,
    )
  for (const path of [
    options.database,
    ...copies.map((name) => join(options.stateDirectory, 'update', 'snapshots', name)),
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
    const { stdout } = await run(process.execPath, [program, JSON.stringify(options)], { timeout: 30_000 })
    return JSON.parse(stdout) as Outcome
  } catch (error) {
    if (error instanceof Error && 'signal' in error && error.signal === 'SIGKILL') return null
    throw error
  }
}
