// @deadlineMs 600000
// The rehearsal without its cage: the performer starts real releases on a copy, and what they do to it leads to a verdict.
// test/systemd-rehearsal.test.ts has the cage. In CI the database has 1,000 rows, in `npm run soak -- --long` 100,000, and some of the
// migrations are tried at 1 and 2 million too, and with a rollback journal.

import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { performHere } from '../deploy/make/rehearse-here.ts'
import { foreseeFull } from '../agent/update/rehearsal/budget.ts'
import { judge, refuseLate } from '../agent/update/rehearsal/judge.ts'
import { blameOf, isBlameless } from '../agent/words/blame.ts'
import { PHASES, readReportOf, type Report } from '../agent/update/rehearsal/report.ts'
import { equal, is, match, ok, rejects, throws, withCode } from './assert.ts'
import { run } from '../deploy/lib/shell.ts'
import { buildLedgers, fillLedger, unpackLedger } from './lab/ledger.ts'
import { isLong, suite } from './suite.ts'

const test = suite('rehearsal', { timeoutMs: 120_000 })
const TAGS = { from: 'v1.0.0', to: 'v1.1.0' }
const ROWS = isLong ? 100_000 : 1000
let home: string
let present: string
let candidate: string

test.before(async () => {
  home = await mkdtemp(join(tmpdir(), 'baton-rehearsal-'))
  const feed = join(home, 'feed')
  await mkdir(feed)
  await buildLedgers(feed, ['v1.0.0', 'v1.1.0'])
  present = await unpacked(feed, 'v1.0.0')
  candidate = await unpacked(feed, 'v1.1.0')
})
test.after(async () => await rm(home, { recursive: true, force: true }))

/** Migrations after which v1.0.0 goes on working. */
const OPEN = {
  nothing: '',
  'a column': 'database.exec("ALTER TABLE notes ADD COLUMN colour TEXT")',
  'a column with a default that must not be null': `database.exec("ALTER TABLE notes ADD COLUMN rank INTEGER NOT NULL DEFAULT 0")`,
  'two columns in two tables': `database.exec("ALTER TABLE notes ADD COLUMN a; ALTER TABLE authors ADD COLUMN b TEXT DEFAULT 'x'")`,
  'a table': 'database.exec("CREATE TABLE tags(id INTEGER PRIMARY KEY, name TEXT)")',
  'a table that points at an old one':
    'database.exec("CREATE TABLE tags(note INTEGER REFERENCES notes(id) ON DELETE CASCADE, name TEXT)")',
  'a table with rows from an old one': `database.exec("CREATE TABLE texts AS SELECT id, text FROM notes")`,
  'an index': 'database.exec("CREATE INDEX notes_text ON notes(text)")',
  'a view': 'database.exec("CREATE VIEW newest AS SELECT max(id) FROM notes")',
  'a number': 'database.exec("PRAGMA user_version = 7")',
  'rows that are written': `database.exec("INSERT INTO authors VALUES (3, 'eva')")`,
  'a column that is filled': `database.exec("ALTER TABLE notes ADD COLUMN size INTEGER; UPDATE notes SET size = length(text)")`,
  'a rebuilt file': 'database.exec("VACUUM; ANALYZE")',
} as const

