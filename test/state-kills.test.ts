// @deadlineMs 600000
// `kill -9` and power cut at every change of the disk of what exchanges the database: a rollback that takes a snapshot back, a release
// with no way back and its automatic revert, `state restore`. After each, the next start serves on the data of the release in place,
// and each acknowledged row is in the live database or in a file that the operation or `state list` names. Of what is not in SQLite, either
// nothing has changed or no release begins, and the same command finishes it, with what was there whole beside it. In CI some of the changes,
// in `npm run soak -- --long` each. A power cut is a real file system whose disk is looked at without what was never written to it.

import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { promisify } from 'node:util'
import { copyName, tagOfCopy } from '../agent/disk/copies.ts'
import { readOwed } from '../agent/disk/owed.ts'
import { asideDirectory, markPath, snapshotDirectory } from '../agent/disk/places.ts'
import { COPY_WORDS } from '../agent/update/kept-copies.ts'
import { DUMP, FOLDERS } from '../agent/words/snapshot.ts'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, ok } from './assert.ts'
import type { StateCrash } from './crash/state.ts'
import { filesBelow, journalOf, makeWorld, REST, ROWS, UPLOADS, type World, writeUploads } from './crash/world.ts'
import { isLong, suite } from './suite.ts'

const run = promisify(execFile)
const PROGRAM = join(import.meta.dirname, 'crash/state.ts')
const canMount = process.getuid?.() === 0 && existsSync('/dev/loop-control')
const noDisk = canMount ? null : 'needs root and a loop device, to mount a disk'
const kills = suite('state: kills', { timeoutMs: 390_000 })
const cuts = suite('state: power cuts', { timeoutMs: 390_000, skip: noDisk })
/** in CI, of so many changes one; which one differs with the case */
const EVERY = isLong ? 1 : 37
const COLUMNS = ['text', 'body', 'words']

type How = Pick<StateCrash, 'doing' | 'isGood'> & Partial<Pick<StateCrash, 'rest'>>
/** `outcome` and `isMoved`, whether the database was exchanged, are of the operation that nobody kills; null: it is no operation */
type Case = How & { outcome: Operation['outcome']; isMoved: boolean }
const OTHER = { doing: 'restore-rest', isGood: true, outcome: null, isMoved: false } as const
const MADE_AT = new Date('2026-11-20T08:00:00Z')
/** what `state restore` brings, where `REST` and `UPLOADS` are */
const [EARLIER_REST, EARLIER_UPLOADS] = ['all of the rest, earlier', { one: 'of before', 'other/three': 'the third' }]
const CASES: Record<string, Case> = {
  'a rollback that takes a snapshot back': { doing: 'rollback', isGood: true, outcome: 'rolled_back', isMoved: true },
  'a rollback that takes a snapshot back and fails': {
    doing: 'rollback',
    isGood: false,
    outcome: 'reverted',
    isMoved: true,
  },
  'a release with no way back': { doing: 'update', isGood: true, outcome: 'updated', isMoved: false },
  'a release with no way back that fails': { doing: 'update', isGood: false, outcome: 'reverted', isMoved: true },
  'a release with no way back that the rescue puts back': {
    doing: 'rescue',
    isGood: true,
    outcome: 'reverted',
    isMoved: true,
  },
  '`state restore`': { doing: 'restore', isGood: true, outcome: null, isMoved: false },
  '`state restore` of a command': { ...OTHER, rest: copyName(DUMP, 'v0.9.0', MADE_AT) },
  '`state restore` of folders': { ...OTHER, rest: copyName(FOLDERS, 'v0.9.0', MADE_AT) },
}
/** the program is compiled once */
const compiled = mkdtempSync(join(tmpdir(), 'baton-state-compiled-'))

for (const [at, [what, how]] of Object.entries(CASES).entries()) {
  kills(what, async () => await cutEverywhere(how, at, atOnce))
  cuts(what, async () => await cutEverywhere(how, at + 3, withoutPower))
}

process.on('exit', () => rmSync(compiled, { recursive: true, force: true }))
kills.run()
cuts.run()

/** A folder to work in; `cut`: what a cut of the kind leaves of it. */
interface Ground extends AsyncDisposable {
  root: string
  cut(): Promise<void>
}

