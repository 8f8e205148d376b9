// Changes of a schema that look like an addition, and break a statement of the release before which none of its author's requests
// sends. Real SQLite: each change is made, the statement is run before and after it, and the verdict must not be `reversible`.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { compared } from '../agent/update/rehearsal/perform.ts'
import { judge } from '../agent/update/rehearsal/judge.ts'
import { lookAtDatabase } from '../agent/update/rehearsal/look.ts'
import { is, match, not, ok } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('shapes of a schema')
const TAGS = { from: 'v1.0.0', to: 'v1.1.0' }
const NOTES = 'id INTEGER PRIMARY KEY, author INTEGER REFERENCES authors(id), slug TEXT, text TEXT NOT NULL'
const BEFORE = `
  CREATE TABLE authors(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
  CREATE TABLE notes(${NOTES});
  CREATE TABLE kinds(id INTEGER PRIMARY KEY, kind TEXT CHECK (kind IN ('A', 'B')), rank INTEGER DEFAULT 1, code TEXT);
  CREATE TABLE sums(a INTEGER, twice INTEGER GENERATED ALWAYS AS (a * 2) VIRTUAL);
  CREATE TABLE pairs(a TEXT, b TEXT);
  CREATE INDEX notes_text ON notes(text);
  CREATE UNIQUE INDEX notes_slug ON notes(slug);
  CREATE VIEW newest AS SELECT id, text FROM notes WHERE text <> 'A' ORDER BY id DESC;
  CREATE VIEW names AS SELECT name FROM authors;
  CREATE TRIGGER new_name INSTEAD OF INSERT ON names BEGIN INSERT INTO authors(name) VALUES (new.name); END;
  CREATE TRIGGER marks AFTER INSERT ON kinds WHEN new.kind = 'A' BEGIN INSERT INTO pairs VALUES ('kind', 'A'); END;
  CREATE VIRTUAL TABLE words USING fts5(word);
  INSERT INTO authors VALUES (1, 'ada'), (2, 'grace');
  INSERT INTO notes VALUES (1, 1, 'one', 'note 1'), (2, 2, 'two', 'note 2');
  INSERT INTO kinds(kind, code) VALUES ('A', 'x');
  INSERT INTO sums(a) VALUES (1);
  INSERT INTO pairs VALUES ('a', 'b');
  INSERT INTO words VALUES ('running');
  PRAGMA application_id = 7; PRAGMA user_version = 3`

/** Makes a table anew under its plain name, as a release does that knows that a rename leaves quotes in its text. */
const anew = (table: string, shape: string, columns = '*') =>
  `PRAGMA foreign_keys = OFF; CREATE TEMP TABLE kept AS SELECT ${columns} FROM ${table}; DROP TABLE ${table};
   CREATE TABLE ${table}(${shape}; INSERT INTO ${table}${columns === '*' ? '' : `(${columns})`} SELECT * FROM kept; DROP TABLE kept`

const RENAMED = 'CREATE TEMP TABLE kept AS SELECT * FROM pairs; DROP TABLE pairs;'

