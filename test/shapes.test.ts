// Databases of every shape that an application may have: each is copied, looked at and exchanged whole, and an unusual one is never
// taken for a changed or a damaged one.

import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { copyHere } from '../agent/disk/quiet-copy.ts'
import { copyBetweenWrites, schemaInHeader } from '../agent/disk/quiet-copy.ts'
import { ownState } from '../agent/disk/state-mark.ts'
import { compared } from '../agent/update/rehearsal/perform.ts'
import { type CopyLook, lookAtDatabase, prepareDatabase } from '../agent/update/rehearsal/look.ts'
import { equal, is, match, ok, rejects } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('shapes', { timeoutMs: 60_000 })
const SAME = { damage: null, lost: null, difference: null, changed: null }
let home: string

test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-shapes-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

const BLOB = 'CREATE TABLE t(x); INSERT INTO t VALUES (randomblob(50000))'
/** how it is made, and a change that only adds */
const SHAPES: Record<string, [make: string[], add: string]> = {
  'without a row id': [
    ['CREATE TABLE t(a TEXT PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t VALUES (1, 2)'],
    adding('t'),
  ],
  'full text': [
    ["CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('one'); INSERT INTO f VALUES ('two')"],
    "INSERT INTO f(f) VALUES ('optimize')",
  ],
  'full text of another table': [
    [
      "CREATE TABLE t(id INTEGER PRIMARY KEY, body); INSERT INTO t VALUES (1, 'one'); CREATE VIRTUAL TABLE f USING fts5(body, content='t', content_rowid='id')",
    ],
    "INSERT INTO f(f) VALUES ('rebuild')",
  ],
  'an R-tree': [['CREATE VIRTUAL TABLE r USING rtree(id, a, b); INSERT INTO r VALUES (1, 2, 3)'], 'SELECT 1'],
  'generated columns': [
    ['CREATE TABLE t(a, b GENERATED ALWAYS AS (a * 2) STORED, c AS (a + 1)); INSERT INTO t(a) VALUES (1)'],
    adding('t'),
  ],
  'a trigger and a view': [
    [
      'CREATE TABLE t(x); CREATE TABLE u(x); CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO u VALUES (new.x); END; CREATE VIEW v AS SELECT * FROM t; INSERT INTO t VALUES (1)',
    ],
    adding('t'),
  ],
  'a view of nothing': [['CREATE TABLE t(x)', 'CREATE VIEW v AS SELECT * FROM nowhere'], adding('t')],
  'pages of 512 bytes': [['PRAGMA page_size = 512', BLOB], adding('t')],
  'pages of 64 KiB': [['PRAGMA page_size = 65536', BLOB], adding('t')],
  'pages of 64 KiB, in WAL mode': [['PRAGMA page_size = 65536', 'PRAGMA journal_mode = WAL', BLOB], adding('t')],
  'automatic vacuum': [['PRAGMA auto_vacuum = 2', BLOB, 'DELETE FROM t'], adding('t')],
  'UTF-16': [["PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t(x); INSERT INTO t VALUES ('ü')"], adding('t')],
  'odd names': [
    [`CREATE TABLE "we""ird 't"("a""b" TEXT); CREATE TABLE "sqlite"(x); CREATE TABLE "SELECT"("from")`],
    adding('"we""ird \'t"'),
  ],
  strict: [['CREATE TABLE t(x ANY) STRICT; INSERT INTO t VALUES (1)'], adding('t')],
  'a negative number': [['CREATE TABLE t(x); PRAGMA user_version = -5'], adding('t')],
  'a foreign key that is no key': [
    ['CREATE TABLE p(a); CREATE TABLE t(b REFERENCES p(a)); INSERT INTO t VALUES (1)'],
    adding('t'),
  ],
  'a module of the application': [
    ['CREATE TABLE t(x)', ...schemaRow("'table', 'z', 'z', 0, 'CREATE VIRTUAL TABLE z USING nosuch(x)'")],
    adding('t'),
  ],
  'a collation of the application': [
    [
      "CREATE TABLE t(x); CREATE INDEX i ON t(x); INSERT INTO t VALUES ('b'), ('a')",
      'PRAGMA writable_schema = ON',
      "UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON t(x COLLATE nosuch)' WHERE name = 'i'",
    ],
    'SELECT 1',
  ],
  'many tables': [Array.from({ length: 400 }, (_, at) => `CREATE TABLE t${at}(x)`), adding('t7')],
}