async function cutEverywhere(
  { outcome, isMoved, ...how }: Case,
  first: number,
  open: (pristine: string) => Promise<Ground>,
): Promise<void> {
  const pristine = await makePristine()
  try {
    let changes = 0
    {
      await using ground = await open(pristine)
      const ended = await conduct(ground.root, { ...how, dieAt: null })
      changes = ended?.changes ?? 0
      await holds(ground.root, 'not killed')
      const { operation, history } = await journalOf(placesIn(ground.root).stateDirectory)
      for (const one of outcome === null ? [] : [operation, history[0]])
        equal([one?.outcome, one?.stateMoved !== undefined], [outcome, isMoved], one?.error?.message)
    }
    ok(changes > 10, `expected more than 10 changes of the disk, got ${changes}`)
    const every = how.rest === undefined ? EVERY : Math.min(EVERY, 6) // they have few
    for (let dieAt = 1 + (first % every); dieAt <= changes; dieAt += every) {
      await using ground = await open(pristine)
      is(await conduct(ground.root, { ...how, dieAt }), null, `change ${dieAt}: expected the process to be killed`)
      await ground.cut()
      const where = `killed before change ${dieAt} of ${changes}`
      if (how.rest !== undefined) await finishes(ground.root, how, where)
      await holds(ground.root, where)
    }
  } finally {
    await rm(pristine, { recursive: true, force: true })
  }
}

async function holds(root: string, where: string): Promise<void> {
  const started = await conduct(root, { doing: 'start', isGood: true, dieAt: null }).catch((cause: unknown) => {
    throw new Error(`${where}: the next start: ${String(cause)}`)
  })
  const { stateDirectory, database, acknowledged } = placesIn(root)
  const { operation, history } = await journalOf(stateDirectory)
  ok(operation === null || operation.outcome !== null, `${where}: an operation without an outcome`)
  ok(!existsSync(markPath(stateDirectory)), `${where}: a mark is left`)
  const moved = [operation, ...history].flatMap((one) =>
    one?.stateMoved === undefined ? [] : [one.stateMoved.restored, one.stateMoved.aside],
  )
  const listed = await copiesIn(stateDirectory)
  for (const path of moved) ok(existsSync(path), `${where}: ${path} is named and not there`)
  const rows = new Set([database, ...moved, ...listed].flatMap(rowsIn))
  const owed = readFileSync(acknowledged, 'utf8').trim().split('\n')
  equal(
    owed.filter((row) => !rows.has(row)),
    [],
    where,
  )
  is(columnIn(database), COLUMNS[['v0.9.0', 'v1.0.0', 'v1.1.0'].indexOf(started?.tag ?? '')], where)
  const left = (await readdir(root, { recursive: true })).filter((name) => /incoming|\.new$|\.tmp$/.test(name))
  equal(left, [], where)
}

/** The same command goes on where it was killed. */
async function finishes(root: string, how: How, where: string): Promise<void> {
  const { stateDirectory } = placesIn(root)
  const [rest, uploads] = [join(stateDirectory, 'rest'), join(stateDirectory, 'uploads')]
  const isDump = how.rest?.startsWith(`${DUMP}.`) === true
  const now = async () => [await readFile(rest, 'utf8'), await filesBelow(uploads)]
  const [before, after] = [[REST, UPLOADS], isDump ? [EARLIER_REST, UPLOADS] : [REST, EARLIER_UPLOADS]]
  const found = JSON.stringify(await now())
  const isWhole = [before, after].some((one) => JSON.stringify(one) === found)
  ok(isWhole || readOwed(stateDirectory)?.owes === 'restore', `${where}: ${found}`)
  ok((await conduct(root, { ...how, dieAt: null })) !== null, where)
  equal([await now(), readOwed(stateDirectory)], [after, null], where)
  const asides = (await readdir(asideDirectory(stateDirectory))).filter((name) =>
    name.startsWith(isDump ? DUMP : FOLDERS),
  )
  const contents = asides.map(async (name) => {
    const path = join(asideDirectory(stateDirectory), name)
    return JSON.stringify(isDump ? await readFile(path, 'utf8') : await filesBelow(join(path, 'uploads')))
  })
  ok((await Promise.all(contents)).includes(JSON.stringify(isDump ? REST : UPLOADS)), `${where}: ${asides.join()}`)
}

/** What `state list` shows. */
async function copiesIn(stateDirectory: string): Promise<string[]> {
  const folders = [snapshotDirectory(stateDirectory), asideDirectory(stateDirectory)]
  const found = folders.map(async (folder) => {
    const names = await readdir(folder).catch(() => [])
    return names.filter((name) => tagOfCopy(name, 'svc.db') !== null).map((name) => join(folder, name))
  })
  return (await Promise.all(found)).flat()
}