/** Migrations after which it does not, or nobody knows. */
const NOT_OPEN = {
  'a table renamed': [
    'irreversible',
    'database.exec("ALTER TABLE notes RENAME TO entries"); breaks.select = "SELECT * FROM entries"; breaks.insert = "INSERT INTO entries(text) VALUES (?)"',
  ],
  'a column renamed': [
    'irreversible',
    'database.exec("ALTER TABLE notes RENAME COLUMN text TO body"); breaks.select = "SELECT * FROM notes"; breaks.insert = "INSERT INTO notes(body) VALUES (?)"',
  ],
  'a column dropped': [
    'irreversible',
    'database.exec("ALTER TABLE notes DROP COLUMN text"); breaks.select = "SELECT * FROM notes"; breaks.insert = "INSERT INTO notes(author) VALUES (length(?) * 0 + 1)"',
  ],
  'rows dropped': ['irreversible', 'database.exec("DELETE FROM notes WHERE id % 10 = 0")'],
  'one row dropped, as many as the requests add': ['irreversible', 'database.exec("DELETE FROM notes WHERE id = 7")'],
  'a table dropped': [
    'irreversible',
    'database.exec("PRAGMA foreign_keys = OFF; DROP TABLE notes"); breaks.select = "SELECT 1"; breaks.insert = "INSERT INTO authors(name) VALUES (?)"',
  ],
  'writes refused by a trigger': [
    'irreversible',
    `database.exec("CREATE TRIGGER t BEFORE INSERT ON notes BEGIN SELECT RAISE(ABORT, 'new writers only'); END"); breaks.writes = false`,
  ],
  'writes refused by a column that needs a value': [
    'irreversible',
    `database.exec("PRAGMA foreign_keys = OFF; CREATE TABLE n2(id INTEGER PRIMARY KEY, author INTEGER, text TEXT NOT NULL, owner TEXT NOT NULL); INSERT INTO n2 SELECT id, author, text, 'x' FROM notes; DROP TABLE notes; ALTER TABLE n2 RENAME TO notes")`,
  ],
  'writes refused by a unique index': [
    'irreversible',
    `database.exec("DELETE FROM notes WHERE text = 'note of v1.0.0'; CREATE UNIQUE INDEX u ON notes(text); INSERT INTO notes(author, text) VALUES (1, 'note of v1.0.0')")`,
  ],
  'a table made anew by copying': [
    'unproven',
    `database.exec("PRAGMA foreign_keys = OFF; CREATE TABLE n2(id INTEGER PRIMARY KEY, author INTEGER REFERENCES authors(id), text TEXT NOT NULL CHECK (length(text) < 1000)); INSERT INTO n2 SELECT * FROM notes; DROP TABLE notes; ALTER TABLE n2 RENAME TO notes")`,
  ],
  'values changed': [
    'unproven',
    'database.exec("UPDATE notes SET author = author + 1 WHERE author = 1; UPDATE notes SET text = upper(text)")',
  ],
  'a trigger that does harm later': [
    'unproven',
    `database.exec("CREATE TRIGGER t AFTER INSERT ON notes WHEN new.id > 1000000 BEGIN DELETE FROM authors; END")`,
  ],
  'the new release does not write': ['unproven', 'breaks.writes = true'],
  'a column of another type': [
    'unproven',
    `database.exec("PRAGMA foreign_keys = OFF; CREATE TABLE n2(id INTEGER PRIMARY KEY, name BLOB NOT NULL); INSERT INTO n2 SELECT * FROM authors; DROP TABLE authors; ALTER TABLE n2 RENAME TO authors")`,
  ],
} as const

/** CI tries one of each kind: the others change the data in a way that one of these has too. */
const SHORT = new Set<string>([
  'nothing',
  'a column with a default that must not be null',
  'rows that are written',
  'a column renamed',
  'one row dropped, as many as the requests add',
  'writes refused by a trigger',
  'a table made anew by copying',
  'values changed',
] satisfies (keyof typeof OPEN | keyof typeof NOT_OPEN)[])
const migrates = (what: string) => (SHORT.has(what) ? test : test.long)

for (const [what, migration] of Object.entries(OPEN)) {
  migrates(what)(`open: ${what}`, async () => {
    const report = await rehearsed(migration)
    equal(judge(report, TAGS), {
      verdict: 'reversible',
      code: 'reads_and_writes',
      reason: 'v1.0.0 can read and write the data as v1.1.0 leaves it',
    })
    ok((report.rows ?? 0) >= ROWS)
  })
}

for (const [what, [verdict, migration]] of Object.entries(NOT_OPEN)) {
  migrates(what)(`never open: ${what}`, async () => {
    const report = await rehearsed(migration)
    const judged = judge(report, TAGS)
    is(judged.verdict, verdict, JSON.stringify(report))
    ok(judged.reason.length > 10)
  })
}

const LARGE: Record<string, [verdict: string, migration: string]> = {
  'an index': ['reversible', OPEN['an index']],
  'rows that are written': ['reversible', OPEN['rows that are written']],
  'one row dropped': ['irreversible', NOT_OPEN['one row dropped, as many as the requests add'][1]],
  'a table made anew by copying': ['unproven', NOT_OPEN['a table made anew by copying'][1]],
}