for (const [what, [make, add]] of Object.entries(SHAPES)) {
  test(`${what}: copied whole, and what is only added to counts as that`, async () => {
    const path = made(what.replaceAll(/\W/g, '-'), make)
    const to = `${path}.copy`
    writeFileSync(to, '')
    await copyHere(path, to)
    const [before, copy] = [looked(path), looked(to)]
    equal(compared(before, copy), SAME)
    equal(copy.rows, before.rows)
    is(prepareDatabase(to, add), null)
    equal(compared(before, looked(to)), SAME)
  })
}

test('a folder and a file with blanks, quotes, umlauts and signs of a URL', async () => {
  const folder = `a b 'q" ünï?x#y%20`
  await mkdir(join(home, folder))
  const path = made(`${folder}/d b'"ü?mode=ro#`, [
    'PRAGMA user_version = 3; CREATE TABLE t(x); INSERT INTO t VALUES (1)',
  ])
  writeFileSync(`${path}.copy`, '')
  await copyHere(path, `${path}.copy`)
  equal(looked(`${path}.copy`).rows, { t: 1 })
  is(await schemaInHeader(path), 3)
})

test('an empty file, and a log of 0 bytes', async () => {
  const empty = join(home, 'empty.db')
  writeFileSync(empty, '')
  writeFileSync(`${empty}.copy`, '')
  await copyHere(empty, `${empty}.copy`)
  equal(looked(`${empty}.copy`).rows, {})
  const path = made('zero-log', ['PRAGMA journal_mode = WAL', 'CREATE TABLE t(x)', 'INSERT INTO t VALUES (1)'])
  writeFileSync(`${path}-wal`, '')
  writeFileSync(`${path}.copy`, '')
  await copyHere(path, `${path}.copy`)
  equal(looked(`${path}.copy`).rows, { t: 1 })
})

test('an encrypted database is copied as it is; with a log beside it it is refused, never copied without it', async () => {
  const path = join(home, 'encrypted.db')
  const bytes = Buffer.from(Array.from({ length: 40_960 }, (_, at) => (at * 7919) % 251))
  writeFileSync(path, bytes)
  writeFileSync(`${path}.copy`, '')
  await copyHere(path, `${path}.copy`)
  equal(readFileSync(`${path}.copy`), bytes)
  is(await schemaInHeader(path), null)
  match(JSON.stringify(lookAtDatabase(path)), /the database cannot be read: file is not a database/)
  match(prepareDatabase(path, 'DELETE FROM leases') ?? '', /^`prepare` failed: file is not a database/)
  writeFileSync(`${path}-wal`, bytes)
  writeFileSync(`${path}.copy`, '')
  is(await copyBetweenWrites(path, `${path}.copy`), false)
  is(statSync(`${path}.copy`).size, 0)
  await rejects(copyHere(path, `${path}.copy`), /file is not a database/)
})

test('an encrypted database is exchanged whole, with its log', async () => {
  const state = join(home, 'exchanged')
  const database = join(state, 'app.db')
  await mkdir(join(state, 'update'), { recursive: true })
  const mark = {
    operationId: 'o',
    database,
    owner: 'v1.0.0',
    next: 'v2.0.0',
    other: null,
    exchanged: null,
    moving: null,
  }
  writeFileSync(join(state, 'update', 'state.json'), JSON.stringify(mark))
  writeFileSync(join(state, 'update', 'journal.json'), JSON.stringify({ operation: { id: 'o', outcome: null } }))
  writeFileSync(database, 'old secrets')
  writeFileSync(`${database}-wal`, 'old log')
  ownState(state, 'v2.0.0')
  writeFileSync(database, 'new secrets')
  writeFileSync(`${database}-wal`, 'new log')
  writeFileSync(`${database}-shm`, 'new index')
  const { aside = '' } = ownState(state, 'v1.0.0') ?? {}
  const read = (path: string) => ['', '-wal'].map((suffix) => readFileSync(path + suffix, 'utf8'))
  equal(read(database), ['old secrets', 'old log'])
  equal(read(aside), ['new secrets', 'new log'])
  ok(!existsSync(`${database}-shm`))
})

test.run()

function adding(table: string): string {
  return `ALTER TABLE ${table} ADD COLUMN added TEXT`
}

function schemaRow(values: string): string[] {
  return ['PRAGMA writable_schema = ON', `INSERT INTO sqlite_schema VALUES (${values})`]
}

function made(name: string, statements: readonly string[]): string {
  const path = join(home, `${name}.db`)
  const database = new DatabaseSync(path, { enableForeignKeyConstraints: false, defensive: false })
  for (const statement of statements) database.exec(statement)
  database.close()
  return path
}

function looked(path: string): CopyLook {
  const look = lookAtDatabase(path)
  if (typeof look === 'string') throw new Error(look)
  return look
}
