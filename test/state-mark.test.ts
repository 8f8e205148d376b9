// Which release the database belongs to: every exchange is killed before each of its changes, and the next start goes on.

import { spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { copyName, newestCopy, tagOfCopy } from '../agent/disk/copies.ts'
import { makeDisk } from '../agent/disk/disk.ts'
import { readOwed, writeOwed } from '../agent/disk/owed.ts'
import { updateDirectory } from '../agent/disk/places.ts'
import type { ManagedInstall } from '../agent/disk/managed-install.ts'
import { snapshot } from '../agent/update/steps/snapshot.ts'
import { keptCopies } from '../agent/update/kept-copies.ts'
import { dropMark, markUpdate, oweCopies, oweRestore } from '../agent/update/own-data.ts'
import { exchangeNow, ownState, readMark, type StateMark } from '../agent/disk/state-mark.ts'
import { planOf } from '../agent/words/snapshot.ts'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, match, ok, rejects, throws, withCode } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('state mark', { timeoutMs: 120_000 })
const [OLD, NEW] = ['v1.0.0', 'v1.1.0']
let home: string

test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-state-mark-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

test('an update and its revert: the old release has its rows back, those of the new one lie aside', async () => {
  const state = await stateOf({ next: NEW })
  write(state, 'old')
  is(ownState(state, NEW), null)
  write(state, 'new')
  is(ownState(state, NEW), null) // a restart in the probation
  equal(rows(state), ['old', 'new'])
  const moved = ownState(state, OLD)
  equal(rows(state), ['old'])
  equal(rowsOf(moved?.aside ?? ''), ['old', 'new'])
  is(ownState(state, OLD), null)
  equal(rows(state), ['old'])
})

test('a restore that a container has begun stays owed: an update does not owe copies of half-restored data instead', async () => {
  const stateDirectory = await mkdtemp(join(home, 'owed-'))
  const here = { disk: makeDisk(), stateDirectory }
  await here.disk.makeDirectory(updateDirectory(stateDirectory), 0o700)
  const plan = planOf({ command: ['copy', '{file}'], restore: ['restore', '{file}'] }, null)
  ok(plan !== null)
  const copies = { container: 'b', kind: 'update' as const, from: OLD, plan, executable: '/shop' }
  await oweRestore(here, { container: 'a', name: 'dump.v1.0.0', plan })
  await oweCopies(here, copies) // it had not begun
  is(readOwed(stateDirectory, () => 'b')?.owes, 'snapshot')
  const begun = { owes: 'restore' as const, name: 'dump.v1.0.0', aside: '/aside', plan, container: 'a' }
  await writeOwed(here.disk, stateDirectory, begun)
  const other = { container: 'b', name: 'dump.v0.9.0', plan }
  for (const again of [() => oweCopies(here, copies), () => oweRestore(here, other)]) {
    const refused = await rejects(again, withCode('refused'))
    match(refused.message, /the restore of dump\.v1\.0\.0 was interrupted and is not complete/)
  }
  equal(readOwed(stateDirectory), begun)
})

test('rows that only the write-ahead log has go along, in both directions', async () => {
  const state = await stateOf({ next: NEW })
  writeAndDie(state, 'old')
  ok(existsSync(`${databaseOf(state)}-wal`))
  ownState(state, NEW)
  writeAndDie(state, 'new')
  const moved = ownState(state, OLD)
  ok(existsSync(`${moved?.aside ?? ''}-wal`))
  equal(rows(state), ['old'])
  equal(rowsOf(moved?.aside ?? ''), ['old', 'new'])
})

test('a rollback that takes a snapshot back, and its revert: the newer release has its rows again', async () => {
  const snapshot = join(home, 'a-snapshot')
  write(home, 'then', snapshot)
  const state = await stateOf({ owner: NEW, other: { tag: OLD, path: snapshot } })
  write(state, 'now')
  ownState(state, OLD)
  equal(rows(state), ['then'])
  ownState(state, NEW)
  equal(rows(state), ['now'])
  equal(rowsOf(snapshot), ['then'])
})

