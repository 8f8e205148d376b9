// RowValues that a migration changes in rows that were there before. Real SQLite: the rows are read before and after, and the clause about
// them is what a person reads.

import { DatabaseSync } from 'node:sqlite'
import {
  changedIn,
  type TableOfRows,
  type RowValues,
  valuesIn,
  whyValuesChanged,
} from '../agent/update/rehearsal/values.ts'
import { is } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('values of a migration')

const TABLES: readonly TableOfRows[] = [
  { name: 'entries', columns: ['id', 'amount', 'note'], key: ['id'] },
  { name: 'meta', columns: ['name', 'value'], key: ['name'] },
  { name: 'lines', columns: ['text', 'size'], key: [] },
  { name: 'slugs', columns: ['slug', 'hits'], key: ['slug'] },
]
const numbers = (count: number) => `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})`
const MADE = `
  CREATE TABLE entries(id INTEGER PRIMARY KEY, amount, note TEXT);
  CREATE TABLE meta(name TEXT PRIMARY KEY, value);
  CREATE TABLE lines(text TEXT, size INTEGER);
  CREATE TABLE slugs(slug TEXT PRIMARY KEY, hits INTEGER) WITHOUT ROWID;
  ${numbers(202)} INSERT INTO entries SELECT i, i * 100, 'entry ' || i FROM n;
  ${numbers(50)} INSERT INTO lines SELECT 'line ' || i, 6 FROM n;
  INSERT INTO meta VALUES ('started', 1), ('schema', 9007199254740993);
  INSERT INTO slugs VALUES ('a', 1), ('b', 2)`

const CASES: Record<string, [migration: string, told: string | null]> = {
  nothing: ['', null],
  'euros become cents in each row': [
    'UPDATE entries SET amount = amount + 1',
    'values changed in 202 of 202 rows of entries (amount)',
  ],
  'two columns of some rows': [
    `UPDATE entries SET amount = NULL, note = upper(note) WHERE id <= 10; UPDATE entries SET note = '' WHERE id = 11`,
    'values changed in 11 of 202 rows of entries (amount, note)',
  ],
  'another type of the same text': [
    `UPDATE entries SET amount = CAST(amount AS TEXT) WHERE id = 7`,
    'values changed in 1 of 202 rows of entries (amount)',
  ],
  'a whole number with a point is no other value': ['UPDATE entries SET amount = amount * 1.0', null],
  'a new column, filled': ['ALTER TABLE entries ADD COLUMN size; UPDATE entries SET size = length(note)', null],
  'new rows': [`INSERT INTO entries(amount) VALUES (1); INSERT INTO lines VALUES ('line', 4)`, null],
  'a table without a key that was made anew in another order': [
    'CREATE TEMP TABLE kept AS SELECT * FROM lines ORDER BY text DESC; DELETE FROM lines; INSERT INTO lines SELECT * FROM kept',
    null,
  ],
  'a table without a key, one row changed': [
    'UPDATE lines SET size = 7 WHERE rowid = 3',
    'values changed in 1 of 50 rows of lines (size)',
  ],
  'a table without row numbers': ['UPDATE slugs SET hits = 0', 'values changed in 2 of 2 rows of slugs (hits)'],
  'a number that no double holds': [
    'UPDATE meta SET value = value - 1 WHERE value > 1000',
    'values changed in 1 of 2 rows of meta (value)',
  ],
  'four tables': [
    `UPDATE entries SET note = ''; UPDATE meta SET value = 5; UPDATE lines SET size = 1; UPDATE slugs SET hits = 9`,
    'values changed in 202 of 202 rows of entries (note), in 2 of 2 rows of meta (value), in 50 of 50 rows of lines (size) and in 1 more table',
  ],
}

for (const [what, [migration, told]] of Object.entries(CASES))
  test(`${what}: ${told === null ? 'nothing is told' : 'told'}`, () => {
    const [before, after] = [read(''), read(migration)]
    is(whyValuesChanged(changedIn(before, after), {}), told)
  })

test('what the present release changes whenever it runs is not told of the new one, and more than that is', () => {
  const copied = read('')
  const ran = `UPDATE meta SET value = 2 WHERE name = 'started'`
  const before = read(ran)
  const itself = changedIn(copied, before)
  is(whyValuesChanged(changedIn(before, read(`UPDATE meta SET value = 3 WHERE name = 'started'`)), itself), null)
  is(
    whyValuesChanged(changedIn(before, read(`${ran}; UPDATE meta SET value = 3`)), itself),
    'values changed in 2 of 2 rows of meta (value)',
  )
})

test('of a large table the first and the last rows are read, and the sentence says so', () => {
  const rows = `DELETE FROM entries; ${numbers(50_000)} INSERT INTO entries SELECT i, i, 'x' FROM n`
  const told = (migration: string) => whyValuesChanged(changedIn(read(rows), read(`${rows}; ${migration}`)), {})
  is(told('UPDATE entries SET amount = 0'), 'values changed in 20000 of 20000 checked rows of entries (amount)')
  is(
    told('UPDATE entries SET amount = 0 WHERE id > 49999'),
    'values changed in 1 of 20000 checked rows of entries (amount)',
  )
  is(told(''), null)
})

test('a table that only the application can read is left out', () => {
  const database = new DatabaseSync(':memory:')
  database.exec(MADE)
  const { unknown, ...known } = valuesIn(database, [...TABLES, { name: 'unknown', columns: ['a'], key: [] }])
  database.close()
  is(unknown, undefined)
  is(Object.keys(known).length, TABLES.length)
})

test.run()

function read(migration: string): RowValues {
  const database = new DatabaseSync(':memory:')
  try {
    database.exec(MADE)
    database.exec(migration)
    return valuesIn(database, TABLES, 60_000)
  } finally {
    database.close()
  }
}