/** By what it is: the migration, and a statement of the release before that it breaks, or whose answer it changes. */
const SHAPES: Record<string, [migration: string, statement: string]> = {
  'a column that needs a value': [
    `${RENAMED} CREATE TABLE pairs(a TEXT, b TEXT, c TEXT NOT NULL DEFAULT NULL); INSERT INTO pairs SELECT a, b, 'c' FROM kept`,
    `INSERT INTO pairs(a, b) VALUES ('c', 'd')`,
  ],
  'a new CHECK': [anew('pairs', `a TEXT, b TEXT CHECK (b <> 'no'))`), `INSERT INTO pairs VALUES ('a', 'no')`],
  'a CHECK with other letters in quotes': [
    anew('kinds', `id INTEGER PRIMARY KEY, kind TEXT CHECK (kind IN ('A', 'b')), rank INTEGER DEFAULT 1, code TEXT)`),
    `INSERT INTO kinds(kind) VALUES ('B')`,
  ],
  'a new UNIQUE': [anew('pairs', 'a TEXT, b TEXT UNIQUE)'), `INSERT INTO pairs VALUES ('x', 'b')`],
  'a unique index': ['CREATE UNIQUE INDEX u ON pairs(a)', `INSERT INTO pairs VALUES ('a', 'x')`],
  'a unique index of some rows': [
    `CREATE UNIQUE INDEX u ON pairs(a) WHERE b <> ''`,
    `INSERT INTO pairs VALUES ('a', 'x')`,
  ],
  'an index on an expression that fails': [
    `UPDATE pairs SET b = '{}'; CREATE INDEX i ON pairs(json_extract(b, '$.x'))`,
    `INSERT INTO pairs VALUES ('a', 'no JSON')`,
  ],
  'an index of the rows in which an expression that fails is true': [
    `UPDATE pairs SET b = '{}'; CREATE INDEX i ON pairs(a) WHERE b ->> 'x' = 1`,
    `INSERT INTO pairs VALUES ('a', 'no JSON')`,
  ],
  'a column that is computed, and fails': [
    `UPDATE pairs SET b = '{}'; ALTER TABLE pairs ADD COLUMN x AS (json_extract(b, '$.x'))`,
    `INSERT INTO pairs(a, b) VALUES ('a', 'no JSON'); SELECT * FROM pairs`,
  ],
  'a column whose default is a function that fails': [
    `${RENAMED} CREATE TABLE pairs(a TEXT, b TEXT, c TEXT DEFAULT (json_extract('no JSON', '$'))); INSERT INTO pairs SELECT a, b, 'c' FROM kept`,
    `INSERT INTO pairs(a, b) VALUES ('c', 'd')`,
  ],
  'a column that hides the number of the row': [
    'ALTER TABLE notes ADD COLUMN rowid TEXT',
    'SELECT rowid FROM notes WHERE rowid = 1',
  ],
  'a trigger that refuses': [
    `CREATE TRIGGER t BEFORE INSERT ON pairs WHEN new.a = 'no' BEGIN SELECT RAISE(ABORT, 'no'); END`,
    `INSERT INTO pairs VALUES ('no', 'x')`,
  ],
  'a trigger that refuses, on the table with capitals': [
    `CREATE TRIGGER t BEFORE INSERT ON PAIRS WHEN new.a = 'no' BEGIN SELECT RAISE(ABORT, 'no'); END`,
    `INSERT INTO pairs VALUES ('no', 'x')`,
  ],
  'a trigger that rewrites': [
    `CREATE TRIGGER t AFTER INSERT ON pairs BEGIN UPDATE pairs SET b = upper(b) WHERE rowid = new.rowid; END`,
    `INSERT INTO pairs VALUES ('x', 'y'); SELECT b FROM pairs WHERE a = 'x'`,
  ],
  'a trigger on a view, beside that of before': [
    `CREATE TRIGGER again INSTEAD OF INSERT ON names BEGIN INSERT INTO authors(name) VALUES (new.name); END`,
    `INSERT INTO names VALUES ('eva'); SELECT count(*) FROM authors WHERE name = 'eva'`,
  ],
  'a trigger with other letters in quotes': [
    `DROP TRIGGER marks; CREATE TRIGGER marks AFTER INSERT ON kinds WHEN new.kind = 'a' BEGIN INSERT INTO pairs VALUES ('kind', 'A'); END`,
    `INSERT INTO kinds(kind) VALUES ('A'); SELECT count(*) FROM pairs WHERE a = 'kind'`,
  ],
  'a trigger that is gone': [
    'DROP TRIGGER marks',
    `INSERT INTO kinds(kind) VALUES ('A'); SELECT count(*) FROM pairs WHERE a = 'kind'`,
  ],
  'another collation of the last column': [
    anew('pairs', 'a TEXT, b TEXT COLLATE NOCASE)'),
    `SELECT count(*) FROM pairs WHERE b = 'B'`,
  ],
  'another affinity': [
    anew('pairs', 'a TEXT, b INTEGER)'),
    `INSERT INTO pairs VALUES ('x', '007'); SELECT b FROM pairs WHERE a = 'x'`,
  ],
  'conflicts of the last column that are ignored': [
    anew('notes', `${NOTES} ON CONFLICT IGNORE)`) +
      '; CREATE INDEX notes_text ON notes(text); CREATE UNIQUE INDEX notes_slug ON notes(slug)',
    `INSERT INTO notes(slug, text) VALUES ('x', NULL)`,
  ],
  STRICT: [anew('pairs', 'a TEXT, b TEXT) STRICT'), `INSERT INTO pairs VALUES (x'00', 'x')`],
  'WITHOUT ROWID': [
    `${anew('kinds', `id INTEGER PRIMARY KEY, kind TEXT CHECK (kind IN ('A', 'B')), rank INTEGER DEFAULT 1, code TEXT) WITHOUT ROWID`)};
     CREATE TRIGGER marks AFTER INSERT ON kinds WHEN new.kind = 'A' BEGIN INSERT INTO pairs VALUES ('kind', 'A'); END`,
    `INSERT INTO kinds(kind) VALUES ('A')`,
  ],
  'another generated column': [
    anew('sums', 'a INTEGER, twice INTEGER GENERATED ALWAYS AS (a * 3) VIRTUAL)', 'a'),
    'SELECT twice FROM sums',
  ],
  'a generated column that is plain now': [anew('sums', 'a INTEGER, twice INTEGER)', 'a'), 'SELECT twice FROM sums'],
  'another view': [
    `DROP VIEW newest; CREATE VIEW newest AS SELECT id, upper(text) AS text FROM notes WHERE text <> 'A' ORDER BY id DESC`,
    'SELECT text FROM newest',
  ],
  'a view with other letters in quotes': [
    `INSERT INTO notes(text) VALUES ('A'); DROP VIEW newest; CREATE VIEW newest AS SELECT id, text FROM notes WHERE text <> 'a' ORDER BY id DESC`,
    'SELECT text FROM newest',
  ],
  'a view in the place of a table': [
    'ALTER TABLE pairs RENAME TO pairs2; CREATE VIEW pairs AS SELECT * FROM pairs2',
    `INSERT INTO pairs VALUES ('x', 'y')`,
  ],
  'another application_id': ['PRAGMA application_id = 8', 'PRAGMA application_id'],
  'a foreign key that cascades': [
    anew(
      'kinds',
      `id INTEGER PRIMARY KEY, kind TEXT, rank INTEGER DEFAULT 1 REFERENCES authors(id) ON DELETE CASCADE, code TEXT)`,
    ),
    'DELETE FROM notes; DELETE FROM authors WHERE id = 1; SELECT count(*) FROM kinds',
  ],
  'a new table that keeps old rows from being deleted': [
    'CREATE TABLE tags(note INTEGER REFERENCES notes(id)); INSERT INTO tags VALUES (1)',
    'DELETE FROM notes WHERE id = 1',
  ],
  'a new table that points at what is no key': [
    'CREATE TABLE tags(note TEXT REFERENCES notes(text) ON DELETE CASCADE)',
    'DELETE FROM notes WHERE id = 1',
  ],
  'another default': [
    anew('kinds', `id INTEGER PRIMARY KEY, kind TEXT CHECK (kind IN ('A', 'B')), rank INTEGER DEFAULT 2, code TEXT)`),
    `INSERT INTO kinds(code) VALUES ('y'); SELECT rank FROM kinds WHERE code = 'y'`,
  ],
  'columns in another order': [
    anew('pairs', 'b TEXT, a TEXT)', 'a, b'),
    `INSERT INTO pairs VALUES ('x', 'y'); SELECT b FROM pairs WHERE a = 'x'`,
  ],
  'an index that ON CONFLICT needs is gone': [
    'DROP INDEX notes_slug',
    `INSERT INTO notes(slug, text) VALUES ('one', 'x') ON CONFLICT(slug) DO UPDATE SET text = excluded.text`,
  ],
  'an index that ON CONFLICT needs has fewer rows': [
    `DROP INDEX notes_slug; CREATE UNIQUE INDEX notes_slug ON notes(slug) WHERE text <> ''`,
    `INSERT INTO notes(slug, text) VALUES ('one', 'x') ON CONFLICT(slug) DO UPDATE SET text = excluded.text`,
  ],
  'an index that INDEXED BY names is gone': [
    'DROP INDEX notes_text',
    `SELECT count(*) FROM notes INDEXED BY notes_text WHERE text = 'x'`,
  ],
  'a virtual table with other arguments': [
    `DROP TABLE words; CREATE VIRTUAL TABLE words USING fts5(word, tokenize = 'porter'); INSERT INTO words VALUES ('running')`,
    `SELECT count(*) FROM words WHERE words MATCH 'run'`,
  ],
}