test('the newest copy for a release is found to the millisecond: two may be made in one second, the exact one last', () => {
  const names = [
    'ledger.db.v1.0.0.20261123T170510.900Z',
    'ledger.db.v1.0.0.20261123T170510Z',
    'ledger.db.v1.0.0.20261123T170510.900Z-wal',
    'ledger.db.v1.0.0.20261122T235959.999Z',
    'ledger.db.v1.1.0.20261124T000000.000Z',
    'other.db.v1.0.0.20261124T000000.000Z',
  ]
  is(newestCopy(names, '/state/ledger.db', 'v1.0.0'), 'ledger.db.v1.0.0.20261123T170510.900Z')
  is(newestCopy(names.slice(1), '/state/ledger.db', 'v1.0.0'), 'ledger.db.v1.0.0.20261123T170510Z')
  is(newestCopy(names, '/state/ledger.db', 'v1.2.0'), null)
  equal(
    names.map((name) => tagOfCopy(name, '/state/ledger.db')),
    ['v1.0.0', 'v1.0.0', null, 'v1.0.0', 'v1.1.0', null],
  )
  is(copyName('/state/ledger.db', 'v1.0.0', new Date('2026-11-23T17:05:10.900Z')), names[0])
})

test('a mark of another operation, or of one that has succeeded, means nothing', async () => {
  for (const operation of [
    { id: 'another', outcome: null },
    { id: 'op', outcome: 'updated' },
    { id: 'op', outcome: 'rolled_back' },
    null,
  ]) {
    const state = await stateOf({ next: NEW })
    write(state, 'old')
    ownState(state, NEW)
    write(state, 'new')
    await writeFile(join(state, 'update', 'journal.json'), JSON.stringify({ operation }))
    is(ownState(state, OLD), null)
    equal(rows(state), ['old', 'new'])
  }
})

test('killed before each change: the next start goes on, no row is lost, and no application sees a half', async () => {
  for (const [what, tags] of [
    ['update', [NEW]],
    ['revert', [OLD]],
    ['revert, then the operator stops and another command clears up', [OLD, '']],
  ] as const) {
    let kills = 0
    for (let at = 1; ; at++) {
      const state = await stateOf({ next: NEW })
      write(state, 'old')
      if (what !== 'update') {
        ownState(state, NEW)
        write(state, 'new')
      }
      const [first = '', last = first] = tags
      if (!killedAt(state, first, at)) break
      kills++
      // killed a second time, at the first change of what goes on
      if (at % 2 === 0) killedAt(state, first, 1)
      ownState(state, last)
      if (last === '') ownState(state, first)
      const where = `${what}, change ${at}`
      const mark = readMark(state)
      is(mark?.moving, null, where)
      if (what === 'update') {
        equal(rows(state), ['old'], where)
        equal(rowsOf(mark?.other?.path ?? ''), ['old'], where)
      } else {
        equal(rows(state), ['old'], where)
        equal(rowsOf(mark?.exchanged?.aside ?? ''), ['old', 'new'], where)
      }
      ok(!(await readdir(state)).some((name) => name.includes('incoming')), where)
    }
    ok(kills >= 3, `${what}: ${kills}`)
  }
})

test('a copy to be taken back is gone: nothing is moved, and the application does not begin', async () => {
  const state = await stateOf({ next: NEW })
  write(state, 'old')
  ownState(state, NEW)
  write(state, 'new')
  await rm(readMark(state)?.other?.path ?? '')
  throws(() => ownState(state, OLD), /there is no database at /)
  equal(rows(state), ['old', 'new'])
})