for (const rows of isLong ? [1_000_000, 2_000_000] : [])
  for (const [what, [verdict, migration]] of Object.entries(LARGE))
    for (const journal of ['WAL', 'DELETE'] as const)
      test(`${rows} rows, ${journal}, ${what}: ${verdict}`, async () => {
        const report = await rehearsed(migration, 60_000, async (folder) => await fillAnew(folder, rows, journal))
        is(judge(report, TAGS).verdict, verdict, JSON.stringify(report))
        ok((report.rows ?? 0) >= rows)
      })

if (isLong)
  test.long('a migration of 20 s is waited for', async () => {
    const report = await rehearsed('return new Promise((resolve) => setTimeout(resolve, 20_000))', 60_000)
    is(judge(report, TAGS).verdict, 'reversible')
    ok((report.candidate?.ms ?? 0) >= 20_000)
  })

test('with a rollback journal the verdicts are the same', async () => {
  for (const [verdict, migration] of Object.values(LARGE).slice(1, 3)) {
    const anew = async (folder: string) => await fillAnew(folder, ROWS, 'DELETE')
    is(judge(await rehearsed(migration, 20_000, anew), TAGS).verdict, verdict)
  }
})

const FAILED = {
  'half-way': [
    /fails on a copy of the data: it exited with code 1, saying .*no such table: none/,
    'database.exec("ALTER TABLE notes ADD COLUMN a"); database.exec("DELETE FROM none")',
  ],
  'by answering 503': [
    /it was not healthy after 3 s: \/health returned 503 "warming up", and its log ends with "(?!warming)/,
    `require('node:http').createServer((_, response) => response.writeHead(503).end('warming up')).listen(process.env.PORT, process.env.HOST)
      return new Promise(() => console.log('listening'))`,
  ],
  'by hanging': [/it was not healthy after 3 s/, 'return new Promise((resolve) => setTimeout(resolve, 60_000))'],
  'by breaking a foreign key': [
    new RegExp(`the number of rows that refer to missing rows has grown by (${ROWS / 2 - 1}|${ROWS / 2}) `),
    'database.exec("PRAGMA foreign_keys = OFF; DELETE FROM authors WHERE id = 2; INSERT INTO authors VALUES (9, \'x\')")',
  ],
  'by ending at once': [/it exited with code 3/, 'process.exit(3)'],
} as const

/** a hang is waited for as an answer of 503 is, and an end is told as an error is */
const FAILED_LATER = ['by hanging', 'by ending at once']

for (const [what, [message, migration]] of Object.entries(FAILED)) {
  const register = FAILED_LATER.includes(what) ? test.long : test
  register(`a migration that fails ${what} fails the verification`, async () => {
    const report = await rehearsed(migration, 3000)
    const failure = throws(() => judge(report, TAGS), withCode('verify_failed'))
    match(failure.message, message)
    const isLate = what === 'by hanging' || what === 'by answering 503'
    equal(blameOf(failure), { isBlameless: false, ...(isLate && { hadMs: 3000 }) })
  })
}

test('a present release that cannot serve there says nothing about the candidate', async () => {
  const report = await rehearsed(
    '',
    3000,
    async (folder) => await writeFile(join(folder, 'ledger.db'), 'not a database'),
  )
  const { verdict, reason } = judge(report, TAGS)
  is(verdict, 'untried')
  match(
    reason,
    /^the running release v1\.0\.0 does not work in the trial: it exited with code 1.*file is not a database/,
  )
})

test('without a request that writes it is unproven; with the word of the author it is open although a table was made anew', async () => {
  const report = await rehearsed('')
  const silent = { ...report, presentAgain: { ...(report.presentAgain ?? fail()), writes: 0 } }
  is(judge(silent, TAGS).verdict, 'unproven')
  is(judge({ ...report, difference: 'the table notes was made anew' }, TAGS).verdict, 'unproven')
  is(judge({ ...report, difference: 'the table notes was made anew', reversible: true }, TAGS).verdict, 'reversible')
})