let home: string
test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-shapes-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

for (const [what, [migration, statement]] of Object.entries(SHAPES))
  test(`never open: ${what}`, () => {
    const [before, after] = [look(''), look(migration)]
    not.equal(answerOf(migration, statement), answerOf('', statement), 'it changes nothing for the release before')
    const difference = compared(before, after)
    const { verdict, reason } = judge(reportOf(difference), TAGS)
    not.equal(verdict, 'reversible', JSON.stringify(difference))
    ok(reason.length > 10)
  })

/** Each lets the release before go on. */
const OPEN = {
  nothing: '',
  'a column, with STRICT and capitals and quotes as they were': `CREATE TABLE s(a TEXT DEFAULT 'X') STRICT`,
  'a column behind a table with options': `ALTER TABLE pairs ADD COLUMN c TEXT COLLATE NOCASE DEFAULT 'X'`,
  'a column behind a CHECK': `ALTER TABLE kinds ADD COLUMN more TEXT`,
  'a view, and a trigger on it': `CREATE VIEW v AS SELECT 1 AS a; CREATE TRIGGER v1 INSTEAD OF INSERT ON v BEGIN SELECT 1; END`,
  'a trigger on a new table': `CREATE TABLE tags(a); CREATE TRIGGER g AFTER INSERT ON tags BEGIN SELECT 1; END`,
  'a table whose rows go with the old ones': `CREATE TABLE tags(note INTEGER REFERENCES notes(id) ON DELETE CASCADE)`,
  'indexes on columns': `CREATE INDEX i ON pairs(a COLLATE NOCASE, b DESC); CREATE INDEX j ON pairs(b) WHERE a IS NOT NULL`,
  'a number': 'PRAGMA user_version = 4',
  'a file written anew': 'PRAGMA auto_vacuum = FULL; VACUUM',
}