test('`state restore` is killed before each change: the next one, or the next start, goes on with the same set', async () => {
  for (const next of ['restore', 'start'] as const) {
    let kills = 0
    for (let at = 1; ; at++) {
      const state = await stateOf({})
      await rm(join(state, 'update', 'state.json'))
      await writeFile(join(state, 'update', 'journal.json'), JSON.stringify({ operation: null }))
      const copy = join(home, `copy-${next}-${at}`)
      write(state, 'copied', copy)
      writeAndDie(state, 'present')
      ok(existsSync(`${databaseOf(state)}-wal`))
      const hand = `{ ...${JSON.stringify({ database: databaseOf(state), tag: OLD })}, refuse: async () => {} }`
      const call = `await exchangeNow(${JSON.stringify(state)}, ${JSON.stringify(copy)}, ${hand}, look)`
      if (!killedIn(call, at)) break
      kills++
      const where = `${next}, change ${at}`
      if (next === 'start') ownState(state, OLD)
      else await exchangeNow(state, copy, { database: databaseOf(state), tag: OLD, refuse: async () => {} })
      const aside = await readdir(join(state, 'update', 'aside')).catch(() => [])
      const whole = aside.filter((name) => !/-(wal|shm|journal)$/.test(name))
      const sets = [...whole.map((name) => rowsOf(join(state, 'update', 'aside', name))), rows(state)]
      ok(
        sets.some((one) => one.includes('present')),
        `${where}: ${JSON.stringify(sets)}`,
      )
      if (next === 'restore') equal(rows(state), ['copied'], where)
    }
    ok(kills >= 6, `${next}: ${kills}`)
  }
})

test('killed in the middle of a copy: what is not whole has no name of a copy, and the end of the operation removes it', async () => {
  const state = await stateOf({ next: NEW })
  write(state, 'old')
  const snapshots = join(state, 'update', 'snapshots')
  for (let at = 1; killedAt(state, NEW, at); at++) {
    for (const name of await readdir(snapshots).catch(() => []))
      if (!name.startsWith('.')) equal(rowsOf(join(snapshots, name)), ['old'], name)
    await rm(snapshots, { recursive: true, force: true })
  }
  await mkdir(snapshots, { recursive: true })
  await writeFile(join(snapshots, '.ledger.db.incoming'), 'half')
  await writeFile(join(state, '.ledger.db.incoming-wal'), 'half')
  await dropMark({ disk: makeDisk(), stateDirectory: state })
  equal(
    (await readdir(state, { recursive: true })).filter((name) => name.includes('incoming')),
    [],
  )
  ok(!existsSync(join(state, 'update', 'state.json')))
})

