// Swap, undo, restore, commit: which file is where. On a real disk; what a kill leaves is in test/crash.test.ts.

import { chmod, readdir, readFile, stat, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Change, type Disk, makeDisk } from '../../agent/disk/disk.ts'
import { type Places, placesOf } from '../../agent/disk/places.ts'
import type { Release } from '../../agent/words/release.ts'
import { clearLeftovers, makeSwap, type Swap, type SwapOptions } from '../../agent/update/steps/swap.ts'
import type { Candidate } from '../../agent/update/story.ts'
import { equal, is, match, rejects, withCode } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const NEW = {
  tag: 'v1.1.0',
  notes: '',
  publishedAt: null,
  url: null,
  schema: null,
  asset: { name: 'x', url: 'x', sizeBytes: 1, sha256: '', compression: 'zstd', executable: null },
  deltas: [],
  image: null,
} satisfies Release

const test = suite('swap')

interface World {
  places: Places
  disk: Disk
  candidate: Candidate
  /** what was called, in its order */
  calls: string[]
  swap(changes?: Partial<SwapOptions>): Swap
  /** content of every file beside the executable, by its short name */
  files(): Promise<Record<string, string>>
}

/** v1.0.0 is installed, v0.9.0 is its backup, v1.1.0 is downloaded. */
async function inWorld(body: (world: World) => Promise<void>): Promise<void> {
  await using made = await temporary('swap')
  const folder = made.path
  const places = placesOf(join(folder, 'svc'))
  const disk = makeDisk()
  const calls: string[] = []
  await writeFile(places.executable, 'v1.0.0', { mode: 0o755 })
  await writeFile(places.backup, 'v0.9.0', { mode: 0o755 })
  await writeFile(places.partial, 'v1.1.0', { mode: 0o755 })
  await body({
    places,
    disk,
    calls,
    candidate: { path: places.partial, assetSha256: '', [Symbol.asyncDispose]: () => disk.remove(places.partial) },
    swap: (changes = {}) =>
      makeSwap({
        disk,
        places,
        runningImage: () => Promise.resolve(null),
        snapshot: () => Promise.resolve(void calls.push('snapshot')),
        enterProbation: (to) => Promise.resolve(void calls.push(`probation of ${to}`)),
        backupTag: () => readFile(places.backup, 'utf8'),
        ...changes,
      }),
    async files() {
      const names = (await readdir(folder)).toSorted()
      const contents = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')))
      return Object.fromEntries(names.map((name, i) => [name, contents[i] ?? '']))
    },
  })
}

/** A disk whose `kind` of change fails the first time it is about `path`. */
function failing(disk: Disk, kind: 'rename' | 'linkOver' | 'link' | 'flushDirectory', path: string): Disk {
  let isDone = false
  const real: (...paths: [string, string]) => Promise<void> = disk[kind]
  return {
    ...disk,
    [kind]: async (...paths: [string, string]) => {
      if (!isDone && paths.at(-1) === path) {
        isDone = true
        throw Object.assign(new Error('on purpose'), { code: 'EIO' })
      }
      await real(...paths)
    },
  }
}

test('the new executable is in place, the old one is the backup, and the earlier backup is kept until the commit', async () => {
  await inWorld(async ({ swap, candidate, files, calls, places }) => {
    const own = swap()
    await own.swap(candidate, NEW)
    equal(calls, ['snapshot', 'probation of v1.1.0'], 'before anything is changed')
    equal(await files(), { '.svc.former': 'v0.9.0', svc: 'v1.1.0', 'svc.backup': 'v1.0.0' })
    is((await stat(places.executable)).mode & 0o777, 0o755)
    await own.settle()
    equal(await files(), { svc: 'v1.1.0', 'svc.backup': 'v1.0.0' })
  })
})

test('undo puts all back, and a second undo does nothing', async () => {
  await inWorld(async ({ swap, candidate, files }) => {
    const own = swap()
    is(own.inPlace(), 'old')
    await own.swap(candidate, NEW)
    is(own.inPlace(), 'new')
    await own.takeBack('undo')
    is(own.inPlace(), 'old')
    await own.takeBack('undo')
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
  })
})