test('a report that a release has forged is no report: no member is believed', () => {
  const forged = readReportOf({
    phase: 'ready',
    rows: -1,
    present: 'well',
    candidate: [],
    lost: { a: 1 },
    reversible: 'yes',
  })
  equal(forged, { ...EMPTY })
  is(judge(forged, TAGS).verdict, 'untried')
  is(readReportOf({ damage: `a\u001b[31m${'x'.repeat(5000)}` }).damage?.length, 1000)
  const ended = () => judge({ ...EMPTY, phase: 'candidate', present: { ...GOOD } }, TAGS)
  ok(isBlameless(throws(ended, withCode('verify_failed'))), 'a cage has less memory than the service')
})

test('once a candidate has begun, a trial that ends or takes too long is never *not tried*; without room it does not begin', () => {
  for (const phase of PHASES) {
    const hasBegun = phase === 'candidate' || phase === 'present-again'
    const late = () => refuseLate({ ...EMPTY, phase }, 'v1.1.0', 'it did not finish within 9 s')
    if (hasBegun) ok(isBlameless(throws(late, withCode('verify_failed'))), phase)
    else late()
  }
  is(judge({ ...EMPTY, phase: 'no-room' }, TAGS).verdict, 'untried')
  const cut = { ...EMPTY, phase: 'present-again', present: { ...GOOD }, candidate: { ...GOOD } } as const
  is(judge(cut, TAGS).verdict, 'irreversible')
})

test('another database among `trial.files` is named, since it does not go back; a release that damages it fails', async () => {
  const beside = async (folder: string) => {
    const database = new DatabaseSync(join(folder, 'more', 'other.db'))
    database.exec('CREATE TABLE t(x); CREATE INDEX i ON t(x); INSERT INTO t VALUES (1), (2)')
    database.close()
  }
  const made = async (folder: string) => await beside(await mkdir(join(folder, 'more')).then(() => folder))
  const well = await rehearsed('', 20_000, made)
  equal(well.others, ['more/other.db'])
  equal(judge(well, TAGS), {
    verdict: 'reversible',
    code: 'reads_and_writes',
    reason: 'v1.0.0 can read and write the data as v1.1.0 leaves it',
    others: ['more/other.db'],
    hint: 'more/other.db is another database of the service; a rollback with `--restore-state` leaves it unchanged',
  })
  const harm = `const fs = require('node:fs'); fs.truncateSync(state + '/more/other.db', 5000)`
  const harmed = await rehearsed(harm, 20_000, made)
  match(
    throws(() => judge(harmed, TAGS), withCode('verify_failed')).message,
    /after its migration, the additional database more\/other\.db is damaged/,
  )
  const gone = await rehearsed(`require('node:fs').rmSync(state + '/more/other.db')`, 20_000, made)
  match(
    throws(() => judge(gone, TAGS), withCode('verify_failed')).message,
    /the additional database more\/other\.db is missing/,
  )
  const name = "state + '/more/' + String(i).padStart(3, '0') + '.db'"
  const copies = `for (let i = 0; i < 60; i++) require('node:fs').copyFileSync(state + '/more/other.db', ${name})`
  const more = await rehearsed(copies, 20_000, made)
  equal([judge(more, TAGS).verdict, more.others], ['reversible', ['more/other.db']], 'a release may add databases')
})

test('a release knows that it is rehearsed, and starts nothing that only one process may do', async () => {
  const folder = await cageFolder('')
  await writeFile(join(folder, 'note-role'), '')
  await performed(folder)
  is(await readFile(join(folder, 'role-v1.1.0'), 'utf8'), 'trial')
  is(await readFile(join(folder, 'role-v1.0.0'), 'utf8'), 'trial')
  ok(!(await readdir(folder)).includes('update'))
})

