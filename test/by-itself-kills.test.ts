// `kill -9` before and after changes of the disk (in CI some of them, in `npm run soak -- --long` every one) in a look of the schedule that updates; two processes that look at once; a
// clock that is set while it waits. After each: the release is installed in the end, once, and nothing was tried that was not noted.

import { execFile } from 'node:child_process'
import { lstat, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { makeDisk } from '../agent/disk/disk.ts'
import { makeJournal } from '../agent/disk/journal.ts'
import { newOperation } from '../agent/update/operation.ts'
import { newMemory, parseMemory, type Remembered } from '../agent/update/schedule/memory.ts'
import { equal, is, match, ok } from './assert.ts'
import type { LookOptions } from './crash/by-itself.ts'
import { inCopy, journalOf, makeWorld, versionOf, type World } from './crash/world.ts'
import { bundled } from './fixtures/bundled.ts'
import { isLong, suite } from './suite.ts'

const run = promisify(execFile)
const PROGRAM = fileURLToPath(new URL('crash/by-itself.ts', import.meta.url))
/** of so many changes one */
const EVERY = isLong ? 1 : 13
const [HOUR, DAY] = [3_600_000, 86_400_000]
const NOW = Date.parse('2026-11-24T02:10:00Z')

const test = suite('by itself, killed', { timeoutMs: 240_000 })
let program = ''
test.before(async () => void (program = await bundled(PROGRAM)))

interface Looked {
  changes: number
  begun: number
  memory: Remembered | null
}

/** What the program printed; null where it was killed. */
async function look(
  world: World,
  now: number,
  dieAt: LookOptions['dieAt'] = null,
  more: Pick<LookOptions, 'beside' | 'later' | 'afterwards'> = {},
): Promise<Looked | null> {
  const options: LookOptions = { ...world.options, configPath: join(world.root, 'config.json'), now, dieAt, ...more }
  try {
    const { stdout } = await run(process.execPath, [program, JSON.stringify(options)], { timeout: 30_000 })
    return JSON.parse(stdout) as Looked
  } catch (error) {
    if (error instanceof Error && 'signal' in error && error.signal === 'SIGKILL') return null
    throw error
  }
}

async function worldByItself(): Promise<World> {
  const world = await makeWorld()
  const auto = { mode: 'patch', hours: '02:00-05:00', zone: 'UTC', allow: ['unsigned', 'untried'] }
  await writeFile(join(world.root, 'config.json'), JSON.stringify({ update: { auto } }))
  await remember(world, { ...newMemory([], NOW), asked: { at: null, next: NOW, problem: null, failures: 0 } })
  return world
}

const memoryPath = ({ options }: World) => join(options.stateDirectory, 'update', 'schedule.json')

async function remember(world: World, memory: Remembered): Promise<void> {
  await run('mkdir', ['-p', join(world.options.stateDirectory, 'update')])
  await writeFile(memoryPath(world), JSON.stringify(memory))
}

const read = async (world: World) => parseMemory(await readFile(memoryPath(world), 'utf8'))

test(`killed at ${isLong ? 'each change' : 'changes'} of the disk: it runs, it forgets nothing, and no release is installed twice`, async () => {
  const pristine = await worldByItself()
  try {
    const whole = await inCopy(pristine, async (world) => {
      const looked = await look(world, NOW)
      is(await versionOf(world.options.executable), 'v1.0.1')
      return looked
    })
    is(whole?.begun, 1)
    ok((whole?.changes ?? 0) > 30, `${whole?.changes} changes`)
    const queue = Array.from({ length: whole?.changes ?? 0 }, (_, change) => change).filter((n) => n % EVERY === 0)
    const worker = async () => {
      for (let change = queue.shift(); change !== undefined; change = queue.shift()) {
        const at = { change, moment: (change / EVERY) % 3 === 0 ? 'after' : 'before' } as const
        await inCopy(pristine, (world) => holdsAfter(world, at))
      }
    }
    await Promise.all([worker(), worker()])
  } finally {
    await rm(pristine.root, { recursive: true, force: true })
  }
})

async function holdsAfter(world: World, at: NonNullable<LookOptions['dieAt']>): Promise<void> {
  const where = `killed ${at.moment} change ${at.change}`
  is(await look(world, NOW, at), null, `${where}: expected to be killed`)
  const memory = await read(world)
  ok(memory !== null, `${where}: the memory`)
  const { operation, history } = await journalOf(world.options.stateDirectory)
  for (const one of [...(operation === null ? [] : [operation]), ...history])
    is(memory.attempt?.id, one.id, `${where}: an attempt that was not noted`)
  ok(['v1.0.0', 'v1.0.1'].includes(await versionOf(world.options.executable)), where)
  // the host is on again, at once, an hour later, and the next nights
  await look(world, NOW + 1000, null, { afterwards: [HOUR, DAY, 2 * DAY].map((later) => NOW + later) })
  is(await versionOf(world.options.executable), 'v1.0.1', `${where}: forgotten`)
  const after = await journalOf(world.options.stateDirectory)
  const good = after.history.filter(({ outcome, by }) => outcome === 'updated' && by === 'schedule')
  ok(
    good.length <= 1 && after.history.length <= 2,
    `${where}: ${JSON.stringify(after.history.map(({ outcome }) => outcome))}`,
  )
}

test('of two processes that look at the same moment exactly one acts', async () => {
  for (let round = 0; round < (isLong ? 5 : 2); round++) {
    const world = await worldByItself()
    try {
      await remember(world, {
        ...newMemory([], NOW),
        id: 'a'.repeat(32),
        asked: { at: null, next: NOW, problem: null, failures: 0 },
      })
      const both = await Promise.all([
        look(world, NOW, null, { beside: true }),
        look(world, NOW, null, { beside: true }),
        look(world, NOW, null, { beside: true }),
      ])
      is(
        both.reduce((sum, one) => sum + (one?.begun ?? 0), 0),
        1,
      )
      is(await versionOf(world.options.executable), 'v1.0.1')
      is((await journalOf(world.options.stateDirectory)).history.length, 1)
    } finally {
      await rm(world.root, { recursive: true, force: true })
    }
  }
})

test('a clock that is set by a year while the update is in flight: it went once, and the next one is not kept back', async () => {
  for (const jump of [-365 * DAY, 365 * DAY]) {
    const world = await worldByItself()
    try {
      is((await look(world, NOW, null, { later: NOW + jump }))?.begun, 1)
      is(await versionOf(world.options.executable), 'v1.0.1')
      // by the clock that was set, and by one that is right again
      for (const at of [NOW + jump + HOUR, NOW + HOUR, NOW + DAY]) {
        const looked = await look(world, at)
        is(looked?.begun, 0)
        const { attempt, asked, failures } = looked?.memory ?? { failures: -1 }
        ok((attempt?.at ?? Infinity) <= at && (asked?.next ?? Infinity) <= at + 7.5 * HOUR, JSON.stringify(looked))
        is(failures, 0)
      }
      is((await journalOf(world.options.stateDirectory)).history.length, 1)
    } finally {
      await rm(world.root, { recursive: true, force: true })
    }
  }
})

const SHAPES: Record<string, (path: string, outside: string) => Promise<unknown>> = {
  'a link to a file of somebody': (path, outside) => symlink(outside, path),
  'a link to an endless device': (path) => symlink('/dev/zero', path),
  'a link in a circle': (path) => symlink(path, path),
  'a pipe': (path) => run('mkfifo', [path]),
  'half written': (path) => writeFile(path, '{"format":1,"id":"aaaa'),
  'too long': (path) => writeFile(path, ' '.repeat(2 * 1024 ** 2)),
}

test('a memory that is none is made anew in its place: what it points at is as it was, and the release goes', async () => {
  const pristine = await worldByItself()
  try {
    for (const [what, make] of Object.entries(SHAPES)) {
      await inCopy(pristine, async (world) => {
        const outside = join(world.root, 'outside')
        await writeFile(outside, JSON.stringify({ ...newMemory([], NOW), id: 'b'.repeat(32) }))
        const before = await readFile(outside, 'utf8')
        await rm(memoryPath(world))
        await make(memoryPath(world), outside)
        await look(world, NOW)
        await look(world, NOW + HOUR)
        is(await versionOf(world.options.executable), 'v1.0.1', what)
        is(await readFile(outside, 'utf8'), before, what)
        ok((await lstat(memoryPath(world))).isFile(), what)
      })
    }
    await inCopy(pristine, async (world) => {
      await rm(memoryPath(world))
      await mkdir(memoryPath(world))
      for (const later of [0, HOUR, DAY]) {
        const said = await look(world, NOW + later).then(() => 'it looked', String)
        match(said, /EISDIR|ENOTEMPTY|schedule\.json/)
      }
      is(await versionOf(world.options.executable), 'v1.0.0')
    })
  } finally {
    await rm(pristine.root, { recursive: true, force: true })
  }
})

test('an operation that a killed process has left open keeps nothing back in the service that goes on', async () => {
  const world = await worldByItself()
  try {
    const left = {
      id: 'left',
      kind: 'update',
      from: 'v1.0.0',
      to: null,
      startedAt: new Date(NOW).toISOString(),
    } as const
    const journal = makeJournal(makeDisk(), world.options.stateDirectory)
    await journal.change((now) => void (now.operation = newOperation(left)))
    const next = await look(world, NOW, null, { beside: true }) // no start clears up before it
    is(next?.begun, 1)
    is(await versionOf(world.options.executable), 'v1.0.1')
    equal(
      (await journalOf(world.options.stateDirectory)).history.map(({ outcome }) => outcome),
      ['updated', 'failed'],
    )
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
})

test('what the operator says while their program is being told holds: nothing begins', async () => {
  const world = await worldByItself()
  try {
    const [configPath, tell] = [join(world.root, 'config.json'), join(world.root, 'tell')]
    const letters = [{ text: '{}', tries: 0, at: NOW }]
    await remember(world, {
      ...newMemory([], NOW),
      asked: { at: null, next: NOW, problem: null, failures: 0 },
      told: '',
      letters,
    })
    const rules = JSON.parse(await readFile(configPath, 'utf8')) as { update: object }
    await writeFile(configPath, JSON.stringify({ update: { ...rules.update, onOutcome: [tell] } }))
    await writeFile(tell, `#!/bin/sh\necho '{"update":{"auto":{"mode":"notify"}}}' >${configPath}\n`, { mode: 0o755 })
    const looked = await look(world, NOW)
    equal([looked?.begun, looked?.memory?.letters, looked?.memory?.offer?.tag], [0, [], 'v1.0.1'])
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
})

test('outside of the hours nothing begins, and a clock that is set back waits for no year', async () => {
  const world = await worldByItself()
  try {
    is((await look(world, NOW + 5 * HOUR))?.begun, 0)
    // a clock of next year asks, and is set right
    const far = await look(world, NOW + 365 * DAY + 6 * HOUR)
    is(far?.begun, 0)
    const back = await look(world, NOW + 6 * HOUR)
    ok((back?.memory?.asked.next ?? Infinity) <= NOW + 6 * HOUR + 7.5 * HOUR)
    is((await look(world, NOW + DAY))?.begun, 1)
    equal((await read(world))?.offer?.tag, 'v1.0.1')
  } finally {
    await rm(world.root, { recursive: true, force: true })
  }
})

test.run()