test('a database that is linked into the state directory: the file itself is exchanged, with its log, and the link stays', async () => {
  for (const elsewhere of [join(home, 'linked'), '/dev/shm']) {
    const folder = await mkdtemp(join(elsewhere === home ? home : await made(elsewhere), 'baton-state-link-'))
    try {
      const state = await stateOf({})
      const file = join(folder, 'real.db')
      await symlink(file, databaseOf(state))
      writeAndDie(state, 'old')
      ok(existsSync(`${file}-wal`))
      const install = { disk: makeDisk(), stateDirectory: state, database: databaseOf(state) } as ManagedInstall
      await markUpdate(install, { id: 'op', from: OLD, to: NEW } as Operation)
      ownState(state, NEW)
      writeAndDie(state, 'new')
      const moved = ownState(state, OLD)
      equal(rows(state), ['old'])
      is(await realpath(databaseOf(state)), file)
      equal(rowsOf(moved?.aside ?? ''), ['old', 'new'])
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  }
})

test('a database with an odd name in a sub-folder, beside one whose name begins with its name: each has its own copies', async () => {
  const state = await stateOf({})
  const [odd, longer] = ["it's [a] (b)+ $&.v1.0.0.é", "it's [a] (b)+ $&.v1.0.0.é.v1.0.0.db"].map((name) =>
    join(state, 'sub folder', name),
  ) as [string, string]
  await mkdir(join(state, 'sub folder'))
  const install = (database: string) => ({ disk: makeDisk(), stateDirectory: state, database }) as ManagedInstall
  for (const database of [odd, longer]) {
    write(state, 'old', database)
    await markUpdate(install(database), { id: 'op', from: OLD, to: NEW } as Operation)
    ownState(state, NEW)
    write(state, `new in ${database}`, database)
    const { aside } = ownState(state, OLD) ?? {}
    equal([rowsOf(database), rowsOf(aside ?? '')], [['old'], ['old', `new in ${database}`]])
    await rm(join(state, 'update', 'state.json'))
  }
  const names = await readdir(join(state, 'update', 'snapshots'))
  equal(
    [odd, longer].map((database) => names.filter((name) => tagOfCopy(name, database) === OLD).length),
    [1, 1],
  )
})

test('kept is the newest copy of each of the last releases, as a set: no log of one that stays is removed, none stays behind', async () => {
  const state = await stateOf({ next: NEW })
  const folder = join(state, 'update', 'snapshots')
  const make = (tag: string) => snapshot(makeDisk(), databaseOf(state), state, tag, { executable: null, here: true })
  write(state, 'row')
  for (const tag of ['v0.7.0', 'v0.8.0', 'v0.9.0']) await make(tag)
  writeAndDie(state, 'in the log')
  ownState(state, NEW) // an exact copy of v1.0.0, with its log
  await rm(join(state, 'update', 'state.json'))
  await make(NEW)
  const names = (await readdir(folder)).toSorted()
  const tags = names.map((name) => /v\d+\.\d+\.\d+/.exec(name)?.[0])
  equal(tags, ['v0.9.0', OLD, OLD, NEW])
  equal(rowsOf(join(folder, names[1] ?? '')), ['row', 'in the log'])
  await make(NEW)
  await make('v1.2.0')
  equal((await readdir(folder)).map((name) => /v\d+\.\d+\.\d+/.exec(name)?.[0]).toSorted(), [OLD, NEW, 'v1.2.0'])
  const copies = await keptCopies(state, databaseOf(state))
  equal(
    copies.map(({ tag, kind }) => [tag, kind]),
    [
      ['v1.2.0', 'snapshot'],
      [NEW, 'snapshot'],
      [OLD, 'snapshot'],
    ],
  )
  ok(copies.every(({ name, bytes }) => existsSync(join(folder, name)) && bytes > 0))
})

test('the copy from before an update that was reverted stays for a week: later ones may be of data that it has spoilt', async () => {
  const state = await stateOf({})
  const folder = join(state, 'update', 'snapshots')
  const path = join(state, 'update', 'journal.json')
  const journal = JSON.parse(await readFile(path, 'utf8')) as { operation: Operation; history?: Operation[] }
  const make = (tag: string) => snapshot(makeDisk(), databaseOf(state), state, tag, { executable: null, here: true })
  const ended = async (outcome: 'reverted' | 'updated', to: string, startedAt: Date) => {
    const operation = { ...journal.operation, kind: 'update' as const, from: OLD, to, outcome }
    const at = { startedAt: startedAt.toISOString(), finishedAt: new Date().toISOString() }
    journal.history = [{ ...operation, ...at, stage: 'restart', error: null }, ...(journal.history ?? [])]
    await writeFile(path, JSON.stringify(journal))
  }
  write(state, 'row')
  await make(OLD)
  for (const to of [NEW, 'v1.2.0']) {
    const began = new Date()
    await make(OLD)
    await ended('reverted', to, began)
    write(state, `spoilt by ${to}`)
  }
  await make(OLD) // of a rollback
  await make(OLD)
  const left = (await readdir(folder)).toSorted().map((name) => rowsOf(join(folder, name)))
  equal(left, [['row'], ['row', `spoilt by ${NEW}`, 'spoilt by v1.2.0']])
  await ended('updated', 'v1.3.0', new Date())
  await make(OLD)
  is((await readdir(folder)).length, 2)
  const weekAgo = new Date(Date.now() - 8 * 86_400_000).toISOString()
  journal.history = (journal.history ?? []).map((one) => ({ ...one, finishedAt: weekAgo }))
  await writeFile(path, JSON.stringify(journal))
  await make(OLD)
  is((await readdir(folder)).length, 1)
})

test('of the databases that gave way the newest stays, and of the older ones as many as are kept, each with its log', async () => {
  const state = await stateOf({})
  const folder = join(state, 'update', 'aside')
  await mkdir(folder)
  const named = (at: number) => copyName(databaseOf(state), OLD, new Date(at * 1000))
  for (const at of [1, 2, 3, 4, 5, 6, 7])
    for (const suffix of ['', '-wal']) {
      const path = join(folder, named(at) + suffix)
      await writeFile(path, 'x')
      await utimes(path, at, at)
    }
  await writeFile(join(folder, `${named(8)}-wal`), 'what a kill has left of a set')
  await writeFile(join(folder, 'notes of a person'), 'x')
  write(state, 'row')
  await snapshot(makeDisk(), databaseOf(state), state, NEW, { executable: null, here: true })
  const kept = [3, 4, 5, 6, 7].flatMap((at) => [named(at), `${named(at)}-wal`])
  equal((await readdir(folder)).toSorted(), [...kept, 'notes of a person'].toSorted())

  await truncate(join(folder, named(7)), 2 * 1024 ** 3)
  await utimes(join(folder, named(7)), 7, 7)
  await snapshot(makeDisk(), databaseOf(state), state, NEW, { executable: null, here: true })
  equal((await readdir(folder)).toSorted(), [named(7), `${named(7)}-wal`, 'notes of a person'].toSorted())
})

test.run()

let count = 0

async function stateOf(mark: Partial<StateMark>): Promise<string> {
  const state = join(home, `state-${++count}`)
  await mkdir(join(state, 'update'), { recursive: true })
  await writeFile(
    join(state, 'update', 'journal.json'),
    JSON.stringify({ format: 1, operation: { id: 'op', outcome: null }, history: [], bad: [], probation: null }),
  )
  const whole: StateMark = {
    operationId: 'op',
    database: databaseOf(state),
    owner: OLD,
    next: null,
    other: null,
    exchanged: null,
    moving: null,
    ...mark,
  }
  await writeFile(join(state, 'update', 'state.json'), JSON.stringify(whole))
  return state
}

function databaseOf(state: string): string {
  return join(state, 'ledger.db')
}

function write(state: string, text: string, path = databaseOf(state)): void {
  const database = new DatabaseSync(path)
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t(x)')
  database.prepare('INSERT INTO t VALUES (?)').run(text)
  database.close()
}

function rows(state: string): unknown[] {
  return rowsOf(databaseOf(state))
}

function rowsOf(path: string): unknown[] {
  ok(existsSync(path), `expected a database at ${path}`)
  const database = new DatabaseSync(path)
  const found = database.prepare('SELECT x FROM t').all()
  database.close()
  return found.map(({ x }) => x)
}

async function made(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true })
  return folder
}

/** Writes a row that only the write-ahead log has. */
function writeAndDie(state: string, text: string): void {
  const script = `const { DatabaseSync } = require('node:sqlite'); const d = new DatabaseSync(process.argv[1]); d.exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES ('${text}')"); process.kill(process.pid, 'SIGKILL')`
  spawnSync(process.execPath, ['-e', script, databaseOf(state)])
}

/** Whether the process was killed: it is before its change `at`, counted from 1. */
function killedAt(state: string, tag: string, at: number): boolean {
  return killedIn(`ownState(${JSON.stringify(state)}, ${JSON.stringify(tag)}, look)`, at)
}

function killedIn(call: string, at: number): boolean {
  const module = join(import.meta.dirname, '../agent/disk/state-mark.ts')
  const script = `import { ownState, exchangeNow } from ${JSON.stringify(module)}; let n = 0; const look = () => { if (++n === ${at}) process.kill(process.pid, 'SIGKILL') }; ${call}`
  const { signal, status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
  })
  ok(signal === 'SIGKILL' || status === 0, stderr)
  return signal === 'SIGKILL'
}