test('an undo that fails can be repeated', async () => {
  await inWorld(async ({ swap, candidate, files, disk, places }) => {
    let isReady = false
    const broken = failing(disk, 'rename', places.executable)
    const own = swap({
      disk: { ...disk, rename: (from, to) => (isReady ? broken.rename(from, to) : disk.rename(from, to)) },
    })
    await own.swap(candidate, NEW)
    isReady = true
    await rejects(own.takeBack('undo'), 'on purpose')
    equal(await files(), { '.svc.former': 'v0.9.0', svc: 'v1.1.0', 'svc.backup': 'v1.0.0' })
    await own.takeBack('undo')
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
  })
})

test('the first update of all has no earlier backup, and its undo leaves none', async () => {
  await inWorld(async ({ swap, candidate, files, places }) => {
    await unlink(places.backup)
    const own = swap()
    await own.swap(candidate, NEW)
    equal(await files(), { svc: 'v1.1.0', 'svc.backup': 'v1.0.0' })
    await own.takeBack('undo')
    equal(await files(), { svc: 'v1.0.0' })
  })
})

test('whatever fails on the way, nothing has changed, and it says what it was doing', async () => {
  const failures: ((world: World) => Partial<SwapOptions>)[] = [
    () => ({ snapshot: () => Promise.reject(new Error('on purpose')) }),
    () => ({ enterProbation: () => Promise.reject(new Error('on purpose')) }),
    () => ({ runningImage: () => Promise.reject(new Error('on purpose')) }),
    ({ disk, places }) => ({ disk: failing(disk, 'linkOver', places.former) }),
    ({ disk, places }) => ({ disk: failing(disk, 'linkOver', places.backup) }),
    ({ disk, places }) => ({ disk: failing(disk, 'rename', places.executable) }),
  ]
  for (const [i, failure] of failures.entries()) {
    await inWorld(async (world) => {
      const error = await rejects(world.swap(failure(world)).swap(world.candidate, NEW), withCode('swap_failed'))
      match(error.message, /^replacing .* with v1\.1\.0: on purpose/)
      await world.candidate[Symbol.asyncDispose]()
      equal(await world.files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' }, `failure ${i}`)
    })
  }
})

test('what could not be put in place leaves no temporary file behind', async () => {
  const failures: [Change, (world: World, disk: Disk) => Promise<unknown>][] = [
    ['flush', ({ places }, disk) => disk.writeWhole(places.executable, 'x', 0o755)],
    ['rename', ({ places }, disk) => disk.writeNote(places.executable, 'x', 0o755)],
    ['rename', ({ places }, disk) => disk.linkOver(places.backup, places.executable)],
    // somebody has replaced the executable by hand: the backup is a copy of the running one
    [
      'flush',
      ({ swap, candidate, places }, disk) =>
        swap({ disk, runningImage: () => Promise.resolve(places.executable) }).swap(candidate, NEW),
    ],
  ]
  for (const [kind, act] of failures) {
    await inWorld(async (world) => {
      const disk = makeDisk((moment, change) => {
        if (moment === 'before' && change === kind) throw new Error('on purpose')
      })
      await rejects(act(world, disk), 'on purpose')
      const { svc, ...others } = await world.files()
      is(svc, 'v1.0.0')
      equal(
        Object.keys(others).filter((name) => name.endsWith('.tmp')),
        [],
        kind,
      )
    })
  }
})

test('a copy has the mode that is asked for, whatever that of the file is', async () => {
  await inWorld(async ({ disk, places }) => {
    for (const mode of [0o777, 0o444, 0o600]) {
      const [from, to] = [join(places.directory, `from ${mode}`), join(places.directory, `to ${mode}`)]
      await writeFile(from, 'v1.0.0')
      await chmod(from, mode)
      await disk.copy(from, to, 0o755)
      is((await stat(to)).mode & 0o7777, 0o755)
    }
  })
})

test('an executable that somebody has replaced by hand meanwhile does not become the backup: the running one does', async () => {
  await inWorld(async ({ swap, candidate, files, places }) => {
    const image = join(places.directory, 'image')
    await writeFile(image, 'v1.0.0 as it runs', { mode: 0o755 })
    await writeFile(places.executable, 'replaced by hand')
    await swap({ runningImage: () => Promise.resolve(image) }).swap(candidate, NEW)
    equal(await files(), {
      '.svc.former': 'v0.9.0',
      image: 'v1.0.0 as it runs',
      svc: 'v1.1.0',
      'svc.backup': 'v1.0.0 as it runs',
    })
    is((await stat(places.backup)).mode & 0o777, 0o755)
  })
})

test('restore exchanges the two, and its undo exchanges them back', async () => {
  await inWorld(async ({ swap, files, places, calls }) => {
    await unlink(places.partial)
    const own = swap()
    is(await own.restore(), 'v0.9.0')
    equal(calls, ['snapshot', 'probation of v0.9.0'])
    equal(await files(), { svc: 'v0.9.0', 'svc.backup': 'v1.0.0' })
    await own.takeBack('exchange')
    await own.takeBack('exchange')
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
  })
})

test('restore without a backup, or with one that does not run, changes nothing', async () => {
  await inWorld(async ({ swap, files, places, calls }) => {
    await unlink(places.partial)
    await rejects(swap({ backupTag: () => Promise.reject(new Error('on purpose')) }).restore(), 'on purpose')
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
    await unlink(places.backup)
    await rejects(swap().restore(), withCode('no_backup'))
    equal(await files(), { svc: 'v1.0.0' })
    equal(calls, [])
  })
})

test('a restore that fails on the way changes nothing', async () => {
  await inWorld(async (world) => {
    await unlink(world.places.partial)
    for (const [kind, path] of [
      ['link', world.places.aside],
      ['rename', world.places.executable],
    ] as const) {
      const own = world.swap({ disk: failing(world.disk, kind, path) })
      await rejects(own.restore(), withCode('swap_failed'))
      equal(await world.files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' }, kind)
    }
  })
})

test('what fails once the new executable is in place is taken back, and no executable is lost', async () => {
  const failures: ((world: World) => [Disk, 'undo' | 'exchange'])[] = [
    ({ disk, places }) => [failing(disk, 'flushDirectory', places.directory), 'undo'],
    ({ disk, places }) => [failing(disk, 'rename', places.backup), 'exchange'],
    ({ disk, places }) => [failing(disk, 'flushDirectory', places.directory), 'exchange'],
  ]
  for (const [i, failure] of failures.entries()) {
    await inWorld(async (world) => {
      const { swap, candidate, files } = world
      const [disk, how] = failure(world)
      const own = swap({ disk })
      await rejects(how === 'undo' ? own.swap(candidate, NEW) : own.restore(), withCode('swap_failed'))
      is(own.inPlace(), 'new')
      await own.takeBack(how)
      const { '.svc.partial': _left, ...rest } = await files()
      equal(rest, { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' }, `failure ${i}`)
    })
  }
})

test('a way back that fails once the old executable is in place is not gone twice', async () => {
  await inWorld(async ({ swap, files, places, disk }) => {
    await unlink(places.partial)
    let isReady = false
    const broken = failing(disk, 'rename', places.backup)
    const own = swap({
      disk: { ...disk, rename: (from, to) => (isReady ? broken.rename(from, to) : disk.rename(from, to)) },
    })
    await own.restore()
    isReady = true
    await rejects(own.takeBack('exchange'), 'on purpose')
    await own.takeBack('exchange')
    is((await files())['svc'], 'v1.0.0')
    await clearLeftovers(disk, places)
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
  })
})

test('clearing up where nothing is left changes nothing', async () => {
  await inWorld(async ({ disk, places, files }) => {
    await clearLeftovers(disk, places)
    await clearLeftovers(disk, places)
    equal(await files(), { svc: 'v1.0.0', 'svc.backup': 'v0.9.0' })
  })
})

test.run()