function columnIn(path: string): string {
  const database = new DatabaseSync(path)
  const row = database.prepare("SELECT name FROM pragma_table_info('notes')").get()
  database.close()
  return String(row?.['name'])
}

function rowsIn(path: string): string[] {
  const database = new DatabaseSync(path)
  is(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok', path)
  const rows = database.prepare(`SELECT ${columnIn(path)} AS row FROM notes`).all()
  database.close()
  return rows.map(({ row }) => String(row))
}

/** v1.0.0 in place and v0.9.0 behind it, with the data of each. */
async function makePristine(): Promise<string> {
  const { root, options }: World = await makeWorld()
  const rows = new DatabaseSync(options.database)
  rows.exec('ALTER TABLE notes RENAME COLUMN text TO body')
  rows.close()
  const folder = snapshotDirectory(options.stateDirectory)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const snapshot = new DatabaseSync(join(folder, SNAPSHOT))
  snapshot.exec('CREATE TABLE notes (text TEXT)')
  snapshot.exec("INSERT INTO notes VALUES ('row 0')")
  snapshot.close()
  await writeFile(join(folder, copyName(DUMP, 'v0.9.0', MADE_AT)), EARLIER_REST)
  const folders = join(folder, copyName(FOLDERS, 'v0.9.0', MADE_AT))
  await writeUploads(join(folders, 'uploads'), EARLIER_UPLOADS)
  await writeFile(join(folders, COPY_WORDS), JSON.stringify({ format: 1, folders: ['uploads'], bytes: 18 }))
  return root
}

const SNAPSHOT = copyName('svc.db', 'v0.9.0', MADE_AT)

function placesIn(root: string) {
  const stateDirectory = join(root, 'state')
  return {
    executable: join(root, 'opt/svc'),
    stateDirectory,
    database: join(stateDirectory, 'svc.db'),
    feed: join(root, 'feed'),
    restored: join(snapshotDirectory(stateDirectory), SNAPSHOT),
    acknowledged: `${root}.rows`,
  }
}

/** What the program printed, or null if it was killed. */
async function conduct(root: string, how: How & Pick<StateCrash, 'dieAt'>) {
  const options: StateCrash = { rest: '', ...placesIn(root), ...how }
  const env = { ...process.env, NODE_COMPILE_CACHE: compiled }
  try {
    const { stdout } = await run(process.execPath, [PROGRAM, JSON.stringify(options)], { timeout: 30_000, env })
    return JSON.parse(stdout) as { changes: number; tag: string; operation: Operation | null }
  } catch (error) {
    if (error instanceof Error && 'signal' in error && error.signal === 'SIGKILL') return null
    throw error
  }
}

const INITIAL = Array.from({ length: ROWS }, (_, row) => `row ${row}\n`).join('')

/** The process dies; what it has written is there. */
async function atOnce(pristine: string): Promise<Ground> {
  const root = await mkdtemp(join(tmpdir(), 'baton-state-kill-'))
  execFileSync('cp', ['-a', `${pristine}/.`, root])
  await writeFile(`${root}.rows`, INITIAL)
  return {
    root,
    cut: () => Promise.resolve(),
    async [Symbol.asyncDispose]() {
      await rm(root, { recursive: true, force: true })
      await rm(`${root}.rows`)
    },
  }
}

/** The power goes: of the file system's disk only that is there which was written to it. */
async function withoutPower(pristine: string): Promise<Ground> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-state-cut-'))
  const [root, disk, cutDisk] = ['root', 'disk', 'cut'].map((name) => join(folder, name)) as [string, string, string]
  await mkdir(root)
  execFileSync('truncate', ['-s', '96M', disk]) // an update wants 34 MiB of it to be free, a file system takes some
  execFileSync('mkfs.ext4', ['-q', '-E', 'lazy_itable_init=0,lazy_journal_init=0', '-d', pristine, disk])
  await writeFile(`${root}.rows`, INITIAL)
  const mount = (image: string) => execFileSync('mount', ['-o', 'loop', image, root])
  const unmount = () => execFileSync('umount', [root])
  mount(disk)
  return {
    root,
    async cut() {
      execFileSync('cp', ['--sparse=always', disk, cutDisk]) // before the unmounting, which writes everything
      unmount()
      mount(cutDisk)
    },
    async [Symbol.asyncDispose]() {
      unmount()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