for (const [what, migration] of Object.entries(OPEN))
  test(`open: ${what}`, () => {
    const difference = compared(look(''), look(migration))
    is(judge(reportOf(difference), TAGS).verdict, 'reversible', JSON.stringify(difference))
  })

test('an index, a trigger, a view, a collation or a constraint that differs is told by its name', () => {
  const told = (what: string) => compared(look(''), look(SHAPES[what]?.[0] ?? fail(what))).difference ?? ''
  match(
    told('another collation of the last column'),
    'the definition of the table pairs has changed in `collate nocase`',
  )
  match(told('a new CHECK'), "has changed in `check(b <> 'no')`")
  match(told('STRICT'), 'has changed in `strict`')
  match(told('a trigger that is gone'), 'the trigger marks was changed or removed')
  match(told('another view'), 'the view newest was changed or removed')
  match(told('an index that INDEXED BY names is gone'), 'the index notes_text was changed or removed')
})

test('another encoding is never open', () => {
  const path = join(home, 'utf16.db')
  const database = new DatabaseSync(path)
  database.exec(`PRAGMA encoding = 'UTF-16le'; ${BEFORE}`)
  database.close()
  is(judge(reportOf(compared(look(''), lookOf(path))), TAGS).verdict, 'unproven')
})

test.run()

/** A rehearsal in which everything that was asked went well. */
function reportOf(difference: ReturnType<typeof compared>) {
  const well = { ms: 1, failure: null, refused: null, requests: 2, writes: 1 }
  const runs = { present: well, candidate: well, presentAgain: well }
  return { phase: 'done', rows: 8, reversible: false, others: [], ...runs, ...difference } as const
}

function fail(what: string): never {
  throw new Error(`no shape ${what}`)
}

let count = 0

function made(migration: string): { path: string; database: DatabaseSync } {
  const path = join(home, `${++count}.db`)
  const database = new DatabaseSync(path)
  database.exec(BEFORE)
  if (migration !== '') database.exec(migration)
  database.exec('PRAGMA foreign_keys = ON')
  return { path, database }
}

function look(migration: string) {
  const { path, database } = made(migration)
  database.close()
  return lookOf(path)
}

function lookOf(path: string) {
  const found = lookAtDatabase(path)
  if (typeof found === 'string') throw new Error(found)
  return found
}

/** What the release before gets for its statements: the last one's rows, or why it is refused. */
function answerOf(migration: string, statements: string): string {
  const { database } = made(migration)
  try {
    const all = statements.split('; ').map((one) => {
      const statement = database.prepare(one)
      return statement.columns().length > 0 ? statement.all() : statement.run().changes
    })
    return JSON.stringify(all.at(-1))
  } catch (cause) {
    return String(cause)
  } finally {
    database.close()
  }
}