test.long('`baton trial` tries the newest release of a folder on a database, which it only reads', async () => {
  const folder = join(import.meta.dirname, 'fixtures', 'ledger')
  const data = join(home, 'theirs.db')
  fillLedger(data, 50)
  const before = await readFile(data)
  const project = join(home, 'project')
  await mkdir(project)
  await writeFile(join(project, 'ledger.js'), await readFile(join(folder, 'ledger.js')))
  const config = { service: 'ledger', kind: 'script', entry: 'ledger.js', healthPath: '/health', database: 'ledger.db' }
  await writeFile(join(project, 'baton.config.json'), JSON.stringify(config))
  const baton = [process.execPath, '--import', 'tsx', join(import.meta.dirname, '../deploy/baton.ts'), 'trial']
  const flags = ['--dir', project, '--out', join(home, 'feed'), '--from', 'v1.0.0', '--data', data]
  const { stdout } = await run([...baton, ...flags, '--json'], { timeoutMs: 60_000 })
  const { verdict, to, report } = JSON.parse(stdout) as { verdict: string; to: string; report: Report }
  equal([verdict, to, report.rows], ['reversible', 'v1.1.0', 52 + 1])
  equal(await readFile(data), before)
  const wrong = await run([...baton, '--dir', project, '--from', 'v1.0.0'], { allowFailure: true })
  is(wrong.exitCode, 2, wrong.stderr)
})

test.long('a release that fills the disk is foreseen by its speed; one that writes a little very fast is not', () => {
  const MB = 1e6
  const seen = (room: number, perMs: number, forMs = Infinity) => {
    const isFilling = foreseeFull()
    for (let at = 0; at <= 5000; at += 20) {
      const left = room - perMs * Math.min(at, forMs)
      if (left <= 0) return 'full'
      if (isFilling(left, at)) return left
    }
    return null
  }
  for (const speed of [0.05, 0.3, 1, 3].map((gigabytes) => gigabytes * MB))
    for (const room of [800, 2000, 10_000]) {
      const left = seen(room * MB, speed)
      if (speed * 5000 < room * MB * 0.9) is(left, null, `${room} MB at ${speed} bytes a ms`)
      else
        ok(
          typeof left === 'number' && left > speed * Math.min(400, (room * MB) / speed / 4),
          `${room}, ${speed}: ${left}`,
        )
    }
  is(seen(400 * MB, MB, 100), null, '100 MB in 100 ms, and 300 are left')
  is(foreseeFull()(-1), true)
  const full = { ...EMPTY, phase: 'full' as const, present: { ...GOOD } }
  match(throws(() => judge(full, TAGS), withCode('refused')).message, /would have filled the disk/)
})

test('the performer ends when its request is gone', async () => {
  const folder = await cageFolder('return new Promise((resolve) => setTimeout(resolve, 60_000))')
  const ended = performed(folder)
  await new Promise((resolve) => setTimeout(resolve, 2000))
  await rm(join(folder, '.trial-request.json'))
  await rejects(ended, (error) => /ledger-v1\.0\.0 exited with code 1/.test(String(error)))
})

test.run()

const GOOD = { ms: 1, failure: null, refused: null, requests: 1, writes: 1 }
const EMPTY: Report = {
  phase: 'begun',
  rows: null,
  present: null,
  candidate: null,
  presentAgain: null,
  damage: null,
  lost: null,
  difference: null,
  changed: null,
  others: [],
  reversible: false,
}

async function rehearsed(
  migration: string,
  startMs = 20_000,
  change: (folder: string) => Promise<void> = async () => {},
): Promise<Report> {
  const folder = await cageFolder(migration)
  await change(folder)
  const report = await performed(folder, startMs)
  await rm(folder, { recursive: true, force: true })
  return report
}

let count = 0

async function cageFolder(migration: string): Promise<string> {
  const folder = join(home, `copy-${++count}`)
  await mkdir(folder)
  fillLedger(join(folder, 'ledger.db'), ROWS)
  await writeFile(join(folder, 'migration.js'), migration)
  return folder
}

async function fillAnew(folder: string, rows: number, journal: 'WAL' | 'DELETE'): Promise<void> {
  await rm(join(folder, 'ledger.db'))
  fillLedger(join(folder, 'ledger.db'), rows, journal)
  if (journal === 'DELETE') await writeFile(join(folder, 'rollback-journal'), '')
}

async function performed(state: string, startMs = 20_000): Promise<Report> {
  return await performHere({ present, candidate, database: 'ledger.db', state, startMs })
}

async function unpacked(feed: string, tag: string): Promise<string> {
  const path = join(home, `ledger-${tag}`)
  await unpackLedger(feed, tag, path)
  return path
}

function fail(): never {
  throw new Error('expected a report of the present release')
}
